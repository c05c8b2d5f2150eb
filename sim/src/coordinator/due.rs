//! When time alone can change a decision.
//!
//! A decision is a function of the state and of how old the things in it are, each age compared with one of the policy's
//! spans. Between two moments at which an age passes a span, judging again finds the same. So it is enough to judge at
//! those moments and whenever something is said; a test compares such a run with one that judges all the time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use parallax_decide::finding::{Finding, Subject};
use parallax_decide::fold::Fold;
use parallax_decide::incident::Book;
use parallax_decide::plan::PlanRecord;
use parallax_decide::time::Timestamp;
use parallax_decide::topology::Policy;

use super::{READING_AGE_MAX, RETRY_WAIT, RETRY_WAIT_MAX};

/// Moments that the decisions remember and do not show.
#[derive(Debug, Default)]
pub(super) struct Due {
    found: BTreeMap<Subject, Timestamp>,
    asked: VecDeque<Timestamp>,
}

/// The state whose ages matter.
pub(super) struct State<'a> {
    pub fold: &'a Fold,
    pub listening_since: Timestamp,
    pub book: &'a Book,
    pub plans: &'a [PlanRecord],
    pub read_at: Option<Timestamp>,
}

/// The earliest moment after now at which an age passes a span.
struct Earliest {
    now: Timestamp,
    at: Timestamp,
}

impl Earliest {
    fn passes(&mut self, since: Timestamp, span: Duration) {
        // Some are compared with "at least", some with "more than".
        for moment in [since.plus(span), since.plus(span + Duration::from_millis(1))] {
            if moment > self.now && moment < self.at {
                self.at = moment;
            }
        }
    }
}

impl Due {
    /// Notes what is found now: an incident opens when it has been found for a while.
    pub(super) fn found(&mut self, findings: &[Finding], now: Timestamp) {
        let subjects: BTreeSet<&Subject> = findings.iter().map(|finding| &finding.subject).collect();
        self.found.retain(|subject, _| subjects.contains(subject));
        for subject in subjects {
            self.found.entry(subject.clone()).or_insert(now);
        }
    }

    /// Notes that somebody was asked.
    pub(super) fn asked(&mut self, now: Timestamp) {
        if self.asked.back() != Some(&now) {
            self.asked.push_back(now);
        }
        while self.asked.len() > 64 {
            self.asked.pop_front();
        }
    }

    /// The next moment at which time alone can change something.
    pub(super) fn next(&self, policy: &Policy, state: &State<'_>, quiet: bool, now: Timestamp) -> Timestamp {
        let mut next = Earliest { now, at: Timestamp(i64::MAX / 2) };
        let controls = policy.control_every * 5 / 2;
        let runs = || state.fold.vantages().flat_map(|(_, vantage)| vantage.reach.values());
        let fresh = |at| now.since(at) <= policy.fresh_for;
        let failing = !quiet && runs().any(|run| run.failures > 0 && fresh(run.at));
        let planning = !quiet && state.book.open().any(|open| matches!(open.subject, Subject::Service { .. }));
        next.passes(state.listening_since, policy.silent_after);
        for (_, vantage) in state.fold.vantages() {
            let heard = vantage.last_report_at.into_iter().map(|at| (at, policy.silent_after));
            let asked = vantage.controls.values().map(|control| (control.at, controls));
            let answers = vantage.answers.values().map(|answer| (answer.at, policy.fresh_for));
            for (at, span) in heard.chain(asked).chain(answers) {
                next.passes(at, span);
            }
        }
        for run in runs() {
            next.passes(run.at, policy.fresh_for);
            if failing {
                // How long what is known keeps others from being asked.
                for span in
                    [policy.ask_again_after, policy.fresh_for / 2, policy.fresh_for * 3 / 4, policy.proof_age_max / 2]
                {
                    next.passes(run.at, span);
                }
            }
            if planning {
                next.passes(run.at, policy.proof_age_max);
            }
        }
        if quiet {
            return next.at;
        }
        for at in self.found.values() {
            let rounds = policy.control_every.saturating_mul(policy.k_min.saturating_sub(1));
            for span in [policy.open_after, policy.open_after.max(rounds)] {
                next.passes(*at, span);
            }
        }
        for at in &self.asked {
            next.passes(*at, policy.ask_again_after);
        }
        for (at, span) in state.book.ages(policy) {
            next.passes(at, span);
        }
        if let Some(at) = state.read_at {
            next.passes(at, READING_AGE_MAX);
        }
        for record in state.plans.iter().rev().take(16) {
            let (mut wait, mut dwell) = (RETRY_WAIT, policy.dwell);
            while wait < RETRY_WAIT_MAX * 2 {
                next.passes(record.created_at, wait.min(RETRY_WAIT_MAX));
                wait *= 2;
            }
            let Some(applied_at) = record.applied_at else { continue };
            next.passes(applied_at, policy.relapse_window);
            while dwell < policy.dwell_max * 2 {
                next.passes(applied_at, dwell.min(policy.dwell_max));
                dwell *= 2;
            }
        }
        next.at
    }
}
