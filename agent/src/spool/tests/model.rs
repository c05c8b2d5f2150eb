//! Random histories against what must always hold.

use std::collections::{BTreeMap, BTreeSet};

use nix::libc::{EIO, ENOSPC};
use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Happens {
    Append(Lane, usize, usize),
    Send(usize),
    /// Answers to so many batches on their way, oldest first.
    Answer(usize),
    Refuse,
    Reconnect,
    Wait(u64),
    Sync,
    Restart,
    Kill,
    /// The disk fails from the step after so many on, for so many steps.
    Fail(i32, u32, u32),
    Heal,
}

fn happens() -> impl Strategy<Value = Happens> {
    let lane = prop_oneof![Just(Lane::Urgent), Just(Lane::Routine)];
    prop_oneof![
        8 => (lane, 1..60_usize, 8..3000_usize).prop_map(|(lane, count, size)| Happens::Append(lane, count, size)),
        4 => (1..50_usize).prop_map(Happens::Send),
        4 => (1..4_usize).prop_map(Happens::Answer),
        1 => Just(Happens::Refuse),
        2 => Just(Happens::Reconnect),
        2 => prop_oneof![Just(10), Just(6_000), Just(70_000), Just(20 * 3_600_000)].prop_map(Happens::Wait),
        2 => Just(Happens::Sync),
        1 => Just(Happens::Restart),
        1 => Just(Happens::Kill),
        2 => (prop_oneof![Just(ENOSPC), Just(EIO)], 0..20_u32, 1..200_u32)
            .prop_map(|(number, after, steps)| Happens::Fail(number, after, steps)),
        2 => Just(Happens::Heal),
    ]
}

/// The coordinator: what it stored, each row once, by the rules of the wire.
#[derive(Default)]
struct Coordinator {
    stored: BTreeMap<(u128, Lane), BTreeSet<u64>>,
    losses: Vec<Loss>,
    /// Batches it has and did not answer yet.
    waiting: Vec<(u128, Lane, u64)>,
    cursor: BTreeMap<(u128, Lane), u64>,
}

impl Coordinator {
    fn take(&mut self, batch: &Batch) {
        let key = (batch.boot.0, batch.lane);
        assert!(batch.rows.is_sorted_by(|a, b| a.sequence < b.sequence), "numbers must rise");
        let cursor = self.cursor.entry(key).or_default();
        for row in &batch.rows {
            // Redelivery changes nothing.
            if row.sequence <= *cursor {
                continue;
            }
            match &row.content {
                Content::Loss(loss) => self.losses.push(*loss),
                Content::Observation(bytes) => {
                    assert_eq!(u64::from_le_bytes(*bytes.first_chunk().unwrap()), row.sequence);
                }
            }
            self.stored.entry(key).or_default().insert(row.sequence);
            *cursor = row.sequence;
        }
        self.waiting.push((key.0, key.1, *cursor));
    }
}

/// Whether memory may have died with a process: then rows may be gone that nobody can tell of.
fn run(history: Vec<Happens>, limits: Limits) {
    faults::clear();
    let mut rig = Rig::new(limits);
    let mut coordinator = Coordinator::default();
    // Rows that are no losses, by boot and lane.
    let mut made: BTreeMap<(u128, Lane), BTreeSet<u64>> = BTreeMap::new();
    // Rows that were on their way when anything might have been dropped: counted, and perhaps stored.
    let mut unsure = false;
    let mut forgotten = false;
    for what in history {
        unsure |= !coordinator.waiting.is_empty();
        match what {
            Happens::Append(lane, count, size) => {
                for _ in 0..count {
                    let sequence = rig.spool().next_sequence(lane);
                    rig.append(lane, 1, size);
                    made.entry((rig.boots, lane)).or_default().insert(sequence);
                }
            }
            Happens::Send(rows) => {
                if let Ok(Some(batch)) = rig.try_next(rows, BYTES) {
                    coordinator.take(&batch);
                }
            }
            Happens::Answer(count) => {
                for (boot, lane, last) in coordinator.waiting.drain(..count.min(coordinator.waiting.len())) {
                    rig.spool().acked(BootId(boot), lane, last);
                }
            }
            Happens::Refuse => {
                if let Ok(Some(batch)) = rig.try_next(3, BYTES) {
                    let refused = batch.rows.last().unwrap().sequence;
                    // Taken and not stored is the same to the agent; here it counts as stored.
                    coordinator.take(&batch);
                    coordinator.waiting.pop();
                    for row in &batch.rows {
                        rig.spool().refused(batch.boot, batch.lane, row.sequence);
                    }
                    rig.spool().acked(batch.boot, batch.lane, refused);
                }
            }
            Happens::Reconnect => {
                coordinator.waiting.clear();
                rig.spool().rewind();
            }
            Happens::Wait(ms) => {
                rig.now_ms += ms;
                let now_ms = rig.now_ms;
                rig.spool().tick(now_ms);
            }
            Happens::Sync => rig.spool().sync(),
            Happens::Restart | Happens::Kill => {
                // What only memory has dies with the process.
                let spool = rig.spool();
                forgotten |= !spool.memory.is_empty() || !spool.losses.is_empty();
                coordinator.waiting.clear();
                if matches!(what, Happens::Kill) {
                    rig.kill();
                }
                rig.restart();
                forgotten |= !rig.spool().memory.is_empty();
            }
            Happens::Fail(number, after, steps) => {
                let mut step_number = 0;
                // A record that cannot be read when it is dropped is gone: that is another test.
                faults::set(move |step| {
                    step_number += u32::from(step != Step::Read);
                    (step != Step::Read && step_number > after && step_number <= after + steps).then_some(number)
                });
                unsure = true;
            }
            Happens::Heal => faults::clear(),
        }
        assert!(rig.spool().bytes() <= limits.bytes_max, "the cap on disk");
        assert!(!rig.spool().memory.is_over(), "the cap in memory");
    }
    // Everything works again: all that is left arrives.
    faults::clear();
    coordinator.waiting.clear();
    for _ in 0..4 {
        rig.now_ms += 70_000;
        rig.append(Lane::Urgent, 1, 8);
        let now_ms = rig.now_ms;
        rig.spool().tick(now_ms);
        rig.spool().rewind();
        while let Some(batch) = rig.try_next(100, BYTES).unwrap() {
            coordinator.take(&batch);
            rig.spool().acked(batch.boot, batch.lane, batch.rows.last().unwrap().sequence);
        }
        rig.spool().sync();
    }
    assert_eq!(rig.spool().trouble(), None);
    assert!(!rig.spool().has_unsent());

    for (key, made) in &made {
        let empty = BTreeSet::new();
        let stored = coordinator.stored.get(key).unwrap_or(&empty);
        let missing: Vec<u64> = made.difference(stored).copied().collect();
        let losses: Vec<&Loss> = coordinator.losses.iter().filter(|loss| (loss.boot.0, loss.lane) == *key).collect();
        let lost: u64 = losses.iter().map(|loss| loss.count).sum();
        if forgotten {
            continue;
        }
        for number in &missing {
            let told = losses.iter().any(|loss| (loss.sequences.0..=loss.sequences.1).contains(number));
            assert!(told, "{key:?}: nobody says that {number} is lost; {losses:?}");
        }
        assert!(lost >= missing.len() as u64, "{key:?}: {} missing, {losses:?}", missing.len());
        if !unsure {
            assert_eq!(lost, missing.len() as u64, "{key:?}: {losses:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn every_row_is_stored_once_or_told_to_be_lost(history in proptest::collection::vec(happens(), 1..80)) {
        run(history, Limits { bytes_max: SPOOL_BYTES_MIN, age_max: Duration::from_secs(24 * 3600) });
    }

    #[test]
    fn ranges_nobody_acknowledges_are_counted_once(
        ranges in proptest::collection::vec((1..60_u64, 0..9_u64), 0..30), acked in 0..40_u64
    ) {
        let mut log = super::super::log::Log::new(Lane::Urgent);
        log.sent = 100;
        let mut model = BTreeSet::new();
        for (first, length) in ranges {
            let before = model.len();
            model.extend(first..=first + length);
            prop_assert_eq!(log.skip(first, first + length), (model.len() - before) as u64);
        }
        log.acknowledge(acked);
        let mut expected = acked;
        while model.contains(&(expected + 1)) {
            expected += 1;
        }
        prop_assert_eq!(log.acked, expected);
        for number in 1..80 {
            prop_assert_eq!(log.is_done(number), number <= expected || model.contains(&number));
        }
        let left = (1..=80).filter(|number| *number > expected && !model.contains(number)).count() as u64;
        prop_assert_eq!(log.not_done(1, 80), left);
    }
}
