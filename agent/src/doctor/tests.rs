//! What is said of made-up and of real things.

use super::*;

#[test]
fn the_worst_decides_and_every_fault_has_its_cure() {
    let checks = [
        Check::ok("version", "1"),
        Check::warn("ipv6", "half of it", "repair it"),
        Check::fail("disk", "full", "free some"),
    ];
    assert_eq!(worst(&checks), Grade::Fail);
    assert_eq!(worst(&checks[..2]), Grade::Warn);
    let text = text(&checks);
    assert!(text.contains("fail  disk     full\n") && text.contains("fix: free some"), "{text}");
    assert_eq!(document(&checks)["grade"], "fail");
    assert_eq!(document(&checks)["checks"][1]["what"], "ipv6");
}

#[test]
fn a_state_folder_is_looked_at_without_being_made() {
    let root = tempfile::tempdir().unwrap();
    assert_eq!(machine::disk(root.path()).grade, Grade::Ok);
    let missing = root.path().join("a/b");
    assert_eq!(machine::disk(&missing).grade, Grade::Ok);
    assert!(!missing.exists());
    let impossible = machine::disk(std::path::Path::new("/proc/1/parallax"));
    assert_eq!(impossible.grade, Grade::Fail, "{impossible:?}");
    assert!(impossible.fix.contains("install -d"), "{impossible:?}");
}

/// Without a word about folders the usual one is looked at where it is; a machine without it has not joined, which is
/// no fault of it.
#[cfg(feature = "lab")]
#[tokio::test]
async fn it_needs_no_state_folder() {
    let root = tempfile::tempdir().unwrap();
    let map = root.path().join("map.json");
    std::fs::write(&map, "{}").unwrap();
    let local = root.path().join("local.yaml");
    std::fs::write(&local, format!("live_resolver: \"{}\"\n", crate::probe::testing::refused_port())).unwrap();
    let options = Doctor { local: Some(local), lab_map: Some(map), ..Doctor::default() };
    let checks = examine(&options).await;
    let identity = checks.iter().find(|check| check.what == "identity").unwrap();
    match std::path::Path::new(STATE).exists() {
        true => assert!(checks.iter().any(|check| check.what == "disk")),
        false => assert!(identity.grade == Grade::Warn && identity.fix.contains("join"), "{identity:?}"),
    }
}

#[cfg(feature = "lab")]
#[tokio::test]
async fn a_place_without_a_way_out_is_told_by_its_parts() {
    let root = tempfile::tempdir().unwrap();
    let map = root.path().join("map.json");
    std::fs::write(&map, "{}").unwrap();
    let local = root.path().join("local.yaml");
    std::fs::write(&local, format!("live_resolver: \"{}\"\n", crate::probe::testing::refused_port())).unwrap();
    let options = Doctor {
        local: Some(local),
        lab_map: Some(map),
        identity: Some(root.path().to_owned()),
        state: Some(root.path().to_owned()),
        ..Doctor::default()
    };
    let checks = examine(&options).await;
    let grade = |what: &str| checks.iter().find(|check| check.what == what).map(|check| check.grade);
    assert_eq!(grade("owner"), Some(Grade::Ok));
    assert_eq!(grade("dns"), Some(Grade::Fail));
    assert_eq!(grade("egress"), Some(Grade::Fail));
    assert_eq!(grade("ipv6"), Some(Grade::Ok), "none here is no fault");
    assert_eq!(grade("clock"), Some(Grade::Warn), "nobody told the time");
    assert_eq!(grade("identity"), Some(Grade::Fail), "the folder holds none");
    for check in checks.iter().filter(|check| check.grade != Grade::Ok) {
        assert!(!check.fix.is_empty(), "{check:?}");
    }
}
