//! What was seen, in words: above all, whether an endpoint is alive and does not resolve, or whether
//! there is no path to it.

use std::net::IpAddr;

use parallax_decide::observation::{EndpointCheck, Group, Outcome, Says};

use super::look::{Asked, Seen, TriedAddress};
use crate::assignment::Transport;
use crate::measured::EndpointParticulars;

/// How the name fares at this place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The addresses that clients here are given work.
    Usable,
    /// They do not, or there are none.
    NotUsable,
    /// This machine has no way out, so it can say nothing of others.
    NoWayOut,
}

impl Verdict {
    /// Its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Usable => "usable",
            Self::NotUsable => "not_usable",
            Self::NoWayOut => "no_way_out",
        }
    }
}

/// How the name fares: judged by the live resolver's answer where it was asked, else by all answers.
#[must_use]
pub fn verdict(seen: &Seen) -> Verdict {
    let live = seen.asked.iter().find(|asked| asked.resolver.transport == Transport::Live);
    let addresses: Vec<IpAddr> = match live {
        Some(live) => live.addresses().collect(),
        None => seen.asked.iter().flat_map(Asked::addresses).collect(),
    };
    let works = |tried: &&TriedAddress| tried.connection.outcome.says() == Says::Works;
    if seen.tried.iter().filter(works).any(|tried| addresses.contains(&tried.connection.address)) {
        Verdict::Usable
    } else if reached(seen) == 0 && !seen.tried.iter().any(|tried| works(&tried)) {
        Verdict::NoWayOut
    } else {
        Verdict::NotUsable
    }
}

/// How many of the well-known addresses were reached.
#[must_use]
pub fn reached(seen: &Seen) -> usize {
    seen.controls.iter().filter(|outcome| outcome.says() == Says::Works).count()
}

/// The sentences, most important first.
#[must_use]
pub fn sentences(seen: &Seen) -> Vec<String> {
    let name = &seen.wanted.name;
    let (reached, of) = (reached(seen), seen.controls.len());
    let intercepted = |outcome: &Outcome| matches!(outcome.group(), Group::Certificate | Group::Tls);
    let mut said = vec![match verdict(seen) {
        Verdict::Usable => format!("{name} can be used from here."),
        Verdict::NotUsable => format!("{name} cannot be used from here."),
        Verdict::NoWayOut if seen.controls.iter().any(intercepted) => format!(
            "Somebody on the way answers well-known addresses in their place, with certificates that do not prove them: nothing below says anything about {name} itself."
        ),
        Verdict::NoWayOut => format!(
            "This machine has no way out: none of {of} well-known addresses answered, so nothing below says anything about {name} itself."
        ),
    }];
    if (1..of).contains(&reached) {
        said.push(format!(
            "Only {reached} of {of} well-known addresses answered: this machine's own way out is not in order."
        ));
    }
    for asked in &seen.asked {
        said.extend(of_resolver(asked));
    }
    for tried in seen.tried.iter().filter(|tried| tried.connection.outcome.says() == Says::Fails) {
        said.push(format!(
            "{} {} (given by {}).",
            tried.connection.address,
            tried.connection.outcome.meaning(),
            tried.given_by.join(", ")
        ));
    }
    let working: Vec<String> = seen
        .tried
        .iter()
        .filter(|tried| tried.connection.outcome.says() == Says::Works)
        .map(|tried| tried.connection.address.to_string())
        .collect();
    if verdict(seen) == Verdict::NotUsable && !working.is_empty() {
        said.push(format!("Another resolver would help: {} works from here.", working.join(", ")));
    } else if verdict(seen) == Verdict::NotUsable && seen.tried.len() > 1 {
        said.push(
            "No resolver that was asked gives an address that works from here: changing the resolver cannot help."
                .to_owned(),
        );
    }
    said
}

fn of_resolver(asked: &Asked) -> Vec<String> {
    let name = &asked.resolver.name;
    let mut said = Vec::new();
    if let Some((check, kept, _)) = &asked.endpoint {
        said.extend(of_endpoint(check, kept).map(|text| format!("{name}: {text}.")));
    }
    for (answer, kept, _) in &asked.answers {
        if kept.odd_replies.iter().any(|odd| odd.kind == crate::measured::OddKind::Different) {
            said.push(format!(
                "{name}: two different replies came to one question: somebody on the way forges answers."
            ));
        }
        // No IPv6 address is no fault, and the endpoint's own check has said why it does not answer.
        let told = answer.outcome == Outcome::Answered || answer.outcome == Outcome::Empty || asked.endpoint.is_some();
        if !told {
            said.push(format!("{name} {}.", answer.outcome.meaning()));
        }
    }
    said.dedup();
    said
}

/// What is wrong with an endpoint; `None`: nothing.
fn of_endpoint(check: &EndpointCheck, kept: &EndpointParticulars) -> Option<String> {
    let meaning = check.outcome.meaning();
    let text = match check.outcome.group() {
        Group::Works => return None,
        Group::Reply => format!("the endpoint is alive and does not resolve: it {meaning}"),
        Group::Dns => format!("there is a path to the endpoint, but it does not resolve: it {meaning}"),
        Group::Network => format!("there is no path to the endpoint: {} {meaning}", check.address),
        Group::Tls => format!("there is a path to the endpoint, but no TLS: it {meaning}"),
        Group::Certificate => {
            format!("there is a path to somebody, but it is not proven to be the endpoint: it {meaning}")
        }
        Group::Http => format!("there is a path to the endpoint, but it gives no DNS answer: it {meaning}"),
        Group::Own | Group::Refused | Group::Record => format!("the endpoint {meaning}"),
    };
    let status = if kept.http_status > 0 { format!(" (HTTP {})", kept.http_status) } else { String::new() };
    let remark = if kept.remark.is_empty() { String::new() } else { format!("; {}", kept.remark) };
    Some(format!("{text}{status}{remark}"))
}
