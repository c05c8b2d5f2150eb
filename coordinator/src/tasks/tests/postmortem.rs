//! The questions of docs/post-mortem.md, asked of rows that the store and the tasks wrote.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::AssertSqlSafe;

use super::world::{BRANCH, CANARY, FI, SERVICE, World};
use super::{CLOSED, PLANS_DONE};
use crate::store::freeze;
use crate::tasks::tally;

/// Both field cases, one after the other, ended an hour ago and counted.
async fn told() -> World {
    let mut world = World::begun_ago(Duration::from_secs(2 * 3600)).await;
    crate::reload::start(&world.app).await.unwrap();
    world.execute(format!("update config_in_force set at = '{}'", world.now())).await;
    world.pass(5).await;
    world.play().steer_branch();
    world.until("select count(*) = 1 from plan where status = 'verified'", 20).await;
    world.pass(5).await;
    world.play().heal_branch();
    world.until(PLANS_DONE, 45).await;
    world.until(CLOSED, 15).await;
    world.play().kill_node(FI);
    world.until("select count(*) = 1 from plan where status = 'verified' and subject = 'fi'", 20).await;
    world.pass(5).await;
    // The branch says nothing for a while, and its tunnel is down after that.
    world.play().silent.insert(BRANCH);
    world.pass(25).await;
    world.play().silent.clear();
    world.play().uplink_down.insert(BRANCH);
    world.pass(15).await;
    world.play().uplink_down.clear();
    world.play().dead.clear();
    world.until("select bool_and(status in ('verified', 'undone')) and count(*) = 4 from plan", 60).await;
    world.until(CLOSED, 30).await;
    let mut connection = world.app.pool.acquire().await.unwrap();
    freeze::freeze(&mut connection, "anna", "DNS provider maintenance").await.unwrap();
    freeze::thaw(&mut connection, "boris", None).await.unwrap();
    // The hour passes without anybody who judges.
    let before = world.now();
    world.app.clock.advance(Duration::from_secs(2 * 3600));
    while tally::count(&world.app, world.epoch).await.unwrap() {}
    drop(connection);
    world.execute(format!("update write_freeze set at = '{before}', thawed_at = '{before}'")).await;
    world
}

fn queries() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/queries");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
        .into_iter()
        .map(|file| (file.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read_to_string(&file).unwrap()))
        .collect()
}

/// What each answer must hold, besides being one.
const HOLDS: &[(&str, &[&str])] = &[
    ("01", &[r#""vantage": "branch-kazan""#, r#""reached": false"#, r#""verdict": "addr_silent""#]),
    ("02", &[r#""verdict": "answer_unroutable_here""#, r#""subject": "cdnjs.cloudflare.com""#, "branch-kazan"]),
    ("03", &[r#""before": ["8.6.112.0", "8.47.69.0"]"#, r#""after": ["104.26.4.10"]"#]),
    ("04", &[r#""only_from": "branch-kazan""#, "8.6.112.0"]),
    (
        "05",
        &[r#""by": "policy""#, r#""because": "node_gone""#, "95.216.10.10", "49.12.20.20", r#""purpose": "return""#],
    ),
    ("06", &[r#""says": "fails_here""#, r#""outcome": "silent""#, r#""says": "seen_elsewhere""#]),
    ("07", &[r#""what": "opened""#, r#""what": "applied""#, r#""what": "closed""#]),
    ("08", &["branch-kazan", r#""subject": "fi""#]),
    ("09", &[r#""subject": "fi""#, r#""observed_percent""#, CANARY]),
    ("10", &[r#""status": "undone""#, r#""change_to_proof_s""#]),
    ("11", &[r#""vantage": "branch-kazan""#, r#""usable_from_there": true"#]),
    ("12", &[r#""resolver": "doh-cf""#, "8.6.112.0", "104.26.4.10"]),
    ("13", &["vantage_silent", "vantage_uplink_down", "branch-kazan"]),
    ("14", &[r#""p95_ms""#, CANARY]),
    ("15", &[r#""outcome": "silent""#, "branch-kazan"]),
    ("16", &[r#""kind": "service""#, SERVICE]),
    ("17", &["anna", "boris", "froze every write", "put a configuration in force"]),
    ("18", &["branch-kazan", r#""times_offline""#]),
    ("19", &[r#""vantage": "branch-kazan""#, "wan-gw answer_ok"]),
    ("20", &["day of the log", "verdict", "figures 0 s behind"]),
];

#[tokio::test]
async fn every_question_of_the_post_mortem_has_an_answer() {
    let world = told().await;
    let one = async |sql: &'static str| -> String { sqlx::query_scalar(sql).fetch_one(&world.app.pool).await.unwrap() };
    let values = BTreeMap::from([
        ("address", "8.6.112.0".to_owned()),
        ("name", SERVICE.to_owned()),
        (
            "incident",
            one(
                "select min(id)::text from incident where vantage = 'branch-kazan' and kind = 'answer_unroutable_here'",
            )
            .await,
        ),
        ("at", one("select (applied_at - interval '1 second')::text from plan order by id limit 1").await),
        ("from", one("select (min(opened_at) - interval '1 minute')::text from incident").await),
        ("to", one("select (max(closed_at) + interval '10 minutes')::text from incident").await),
    ]);
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/post-mortem.md")).unwrap();
    let queries = queries();
    assert!(queries.len() >= 15 && queries.len() == HOLDS.len(), "{}", queries.len());
    for ((file, sql), (number, parts)) in queries.iter().zip(HOLDS) {
        assert!(file.starts_with(number), "{file}");
        assert!(page.contains(sql.trim_end()), "docs/post-mortem.md does not show docs/queries/{file} as it is");
        let mut values = values.clone();
        if *number == "01" {
            // Before a pin stands in for it.
            values.insert("at", one("select (since + interval '1 second')::text from v_reach where not reached and verdict = 'addr_silent' and address = '8.6.112.0' limit 1").await);
        }
        if *number == "03" || *number == "12" {
            values.insert("name", CANARY.to_owned());
        }
        let rows = world.asked(sql, &values).await;
        let text = rows.join("\n");
        assert!(!rows.is_empty() && rows.len() < 200, "{file}: {} rows\n{}", rows.len(), world.journal().await);
        for part in *parts {
            assert!(text.contains(part), "{file}: no {part} in\n{text}\nwith {values:?}");
        }
    }
}

#[tokio::test]
async fn uptime_is_never_told_without_what_was_observed_and_outlives_the_rows() {
    let world = told().await;
    let (known, wrong): (i64, i64) = sqlx::query_as(
        "select count(uptime_percent),
                count(*) filter (where online_s + offline_s > length_s + 0.2 or observed_percent > 100.01 or uptime_percent > 100)
         from v_uptime",
    )
    .fetch_one(&world.app.pool)
    .await
    .unwrap();
    assert!(known > 5, "{known}");
    assert_eq!(wrong, 0);
    let sql = "select coalesce(string_agg(u::text, ' ' order by hour, subject_kind, subject, vantage, resolver), '') from v_uptime u
               where hour < date_trunc('hour', now() - interval '1 hour')";
    let before: String = sqlx::query_scalar(sql).fetch_one(&world.app.pool).await.unwrap();
    assert!(!before.is_empty());
    // The rows and the verdicts go, as they do by retention.
    for statement in ["truncate observation", "delete from verdict"] {
        world.execute(statement.to_owned()).await;
    }
    let after: String = sqlx::query_scalar(sql).fetch_one(&world.app.pool).await.unwrap();
    assert_eq!(after, before);
    let cited: i64 = sqlx::query_scalar("select count(*) filter (where at is null) from v_evidence")
        .fetch_one(&world.app.pool)
        .await
        .unwrap();
    assert_eq!(cited, 0, "every observation that an incident cites is still there");
}

impl World {
    fn now(&self) -> String {
        crate::store::offset(self.app.clock.now()).to_string()
    }

    /// The rows of a query with values for its variables, as JSON.
    async fn asked(&self, sql: &str, values: &BTreeMap<&str, String>) -> Vec<String> {
        let mut filled = sql.trim_end().trim_end_matches(';').to_owned();
        for (name, value) in values {
            filled = filled.replace(&format!(":'{name}'"), &format!("'{value}'"));
        }
        assert!(!filled.contains(":'"), "{filled}");
        let statement = format!("select to_jsonb(asked)::text from ({filled}) as asked");
        sqlx::query_scalar(AssertSqlSafe(statement)).fetch_all(&self.app.pool).await.unwrap()
    }
}
