//! Running the lab's binary: what the end-to-end tests share.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

use parallax_tests::lab::enter;
use parallax_tests::lab::layout::Kind;

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

/// Cargo builds this package's binary for us, but not the other packages'.
pub(crate) fn build_our_programs() {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| {
        let Some(cargo) = std::env::var_os("CARGO") else { return };
        let profile = match lab().parent().and_then(Path::file_name).and_then(|n| n.to_str()) {
            Some("debug") | None => "dev",
            Some(profile) => profile,
        };
        let mut command = Command::new(cargo);
        // The whole workspace, as the entry script builds it: another selection would compile everything again.
        command.args(["build", "--quiet", "--profile", profile, "--workspace", "--bins"]);
        command.args(["--features", "parallax-agent/lab"]).current_dir(env!("CARGO_MANIFEST_DIR"));
        assert!(command.status().unwrap().success(), "building parallax and parallax-agent failed");
    });
}

/// Runs the lab's binary and returns what it printed, if this machine can run it in that world.
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
    let output = Command::new(lab()).args(arguments).args(["--world", kind.word()]).output().unwrap();
    drop(guard);
    let (said, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{arguments:?} ended with {}\n{said}\n{told}", output.status);
    eprintln!("{told}");
    Some(said.into_owned())
}

/// Both stories, with blows in between; what the run reports, if this machine can run it in that world.
pub(crate) fn both_stories(kind: Kind, coordinators: &str, blows: &[&str]) -> Option<serde_json::Value> {
    build_our_programs();
    let before = leftovers();
    let mut arguments = vec!["demo", "--once", "--json", "--port", "0", "--coordinators", coordinators];
    arguments.extend(blows.iter().flat_map(|b| ["--blow", b]));
    let said = run(kind, &arguments)?;
    let report: serde_json::Value = serde_json::from_str(said.trim()).unwrap();
    assert_eq!(report["world"], kind.word());
    for time in TIMES {
        assert!(report[time].is_number(), "{time} is missing: {report}");
    }
    assert_eq!(report["agents_peak_rss_kib"].as_object().map(serde_json::Map::len), Some(3), "{report}");
    let left: Vec<PathBuf> = leftovers().into_iter().filter(|d| !before.contains(d)).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
    Some(report)
}

fn leftovers() -> Vec<PathBuf> {
    let name = |p: &PathBuf| p.file_name().map(OsString::from).unwrap_or_default();
    let all = std::fs::read_dir(std::env::temp_dir()).unwrap().filter_map(|e| e.ok().map(|e| e.path()));
    all.filter(|p| name(p).to_string_lossy().starts_with("parallax-lab-")).collect()
}
