//! The server's life: made, stopped, started again, adopted.

use std::os::unix::fs::PermissionsExt;

use sqlx::Connection;
use sqlx::postgres::PgConnection;

use super::{Embedded, connect_options};

async fn value(state: &std::path::Path) -> i64 {
    let mut connection = PgConnection::connect_with(&connect_options(state).unwrap()).await.unwrap();
    sqlx::query_scalar("select count(*) from kept").fetch_one(&mut connection).await.unwrap()
}

#[tokio::test]
async fn data_outlives_the_server_and_a_server_left_running_is_adopted() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let state = folder.path();
    // As when a first start was killed: half a database lies there.
    std::fs::create_dir_all(state.join("pg/data.new.1/base")).unwrap();
    let first = Embedded::start(state, None).await.unwrap();
    assert!(!state.join("pg/data.new.1").exists());
    let mut connection = PgConnection::connect_with(&connect_options(state).unwrap()).await.unwrap();
    sqlx::query("create table kept as select 1").execute(&mut connection).await.unwrap();
    drop(connection);
    let pid = first.running.pid();
    let refused = Embedded::start(state, None).await.unwrap_err();
    assert_eq!(refused.exit, crate::error::Exit::Refused, "{refused}");
    assert_eq!(value(state).await, 1, "the first goes on");
    // As with kill -9 of the coordinator: nobody stops the server.
    drop(first);
    let second = Embedded::start(state, None).await.unwrap();
    assert_eq!(second.running.pid(), pid, "the same server");
    assert_eq!(value(state).await, 1);
    second.stop().await;
    assert!(!state.join("pg/data/postmaster.pid").exists(), "stopped");
    // A pid file of a process that is something else by now.
    std::fs::write(state.join("pg/data/postmaster.pid"), format!("{}\n", std::process::id())).unwrap();
    let third = Embedded::start(state, None).await.unwrap();
    assert_ne!(third.running.pid(), pid);
    assert_eq!(value(state).await, 1);
    third.stop().await;
}

#[tokio::test]
async fn a_server_that_dies_is_started_again() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let state = folder.path();
    let mut embedded = Embedded::start(state, None).await.unwrap();
    let killed = embedded.running.pid();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(killed), nix::sys::signal::Signal::SIGKILL).unwrap();
    let back = async {
        loop {
            let again = std::fs::read_to_string(state.join("pg/data/postmaster.pid")).unwrap_or_default();
            let other = again.lines().next().is_some_and(|pid| pid != killed.to_string());
            if other && PgConnection::connect_with(&connect_options(state).unwrap()).await.is_ok() {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        () = back => {}
        never = embedded.keep_running() => match never {},
    }
    embedded.stop().await;
}

#[tokio::test]
async fn data_of_another_version_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("pg/data")).unwrap();
    std::fs::write(folder.path().join("pg/data/PG_VERSION"), "9\n").unwrap();
    let failure = Embedded::start(folder.path(), None).await.unwrap_err().to_string();
    assert!(failure.contains("another version of Postgres"), "{failure}");
}

#[test]
fn a_path_too_long_for_a_socket_is_refused_with_a_way_out() {
    let failure = connect_options(std::path::Path::new(&format!("/tmp/{}", "x".repeat(100)))).unwrap_err();
    assert!(failure.to_string().contains("--state"), "{failure}");
}
