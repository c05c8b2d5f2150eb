//! The database's disk is full: nothing is acknowledged, nothing is lost, and nobody is needed when there is room again.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use parallax_decide::observation::{ControlCheck, Fact, Lane, Outcome, Purpose};
use serde_json::json;
use sqlx::AssertSqlSafe;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::committer;
use crate::clock::monotonic;
use crate::state::App;
use crate::store::StoreError;
use crate::store::commit::{Delivery, Item, commit};
use crate::store::log::NewObservation;
use crate::store::vantage::{self, VantageId};
use crate::testing;

/// A file system of a few megabytes, gone with the test.
pub(super) struct Small(pub(super) PathBuf);

impl Small {
    /// None where one may not mount.
    pub(super) fn mount(owner: &Path) -> Option<Self> {
        let folder = tempfile::Builder::new().prefix("parallax-small-").tempdir().unwrap().keep();
        let owner = std::fs::metadata(owner).unwrap();
        let options = format!("size=8m,mode=0700,uid={},gid={}", owner.uid(), owner.gid());
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&folder).output();
        mounted.is_ok_and(|done| done.status.success()).then_some(Self(folder))
    }

    pub(super) fn enlarge(&self) {
        let done = Command::new("mount").args(["-o", "remount,size=128m"]).arg(&self.0).status().unwrap();
        assert!(done.success());
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // The server still has its files open; they go with it.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// 200 rows of about a kilobyte that no compression makes smaller.
fn delivery(vantage: VantageId, from: i64) -> Delivery {
    let items = (from..from + 200)
        .map(|sequence| {
            let noise: String = (0..28).map(|_| Uuid::new_v4().simple().to_string()).collect();
            let content = NewObservation {
                of_earlier_start: false,
                late_after: Duration::from_secs(3600),
                age: Duration::ZERO,
                purpose: Purpose::Scheduled,
                task_id: None,
                duration_us: 1,
                fact: Fact::ControlCheck(ControlCheck { control: "c".parse().unwrap(), outcome: Outcome::TlsOk }),
                detail: json!({ "noise": noise }),
                lost_ago: None,
            };
            Item { sequence, content: Ok(content) }
        })
        .collect();
    Delivery { vantage, boot: Uuid::from_u128(1), lane: Lane::Routine, received: monotonic(), items, stray: vec![] }
}

/// Puts today's rows on the small disk.
async fn move_today(app: &App, small: &Small) {
    let today: String =
        sqlx::query_scalar("select to_char(now() at time zone 'UTC', 'YYYYMMDD')").fetch_one(&app.pool).await.unwrap();
    for statement in [
        format!("create tablespace small_{} location '{}'", std::process::id(), small.0.display()),
        format!("alter table observation_{today} set tablespace small_{}", std::process::id()),
    ] {
        sqlx::query(AssertSqlSafe(statement)).execute(&app.pool).await.unwrap();
    }
}

/// The server lives on after this test: it must miss no file.
async fn move_back(app: &App) {
    let today: String = sqlx::query_scalar("select relname::text from pg_class where reltablespace <> 0 and relkind = 'r' and relname like 'observation\\_%'")
        .fetch_one(&app.pool)
        .await
        .unwrap();
    for statement in [
        format!("alter table {today} set tablespace pg_default"),
        "checkpoint".to_owned(),
        format!("drop tablespace small_{}", std::process::id()),
    ] {
        sqlx::query(AssertSqlSafe(statement)).execute(&app.pool).await.unwrap();
    }
}

#[tokio::test]
async fn while_the_databases_disk_is_full_nothing_is_acknowledged_and_then_everything_is_stored() {
    let app = testing::app().await;
    let data: String = sqlx::query_scalar("show data_directory").fetch_one(&app.pool).await.unwrap();
    let Some(small) = Small::mount(Path::new(&data)) else {
        assert!(std::env::var_os("CI").is_none(), "CI must be able to mount a small disk");
        eprintln!("skipped: nothing may be mounted here");
        return;
    };
    move_today(&app, &small).await;
    let mut connection = app.pool.acquire().await.unwrap();
    let vantage = vantage::find_or_make(&mut connection, &"de-fra".parse().unwrap()).await.unwrap().id;
    let shutdown = CancellationToken::new();
    let (committer, task) = committer::start(Arc::clone(&app), shutdown);
    let mut next = 1;
    let mut waiting = Box::pin(committer.clone().store(delivery(vantage, next)));
    // Until one is not stored, and the database says why.
    loop {
        match tokio::time::timeout(Duration::from_secs(2), &mut waiting).await {
            Ok(stored) => {
                stored.unwrap();
                next += 200;
                assert!(next < 40_000, "eight megabytes are full by now");
                waiting = Box::pin(committer.clone().store(delivery(vantage, next)));
            }
            Err(_) => match commit(&mut connection, &[delivery(vantage, 1_000_000)]).await {
                Err(StoreError::Database(sqlx::Error::Database(error))) => {
                    assert_eq!(error.code().as_deref(), Some("53100"), "{error}");
                    break;
                }
                other => panic!("slow, and not full: {other:?}"),
            },
        }
    }
    let stored: i64 = sqlx::query_scalar("select count(*) from observation").fetch_one(&app.pool).await.unwrap();
    assert_eq!(stored, next - 1, "what was acknowledged is there, what was not is not");
    small.enlarge();
    waiting.await.unwrap();
    let stored: i64 = sqlx::query_scalar("select count(*) from observation").fetch_one(&app.pool).await.unwrap();
    assert_eq!(stored, next + 199);
    drop(committer);
    task.await.unwrap();
    move_back(&app).await;
}
