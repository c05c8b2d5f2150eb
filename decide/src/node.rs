//! One node of ours across all vantages. Read from the top; the first row that holds decides.
//!
//! | # | evidence | verdict |
//! |---|---|---|
//! | 1 | proven somewhere, dead and partly reached nowhere | ok |
//! | 2 | partly reached somewhere, dead nowhere | path partial |
//! | 3 | alive outside the audience alone, since it fails; two of the audience in two failure domains find it dead | unroutable for audience |
//! | 4 | alive or partly reached somewhere after it began to fail where it is dead | unroutable from some |
//! | 5 | alive somewhere, but before that: asked again, and a veto until it answers or goes stale | insufficient evidence |
//! | 6 | fewer than two accusers, or all in one failure domain | insufficient evidence |
//! | 7 | all accusers agree on impostor, certificate time, open but dead, refused | that one |
//! | 8 | else | dead everywhere |
//!
//! A living witness vetoes whatever the number of accusers: there is no percentage vote. Where the node proves its life
//! (`Node::proof`), only who shows its proof is such a witness; "alive" without one is overruled by two accusers in two
//! failure domains, and counts as before where there are fewer. A proof goes on to count for two rounds after its vantage
//! fell silent.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::elsewhere::WITNESSES_MAX;
use crate::names::{FailureDomain, NodeName, VantageName};
use crate::observation::{ObservationId, Target};
use crate::reach::Reach;
use crate::topology::{Node, Topology};
use crate::verdict::{AddressVerdict, NodeVerdict};

/// A node, with what decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeJudgement {
    /// The row.
    pub verdict: NodeVerdict,
    /// Vantages that prove it alive.
    pub alive_at: Vec<VantageName>,
    /// Of these and of those below, the ones that say so without the node's proof of life, where it has one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unproven_at: Vec<VantageName>,
    /// Vantages that fell silent a moment ago, and last showed its proof of life.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_at: Vec<VantageName>,
    /// Vantages that a part of the flows connects with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub partial_at: Vec<VantageName>,
    /// Vantages that find it dead by enough probes and may accuse, with what each found.
    pub accusers: BTreeMap<VantageName, AddressVerdict>,
    /// Failure domains of the accusers.
    pub accusing_domains: BTreeSet<FailureDomain>,
    /// Vantages where it fails, but not yet by enough probes.
    pub suspected_at: Vec<VantageName>,
    /// Connections that decided, of at most [`WITNESSES_MAX`] vantages on each side.
    pub evidence: Vec<ObservationId>,
}

/// Fewest accusers, in as many failure domains, for a finding about a public record.
pub const ACCUSERS_MIN: usize = 2;

/// Judges one node from its reach at every vantage.
#[must_use]
pub fn judge(topology: &Topology, reach: &crate::answer::ReachMap, name: &NodeName, node: &Node) -> NodeJudgement {
    let mut judgement = NodeJudgement {
        verdict: NodeVerdict::InsufficientEvidence,
        alive_at: Vec::new(),
        unproven_at: Vec::new(),
        held_at: Vec::new(),
        partial_at: Vec::new(),
        accusers: BTreeMap::new(),
        accusing_domains: BTreeSet::new(),
        suspected_at: Vec::new(),
        evidence: Vec::new(),
    };
    let (mut newest_alive, mut first_failing) = (None, None);
    let (mut vetoed, mut alive_to_audience, mut audience_domains) = (false, false, BTreeSet::new());
    for (vantage, place) in &topology.vantages {
        let key = (vantage.clone(), Target::Node(name.clone()), node.address);
        let Some(here): Option<&Reach> = reach.get(&key) else { continue };
        let vouches = here.vouches(node);
        vetoed |= vouches;
        alive_to_audience |= place.audience && vouches;
        if (here.proven() || here.partial()) && !vouches {
            judgement.unproven_at.push(vantage.clone());
        }
        if place.audience && here.dead() {
            audience_domains.insert(&place.failure_domain);
        }
        let enough = if here.partial() {
            newest_alive = newest_alive.max(here.at);
            judgement.partial_at.push(vantage.clone());
            judgement.partial_at.len() > WITNESSES_MAX
        } else if here.proven() {
            newest_alive = newest_alive.max(here.at);
            judgement.alive_at.push(vantage.clone());
            judgement.alive_at.len() > WITNESSES_MAX
        } else if here.dead() {
            first_failing = [first_failing, here.failing_since].into_iter().flatten().min();
            judgement.accusers.insert(vantage.clone(), here.verdict);
            let another = judgement.accusing_domains.insert(place.failure_domain.clone());
            // Those who decided are among them, wherever their names are in the order.
            judgement.accusers.len() > WITNESSES_MAX && !(another && judgement.accusing_domains.len() <= ACCUSERS_MIN)
        } else if here.held {
            newest_alive = newest_alive.max(here.at);
            judgement.held_at.push(vantage.clone());
            judgement.held_at.len() > WITNESSES_MAX
        } else if here.suspected() {
            judgement.suspected_at.push(vantage.clone());
            judgement.suspected_at.len() > WITNESSES_MAX
        } else {
            continue;
        };
        if !enough {
            judgement.evidence.extend(&here.evidence);
        }
    }
    // As `Reach::contradicts` of any two of them.
    let contradicted = first_failing.is_some_and(|since| newest_alive >= Some(since));
    let lost_to_audience = !alive_to_audience && audience_domains.len() >= ACCUSERS_MIN;
    judgement.verdict = row(&judgement, vetoed, contradicted, lost_to_audience);
    judgement
}

fn row(judgement: &NodeJudgement, vetoed: bool, contradicted: bool, lost_to_audience: bool) -> NodeVerdict {
    let partial = !judgement.partial_at.is_empty();
    let alive = partial || !judgement.alive_at.is_empty();
    let accusers = judgement.accusers.len();
    if alive && accusers == 0 {
        return if partial { NodeVerdict::PathPartial } else { NodeVerdict::Ok };
    }
    let accused = accusers >= ACCUSERS_MIN && judgement.accusing_domains.len() >= ACCUSERS_MIN;
    let overruled = accused && !vetoed;
    if contradicted && !overruled {
        return if lost_to_audience { NodeVerdict::UnroutableForAudience } else { NodeVerdict::UnroutableFromSome };
    }
    if !overruled {
        return NodeVerdict::InsufficientEvidence;
    }
    let all = |verdict| judgement.accusers.values().all(|v| *v == verdict);
    if all(AddressVerdict::Impostor) {
        NodeVerdict::ImpostorEverywhere
    } else if all(AddressVerdict::CertTime) {
        NodeVerdict::CertInvalidEverywhere
    } else if all(AddressVerdict::OpenButDead) {
        NodeVerdict::OpenButDead
    } else if all(AddressVerdict::Refused) {
        NodeVerdict::RefusingEverywhere
    } else {
        NodeVerdict::DeadEverywhere
    }
}
