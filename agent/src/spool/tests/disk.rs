//! A disk that does not take what it is given.

use nix::libc::{EIO, ENOSPC, EROFS};

use super::*;

/// From now on every step that writes fails so.
fn no_writing(number: i32) {
    faults::set(move |step| (!matches!(step, Step::Read)).then_some(number));
}

fn wait(rig: &mut Rig, ms: u64) {
    rig.now_ms += ms;
    let now_ms = rig.now_ms;
    rig.spool().tick(now_ms);
}

#[test]
fn b55_a_disk_that_takes_nothing_costs_nothing_while_memory_suffices() {
    for number in [ENOSPC, EROFS, EIO] {
        let mut rig = Rig::new(Limits::default());
        rig.append(Lane::Urgent, 5, 300);
        rig.append(Lane::Routine, 5, 300);
        no_writing(number);
        rig.append(Lane::Urgent, 50, 300);
        rig.append(Lane::Routine, 50, 300);
        let why = rig.spool().trouble().unwrap().to_owned();
        assert!(why.contains(&number.to_string()), "{why}");
        // It is sent from memory, behind what is on disk.
        let sent: Vec<u64> = rig.batches().iter().flat_map(|batch| &batch.rows).map(|row| row.sequence).collect();
        assert_eq!(sent, (1..=55).chain(1..=55).collect::<Vec<_>>());
        let boot = rig.boot();
        rig.spool().acked(boot, Lane::Urgent, 52);
        rig.spool().rewind();

        faults::clear();
        wait(&mut rig, 120_000);
        assert_eq!(rig.spool().trouble(), None, "the disk works again");
        assert!(rig.spool().memory.is_empty());
        rig.append(Lane::Urgent, 1, 300);
        rig.kill();
        rig.start();
        let got = rig.drain();
        assert!(got.numbers(1, Lane::Urgent).ends_with(&[53, 54, 55, 56]), "{got:?}");
        assert_eq!(got.numbers(1, Lane::Routine), (1..=55).collect::<Vec<_>>());
        assert_eq!(got.lost_in_all(), 0);
    }
}

#[test]
fn b55_memory_is_bounded_too_and_evidence_stays_longest() {
    let mut rig = Rig::new(Limits::default());
    no_writing(ENOSPC);
    rig.append(Lane::Urgent, 100, 1000);
    rig.append(Lane::Routine, 1000, 1000);
    rig.append(Lane::Urgent, 50, 1000);
    faults::clear();
    wait(&mut rig, 120_000);
    rig.restart();
    let got = rig.drain();
    assert_eq!(got.numbers(1, Lane::Urgent).len(), 150);
    let kept = got.numbers(1, Lane::Routine).len() as u64;
    assert!((50..200).contains(&kept), "{kept}");
    assert_eq!(kept + got.lost(LossReason::Disk), 1000);
    assert_eq!(got.losses.len(), 1, "gathered: {:?}", got.losses);
    assert_eq!(got.losses[0].sequences, (1, 1000 - kept));
}

#[test]
fn a_spool_that_cannot_be_opened_works_from_memory_and_moves_to_disk_when_it_can() {
    let mut rig = Rig::new(Limits::default());
    rig.append(Lane::Urgent, 3, 100);
    rig.spool = None;
    no_writing(EROFS);
    rig.start();
    rig.append(Lane::Urgent, 4, 100);
    assert!(rig.spool().trouble().is_some());
    faults::clear();
    wait(&mut rig, 1000);
    let got = rig.drain();
    assert_eq!((got.numbers(1, Lane::Urgent).len(), got.numbers(2, Lane::Urgent).len()), (3, 4));

    // A file where the folder should be.
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("spool");
    std::fs::write(&path, "a file").unwrap();
    let mut spool = Spool::open(path.clone(), BootId(1), Limits::default(), 0);
    spool.append(Lane::Urgent, 1, false, &[1; 8]);
    assert!(spool.has_unsent());
    std::fs::remove_file(&path).unwrap();
    spool.tick(2000);
    assert_eq!(spool.trouble(), None);
    assert_eq!(spool.next_batch_of(Lane::Urgent, 9, BYTES).unwrap().unwrap().rows.len(), 1);
}

#[test]
fn a_segment_that_could_neither_be_begun_nor_taken_back_is_begun_again() {
    let mut rig = Rig::new(Limits::default());
    rig.append(Lane::Urgent, 1, 100);
    // The first write to a new file fails, and so does deleting it.
    let mut created = false;
    faults::set(move |step| {
        let fails = created && matches!(step, Step::Append | Step::Remove);
        created |= step == Step::Create;
        fails.then_some(EIO)
    });
    rig.append(Lane::Routine, 2, 100);
    assert!(rig.spool().trouble().is_some());
    faults::clear();
    wait(&mut rig, 2000);
    assert_eq!(rig.spool().trouble(), None);
    rig.kill();
    rig.start();
    assert_eq!(rig.drain().numbers(1, Lane::Routine), [1, 2]);
}
