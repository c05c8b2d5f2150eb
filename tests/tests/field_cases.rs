//! Both field cases, end to end: real BIND, Unbound, dnsdist and Postgres, our three programs as processes, in network
//! namespaces and on loopback, with power cuts in mid-story. Each run is the demo itself, which ends with success only
//! when every step was seen in the database, no change was made twice and no observation stored twice.

#![expect(clippy::unwrap_used, reason = "a panic is how a test says no, in its helpers too")]

use parallax_tests::lab::layout::Kind;
use support::{both_stories, run};

mod support;

#[test]
fn the_lab_is_what_it_claims_in_namespaces() {
    run(Kind::Namespaces, &["world"]);
}

#[test]
fn the_lab_is_what_it_claims_on_loopback() {
    run(Kind::Loopback, &["world"]);
}

#[test]
fn both_stories_end_right_on_loopback() {
    both_stories(Kind::Loopback, "one", &[]);
}

#[test]
fn both_stories_end_right_with_the_coordinator_killed_in_the_middle_of_each() {
    both_stories(Kind::Namespaces, "one", &["coordinator@unroutable", "coordinator@node-dead"]);
}

#[test]
fn both_stories_end_right_with_the_coordinator_killed_between_fault_and_verdict_and_before_the_returns() {
    both_stories(
        Kind::Namespaces,
        "one",
        &["coordinator@pair-handed", "coordinator@native-back", "coordinator@node-dark", "coordinator@node-back"],
    );
}

#[test]
fn both_stories_end_right_with_agents_killed_in_the_middle_of_each() {
    both_stories(Kind::Namespaces, "one", &["branch-kazan@pinned", "wan-gw@node-dark"]);
}
