//! When a fault began, as far as the log shows it: the first failed probe of the run that the finding rests on.

use parallax_decide::finding::{Finding, Reason, Subject};
use parallax_decide::fold::Fold;
use parallax_decide::judge::{Judgement, live_resolver};
use parallax_decide::names::{DomainName, VantageName};
use parallax_decide::observation::Target;
use parallax_decide::time::Timestamp;
use parallax_decide::topology::Topology;
use parallax_decide::verdict::VantageVerdict;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The onset of what was found; none: the log does not show one.
#[must_use]
pub fn onset(topology: &Topology, fold: &Fold, judgement: &Judgement, finding: &Finding) -> Option<Timestamp> {
    match (&finding.reason, &finding.subject) {
        (Reason::UnroutableHere { names }, subject) => {
            let vantage = subject.vantage()?;
            names.iter().filter_map(|(name, one)| failing_since(judgement, vantage, name, &one.addresses)).min()
        }
        (Reason::DeadEverywhere { vantages, addresses }, Subject::Name { name }) => {
            vantages.iter().filter_map(|vantage| failing_since(judgement, vantage, name, addresses)).min()
        }
        (Reason::AnswerUnusable { dead, .. }, Subject::NameAt { vantage, name }) => {
            failing_since(judgement, vantage, name, dead).or_else(|| answered_since(topology, fold, vantage, name))
        }
        (Reason::Endpoint { resolver, places, .. }, _) => places
            .keys()
            .filter_map(|vantage| fold.vantage(vantage)?.endpoints.get(resolver).map(|run| run.since))
            .min(),
        (Reason::Node { node, judgement: found }, _) => {
            let address = topology.nodes.get(node)?.address;
            let target = Target::Node(node.clone());
            found
                .accusers
                .keys()
                .filter_map(|vantage| judgement.reach.get(&(vantage.clone(), target.clone(), address))?.failing_since)
                .min()
        }
        (Reason::Vantage { judgement: found }, _) if found.verdict == VantageVerdict::Silent => found.last_report_at,
        // Controls are judged by their newest round alone.
        (
            Reason::Vantage { .. }
            | Reason::Fleet { .. }
            | Reason::DeadEverywhere { .. }
            | Reason::AnswerUnusable { .. },
            _,
        ) => None,
    }
}

fn failing_since(
    judgement: &Judgement,
    vantage: &VantageName,
    name: &DomainName,
    addresses: &BTreeSet<IpAddr>,
) -> Option<Timestamp> {
    let target = Target::Name(name.clone());
    let reach = |address: &IpAddr| judgement.reach.get(&(vantage.clone(), target.clone(), *address));
    addresses.iter().filter_map(|address| reach(address)?.failing_since).min()
}

fn answered_since(topology: &Topology, fold: &Fold, vantage: &VantageName, name: &DomainName) -> Option<Timestamp> {
    let (state, live) = (fold.vantage(vantage)?, live_resolver(topology)?);
    let of_name = state.answers.iter().filter(|((asked, resolver, _), _)| asked == name && resolver == live);
    of_name.map(|(_, answer)| answer.since).min()
}
