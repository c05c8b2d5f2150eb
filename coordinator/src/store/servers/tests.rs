//! The pool follows the server that takes writes. B78: it held on to a former primary for days.

use std::time::Duration;

use sqlx::AssertSqlSafe;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::testing;

/// A database that from now on gives read-only sessions, as a standby or a frozen primary does; those
/// that are open stay as they are.
async fn set_read_only(options: &PgConnectOptions, on: bool) {
    let administrator = options.clone().database("postgres");
    let mut connection = PgConnection::connect_with(&administrator).await.unwrap();
    let database = options.get_database().unwrap();
    let (word, statement) = (if on { "on" } else { "off" }, "default_transaction_read_only");
    let alter = format!("alter database {database} set {statement} = {word}");
    sqlx::query(AssertSqlSafe(alter)).execute(&mut connection).await.unwrap();
}

async fn write(pool: &PgPool) -> Result<String, sqlx::Error> {
    let mut connection = pool.acquire().await?;
    let (database,): (String,) =
        sqlx::query_as("select current_database() from (select nextval('observation_id_seq')) as written")
            .fetch_one(&mut *connection)
            .await?;
    Ok(database)
}

/// Tries until it is there; the test runner's own limit ends a wait that is in vain.
async fn written(pool: &PgPool) -> String {
    loop {
        match write(pool).await {
            Ok(database) => return database,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

#[tokio::test]
async fn b78_the_pool_leaves_a_server_that_became_read_only_and_finds_the_other_by_itself() {
    let (first, second) = (testing::fresh().await, testing::fresh().await);
    set_read_only(&second, true).await;
    let servers = Servers::new(vec![first.clone(), second.clone()], Target::ReadWrite, SecretString::default());
    let (pool, follower) = servers.clone().pool();
    let shutdown = CancellationToken::new();
    let following = tokio::spawn(follower.run(shutdown.clone()));
    assert_eq!(Some(written(&pool).await.as_str()), first.get_database());
    // Many open sessions, all of which become read-only in one moment, as when the name moves to a standby.
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(pool.acquire().await.unwrap());
    }
    for one in &mut held {
        sqlx::query("set default_transaction_read_only = on").execute(&mut **one).await.unwrap();
    }
    drop(held);
    set_read_only(&first, true).await;
    // The first server's sessions that are open are ended by nobody: the pool must see for itself.
    assert!(write(&pool).await.is_err(), "there is no server that takes writes");
    let nowhere = servers.connect().await.map(|_| ()).unwrap_err().to_string();
    assert_eq!(nowhere.matches("takes no writes").count(), 2, "{nowhere}");
    assert!(servers.connect_to_read().await.is_err(), "a URL that asks for writes is taken at its word");
    set_read_only(&second, false).await;
    assert_eq!(Some(written(&pool).await.as_str()), second.get_database());
    shutdown.cancel();
    following.await.unwrap();
}

#[tokio::test]
async fn one_server_that_is_a_standby_can_be_read_and_a_silent_one_is_passed_over() {
    let options = testing::fresh().await;
    set_read_only(&options, true).await;
    assert!(Servers::from(options.clone()).connect_to_read().await.is_ok());
    set_read_only(&options, false).await;
    // Takes the connection and never says a word.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let mute = PgConnectOptions::new_without_pgpass().host("127.0.0.1").port(port).username("x");
    let servers = Servers::new(vec![mute.clone(), options], Target::ReadWrite, SecretString::default());
    assert!(servers.connect().await.is_ok());
    let alone = Servers::from(mute).connect_to_read().await.map(|_| ()).unwrap_err();
    assert!(alone.to_string().contains("no answer within"), "{alone}");
}

#[tokio::test]
async fn a_url_that_was_changed_is_in_use_without_a_restart() {
    let (first, second) = (testing::fresh().await, testing::fresh().await);
    let of = |options: &PgConnectOptions, given: &str| {
        Servers::new(vec![options.clone()], Target::ReadWrite, SecretString::from(given.to_owned()))
    };
    let changed = of(&second, "postgres://u:hunter2@h/d");
    assert!(!format!("{changed:?}").contains("hunter2"));
    let (pool, follower) = of(&first, "before").pool();
    let follower = follower.reading_again(Box::new(move || Some(changed.clone())));
    let shutdown = CancellationToken::new();
    let following = tokio::spawn(follower.run(shutdown.clone()));
    while Some(written(&pool).await.as_str()) != second.get_database() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    shutdown.cancel();
    following.await.unwrap();
}
