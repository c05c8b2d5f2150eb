//! A resolver's endpoint as seen from one vantage, by three cold questions: for a name that is known to exist, for a label
//! that no cache can hold, for a name that does not exist. Read from the top; the first row that holds decides.
//!
//! | # | evidence | verdict |
//! |---|---|---|
//! | 1 | nothing fresh; the vantage may not accuse and the endpoint did not succeed; its success proves nothing | insufficient evidence |
//! | 2 | works, but gives an address for the name that does not exist | rewrites |
//! | 3 | known name right, and the fresh one where it is asked for | ok |
//! | 4 | 429, or 503 with Retry-After | throttled |
//! | 5 | 400, 404, 405 or 415, and it never once worked | misconfigured |
//! | 6 | certificate time under a wrong clock; bootstrap failed; TCP's word behind a box that accepts everything; too few agreeing checks, or no control passed since | insufficient evidence |
//! | 7 | no TCP: timeout, ICMP, no route | no path |
//! | 8 | RST | refused |
//! | 9 | TLS hangs, and completes with small segments | path MTU black hole |
//! | 10 | TLS fails otherwise | TLS failed |
//! | 11 | another HTTP answer | HTTP failed |
//! | 12 | request sent, nothing back | silent |
//! | 13 | known name right, fresh one not | serving stale |
//! | 14 | a reply without an address for both | alive, not resolving |
//! | 15 | else | insufficient evidence |
//!
//! Rows 2, 4, 5 and 7 to 14 need as many agreeing checks as a run of failures (`chance`). Where one of rows 7 to 14 holds for
//! the upstream in use while the live resolver in front of it answers, it is a stale cache that masks a dead endpoint.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::chance;
use crate::fold::{EndpointRun, VantageState};
use crate::names::{ResolverName, VantageName};
use crate::observation::{EndpointCheck, Group, ObservationId, Outcome, Says, Stage};
use crate::time::Timestamp;
use crate::topology::Topology;
use crate::vantage::{VantageJudgement, controls_passed_since};
use crate::verdict::EndpointVerdict;

/// What one check comes to. Checks of one class agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Everything asked is right.
    Works,
    /// Works, and rewrites.
    Rewrites,
    /// Asks to be left alone.
    Throttled,
    /// Never took what it is asked.
    Misconfigured,
    /// Its own address was not found.
    Bootstrap,
    /// It does not resolve for us, in whatever way.
    Fails,
    /// Contradicts itself: the fresh name is answered and the known one is not.
    Inconclusive,
}

impl Class {
    /// The class of a check; none when it says nothing of the endpoint.
    #[must_use]
    pub fn of(check: &EndpointCheck) -> Option<Self> {
        match check.outcome.says() {
            Says::Nothing => None,
            Says::Works if check.missing == Some(Outcome::Answered) => Some(Self::Rewrites),
            Says::Works if check.fresh.is_some_and(|fresh| fresh.says() == Says::Fails) => Some(Self::Fails),
            Says::Works => Some(Self::Works),
            Says::Fails if check.stage == Stage::Bootstrap => Some(Self::Bootstrap),
            Says::Fails if check.outcome == Outcome::HttpThrottled => Some(Self::Throttled),
            Says::Fails if check.outcome == Outcome::HttpUnsupported && !check.worked_before => {
                Some(Self::Misconfigured)
            }
            // The known name is gone, or kept back: no fault of the endpoint.
            Says::Fails if check.outcome == Outcome::Nxdomain || check.fresh == Some(Outcome::Answered) => {
                Some(Self::Inconclusive)
            }
            Says::Fails => Some(Self::Fails),
        }
    }
}

/// An endpoint at a vantage, with what decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointJudgement {
    /// The row.
    pub verdict: EndpointVerdict,
    /// What a cache hides, where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden: Option<EndpointVerdict>,
    /// How the newest check ended.
    pub outcome: Outcome,
    /// The stage where it ended.
    pub stage: Stage,
    /// Address that was contacted; unspecified when none was.
    pub address: IpAddr,
    /// Agreeing checks in a row.
    pub times: u32,
    /// How many it takes there.
    pub wanted: u32,
    /// First of them.
    pub since: Timestamp,
    /// Newest of them.
    pub at: Timestamp,
    /// They.
    pub evidence: Vec<ObservationId>,
}

impl EndpointJudgement {
    /// The verdict on the endpoint itself, whatever a cache hides.
    #[must_use]
    pub fn of_endpoint(&self) -> EndpointVerdict {
        self.hidden.unwrap_or(self.verdict)
    }

    /// Whether its checks fail, and there are too few of them to say so.
    #[must_use]
    pub fn in_question(&self) -> bool {
        self.verdict == EndpointVerdict::InsufficientEvidence && self.outcome.says() == Says::Fails
    }
}

/// The resolver of the configuration that a vantage's live resolver forwards to: only the operator knows it. `None`: not
/// said, and then no endpoint's fault is one of what users there are given.
#[must_use]
pub fn in_use<'a>(topology: &'a Topology, vantage: &VantageName) -> Option<&'a ResolverName> {
    topology.vantages.get(vantage).and_then(|place| place.upstream.as_ref())
}

/// Judges one endpoint at one vantage; none when it was not checked lately.
#[must_use]
pub fn judge(
    topology: &Topology,
    vantage: &VantageName,
    standing: &VantageJudgement,
    state: &VantageState,
    resolver: &ResolverName,
    now: Timestamp,
) -> Option<EndpointJudgement> {
    let run = state.endpoints.get(resolver).filter(|run| now.since(run.at) <= topology.policy.fresh_for)?;
    let mut judgement = EndpointJudgement {
        verdict: row(topology, standing, state, run),
        hidden: None,
        outcome: run.check.outcome,
        stage: run.check.stage,
        address: run.check.address,
        times: run.times,
        wanted: chance::wanted(&topology.policy, state.recent),
        since: run.since,
        at: run.at,
        evidence: run.evidence.clone(),
    };
    if judgement.verdict.dead()
        && in_use(topology, vantage) == Some(resolver)
        && let Some(answered) = live_answer_since(topology, state, run.since)
    {
        judgement.hidden = Some(judgement.verdict);
        judgement.verdict = EndpointVerdict::StaleCacheMasking;
        judgement.evidence.push(answered);
    }
    Some(judgement)
}

fn row(topology: &Topology, standing: &VantageJudgement, state: &VantageState, run: &EndpointRun) -> EndpointVerdict {
    let speaks = if run.class == Class::Works { standing.may_prove() } else { standing.may_accuse() };
    let sandwiched = || run.confirmed_at.is_some_and(|at| controls_passed_since(topology, state, at));
    let verdict = match run.class {
        Class::Works => EndpointVerdict::Ok,
        Class::Rewrites => EndpointVerdict::Rewrites,
        Class::Throttled => EndpointVerdict::Throttled,
        Class::Misconfigured => EndpointVerdict::Misconfigured,
        Class::Bootstrap | Class::Inconclusive => EndpointVerdict::InsufficientEvidence,
        Class::Fails => failure(standing, &run.check),
    };
    let enough = speaks && (run.class == Class::Works || sandwiched());
    if enough { verdict } else { EndpointVerdict::InsufficientEvidence }
}

/// Rows 6 to 14 of a check that failed.
fn failure(standing: &VantageJudgement, check: &EndpointCheck) -> EndpointVerdict {
    let outcome = check.outcome;
    match outcome.group() {
        Group::Certificate if outcome.is_certificate_time() && !standing.knows_the_time() => {
            EndpointVerdict::InsufficientEvidence
        }
        // A box that accepts everything also refuses and swallows in the endpoint's place.
        Group::Network if standing.intercepted() && check.stage <= Stage::Tcp => EndpointVerdict::InsufficientEvidence,
        Group::Network if check.stage > Stage::Tls => EndpointVerdict::Silent,
        Group::Network if check.stage == Stage::Tls => EndpointVerdict::TlsFailed,
        Group::Network if matches!(outcome, Outcome::ConnectionRefused | Outcome::Reset) => EndpointVerdict::Refused,
        Group::Network => EndpointVerdict::NoPath,
        Group::Tls if outcome == Outcome::PmtuBlackhole => EndpointVerdict::PmtuBlackhole,
        Group::Tls | Group::Certificate => EndpointVerdict::TlsFailed,
        Group::Http if matches!(outcome, Outcome::HttpSilent | Outcome::HttpClosed | Outcome::HttpStalled) => {
            EndpointVerdict::Silent
        }
        Group::Http => EndpointVerdict::HttpFailed,
        Group::Dns if outcome == Outcome::Malformed => EndpointVerdict::AliveNotResolving,
        Group::Dns => EndpointVerdict::Silent,
        Group::Works => EndpointVerdict::ServingStale,
        Group::Reply => EndpointVerdict::AliveNotResolving,
        Group::Own | Group::Refused | Group::Record => EndpointVerdict::InsufficientEvidence,
    }
}

/// The newest answer of the live resolver, if it gave one since then.
fn live_answer_since(topology: &Topology, state: &VantageState, since: Timestamp) -> Option<ObservationId> {
    let live = crate::judge::live_resolver(topology)?;
    let answers = state.answers.iter().filter(|((_, resolver, _), _)| resolver == live).map(|(_, answer)| answer);
    let answered = answers.filter(|answer| answer.outcome == Outcome::Answered && answer.at >= since);
    answered.max_by_key(|answer| answer.at).map(|answer| answer.id)
}
