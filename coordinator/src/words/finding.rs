//! What was concluded: one sentence for a banner, one for the incident, and the points that support it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use parallax_decide::endpoint::EndpointJudgement;
use parallax_decide::finding::{Reason, Shows, Subject, Unroutable};
use parallax_decide::names::{DomainName, VantageName};
use parallax_decide::node::NodeJudgement;
use parallax_decide::vantage::VantageJudgement;
use parallax_decide::verdict::{EndpointVerdict, FleetVerdict, NodeVerdict};
use serde::Serialize;

use super::counterfactual::{Counterfactual, Help, counterfactual};
use super::verdict::{
    address_phrase, answer_sentence, answer_word, endpoint_phrase, fleet_sentence, node_phrase, vantage_sentence,
    vantage_word,
};
use super::{SPELLED_MAX, count, list, plural, texts};

/// One thing that supports a conclusion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Point {
    /// What was seen.
    pub saw: String,
    /// What follows from it.
    pub so: Option<String>,
    /// Which of the incident's evidence shows it.
    pub shows: Shows,
    /// Only what was measured there shows it; none: anywhere.
    pub from: Option<VantageName>,
    /// Only facts of this kind show it.
    pub kind: Option<FactKind>,
}

/// Kinds of fact a point rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FactKind {
    /// What a resolver answered.
    Resolution,
    /// Whether an address could be used.
    Connection,
}

impl Point {
    fn new(shows: Shows, saw: String, so: Option<String>) -> Self {
        Self { saw, so, shows, from: None, kind: None }
    }
}

/// Where an incident holds, for a table: `branch-kazan only`, `everywhere`.
#[must_use]
pub fn place(subject: &Subject) -> String {
    match subject {
        Subject::Vantage { vantage } | Subject::UnroutableAt { vantage } | Subject::NameAt { vantage, .. } => {
            format!("{vantage} only")
        }
        Subject::Fleet => "all vantages".to_owned(),
        Subject::Name { .. } | Subject::Endpoint { .. } | Subject::Service { .. } | Subject::Node { .. } => {
            "across vantages".to_owned()
        }
    }
}

/// What an incident is about, for a table.
#[must_use]
pub fn about(subject: &Subject, members: &[String]) -> String {
    match subject {
        Subject::Fleet => "the fleet".to_owned(),
        Subject::Vantage { .. } => "the vantage itself".to_owned(),
        Subject::UnroutableAt { .. } => list(members, SPELLED_MAX),
        Subject::Name { name } | Subject::NameAt { name, .. } => name.to_string(),
        Subject::Endpoint { resolver } => format!("endpoint {resolver}"),
        Subject::Service { service } => match members.first() {
            Some(hostname) => hostname.clone(),
            None => format!("service {service}"),
        },
        Subject::Node { node } => format!("node {node}"),
    }
}

/// The conclusion in half a line, for banners and lists.
#[must_use]
pub fn short(subject: &Subject, reason: &Reason) -> String {
    match reason {
        Reason::UnroutableHere { names } => {
            let explained = explained(names);
            match counterfactual(names) {
                Some(Counterfactual { would_help: Help::No, .. }) => {
                    format!("{explained}; no resolver asked from there does better")
                }
                Some(Counterfactual { would_help: Help::Yes, .. }) => {
                    format!("{explained}; another resolver would help")
                }
                Some(Counterfactual { would_help: Help::Unknown, .. }) | None => explained,
            }
        }
        Reason::DeadEverywhere { vantages, addresses } => {
            format!("{} dead from {}", addresses_phrase(addresses), list(vantages, SPELLED_MAX))
        }
        Reason::AnswerUnusable { verdict, .. } => answer_sentence(*verdict).to_owned(),
        Reason::Endpoint { resolver, places, .. } => {
            format!("endpoint {resolver} {} (from {})", ways(places), list(places.keys(), SPELLED_MAX))
        }
        Reason::Node { node, judgement } => format!("node {node} {}", witnesses(judgement)),
        Reason::Vantage { judgement } => {
            format!("{}: {}", subject.name(), vantage_sentence(judgement.verdict))
        }
        Reason::Fleet { verdict } => fleet_sentence(*verdict).to_owned(),
    }
}

/// The conclusion as a whole sentence.
#[must_use]
pub fn long(subject: &Subject, reason: &Reason) -> String {
    match reason {
        Reason::UnroutableHere { names } => {
            let place = subject.vantage().map_or_else(|| "there".to_owned(), ToString::to_string);
            let witnesses = reachers(names);
            format!(
                "DNS answered (NOERROR), but nothing at the answer can be reached from {place}, while {} the same {}.",
                plural(&witnesses, "reaches", "reach"),
                if all_addresses(names).len() == 1 { "address" } else { "addresses" },
            )
        }
        Reason::DeadEverywhere { vantages, addresses } => format!(
            "DNS answered, but {} cannot be used from {}, and nobody reaches {}: the answer is dead, not the path.",
            addresses_phrase(addresses),
            list(vantages, SPELLED_MAX),
            if addresses.len() == 1 { "it" } else { "any of them" },
        ),
        Reason::AnswerUnusable { verdict, addresses, dead } => {
            let mut sentence = capital(answer_sentence(*verdict));
            if !dead.is_empty() {
                sentence.push_str(&format!(" (dead: {} of {})", dead.len(), addresses.len()));
            }
            sentence.push('.');
            sentence
        }
        Reason::Endpoint { resolver, places, reached_at } => {
            let from = list(places.keys(), SPELLED_MAX);
            let mut sentence = format!("The endpoint {resolver} {}, as seen from {from}", ways(places));
            if !reached_at.is_empty() {
                sentence.push_str(&format!("; for {} it works", list(reached_at, SPELLED_MAX)));
            }
            sentence.push('.');
            sentence
        }
        Reason::Node { node, judgement } => {
            let mut sentence = format!("Node {node} {}", node_phrase(judgement.verdict));
            if judgement.verdict.gone() {
                sentence.push_str(&format!(
                    ": {} in {} find it so, and nobody reaches it.",
                    count(judgement.accusers.len(), "vantage"),
                    count(judgement.accusing_domains.len(), "failure domain"),
                ));
            } else {
                sentence.push_str(&format!(
                    ": alive at {}{}, dead at {}.",
                    list(&judgement.alive_at, SPELLED_MAX),
                    partly(judgement),
                    list(judgement.accusers.keys(), SPELLED_MAX)
                ));
            }
            sentence
        }
        Reason::Vantage { judgement } => format!(
            "Vantage {} is {}: {}.",
            subject.name(),
            vantage_word(judgement.verdict),
            vantage_sentence(judgement.verdict)
        ),
        Reason::Fleet { verdict } => format!("{}.", capital(fleet_sentence(*verdict))),
    }
}

/// What supports the conclusion, in the order in which one would tell it.
#[must_use]
pub fn points(subject: &Subject, reason: &Reason) -> Vec<Point> {
    match reason {
        Reason::UnroutableHere { names } => unroutable_points(subject, names),
        Reason::DeadEverywhere { vantages, addresses } => vec![Point::new(
            Shows::FailsHere,
            format!("{} given out and dead at {}", spelled(addresses), list(vantages, SPELLED_MAX)),
            Some("more than one place finds it so".to_owned()),
        )],
        Reason::AnswerUnusable { verdict, addresses, .. } => {
            vec![Point::new(Shows::FailsHere, format!("{}: {}", answer_word(*verdict), spelled(addresses)), None)]
        }
        Reason::Endpoint { places, reached_at, .. } => endpoint_points(places, reached_at),
        Reason::Node { judgement, .. } => node_points(judgement),
        Reason::Vantage { judgement } => vec![controls_point(subject, judgement)],
        Reason::Fleet { verdict } => fleet_points(*verdict),
    }
}

fn fleet_points(verdict: FleetVerdict) -> Vec<Point> {
    let (saw, so) = match verdict {
        FleetVerdict::Ok => return Vec::new(),
        FleetVerdict::CoordinatorIsolated => ("no vantage has reported lately", "perhaps it is the coordinator"),
        FleetVerdict::ControlsFailed => {
            ("no vantage that reports reached one of its controls", "it is the controls or us, not what we watch")
        }
    };
    vec![Point::new(Shows::Control, saw.to_owned(), Some(so.to_owned()))]
}

/// What can be excluded, and by what.
#[must_use]
pub fn ruled_out(subject: &Subject, reason: &Reason) -> Vec<String> {
    match reason {
        Reason::UnroutableHere { names } => {
            let mut out =
                vec![format!("the addresses themselves: {} them", plural(&reachers(names), "reaches", "reach"))];
            if let Some(Counterfactual { would_help: Help::No, sentence, .. }) = counterfactual(names) {
                out.push(format!("the resolver: {}", sentence.trim_start_matches("no: ")));
            }
            out.push(format!("{}'s own uplink: its controls passed, else it could accuse nobody", subject.name()));
            out
        }
        Reason::DeadEverywhere { vantages, .. } => {
            vec![format!("the path of one place: {} agree", list(vantages, SPELLED_MAX))]
        }
        Reason::Node { judgement, .. } if judgement.verdict.gone() => vec![
            format!(
                "one watcher that lost its own path: {} with working uplinks in {} agree",
                count(judgement.accusers.len(), "vantage"),
                count(judgement.accusing_domains.len(), "failure domain")
            ),
            "a node that is alive for somebody: one proven living witness would have been a veto".to_owned(),
        ],
        Reason::Node { judgement, .. } => {
            vec![format!("a dead node: {} reached it since", list(&judgement.alive_at, SPELLED_MAX))]
        }
        Reason::Endpoint { reached_at, .. } if !reached_at.is_empty() => {
            vec![format!("a dead endpoint: for {} it works", list(reached_at, SPELLED_MAX))]
        }
        Reason::AnswerUnusable { .. } | Reason::Endpoint { .. } | Reason::Vantage { .. } | Reason::Fleet { .. } => {
            Vec::new()
        }
    }
}

fn unroutable_points(subject: &Subject, names: &BTreeMap<DomainName, Unroutable>) -> Vec<Point> {
    let place = subject.name();
    let addresses = all_addresses(names);
    let mut points = vec![
        Point {
            kind: Some(FactKind::Resolution),
            ..Point::new(
                Shows::FailsHere,
                format!("{place} was given {} for {}", spelled(&addresses), list(names.keys(), SPELLED_MAX)),
                Some(explained(names)),
            )
        },
        Point {
            kind: Some(FactKind::Connection),
            ..Point::new(
                Shows::FailsHere,
                format!("from {place} nothing answers at {}", if addresses.len() == 1 { "it" } else { "any of them" }),
                Some("it resolves and cannot be used".to_owned()),
            )
        },
    ];
    let mut reached: BTreeMap<&VantageName, BTreeSet<IpAddr>> = BTreeMap::new();
    for (address, vantages) in names.values().flat_map(|unroutable| &unroutable.proven_at) {
        for vantage in vantages {
            reached.entry(vantage).or_default().insert(*address);
        }
    }
    for (vantage, proven) in reached {
        points.push(Point {
            from: Some(vantage.clone()),
            ..Point::new(
                Shows::SeenElsewhere,
                format!("{vantage} uses {} without trouble", spelled(&proven)),
                Some("the path, not the address".to_owned()),
            )
        });
    }
    if let Some(counterfactual) = counterfactual(names) {
        let so = match counterfactual.would_help {
            Help::No => Some("switching the resolver is useless".to_owned()),
            Help::Yes => Some("switching the resolver may heal".to_owned()),
            Help::Unknown => None,
        };
        let said = counterfactual.sentence.split_once(": ").map_or("", |(_, said)| said);
        let saw = format!("other resolvers asked from {place}: {said}");
        points.push(Point::new(Shows::OtherResolver, saw, so));
    }
    points
}

/// What the places that use an endpoint find of it, each way once.
fn ways(places: &BTreeMap<VantageName, EndpointJudgement>) -> String {
    let verdicts: BTreeSet<EndpointVerdict> = places.values().map(|judged| judged.verdict).collect();
    let phrases: Vec<&str> = verdicts.into_iter().map(endpoint_phrase).collect();
    phrases.join(", or ")
}

fn endpoint_points(places: &BTreeMap<VantageName, EndpointJudgement>, reached_at: &[VantageName]) -> Vec<Point> {
    let found = places.iter().map(|(vantage, judged)| Point {
        from: Some(vantage.clone()),
        ..Point::new(
            Shows::FailsHere,
            format!(
                "from {vantage}, at the stage {}: {} ({} checks in a row)",
                judged.stage,
                judged.outcome.meaning(),
                judged.times
            ),
            Some(endpoint_phrase(judged.verdict).to_owned()),
        )
    });
    let mut points: Vec<Point> = found.collect();
    if !reached_at.is_empty() {
        let saw = format!("for {} it works", list(reached_at, SPELLED_MAX));
        points.push(Point::new(Shows::FailsHere, saw, Some("the way to it, or what it does there".to_owned())));
    }
    points
}

fn node_points(judgement: &NodeJudgement) -> Vec<Point> {
    let mut points: Vec<Point> = judgement
        .accusers
        .iter()
        .map(|(vantage, verdict)| Point {
            from: Some(vantage.clone()),
            ..Point::new(Shows::NodeProbe, format!("from {vantage} it {}", address_phrase(*verdict)), None)
        })
        .collect();
    if !judgement.alive_at.is_empty() {
        let saw = format!("{} it", plural(&texts(&judgement.alive_at), "reaches", "reach"));
        points.push(Point::new(Shows::NodeProbe, saw, Some("it is alive: the record stays".to_owned())));
    } else if judgement.verdict.gone() {
        let domains = list(&judgement.accusing_domains, SPELLED_MAX);
        let saw = format!("no vantage reaches it; the accusers sit behind {domains}");
        points.push(Point::new(Shows::NodeProbe, saw, Some("the node, not a path".to_owned())));
    }
    points
}

fn controls_point(subject: &Subject, judgement: &VantageJudgement) -> Point {
    let (reached, failed) = (&judgement.controls_reached, &judgement.controls_failed);
    let saw = if reached.is_empty() && failed.is_empty() {
        format!("{} measured no control lately", subject.name())
    } else if failed.is_empty() {
        format!("{} reached {}", subject.name(), list(reached, SPELLED_MAX))
    } else {
        format!(
            "{} did not reach {} ({} of {} reached)",
            subject.name(),
            list(failed, SPELLED_MAX),
            reached.len(),
            reached.len() + failed.len()
        )
    };
    Point::new(Shows::Control, saw, Some(vantage_sentence(judgement.verdict).to_owned()))
}

/// `one address pair explains 2 names`.
fn explained(names: &BTreeMap<DomainName, Unroutable>) -> String {
    let sets: BTreeSet<&BTreeSet<IpAddr>> = names.values().map(|unroutable| &unroutable.addresses).collect();
    let addresses = all_addresses(names).len();
    let what = match (sets.len(), addresses) {
        (1, 1) => "one address explains".to_owned(),
        (1, 2) => "one address pair explains".to_owned(),
        (1, n) => format!("one set of {n} addresses explains"),
        (_, n) => format!("{n} addresses explain"),
    };
    format!("{what} {}", count(names.len(), "name"))
}

fn witnesses(judgement: &NodeJudgement) -> String {
    if judgement.verdict.gone() {
        format!(
            "{}: {} in {} agree, nobody reaches it{}",
            gone_phrase(judgement.verdict),
            count(judgement.accusers.len(), "vantage"),
            count(judgement.accusing_domains.len(), "failure domain"),
            match judgement.unproven_at.as_slice() {
                [] => String::new(),
                places => format!(" (that it lives is said without its proof at {})", list(places, SPELLED_MAX)),
            }
        )
    } else {
        format!(
            "is alive at {}{} and dead at {}",
            list(&judgement.alive_at, SPELLED_MAX),
            partly(judgement),
            list(judgement.accusers.keys(), SPELLED_MAX)
        )
    }
}

/// Who reaches it with a part of the flows.
fn partly(judgement: &NodeJudgement) -> String {
    match judgement.partial_at.as_slice() {
        [] => String::new(),
        places => format!(", in part at {}", list(places, SPELLED_MAX)),
    }
}

fn gone_phrase(verdict: NodeVerdict) -> &'static str {
    match verdict {
        NodeVerdict::DeadEverywhere => "is dead",
        NodeVerdict::RefusingEverywhere => "refuses connections",
        NodeVerdict::OpenButDead => "accepts TCP and says nothing",
        NodeVerdict::ImpostorEverywhere => "shows a stranger's certificate",
        NodeVerdict::CertInvalidEverywhere => "shows a certificate out of its time",
        NodeVerdict::Ok
        | NodeVerdict::PathPartial
        | NodeVerdict::UnroutableForAudience
        | NodeVerdict::UnroutableFromSome
        | NodeVerdict::InsufficientEvidence => "is not gone",
    }
}

fn all_addresses(names: &BTreeMap<DomainName, Unroutable>) -> BTreeSet<IpAddr> {
    names.values().flat_map(|unroutable| unroutable.addresses.iter().copied()).collect()
}

fn reachers(names: &BTreeMap<DomainName, Unroutable>) -> Vec<String> {
    let vantages: BTreeSet<&VantageName> =
        names.values().flat_map(|unroutable| unroutable.proven_at.values().flatten()).collect();
    vantages.into_iter().map(ToString::to_string).collect()
}

fn spelled(addresses: &BTreeSet<IpAddr>) -> String {
    list(addresses, SPELLED_MAX)
}

fn addresses_phrase(addresses: &BTreeSet<IpAddr>) -> String {
    match addresses.len() {
        1 => spelled(addresses),
        n => format!("{n} addresses ({})", spelled(addresses)),
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use parallax_decide::finding::OtherResolver;
    use parallax_decide::names::FailureDomain;
    use parallax_decide::verdict::{AddressVerdict, AnswerVerdict, FleetVerdict, VantageVerdict};

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn pair() -> BTreeSet<IpAddr> {
        [ip("8.6.112.0"), ip("8.47.69.0")].into()
    }

    fn kazan() -> Subject {
        Subject::UnroutableAt { vantage: "branch-kazan".parse().unwrap() }
    }

    fn unroutable(verdicts: &[(&str, AnswerVerdict)]) -> BTreeMap<DomainName, Unroutable> {
        let one = Unroutable {
            addresses: pair(),
            proven_at: [(ip("8.6.112.0"), vec!["wan-gw".parse().unwrap(), "de-fra".parse().unwrap()])].into(),
            resolvers: verdicts
                .iter()
                .map(|(name, verdict)| (name.parse().unwrap(), OtherResolver { verdict: *verdict, addresses: pair() }))
                .collect(),
        };
        ["cdnjs.cloudflare.com", "cdn.tailwindcss.com"]
            .into_iter()
            .map(|name| (name.parse().unwrap(), one.clone()))
            .collect()
    }

    #[test]
    fn one_pair_explains_two_names_and_no_resolver_does_better() {
        let names = unroutable(&[
            ("doh-cf", AnswerVerdict::UnroutableHere),
            ("doh-cf-family", AnswerVerdict::UnroutableHere),
            ("plain-cf", AnswerVerdict::UnroutableHere),
            ("plain-google", AnswerVerdict::UnroutableHere),
        ]);
        let reason = Reason::UnroutableHere { names: names.clone() };
        assert_eq!(
            short(&kazan(), &reason),
            "one address pair explains 2 names; no resolver asked from there does better"
        );
        let counterfactual = counterfactual(&names).unwrap();
        assert_eq!(counterfactual.sentence, "no: 4 of 4 hand out unroutable addresses");
        assert_eq!(counterfactual.answers.len(), 8);
        assert_eq!(
            long(&kazan(), &reason),
            "DNS answered (NOERROR), but nothing at the answer can be reached from branch-kazan, while de-fra and wan-gw \
             reach the same addresses."
        );
        let points = points(&kazan(), &reason);
        assert!(points.iter().any(|p| p.so.as_deref() == Some("the path, not the address")));
        assert!(points.iter().any(|p| p.so.as_deref() == Some("switching the resolver is useless")));
        assert!(ruled_out(&kazan(), &reason)[1].starts_with("the resolver: 4 of 4"));
    }

    fn node(verdict: NodeVerdict, alive: &[&str], accusers: &[&str]) -> Reason {
        let judgement = NodeJudgement {
            verdict,
            partial_at: Vec::new(),
            unproven_at: Vec::new(),
            held_at: Vec::new(),
            alive_at: alive.iter().map(|v| v.parse().unwrap()).collect(),
            accusers: accusers.iter().map(|v| (v.parse().unwrap(), AddressVerdict::Silent)).collect(),
            accusing_domains: accusers.iter().map(|v| format!("isp-{v}").parse::<FailureDomain>().unwrap()).collect(),
            suspected_at: Vec::new(),
            evidence: Vec::new(),
        };
        Reason::Node { node: "fi".parse().unwrap(), judgement }
    }

    #[test]
    fn a_dead_node_is_told_with_its_witnesses() {
        let subject = Subject::Service { service: "fi".parse().unwrap() };
        let reason = node(NodeVerdict::DeadEverywhere, &[], &["branch-kazan", "de-fra", "wan-gw"]);
        assert_eq!(
            short(&subject, &reason),
            "node fi is dead: 3 vantages in 3 failure domains agree, nobody reaches it"
        );
        assert!(points(&subject, &reason)[0].saw.contains("from branch-kazan it stays silent"));
        let some = node(NodeVerdict::UnroutableFromSome, &["de-fra"], &["branch-kazan"]);
        assert_eq!(short(&subject, &some), "node fi is alive at de-fra and dead at branch-kazan");
        assert_eq!(ruled_out(&subject, &some), ["a dead node: de-fra reached it since"]);
    }

    #[test]
    fn every_reason_says_something() {
        let vantage = VantageJudgement {
            clock_offset_ms: None,
            suspected: None,
            verdict: VantageVerdict::UplinkDown,
            controls_reached: Vec::new(),
            controls_failed: vec!["control-a".parse().unwrap()],
            last_report_at: None,
            evidence: Vec::new(),
        };
        let subject = Subject::Vantage { vantage: "branch-ufa".parse().unwrap() };
        let reason = Reason::Vantage { judgement: vantage };
        assert!(short(&subject, &reason).contains("it accuses nobody"));
        assert!(points(&subject, &reason)[0].saw.contains("did not reach control-a (0 of 1 reached)"));
        for verdict in FleetVerdict::ALL {
            assert!(!long(&Subject::Fleet, &Reason::Fleet { verdict: *verdict }).is_empty());
        }
        let dead =
            Reason::DeadEverywhere { vantages: ["a".parse().unwrap(), "b".parse().unwrap()].into(), addresses: pair() };
        assert!(
            long(&Subject::Name { name: "x.test".parse().unwrap() }, &dead)
                .contains("the answer is dead, not the path")
        );
        for verdict in AnswerVerdict::ALL {
            let reason = Reason::AnswerUnusable { verdict: *verdict, addresses: pair(), dead: pair() };
            assert!(long(&kazan(), &reason).ends_with('.'));
        }
    }
}
