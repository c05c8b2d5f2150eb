//! The auditor objects to what it should: a check that never objects would find nothing in a million hours.

use parallax_decide::observation::Outcome;

use super::*;
use crate::dice::Dice;

const DEAD: Kind = Kind::NodeDead { node: 0, how: Outcome::Silent };
const HOUR: i64 = 3_600_000;

fn scenery() -> Scenery {
    Scenery::draw(&mut Dice::new(0, 1), false).unwrap()
}

fn on(kind: Kind, from: i64, to: i64) -> Fault {
    Fault { kind, from, to }
}

fn away(at: i64, incident: i64) -> Made {
    Made { at, purpose: PlanPurpose::Remedy, incident: IncidentId(incident), from: 0, to: 1 }
}

/// What is objected to a change while these faults are or were on.
fn objected(faults: &[Fault], made: Made) -> Vec<String> {
    let scenery = scenery();
    let mut auditor = Auditor::new(&scenery);
    auditor.made(&scenery, faults, made);
    auditor.violations.into_iter().map(|(_, what)| what).collect()
}

#[test]
fn a_change_away_from_a_node_that_lives_is_false() {
    let one = [on(Kind::PathLost { vantage: 1, node: 0 }, 0, 2 * HOUR)];
    let long_ago = [on(DEAD, 0, HOUR - 120_000)];
    let lie = [on(Kind::Liar { vantage: 0, says_alive: false }, 0, 2 * HOUR)];
    for faults in [&[] as &[Fault], &one, &long_ago, &lie] {
        let objected = objected(faults, away(HOUR, 1));
        assert!(objected.iter().any(|what| what.starts_with("false failover")), "{faults:?}: {objected:?}");
    }
    assert_eq!(objected(&[on(DEAD, HOUR - 30_000, 2 * HOUR)], away(HOUR, 1)), Vec::<String>::new());
    let two = [one[0], on(Kind::PathLost { vantage: 2, node: 0 }, 0, 2 * HOUR)];
    assert_eq!(objected(&two, away(HOUR, 1)), Vec::<String>::new(), "two networks do not reach it");
}

#[test]
fn a_change_to_a_dead_node_and_one_that_nobody_can_have_asked_for_are_objected_to() {
    let both = [on(DEAD, 0, 2 * HOUR), on(Kind::NodeDead { node: 1, how: Outcome::Silent }, 0, 2 * HOUR)];
    assert!(objected(&both, away(HOUR, 1)).iter().any(|what| what.contains("which is dead")));
    let cut = [on(DEAD, 0, 2 * HOUR), on(Kind::Isolated { provider: false }, 0, 2 * HOUR)];
    assert!(objected(&cut, away(HOUR, 1)).iter().any(|what| what.contains("nobody could be heard")));
}

#[test]
fn changes_are_counted_by_incident_and_by_hour() {
    let scenery = scenery();
    let faults = [on(DEAD, 0, 9 * HOUR)];
    let mut auditor = Auditor::new(&scenery);
    for minute in 1..=13 {
        auditor.made(&scenery, &faults, away(HOUR + minute * 60_000, 1));
    }
    let words: Vec<&str> = auditor.violations.iter().map(|(_, what)| what.as_str()).collect();
    assert!(words[0].starts_with("4 changes of one incident"), "{words:?}");
    assert!(words.iter().any(|what| what.starts_with("the record flaps")), "{words:?}");
}

#[test]
fn a_dead_serving_node_that_is_not_left_in_time_is_missed_and_said_once() {
    let scenery = scenery();
    let bounds = Bounds::of(&scenery);
    let missed = |extra: &[Fault], wait: i64| {
        let mut auditor = Auditor::new(&scenery);
        let faults = [&[on(DEAD, HOUR, 9 * HOUR)], extra].concat();
        assert!(auditor.look(&scenery, &faults, 0, false, HOUR).is_none_or(|again| again > HOUR));
        for at in [HOUR + wait, HOUR + wait + 1000] {
            let _ = auditor.look(&scenery, &faults, 0, false, at);
        }
        auditor.violations.len()
    };
    assert_eq!(missed(&[], bounds.failover - 1000 - 1), 0);
    assert_eq!(missed(&[], bounds.failover), 1);
    let cannot_speak = on(Kind::AgentDead { vantage: 0 }, 0, 9 * HOUR);
    assert_eq!(missed(&[cannot_speak], bounds.failover), 0, "its last success vetoes for a while");
    assert_eq!(missed(&[cannot_speak], bounds.failover_veiled), 1);
    for excuse in [Kind::Isolated { provider: true }, Kind::Restart, Kind::Liar { vantage: 0, says_alive: true }] {
        assert_eq!(missed(&[on(excuse, 0, 9 * HOUR)], 8 * HOUR), 0, "{excuse:?}");
    }
    // One place without a way to any node is no excuse.
    assert_eq!(missed(&[on(Kind::NodesLost { vantage: 0 }, 0, 9 * HOUR)], bounds.failover), 1);
}

#[test]
fn a_record_that_does_not_return_is_said() {
    let scenery = scenery();
    let bounds = Bounds::of(&scenery);
    let mut auditor = Auditor::new(&scenery);
    assert_eq!(auditor.look(&scenery, &[], 1, false, HOUR), Some(HOUR + bounds.back));
    let _ = auditor.look(&scenery, &[], 1, false, HOUR + bounds.back);
    assert!(auditor.violations.iter().all(|(_, what)| what.starts_with("not returned")), "{:?}", auditor.violations);
    assert_eq!(auditor.violations.len(), 1);
}
