//! Case 2: a node dies, its record moves by quorum, and returns.

use crate::rig::*;
use parallax_decide::guard::Refusal;
use parallax_decide::plan::{NoPlan, PlanReason};

fn well() -> Rig {
    let mut rig = Rig::new(World::well());
    rig.run(25);
    rig
}

#[test]
fn moved_by_quorum_seen_everywhere_and_returned() {
    let mut rig = well();
    rig.world.dead.insert(n(FI));
    rig.until("open service/fi node_dead_everywhere", 15);
    assert!(
        !rig.notes().iter().any(|note| note.contains("from_some")),
        "a stale success is no contradiction: {:?}",
        rig.history
    );
    assert_eq!(rig.notes().last(), Some(&"remedy fi -> 49.12.20.20"), "applied in the same step");
    let PlanReason::NodeGone { accusers, provers, to, .. } = &rig.plans[0].plan.reason else { panic!() };
    assert!(accusers.len() >= 2 && provers.len() >= 2, "{accusers:?} {provers:?}");
    assert_eq!(to, &n("de"));
    rig.until("proven fi by 3", 10);
    rig.run(60);
    assert_eq!(rig.plans.len(), 1);

    rig.world.dead.clear();
    rig.until("return fi -> 95.216.10.10", 40);
    rig.until("proven fi by 3", 10);
    rig.until("close", 20);
    rig.run(60);
    assert_eq!((rig.plans.len(), rig.book.open().count()), (2, 0), "{:?}", rig.history);
}

#[test]
fn one_watcher_moves_nothing() {
    for loner in VANTAGES {
        let mut rig = well();
        rig.world.no_path.insert((loner, n(FI)));
        rig.run(90);
        assert!(rig.plans.is_empty(), "{loner}");
        assert_eq!(rig.notes(), ["open service/fi node_unroutable_from_some"], "{loner}");
        assert_eq!(rig.holds.get("fi"), Some(&NoPlan::NotifyOnly));
        rig.world.no_path.remove(&(loner, n(FI)));
        rig.until("close", 30);
    }
}

#[test]
fn two_agents_behind_one_uplink_are_one_witness() {
    let mut rig = well();
    let domain = n::<parallax_decide::names::FailureDomain>("isp-hq");
    for vantage in [WAN, DE] {
        rig.topology.vantages.get_mut(&n::<parallax_decide::names::VantageName>(vantage)).unwrap().failure_domain =
            domain.clone();
    }
    rig.world.silent.insert(BRANCH);
    rig.run(30);
    rig.world.dead.insert(n(FI));
    rig.run(60);
    assert_eq!(rig.node_word("fi"), "insufficient_evidence");
    assert!(rig.plans.is_empty());
}

#[test]
fn a_living_witness_vetoes() {
    let mut rig = well();
    rig.world.liar = Some(DE);
    rig.world.dead.insert(n(FI));
    rig.run(90);
    assert!(rig.plans.is_empty(), "{:?}", rig.history);
}

#[test]
fn losing_a_witness_is_not_a_vote() {
    let mut rig = well();
    rig.world.silent.extend([WAN, DE]);
    rig.run(30);
    rig.world.dead.insert(n(FI));
    rig.run(90);
    assert!(rig.plans.is_empty(), "{:?}", rig.history);
}

#[test]
fn the_next_fallback_is_taken_when_the_first_is_dead_too_and_none_when_all_are() {
    let mut rig = well();
    rig.world.dead.insert(n(DE_NODE));
    rig.run(30);
    rig.world.dead.insert(n(FI));
    rig.until("remedy fi -> 5.161.30.30", 20);

    let mut rig = well();
    rig.world.dead.extend(set(&[DE_NODE, US]));
    rig.run(30);
    rig.world.dead.insert(n(FI));
    rig.run(60);
    assert!(rig.plans.is_empty());
    assert_eq!(rig.holds.get("fi"), Some(&NoPlan::NoProvenTarget));
}

#[test]
fn a_serving_fallback_that_dies_is_replaced_within_the_budget() {
    let mut rig = well();
    rig.world.dead.insert(n(FI));
    rig.until("proven fi by 3", 30);
    rig.world.dead.insert(n(DE_NODE));
    rig.until("remedy fi -> 5.161.30.30", 30);
    rig.until("proven fi by 3", 20);
    rig.world.dead.remove(&n::<std::net::IpAddr>(DE_NODE));
    rig.run(30);
    rig.world.dead.insert(n(US));
    rig.until("remedy fi -> 49.12.20.20", 30);
    rig.until("proven fi by 3", 20);
    rig.world.dead = [FI, DE_NODE].map(n).into();
    rig.run(60);
    assert_eq!(rig.plans.len(), 3, "three changes are the budget");
    assert_eq!(rig.holds.get("fi"), Some(&NoPlan::BudgetSpent { changes_max: 3 }));
    rig.world.dead.clear();
    rig.until("return fi -> 95.216.10.10", 60);
}

#[test]
fn somebody_elses_record_is_left_alone() {
    let mut rig = well();
    rig.world.record = set(&["1.2.3.4"]);
    rig.world.dead.insert(n(FI));
    rig.run(60);
    assert!(rig.plans.is_empty());
    assert_eq!(rig.holds.get("fi"), Some(&NoPlan::ForeignRecord { found: set(&["1.2.3.4"]) }));
    assert_eq!(rig.world.record, set(&["1.2.3.4"]));
}

#[test]
fn frozen_means_nothing_is_written() {
    let mut rig = well();
    rig.frozen = true;
    rig.world.dead.insert(n(FI));
    rig.run(60);
    assert!(rig.plans.is_empty());
    assert!(rig.refusals.iter().all(|r| r.contains(&Refusal::Frozen)) && !rig.refusals.is_empty());
}

#[test]
fn everybody_an_island_freezes_the_fleet() {
    let mut rig = well();
    rig.world.island.extend(VANTAGES);
    rig.run(60);
    assert_eq!(rig.notes().last(), Some(&"open fleet freeze_controls_failed"), "{:?}", rig.history);
    assert!(rig.notes().iter().all(|note| note.contains("uplink_down") || note.contains("freeze")));
    assert!(rig.plans.is_empty());
    rig.world.silent.extend(VANTAGES);
    rig.run(30);
    assert_eq!(rig.notes().last(), Some(&"change fleet freeze_coordinator_isolated"));
}

#[test]
fn flapping_does_not_flap_the_record() {
    let mut rig = well();
    for _ in 0..40 {
        rig.world.dead.insert(n(FI));
        rig.run(7);
        rig.world.dead.clear();
        rig.run(7);
    }
    assert!(rig.plans.len() <= 2, "{} changes in {} s: {:?}", rig.plans.len(), 40 * 14, rig.history);
}

#[test]
fn the_dwell_doubles_with_each_relapse_up_to_its_limit() {
    for (relapses, seconds) in [(0, 20), (1, 40), (3, 160), (30, 300)] {
        let mut rig = well();
        rig.relapses.insert("fi".to_owned(), relapses);
        rig.world.dead.insert(n(FI));
        rig.until("remedy fi", 20);
        let left_at = rig.now;
        rig.run(5);
        rig.world.dead.clear();
        rig.until("return fi", 320);
        let dwelt = rig.now.since(left_at).as_secs();
        assert!((seconds..=seconds + 2).contains(&dwelt), "{relapses} relapses: {dwelt} s instead of {seconds}");
    }
}

#[test]
fn a_fallback_that_helped_nobody_is_not_tried_twice() {
    let mut rig = well();
    rig.world.dead.insert(n(FI));
    rig.until("remedy fi -> 49.12.20.20", 20);
    // It dies in the very moment; the record goes back.
    rig.world.dead.insert(n(DE_NODE));
    rig.until("rolled back fi", 40);
    rig.world.dead.remove(&n::<std::net::IpAddr>(DE_NODE));
    rig.until("remedy fi -> 5.161.30.30", 40);
    rig.until("proven fi by 3", 20);
}

#[test]
fn a_recovery_seen_by_one_place_first_does_not_rename_the_incident() {
    let mut rig = well();
    rig.world.dead.insert(n(FI));
    rig.until("proven fi by 3", 30);
    rig.world.dead.clear();
    rig.world.no_path.insert((WAN, n(FI)));
    rig.run(30);
    assert_eq!(rig.node_word("fi"), "node_unroutable_from_some");
    assert!(!rig.notes().iter().any(|note| note.starts_with("change")), "{:?}", rig.history);
    assert_eq!(rig.plans.len(), 1, "and nothing returns to it yet");
}

#[test]
fn a_fallback_that_one_place_does_not_reach_is_taken_all_the_same() {
    let mut rig = well();
    rig.world.no_path.extend([(BRANCH, n(DE_NODE)), (BRANCH, n(US))]);
    rig.run(30);
    rig.world.dead.insert(n(FI));
    rig.until("remedy fi -> 49.12.20.20", 20);
    let PlanReason::NodeGone { provers, .. } = &rig.plans[0].plan.reason else { panic!() };
    assert_eq!(provers.len(), 2, "{provers:?}");
}

#[test]
fn a_fallback_that_all_reach_goes_before_one_that_one_place_does_not() {
    let mut rig = well();
    rig.world.no_path.insert((BRANCH, n(DE_NODE)));
    rig.run(30);
    rig.world.dead.insert(n(FI));
    rig.until("remedy fi -> 5.161.30.30", 20);
}

#[test]
fn a_node_that_dies_before_its_return_is_proven_is_left_without_waiting_for_the_proof() {
    let mut rig = well();
    rig.topology.policy.verify_within = std::time::Duration::from_secs(600);
    rig.world.dead.insert(n(FI));
    rig.until("proven fi by 3", 30);
    rig.world.dead.clear();
    rig.until("return fi", 40);
    rig.world.dead.insert(n(FI));
    rig.until("rolled back fi", 20);
    assert_eq!(rig.world.record, set(&[DE_NODE]));
}
