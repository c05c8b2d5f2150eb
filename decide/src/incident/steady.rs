//! Hysteresis of incidents, each way by its own measure: how long a finding must last before it opens one, how long a new
//! name must last before the incident takes it, and how long all must be well before it closes.
//!
//! A fault that returns soon after its incident was closed is a relapse: its incident closes only after the dwell, which
//! doubles with each further one. So what comes and goes becomes one incident and not hundreds.

use std::time::Duration;

use super::Open;
use crate::finding::{Finding, Reason, Subject};
use crate::time::Timestamp;
use crate::topology::Policy;
use crate::verdict::{FleetVerdict, NodeVerdict, VantageVerdict};

/// What hysteresis remembers of an open incident.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Steady {
    /// How often in a row the subject was found again within the policy's relapse window after its incident closed.
    pub relapses: u32,
    /// Something was changed for it. The dwell of changes rules then, and its budget is for this fault: it closes as if it had
    /// not relapsed.
    pub acted: bool,
    /// Another name that is found now, and since when without a break.
    pub naming: Option<(String, Timestamp)>,
}

/// A subject whose incident closed not long ago.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closed {
    /// What it was about.
    pub subject: Subject,
    /// When it closed.
    pub at: Timestamp,
    /// The relapses it had seen.
    pub relapses: u32,
}

/// How long a finding must be seen before it opens an incident. One about controls rests on their newest round alone, so it
/// must outlast as many rounds as any other fault needs probes; until then it only takes the vantage's word.
#[must_use]
pub fn open_after(policy: &Policy, finding: &Finding) -> Duration {
    let of_controls = match &finding.reason {
        Reason::Vantage { judgement } => match judgement.verdict {
            VantageVerdict::Silent | VantageVerdict::Suspect => false,
            VantageVerdict::Late
            | VantageVerdict::Unmeasured
            | VantageVerdict::Captive
            | VantageVerdict::UplinkDown
            | VantageVerdict::Intercepted
            | VantageVerdict::Degraded
            | VantageVerdict::ClockSkewed
            | VantageVerdict::Ok => true,
        },
        Reason::Fleet { verdict } => *verdict == FleetVerdict::ControlsFailed,
        Reason::UnroutableHere { .. }
        | Reason::DeadEverywhere { .. }
        | Reason::AnswerUnusable { .. }
        | Reason::Endpoint { .. }
        | Reason::Node { .. } => false,
    };
    let rounds = policy.control_every.saturating_mul(policy.k_min.saturating_sub(1));
    if of_controls { policy.open_after.max(rounds) } else { policy.open_after }
}

/// How long another name must be found without a break before an incident is called so: as long as `k_min` rounds of the
/// subject take, at least the span, so that as many probes agree on it as on any finding.
#[must_use]
pub fn rename_after(policy: &Policy, subject: &Subject) -> Duration {
    let rounds = round(policy, subject).saturating_mul(policy.k_min.saturating_sub(1));
    rounds.max(policy.span_min)
}

/// How long the subject must be shown well without a break before its incident closes: the rounds and the span of a return;
/// after a relapse the dwell, doubled by each further one up to its longest.
#[must_use]
pub fn close_after(policy: &Policy, subject: &Subject, steady: &Steady) -> Duration {
    let rounds = round(policy, subject).saturating_mul(policy.return_rounds.saturating_sub(1));
    let first = policy.return_span.max(rounds);
    let Some(doublings) = steady.relapses.checked_sub(1).filter(|_| !steady.acted) else { return first };
    let factor = 1_u32.checked_shl(doublings.min(16)).unwrap_or(u32::MAX);
    policy.dwell.saturating_mul(factor).min(policy.dwell_max).max(first)
}

/// How often what decides about a subject is measured.
fn round(policy: &Policy, subject: &Subject) -> Duration {
    match subject {
        Subject::Fleet | Subject::Vantage { .. } => policy.control_every,
        Subject::UnroutableAt { .. } | Subject::Name { .. } | Subject::NameAt { .. } | Subject::Endpoint { .. } => {
            policy.canary_every
        }
        Subject::Service { .. } | Subject::Node { .. } => policy.node_every,
    }
}

impl Open {
    /// Notes the name that is found now. True: the incident is to be called so from now on.
    pub(super) fn takes_name(&mut self, policy: &Policy, finding: &Finding, now: Timestamp) -> bool {
        if finding.kind == self.kind {
            self.steady.naming = None;
            return false;
        }
        let eased = self.outline.as_ref().is_some_and(|known| known.eased);
        if softer(&self.kind, &finding.kind) && !eased {
            self.steady.naming = None;
            return false;
        }
        // Each accuser has shown what is graver by as many probes as it takes.
        if gravity(&finding.kind) > gravity(&self.kind) {
            return true;
        }
        let since = match self.steady.naming.take() {
            Some((kind, since)) if kind == finding.kind => since,
            Some(_) | None => now,
        };
        self.steady.naming = Some((finding.kind.clone(), since));
        now.since(since) >= rename_after(policy, &self.subject)
    }
}

/// How much of the users a node's verdict takes it from.
fn gravity(kind: &str) -> u8 {
    match NodeVerdict::from_word(kind) {
        Some(verdict) if verdict.gone() => 2,
        Some(NodeVerdict::UnroutableForAudience) => 1,
        Some(_) | None => 0,
    }
}

fn gone(kind: &str) -> bool {
    NodeVerdict::from_word(kind).is_some_and(NodeVerdict::gone)
}

/// Whether a node that was gone everywhere is now only unroutable from some. Vantages see a recovery one after another: that
/// is the way back and no other fault, and must not rename the incident. Once all had seen it well, it is another fault.
fn softer(known: &str, now: &str) -> bool {
    gone(known) && now == NodeVerdict::UnroutableFromSome.word()
}
