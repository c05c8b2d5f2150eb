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
    (&mut world.serving).await.unwrap().unwrap();
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
