//! Order, acknowledgements, refusals, bounds.

use super::*;

fn order(batches: &[Batch]) -> Vec<(u128, Lane)> {
    let mut order: Vec<(u128, Lane)> = batches.iter().map(|batch| (batch.boot.0, batch.lane)).collect();
    order.dedup();
    order
}

#[test]
fn what_can_decide_a_verdict_now_goes_before_every_backlog() {
    let mut rig = Rig::new(Limits::default());
    for _ in 0..3 {
        rig.append(Lane::Routine, 250, 50);
        rig.append(Lane::Urgent, 120, 50);
        rig.restart();
    }
    rig.append(Lane::Routine, 3, 50);
    rig.append(Lane::Urgent, 3, 50);
    let batches = rig.batches();
    let expected = [
        (4, Lane::Urgent),
        (3, Lane::Urgent),
        (2, Lane::Urgent),
        (1, Lane::Urgent),
        (4, Lane::Routine),
        (3, Lane::Routine),
        (2, Lane::Routine),
        (1, Lane::Routine),
    ];
    assert_eq!(order(&batches), expected);
    // Evidence that comes while a backlog is on its way is next.
    rig.spool().rewind();
    rig.next(1);
    assert_eq!(rig.next(10).rows.len(), 2);
    let backlog = rig.next(10);
    assert_eq!((backlog.boot.0, backlog.lane), (3, Lane::Urgent));
    rig.append(Lane::Urgent, 1, 50);
    let next = rig.next(10);
    assert_eq!((next.boot.0, next.lane, next.rows[0].sequence), (4, Lane::Urgent, 4));
    // A lane alone.
    let routine = rig.spool().next_batch_of(Lane::Routine, 10, BYTES).unwrap().unwrap();
    assert_eq!((routine.boot.0, routine.lane), (4, Lane::Routine));
    assert!(rig.spool().has_unsent_of(Lane::Urgent) && rig.spool().has_unsent());
}

#[test]
fn rows_come_in_order_and_again_after_a_rewind() {
    let mut rig = Rig::new(Limits::default());
    assert!(!rig.spool().has_unsent());
    rig.append(Lane::Routine, 7, 20);
    assert_eq!(rig.drain_once(), [1, 2, 3, 4, 5, 6, 7]);
    let boot = rig.boot();
    assert_eq!(rig.spool().acked(boot, Lane::Routine, 4), 4);
    rig.spool().rewind();
    assert_eq!(rig.drain_once(), [5, 6, 7]);
    rig.append(Lane::Routine, 1, 20);
    let batch = rig.next(10);
    assert_eq!((batch.rows[0].sequence, batch.rows[0].ended_ms, batch.rows[0].good), (8, 1008, true));
    // The other lane has its own numbers and its own cursor.
    rig.append(Lane::Urgent, 1, 20);
    assert_eq!(rig.next(10).rows[0].sequence, 1);
    assert_eq!(rig.spool().acked(boot, Lane::Urgent, 1), 1);
    assert_eq!(rig.spool().acked(boot, Lane::Routine, 0), 4);
}

#[test]
fn a_batch_stops_at_its_rows_and_bytes() {
    let mut rig = Rig::new(Limits::default());
    rig.append(Lane::Routine, 5, 20);
    assert_eq!(rig.next(2).rows.len(), 2);
    assert_eq!(rig.try_next(100, 40).unwrap().unwrap().rows.len(), 2);
    assert_eq!(rig.try_next(100, 40).unwrap().unwrap().rows.len(), 1);
}

#[test]
fn an_acknowledgement_of_what_was_never_sent_deletes_nothing() {
    let mut rig = Rig::new(Limits::default());
    rig.append(Lane::Urgent, 5, 20);
    rig.next(2);
    let boot = rig.boot();
    rig.spool().acked(boot, Lane::Urgent, u64::MAX);
    rig.spool().acked(BootId(77), Lane::Urgent, 3);
    rig.spool().rewind();
    assert_eq!(rig.drain_once(), [3, 4, 5]);
}

#[test]
fn a_refused_row_is_done_with_once_those_before_it_are() {
    let mut rig = Rig::new(Limits::default());
    rig.append(Lane::Urgent, 6, 20);
    rig.drain_once();
    let boot = rig.boot();
    rig.spool().refused(boot, Lane::Urgent, 3);
    rig.spool().refused(boot, Lane::Urgent, 4);
    rig.spool().rewind();
    assert_eq!(rig.drain_once(), [1, 2, 3, 4, 5, 6], "not before those in front are acknowledged");
    assert_eq!(rig.spool().acked(boot, Lane::Urgent, 2), 4);
    rig.spool().rewind();
    assert_eq!(rig.drain_once(), [5, 6]);
    assert_eq!(rig.spool().refused(boot, Lane::Urgent, 5), 5);
    assert_eq!(rig.spool().refused(boot, Lane::Urgent, 99), 5, "never sent");
    rig.spool().rewind();
    assert_eq!(rig.drain_once(), [6]);
}

#[test]
fn what_is_acknowledged_is_deleted_after_its_cursor_is_durable() {
    let mut rig = Rig::small();
    rig.append(Lane::Routine, 150, 1000);
    let before = rig.files().len();
    assert!(before > 3, "{before}");
    rig.drain();
    assert_eq!(rig.files().len(), before, "the cursor is not written yet");
    rig.spool().sync();
    assert_eq!(rig.files().len(), 1, "the segment being written stays");
    rig.append(Lane::Routine, 1, 1000);
    rig.restart();
    assert_eq!(rig.drain().numbers(1, Lane::Routine), [151]);
    rig.spool().sync();
    let folders = std::fs::read_dir(rig.root.path().join("spool")).unwrap().count();
    assert_eq!(folders, 1, "an earlier boot that is done with is gone");
    assert_eq!(rig.drain().lost_in_all(), 0);
}

#[test]
fn a_full_spool_drops_the_oldest_routine_and_says_what() {
    let mut rig = Rig::small();
    rig.append(Lane::Urgent, 60, 1000);
    rig.append(Lane::Routine, 1000, 1000);
    assert!(rig.disk_bytes() <= SPOOL_BYTES_MIN);
    rig.append(Lane::Urgent, 20, 1000);
    let got = rig.drain();
    assert_eq!(got.numbers(1, Lane::Urgent).len(), 80, "evidence outlives the routine");
    let kept = got.numbers(1, Lane::Routine);
    let lost = got.lost(LossReason::Full);
    assert_eq!(kept, (lost + 1..=1000).collect::<Vec<_>>());
    assert!(got.losses.iter().all(|loss| (loss.lane, loss.boot.0) == (Lane::Routine, 1)));
    assert_eq!(got.losses.iter().map(|loss| loss.good).sum::<u64>(), lost);
    let first = got.losses.first().unwrap();
    assert_eq!((first.sequences.0, first.ended_ms.0), (1, 1061));
    let last = got.losses.last().unwrap();
    assert_eq!((last.sequences.1, last.ended_ms.1), (lost, 1060 + lost as i64));
    assert_eq!(rig.spool().lost(), lost);
}

#[test]
fn evidence_goes_when_no_routine_is_left_and_its_records_are_kept() {
    let mut rig = Rig::small();
    rig.append(Lane::Routine, 300, 1000);
    rig.append(Lane::Urgent, 1000, 1000);
    assert!(rig.disk_bytes() <= SPOOL_BYTES_MIN);
    let got = rig.drain();
    assert!(got.numbers(1, Lane::Routine).is_empty());
    let kept = got.numbers(1, Lane::Urgent);
    assert!(kept.ends_with(&[*kept.last().unwrap()]) && kept.len() > 100);
    // The records of what was lost are numbered among the evidence.
    assert_eq!(kept.len() as u64 + got.lost_in_all(), 1300, "{:?}", got.losses);
    assert!(got.losses.len() < 20);
}

#[test]
fn observations_are_kept_so_long_and_no_longer() {
    let mut rig = Rig::new(Limits { bytes_max: SPOOL_BYTES_MAX, age_max: Duration::from_secs(24 * 3600) });
    let hour = 3_600_000;
    for _ in 0..30 {
        rig.append(Lane::Routine, 2, 100);
        rig.append(Lane::Urgent, 1, 100);
        rig.now_ms += hour;
        let now_ms = rig.now_ms;
        rig.spool().tick(now_ms);
    }
    let got = rig.drain();
    let (routine, urgent) = (got.numbers(1, Lane::Routine), got.numbers(1, Lane::Urgent));
    assert!((46..=48).contains(&routine.len()) && (23..=24).contains(&urgent.len()), "{routine:?} {urgent:?}");
    assert_eq!(routine.len() as u64 + urgent.len() as u64 + got.lost(LossReason::Old), 90);
    assert_eq!(got.lost(LossReason::Old), got.lost_in_all());
}

#[test]
fn rows_of_an_earlier_run_of_the_machine_are_as_old_as_they_can_be_shown_to_be() {
    let mut rig = Rig::new(Limits::default());
    rig.now_ms = 50 * 3_600_000;
    rig.append(Lane::Urgent, 3, 100);
    rig.spool = None;
    // The machine was started since: another identity, and a clock that began anew.
    rig.now_ms = 10_000;
    let root = rig.root.path().join("spool");
    rig.boots += 1;
    let mut spool = Spool::open(root, rig.boot(), rig.limits, rig.now_ms);
    for boot in &mut spool.earlier {
        boot.before_machine_ms = Some(50 * 3_600_000 + 3);
    }
    spool.tick(23 * 3_600_000);
    assert!(spool.has_unsent());
    spool.tick(24 * 3_600_000 + 1);
    rig.spool = Some(spool);
    let got = rig.drain();
    assert_eq!((got.rows.len(), got.lost(LossReason::Old)), (0, 3));
    assert_eq!(got.losses[0].ended_ms, (-2, 0));
}

impl Rig {
    /// Numbers of all there is to send now.
    fn drain_once(&mut self) -> Vec<u64> {
        self.batches().iter().flat_map(|batch| &batch.rows).map(|row| row.sequence).collect()
    }
}
