//! Running the lab's binary: what the end-to-end tests share.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use parallax_tests::lab::layout::Kind;
use parallax_tests::lab::run_dir::passable;
use parallax_tests::lab::{building, enter};

/// Two worlds at once on two cores would measure each other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The times the report must hold, in the order of the stories.
const TIMES: [&str; 7] = [
    "first_verdict_s",
    "unroutable_verdict_s",
    "pin_proven_s",
    "unpin_proven_s",
    "repoint_applied_s",
    "repoint_seen_everywhere_s",
    "return_applied_s",
];

fn lab() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_parallax-lab"))
}

/// Runs the lab's binary and returns what it printed, if this machine can run it in that world.
///
/// What it makes is in a folder of its own, so that what another run has left is not taken for this one's; nothing may be left.
pub(crate) fn run(kind: Kind, arguments: &[&str]) -> Option<String> {
    let guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    if kind == Kind::Namespaces {
        let decision = enter::decide();
        if decision.kind != Kind::Namespaces {
            assert!(std::env::var_os("CI").is_none(), "CI must be able to run this: {}", decision.reason);
            eprintln!("SKIPPED, LOUDLY: the namespace world is not possible: {}", decision.reason);
            return None;
        }
    }
    let mut command = Command::new(lab());
    command.args(arguments).args(["--world", kind.word()]);
    let place = tempfile::Builder::new().prefix("px-").tempdir().unwrap();
    passable(place.path()).unwrap();
    let output = command.env("TMPDIR", place.path()).output().unwrap();
    drop(guard);
    let (said, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{arguments:?} ended with {}\n{said}\n{told}", output.status);
    eprintln!("{told}");
    let left: Vec<PathBuf> = std::fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
    Some(said.into_owned())
}

/// Both stories, with blows in between; what the run reports, if this machine can run it in that world.
pub(crate) fn both_stories(kind: Kind, coordinators: &str, blows: &[&str]) -> Option<serde_json::Value> {
    building::ours(lab(), "parallax").unwrap();
    let mut arguments = vec!["demo", "--once", "--json", "--port", "0", "--coordinators", coordinators];
    arguments.extend(blows.iter().flat_map(|b| ["--blow", b]));
    let said = run(kind, &arguments)?;
    let report: serde_json::Value = serde_json::from_str(said.trim()).unwrap();
    assert_eq!(report["world"], kind.word());
    for time in TIMES {
        assert!(report[time].is_number(), "{time} is missing: {report}");
    }
    assert_eq!(report["agents_peak_rss_kib"].as_object().map(serde_json::Map::len), Some(3), "{report}");
    Some(report)
}
