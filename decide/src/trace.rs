//! Which paths are worth finding: what a finding says is silent, from where it is. A path is evidence for
//! people (the last hop that answered) and never makes a verdict: ICMP is forged and filtered at will.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use crate::judge::Judgement;
use crate::names::VantageName;
use crate::observation::Target;
use crate::time::Timestamp;
use crate::topology::Topology;
use crate::verdict::{AddressVerdict, AnswerVerdict, NodeVerdict};
use crate::wanted::Ask;

/// A vantage is asked for the path to one address no sooner than this again (`verdicts` 3).
pub const AGAIN_AFTER: Duration = Duration::from_secs(600);

/// Most paths that one vantage is asked for in that time: a path costs up to 20 s of packets.
pub const PATHS_MAX: usize = 8;

/// Remembers who was asked for which path and when.
#[derive(Debug, Clone, Default)]
pub struct Traced {
    last: BTreeMap<(VantageName, IpAddr), Timestamp>,
}

impl Traced {
    /// Those of `asks` that are due; notes them as asked.
    #[must_use]
    pub fn due(&mut self, asks: BTreeSet<Ask>, now: Timestamp) -> Vec<Ask> {
        self.last.retain(|_, at| now.since(*at) < AGAIN_AFTER);
        let mut due = Vec::new();
        for ask in asks {
            let key = (ask.vantage.clone(), ask.address);
            let asked = self.last.keys().filter(|(vantage, _)| *vantage == ask.vantage).count();
            // One address may be tried for several names; its path is one.
            if asked < PATHS_MAX && !self.last.contains_key(&key) {
                self.last.insert(key, now);
                due.push(ask);
            }
        }
        due
    }
}

/// Every path worth finding at this moment.
#[must_use]
pub fn wanted(topology: &Topology, judgement: &Judgement) -> BTreeSet<Ask> {
    let answers = judgement.answers.iter().filter(|(_, answer)| suspects_path(answer.verdict)).flat_map(
        |((vantage, name, _), answer)| {
            let target = Target::Name(name.clone());
            answer.dead.iter().chain(&answer.partial).map(move |address| (vantage.clone(), target.clone(), *address))
        },
    );
    let nodes = judgement.nodes.iter().filter(|(_, node)| node_suspects_path(node.verdict)).flat_map(|(name, node)| {
        let address = topology.nodes.get(name).map(|node| node.address);
        let target = Target::Node(name.clone());
        node.accusers
            .keys()
            .chain(&node.partial_at)
            .filter_map(move |vantage| Some((vantage.clone(), target.clone(), address?)))
    });
    answers
        .chain(nodes)
        .filter(|key| judgement.reach.get(key).is_some_and(|reach| lost_on_the_way(reach.verdict)))
        .map(|(vantage, target, address)| Ask { vantage, target, address })
        .collect()
}

/// Whether what was found may be the path's doing.
fn lost_on_the_way(verdict: AddressVerdict) -> bool {
    match verdict {
        AddressVerdict::Silent | AddressVerdict::PmtuBlackhole | AddressVerdict::PartialPath => true,
        AddressVerdict::RefusedByPolicy
        | AddressVerdict::FamilyUnavailable
        | AddressVerdict::Ok
        | AddressVerdict::OkUnproven
        | AddressVerdict::Refused
        | AddressVerdict::OpenButDead
        | AddressVerdict::Impostor
        | AddressVerdict::CertTime
        | AddressVerdict::HttpFailed
        | AddressVerdict::Unmeasured => false,
    }
}

fn suspects_path(verdict: AnswerVerdict) -> bool {
    [
        AnswerVerdict::UnroutableHere,
        AnswerVerdict::DeadEverywhere,
        AnswerVerdict::PartlyDead,
        AnswerVerdict::PathPartial,
    ]
    .contains(&verdict)
}

fn node_suspects_path(verdict: NodeVerdict) -> bool {
    [
        NodeVerdict::UnroutableFromSome,
        NodeVerdict::UnroutableForAudience,
        NodeVerdict::PathPartial,
        NodeVerdict::DeadEverywhere,
    ]
    .contains(&verdict)
}
