//! A long outage of the coordinator on a moved clock, at the rates of a usual branch.

use super::*;

const SECOND: u64 = 1000;
const HOUR: u64 = 3600 * SECOND;

/// Parts of a day.
const PARTS: usize = 144;

/// Rows made in each lane.
type Made = (u64, u64);

/// Time from round to round.
const ROUND: u64 = 30 * SECOND;

/// A branch that records so many rows of 300 bytes each round.
fn outage(rig: &mut Rig, hours: u64, each_round: impl Fn(u64) -> Made) -> Made {
    let mut made = (0, 0);
    let end = rig.now_ms + hours * HOUR;
    while rig.now_ms < end {
        let (urgent, routine) = each_round(rig.now_ms / SECOND);
        for (lane, count) in [(Lane::Urgent, urgent), (Lane::Routine, routine)] {
            let now_ms = rig.now_ms;
            for _ in 0..count {
                let spool = rig.spool();
                let mut bytes = spool.next_sequence(lane).to_le_bytes().to_vec();
                bytes.resize(300, 7);
                spool.append(lane, now_ms, lane == Lane::Routine, &bytes);
            }
        }
        made = (made.0 + urgent, made.1 + routine);
        rig.now_ms += ROUND;
        let now_ms = rig.now_ms;
        rig.spool().tick(now_ms);
        if (now_ms / ROUND).is_multiple_of(100) {
            rig.spool().sync();
            assert!(rig.disk_bytes() <= rig.limits.bytes_max);
            let held = rig.spool().running.logs.each().iter().map(|(_, log)| log.segments.len()).sum::<usize>();
            assert!(held <= 1024, "{held} segments are remembered");
            assert!(rig.spool().memory.is_empty());
        }
    }
    made
}

fn account(rig: &mut Rig, (urgent, routine): Made) -> Got {
    let got = rig.drain();
    for (lane, made) in [(Lane::Urgent, urgent), (Lane::Routine, routine)] {
        let lost: u64 = got.losses.iter().filter(|loss| loss.lane == lane).map(|loss| loss.count).sum();
        assert_eq!(got.numbers(1, lane).len() as u64 + lost, made, "{lane}: {:?}", got.losses);
    }
    got
}

#[test]
fn b58_an_outage_of_24_hours_loses_nothing_and_keeps_its_bounds() {
    let mut rig = Rig::new(Limits::default());
    // 20 names and what they answer, and the controls.
    let made = outage(&mut rig, 24, |_| (4, 50));
    let got = account(&mut rig, made);
    assert_eq!((got.lost_in_all(), got.rows.len()), (0, 24 * 120 * 54));
}

/// The coordinator comes back after twelve hours: the last minutes come first, then the hours, newest part first, and
/// every row once.
#[test]
fn after_a_long_outage_what_was_seen_last_is_sent_first() {
    let mut rig = Rig::new(Limits::default());
    rig.spool().release();
    let (urgent, routine) = outage(&mut rig, 12, |_| (4, 10));
    assert!(rig.spool().earlier.len() <= PARTS / 2, "{}", rig.spool().earlier.len());
    rig.append(Lane::Urgent, 3, 50);
    let (held, now_ms) = (rig.spool().hold(), rig.now_ms);
    // No part begins while a session stands.
    rig.spool().tick(now_ms + HOUR);
    let batches = rig.batches();
    let first = &batches[0];
    assert_eq!((first.boot, first.lane), (held, Lane::Urgent));
    let age = |row: &Row| Duration::from_millis(now_ms - row.ended_ms);
    assert!(batches[0].rows.iter().all(|row| age(row) <= Duration::from_secs(660)), "{:?}", age(&first.rows[0]));
    assert!(batches.iter().all(|batch| batch.ours));
    let begun: Vec<u64> =
        batches.iter().filter(|one| one.lane == Lane::Urgent).map(|one| one.rows[0].ended_ms).collect();
    let rises = begun.windows(2).filter(|two| two[0] < two[1]).count();
    assert!(rises <= begun.len() / 2, "each part is at most two batches, and the parts fall: {begun:?}");
    rig.spool().rewind();
    let got = rig.drain();
    let distinct: std::collections::BTreeSet<_> = got.rows.iter().copied().collect();
    assert_eq!(
        (distinct.len(), got.rows.len(), got.lost_in_all()),
        (got.rows.len(), (urgent + routine + 3) as usize, 0)
    );
}

/// Less than a part: nothing is numbered anew, and a session that greets and takes nothing is no end of an outage.
#[test]
fn a_short_outage_is_one_part_and_sessions_that_take_nothing_end_none() {
    let mut rig = Rig::new(Limits::default());
    let boot = rig.boot();
    rig.spool().release();
    rig.append(Lane::Urgent, 3, 50);
    rig.now_ms += 500 * SECOND;
    let now_ms = rig.now_ms;
    rig.spool().tick(now_ms);
    assert_eq!(rig.spool().hold(), boot);
    rig.spool().release();
    rig.spool().tick(now_ms + 200 * SECOND);
    assert_ne!(rig.spool().hold(), boot, "700 s since somebody took something");
    // Only what nobody has taken yet is worth a part.
    let batch = rig.next(10);
    assert_eq!((batch.boot, batch.rows.len()), (boot, 3));
    let taken = rig.spool().hold();
    rig.spool().acked(boot, Lane::Urgent, 3);
    rig.spool().release();
    rig.spool().tick(now_ms + HOUR);
    assert_eq!(rig.spool().hold(), taken, "nothing was measured");
}

/// An agent that is killed in the third part of an outage loses nothing of the others.
#[test]
fn parts_of_an_outage_outlive_the_agent() {
    let mut rig = Rig::new(Limits::default());
    rig.spool().release();
    let made = outage(&mut rig, 1, |_| (4, 2));
    rig.kill();
    rig.start();
    let batches = rig.batches();
    assert!(batches.iter().all(|batch| !batch.ours), "another process's times");
    rig.spool().rewind();
    let got = rig.drain();
    assert_eq!((got.rows.len() as u64, got.lost_in_all()), (made.0 + made.1, 0));
}

#[test]
fn b58_after_48_hours_the_loss_is_a_record_and_the_changes_are_kept() {
    let mut rig = Rig::new(Limits { bytes_max: 6 << 20, age_max: Duration::from_secs(72 * 3600) });
    // A fault of ten minutes every three hours, in the first hours too.
    let made = outage(&mut rig, 48, |second| if second % (3 * 3600) < 600 { (30, 5) } else { (1, 12) });
    let got = account(&mut rig, made);
    assert_eq!(got.numbers(1, Lane::Urgent).len() as u64, made.0, "no evidence is lost");
    assert!(got.lost(LossReason::Full) > 40_000 && got.lost(LossReason::Full) == got.lost_in_all());
    let begin = got.losses.iter().map(|loss| loss.ended_ms.0).min().unwrap();
    let end = got.losses.iter().map(|loss| loss.ended_ms.1).max().unwrap();
    assert!(begin <= 60_000, "from the first hour on: {begin}");
    // What is kept of the routine begins where the loss ends.
    let oldest = got.numbers(1, Lane::Routine)[0];
    assert_eq!(got.losses.iter().map(|loss| loss.sequences.1).max(), Some(oldest - 1));
    assert!(end < rig.now_ms as i64);
    assert!(got.losses.len() < 1000, "{} records", got.losses.len());
}

#[test]
fn b58_what_is_older_than_a_day_is_a_record_too() {
    let mut rig = Rig::new(Limits::default());
    let made = outage(&mut rig, 48, |_| (1, 4));
    let got = account(&mut rig, made);
    let lost = got.lost(LossReason::Old);
    let half = (made.0 + made.1) / 2;
    assert_eq!(lost, got.lost_in_all());
    assert!(lost <= half && lost > half * 22 / 24, "{lost} of {half}");
}
