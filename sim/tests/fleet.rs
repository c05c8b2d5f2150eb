//! Simulated fleets: the same each time, the same however often one judges, and what the auditor says of them.

use parallax_sim::{HOURS, Report, Run, clock, run};

/// Seeds of each of the eight parts of the long test.
const SEEDS_A_PART: u64 = 12;

fn simple(report: Report) -> Report {
    Report { ticks: 0, ..report }
}

#[test]
fn one_seed_is_one_run() {
    for seed in [3, 7] {
        let what = Run { hours: 3, ..Run::of(seed) };
        assert_eq!(run(what).unwrap(), run(what).unwrap(), "seed {seed}");
    }
}

#[test]
fn judging_only_when_something_can_have_changed_finds_the_same_as_judging_all_the_time() {
    // Seed 7 has the policy fast.
    for (seed, hours) in [(0, 3), (1, 3), (2, 3), (4, 3), (5, 3), (7, 1)] {
        let what = Run { hours, ..Run::of(seed) };
        let (seldom, always) = (run(what).unwrap(), run(Run { every_tick: true, ..what }).unwrap());
        assert!(seldom.ticks * 2 < always.ticks, "{} of {} ticks", seldom.ticks, always.ticks);
        let differs = seldom.timeline.iter().zip(&always.timeline).find(|(one, other)| one != other);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!(simple(seldom), simple(always), "seed {seed}");
    }
}

/// P13 of the targets, in the small.
#[expect(clippy::unwrap_used, reason = "a test")]
fn audited(part: u64) {
    let (mut objections, mut failovers) = (Vec::new(), 0);
    for seed in part * SEEDS_A_PART..(part + 1) * SEEDS_A_PART {
        let report = run(Run::of(seed)).unwrap();
        failovers += report.failovers;
        objections
            .extend(report.violations.into_iter().map(|(at, what)| format!("seed {seed} at {}: {what}", clock(at))));
    }
    let hours = SEEDS_A_PART * u64::from(HOURS);
    assert!(objections.is_empty(), "in {hours} fleet-hours: {objections:#?}");
    assert!(failovers > 0, "the simulated faults test something");
}

macro_rules! parts {
    ($($name:ident: $part:literal,)*) => {
        $(
            #[test]
            fn $name() {
                audited($part);
            }
        )*
    };
}

parts! {
    no_false_failover_and_no_missed_hard_fault_1: 0,
    no_false_failover_and_no_missed_hard_fault_2: 1,
    no_false_failover_and_no_missed_hard_fault_3: 2,
    no_false_failover_and_no_missed_hard_fault_4: 3,
    no_false_failover_and_no_missed_hard_fault_5: 4,
    no_false_failover_and_no_missed_hard_fault_6: 5,
    no_false_failover_and_no_missed_hard_fault_7: 6,
    no_false_failover_and_no_missed_hard_fault_8: 7,
}
