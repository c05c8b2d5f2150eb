//! A database that went back, in the whole lab: real DNS servers, agents, coordinator, `pg_dump` and `pg_restore`. What
//! is asserted of DNS is asked at the authority itself.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a panic is how a test says no, in its helpers too")]

use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use parallax_tests::clock::now;
use parallax_tests::demo::dead_node::{KIND, NODE};
use parallax_tests::demo::rows;
use parallax_tests::demo::stage::{Stage, Timeline};
use parallax_tests::lab::atlas::{Place, VANTAGES, node};
use parallax_tests::lab::certs::host_name;
use parallax_tests::lab::configuration::Stance;
use parallax_tests::lab::coordinators::Setting;
use parallax_tests::lab::fleet::Fleet;
use parallax_tests::lab::layout::Kind;
use parallax_tests::lab::look::{LookOptions, Seen};
use parallax_tests::lab::run_dir::RunDir;
use parallax_tests::lab::world::World;
use parallax_tests::lab::{building, process, programs};

/// From a fault to its end, on a busy machine.
const WITHIN: Duration = Duration::from_secs(120);
/// A write that should not happen would happen in this time: an unfrozen coordinator acts within a few seconds.
const QUIET_FOR: Duration = Duration::from_secs(8);

async fn postgres<S: AsRef<OsStr>>(socket: &Path, program: &str, arguments: &[S]) {
    let mut all: Vec<&OsStr> = vec!["-h".as_ref(), socket.as_os_str(), "-U".as_ref(), "parallax".as_ref()];
    all.extend(arguments.iter().map(AsRef::as_ref));
    process::run(None, &programs::find(program).unwrap(), &all).await.unwrap();
}

async fn served(stage: &Stage<'_>) -> Vec<Ipv4Addr> {
    let authority = stage.world.ground.layout.authority();
    let options = LookOptions { ask: vec![format!("{authority}/{}", host_name(NODE))], ..LookOptions::default() };
    match stage.world.look(Place::Hq, &options).await.unwrap().remove(0) {
        Seen::Answer(addresses) => addresses,
        other @ (Seen::Connected | Seen::Silent | Seen::Failed(_)) => panic!("the authority: {other:?}"),
    }
}

/// Waits for a row that says so. The pool is made anew: the database was dropped under the old one.
async fn until(stage: &mut Stage<'_>, what: &str, question: &'static str) {
    stage.pool = stage.fleet.database().await.unwrap();
    let look = async |s: &mut Stage<'_>| {
        let said: Option<bool> = sqlx::query_scalar(question).fetch_optional(&s.pool).await?;
        Ok((said == Some(true)).then_some(()))
    };
    stage.until(what, now(), WITHIN, look).await.unwrap();
}

/// The record stays where it is, and no plan changes anything, for as long as an unfrozen coordinator would need.
async fn nothing_is_written(stage: &mut Stage<'_>, record: Ipv4Addr) {
    let begun = now();
    while begun.elapsed() < QUIET_FOR {
        assert_eq!(served(stage).await, [record]);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let applied: i64 = sqlx::query_scalar("select count(*) from plan where applied_at is not null")
        .fetch_one(&stage.pool)
        .await
        .unwrap();
    assert_eq!(applied, 0, "no plan of this database changed anything");
    stage.still_running().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn b95_d_after_a_restore_and_with_a_database_made_anew_nothing_is_written_until_a_person_thaws() {
    building::ours(Path::new(env!("CARGO_BIN_EXE_parallax-lab")), "parallax").unwrap();
    let folder = RunDir::create().unwrap();
    let world = World::start(Kind::Loopback, folder.path()).await.unwrap();
    let mut fleet = Fleet::start(&world, Setting::One, Stance::ACTING, |_, _| {}).await.unwrap();
    let mut stage = Stage::new(world, &mut fleet, Timeline::start(true), Vec::new(), now()).await.unwrap();
    let socket = stage.fleet.state().join("pg/socket");
    stage.all_usable().await.unwrap();

    // The backup, and then life goes on: a machine dies and its record moves.
    let dump = folder.path().join("parallax.dump").display().to_string();
    postgres(&socket, "pg_dump", &["--format=custom", "-f", &dump, "parallax"]).await;
    let fallback = node(node(NODE).unwrap().fallbacks[0]).unwrap().address;
    let fault_at = rows::clock(&stage.pool).await.unwrap();
    stage.world.darken_node(NODE).await.unwrap();
    let look = async |s: &mut Stage<'_>| {
        let Some(incident) = rows::incident(&s.pool, KIND, fault_at).await? else { return Ok(None) };
        Ok(rows::plans(&s.pool, incident.id, "remedy").await?.into_iter().find(|plan| plan.verified))
    };
    stage.until("the record moved and proven", now(), WITHIN, look).await.unwrap();
    assert_eq!(served(&stage).await, [fallback]);

    // The restore, with plain tools. The coordinator is killed; its Postgres stays.
    stage.fleet.coordinators().kill(0).await.unwrap();
    for (program, arguments) in [
        ("psql", &["-q", "-d", "postgres", "-c", "drop database parallax with (force)"][..]),
        ("createdb", &["parallax"]),
        ("pg_restore", &["--no-owner", "--exit-on-error", "--single-transaction", "-d", "parallax", &dump]),
    ] {
        postgres(&socket, program, arguments).await;
    }
    stage.fleet.coordinators().restart(&stage.world.ground, 0).await.unwrap();
    until(
        &mut stage,
        "the restore found, recorded and frozen",
        "select e.kind = 'went_back' and e.told_by = 'coordinator' and e.observations > 0 and e.gap_from < e.gap_to
                and i.generation = 2 and f.thawed_at is null and f.reason like '%went back to%'
         from installation_event e join write_freeze f on f.event_id = e.id cross join installation i",
    )
    .await;
    // The agents go on where they were acknowledged; what they deleted since the backup is a gap.
    until(&mut stage, "a gap for every vantage", "select count(distinct vantage) = 3 from v_gap").await;
    until(
        &mut stage,
        "the dead machine seen again",
        "select count(*) > 0 from incident where closed_at is null and kind = 'node_dead_everywhere'",
    )
    .await;
    nothing_is_written(&mut stage, fallback).await;

    // A person ends it, and says why.
    let parallax = programs::ours("parallax").unwrap();
    let state = stage.fleet.state().display().to_string();
    let refused = process::run(None, &parallax, &["failover", "thaw", "--state", &state]).await.unwrap_err();
    assert!(refused.to_string().contains("ends only with a reason"), "{refused:#}");
    let arguments = ["failover", "thaw", "--state", &state, "--reason", "the backup is the right one"];
    process::run(None, &parallax, &arguments).await.unwrap();
    until(&mut stage, "accepted", "select accepted_reason = 'the backup is the right one' from v_installation_event")
        .await;

    // Now a database with nothing in it, as after a mistake.
    stage.fleet.coordinators().kill(0).await.unwrap();
    let before = served(&stage).await;
    postgres(&socket, "psql", &["-q", "-d", "postgres", "-c", "drop database parallax with (force)"]).await;
    postgres(&socket, "createdb", &["parallax"]).await;
    stage.fleet.coordinators().restart(&stage.world.ground, 0).await.unwrap();
    until(
        &mut stage,
        "the empty database found and frozen",
        "select e.kind = 'replaced' and i.generation = 3 and f.thawed_at is null
         from installation_event e join write_freeze f on f.event_id = e.id cross join installation i",
    )
    .await;
    until(&mut stage, "all vantages heard", "select count(*) = 3 from vantage where last_seen_at is not null").await;
    nothing_is_written(&mut stage, before[0]).await;
    assert_eq!(VANTAGES.len(), 3);
    fleet.stop().await.unwrap();
}
