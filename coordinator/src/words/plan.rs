//! What is done, why, and why not.

use parallax_decide::change::Change;
use parallax_decide::finding::Shows;
use parallax_decide::guard::Refusal;
use parallax_decide::plan::{NoPlan, PlanPurpose, PlanReason, PlanStatus, ReturnWaits};
use parallax_decide::time::Timestamp;
use parallax_decide::topology::Mode;
use parallax_decide::verdict::AnswerVerdict;

use super::verdict::node_phrase;
use super::{SPELLED_MAX, list};

/// How a moment inside a sentence is written; the reader's zone is not known here.
pub type Moment<'a> = &'a dyn Fn(Timestamp) -> String;

/// A change as an order: `pin cdnjs.cloudflare.com to 104.26.4.10 (TTL 5 s)`.
#[must_use]
pub fn change(change: &Change) -> String {
    match change {
        Change::Pin { name, addresses, ttl_s } => format!("pin {name} to {addresses} (TTL {ttl_s} s)"),
        Change::Unpin { name, expects, .. } => format!("take the pin {name} to {expects} away"),
        Change::Repoint { name, expects, sets, ttl_s } => {
            format!("repoint {name} from {expects} to {sets} (TTL {ttl_s} s)")
        }
    }
}

/// What a change expects to find before it is made.
#[must_use]
pub fn expects(change: &Change) -> String {
    match change {
        Change::Pin { .. } => "no local data for the name: the native answer".to_owned(),
        Change::Unpin { expects, .. } => format!("the pin to {expects}"),
        Change::Repoint { expects, .. } => expects.to_string(),
    }
}

/// What a change leaves.
#[must_use]
pub fn sets(change: &Change) -> String {
    match change {
        Change::Pin { addresses, ttl_s, .. } => format!("{addresses}, TTL {ttl_s} s"),
        Change::Unpin { .. } => "nothing local: the native answer".to_owned(),
        Change::Repoint { sets, ttl_s, .. } => format!("{sets}, TTL {ttl_s} s"),
    }
}

/// Why a plan was made.
#[must_use]
pub fn reason(reason: &PlanReason, moment: Moment<'_>) -> String {
    match reason {
        PlanReason::ProvenHere { address, proven_at, given_at, resolvers } => {
            let mut text = format!("{address} was proven from there at {}", moment(*proven_at));
            if !given_at.is_empty() {
                text.push_str(&format!("; {} given it as well", were(given_at.len(), &list(given_at, SPELLED_MAX))));
            }
            let usable = resolvers.values().any(|verdict| verdict.usable());
            let open = resolvers.values().any(|verdict| *verdict == AnswerVerdict::InsufficientEvidence);
            if !resolvers.is_empty() && !usable && !open {
                text.push_str(&format!("; no other resolver asked there helps ({} asked)", resolvers.len()));
            }
            text
        }
        PlanReason::NativeUsable { addresses } => {
            format!("the native answer ({}) is usable again", list(addresses, SPELLED_MAX))
        }
        PlanReason::NodeGone { from, verdict, accusers, to, provers } => format!(
            "node {from} {} ({}); node {to} is proven by {}",
            node_phrase(*verdict),
            list(accusers, SPELLED_MAX),
            list(provers, SPELLED_MAX)
        ),
        PlanReason::NativeBack { node, provers } => {
            format!("node {node} is back: proven by {}, round after round", list(provers, SPELLED_MAX))
        }
        PlanReason::ProofFailed { why } => format!("the change was not proven from the client's side: {why}"),
    }
}

/// Why nothing is planned.
#[must_use]
pub fn no_plan(why: &NoPlan, moment: Moment<'_>) -> String {
    match why {
        NoPlan::NotifyOnly => "this calls for people: no change of DNS would heal it".to_owned(),
        NoPlan::FleetFrozen => "the fleet cannot judge at the moment; everything stays as it is".to_owned(),
        NoPlan::NoDriver => "no driver is configured that could change it".to_owned(),
        NoPlan::InFlight => "a plan is on its way".to_owned(),
        NoPlan::Standing { until } => format!("the remedy stands; {}", return_waits(until, moment)),
        NoPlan::WaitsForPerson => "a proposed plan waits for a person".to_owned(),
        NoPlan::BudgetSpent { changes_max } => {
            format!("the incident has made the {changes_max} changes it may; a person has to decide")
        }
        NoPlan::NoProvenTarget => "no address or node is proven usable from the side that suffers".to_owned(),
        NoPlan::SwitchByHand { vantage, to, then_flush } => {
            let flush = if *then_flush { ", then empty its cache" } else { "" };
            format!(
                "switching the resolver of {vantage} to {to} would heal, as measured from there: switch by hand{flush}"
            )
        }
        NoPlan::ResolversUnknown { resolvers } => {
            format!("what {} give there is not known yet", list(resolvers, SPELLED_MAX))
        }
        NoPlan::RecordUnknown => "what the record holds could not be read".to_owned(),
        NoPlan::ForeignRecord { found } => {
            format!("the record holds {}, which is not ours: left to whoever set it", list(found, SPELLED_MAX))
        }
        NoPlan::FindingGone => "the finding has no longer what it takes".to_owned(),
    }
}

/// What a return waits for.
#[must_use]
pub fn return_waits(until: &ReturnWaits, moment: Moment<'_>) -> String {
    match until {
        ReturnWaits::NativeNotUsable => "back when the native answer or node is usable".to_owned(),
        ReturnWaits::GoodRounds => "the native one works again, but not for enough rounds".to_owned(),
        ReturnWaits::Dwell { until } => {
            format!("the native one works again; back not before {}, so as not to flap", moment(*until))
        }
    }
}

/// Why a guard refused a plan.
#[must_use]
pub fn refusal(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Frozen => "an operator froze every write".to_owned(),
        Refusal::FleetFrozen => "the fleet cannot judge".to_owned(),
        Refusal::NotAllowedToAct => "its mode only observes or proposes".to_owned(),
        Refusal::Expired => "it is too old".to_owned(),
        Refusal::StaleEpoch => "it was made under an older lease".to_owned(),
        Refusal::BudgetSpent => "the incident has made all the changes it may".to_owned(),
        Refusal::DriverBusy => "another plan of the same driver is on its way".to_owned(),
        Refusal::ForeignRecord { found } => {
            format!("the record holds {}, which is neither expected nor wanted", list(found, SPELLED_MAX))
        }
        Refusal::RecordUnknown => "the record could not be read".to_owned(),
        Refusal::TargetNotProven => "the target is not proven, recently, from the side that suffers".to_owned(),
        Refusal::NotAccused => "what it replaces is not shown dead by enough independent witnesses".to_owned(),
        Refusal::ScopeTooWide => "it goes beyond the scope of its evidence".to_owned(),
    }
}

/// What a plan is for.
#[must_use]
pub fn purpose(purpose: PlanPurpose) -> &'static str {
    match purpose {
        PlanPurpose::Remedy => "remedy",
        PlanPurpose::Return => "return",
        PlanPurpose::Rollback => "rollback",
    }
}

/// Where a plan stands.
#[must_use]
pub fn status(status: PlanStatus) -> &'static str {
    match status {
        PlanStatus::Proposed => "proposed: waits for a person",
        PlanStatus::Approved => "approved",
        PlanStatus::Applying => "being applied",
        PlanStatus::Applied => "applied, not yet proven",
        PlanStatus::Verified => "proven from the client's side",
        PlanStatus::Failed => "failed: nothing was changed",
        PlanStatus::Refused => "refused by a guard: nothing was changed",
        PlanStatus::Yielded => "yielded: somebody else changed the record",
        PlanStatus::RolledBack => "rolled back: its proof failed",
        PlanStatus::Expired => "expired: not applied in time",
        PlanStatus::Undone => "taken back after it had served",
    }
}

/// What automation may do.
#[must_use]
pub fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Observe => "observe",
        Mode::Propose => "propose",
        Mode::Act => "act",
    }
}

/// What a cited observation shows.
#[must_use]
pub fn shows(shows: Shows) -> &'static str {
    match shows {
        Shows::FailsHere => "fails here",
        Shows::SeenElsewhere => "seen elsewhere",
        Shows::OtherResolver => "another resolver",
        Shows::NodeProbe => "node probe",
        Shows::Control => "control",
    }
}

fn were(n: usize, who: &str) -> String {
    if n == 1 { format!("{who} was") } else { format!("{who} were") }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use parallax_decide::names::Addresses;
    use parallax_decide::verdict::NodeVerdict;

    use super::*;

    fn moment(at: Timestamp) -> String {
        format!("t{}", at.0)
    }

    fn set(text: &str) -> Addresses {
        Addresses::one(text.parse().unwrap()).unwrap()
    }

    #[test]
    fn changes_read_as_orders() {
        let pin = Change::Pin { name: "a.test".parse().unwrap(), addresses: set("104.26.4.10"), ttl_s: 5 };
        assert_eq!(change(&pin), "pin a.test to 104.26.4.10 (TTL 5 s)");
        assert_eq!(change(&pin.undo()), "take the pin a.test to 104.26.4.10 away");
        let repoint = Change::Repoint {
            name: "fi.test".parse().unwrap(),
            expects: set("95.216.10.10"),
            sets: set("49.12.20.20"),
            ttl_s: 5,
        };
        assert_eq!(change(&repoint), "repoint fi.test from 95.216.10.10 to 49.12.20.20 (TTL 5 s)");
        assert_eq!((expects(&repoint), sets(&repoint)), ("95.216.10.10".to_owned(), "49.12.20.20, TTL 5 s".to_owned()));
    }

    #[test]
    fn reasons_name_who_proves_what() {
        let address: IpAddr = "104.26.4.10".parse().unwrap();
        let pin = PlanReason::ProvenHere {
            address,
            proven_at: Timestamp(7),
            given_at: vec!["de-fra".parse().unwrap()],
            resolvers: [("doh-cf".parse().unwrap(), AnswerVerdict::UnroutableHere)].into(),
        };
        assert_eq!(
            reason(&pin, &moment),
            "104.26.4.10 was proven from there at t7; de-fra was given it as well; no other resolver asked there helps (1 asked)"
        );
        let gone = PlanReason::NodeGone {
            from: "fi".parse().unwrap(),
            verdict: NodeVerdict::DeadEverywhere,
            accusers: vec!["wan-gw".parse().unwrap(), "de-fra".parse().unwrap()],
            to: "de".parse().unwrap(),
            provers: vec!["wan-gw".parse().unwrap()],
        };
        assert!(
            reason(&gone, &moment)
                .contains("node fi is dead from everywhere that may judge (wan-gw and de-fra); node de")
        );
    }

    #[test]
    fn every_refusal_and_hold_says_why() {
        let found = [IpAddr::from([203, 0, 113, 9])];
        for one in [
            NoPlan::NotifyOnly,
            NoPlan::Standing { until: ReturnWaits::Dwell { until: Timestamp(9) } },
            NoPlan::BudgetSpent { changes_max: 3 },
            NoPlan::ForeignRecord { found: found.into() },
        ] {
            assert!(no_plan(&one, &moment).len() > 10);
        }
        assert!(
            no_plan(&NoPlan::Standing { until: ReturnWaits::Dwell { until: Timestamp(9) } }, &moment).contains("t9")
        );
        assert!(refusal(&Refusal::ForeignRecord { found: found.into() }).contains("203.0.113.9"));
        for one in PlanStatus::ALL {
            assert!(!status(*one).is_empty());
        }
    }
}
