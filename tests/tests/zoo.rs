//! The zoo of faults, end to end: real BIND, Unbound, dnsdist and Postgres, our programs as processes, in network
//! namespaces; everything breaks at once, every staged case must show its verdict, and everything must heal. The run names each case
//! that did not come. docs/lab-cases.md lists them.

#![expect(clippy::unwrap_used, reason = "a panic is how a test says no, in its helpers too")]

use std::path::Path;

use parallax_tests::lab::building;
use parallax_tests::lab::layout::Kind;
use parallax_tests::zoo::play::cases;
use support::run;

#[expect(dead_code, reason = "the stories are other tests'")]
mod support;

#[test]
fn every_staged_case_shows_its_verdict_and_heals() {
    building::ours(Path::new(env!("CARGO_BIN_EXE_parallax-lab")), "parallax").unwrap();
    run(Kind::Namespaces, &["zoo"]);
}

#[test]
fn every_staged_case_is_in_the_list_that_people_read() {
    let told = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/lab-cases.md")).unwrap();
    for case in cases() {
        assert!(told.contains(&format!("| {} |", case.id)), "docs/lab-cases.md does not list {}", case.id);
    }
}
