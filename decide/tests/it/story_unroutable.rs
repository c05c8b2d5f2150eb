//! Case 1: the branch that is handed addresses it has no path to.

use std::collections::BTreeSet;

use crate::rig::*;
use parallax_decide::observation::Target;
use parallax_decide::plan::{NoPlan, PlanReason};
use parallax_decide::topology::Mode;
use parallax_decide::trace::{self, Traced};
use parallax_decide::wanted::Ask;

fn well() -> Rig {
    let mut rig = Rig::new(World::well());
    rig.run(25);
    assert_eq!(rig.notes(), Vec::<&str>::new(), "nothing happens while all is well");
    rig
}

/// Begins with B35: other addresses elsewhere, which work, are no news.
#[test]
fn found_pinned_proven_and_taken_back() {
    let mut rig = well();
    assert_eq!(
        rig.answer_word(WAN, CDNJS, "live"),
        "answer_steered_by_vantage",
        "other addresses elsewhere are normal"
    );

    rig.world.hand_the_branch_the_pair();
    let found = rig.until("open unroutable/branch-kazan answer_unroutable_here", 15);
    assert!(found <= 14, "found after {found} s");
    rig.until("remedy cdnjs.cloudflare.com -> 104.26.6.10", 10);
    let finding = &rig.findings[0];
    for (id, shows) in &finding.evidence {
        let here = rig.log.iter().find(|o| o.id == *id).unwrap().vantage == n(BRANCH);
        let elsewhere = *shows == parallax_decide::finding::Shows::SeenElsewhere;
        assert!(here != elsewhere, "{id:?} is cited as {shows:?}");
    }
    assert!(finding.evidence.iter().any(|(_, s)| *s == parallax_decide::finding::Shows::SeenElsewhere));
    let PlanReason::ProvenHere { given_at, resolvers, .. } = &rig.plans[0].plan.reason else { panic!() };
    assert_eq!(given_at, &[n(DE)]);
    assert_eq!(resolvers.len(), 3, "every other resolver was asked from the branch: {resolvers:?}");
    assert!(resolvers.values().all(|verdict| !verdict.usable()), "none of them helps: {resolvers:?}");
    rig.until("proven cdnjs.cloudflare.com by 1", 10);
    assert_eq!(rig.answer_word(BRANCH, CDNJS, "live"), "answer_steered_by_vantage");
    assert_eq!(rig.answer_word(BRANCH, CDNJS, "doh-cf"), "answer_unroutable_here", "the native answer is judged apart");

    assert!(!rig.notes().iter().any(|note| note.starts_with("change")), "a healed name is no news: {:?}", rig.history);

    rig.run(60);
    assert_eq!(rig.plans.len(), 1, "while the native answer is bad the pin stands: {:?}", rig.history);

    rig.world.given = World::well().given;
    rig.until("return cdnjs.cloudflare.com -> native", 40);
    rig.until("proven cdnjs.cloudflare.com by 1", 10);
    rig.until("close", 20);
    rig.run(60);
    assert_eq!(rig.plans.len(), 2, "{:?}", rig.history);
    assert!(rig.book.open().next().is_none());
}

#[test]
fn a_second_witness_who_comes_later_is_told_once() {
    let mut rig = well();
    rig.world.silent.insert(DE);
    rig.run(1);
    rig.world.hand_the_branch_the_pair();
    rig.until("open unroutable", 20);
    let witnesses = |rig: &Rig| {
        let of = |finding: &parallax_decide::finding::Finding| {
            let parallax_decide::finding::Reason::UnroutableHere { names } = &finding.reason else { return None };
            Some(names[&n(CDNJS)].proven_at.clone())
        };
        rig.findings.iter().find_map(of).unwrap().into_values().flatten().collect::<BTreeSet<_>>()
    };
    assert_eq!(witnesses(&rig), BTreeSet::from([n(WAN)]));
    rig.world.silent.remove(DE);
    rig.until("change unroutable/branch-kazan answer_unroutable_here", 40);
    assert_eq!(witnesses(&rig), BTreeSet::from([n(WAN), n(DE)]));
    rig.run(60);
    assert_eq!(rig.notes().iter().filter(|note| note.starts_with("change")).count(), 1, "{:?}", rig.history);
}

#[test]
fn never_on_fewer_than_three_failures_over_three_seconds() {
    let mut rig = well();
    let before = rig.log.len();
    rig.world.hand_the_branch_the_pair();
    rig.until("open unroutable", 15);
    let failures: Vec<_> = rig.log[before..]
        .iter()
        .filter(|o| o.vantage == n(BRANCH))
        .filter(|o| {
            matches!(&o.fact, parallax_decide::observation::Fact::Connection(c)
            if c.address == n::<std::net::IpAddr>("8.6.112.0")
                && c.outcome == parallax_decide::observation::Outcome::Silent)
        })
        .collect();
    assert!(failures.len() >= 3);
    assert!(failures[failures.len() - 1].at.0 - failures[0].at.0 >= 3000);
}

#[test]
fn one_odd_answer_is_no_incident() {
    let mut rig = well();
    rig.world.hand_the_branch_the_pair();
    rig.run(5);
    rig.world.given = World::well().given;
    rig.run(60);
    assert_eq!(rig.notes(), Vec::<&str>::new());
}

#[test]
fn a_resolver_that_is_not_measured_yet_holds_the_pin_back() {
    let mut rig = well();
    rig.world.hand_the_branch_the_pair();
    // The reserve gives something nobody has tried long enough.
    rig.world.given.insert((BRANCH, "doh-family"), set(&["0.0.0.0"]));
    rig.until("open unroutable", 15);
    let held = format!("{:?}", rig.holds.get(CDNJS));
    assert!(held.contains("ResolversUnknown") && held.contains("doh-family"), "{held}");
    rig.until("remedy", 20);
}

#[test]
fn without_a_proven_address_nothing_is_written() {
    let mut rig = Rig::new(World::well());
    for address in ["104.26.6.10", "172.66.40.10"] {
        rig.world.no_path.insert((BRANCH, n(address)));
    }
    for resolver in RESOLVERS {
        rig.world.given.insert((BRANCH, resolver), set(&["104.26.7.10"]));
    }
    rig.run(25);
    rig.world.hand_the_branch_the_pair();
    rig.until("open unroutable", 15);
    rig.run(60);
    assert!(rig.plans.is_empty());
    assert_eq!(rig.holds.get(CDNJS), Some(&NoPlan::NoProvenTarget));
}

#[test]
fn a_pin_that_proves_nothing_is_rolled_back_and_another_address_tried() {
    let mut rig = well();
    rig.world.hand_the_branch_the_pair();
    rig.until("remedy cdnjs.cloudflare.com -> 104.26.6.10", 25);
    // The address dies at the branch in the very moment; 172.66.40.10 still works.
    rig.world.no_path.insert((BRANCH, n("104.26.6.10")));
    rig.until("rolled back cdnjs.cloudflare.com", 40);
    rig.until("remedy cdnjs.cloudflare.com -> 172.66.40.10", 30);
    rig.until("proven cdnjs.cloudflare.com by 1", 10);
}

#[test]
fn an_island_accuses_nobody() {
    let mut rig = well();
    rig.world.island.insert(BRANCH);
    rig.run(60);
    assert_eq!(rig.notes(), ["open vantage/branch-kazan vantage_uplink_down"]);
    assert!(rig.plans.is_empty());
    rig.world.island.clear();
    rig.until("close", 30);
}

#[test]
fn a_silent_vantage_is_unknown_not_failed() {
    let mut rig = well();
    rig.world.silent.insert(BRANCH);
    rig.run(60);
    assert_eq!(rig.notes(), ["open vantage/branch-kazan vantage_silent"]);
    assert_eq!(rig.answer_word(BRANCH, CDNJS, "live"), "insufficient_evidence");
}

#[test]
fn unknown_does_not_close_an_incident() {
    let mut rig = well();
    rig.world.hand_the_branch_the_pair();
    rig.topology.vantages.get_mut(&n::<parallax_decide::names::VantageName>(BRANCH)).unwrap().pin_driver = None;
    rig.until("open unroutable", 15);
    rig.world.silent.insert(BRANCH);
    rig.run(120);
    assert!(!rig.notes().contains(&"close"), "{:?}", rig.history);
    assert_eq!(rig.holds.get(CDNJS), Some(&NoPlan::NoDriver));
}

#[test]
fn the_path_to_what_is_silent_is_asked_for_once_in_ten_minutes() {
    let mut rig = well();
    let mut traced = Traced::default();
    assert_eq!(trace::wanted(&rig.topology, &rig.judge()), BTreeSet::new(), "nothing is silent");
    rig.world.hand_the_branch_the_pair();
    rig.until("open ", 60);
    let asks = trace::wanted(&rig.topology, &rig.judge());
    let due = traced.due(asks.clone(), rig.now);
    assert!(!due.is_empty() && due.iter().all(|ask| ask.vantage == n(BRANCH)), "{due:?}");
    // One question an address, whatever the number of names that lead to it.
    let addresses: BTreeSet<_> = due.iter().map(|ask| ask.address).collect();
    assert_eq!(addresses.len(), due.len());
    assert_eq!(traced.due(asks.clone(), rig.now.plus(trace::AGAIN_AFTER / 2)), []);
    assert_eq!(traced.due(asks, rig.now.plus(trace::AGAIN_AFTER)), due);
}

#[test]
fn one_vantage_is_asked_for_few_paths_at_a_time() {
    let rig = well();
    let ask = |last: u8| Ask {
        vantage: n(BRANCH),
        target: Target::Name(n(CDNJS)),
        address: std::net::Ipv4Addr::new(104, 26, 6, last).into(),
    };
    let mut traced = Traced::default();
    assert_eq!(traced.due((0..20).map(ask).collect(), rig.now).len(), trace::PATHS_MAX);
}

#[test]
fn dead_everywhere_blames_no_path() {
    let mut rig = well();
    for vantage in VANTAGES {
        for resolver in RESOLVERS {
            rig.world.given.insert((vantage, resolver), set(&["104.26.6.10"]));
        }
    }
    rig.world.dead.insert(n("104.26.6.10"));
    rig.until("open name/cdnjs.cloudflare.com answer_dead_everywhere", 30);
    rig.run(30);
    assert!(!rig.notes().iter().any(|note| note.contains("unroutable")), "{:?}", rig.history);
    assert!(rig.plans.is_empty());
}

#[test]
fn observing_only_changes_nothing_and_says_so() {
    let mut rig = well();
    rig.topology.vantages.get_mut(&n::<parallax_decide::names::VantageName>(BRANCH)).unwrap().pin_mode = Mode::Observe;
    rig.world.hand_the_branch_the_pair();
    rig.until("open unroutable", 15);
    rig.run(30);
    assert!(rig.plans.is_empty());
    assert!(rig.refusals.iter().all(|r| r.contains(&parallax_decide::guard::Refusal::NotAllowedToAct)));
    assert!(!rig.refusals.is_empty());
}

#[test]
fn what_the_configuration_no_longer_names_is_closed() {
    let mut rig = well();
    rig.topology.vantages.get_mut(&n::<parallax_decide::names::VantageName>(BRANCH)).unwrap().pin_driver = None;
    rig.world.hand_the_branch_the_pair();
    rig.until("open unroutable", 15);
    let mut without_name = rig.topology.clone();
    without_name.canaries.clear();
    rig.topology.vantages.remove(&n::<parallax_decide::names::VantageName>(BRANCH));
    rig.until("close", 15);

    let mut rig = well();
    rig.world.hand_the_branch_the_pair();
    rig.topology.vantages.get_mut(&n::<parallax_decide::names::VantageName>(BRANCH)).unwrap().pin_driver = None;
    rig.until("open unroutable", 15);
    rig.topology = without_name;
    rig.until("close", 15);
}

#[test]
fn a_frozen_fleet_is_well_only_when_somebody_speaks_again() {
    let mut rig = well();
    rig.world.silent.extend(VANTAGES);
    rig.until("open fleet freeze_coordinator_isolated", 30);
    // A restart: the coordinator's own gap is unknown time, and proves nothing either.
    rig.fold = parallax_decide::fold::Fold::listening_since(rig.now);
    rig.run(10);
    assert!(!rig.notes().contains(&"close"), "{:?}", rig.history);
    rig.world.silent.clear();
    rig.until("close", 30);
}
