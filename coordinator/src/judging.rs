//! What live detection, a start after `kill -9` and a replay do in the same way: where in the log they begin, and what the
//! verdicts of a moment do to the incidents. Judging itself is `parallax-decide`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parallax_decide::finding;
use parallax_decide::fold::Fold;
use parallax_decide::incident::{Book, IncidentId, Transition};
use parallax_decide::judge::Judgement;
use parallax_decide::names::{NodeName, ServiceName};
use parallax_decide::plan::Record;
use parallax_decide::time::Timestamp;
use parallax_decide::topology::{Policy, Topology};

use crate::store::log::{Page, Position};

/// Observations read at once.
pub const PAGE_MAX: i64 = 2000;

/// Added to what judging can look back to, when the state is rebuilt.
const REBUILD_MARGIN: Duration = Duration::from_secs(60);

/// How far before a moment the log is read, so that everything that can still matter then is in the state.
#[must_use]
pub fn warm_up(policy: &Policy) -> Duration {
    policy.looks_back() + REBUILD_MARGIN
}

/// The state and the place in the log with which judging begins at `now`, by a coordinator that has been able to hear its
/// agents since `listening_since`.
#[must_use]
pub fn begin(policy: &Policy, listening_since: Timestamp, now: Timestamp) -> (Fold, Position) {
    (Fold::listening_since(listening_since), Position::since(now.minus(warm_up(policy))))
}

/// Folds a page of the log.
pub fn fold(fold: &mut Fold, topology: &Topology, page: &Page) {
    for observation in &page.observations {
        fold.apply(topology, observation);
    }
}

/// What the verdicts of a moment do to the incidents. `in_force`: those that a remedy in force or a plan on its way keeps
/// open.
#[must_use]
pub fn follow(
    book: &mut Book,
    topology: &Topology,
    judgement: &Judgement,
    serving: &BTreeMap<ServiceName, NodeName>,
    in_force: &BTreeSet<IncidentId>,
) -> Vec<Transition> {
    let findings = finding::compare(topology, judgement, serving);
    book.step(topology, judgement, &findings, serving, in_force)
}

/// The node that each record points to, where it is exactly one of the service's.
#[must_use]
pub fn serving(topology: &Topology, records: &BTreeMap<ServiceName, Record>) -> BTreeMap<ServiceName, NodeName> {
    let mut serving = BTreeMap::new();
    for (name, service) in &topology.services {
        let Some(Record::Found(addresses)) = records.get(name) else { continue };
        let mut nodes = std::iter::once(&service.native).chain(&service.fallbacks);
        let node = nodes.find(|node| {
            let address = topology.nodes.get(*node).map(|node| node.address);
            addresses.as_set().len() == 1 && address.is_some_and(|address| addresses.as_set().contains(&address))
        });
        if let Some(node) = node {
            serving.insert(name.clone(), node.clone());
        }
    }
    serving
}
