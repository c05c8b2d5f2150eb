//! What the coordinator promises a fleet, shown on the programs: streams by the hundred, killed in the middle of their
//! work, come back, and every row is stored once. The short form of `./x bench fleet` and `./x bench ingest`; what a test
//! asserts of them is a count and never a time.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a panic is how a test says no, in its helpers too")]

use std::path::Path;
use std::process::Command;

use parallax_tests::lab::building;
use serde_json::Value;

fn lab() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_parallax-lab"))
}

/// What `parallax-lab bench ...` measured, by figure.
fn bench(arguments: &[&str]) -> impl Fn(&str) -> f64 {
    let mut command = Command::new(lab());
    command
        .arg("bench")
        .args(arguments)
        .arg("--json")
        .arg("--coordinator")
        .arg(building::ours(lab(), "parallax").unwrap());
    let output = command.output().unwrap();
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    eprintln!("{errors}{said}");
    assert!(output.status.success(), "{arguments:?} ended with {}", output.status);
    let all: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    move |figure| {
        let found = all.iter().find(|one| one["figure"] == figure);
        found.unwrap_or_else(|| panic!("no figure {figure} in {all:?}"))["value"].as_f64().unwrap()
    }
}

#[test]
fn two_hundred_streams_come_back_after_kill_9_and_every_row_is_stored_once() {
    let value = bench(&["fleet", "--agents", "200", "--seconds", "5"]);
    assert_eq!(value("P15.lost"), 0.0);
}

#[test]
fn a_saturated_coordinator_stores_every_row_once() {
    // The bench itself fails when a number is missing or there twice.
    let value = bench(&["ingest", "--agents", "50", "--rate", "500", "--seconds", "3"]);
    assert!(value("P7.saturated") > 0.0);
}
