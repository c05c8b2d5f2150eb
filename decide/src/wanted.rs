//! Which evidence is missing and who shall be asked for it.
//!
//! After a first failure the other vantages are asked in the same moment to try the same address
//! (is it dead, or unroutable from here?), and the one that suffers is asked to try the addresses
//! that others were given (is there one to pin?). Questions are deduplicated and rate-limited.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::address::special_purpose;
use crate::elsewhere::Given;
use crate::judge::Judgement;
use crate::names::{DomainName, FailureDomain, VantageName};
use crate::observation::Target;
use crate::reach::Reach;
use crate::time::Timestamp;
use crate::topology::Topology;
use crate::verdict::AnswerVerdict;

/// Most vantages, in distinct failure domains, that are asked about one address besides the one
/// that suffers: five opinions settle it, a thousand would be an attack.
pub const CROSS_CHECKERS_MAX: usize = 5;

/// Most foreign addresses one vantage is asked to try for one name at a time.
pub const CANDIDATES_MAX: usize = 8;

/// A question to one vantage: can you use this address for this target?
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ask {
    /// Who is asked.
    pub vantage: VantageName,
    /// What for.
    pub target: Target,
    /// Which address.
    pub address: IpAddr,
}

/// Remembers who was asked what and when.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    last: BTreeMap<Ask, Timestamp>,
}

impl Asked {
    /// Those of `asks` that were not asked within the policy's `ask_again_after`; notes them as asked.
    #[must_use]
    pub fn due(&mut self, topology: &Topology, asks: BTreeSet<Ask>, now: Timestamp) -> Vec<Ask> {
        let wait = topology.policy.ask_again_after;
        self.last.retain(|_, at| now.since(*at) < wait);
        let due: Vec<Ask> = asks.into_iter().filter(|ask| !self.last.contains_key(ask)).collect();
        self.last.extend(due.iter().map(|ask| (ask.clone(), now)));
        due
    }
}

/// Everything worth asking at this moment.
#[must_use]
pub fn wanted(topology: &Topology, judgement: &Judgement) -> BTreeSet<Ask> {
    let mut asks = BTreeSet::new();
    let given = Given::of(judgement);
    let failing = judgement.reach.iter().filter(|(_, reach)| reach.dead() || reach.suspected());
    for ((vantage, target, address), reach) in failing {
        if !judgement.vantages.get(vantage).is_some_and(|v| v.may_accuse()) {
            continue;
        }
        if reach.suspected() && !recent(judgement, reach, topology.policy.ask_again_after) {
            asks.insert(Ask { vantage: vantage.clone(), target: target.clone(), address: *address });
        }
        cross_check(topology, judgement, vantage, target, *address, reach, &mut asks);
        if let Target::Name(name) = target {
            candidates(topology, judgement, &given, vantage, name, &mut asks);
        }
    }
    for ((vantage, name, _), answer) in &judgement.answers {
        if answer.verdict == AnswerVerdict::UnroutableHere {
            candidates(topology, judgement, &given, vantage, name, &mut asks);
        }
    }
    asks
}

fn recent(judgement: &Judgement, reach: &Reach, span: std::time::Duration) -> bool {
    reach.at.is_some_and(|at| judgement.at.since(at) < span)
}

/// Asks others about an address that fails at `sufferer`, unless they said something since it fails.
fn cross_check(
    topology: &Topology,
    judgement: &Judgement,
    sufferer: &VantageName,
    target: &Target,
    address: IpAddr,
    failing: &Reach,
    asks: &mut BTreeSet<Ask>,
) {
    if special_purpose(address).is_some() {
        return;
    }
    let mut domains: BTreeSet<&FailureDomain> = BTreeSet::new();
    for (vantage, place) in &topology.vantages {
        if domains.len() >= CROSS_CHECKERS_MAX {
            break;
        }
        if vantage == sufferer || !judgement.vantages.get(vantage).is_some_and(|v| v.may_prove()) {
            continue;
        }
        if !domains.insert(&place.failure_domain) {
            continue;
        }
        let there = judgement.reach.get(&(vantage.clone(), target.clone(), address));
        let said = there.is_some_and(|there| {
            recent(judgement, there, topology.policy.fresh_for / 2) && (there.dead() || there.contradicts(failing))
        });
        if !said {
            asks.insert(Ask { vantage: vantage.clone(), target: target.clone(), address });
        }
    }
}

/// Asks the vantage that suffers to try what others were given for the name.
fn candidates(
    topology: &Topology,
    judgement: &Judgement,
    given: &Given<'_>,
    vantage: &VantageName,
    name: &DomainName,
    asks: &mut BTreeSet<Ask>,
) {
    let target = Target::Name(name.clone());
    for address in
        given.to_others(vantage, name).filter(|address| special_purpose(*address).is_none()).take(CANDIDATES_MAX)
    {
        let here = judgement.reach.get(&(vantage.clone(), target.clone(), address));
        let fresh = here.is_some_and(|here| {
            // A dead one is only kept known as such; a proven one must be so when a change is made.
            let policy = &topology.policy;
            recent(judgement, here, if here.dead() { policy.fresh_for * 3 / 4 } else { policy.proof_age_max / 2 })
        });
        if !fresh {
            asks.insert(Ask { vantage: vantage.clone(), target: target.clone(), address });
        }
    }
}
