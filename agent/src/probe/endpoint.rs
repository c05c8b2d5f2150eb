//! Three questions to a resolver's endpoint over one cold connection: does it work, and if not,
//! which stage failed?
//!
//! The connection is cold on purpose: handshakes are part of what is measured. The first question, for a
//! name that is known to exist, decides the outcome. The second asks for a random label that no cache can
//! hold, the third for one that does not exist: an address for it means that somebody rewrites
//! answers. All share one deadline; after a failure later stages and questions are left out.

use std::net::{IpAddr, SocketAddr};

use parallax_decide::names::DomainName;
use parallax_decide::observation::{EndpointCheck, Family, Outcome, Stage};
use tokio::time::timeout_at;

use super::ask::{Trace, allowance, learn};
use super::channel::Channel;
use super::doh::{DohEndpoint, Form};
use super::message::{Question, Reply};
use super::remark::add;
use super::{Limits, dot};
use crate::assignment::{Assignment, Resolver, Transport};
use crate::clock::{Instant, now, since};
use crate::dial::Segments;
use crate::entropy;
use crate::measured::{EndpointParticulars, Measured, What};
use crate::site::Site;

/// Most addresses of a rewritten answer that are told.
const TOLD_MAX: usize = 2;

/// What an endpoint is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Questions {
    /// For a name that has an address.
    pub known: Question,
    /// Any label below it exists, and none is in a cache; `None`: not asked.
    pub freshness_zone: Option<DomainName>,
    /// A random label below it does not exist; `None`: not asked.
    pub missing_zone: Option<DomainName>,
}

/// Forms of a DoH question besides the one that is configured.
const OTHER_FORMS: u32 = 2;

impl Questions {
    /// Those of an assignment; the first canary stands in for a known name. `None`: there is none either.
    #[must_use]
    pub fn of(assignment: &Assignment) -> Option<Self> {
        let canary = || assignment.canaries.iter().find(|canary| !canary.live_only).map(|canary| &canary.name);
        let name = assignment.questions.known.as_ref().or_else(canary)?.clone();
        Some(Self {
            known: Question { name, family: Family::V4 },
            freshness_zone: assignment.questions.freshness_zone.clone(),
            missing_zone: assignment.questions.missing_zone.clone(),
        })
    }
}

/// Checks an endpoint cold.
pub async fn check(site: &Site, limits: &Limits, resolver: &Resolver, questions: &Questions) -> Measured {
    let start = now();
    let worked_before = site.worked.has(resolver);
    // A handshake that hangs must leave time to see whether small segments get through.
    let limits = Limits { tls: limits.tls.min(limits.resolve / 5 * 3), ..limits.clone() };
    let run = Run { site, limits: &limits, resolver, deadline: start + limits.resolve };
    let mut trace = Trace::default();
    let (known, channel) = match site.throttle.until(&resolver.name) {
        // Rounds leave it alone; so does a burst that goes on.
        Some(_) => (Err(Outcome::RateLimited), None),
        None => run.cold(&questions.known, &mut trace).await,
    };
    let known = match known {
        Err(Outcome::TlsSilent) if run.finishes_in_small_segments(&trace).await => Err(Outcome::PmtuBlackhole),
        known => known,
    };
    let (mut fresh, mut missing) = (None, None);
    if known.is_ok() {
        let mut channel = channel;
        fresh = run.also(trace.address, &mut channel, questions.freshness_zone.as_ref()).await.map(outcome);
        let answer = run.also(trace.address, &mut channel, questions.missing_zone.as_ref()).await;
        if let Some(Ok(reply)) = &answer
            && reply.outcome == Outcome::Answered
        {
            let told: Vec<String> = reply.addresses.iter().take(TOLD_MAX).map(ToString::to_string).collect();
            add(&mut trace.remark, &format!("gives {} for a name that does not exist", told.join(", ")));
        }
        missing = answer.map(outcome);
    }
    let (stage, outcome) = match &known {
        Ok(reply) => (Stage::Dns, reply.outcome),
        Err(outcome) => (trace.stage, *outcome),
    };
    if known.is_err() {
        learn(site, resolver, outcome, &trace);
    }
    if outcome == Outcome::Answered {
        site.worked.note(resolver);
    }
    // What follows is about the configuration and no part of the measurement.
    let duration = since(start);
    if outcome == Outcome::HttpUnsupported && !worked_before && site.worked.tells(resolver) {
        run.misconfigured(&questions.known, &mut trace).await;
    }
    let fact = EndpointCheck {
        resolver: resolver.name.clone(),
        address: trace.address,
        stage,
        outcome,
        fresh,
        missing,
        worked_before,
    };
    let kept = EndpointParticulars {
        stages: trace.stages,
        http_status: trace.http_status,
        retry_after: trace.retry_after,
        certificate: trace.certificate,
        remark: trace.remark,
    };
    Measured { what: What::EndpointCheck(fact, kept), duration }
}

fn outcome(ended: Result<Reply, Outcome>) -> Outcome {
    ended.map_or_else(|outcome| outcome, |reply| reply.outcome)
}

/// One check under way.
#[derive(Clone, Copy)]
struct Run<'a> {
    site: &'a Site,
    limits: &'a Limits,
    resolver: &'a Resolver,
    deadline: Instant,
}

impl Run<'_> {
    /// Opens a connection and puts the first question to it. The connection is handed on only when that
    /// was answered.
    async fn cold(&self, question: &Question, trace: &mut Trace) -> (Result<Reply, Outcome>, Option<Channel>) {
        let opened = Box::pin(Channel::open(self.site, self.limits, self.resolver, trace));
        let opened = timeout_at(self.deadline, opened).await;
        let mut channel = match opened {
            Ok(Ok(channel)) => channel,
            Ok(Err(outcome)) => return (Err(outcome), None),
            Err(_) => return (Err(trace.silence()), None),
        };
        match self.put(&mut channel, question, trace).await {
            Ok(reply) => (Ok(reply), Some(channel)),
            Err(outcome) => (Err(outcome), None),
        }
    }

    async fn put(&self, channel: &mut Channel, question: &Question, trace: &mut Trace) -> Result<Reply, Outcome> {
        let asked = Box::pin(channel.ask(self.site, self.limits, self.resolver, question, trace));
        match timeout_at(self.deadline, asked).await {
            Ok(ended) => ended,
            Err(_) => Err(trace.silence()),
        }
    }

    /// Whether TCP and TLS come about in small segments, after the handshake had hung.
    async fn finishes_in_small_segments(&self, trace: &Trace) -> bool {
        let trust = &self.site.trust;
        let (tls, server, name) = match &self.resolver.transport {
            Transport::Dot { server, server_name } => (&trust.dot, *server, server_name),
            Transport::Doh(doh) => (doh.tls(trust), SocketAddr::new(trace.address, doh.port), &doh.host),
            Transport::Live | Transport::Plain { .. } | Transport::Tcp { .. } => return false,
        };
        let mut second = Trace::default();
        let again = dot::secured_in(Segments::Small, self.site, tls, server, name, self.limits, &mut second);
        timeout_at(self.deadline, Box::pin(again)).await.is_ok_and(|stream| stream.is_ok())
    }

    /// Tells, once, of an endpoint that never took what it is asked, and which form it does take.
    async fn misconfigured(&self, known: &Question, trace: &mut Trace) {
        let Transport::Doh(endpoint) = &self.resolver.transport else { return };
        let (mut takes, mut refuses) = (Vec::new(), 0);
        for form in [Form::WirePost, Form::WireGet, Form::Json] {
            if form == endpoint.form {
                continue;
            }
            let transport = Transport::Doh(DohEndpoint { form, ..endpoint.clone() });
            let other = Resolver { name: self.resolver.name.clone(), transport };
            let run = Run { resolver: &other, ..*self };
            match Box::pin(run.cold(known, &mut Trace::default())).await.0 {
                Ok(_) => takes.push(form.keys()),
                Err(outcome) => refuses += u32::from(outcome == Outcome::HttpUnsupported),
            }
        }
        let advice = match takes.as_slice() {
            [] if refuses == OTHER_FORMS => "it takes no other form either; correct the path of its URL".to_owned(),
            [] => "whether it takes another form could not be found out".to_owned(),
            takes => format!("it takes {}", takes.join("; or ")),
        };
        tracing::warn!(
            resolver = %self.resolver.name, url = %endpoint.url, status = trace.http_status, asked = endpoint.form.keys(),
            "this endpoint never took what it is asked; its configuration is wrong: {advice}"
        );
        add(&mut trace.remark, &advice);
    }

    /// Asks for a random label of a zone over the same connection, or another one when the server has closed
    /// it after the last answer, as it may. `None`: not asked.
    async fn also(
        &self,
        address: IpAddr,
        channel: &mut Option<Channel>,
        zone: Option<&DomainName>,
    ) -> Option<Result<Reply, Outcome>> {
        let question = Question { name: random_label(zone?)?, family: Family::V4 };
        if now() >= self.deadline {
            return None;
        }
        let mut trace = Trace { address, ..Trace::default() };
        if let Some(open) = channel
            && !open.is_closed()
        {
            allowance(self.site, address).ok()?;
            let ended = self.put(open, &question, &mut trace).await;
            if !matches!(ended, Err(Outcome::HttpClosed | Outcome::DnsClosed)) {
                if ended.is_err() {
                    *channel = None;
                }
                return Some(ended);
            }
        }
        let (ended, opened) = self.cold(&question, &mut trace).await;
        *channel = opened;
        // The owner's limit says nothing about the endpoint.
        (ended != Err(Outcome::RateLimited)).then_some(ended)
    }
}

/// A name in a zone that nobody has asked for before; `None` when there is no randomness or no room.
fn random_label(zone: &DomainName) -> Option<DomainName> {
    let bytes: [u8; 8] = entropy::bytes().ok()?;
    format!("{:016x}.{zone}", u64::from_be_bytes(bytes)).parse().ok()
}

#[cfg(test)]
#[cfg(feature = "lab")]
mod tests;
