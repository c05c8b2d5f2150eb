//! What the agent promises of itself, shown on the program: its whole job on weak hardware, no trace of a round outside
//! its own folder, no probe delayed by endpoints that hang. The short forms of `./x bench weak`, `trace` and `agent`,
//! with the agent as the tests build it: slower and larger than the shipped one, so with limits to match.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a panic is how a test says no, in its helpers too")]

use std::path::Path;
use std::process::Command;

use parallax_tests::bench::ground;
use parallax_tests::lab::{building, programs};
use serde_json::Value;

fn lab() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_parallax-lab"))
}

/// What `parallax-lab bench ...` printed; none where what it needs is not to be had.
fn bench(needs: &[&str], arguments: &[&str]) -> Option<String> {
    for program in needs {
        if programs::find(program).is_none() {
            assert!(std::env::var_os("CI").is_none(), "CI must be able to run this: {program} is not installed");
            eprintln!("SKIPPED, LOUDLY: {program} is not installed");
            return None;
        }
    }
    if let Err(why) = ground::decide() {
        assert!(std::env::var_os("CI").is_none(), "CI must be able to run this: {why}");
        eprintln!("SKIPPED, LOUDLY: {why}");
        return None;
    }
    let mut command = Command::new(lab());
    command.arg("bench").args(arguments).arg("--agent").arg(building::ours(lab(), "parallax-agent").unwrap());
    let output = command.output().unwrap();
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    eprintln!("{errors}{said}");
    assert!(output.status.success(), "{arguments:?} ended with {}", output.status);
    Some(said.into_owned())
}

/// The value of a figure among JSON lines.
fn value(lines: &str, figure: &str) -> f64 {
    let all = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let found = all.into_iter().find(|one| one["figure"] == figure);
    found.unwrap_or_else(|| panic!("no figure {figure} in:\n{lines}"))["value"].as_f64().unwrap()
}

/// Twenty seconds in 48 MiB and half a processor, the coordinator away in their middle. The ten minutes in 16 MiB and a
/// tenth of one are `./x bench weak`.
#[test]
fn r16_short_the_whole_job_is_done_within_limits_and_an_outage_loses_nothing() {
    let weak = ["weak", "--json", "--seconds", "20", "--round", "5000", "--memory", "48", "--cpu", "50"];
    let Some(said) = bench(&["unbound"], &weak) else { return };
    for figure in ["R16.missing", "R16.lost", "R16.kills", "R16.false"] {
        assert_eq!(value(&said, figure), 0.0, "{figure}");
    }
    // Kept, not only asked for; and the coordinator was away.
    assert!((1.0..=48.0).contains(&value(&said, "R16.peak")), "{said}");
    assert!((0.0..=55.0).contains(&value(&said, "R16.cpu")), "{said}");
    assert!(!said.contains("away for 0 s"), "{said}");
}

#[test]
fn r3_r11_a_round_writes_nothing_outside_the_agents_folder_and_makes_no_temporary_file() {
    let Some(said) = bench(&["unbound", "strace"], &["trace"]) else { return };
    assert!(said.contains("R3 R11 ok"), "{said}");
}

#[test]
fn r10_endpoints_that_accept_and_stay_silent_cost_no_other_probe_its_turn() {
    let Some(said) = bench(&["unbound"], &["agent", "--quick", "--json", "--only", "R10"]) else { return };
    assert_eq!(value(&said, "R10.missed"), 0.0);
}
