//! The stored log of a played story, run once more: it gives what was stored, and changes nothing.

use std::time::Duration;

use parallax_decide::plan::PlanPurpose;
use parallax_decide::time::Timestamp;
use parallax_decide::topology::Policy;

use super::world::{FI, World};
use super::{CLOSED, PLANS_DONE};
use crate::replay::{Asked, Outcome, ReplayError, STEP, beside, run};

/// Both field cases one after the other, with their remedies and returns, and a coordinator that is killed in between.
async fn told() -> (World, Timestamp) {
    told_from(Duration::ZERO).await
}

/// The same, so long ago.
async fn told_from(ago: Duration) -> (World, Timestamp) {
    let mut world = World::begun_ago(ago).await;
    crate::reload::start(&world.app).await.unwrap();
    let start = crate::store::offset(world.app.clock.now());
    world.execute(format!("update config_in_force set at = '{start}'")).await;
    let began = world.app.clock.now();
    world.pass(5).await;
    world.play().steer_branch();
    world.until("select count(*) = 1 from plan where status = 'verified'", 20).await;
    world.pass(5).await;
    world.play().heal_branch();
    world.until(PLANS_DONE, 45).await;
    world.until(CLOSED, 15).await;
    world.restart().await;
    world.pass(5).await;
    world.play().kill_node(FI);
    world.until("select count(*) = 1 from plan where status = 'verified' and subject = 'fi'", 20).await;
    world.pass(10).await;
    world.play().dead.clear();
    world.until("select bool_and(status in ('verified', 'undone')) and count(*) = 4 from plan", 60).await;
    world.until(CLOSED, 30).await;
    world.pass(2).await;
    (world, began)
}

async fn replayed(world: &World, from: Timestamp, policy: Option<Policy>) -> Outcome {
    let mut connection = world.app.pool.acquire().await.unwrap();
    // Nothing but reading, and of views alone.
    for statement in ["set default_transaction_read_only = on", "set role parallax_ro"] {
        sqlx::query(statement).execute(&mut *connection).await.unwrap();
    }
    let asked = Asked { from, to: world.app.clock.now(), policy, step: STEP };
    let outcome = run(&mut connection, &asked, &mut |_| {}).await.unwrap();
    connection.close_on_drop();
    outcome
}

/// Rows of every table, and how far the log of the server is.
async fn untouched(world: &World) -> String {
    sqlx::query_scalar(
        "select pg_current_wal_insert_lsn()::text || ' ' || string_agg(relname || ':' ||
                (xpath('/row/n/text()', query_to_xml('select count(*) as n from ' || relname, true, true, '')))[1]::text, ' ' order by relname)
         from pg_class where relkind in ('r', 'p') and relnamespace = 'public'::regnamespace",
    )
    .fetch_one(&world.app.pool)
    .await
    .unwrap()
}

#[tokio::test]
async fn a_replay_gives_exactly_the_incidents_that_are_stored_and_writes_nothing() {
    let (world, began) = told().await;
    let before = untouched(&world).await;
    let outcome = replayed(&world, began, None).await;
    assert_eq!(untouched(&world).await, before);

    let incidents = outcome.replayed.incidents(outcome.from, outcome.to);
    let told: Vec<_> = incidents
        .iter()
        .map(|one| {
            (
                one.key.as_str(),
                one.kind.as_str(),
                one.opened_at,
                one.closed_at,
                one.members.iter().cloned().collect::<Vec<_>>(),
            )
        })
        .collect();
    let stored: Vec<_> = outcome
        .really
        .iter()
        .map(|one| (one.key.as_str(), one.kind.as_str(), one.opened_at, one.closed_at, one.members.clone()))
        .collect();
    assert_eq!(told, stored, "{}", world.journal().await);
    assert_eq!(told.len(), 2);
    let detected: Vec<_> = incidents.iter().map(|one| one.opened_at.since(one.onset.unwrap())).collect();
    assert!(
        detected.iter().all(|after| *after >= Duration::from_secs(3) && *after < Duration::from_secs(10)),
        "{detected:?}"
    );
    // Every change that was made would be made, at its moment, and no other.
    let changes = outcome.replayed.changes(outcome.from, outcome.to);
    let planned = beside::planned(&changes, &outcome.plans);
    assert_eq!(changes.len(), 4, "{changes:?}");
    for (change, plan) in changes.iter().zip(planned) {
        assert_eq!(plan.unwrap().record.created_at, change.at, "{change:?}");
    }
    assert!(outcome.judged > 250 && outcome.observations > 3000 && outcome.unreadable == 0, "{outcome:?}");
}

#[tokio::test]
async fn another_policy_detects_at_other_times_and_changes_accordingly() {
    let (world, began) = told().await;
    let policy = Policy { open_after: Duration::from_secs(4), span_min: Duration::from_secs(6), ..Policy::fast() };
    let outcome = replayed(&world, began, Some(policy)).await;
    let rehearsed = outcome.rehearsed.as_ref().unwrap();
    let incidents = rehearsed.incidents(outcome.from, outcome.to);
    let matched = beside::matched(&incidents, &outcome.really, outcome.to);
    // What a pin healed sooner than this policy would have seen it, it never sees: the log is of a world with that pin.
    assert_eq!(incidents.iter().map(|one| one.key.as_str()).collect::<Vec<_>>(), ["service/fi"]);
    for (one, stored) in incidents.iter().zip(&matched) {
        assert!(one.opened_at.since(stored.unwrap().opened_at) >= Duration::from_secs(4), "{one:?}");
    }
    let changes = rehearsed.changes(outcome.from, outcome.to);
    let purposes: Vec<_> = changes.iter().map(|change| change.purpose).collect();
    assert!(purposes.contains(&PlanPurpose::Remedy) && purposes.contains(&PlanPurpose::Return), "{changes:?}");
    // The same policy, rehearsed, gives the openings that are stored.
    let outcome = replayed(&world, began, Some(Policy::fast())).await;
    let opened: Vec<_> = outcome
        .rehearsed
        .as_ref()
        .unwrap()
        .incidents(outcome.from, outcome.to)
        .iter()
        .map(|one| one.opened_at)
        .collect();
    assert_eq!(opened, outcome.really.iter().map(|one| one.opened_at).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_was_open_before_is_carried_in_and_what_the_log_lacks_is_said() {
    let (mut world, _) = told().await;
    world.play().kill_node(FI);
    world.until("select count(*) = 1 from incident where closed_at is null", 20).await;
    world.pass(60).await;
    let from = world.app.clock.now().minus(Duration::from_secs(10));
    let outcome = replayed(&world, from, None).await;
    let incidents = outcome.replayed.incidents(outcome.from, outcome.to);
    assert_eq!(incidents.len(), 1);
    assert!(incidents[0].carried && incidents[0].closed_at.is_none());
    let stored = outcome.really.iter().find(|one| one.closed_at.is_none()).unwrap();
    assert_eq!(incidents[0].opened_at, stored.opened_at);
    // The older half of the log is gone.
    let begins = from.plus(Duration::from_secs(5));
    world.execute(format!("delete from observation where received_at < '{}'", crate::store::offset(begins))).await;
    let outcome = replayed(&world, from.minus(Duration::from_secs(60)), None).await;
    assert!(outcome.from >= begins && outcome.log_begins == outcome.from && outcome.read_from == outcome.from);
    world.execute("delete from observation".to_owned()).await;
    let mut connection = world.app.pool.acquire().await.unwrap();
    let asked = Asked { from, to: world.app.clock.now(), policy: None, step: STEP };
    assert!(matches!(run(&mut connection, &asked, &mut |_| {}).await, Err(ReplayError::Empty)));
}

/// Both cases, an hour ago: what is typed cannot ask for what is to come.
async fn an_hour_ago() -> World {
    let (world, _) = told_from(Duration::from_secs(3600)).await;
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_as_it_is_typed_says_what_is_the_same_and_what_another_policy_makes_of_it() {
    let world = an_hour_ago().await;
    let before = untouched(&world).await;
    let said = world.types("replay --from 2h", &[]);
    assert_eq!(said.code, Some(0), "{said:?}");
    for part in [
        "the log begins at",
        "STORED    REPLAYED",
        "#1  # ",
        "replayed   the same",
        "plan 4  return of fi",
        "the same, at the same times",
        "no coordinator judged",
    ] {
        assert!(said.out.contains(part), "{part} is not in\n{}", said.out);
    }
    let policy = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(policy.path(), "policy: fast\npolicy_overrides: { open_after_s: 4 }\n").unwrap();
    let file = policy.path().display().to_string();
    let replay = world.types("replay --json --from 2h --policy", &[&file]).json();
    assert_eq!(replay["stored"]["incidents"].as_array().unwrap().len(), 2);
    assert_eq!(replay["replayed"]["as_stored"], 2, "{replay:#}");
    let mean = |side: &str| replay[side]["detected_after_mean_s"].as_f64().unwrap();
    assert!(mean("rehearsed") > mean("replayed"), "{replay:#}");
    let csv = world.types("replay --csv --from 2h --step 1s --policy", &[&file]).out;
    assert!(
        csv.starts_with("side,row,number,") && csv.lines().filter(|line| line.contains(",change,")).count() >= 8,
        "{csv}"
    );
    assert_eq!(csv.lines().filter(|line| line.starts_with("rehearsed,incident")).count(), 1, "{csv}");
    // Killed in the middle, and asked for what cannot be.
    let mut killed = world.command(&["replay", "--from", "2h", "--step", "50ms"]).spawn().unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    killed.kill().unwrap();
    killed.wait().unwrap();
    std::fs::write(policy.path(), "policy: fats\n").unwrap();
    let wrong = world.types("replay --from 2h --policy", &[&file]);
    assert!(wrong.code == Some(2) && wrong.err.contains("did you mean `fast`?"), "{wrong:?}");
    let long_ago = world.types("replay --from 30d --to 29d", &[]);
    assert!(long_ago.code == Some(3) && long_ago.err.contains("the log begins at"), "{long_ago:?}");
    assert_eq!(world.types("replay --from soon", &[]).code, Some(2));
    assert_eq!(untouched(&world).await, before);
}
