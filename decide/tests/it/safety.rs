//! Whatever happens to the fleet: properties that must hold of every change.

use crate::rig::*;
use parallax_decide::plan::{PlanPurpose, PlanReason};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Event {
    NodeDies(usize),
    NodeReturns(usize),
    PathLost(usize, usize),
    PathBack(usize, usize),
    Island(usize),
    Connected(usize),
    Silent(usize),
    Heard(usize),
    PairForTheBranch,
    NativeAgain,
}

const NODES: [&str; 3] = [FI, DE_NODE, US];

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0..3usize).prop_map(Event::NodeDies),
        (0..3usize).prop_map(Event::NodeReturns),
        (0..3usize, 0..3usize).prop_map(|(v, a)| Event::PathLost(v, a)),
        (0..3usize, 0..3usize).prop_map(|(v, a)| Event::PathBack(v, a)),
        (0..3usize).prop_map(Event::Island),
        (0..3usize).prop_map(Event::Connected),
        (0..3usize).prop_map(Event::Silent),
        (0..3usize).prop_map(Event::Heard),
        Just(Event::PairForTheBranch),
        Just(Event::NativeAgain),
    ]
}

fn happen(world: &mut World, event: &Event) {
    match event {
        Event::NodeDies(i) => drop(world.dead.insert(n(NODES[*i]))),
        Event::NodeReturns(i) => drop(world.dead.remove(&n::<std::net::IpAddr>(NODES[*i]))),
        Event::PathLost(v, a) => drop(world.no_path.insert((VANTAGES[*v], n(NODES[*a])))),
        Event::PathBack(v, a) => drop(world.no_path.remove(&(VANTAGES[*v], n(NODES[*a])))),
        Event::Island(v) => drop(world.island.insert(VANTAGES[*v])),
        Event::Connected(v) => drop(world.island.remove(VANTAGES[*v])),
        Event::Silent(v) => drop(world.silent.insert(VANTAGES[*v])),
        Event::Heard(v) => drop(world.silent.remove(VANTAGES[*v])),
        Event::PairForTheBranch => world.hand_the_branch_the_pair(),
        Event::NativeAgain => world.given = World::well().given,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Random faults and recoveries. A record moves only away from a node that nobody with an
    /// uplink can reach, only on two accusers, only to a proven node; budgets hold; a name is never
    /// left without an answer.
    #[test]
    fn every_change_is_earned(events in prop::collection::vec((event(), 1..40u32), 1..14)) {
        let mut rig = Rig::new(World::well());
        rig.run(25);
        for (event, seconds) in events {
            happen(&mut rig.world, &event);
            for _ in 0..seconds {
                let plans = rig.plans.len();
                rig.step();
                prop_assert!(!rig.world.record.is_empty());
                for record in &rig.plans[plans..] {
                    match (&record.plan.reason, record.plan.purpose) {
                        (PlanReason::NodeGone { accusers, provers, from, to, .. }, PlanPurpose::Remedy) => {
                            prop_assert!(accusers.len() >= 2, "{accusers:?}");
                            prop_assert!(provers.len() >= 2, "{provers:?}");
                            prop_assert!(from != to);
                        }
                        (PlanReason::NativeBack { provers, .. }, PlanPurpose::Return) => {
                            prop_assert!(provers.len() >= 2, "{provers:?}");
                        }
                        (PlanReason::ProvenHere { resolvers, .. }, PlanPurpose::Remedy) => {
                            prop_assert!(record.plan.vantage == Some(n(BRANCH)));
                            prop_assert!(resolvers.len() >= 2, "the counterfactual was measured");
                        }
                        (PlanReason::NativeUsable { .. }, PlanPurpose::Return) => {}
                        (reason, purpose) => prop_assert!(false, "{purpose:?} because {reason:?}"),
                    }
                }
            }
        }
        for open in rig.book.open() {
            let counted = rig.plans.iter().filter(|p| p.incident == open.id && p.counts()).count();
            prop_assert!(counted <= 3, "budget");
        }
    }

    /// One vantage that lost its own path, or its uplink, or its voice, never moves a record.
    #[test]
    fn one_place_never_moves_a_record(v in 0..3usize, kind in 0..3u8, seconds in 10..90u32) {
        let mut rig = Rig::new(World::well());
        rig.run(25);
        match kind {
            0 => drop(rig.world.island.insert(VANTAGES[v])),
            1 => drop(rig.world.silent.insert(VANTAGES[v])),
            _ => rig.world.no_path.extend(NODES.map(|a| (VANTAGES[v], n::<std::net::IpAddr>(a)))),
        }
        rig.run(seconds);
        prop_assert!(rig.plans.is_empty(), "{:?}", rig.history);
    }
}
