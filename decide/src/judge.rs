//! All subjects judged at one moment: the picture that findings, plans and pages are drawn from.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::answer::{self, Answer, ReachMap, Setting};
use crate::elsewhere::Elsewhere;
use crate::endpoint::{self, EndpointJudgement};
use crate::fold::{Fold, VantageState};
use crate::names::{DomainName, NodeName, ResolverName, VantageName};
use crate::node::{self, NodeJudgement};
use crate::observation::{Outcome, Target};
use crate::reach;
use crate::time::Timestamp;
use crate::topology::{Role, Topology};
use crate::vantage::{self, VantageJudgement};
use crate::verdict::FleetVerdict;

/// Every verdict at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// When.
    pub at: Timestamp,
    /// The fleet as a whole.
    pub fleet: FleetVerdict,
    /// Each vantage.
    pub vantages: BTreeMap<VantageName, VantageJudgement>,
    /// Each address, for each target, at each vantage.
    pub reach: ReachMap,
    /// Each name as each resolver answers it at each vantage.
    pub answers: BTreeMap<(VantageName, DomainName, ResolverName), Answer>,
    /// Each endpoint that was checked lately, at each vantage.
    pub endpoints: BTreeMap<(VantageName, ResolverName), EndpointJudgement>,
    /// Each node across vantages.
    pub nodes: BTreeMap<NodeName, NodeJudgement>,
}

/// Judges everything.
#[must_use]
pub fn judge(topology: &Topology, fold: &Fold, now: Timestamp) -> Judgement {
    let vantages: BTreeMap<VantageName, VantageJudgement> =
        topology.vantages.keys().map(|name| (name.clone(), vantage::judge(topology, fold, name, now))).collect();
    let reach = judge_reach(topology, fold, &vantages, now);
    let elsewhere = Elsewhere::of(&reach);
    let answered = answered(topology, fold, &vantages, now);
    let setting =
        Setting { topology, vantages: &vantages, reach: &reach, elsewhere: &elsewhere, answered: &answered, now };
    let mut endpoints = BTreeMap::new();
    let mut answers = BTreeMap::new();
    for (vantage, state) in fold.vantages() {
        let Some(standing) = vantages.get(vantage) else { continue };
        for resolver in state.endpoints.keys().filter(|resolver| topology.resolvers.contains_key(*resolver)) {
            if let Some(judged) = endpoint::judge(topology, vantage, standing, state, resolver, now) {
                endpoints.insert((vantage.clone(), resolver.clone()), judged);
            }
        }
        let asked: BTreeSet<(&DomainName, &ResolverName)> =
            state.answers.keys().map(|(name, resolver, _)| (name, resolver)).collect();
        for (name, resolver) in asked {
            if watched(topology, name) && topology.resolvers.contains_key(resolver) {
                let answer = answer::judge(setting, vantage, state, name, resolver);
                answers.insert((vantage.clone(), name.clone(), resolver.clone()), answer);
            }
        }
    }
    answer::steer(&mut answers);
    let nodes =
        topology.nodes.iter().map(|(name, node)| (name.clone(), node::judge(topology, &reach, name, node))).collect();
    Judgement { at: now, fleet: vantage::judge_fleet(vantages.values()), vantages, reach, answers, endpoints, nodes }
}

/// Names that some resolver answers at some vantage whose successes count.
fn answered(
    topology: &Topology,
    fold: &Fold,
    vantages: &BTreeMap<VantageName, VantageJudgement>,
    now: Timestamp,
) -> BTreeSet<DomainName> {
    let mut names = BTreeSet::new();
    for (vantage, state) in fold.vantages() {
        if !vantages.get(vantage).is_some_and(VantageJudgement::may_prove) {
            continue;
        }
        for ((name, _, _), answer) in &state.answers {
            let exists = matches!(answer.outcome, Outcome::Answered | Outcome::Empty) && !answer.marks.kept_back;
            if exists && now.since(answer.at) <= topology.policy.fresh_for && !names.contains(name) {
                names.insert(name.clone());
            }
        }
    }
    names
}

fn judge_reach(
    topology: &Topology,
    fold: &Fold,
    vantages: &BTreeMap<VantageName, VantageJudgement>,
    now: Timestamp,
) -> ReachMap {
    let mut map = ReachMap::new();
    for (vantage, state) in fold.vantages() {
        let Some(standing) = vantages.get(vantage) else { continue };
        for (target, address) in subjects(topology, state) {
            let judged = reach::judge(topology, standing, state, &target, address, now);
            map.insert((vantage.clone(), target, address), judged);
        }
    }
    map
}

/// Addresses the vantage tried, and addresses it was given, whether tried or not.
fn subjects(topology: &Topology, state: &VantageState) -> BTreeSet<(Target, IpAddr)> {
    let given = state
        .answers
        .iter()
        .flat_map(|((name, _, _), a)| a.addresses.iter().map(|address| (Target::Name(name.clone()), *address)));
    state.reach.keys().cloned().chain(given).filter(|(target, _)| known(topology, target)).collect()
}

fn known(topology: &Topology, target: &Target) -> bool {
    match target {
        Target::Name(name) => watched(topology, name),
        Target::Node(node) => topology.nodes.contains_key(node),
    }
}

/// Whether a name is a canary or the host name of a service.
#[must_use]
pub fn watched(topology: &Topology, name: &DomainName) -> bool {
    topology.canaries.contains_key(name) || topology.services.values().any(|service| service.hostname == *name)
}

/// The configuration's name for every vantage's live resolver, if it has one.
#[must_use]
pub fn live_resolver(topology: &Topology) -> Option<&ResolverName> {
    topology.resolvers.iter().find(|(_, resolver)| resolver.role == Role::Live).map(|(name, _)| name)
}

impl Judgement {
    /// The answer of one resolver for one name at one vantage, if it was asked.
    #[must_use]
    pub fn answer(&self, vantage: &VantageName, name: &DomainName, resolver: &ResolverName) -> Option<&Answer> {
        self.answers.get(&(vantage.clone(), name.clone(), resolver.clone()))
    }

    /// An endpoint at a vantage, if it was checked lately.
    #[must_use]
    pub fn endpoint(&self, vantage: &VantageName, resolver: &ResolverName) -> Option<&EndpointJudgement> {
        self.endpoints.get(&(vantage.clone(), resolver.clone()))
    }

    /// Answers of every resolver but the live one for one name at one vantage.
    pub fn endpoint_answers<'a>(
        &'a self,
        topology: &'a Topology,
        vantage: &'a VantageName,
        name: &'a DomainName,
    ) -> impl Iterator<Item = (&'a ResolverName, &'a Answer)> {
        topology
            .resolvers
            .iter()
            .filter(|(_, resolver)| resolver.role != Role::Live)
            .filter_map(move |(resolver, _)| self.answer(vantage, name, resolver).map(|answer| (resolver, answer)))
    }
}
