//! What is left of a spool after damage, and what is said of the rest.

use proptest::prelude::*;

use super::*;

/// A spool of an earlier boot with two lanes of some segments each; it is then damaged.
fn filled() -> Rig {
    let mut rig = Rig::small();
    for _ in 0..3 {
        rig.append(Lane::Urgent, 20, 500);
        rig.append(Lane::Routine, 70, 500);
    }
    rig.spool = None;
    rig
}

const URGENT: u64 = 60;
const ROUTINE: u64 = 210;

/// Starts it again: everything comes, or is said to be lost, and nothing comes twice or out of order.
fn recovered(rig: &mut Rig) -> Got {
    rig.start();
    let got = rig.drain();
    for (lane, made) in [(Lane::Urgent, URGENT), (Lane::Routine, ROUTINE)] {
        let numbers = got.numbers(1, lane);
        assert!(numbers.is_sorted_by(|a, b| a < b), "{lane}: {numbers:?}");
        let lost: u64 = got.losses.iter().filter(|loss| loss.lane == lane).map(|loss| loss.count).sum();
        assert_eq!(numbers.len() as u64 + lost, made, "{lane}: {:?}", got.losses);
        let covered = |number| {
            let holds = |loss: &&Loss| loss.lane == lane && (loss.sequences.0..=loss.sequences.1).contains(&number);
            got.losses.iter().any(|loss| holds(&loss))
        };
        let missing = (1..=made).filter(|number| !numbers.contains(number));
        assert!(missing.clone().all(covered), "{lane}: not told of {:?}", missing.collect::<Vec<_>>());
    }
    assert!(got.losses.iter().all(|loss| loss.reason == LossReason::Damaged && loss.boot == BootId(1)));
    assert!(got.losses.iter().all(|loss| loss.ended_ms.0 <= loss.ended_ms.1 && loss.ended_ms.1 <= rig.now_ms as i64));
    // It is all told and done with: another start has nothing to say.
    rig.restart();
    let again = rig.drain();
    assert_eq!((again.rows.len(), again.losses.len()), (0, 0), "{again:?}");
    got
}

fn overwrite(file: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(file).unwrap();
    change(&mut bytes);
    std::fs::write(file, bytes).unwrap();
}

#[test]
fn b55_the_last_seven_bytes_are_cut() {
    let mut rig = filled();
    for file in [rig.files().first().unwrap().clone(), rig.files().last().unwrap().clone()] {
        overwrite(&file, |bytes| bytes.truncate(bytes.len() - 7));
    }
    let got = recovered(&mut rig);
    assert_eq!((got.lost_in_all(), got.losses.len()), (2, 2));
}

#[test]
fn b55_a_tail_torn_at_any_byte_costs_the_last_row_alone() {
    let mut rig = Rig::new(Limits::default());
    rig.append(Lane::Urgent, 3, 40);
    rig.spool = None;
    let file = rig.files().pop().unwrap();
    let whole = std::fs::read(&file).unwrap();
    let frame = (whole.len() - HEAD_BYTES as usize) / 3;
    for cut in 1..=frame {
        std::fs::write(&file, &whole[..whole.len() - cut]).unwrap();
        let contents = segment::load(&file).unwrap();
        assert_eq!(contents.rows.len(), 2, "cut by {cut}");
        assert_eq!(contents.torn, cut < frame, "cut by {cut}");
    }
}

#[test]
fn b55_a_byte_flipped_anywhere_costs_one_row_at_most() {
    let mut rig = Rig::new(Limits::default());
    rig.append(Lane::Urgent, 5, 40);
    rig.spool = None;
    let file = rig.files().pop().unwrap();
    let whole = std::fs::read(&file).unwrap();
    for position in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[position] ^= 0x10;
        std::fs::write(&file, &bytes).unwrap();
        let contents = segment::load(&file).unwrap();
        let expected = if position < HEAD_BYTES as usize { 5 } else { 4 };
        assert_eq!(contents.rows.len(), expected, "flipped at {position}");
        assert_eq!(contents.head.is_none(), position < HEAD_BYTES as usize);
    }
}

#[test]
fn b55_a_byte_flipped_in_the_middle_of_each_segment() {
    let mut rig = filled();
    let files = rig.files();
    assert!(files.len() >= 5, "{files:?}");
    for file in &files {
        overwrite(file, |bytes| {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
        });
    }
    let got = recovered(&mut rig);
    assert_eq!(got.lost_in_all(), files.len() as u64);
}

#[test]
fn b55_a_segment_is_replaced_by_zeros() {
    for which in 0..filled().files().len() {
        let mut rig = filled();
        let file = rig.files()[which].clone();
        let rows = segment::load(&file).unwrap().rows.len() as u64;
        let last = rig.files().get(which + 1).is_none_or(|next| {
            segment::of_name(next).map(|(lane, _)| lane) != segment::of_name(&file).map(|(lane, _)| lane)
        });
        overwrite(&file, |bytes| bytes.fill(0));
        if last {
            // How many it held no number tells any more: at least one.
            rig.start();
            let got = rig.drain();
            assert_eq!(got.lost_in_all(), 1);
            assert_eq!(got.rows.len() as u64, URGENT + ROUTINE - rows);
        } else {
            assert_eq!(recovered(&mut rig).lost_in_all(), rows);
        }
    }
}

#[test]
fn b55_a_segment_is_gone_or_cannot_be_read() {
    for unreadable in [false, true] {
        let mut rig = filled();
        let files: Vec<PathBuf> =
            rig.files().into_iter().filter(|file| segment::of_name(file).unwrap().0 == Lane::Routine).collect();
        assert!(files.len() >= 4);
        let mut lost = 0;
        // The first and one in the middle.
        for file in [&files[0], &files[2]] {
            lost += segment::load(file).unwrap().rows.len() as u64;
            std::fs::remove_file(file).unwrap();
            if unreadable {
                // For root every file can be read; a folder cannot.
                std::fs::create_dir(file).unwrap();
            }
        }
        assert_eq!(recovered(&mut rig).lost_in_all(), lost, "unreadable: {unreadable}");
    }
}

#[test]
fn b55_random_bytes_in_the_cursor_mean_that_rows_are_sent_again() {
    for rubbish in [&b""[..], b"rubbish", &[0xff; 20], &[0; 5000]] {
        let mut rig = Rig::new(Limits::default());
        rig.append(Lane::Urgent, 10, 100);
        rig.batches();
        let boot = rig.boot();
        rig.spool().acked(boot, Lane::Urgent, 5);
        rig.spool = None;
        let cursor = rig.files()[0].parent().unwrap().join("cursor");
        assert!(cursor.exists());
        std::fs::write(&cursor, rubbish).unwrap();
        rig.start();
        let got = rig.drain();
        assert_eq!(got.numbers(1, Lane::Urgent), (1..=10).collect::<Vec<_>>());
        assert_eq!(got.lost_in_all(), 0);
    }
}

#[test]
fn b55_rubbish_in_the_folder_does_not_stop_the_start() {
    let mut rig = Rig::new(Limits::default());
    rig.spool = None;
    let root = rig.root.path().join("spool");
    std::fs::write(root.join("a file"), "x").unwrap();
    std::fs::create_dir(root.join("0000000001-nonsense")).unwrap();
    let folder = root.join(format!("0000000009-{}", BootId(9)));
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("urgent-00000000000000000001.segment"), vec![0; 5000]).unwrap();
    std::fs::write(folder.join("urgent-99999999999999999999.segment"), vec![0; 5000]).unwrap();
    std::fs::write(folder.join("routine-00000000000000000000.segment"), vec![0; 5000]).unwrap();
    std::fs::write(folder.join("other-00000000000000000001.segment"), "x").unwrap();
    std::fs::write(root.join(format!("0000000010-{}", BootId(10))), "a file").unwrap();
    rig.boots = 10;
    rig.start();
    rig.append(Lane::Urgent, 1, 100);
    let got = rig.drain();
    assert_eq!((got.numbers(11, Lane::Urgent), got.lost_in_all()), (vec![1], 1));
}

#[test]
fn b57_a_backlog_above_a_lowered_cap_starts_and_tells_what_went() {
    let mut rig = Rig::new(Limits::default());
    rig.append(Lane::Routine, 40_000, 100);
    rig.append(Lane::Urgent, 10_000, 100);
    rig.spool = None;
    rig.limits.bytes_max = 2 << 20;
    rig.start();
    assert!(rig.disk_bytes() <= 2 << 20);
    let got = rig.drain();
    assert_eq!(got.rows.len() as u64 + got.lost(LossReason::Full), 50_000);
    assert_eq!(got.numbers(1, Lane::Urgent).len(), 10_000);
    // One record, with the time range.
    let [loss] = got.losses.as_slice() else { panic!("{:?}", got.losses) };
    assert_eq!((loss.sequences, loss.ended_ms), ((1, loss.count), (1001, 1000 + loss.count as i64)));
}

#[test]
fn a_missing_file_is_counted_too_when_what_is_behind_it_is_dropped() {
    let mut rig = filled();
    std::fs::remove_file(rig.files().into_iter().find(|file| file.to_string_lossy().contains("routine")).unwrap())
        .unwrap();
    rig.limits.age_max = SPOOL_AGE_MIN;
    rig.now_ms += 120_000;
    rig.start();
    let got = rig.drain();
    assert_eq!((got.rows.len(), got.lost_in_all()), (0, URGENT + ROUTINE), "{:?}", got.losses);
    assert!(got.lost(LossReason::Damaged) > 10 && got.lost(LossReason::Old) > 100);
}

#[test]
fn a_system_short_of_descriptors_drops_nothing_unseen() {
    let mut rig = Rig::small();
    rig.append(Lane::Routine, 240, 1000);
    faults::set(|step| (step == Step::Read).then_some(nix::libc::EMFILE));
    rig.append(Lane::Routine, 20, 1000);
    assert_eq!(rig.spool().lost(), 0);
    assert!(rig.try_next(9, BYTES).is_err(), "worth trying again");
    faults::clear();
    rig.append(Lane::Routine, 20, 1000);
    let got = rig.drain();
    assert_eq!(got.rows.len() as u64 + got.lost(LossReason::Full), 280);
    assert!(rig.disk_bytes() <= SPOOL_BYTES_MIN);
}

#[test]
fn a_failed_fsync_begins_a_new_segment() {
    let mut rig = Rig::new(Limits::default());
    rig.append(Lane::Urgent, 3, 100);
    faults::set(|step| (step == Step::Sync).then_some(nix::libc::EIO));
    rig.spool().sync();
    assert!(rig.spool().trouble().unwrap().contains("Input/output"));
    rig.append(Lane::Urgent, 3, 100);
    assert_eq!(rig.files().len(), 1, "kept in memory at first");
    faults::clear();
    rig.now_ms += 2000;
    rig.append(Lane::Urgent, 1, 100);
    assert_eq!((rig.files().len(), rig.spool().trouble()), (2, None));
    rig.kill();
    rig.start();
    let got = rig.drain();
    assert_eq!((got.numbers(1, Lane::Urgent).len(), got.lost_in_all()), (7, 0));
}

#[test]
fn damage_while_running_costs_what_is_damaged() {
    let mut rig = Rig::new(Limits::default());
    rig.append(Lane::Urgent, 9, 100);
    overwrite(&rig.files()[0], |bytes| bytes[500] ^= 1);
    let got = rig.drain();
    assert_eq!((got.rows.len(), got.lost(LossReason::Damaged)), (8, 1));
    rig.append(Lane::Urgent, 1, 100);
    assert_eq!(rig.drain().rows.len(), 1, "what comes later is sent");

    // The folder is removed beneath it.
    std::fs::remove_dir_all(rig.root.path().join("spool")).unwrap();
    rig.append(Lane::Urgent, 3, 100);
    rig.spool().sync();
    rig.append(Lane::Urgent, 4, 100);
    let got = rig.drain();
    assert_eq!((got.rows.len() as u64, got.lost(LossReason::Damaged)), (4, 3));
    assert_eq!(rig.spool().trouble(), None);
}

#[test]
fn b60_nothing_acknowledged_comes_again_after_a_stop_and_everything_else_does() {
    let mut rig = Rig::new(Limits::default());
    rig.append(Lane::Urgent, 100, 100);
    rig.append(Lane::Routine, 100, 100);
    let mut stored = std::collections::BTreeMap::new();
    let boot = rig.boot();
    // Ten batches in flight, four answers came.
    for answered in 0..10 {
        let batch = rig.next(10);
        for row in &batch.rows {
            *stored.entry((batch.boot.0, batch.lane, row.sequence)).or_insert(0) += 1;
        }
        if answered < 4 {
            rig.spool().acked(boot, batch.lane, batch.rows.last().unwrap().sequence);
        }
    }
    rig.restart();
    let got = rig.drain();
    assert_eq!(got.rows.iter().map(|row| row.2).min(), Some(1), "routine was not sent");
    assert_eq!(got.numbers(1, Lane::Urgent), (41..=100).collect::<Vec<_>>());
    // The key of a row is the same in both deliveries: the coordinator stores it once.
    for row in got.rows {
        stored.entry(row).or_insert(1);
    }
    assert_eq!(stored.len(), 200);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever the bytes: no panic, no endless loop, and only rows that were written.
    #[test]
    fn any_bytes_can_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..4096)) {
        let contents = segment::read(&bytes);
        prop_assert!(contents.rows.is_empty() || contents.damaged_bytes < bytes.len());
    }

    #[test]
    fn rows_survive_rubbish_between_them(
        parts in proptest::collection::vec((any::<bool>(), proptest::collection::vec(any::<u8>(), 0..80)), 0..30)
    ) {
        let mut bytes = vec![0; HEAD_BYTES as usize];
        let mut written = Vec::new();
        for (number, (whole, content)) in parts.into_iter().enumerate() {
            let content = Content::Observation(content);
            let row = Row { sequence: number as u64, ended_ms: 1, good: whole, content };
            let frame = row.frame().unwrap();
            if whole {
                bytes.extend(frame);
                written.push(row);
            } else {
                bytes.extend(&frame[..frame.len() / 2]);
            }
        }
        prop_assert_eq!(segment::read(&bytes).rows, written);
    }
}

#[test]
fn rubbish_full_of_marks_is_read_in_good_time() {
    // Each mark promises a frame of the largest size: summing every one would cost the square.
    let mark: Vec<u8> = row::MARK.iter().copied().chain(16_000_u32.to_le_bytes()).collect();
    let bytes = mark.repeat(16 << 10);
    assert!(segment::read(&bytes).rows.is_empty());
}
