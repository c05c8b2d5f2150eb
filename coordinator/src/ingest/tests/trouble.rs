//! The database is slow, hangs, lacks a partition or does not take a row; the coordinator ends.

use super::*;

#[tokio::test]
async fn a_ping_is_answered_at_once_also_while_the_database_is_slow() {
    let world = world().await;
    let (mut agent, _) = world.agent("de-fra").await.unwrap();
    // Whoever holds this holds up every commit.
    let mut slow = world.app.pool.begin().await.unwrap();
    sqlx::query("lock table agent_cursor in access exclusive mode").execute(&mut *slow).await.unwrap();
    agent.batch_in(v1::Lane::Urgent, BOOT, vec![control(1)]).await;
    agent.batch_in(v1::Lane::Routine, BOOT, vec![control(1)]).await;
    agent.send(FromAgent::Ping(v1::Ping { nonce: 77 })).await;
    let ToAgent::Pong(pong) = agent.next().await.unwrap() else { panic!("no pong") };
    assert_eq!(pong.nonce, 77);
    assert!(pong.unix_ms.abs_diff(u64::try_from(clock::wall_ms()).unwrap()) < 60_000);
    slow.rollback().await.unwrap();
    for lane in [v1::Lane::Urgent, v1::Lane::Routine] {
        let ToAgent::Ack(ack) = agent.next().await.unwrap() else { panic!("no ack") };
        assert_eq!(ack.lane, i32::from(lane));
    }
}

/// Stops or continues every session of this database, as a machine that hangs would.
fn signal_sessions(pids: &[i32], signal: nix::sys::signal::Signal) {
    for pid in pids {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(*pid), signal).unwrap();
    }
}

#[tokio::test]
async fn a_database_that_hangs_loses_and_doubles_nothing_and_signs_of_life_are_answered() {
    use nix::sys::signal::Signal::{SIGCONT, SIGSTOP};
    let world = world().await;
    let (mut agent, _) = world.agent("de-fra").await.unwrap();
    agent.batch(BOOT, vec![control(1)]).await;
    assert_eq!(agent.acked().await, 1);
    let pids: Vec<i32> = sqlx::query_scalar(
        "select pid from pg_stat_activity where datname = current_database() and backend_type = 'client backend'",
    )
    .fetch_all(&world.app.pool)
    .await
    .unwrap();
    signal_sessions(&pids, SIGSTOP);
    // As many as an agent sends without an answer.
    for first in [2, 102, 202, 302] {
        agent.batch(BOOT, (first..first + 100).map(control).collect()).await;
    }
    for first in [1, 101] {
        agent.batch_in(v1::Lane::Routine, BOOT, (first..first + 100).map(control).collect()).await;
    }
    agent.send(FromAgent::Ping(v1::Ping { nonce: 5 })).await;
    let ToAgent::Pong(pong) = agent.next().await.unwrap() else { panic!("no pong") };
    assert_eq!(pong.nonce, 5);
    signal_sessions(&pids, SIGCONT);
    let mut acked = Vec::new();
    for _ in 0..6 {
        acked.push(agent.acked().await);
    }
    acked.sort_unstable();
    assert_eq!(acked, [100, 101, 200, 201, 301, 401]);
    let twice: i64 = sqlx::query_scalar(
        "select count(*) - count(distinct (lane, sequence)) from observation where sequence between 1 and 401",
    )
    .fetch_one(&world.app.pool)
    .await
    .unwrap();
    assert_eq!((world.stored().await, twice), (601, 0));
}

#[tokio::test]
async fn what_was_handed_over_before_the_end_is_stored() {
    let mut world = world().await;
    let (mut agent, _) = world.agent("de-fra").await.unwrap();
    agent.batch(BOOT, vec![control(1)]).await;
    assert_eq!(agent.acked().await, 1);
    world.shutdown.cancel();
    assert!(agent.next().await.is_err());
    (&mut world.serving).await.unwrap();
    assert_eq!(world.stored().await, 1);
}

#[tokio::test]
async fn a_missing_partition_is_made_and_the_batch_stored() {
    let world = world().await;
    let days = crate::store::partition::existing(&mut world.app.pool.acquire().await.unwrap()).await.unwrap();
    for day in days {
        sqlx::query(sqlx::AssertSqlSafe(format!("drop table {day}"))).execute(&world.app.pool).await.unwrap();
    }
    let (mut agent, _) = world.agent("de-fra").await.unwrap();
    agent.batch(BOOT, vec![control(1)]).await;
    assert_eq!(agent.acked().await, 1);
    assert_eq!(world.stored().await, 1);
}

#[tokio::test]
async fn a_row_the_database_does_not_take_costs_itself_only() {
    let world = world().await;
    // Stands for any rule of the database that validation does not know.
    sqlx::query("alter table observation add constraint odd check (sequence <> 2)")
        .execute(&world.app.pool)
        .await
        .unwrap();
    let (mut agent, _) = world.agent("de-fra").await.unwrap();
    agent.batch(BOOT, vec![control(1), control(2), control(3)]).await;
    assert_eq!(agent.acked().await, 3);
    assert_eq!(world.stored().await, 2);
    let reason: String =
        sqlx::query_scalar("select reason from ingest_refusal").fetch_one(&world.app.pool).await.unwrap();
    assert_eq!(reason, "not_storable");
}

/// Takes a vantage out of the database with all that belongs to it, as a backup from before it brings it back.
async fn forget(world: &World, name: &str) {
    let mut connection = world.app.pool.acquire().await.unwrap();
    sqlx::query("set session_replication_role = replica").execute(&mut *connection).await.unwrap();
    for table in ["agent_cursor", "agent_certificate", "session", "assignment", "vantage"] {
        let key = if table == "vantage" { "id" } else { "vantage_id" };
        let statement = format!("delete from {table} where {key} = (select id from vantage where name = $1)");
        sqlx::query(sqlx::AssertSqlSafe(statement)).bind(name).execute(&mut *connection).await.unwrap();
    }
    connection.close_on_drop();
}

#[tokio::test]
async fn a_vantage_that_the_database_lost_ends_its_own_stream_and_holds_up_nobody() {
    let world = world().await;
    let (mut lost, _) = world.agent("wan-gw").await.unwrap();
    let (mut other, _) = world.agent("de-fra").await.unwrap();
    forget(&world, "wan-gw").await;
    lost.batch(BOOT, vec![control(1), control(2)]).await;
    other.batch(BOOT, vec![control(1)]).await;
    assert_eq!(other.acked().await, 1);
    let status = lost.next().await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable, "the agent comes back: {status:?}");
    assert!(status.message().contains("went back"), "{status:?}");
    let (mut back, _) = world.agent("wan-gw").await.unwrap();
    back.batch(BOOT, vec![control(1), control(2)]).await;
    assert_eq!(back.acked().await, 2);
    assert_eq!(world.stored().await, 3);
}

async fn look(world: &World) {
    let mut connection = world.app.pool.acquire().await.unwrap();
    crate::installation::look(&world.app, &mut connection).await.unwrap();
}

#[tokio::test]
async fn a_database_that_went_back_ends_every_stream_because_its_keys_may_mean_others() {
    let world = world().await;
    let (mut agent, _) = world.agent("de-fra").await.unwrap();
    agent.batch(BOOT, vec![control(1), control(2)]).await;
    assert_eq!(agent.acked().await, 2);
    look(&world).await;
    sqlx::query("select setval('observation_id_seq', 1, false)").execute(&world.app.pool).await.unwrap();
    look(&world).await;
    let status = agent.next().await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable, "{status:?}");
    assert!(status.message().contains("went back"), "{status:?}");
    world.agent("de-fra").await.unwrap();
}

/// Lets a stopped server go on, however the test ends.
struct Stopped(i32);

impl Stopped {
    /// Stops a server with all its sessions, as a machine that hangs would: it still takes connections.
    fn whole(postmaster: i32) -> Self {
        let this = Self(postmaster);
        this.signal("STOP");
        this
    }

    fn signal(&self, word: &str) {
        let children = format!("/proc/{0}/task/{0}/children", self.0);
        let children = std::fs::read_to_string(children).unwrap_or_default();
        let all = std::iter::once(self.0).chain(children.split_whitespace().filter_map(|pid| pid.parse().ok()));
        let signal = format!("SIG{word}").parse::<nix::sys::signal::Signal>().unwrap();
        for pid in all {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal);
        }
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.signal("CONT");
    }
}

#[tokio::test]
async fn a_greeting_to_a_database_that_takes_it_and_never_answers_ends_and_everything_recovers_by_itself() {
    let (options, postmaster) = testing::alone().await;
    let app = testing::app_at(options, testing::example()).await;
    let world = serving(app, Arc::new(tempfile::tempdir().unwrap()), &Identity::default()).await;
    let (mut agent, _) = world.agent("de-fra").await.unwrap();
    agent.batch(BOOT, vec![control(1)]).await;
    assert_eq!(agent.acked().await, 1);
    let stopped = Stopped::whole(postmaster);
    agent.batch(BOOT, vec![control(2)]).await;
    // As many as there are places in the pool, and more than there are turns for greetings.
    let names = ["branch-kazan", "wan-gw", "de-fra"];
    let greetings = (0..12).map(|n| world.agent(names[n % 3]));
    for greeted in futures_util::future::join_all(greetings).await {
        let status = greeted.map(|_| ()).unwrap_err();
        assert_eq!(status.code(), tonic::Code::Unavailable, "{status:?}");
    }
    // The stream that stands is not disturbed.
    agent.send(FromAgent::Ping(v1::Ping { nonce: 9 })).await;
    let ToAgent::Pong(pong) = agent.next().await.unwrap() else { panic!("no pong") };
    assert_eq!(pong.nonce, 9);
    drop(stopped);
    assert_eq!(agent.acked().await, 2);
    for name in ["branch-kazan", "wan-gw"] {
        let (mut agent, _) = world.agent(name).await.unwrap();
        agent.batch(BOOT, vec![control(1)]).await;
        assert_eq!(agent.acked().await, 1);
    }
    assert_eq!(world.stored().await, 4);
}

#[tokio::test]
async fn while_every_connection_is_taken_agents_keep_their_rows_and_nobody_is_needed_afterwards() {
    let world = world().await;
    let (mut agent, _) = world.agent("de-fra").await.unwrap();
    let mut taken = Vec::new();
    while taken.len() < usize::try_from(world.app.pool.options().get_max_connections()).unwrap() {
        taken.push(world.app.pool.acquire().await.unwrap());
    }
    agent.batch(BOOT, vec![control(1), control(2)]).await;
    let status = world.agent("wan-gw").await.map(|_| ()).unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable, "{status:?}");
    agent.send(FromAgent::Ping(v1::Ping { nonce: 3 })).await;
    let ToAgent::Pong(_) = agent.next().await.unwrap() else { panic!("acknowledged, or no pong") };
    drop(taken);
    assert_eq!(agent.acked().await, 2);
    world.agent("wan-gw").await.unwrap();
    assert_eq!(world.stored().await, 2);
}

#[tokio::test]
async fn while_the_databases_disk_is_full_greetings_and_sessions_are_put_off_and_then_made_up_for() {
    let world = world().await;
    let pool = &world.app.pool;
    let (mut agent, _) = world.agent("de-fra").await.unwrap();
    let data: String = sqlx::query_scalar("show data_directory").fetch_one(pool).await.unwrap();
    let Some(small) = crate::ingest::full_disk::Small::mount(Path::new(&data)) else {
        assert!(std::env::var_os("CI").is_none(), "CI must be able to mount a small disk");
        eprintln!("skipped: nothing may be mounted here");
        return;
    };
    let space = format!("small_{}", std::process::id());
    for statement in [
        format!("create tablespace {space} location '{}'", small.0.display()),
        format!("alter table vantage set tablespace {space}"),
        format!("alter table session set tablespace {space}"),
    ] {
        sqlx::query(sqlx::AssertSqlSafe(statement)).execute(pool).await.unwrap();
    }
    // A reader of long ago, for whom every row that was replaced must stay.
    let options = pool.connect_options().as_ref().clone().options([("idle_in_transaction_session_timeout", "0")]);
    let mut reader = <sqlx::PgConnection as sqlx::Connection>::connect_with(&options).await.unwrap();
    sqlx::raw_sql("begin isolation level repeatable read; select count(*) from vantage")
        .execute(&mut reader)
        .await
        .unwrap();
    let noise = "update vantage set labels = jsonb_build_object('noise', (
                     select string_agg(md5(random()::text), '') from generate_series(1, 50)))";
    while sqlx::query(noise).execute(pool).await.is_ok() {}
    // What the last of those had begun is free again: that too.
    let full = loop {
        let one = sqlx::query(sqlx::AssertSqlSafe(format!("{noise} where name = 'wan-gw'")));
        if let Err(error) = one.execute(pool).await {
            break error;
        }
    };
    assert_eq!(full.as_database_error().unwrap().code().as_deref(), Some("53100"), "{full}");
    let relay = crate::relay::run(Arc::clone(&world.app), "one".to_owned(), world.shutdown.clone());
    let relay = tokio::spawn(relay);
    let status = world.agent("wan-gw").await.map(|_| ()).unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable, "the agent comes back: {status:?}");
    agent.send(FromAgent::Ping(v1::Ping { nonce: 4 })).await;
    let ToAgent::Pong(_) = agent.next().await.unwrap() else { panic!("no pong") };
    let sessions = "select count(*) from session where instance = $1";
    let noted = || sqlx::query_scalar::<_, i64>(sessions).bind(world.app.instance).fetch_one(pool);
    assert_eq!(noted().await.unwrap(), 0);
    small.enlarge();
    world.agent("wan-gw").await.unwrap();
    while noted().await.unwrap() < 1 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    agent.batch(BOOT, vec![control(1)]).await;
    assert_eq!(agent.acked().await, 1);
    world.shutdown.cancel();
    relay.await.unwrap();
    drop(reader);
    // The server lives on after this test: it must miss no file.
    for statement in [
        "alter table vantage set tablespace pg_default".to_owned(),
        "alter table session set tablespace pg_default".to_owned(),
        "checkpoint".to_owned(),
        format!("drop tablespace {space}"),
    ] {
        sqlx::query(sqlx::AssertSqlSafe(statement)).execute(pool).await.unwrap();
    }
}
