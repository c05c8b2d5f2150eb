//! A database that went back, was replaced, or went on, and who notices.

use std::sync::Arc;

use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, PgConnection, PgPool};

use super::look;
use crate::clock::Clock;
use crate::state::App;
use crate::store::{self, freeze};
use crate::testing;

/// A coordinator with this state directory on this database.
fn coordinator(options: &PgConnectOptions, state: &std::path::Path) -> Arc<App> {
    App::new(store::pool(options.clone()), testing::example(), Clock::system(), state.to_path_buf())
}

async fn look_now(app: &App) {
    look(app, &mut app.pool.acquire().await.unwrap()).await.unwrap();
}

async fn is(pool: &PgPool, condition: &'static str) -> bool {
    sqlx::query_scalar(condition).fetch_one(pool).await.unwrap()
}

async fn run(pool: &PgPool, statement: &'static str) {
    sqlx::query(statement).execute(pool).await.unwrap();
}

/// An agent greets that was told this epoch, and proves it.
async fn told_by_agent(app: &App, vantage: &str, epoch: u64) -> bool {
    claimed(app, vantage, epoch, true).await
}

async fn claimed(app: &App, vantage: &str, epoch: u64, proven: bool) -> bool {
    let mut connection = app.pool.acquire().await.unwrap();
    let found = store::installation::find(&mut connection).await.unwrap();
    super::told_by_agent(app, &mut connection, &found, (vantage, epoch, proven)).await.unwrap()
}

/// Generation and epoch that agents are told.
async fn told(app: &App) -> (u64, u64) {
    let epoch = store::order::epoch(&mut app.pool.acquire().await.unwrap()).await.unwrap();
    (epoch >> 32, epoch & 0xffff_ffff)
}

const CALM: &str = "select generation = 1 and not exists (select from installation_event)
                    and not exists (select from write_freeze) from installation";

/// Some life: a lease, and numbers given to observations.
async fn live(pool: &PgPool, epoch: i64) {
    sqlx::query(
        "insert into lease (name, holder, epoch, expires_at) values ('tasks', gen_random_uuid(), $1, now())
         on conflict (name) do update set epoch = excluded.epoch",
    )
    .bind(epoch)
    .execute(pool)
    .await
    .unwrap();
    run(pool, "select nextval('observation_id_seq') from generate_series(1, 100)").await;
}

#[tokio::test]
async fn a_database_that_only_went_on_is_no_event_across_restarts() {
    let (options, state) = (testing::fresh().await, tempfile::tempdir().unwrap());
    for epoch in 1..4 {
        let app = coordinator(&options, state.path());
        look_now(&app).await;
        live(&app.pool, epoch).await;
        look_now(&app).await;
        assert!(is(&app.pool, CALM).await);
        assert_eq!(told(&app).await, (1, epoch.unsigned_abs()));
    }
}

#[tokio::test]
async fn a_database_behind_what_was_seen_is_frozen_recorded_and_raised_above_it() {
    let (options, state) = (testing::fresh().await, tempfile::tempdir().unwrap());
    let app = coordinator(&options, state.path());
    live(&app.pool, 7).await;
    run(&app.pool, "insert into vantage (name) values ('branch-kazan')").await;
    run(&app.pool, "insert into assignment (vantage_id, version, content_sha256) values (1, 5000000000, '\\x00')")
        .await;
    look_now(&app).await;
    // As a backup brings it back; another process, which knows it from the file alone.
    run(&app.pool, "update lease set epoch = 4").await;
    run(&app.pool, "update installation set alive_at = alive_at - interval '1 hour'").await;
    run(&app.pool, "select setval('observation_id_seq', 40)").await;
    let app = coordinator(&options, state.path());
    look_now(&app).await;
    assert!(
        is(
            &app.pool,
            "select generation = 2 and kind = 'went_back' and told_by = 'coordinator' and observations = 60
                    and gap_from <= gap_to and detail like '%epoch 7, observation 100%epoch 4, observation 40'
             from installation_event"
        )
        .await
    );
    assert_eq!(told(&app).await, (2, 4));
    assert!(is(&app.pool, "select version > 5001000000 from assignment").await);
    let mut connection = app.pool.acquire().await.unwrap();
    let frozen = freeze::current(&mut connection).await.unwrap().unwrap();
    assert!(frozen.needs_reason && frozen.reason.contains("went back to"), "{frozen:?}");
    assert!(frozen.reason.chars().count() <= 200);
    // Once, whoever looks again: this one, and a second coordinator that remembers the same.
    look_now(&app).await;
    let other = tempfile::tempdir().unwrap();
    let content = std::fs::read_to_string(state.path().join("witness.json")).unwrap();
    std::fs::write(
        other.path().join("witness.json"),
        content.replace("\"generation\": 2", "\"generation\": 1").replace("\"epoch\": 4", "\"epoch\": 7"),
    )
    .unwrap();
    look_now(&coordinator(&options, other.path())).await;
    assert!(is(&app.pool, "select count(*) = 1 from installation_event").await);
    // A person ends it, with a reason.
    assert!(!freeze::thaw(&mut connection, "anna", None).await.unwrap());
    assert!(freeze::thaw(&mut connection, "anna", Some("looked at every record")).await.unwrap());
    assert!(
        is(&app.pool, "select accepted_by = 'anna' and accepted_reason like 'looked%' from v_installation_event").await
    );
    look_now(&coordinator(&options, state.path())).await;
    assert_eq!(freeze::current(&mut connection).await.unwrap(), None);
}

#[tokio::test]
async fn b95_d_a_database_made_anew_is_frozen_before_anything_is_decided() {
    let (before, state) = (testing::fresh().await, tempfile::tempdir().unwrap());
    let app = coordinator(&before, state.path());
    live(&app.pool, 7).await;
    look_now(&app).await;
    let anew = testing::fresh().await;
    let mut connection = PgConnection::connect_with(&anew).await.unwrap();
    sqlx::query("update installation set id = gen_random_uuid()").execute(&mut connection).await.unwrap();
    let app = coordinator(&anew, state.path());
    look_now(&app).await;
    assert!(
        is(&app.pool, "select generation = 2 and kind = 'replaced' and gap_to is not null from installation_event")
            .await
    );
    let frozen = freeze::current(&mut connection).await.unwrap().unwrap();
    assert!(frozen.needs_reason && frozen.reason.contains("not the database that was known"), "{frozen:?}");
    // And the old one, put back, is known.
    let app = coordinator(&before, state.path());
    look_now(&app).await;
    assert!(is(&app.pool, CALM).await);
}

#[tokio::test]
async fn an_agent_that_was_told_more_is_believed_within_reason() {
    let (options, state) = (testing::fresh().await, tempfile::tempdir().unwrap());
    let app = coordinator(&options, state.path());
    live(&app.pool, 7).await;
    look_now(&app).await;
    let wire = |generation: u64, epoch: u64| (generation << 32) | epoch;
    for known in [0, 7, wire(0, 900), wire(1, 7), u64::MAX, wire(5000, 1)] {
        assert!(!told_by_agent(&app, "branch-kazan", known).await, "{known:x}");
    }
    assert!(is(&app.pool, CALM).await);
    assert!(!claimed(&app, "branch-kazan", wire(3, 2), false).await, "anybody could say so");
    assert!(is(&app.pool, CALM).await);
    assert!(told_by_agent(&app, "branch-kazan", wire(3, 2)).await);
    assert!(is(&app.pool, "select generation = 4 and told_by = 'branch-kazan' from installation_event").await);
    assert_eq!(told(&app).await, (4, 7));
    assert!(!told_by_agent(&app, "wan-gw", wire(3, 2)).await);
}

#[tokio::test]
async fn a_memory_that_cannot_be_read_is_moved_aside_and_begun_anew() {
    let (options, state) = (testing::fresh().await, tempfile::tempdir().unwrap());
    std::fs::write(state.path().join("witness.json"), "{ \"schema\": 1, \"seen\"").unwrap();
    let app = coordinator(&options, state.path());
    look_now(&app).await;
    assert!(is(&app.pool, CALM).await);
    assert!(state.path().join("witness.json.unreadable").exists() && state.path().join("witness.json").exists());
}
