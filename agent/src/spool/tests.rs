use super::*;

fn boot(number: u128) -> BootId {
    BootId(number)
}

fn open(root: &Path, number: u128) -> Spool {
    Spool::open(root.to_owned(), boot(number), SPOOL_BYTES_MAX).unwrap()
}

fn append(spool: &mut Spool, count: u64) {
    for _ in 0..count {
        let sequence = spool.next_sequence;
        spool.append(1000 + sequence, format!("observation {sequence}").as_bytes()).unwrap();
    }
}

/// Sequence numbers of everything there is to send, by boot.
fn drain(spool: &mut Spool) -> Vec<(u128, Vec<u64>)> {
    let mut all = Vec::new();
    while let Some(batch) = spool.next_batch(3, 1 << 20).unwrap() {
        all.push((batch.boot.0, batch.rows.iter().map(|row| row.sequence).collect()));
    }
    all
}

fn numbers(spool: &mut Spool) -> Vec<u64> {
    drain(spool).into_iter().flat_map(|(_, rows)| rows).collect()
}

fn segments(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in std::fs::read_dir(root).unwrap() {
        for file in std::fs::read_dir(folder.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|ending| ending == "segment") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn rows_come_in_order_in_batches_and_again_after_a_rewind() {
    let root = tempfile::tempdir().unwrap();
    let mut spool = open(root.path(), 1);
    assert!(!spool.has_unsent());
    append(&mut spool, 7);
    assert!(spool.has_unsent());
    assert_eq!(drain(&mut spool), [(1, vec![1, 2, 3]), (1, vec![4, 5, 6]), (1, vec![7])]);
    assert!(!spool.has_unsent());
    spool.acked(boot(1), 4);
    spool.rewind();
    assert_eq!(numbers(&mut spool), [5, 6, 7]);
    append(&mut spool, 1);
    let batch = spool.next_batch(10, 1 << 20).unwrap().unwrap();
    assert_eq!(batch.rows, [Row { sequence: 8, ended_ms: 1008, observation: b"observation 8".to_vec() }]);
}

#[test]
fn a_batch_stops_at_its_bytes() {
    let root = tempfile::tempdir().unwrap();
    let mut spool = open(root.path(), 1);
    append(&mut spool, 5);
    assert_eq!(spool.next_batch(100, 20).unwrap().unwrap().rows.len(), 2);
}

#[test]
fn the_live_boot_goes_first_and_an_earlier_one_until_it_is_acknowledged() {
    let root = tempfile::tempdir().unwrap();
    let mut spool = open(root.path(), 1);
    append(&mut spool, 4);
    assert_eq!(numbers(&mut spool), [1, 2, 3, 4]);
    spool.acked(boot(1), 2);
    drop(spool);

    let mut spool = open(root.path(), 2);
    append(&mut spool, 1);
    assert_eq!(drain(&mut spool), [(2, vec![1]), (1, vec![3, 4])]);
    spool.acked(boot(1), 4);
    assert_eq!(spool.boots.len(), 1);
    drop(spool);

    let mut spool = open(root.path(), 3);
    assert_eq!(drain(&mut spool), [(2, vec![1])]);
    spool.acked(boot(2), 1);
    assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 1);
}

#[test]
fn a_tail_torn_at_any_byte_costs_the_last_row_alone() {
    let root = tempfile::tempdir().unwrap();
    let mut spool = open(root.path(), 1);
    append(&mut spool, 3);
    drop(spool);
    let path = segments(root.path()).pop().unwrap();
    let whole = std::fs::read(&path).unwrap();
    let last = segment::frame(&Row { sequence: 3, ended_ms: 1003, observation: b"observation 3".to_vec() }).unwrap();
    for cut in 1..=last.len() {
        let torn = tempfile::tempdir().unwrap();
        let folder = torn.path().join(path.parent().unwrap().file_name().unwrap());
        std::fs::create_dir(&folder).unwrap();
        let copy = folder.join(path.file_name().unwrap());
        std::fs::write(&copy, &whole[..whole.len() - cut]).unwrap();
        let mut spool = open(torn.path(), 2);
        assert_eq!(numbers(&mut spool), [1, 2], "cut by {cut}");
        assert_eq!(std::fs::metadata(&copy).unwrap().len(), (whole.len() - last.len()) as u64);
    }
}

#[test]
fn a_flipped_bit_anywhere_is_noticed_and_the_rest_is_sent() {
    let root = tempfile::tempdir().unwrap();
    let mut spool = open(root.path(), 1);
    append(&mut spool, 3);
    drop(spool);
    let path = segments(root.path()).pop().unwrap();
    let whole = std::fs::read(&path).unwrap();
    for position in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[position] ^= 0x10;
        std::fs::write(&path, &bytes).unwrap();
        let segment = Segment::recover(&path).unwrap();
        let kept = segment.map_or(0, |segment| segment.last);
        assert_eq!(kept as usize, position / (whole.len() / 3), "flipped at {position}");
    }
}

#[test]
fn damage_while_running_skips_the_rest_of_the_segment_and_counts_it() {
    let root = tempfile::tempdir().unwrap();
    let mut spool = open(root.path(), 1);
    append(&mut spool, 3);
    let path = segments(root.path()).pop().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(numbers(&mut spool), [1]);
    assert_eq!(spool.dropped(), 2);
    append(&mut spool, 1);
    assert_eq!(numbers(&mut spool), [4], "what comes later is sent");
}

#[test]
fn a_segment_that_is_gone_does_not_hold_up_what_lies_behind_it() {
    let root = tempfile::tempdir().unwrap();
    let mut spool = open(root.path(), 1);
    append(&mut spool, 3);
    drop(spool);
    let mut spool = open(root.path(), 2);
    append(&mut spool, 2);
    std::fs::remove_file(segments(root.path()).pop().unwrap()).unwrap();
    assert_eq!(drain(&mut spool), [(1, vec![1, 2, 3])]);
    assert_eq!(spool.dropped(), 2);
}

#[test]
fn rows_read_before_a_passing_trouble_are_handed_out() {
    let root = tempfile::tempdir().unwrap();
    let mut spool = Spool::open(root.path().to_owned(), boot(1), SPOOL_BYTES_MIN).unwrap();
    for _ in 0..20 {
        spool.append(0, &[7; 1000]).unwrap();
    }
    let second = segments(root.path()).pop().unwrap();
    let aside = root.path().join("aside");
    std::fs::rename(&second, &aside).unwrap();
    std::os::unix::fs::symlink(&second, &second).unwrap();
    let first = spool.next_batch(100, 1 << 20).unwrap().unwrap().rows;
    assert!(spool.next_batch(100, 1 << 20).is_err());
    std::fs::remove_file(&second).unwrap();
    std::fs::rename(&aside, &second).unwrap();
    let rest = spool.next_batch(100, 1 << 20).unwrap().unwrap().rows;
    let numbers: Vec<u64> = first.iter().chain(&rest).map(|row| row.sequence).collect();
    assert_eq!(numbers, (1..=20).collect::<Vec<_>>());
}

#[test]
fn a_disk_that_takes_nothing_is_not_filled_with_empty_segments() {
    let root = tempfile::tempdir().unwrap();
    let mut spool = open(root.path(), 1);
    append(&mut spool, 2);
    for _ in 0..5 {
        if spool.open.is_none() {
            append(&mut spool, 1);
        }
        // A handle that cannot write stands for the full disk; it cannot take half a frame back either.
        spool.open = Some(File::open(segments(root.path()).pop().unwrap()).unwrap());
        assert!(spool.append(0, b"lost").is_err());
    }
    let files = segments(root.path());
    assert!(files.iter().all(|file| std::fs::metadata(file).unwrap().len() > 0), "{files:?}");
    assert_eq!(numbers(&mut spool), [1, 2, 4, 6, 8, 10]);

    // The same right after a new segment was begun.
    spool.open = None;
    append(&mut spool, 1);
    let boot = spool.boots.last_mut().unwrap();
    boot.segments.push_back(Segment::create(&boot.folder, 99).unwrap().0);
    spool.open = Some(File::open(segments(root.path()).pop().unwrap()).unwrap());
    assert!(spool.append(0, b"lost").is_err());
    assert!(!segments(root.path()).iter().any(|file| file.ends_with("00000000000000000099.segment")));
}

#[test]
fn a_part_that_cannot_be_read_is_kept_for_another_start() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join(format!("0000000001-{}", boot(1)));
    // A folder where a file should be: opening succeeds, reading does not.
    std::fs::create_dir_all(folder.join("00000000000000000001.segment")).unwrap();
    let mut spool = open(root.path(), 2);
    assert_eq!(numbers(&mut spool), [0; 0]);
    assert!(folder.exists());
}

#[test]
fn cursors_are_written_when_they_changed_and_their_folder_may_be_gone() {
    let root = tempfile::tempdir().unwrap();
    let mut spool = open(root.path(), 1);
    append(&mut spool, 2);
    numbers(&mut spool);
    spool.acked(boot(1), 1);
    assert_eq!(spool.sync_work().unwrap().unwrap().cursors.len(), 1);
    spool.acked(boot(1), 1);
    assert!(spool.sync_work().unwrap().is_none(), "nothing new");
    spool.acked(boot(1), 2);
    let work = spool.sync_work().unwrap().unwrap();
    std::fs::remove_dir_all(root.path()).unwrap();
    work.run().unwrap();
}

#[test]
fn a_full_spool_drops_its_oldest_segment_and_counts() {
    let root = tempfile::tempdir().unwrap();
    let mut spool = Spool::open(root.path().to_owned(), boot(1), SPOOL_BYTES_MIN).unwrap();
    let row = vec![7; 1000];
    let mut dropped = 0;
    for _ in 0..200 {
        dropped += spool.append(0, &row).unwrap().dropped;
        assert!(spool.bytes() <= SPOOL_BYTES_MIN);
    }
    assert!(dropped > 100, "{dropped}");
    assert_eq!(spool.dropped(), dropped);
    let kept = numbers(&mut spool);
    assert_eq!(kept, (dropped + 1..=200).collect::<Vec<_>>());
    // A lowered cap drops at the start, and the start goes on.
    drop(spool);
    let mut spool = Spool::open(root.path().to_owned(), boot(2), 20_000).unwrap();
    assert!(spool.dropped() > 0);
    assert!(numbers(&mut spool).ends_with(&[200]));
}

#[test]
fn acknowledged_segments_are_deleted_and_the_rest_stays() {
    let root = tempfile::tempdir().unwrap();
    let mut spool = Spool::open(root.path().to_owned(), boot(1), SPOOL_BYTES_MIN).unwrap();
    for _ in 0..50 {
        spool.append(0, &[7; 1000]).unwrap();
    }
    let before = segments(root.path()).len();
    assert!(before > 2);
    numbers(&mut spool);
    spool.acked(boot(1), 40);
    assert!(segments(root.path()).len() < before);
    spool.rewind();
    assert_eq!(numbers(&mut spool), (41..=50).collect::<Vec<_>>());
    spool.acked(boot(1), 50);
    assert_eq!(segments(root.path()).len(), 1, "the segment being written stays");
}

#[test]
fn an_acknowledgement_of_what_was_never_sent_deletes_nothing() {
    let root = tempfile::tempdir().unwrap();
    let mut spool = open(root.path(), 1);
    append(&mut spool, 5);
    spool.next_batch(2, 1 << 20).unwrap();
    spool.acked(boot(1), u64::MAX);
    spool.acked(boot(77), 3);
    spool.rewind();
    assert_eq!(numbers(&mut spool), [3, 4, 5]);
}

#[test]
fn a_refused_row_is_done_with_once_those_before_it_are() {
    let root = tempfile::tempdir().unwrap();
    let mut spool = open(root.path(), 1);
    append(&mut spool, 6);
    numbers(&mut spool);
    spool.refused(boot(1), 3);
    spool.refused(boot(1), 4);
    spool.rewind();
    assert_eq!(numbers(&mut spool), [1, 2, 3, 4, 5, 6], "not before those in front are acknowledged");
    spool.acked(boot(1), 2);
    spool.rewind();
    assert_eq!(numbers(&mut spool), [5, 6]);
    assert_eq!(spool.refused(boot(1), 5), 5);
    assert_eq!(spool.refused(boot(1), 99), 5, "never sent");
    spool.rewind();
    assert_eq!(numbers(&mut spool), [6]);
}

#[test]
fn rubbish_in_the_folder_does_not_stop_the_start() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("a file"), "x").unwrap();
    std::fs::create_dir(root.path().join("0000000001-nonsense")).unwrap();
    let folder = root.path().join(format!("0000000009-{}", boot(9)));
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("00000000000000000001.segment"), vec![0; 5000]).unwrap();
    std::fs::write(folder.join("cursor"), "rubbish").unwrap();
    let mut spool = open(root.path(), 10);
    append(&mut spool, 1);
    assert_eq!(drain(&mut spool), [(10, vec![1])]);
}
