//! Two coordinators on one Postgres, as processes, with blows to the one that holds the lease: killed, frozen and thawed,
//! cut off from the database and joined again. Both field cases must end as they do with one coordinator that nothing
//! happens to: every change once, every verdict and incident once, no observation lost or stored twice, no epoch going
//! back. The first run of both is also B89: both start at the same moment on an empty database.
//!
//! How long another takes to take over is printed. The target is 10 s; nothing is asserted about it but that it
//! happens, for the machine may be busy.

#![expect(clippy::unwrap_used, reason = "a panic is how a test says no, in its helpers too")]

use parallax_tests::lab::layout::Kind;
use support::both_stories;

mod support;

fn two(kind: Kind, setting: &str, blows: &[&str]) {
    let Some(report) = both_stories(kind, setting, blows) else { return };
    let takeovers = report["takeovers_s"].as_array().map_or(0, Vec::len);
    assert_eq!(takeovers, blows.len(), "{report}");
    eprintln!("takeovers_s {} ({})", report["takeovers_s"], blows.join(", "));
}

#[test]
fn both_stories_end_right_when_the_holder_is_killed_frozen_and_cut_off() {
    two(
        Kind::Namespaces,
        "two",
        &[
            "holder@pair-handed",
            "holder-frozen@unroutable",
            "holder-cut@pinned",
            "holder@node-dark",
            "holder-frozen@node-dead",
        ],
    );
}

/// A primary and a synchronous standby, two coordinators that know both: the primary is killed, the standby promoted.
/// B78: sessions that were at the former primary are left by themselves.
#[test]
fn b78_both_stories_end_right_when_the_databases_primary_is_killed_and_its_standby_promoted() {
    two(Kind::Loopback, "two-with-standby", &["primary@unroutable"]);
}

/// `./x soak coordinators`: the other moments, and each stroke at each of them.
#[test]
#[ignore = "minutes; ./x soak coordinators"]
fn both_stories_end_right_with_every_stroke_at_every_moment() {
    const MOMENTS: [&str; 8] =
        ["pair-handed", "unroutable", "pinned", "native-back", "node-dark", "node-dead", "repointed", "node-back"];
    const STROKES: [&str; 3] = ["holder", "holder-frozen", "holder-cut"];
    for round in 0..STROKES.len() {
        let blows: Vec<String> = MOMENTS
            .iter()
            .zip(STROKES.iter().cycle().skip(round))
            .map(|(moment, stroke)| format!("{stroke}@{moment}"))
            .collect();
        two(Kind::Namespaces, "two", &blows.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

/// `./x soak patroni`: the worked example of `deploy/two-coordinators`, its leader killed as by a power cut. Not among the
/// tests of every change: Patroni takes its `ttl` of 20 s to be sure of a death, and three nodes their time to come up.
#[test]
#[ignore = "minutes, and needs patroni and etcd; ./x soak patroni"]
fn both_stories_end_right_when_the_leader_of_a_patroni_cluster_dies() {
    two(Kind::Loopback, "two-with-patroni", &["primary@pinned"]);
}
