//! What comes and goes: few incidents, few names, and the same whatever the order in which it is told.

use std::collections::BTreeMap;
use std::time::Duration;

use parallax_decide::fold::Fold;
use parallax_decide::incident::{Book, Closed, steady};
use parallax_decide::judge::{self, Judgement};
use parallax_decide::observation::*;
use parallax_decide::time::Timestamp;
use parallax_decide::topology::{Mode, Policy};

use crate::rig::*;

fn observing(world: World) -> Rig {
    let mut rig = Rig::new(world);
    rig.topology.services.get_mut(&n("fi")).unwrap().mode = Mode::Observe;
    rig.run(25);
    assert_eq!(rig.notes(), Vec::<&str>::new());
    rig
}

fn count(rig: &Rig, start: &str) -> usize {
    rig.notes().iter().filter(|note| note.starts_with(start)).count()
}

/// Down for 40 s and up for 40 s, for two hours.
#[test]
fn what_flaps_is_few_incidents_and_stays_open_longer_each_time() {
    let mut rig = observing(World::well());
    let mut spans = Vec::new();
    let mut opened = None;
    for second in 0..7200 {
        if second % 80 == 0 {
            rig.world.dead.insert(n(DE_NODE));
        } else if second % 80 == 40 {
            rig.world.dead.remove(&n(DE_NODE));
        }
        rig.run(1);
        let open = rig.book.open().next().map(|open| open.opened_at);
        if let (Some(at), None) = (opened, open) {
            spans.push(rig.now.since(at));
        }
        opened = open;
    }
    let opens = count(&rig, "open node/de");
    assert!((2..=4).contains(&opens), "{opens} incidents for 90 times down: {:?}", rig.history);
    assert!(spans.is_sorted(), "{spans:?}");
    // Quiet for long enough, it closes, and is forgotten after the window of relapses.
    rig.world.dead.clear();
    rig.run(330);
    assert!(rig.book.open().next().is_none(), "{:?}", rig.history);
    assert_eq!(rig.book.closed_lately().count(), 1);
    rig.run(600);
    assert_eq!(rig.book.closed_lately().count(), 0);
}

#[test]
fn the_dwell_doubles_up_to_its_longest_and_an_acted_incident_is_the_plans_business() {
    let policy = Policy::careful();
    let subject = parallax_decide::finding::Subject::Node { node: n("de") };
    let after = |relapses, acted| {
        steady::close_after(&policy, &subject, &steady::Steady { relapses, acted, naming: None }).as_secs()
    };
    assert_eq!([0, 1, 2, 3, 4, 5, 6, u32::MAX].map(|n| after(n, false)), [80, 300, 600, 1200, 2400, 3600, 3600, 3600]);
    assert_eq!(after(5, true), 80, "five rounds of 20 s");
}

#[test]
fn a_restart_knows_what_closed_lately() {
    let subject = parallax_decide::finding::Subject::Node { node: n("de") };
    let closed = |at, relapses| Closed { subject: subject.clone(), at: Timestamp(at), relapses };
    let book = Book::default().with_closed([closed(1000, 0), closed(3000, 1), closed(2000, 0)]);
    assert_eq!(book.relapses(&subject), 2, "the newest counts");
}

/// The way a node fails changes from probe to probe: that is one fault with one name.
#[test]
fn a_name_is_taken_when_it_lasts_and_not_before() {
    let mut rig = observing(World::well());
    rig.world.dead.insert(n(DE_NODE));
    rig.until("open node/de node_dead_everywhere", 20);
    for round in 0..20 {
        rig.world.refuses = round % 2 == 0;
        rig.run(5);
    }
    assert_eq!(count(&rig, "change"), 0, "{:?}", rig.history);
    rig.world.refuses = true;
    let began = rig.now;
    rig.until("change node/de node_refusing_everywhere", 30);
    assert!(rig.now.since(began) >= steady::rename_after(&rig.topology.policy, &rig.findings[0].subject));
    rig.run(60);
    assert_eq!(count(&rig, "change"), 1, "{:?}", rig.history);
}

/// Rows 2 to 10 of the answers, by what the controls lose: k agreeing answers, and a control that passed since.
#[test]
fn no_answer_is_a_fault_before_k_agree_and_a_control_passed() {
    let mut rig = Rig::new(World::well());
    rig.topology.policy = Policy { canary_every: Duration::from_secs(5), ..Policy::careful() };
    rig.particulars = Particulars { recent: Some(Recent { failures: 5, checks: 60 }), ..Particulars::default() };
    rig.controls(BRANCH);
    let answer = |rig: &mut Rig, outcome| {
        rig.now = rig.now.plus(Duration::from_secs(5));
        rig.observe(
            BRANCH,
            Fact::Resolution(Resolution {
                name: n(CDNJS),
                resolver: n("live"),
                family: Family::V4,
                outcome,
                addresses: Vec::new(),
                ttl_s: 0,
            }),
        );
        rig.answer_word(BRANCH, CDNJS, "live")
    };
    // In which way no reply comes is all the same.
    for outcome in [Outcome::DnsSilent, Outcome::ConnectionRefused, Outcome::DnsSilent].iter().cycle().take(6) {
        assert_eq!(answer(&mut rig, *outcome), "insufficient_evidence");
        rig.controls(BRANCH);
    }
    // The seventh is enough for what these controls lose; none has passed since.
    assert_eq!(answer(&mut rig, Outcome::DnsSilent), "insufficient_evidence");
    rig.controls(BRANCH);
    assert_eq!(rig.answer_word(BRANCH, CDNJS, "live"), "answer_not_obtained");
    assert_eq!(answer(&mut rig, Outcome::Servfail), "insufficient_evidence", "another fault begins to be counted anew");
}

/// What is judged and what becomes of the incidents, told in this order.
fn told(rig: &Rig, log: &[Observation]) -> (Judgement, Vec<String>) {
    let mut fold = Fold::listening_since(Timestamp(1_000_000));
    for observation in log {
        fold.apply(&rig.topology, observation);
    }
    let judgement = judge::judge(&rig.topology, &fold, rig.now);
    let findings = parallax_decide::finding::compare(&rig.topology, &judgement, &BTreeMap::new());
    (judgement, findings.iter().map(|finding| format!("{} {}", finding.subject.key(), finding.kind)).collect())
}

/// Vantages and lanes come in any order; what one lane says of one subject, in its own.
#[test]
fn the_order_of_arrival_within_a_window_changes_nothing() {
    let mut rig = Rig::new(World::well());
    rig.run(20);
    rig.world.hand_the_branch_the_pair();
    rig.world.dead.insert(n(DE_NODE));
    rig.run(9);
    rig.world.island.insert(DE);
    rig.run(11);
    let words = |judgement: &Judgement| {
        let answers = judgement.answers.iter().map(|(key, answer)| format!("{key:?} {}", answer.verdict.word()));
        let reach = judgement.reach.iter().map(|(key, reach)| format!("{key:?} {}", reach.verdict.word()));
        let nodes = judgement.nodes.iter().map(|(key, node)| format!("{key:?} {}", node.verdict.word()));
        let vantages = judgement.vantages.iter().map(|(key, one)| format!("{key:?} {}", one.verdict.word()));
        answers.chain(reach).chain(nodes).chain(vantages).collect::<Vec<_>>()
    };
    let (judged, found) = told(&rig, &rig.log);
    assert_eq!(found.len(), 2, "{found:?}");
    for seed in 1_u64..=200 {
        let mut dice = seed;
        let mut roll = move || {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            dice
        };
        let log = shuffled(&rig.log, &mut roll);
        let (again, findings) = told(&rig, &log);
        assert_eq!(words(&again), words(&judged), "seed {seed}");
        assert_eq!(findings, found, "seed {seed}");
        // Told again, and too late: nothing.
        let mut twice = log.clone();
        twice.extend(log.iter().filter(|_| roll() % 3 == 0).cloned());
        let highest = log.len() as i64;
        twice.extend(rig.log.iter().enumerate().filter(|_| roll() % 3 == 0).map(|(index, observation)| Observation {
            id: ObservationId(highest + 1 + index as i64),
            late: true,
            received_at: rig.now.minus(Duration::from_secs(20)),
            ..observation.clone()
        }));
        let (again, findings) = told(&rig, &twice);
        assert_eq!((words(&again), findings), (words(&judged), found.clone()), "seed {seed}");
    }
}

/// The rows of each window of five seconds in another order, numbered as they arrive. What one subject shows at one place in
/// turn stays in turn.
fn shuffled(log: &[Observation], roll: &mut impl FnMut() -> u64) -> Vec<Observation> {
    let mut windows: BTreeMap<i64, BTreeMap<String, Vec<Observation>>> = BTreeMap::new();
    for observation in log {
        let about = match &observation.fact {
            Fact::Resolution(resolution) => format!("{:?} {:?}", resolution.name, resolution.resolver),
            Fact::Connection(connection) => format!("{:?} {}", connection.target, connection.address),
            Fact::ControlCheck(_) => "controls".to_owned(),
            Fact::EndpointCheck(check) => format!("{:?}", check.resolver),
            Fact::Path(_) | Fact::Loss(_) | Fact::Missed(_) => "records".to_owned(),
        };
        let lanes = windows.entry(observation.received_at.0 / 5000).or_default();
        lanes.entry(format!("{} {about}", observation.vantage)).or_default().push(observation.clone());
    }
    let mut order = Vec::new();
    for lanes in windows.into_values() {
        let mut lanes: Vec<_> = lanes.into_values().map(Vec::into_iter).collect();
        while !lanes.is_empty() {
            let which = usize::try_from(roll() % lanes.len() as u64).unwrap();
            match lanes[which].next() {
                Some(observation) => order.push(observation),
                None => drop(lanes.swap_remove(which)),
            }
        }
    }
    for (index, observation) in order.iter_mut().enumerate() {
        observation.id = ObservationId(index as i64 + 1);
    }
    order
}
