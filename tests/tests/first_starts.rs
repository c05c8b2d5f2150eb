//! B89: first starts at the same moment, a start that was killed half-way, and a program that is older than the schema.

#![expect(clippy::unwrap_used, reason = "a panic is how a test says no, in its helpers too")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use parallax_tests::lab::building;
use parallax_tests::lab::database::Database;
use parallax_tests::lab::process::Process;
use parallax_tests::lab::programs;
use parallax_tests::lab::run_dir::{RunDir, private, write_private};
use sqlx::Connection;

/// Several starts on a busy machine.
const READY_WITHIN: Duration = Duration::from_secs(120);

struct Starter {
    run: RunDir,
    database: Database,
}

impl Starter {
    async fn new() -> Self {
        let run = RunDir::create().unwrap();
        let database = Database::start(run.path(), &run.path().join("database.log"), false).await.unwrap();
        Self { run, database }
    }

    fn url(&self) -> String {
        self.url_of("parallax")
    }

    fn url_of(&self, database: &str) -> String {
        format!("postgres:///{database}?host={}&user=parallax", self.database.home().display())
    }

    /// Coordinators of one installation share its authority, which the first one made: here over another database, so that
    /// this one has seen nobody.
    async fn share_authority(&self, names: &[&str]) {
        let mut connection = sqlx::PgConnection::connect(&self.url()).await.unwrap();
        sqlx::query("create database elsewhere").execute(&mut connection).await.unwrap();
        let mut first = self.start_over("first", "elsewhere");
        self.ready("first", &mut first).await;
        first.kill9().await.unwrap();
        let made = self.run.path().join("first/state/ca");
        for name in names {
            let state = self.run.path().join(name).join("state");
            private(state.parent().unwrap()).unwrap();
            private(&state).unwrap();
            let copied = std::process::Command::new("cp").arg("-a").args([&made, &state.join("ca")]).status().unwrap();
            assert!(copied.success());
        }
    }

    /// A coordinator with sockets and a state of its own.
    fn start(&self, name: &str) -> Process {
        self.start_over(name, "parallax")
    }

    fn start_over(&self, name: &str, database: &str) -> Process {
        let home = self.run.path().join(name);
        private(&home).unwrap();
        // What an earlier start said is not this one's.
        let _ = std::fs::remove_file(log(&home));
        let file = home.join("parallax.yaml");
        let listen = format!("listen: {{ web: \"unix:{}\", grpc: \"127.0.0.1:0\" }}", home.join("web.sock").display());
        write_private(&file, &format!("version: 1\n{listen}\n{CONFIGURATION}")).unwrap();
        let mut command = tokio::process::Command::new(programs::ours("parallax").unwrap());
        command.arg("serve").arg("--config").arg(&file).arg("--state").arg(home.join("state"));
        command.args(["--database-url", &self.url_of(database)]);
        Process::start(name, &log(&home), command).unwrap()
    }

    async fn ready(&self, name: &str, process: &mut Process) {
        let log = log(&self.run.path().join(name));
        let says = async || std::fs::read_to_string(&log).is_ok_and(|text| text.contains("parallax: ready"));
        process.until("serving", READY_WITHIN, says).await.unwrap();
    }

    async fn migrations(&self) -> i64 {
        let mut connection = sqlx::PgConnection::connect(&self.url()).await.unwrap();
        sqlx::query_scalar("select count(*) from _sqlx_migrations where success")
            .fetch_one(&mut connection)
            .await
            .unwrap()
    }
}

const CONFIGURATION: &str = r#"policy: fast
vantages: [ { name: here, failure_domain: here, upstream: doh } ]
resolvers:
  - { name: live, kind: system, role: live }
  - { name: doh, kind: doh, url: "https://cloudflare-dns.com/dns-query", bootstrap: [1.1.1.1], role: primary }
canaries: [ { name: example.com, port: 443, tls: true } ]
controls:
  - { name: control-cf, address: 1.0.0.1, server_name: one.one.one.one }
  - { name: control-google, address: 8.8.4.4, server_name: dns.google }
"#;

fn log(home: &Path) -> PathBuf {
    home.join("log")
}

fn run(test: impl Future<Output = ()>) {
    building::ours(Path::new(env!("CARGO_BIN_EXE_parallax-lab")), "parallax").unwrap();
    tokio::runtime::Runtime::new().unwrap().block_on(test);
}

#[test]
fn b89_three_first_starts_at_the_same_moment_all_come_up() {
    run(async {
        let starter = Starter::new().await;
        let names = ["one", "two", "three"];
        starter.share_authority(&names).await;
        let mut all: Vec<Process> = names.iter().map(|name| starter.start(name)).collect();
        for (name, process) in names.iter().zip(&mut all) {
            starter.ready(name, process).await;
        }
        let mut connection = sqlx::PgConnection::connect(&starter.url()).await.unwrap();
        let holders: i64 = sqlx::query_scalar("select count(*) from lease").fetch_one(&mut connection).await.unwrap();
        assert_eq!(holders, 1);
        for process in &mut all {
            process.kill9().await.unwrap();
        }
    });
}

#[test]
fn b89_a_start_that_is_killed_at_any_moment_is_taken_up_and_a_newer_schema_is_refused() {
    run(async {
        let starter = Starter::new().await;
        // From before its first word with the database until it is nearly done.
        for round in 0_u64..8 {
            let mut killed = starter.start("killed");
            tokio::time::sleep(Duration::from_millis(40 * round * round)).await;
            killed.kill9().await.unwrap();
        }
        let mut after = starter.start("killed");
        starter.ready("killed", &mut after).await;
        let migrations = starter.migrations().await;
        after.kill9().await.unwrap();
        assert!(migrations > 0);
        let mut connection = sqlx::PgConnection::connect(&starter.url()).await.unwrap();
        sqlx::query(
            "insert into _sqlx_migrations (version, description, success, checksum, execution_time)
             values (9999, 'of a later version', true, '\\x00', 0)",
        )
        .execute(&mut connection)
        .await
        .unwrap();
        let mut old = starter.start("old");
        let home = starter.run.path().join("old");
        let ended = loop {
            if let Some(ended) = old.ended() {
                break ended;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let said = std::fs::read_to_string(log(&home)).unwrap();
        assert!(said.contains("newer than this program") && !said.contains("parallax: ready"), "{ended}\n{said}");
    });
}
