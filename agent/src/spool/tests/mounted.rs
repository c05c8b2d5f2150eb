//! A real small disk that is full or read only: a tmpfs in a mount namespace of the test's own.

use super::*;
use crate::netns::{inside, sh};

/// A disk of 1 MiB, inside the test's own namespace.
fn mount() -> PathBuf {
    sh("mkdir /run/disk && mount -t tmpfs -o size=1m none /run/disk");
    PathBuf::from("/run/disk")
}

fn rig_on(mount: &Path) -> Rig {
    let mut rig = Rig::new(Limits::default());
    rig.spool = None;
    rig.root = tempfile::tempdir_in(mount).unwrap();
    rig.restart();
    rig
}

/// Takes what is free, and gives it back when it is removed.
fn fill(mount: &Path) -> PathBuf {
    use std::io::Write as _;

    let path = mount.join("filler");
    let mut file = File::create(&path).unwrap();
    while file.write_all(&[1; 1024]).is_ok() {}
    while file.write_all(&[1]).is_ok() {}
    path
}

fn wait(rig: &mut Rig, ms: u64) {
    rig.now_ms += ms;
    let now_ms = rig.now_ms;
    rig.spool().tick(now_ms);
}

#[test]
fn b55_a_disk_smaller_than_the_cap_keeps_the_newest_and_the_evidence() {
    if !inside(module_path!(), "b55_a_disk_smaller_than_the_cap_keeps_the_newest_and_the_evidence") {
        return;
    }
    let mount = mount();
    let mut rig = rig_on(&mount);
    rig.append(Lane::Urgent, 100, 1000);
    for _ in 0..30 {
        rig.append(Lane::Routine, 100, 1000);
        rig.append(Lane::Urgent, 5, 1000);
        rig.spool().sync();
        assert_eq!(rig.spool().trouble(), None);
    }
    rig.kill();
    rig.start();
    let got = rig.drain();
    let boot = rig.boots - 1;
    assert_eq!(got.numbers(boot, Lane::Urgent).len(), 250);
    let routine = got.numbers(boot, Lane::Routine);
    assert_eq!(routine.len() as u64 + got.lost(LossReason::Full), 3000, "{:?}", got.losses);
    assert_eq!(routine.last(), Some(&3000));
    assert!(routine.len() > 400, "{}", routine.len());
}

#[test]
fn b55_a_disk_others_filled_is_used_again_when_there_is_room() {
    if !inside(module_path!(), "b55_a_disk_others_filled_is_used_again_when_there_is_room") {
        return;
    }
    let mount = mount();
    let mut rig = rig_on(&mount);
    rig.append(Lane::Urgent, 10, 1000);
    rig.append(Lane::Routine, 10, 1000);
    rig.spool().sync();
    let filler = fill(&mount);
    rig.append(Lane::Routine, 600, 1000);
    rig.append(Lane::Urgent, 50, 1000);
    assert!(rig.spool().trouble().unwrap().contains("No space left"));
    // Online meanwhile: what is sent is done with, though no cursor may be writable.
    let batch = rig.next(10);
    let boot = rig.boot();
    rig.spool().acked(boot, batch.lane, 10);
    rig.spool().sync();
    std::fs::remove_file(&filler).unwrap();
    wait(&mut rig, 120_000);
    assert_eq!(rig.spool().trouble(), None);
    // The cursor waited for the record of what was lost.
    rig.spool().sync();
    // Starting on a full disk is no different.
    rig.kill();
    let filler = fill(&mount);
    rig.start();
    // Old routine makes room for new evidence.
    rig.append(Lane::Urgent, 3, 1000);
    std::fs::remove_file(filler).unwrap();
    wait(&mut rig, 120_000);
    let got = rig.drain();
    assert_eq!(got.numbers(boot.0, Lane::Urgent), (11..=60).collect::<Vec<_>>());
    assert_eq!(got.numbers(boot.0 + 1, Lane::Urgent).len(), 3);
    let routine = got.numbers(boot.0, Lane::Routine).len() as u64;
    assert_eq!(routine + got.lost(LossReason::Disk) + got.lost(LossReason::Full), 610);
}

#[test]
fn b55_a_disk_that_became_read_only_is_read_and_used_again() {
    if !inside(module_path!(), "b55_a_disk_that_became_read_only_is_read_and_used_again") {
        return;
    }
    let mount = mount();
    let remount = |how: &str| sh(&format!("mount -o remount,size=1m,{how} {}", mount.display()));
    let mut rig = rig_on(&mount);
    rig.append(Lane::Urgent, 10, 300);
    // A file open for writing would forbid it.
    rig.spool = None;
    remount("ro");
    rig.start();
    rig.append(Lane::Urgent, 10, 300);
    assert!(rig.spool().trouble().unwrap().contains("Read-only"));
    let got = rig.drain();
    assert_eq!(got.rows.len(), 20, "what earlier boots left can be read");
    rig.append(Lane::Urgent, 1, 300);
    rig.spool().sync();
    remount("rw");
    wait(&mut rig, 120_000);
    assert_eq!(rig.spool().trouble(), None);
    rig.restart();
    let again = rig.drain();
    // What only memory knew to be acknowledged may come again, and is stored once by its key.
    let last = rig.boots - 1;
    assert_eq!(again.numbers(last, Lane::Urgent).last(), Some(&11));
    assert_eq!(again.lost_in_all(), 0);
}
