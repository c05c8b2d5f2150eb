//! What people use today, on the same cases. Each acts after two failures in a row, as the field's rules do.
//!
//! | | looks at | and then |
//! |---|---|---|
//! | any IP | TCP to each address of the answer: one that connects is enough | takes the next resolver, or the first fallback |
//! | content | the answer alone: empty, 0.0.0.0 or ::, the stub list | takes the next resolver that answers |
//! | one vantage | resolves and connects (TCP) to the first address, at the first vantage of the file | the same there |
//! | majority | whole probes at every vantage; two that fail are a fault | changes it for all |
//!
//! A wrong action is one of the case's `never`, or a change that is not in its `do`. A fault is missed when the case
//! has a finding and the baseline says healthy everywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use parallax_decide::names::{ResolverName, VantageName};
use serde::Serialize;

use crate::action::Action;
use crate::case::{Case, Given, Kind, Node, Rcode, Report, Seen};
use crate::token::{AddressToken, EndpointToken};

/// Failures in a row before a baseline acts.
const FAILURES: u32 = 2;

/// Findings that are no fault of what is watched.
const NO_FAULT: [&str; 5] =
    ["none", "node_ok", "insufficient_evidence", "freeze_coordinator_isolated", "freeze_controls_failed"];

/// The ways of today.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Baseline {
    /// "Any IP is healthy."
    AnyIp,
    /// The field script's content check.
    Content,
    /// One vantage, resolve and TCP connect.
    OneVantage,
    /// Plain majority of three.
    Majority,
}

impl Baseline {
    /// All, in the order of the table.
    pub const ALL: [Self; 4] = [Self::AnyIp, Self::Content, Self::OneVantage, Self::Majority];

    /// Its name in the table.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::AnyIp => "any IP is healthy",
            Self::Content => "content of the answer (empty, 0.0.0.0, stub list)",
            Self::OneVantage => "one vantage, resolve and TCP connect",
            Self::Majority => "plain majority of three",
        }
    }
}

/// What it came to over all cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Score {
    /// Actions that are forbidden, or changes that are not right.
    pub wrong_actions: usize,
    /// Cases with such an action.
    pub wrong_cases: usize,
    /// Cases with a fault that it takes for health.
    pub missed_faults: usize,
}

/// The score of a baseline.
#[must_use]
pub fn score(baseline: Baseline, cases: &[Case]) -> Score {
    let results: Vec<(usize, bool)> = cases
        .iter()
        .map(|case| {
            let (actions, healthy) = judge(baseline, case);
            (wrong(case, &actions), healthy && is_fault(case))
        })
        .collect();
    Score {
        wrong_actions: results.iter().map(|(wrong, _)| wrong).sum(),
        wrong_cases: results.iter().filter(|(wrong, _)| *wrong > 0).count(),
        missed_faults: results.iter().filter(|(_, missed)| *missed).count(),
    }
}

/// How many of these actions are wrong in a case.
#[must_use]
pub fn wrong(case: &Case, actions: &BTreeSet<Action>) -> usize {
    let wrong = |action: &&Action| {
        action.is_among(&case.expect.never) || (action.changes() && !case.expect.actions.contains(action))
    };
    actions.iter().filter(wrong).count()
}

/// Whether something that is watched is at fault.
#[must_use]
pub fn is_fault(case: &Case) -> bool {
    !NO_FAULT.contains(&case.expect.fused.as_str())
}

/// What it does, and whether it says that all is well.
fn judge(baseline: Baseline, case: &Case) -> (BTreeSet<Action>, bool) {
    let reporting: BTreeMap<&VantageName, &Seen> =
        case.observe.iter().filter(|(_, seen)| seen.report != Report::Absent).collect();
    match baseline {
        Baseline::AnyIp => alone(case, &reporting, any_ip, true),
        Baseline::Content => alone(case, &reporting, content, false),
        Baseline::OneVantage => {
            let first = reporting.into_iter().take(1).collect();
            alone(case, &first, first_connects, true)
        }
        Baseline::Majority => majority(case, &reporting),
    }
}

/// Every watcher for itself.
fn alone(
    case: &Case,
    watchers: &BTreeMap<&VantageName, &Seen>,
    healthy: fn(&Case, &Seen) -> bool,
    watches_nodes: bool,
) -> (BTreeSet<Action>, bool) {
    if case.subject.kind == Kind::Managed {
        if !watches_nodes {
            return (BTreeSet::new(), true);
        }
        // One that connects is enough for a record that everybody gets.
        let connects = |seen: &&Seen| seen.node(Node::Native).connects();
        let tried = |seen: &&Seen| seen.node(Node::Native) != AddressToken::NotRun && seen.n >= FAILURES;
        let alive = watchers.values().copied().any(|seen| connects(&seen));
        let dead = !alive && watchers.values().copied().any(|seen| tried(&seen));
        return record(case, alive, dead);
    }
    let mut actions = BTreeSet::new();
    let mut well = true;
    for (vantage, seen) in watchers {
        if !healthy(case, seen) && seen.n >= FAILURES {
            well = false;
            actions.extend(next_resolver(case, seen).map(|next| switch(vantage, next)));
        }
    }
    (actions, well)
}

/// Whole probes everywhere; what at least two of them say.
fn majority(case: &Case, watchers: &BTreeMap<&VantageName, &Seen>) -> (BTreeSet<Action>, bool) {
    let votes =
        |fails: &dyn Fn(&Seen) -> bool| watchers.values().filter(|seen| seen.n >= FAILURES && fails(seen)).count();
    if case.subject.kind == Kind::Managed {
        let native = |seen: &Seen| seen.node(Node::Native);
        let dead = votes(&|seen| !native(seen).works() && native(seen) != AddressToken::NotRun) >= 2;
        let alive = votes(&|seen| native(seen).works()) >= 2;
        return record(case, alive, dead);
    }
    if votes(&|seen| !proven(case, seen)) < 2 {
        return (BTreeSet::new(), true);
    }
    let all = watchers.iter().filter_map(|(vantage, seen)| Some(switch(vantage, next_resolver(case, seen)?)));
    (all.collect(), false)
}

/// What becomes of the managed record.
fn record(case: &Case, alive: bool, dead: bool) -> (BTreeSet<Action>, bool) {
    let serves = case.state.record.unwrap_or(Node::Native);
    let mut actions = BTreeSet::new();
    if dead && serves == Node::Native {
        actions.insert(Action::of("failover", Node::Fallback1.word()));
    }
    if alive && serves != Node::Native {
        actions.insert(Action::plain("return"));
    }
    (actions, !dead)
}

fn switch(vantage: &VantageName, next: impl std::fmt::Display) -> Action {
    Action::of("switch_resolver", format_args!("{vantage}:{next}"))
}

/// The next in the chain, whether it does better or not; the content check's own list ends at the first that answers.
fn next_resolver(case: &Case, seen: &Seen) -> Option<ResolverName> {
    match case.subject.kind {
        Kind::Answer => seen.ans.keys().find(|name| Some(*name) != case.subject.resolver.as_ref()).cloned(),
        Kind::Endpoint => "E2".parse().ok().filter(|_| seen.e2.is_some()),
        Kind::Managed => None,
    }
}

fn given<'a>(case: &Case, seen: &'a Seen) -> Option<&'a Given> {
    seen.ans.get(case.subject.resolver.as_ref()?)
}

fn token(seen: &Seen, address: &IpAddr) -> AddressToken {
    seen.addr.get(address).copied().unwrap_or(AddressToken::NotRun)
}

fn endpoint(seen: &Seen) -> EndpointToken {
    seen.live.or(seen.e1).unwrap_or(EndpointToken::NotRun)
}

fn any_ip(case: &Case, seen: &Seen) -> bool {
    match case.subject.kind {
        Kind::Answer => {
            given(case, seen).is_none_or(|given| given.a.iter().any(|address| token(seen, address).connects()))
        }
        Kind::Endpoint => seen.e1.unwrap_or(EndpointToken::NotRun).connects(),
        Kind::Managed => true,
    }
}

fn first_connects(case: &Case, seen: &Seen) -> bool {
    match case.subject.kind {
        Kind::Answer => {
            given(case, seen).is_none_or(|given| given.a.first().is_some_and(|address| token(seen, address).connects()))
        }
        Kind::Endpoint => seen.e1.unwrap_or(EndpointToken::NotRun).connects(),
        Kind::Managed => true,
    }
}

fn content(case: &Case, seen: &Seen) -> bool {
    match case.subject.kind {
        Kind::Answer => given(case, seen).is_none_or(|given| {
            given.rcode == Rcode::Noerror
                && !given.a.is_empty()
                && !given.a.iter().any(IpAddr::is_unspecified)
                && !given.a.iter().any(|address| case.subject.stubs.contains(address))
        }),
        // It asks the router, whose cache may answer for a dead endpoint.
        Kind::Endpoint => endpoint(seen).answers(),
        Kind::Managed => true,
    }
}

/// Every address of the answer finishes TLS, or the endpoint answers.
fn proven(case: &Case, seen: &Seen) -> bool {
    match case.subject.kind {
        Kind::Answer => given(case, seen)
            .is_none_or(|given| !given.a.is_empty() && given.a.iter().any(|address| token(seen, address).works())),
        Kind::Endpoint => seen.e1.unwrap_or(EndpointToken::NotRun).answers(),
        Kind::Managed => true,
    }
}
