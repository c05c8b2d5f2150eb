//! May a vantage speak? Read from the top; the first row that holds decides.
//!
//! | # | evidence | verdict | its failures count | its successes count |
//! |---|---|---|---|---|
//! | 1 | no report for `silent_after`, counted from when the coordinator could hear | silent | no | no |
//! | 1a | the same, but what is too old to vote came lately | late | no | no |
//! | 1b | a proof of life that does not hold, or two machines under its identity | suspect | no | no |
//! | 2 | no control measured lately | unmeasured | no | yes |
//! | 3 | the captive-portal question got an HTTP answer other than 204 | captive | no | no |
//! | 4 | no positive control reached | uplink down | no | yes |
//! | 5 | the negative control answered | intercepted | only from TLS up | only from TLS up |
//! | 6 | a minority of the controls reached | degraded | no | yes |
//! | 7 | its clock is off by more than [`SKEW_MAX_MS`] | clock skewed | all but a certificate's time | yes |
//! | 8 | else | ok | yes | yes |

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::fold::{Fold, Suspicion, VantageState, Why};
use crate::names::{ControlName, VantageName};
use crate::observation::{ObservationId, Outcome, Says};
use crate::time::Timestamp;
use crate::topology::{ControlKind, Policy, Topology};
use crate::verdict::{FleetVerdict, VantageVerdict};

/// A vantage's standing, with what decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VantageJudgement {
    /// The row.
    pub verdict: VantageVerdict,
    /// Positive controls that were reached when last tried.
    pub controls_reached: Vec<ControlName>,
    /// Positive controls that were not.
    pub controls_failed: Vec<ControlName>,
    /// Last report, if any.
    pub last_report_at: Option<Timestamp>,
    /// How far its clock is off, in ms, where that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_offset_ms: Option<i64>,
    /// Why nothing it says counts, where that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspected: Option<Why>,
    /// Control checks that decided.
    pub evidence: Vec<ObservationId>,
}

impl VantageJudgement {
    /// Whether its failed connections say anything about targets.
    #[must_use]
    pub fn may_accuse(&self) -> bool {
        match self.verdict {
            VantageVerdict::Ok | VantageVerdict::Intercepted | VantageVerdict::ClockSkewed => true,
            VantageVerdict::Silent
            | VantageVerdict::Late
            | VantageVerdict::Suspect
            | VantageVerdict::Unmeasured
            | VantageVerdict::Captive
            | VantageVerdict::UplinkDown
            | VantageVerdict::Degraded => false,
        }
    }

    /// Whether its successes prove anything.
    #[must_use]
    pub fn may_prove(&self) -> bool {
        match self.verdict {
            VantageVerdict::Silent | VantageVerdict::Late | VantageVerdict::Suspect | VantageVerdict::Captive => false,
            VantageVerdict::Ok
            | VantageVerdict::ClockSkewed
            | VantageVerdict::Intercepted
            | VantageVerdict::Unmeasured
            | VantageVerdict::UplinkDown
            | VantageVerdict::Degraded => true,
        }
    }

    /// Whether what it says of a certificate's time counts.
    #[must_use]
    pub fn knows_the_time(&self) -> bool {
        self.verdict != VantageVerdict::ClockSkewed
    }

    /// Whether something between it and the world accepts every TCP connection.
    #[must_use]
    pub fn intercepted(&self) -> bool {
        self.verdict == VantageVerdict::Intercepted
    }
}

/// Beyond this a vantage's clock cannot tell whether a certificate is in its time, in ms: what a synchronised clock and the
/// way to the coordinator differ by is far less.
pub const SKEW_MAX_MS: u64 = 2000;

/// Positive controls one round of an agent asks, in turn, when more are configured.
const ASKED_A_ROUND: usize = 3;

/// Judges one vantage.
#[must_use]
pub fn judge(topology: &Topology, fold: &Fold, name: &VantageName, now: Timestamp) -> VantageJudgement {
    let policy = &topology.policy;
    let none = VantageState::default();
    let state = fold.vantage(name).unwrap_or(&none);
    let mut judgement = VantageJudgement {
        verdict: VantageVerdict::Silent,
        controls_reached: Vec::new(),
        controls_failed: Vec::new(),
        last_report_at: state.last_report_at,
        clock_offset_ms: None,
        suspected: None,
        evidence: Vec::new(),
    };
    if fold.unheard_for(name, now) > policy.silent_after {
        if state.last_late_at.is_some_and(|at| now.since(at) <= policy.silent_after) {
            judgement.verdict = VantageVerdict::Late;
        }
        return judgement;
    }
    if let Some(Suspicion { why, shown, .. }) = state.suspicion.filter(|one| now.since(one.at) <= suspect_for(policy)) {
        judgement.verdict = VantageVerdict::Suspect;
        judgement.suspected = Some(why);
        judgement.evidence.extend(shown);
        return judgement;
    }
    let control_fresh_for = policy.control_every * 5 / 2;
    let (mut intercepted, mut captive) = (false, false);
    let (mut positives, mut without_family) = (0_usize, 0_usize);
    for (control, kind) in &topology.controls {
        positives += usize::from(kind.kind == ControlKind::Positive);
        let Some(result) = state.controls.get(control).filter(|c| now.since(c.at) <= control_fresh_for) else {
            continue;
        };
        judgement.evidence.push(result.id);
        // A family that this place does not have is no fault of its uplink, as long as another works.
        if kind.kind == ControlKind::Positive && result.outcome == Outcome::FamilyUnavailable {
            without_family += 1;
            continue;
        }
        match (kind.kind, result.outcome.says()) {
            (ControlKind::Negative, Says::Works) => intercepted = true,
            (ControlKind::Captive, Says::Fails) => captive = answered_by_another(result.outcome),
            (ControlKind::Negative, Says::Fails) | (ControlKind::Captive, Says::Works) => {}
            (ControlKind::Negative | ControlKind::Captive, Says::Nothing) => {}
            (ControlKind::Positive, Says::Works) => judgement.controls_reached.push(control.clone()),
            (ControlKind::Positive, Says::Fails | Says::Nothing) => judgement.controls_failed.push(control.clone()),
        }
    }
    let (reached, failed) = (judgement.controls_reached.len(), judgement.controls_failed.len());
    judgement.verdict = if state.last_report_at.is_none() || (positives > 0 && reached + failed + without_family == 0) {
        VantageVerdict::Unmeasured
    } else if captive {
        VantageVerdict::Captive
    } else if positives > 0 && reached == 0 {
        VantageVerdict::UplinkDown
    } else if intercepted {
        VantageVerdict::Intercepted
    } else if reached < failed {
        VantageVerdict::Degraded
    } else if let Some(offset) = state.clock_offset_ms.filter(|offset| offset.unsigned_abs() > SKEW_MAX_MS) {
        judgement.clock_offset_ms = Some(offset);
        VantageVerdict::ClockSkewed
    } else {
        VantageVerdict::Ok
    };
    judgement
}

/// How long nothing of a vantage counts after it showed what no honest agent shows: as long as anything it said before
/// could still be believed. It goes on for as long as it goes on showing such things.
fn suspect_for(policy: &Policy) -> Duration {
    policy.fresh_for.max(policy.silent_after)
}

/// A captive portal answers in the target's place with a page of its own or a way to it (RFC 8952, 1).
fn answered_by_another(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::HttpStatus | Outcome::HttpRedirect | Outcome::HttpUnsupported | Outcome::HttpThrottled)
}

/// Whether the vantage's uplink was shown to work at or after `moment`: the closing half of the
/// sandwich around a run of failures. Needs half of the positive controls, or of as many as one round of
/// an agent asks; true when none is configured.
#[must_use]
pub fn controls_passed_since(topology: &Topology, state: &VantageState, moment: Timestamp) -> bool {
    let positives = topology.controls.iter().filter(|(_, control)| control.kind == ControlKind::Positive);
    let total = positives.clone().count();
    let passed = positives
        .filter_map(|(name, _)| state.controls.get(name))
        .filter(|result| result.last_answered_at.is_some_and(|at| at >= moment))
        .count();
    passed * 2 >= total.min(ASKED_A_ROUND)
}

/// Judges the fleet as a whole.
#[must_use]
pub fn judge_fleet<'a>(judgements: impl Iterator<Item = &'a VantageJudgement>) -> FleetVerdict {
    let (mut heard, mut cut_off, mut others) = (0_usize, 0_usize, 0_usize);
    for judgement in judgements {
        match judgement.verdict {
            VantageVerdict::Silent => continue,
            VantageVerdict::UplinkDown => cut_off += 1,
            // It is heard, and says nothing of now.
            VantageVerdict::Late | VantageVerdict::Suspect => {}
            // One that has not measured its controls yet says nothing about the fleet.
            VantageVerdict::Unmeasured
            | VantageVerdict::Captive
            | VantageVerdict::Intercepted
            | VantageVerdict::Degraded
            | VantageVerdict::ClockSkewed
            | VantageVerdict::Ok => others += 1,
        }
        heard += 1;
    }
    if heard == 0 {
        FleetVerdict::CoordinatorIsolated
    } else if cut_off > 0 && others == 0 {
        FleetVerdict::ControlsFailed
    } else {
        FleetVerdict::Ok
    }
}
