//! One address as seen from one vantage. Read from the top; the first row that holds decides.
//!
//! | # | evidence | verdict |
//! |---|---|---|
//! | 1 | special-purpose, or forbidden by the owner | refused by policy |
//! | 2 | the vantage lacks the family | family unavailable |
//! | 3 | newest probe completed TLS for the name | ok |
//! | 4 | newest probe completed TCP, TCP-only by design, not intercepted | ok, unproven |
//! | 4a | its probes come through, and more single attempts are lost than is usual there | partial path |
//! | 5 | stale, too few failures for what its controls lose, or over less than `span_min`, no control passed since, or the vantage may not accuse | unmeasured |
//! | 6 | RST (not intercepted) | refused |
//! | 7 | nothing, ICMP, no route for the prefix | silent |
//! | 8 | TLS hangs, is reset or not spoken | open but dead |
//! | 9 | certificate name or authority | impostor |
//! | 10 | certificate time, its clock being right | certificate time |
//! | 11 | TLS hangs, and completes with small segments | path MTU black hole |
//! | 12 | HTTP answer other than expected | HTTP failed |

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::address;
use crate::chance;
use crate::fold::{Run, VantageState};
use crate::observation::{Group, ObservationId, Outcome, Proof, Says, Target};
use crate::time::Timestamp;
use crate::topology::{Node, Topology};
use crate::vantage::{VantageJudgement, controls_passed_since};
use crate::verdict::{AddressVerdict, VantageVerdict};

/// An address at a vantage, with what decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reach {
    /// The row.
    pub verdict: AddressVerdict,
    /// Failures in a row.
    pub failures: u32,
    /// How many it takes there, where its controls lose more than a few.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted: Option<u32>,
    /// Single attempts that were counted and those of them that were lost, where the path is partial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<(u16, u16)>,
    /// What they span, in ms.
    pub span_ms: u64,
    /// Newest probe, if any.
    pub at: Option<Timestamp>,
    /// First failure of the current run, if it fails.
    pub failing_since: Option<Timestamp>,
    /// What became of the node's proof of life, while it works from here; `None`: it is not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
    /// The vantage fell silent a moment ago, and the last it said was a proof of life: losing a witness is no vote.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
    /// Observations that decided.
    pub evidence: Vec<ObservationId>,
}

impl Reach {
    fn bare(verdict: AddressVerdict) -> Self {
        Self {
            verdict,
            failures: 0,
            wanted: None,
            attempts: None,
            span_ms: 0,
            at: None,
            failing_since: None,
            proof: None,
            held: false,
            evidence: Vec::new(),
        }
    }

    /// Shown usable from here: TLS for the name, or TCP where the target is TCP-only.
    #[must_use]
    pub fn proven(&self) -> bool {
        match self.verdict {
            AddressVerdict::Ok | AddressVerdict::OkUnproven => true,
            AddressVerdict::RefusedByPolicy
            | AddressVerdict::PartialPath
            | AddressVerdict::FamilyUnavailable
            | AddressVerdict::Refused
            | AddressVerdict::Silent
            | AddressVerdict::OpenButDead
            | AddressVerdict::Impostor
            | AddressVerdict::CertTime
            | AddressVerdict::PmtuBlackhole
            | AddressVerdict::HttpFailed
            | AddressVerdict::Unmeasured => false,
        }
    }

    /// Shown unusable from here, by enough probes, by a vantage that may accuse.
    #[must_use]
    pub fn dead(&self) -> bool {
        match self.verdict {
            AddressVerdict::Refused
            | AddressVerdict::Silent
            | AddressVerdict::OpenButDead
            | AddressVerdict::Impostor
            | AddressVerdict::CertTime
            | AddressVerdict::PmtuBlackhole
            | AddressVerdict::HttpFailed => true,
            AddressVerdict::RefusedByPolicy
            | AddressVerdict::FamilyUnavailable
            | AddressVerdict::PartialPath
            | AddressVerdict::Ok
            | AddressVerdict::OkUnproven
            | AddressVerdict::Unmeasured => false,
        }
    }

    /// Some attempts come through and some do not.
    #[must_use]
    pub fn partial(&self) -> bool {
        self.verdict == AddressVerdict::PartialPath
    }

    /// Proven, or partly reached, from here by a probe that ended after `failing` began to fail there. Only such a
    /// success contradicts the failure; an older one may be the world before the fault.
    #[must_use]
    pub fn contradicts(&self, failing: &Reach) -> bool {
        (self.proven() || self.partial()) && failing.failing_since.is_some_and(|since| self.at >= Some(since))
    }

    /// Whether it lives as seen from here, in a way that no agent can make up where the node proves its life.
    #[must_use]
    pub fn vouches(&self, node: &Node) -> bool {
        let alive = self.proven() || self.partial();
        self.held || (alive && (!node.proof || self.proof == Some(Proof::Valid)))
    }

    /// Failing, but not yet by enough probes: more evidence is wanted.
    #[must_use]
    pub fn suspected(&self) -> bool {
        self.failures > 0 && !self.dead()
    }
}

/// Judges one address for one target at one vantage.
#[must_use]
pub fn judge(
    topology: &Topology,
    vantage: &VantageJudgement,
    state: &VantageState,
    target: &Target,
    address: IpAddr,
    now: Timestamp,
) -> Reach {
    if address::special_purpose(address).is_some() {
        return Reach::bare(AddressVerdict::RefusedByPolicy);
    }
    let Some(run) = state.reach.get(&(target.clone(), address)) else {
        return Reach::bare(AddressVerdict::Unmeasured);
    };
    let mut reach = Reach {
        verdict: AddressVerdict::Unmeasured,
        failures: run.failures,
        wanted: (run.failures > 0).then(|| chance::wanted(&topology.policy, state.recent)),
        attempts: None,
        span_ms: u64::try_from(run.failing_for().as_millis()).unwrap_or(u64::MAX),
        at: Some(run.at),
        failing_since: run.failing_since,
        proof: None,
        held: held(topology, vantage, run, now),
        evidence: run.evidence.clone(),
    };
    if now.since(run.at) > topology.policy.fresh_for {
        (reach.failures, reach.failing_since) = (0, None);
        return reach;
    }
    reach.verdict = row(topology, vantage, state, run);
    if reach.proven() || reach.partial() {
        reach.proof = run.proof;
    }
    if reach.partial() {
        reach.attempts = Some(run.gray.counted());
    }
    reach
}

/// Rounds for which a proof of life goes on to count after its vantage fell silent.
const HELD_ROUNDS: u32 = 2;

/// Whether a vantage that reports no more proved the node alive when it last did, and that is no longer ago than
/// [`HELD_ROUNDS`] after it began to count as silent.
fn held(topology: &Topology, vantage: &VantageJudgement, run: &Run, now: Timestamp) -> bool {
    let policy = &topology.policy;
    let silent = match vantage.verdict {
        VantageVerdict::Silent | VantageVerdict::Late => true,
        VantageVerdict::Suspect
        | VantageVerdict::Unmeasured
        | VantageVerdict::Captive
        | VantageVerdict::UplinkDown
        | VantageVerdict::Intercepted
        | VantageVerdict::Degraded
        | VantageVerdict::ClockSkewed
        | VantageVerdict::Ok => false,
    };
    let lasts = policy.silent_after + policy.node_every * HELD_ROUNDS;
    silent
        && run.outcome.says() == Says::Works
        && run.proof == Some(Proof::Valid)
        && vantage.last_report_at.is_some_and(|at| now.since(at) <= lasts)
}

fn row(topology: &Topology, vantage: &VantageJudgement, state: &VantageState, run: &Run) -> AddressVerdict {
    let enough = vantage.may_accuse()
        && run.confirmed_at.is_some_and(|confirmed_at| controls_passed_since(topology, state, confirmed_at));
    let if_enough = |verdict| if enough { verdict } else { AddressVerdict::Unmeasured };
    let middlebox = vantage.intercepted();
    match run.outcome.group() {
        Group::Refused => AddressVerdict::RefusedByPolicy,
        Group::Own if run.outcome == Outcome::FamilyUnavailable => AddressVerdict::FamilyUnavailable,
        Group::Works if !vantage.may_prove() => AddressVerdict::Unmeasured,
        Group::Works if run.gray.partial() && vantage.may_accuse() && !middlebox => AddressVerdict::PartialPath,
        Group::Works if run.outcome != Outcome::TcpOk => AddressVerdict::Ok,
        Group::Works if !middlebox => AddressVerdict::OkUnproven,
        // A middlebox that accepts everything also refuses and swallows in the target's place.
        Group::Network if middlebox => AddressVerdict::Unmeasured,
        Group::Network if run.outcome == Outcome::ConnectionRefused => if_enough(AddressVerdict::Refused),
        Group::Network => if_enough(AddressVerdict::Silent),
        Group::Tls if run.outcome == Outcome::PmtuBlackhole => if_enough(AddressVerdict::PmtuBlackhole),
        // Behind such a middlebox an open port without TLS means: nothing is there.
        Group::Tls if middlebox => if_enough(AddressVerdict::Silent),
        Group::Tls => if_enough(AddressVerdict::OpenButDead),
        Group::Certificate if run.outcome.is_certificate_time() && !vantage.knows_the_time() => {
            AddressVerdict::Unmeasured
        }
        Group::Certificate if run.outcome.is_certificate_time() => if_enough(AddressVerdict::CertTime),
        Group::Certificate => if_enough(AddressVerdict::Impostor),
        Group::Http => if_enough(AddressVerdict::HttpFailed),
        Group::Works | Group::Own | Group::Reply | Group::Dns | Group::Record => AddressVerdict::Unmeasured,
    }
}
