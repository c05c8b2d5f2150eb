//! P10: "who saw what" in any five minutes, from the states that held then, beside the scan of the rows themselves.
//!
//! The rows are made on the database's own server, in the coordinator's schema: 200 vantages ask 5 resolvers for 20
//! names every 10 s, so that five minutes are 600,000 rows whatever the size of the log. A tenth of the questions fails
//! at a time, each for about 50 minutes. What the coordinator would have said of them is made by the same rule, and the
//! two answers are held against each other before anything is measured.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgPool};
use tokio::process::Command;

use super::figure::{Figure, median};
use crate::clock::now;
use crate::lab::process::Process;
use crate::lab::programs;

/// Questions a round: 200 vantages, 20 names, 5 resolvers.
const SERIES: i64 = 20_000;
/// Seconds between two rounds.
const ROUND_S: i64 = 10;
/// Rounds stored by one statement: a million rows.
const ROUNDS_AT_ONCE: i64 = 50;
/// Windows that are asked for.
const WINDOWS: i64 = 11;
/// Length of a window.
const WINDOW_S: i64 = 300;
/// Longest an answer from transitions may take, ms.
const WITHIN_MS: f64 = 50.0;
/// A scan of the rows may be this part of it at least.
const TIMES_FASTER: f64 = 20.0;
/// initdb, migrations and the first start, on a busy machine.
const START_MAX: Duration = Duration::from_secs(120);
/// A row with its share of the indexes, bytes, rounded up: what must be free on the disk, with as much again for the
/// journal.
const ROW_BYTES: u64 = 260;

/// Options of `bench query`.
#[derive(Debug, clap::Args)]
pub struct QueryOptions {
    /// One JSON object a line.
    #[arg(long)]
    pub json: bool,
    /// Millions of rows in the log. 100 take about half an hour and 30 GB.
    #[arg(long, value_name = "MILLIONS", default_value_t = 20, value_parser = clap::value_parser!(i64).range(1..=200))]
    pub rows: i64,
    /// The coordinator's binary; without it the one beside this program.
    #[arg(long, value_name = "FILE")]
    pub coordinator: Option<std::path::PathBuf>,
}

/// Measures; the database is below `directory`.
///
/// # Errors
/// The database does not come up or refuses, the disk is too small, or the two ways to ask disagree.
pub async fn figures(options: &QueryOptions, directory: &Path) -> Result<Vec<Figure>> {
    let binary = match &options.coordinator {
        Some(binary) => binary.clone(),
        None => programs::ours("parallax")?,
    };
    let rounds = options.rows * 1_000_000 / SERIES;
    enough_disk(directory, options.rows.unsigned_abs())?;
    let (mut coordinator, database) = start(&binary, directory).await?;
    let began = now();
    fill(&database, rounds).await?;
    let filled_s = began.elapsed().as_secs_f64();
    let size: i64 = sqlx::query_scalar(
        "select sum(pg_total_relation_size(inhrelid))::bigint from pg_inherits where inhparent = 'observation'::regclass",
    )
    .fetch_one(&database)
    .await?;
    let origin: String = sqlx::query_scalar("select at::text from bench_origin").fetch_one(&database).await?;
    let states: i64 = sqlx::query_scalar("select count(*) from verdict").fetch_one(&database).await?;
    let (mut quick, mut scanned) = (Vec::new(), Vec::new());
    for window in 0..WINDOWS {
        // Evenly over the log, the first and the last minutes too.
        let from = window * (rounds * ROUND_S - WINDOW_S) / (WINDOWS - 1);
        agree(&database, &Window::of(&origin, from)).await?;
        quick.push(asked(&database, TRANSITIONS, &Window::of(&origin, from)).await?);
        scanned.push(asked(&database, SCAN, &Window::of(&origin, from)).await?);
    }
    database.close().await;
    coordinator.stop(START_MAX).await?;
    let note = format!(
        "{} million rows, {:.1} GB, {states} states that held; any 5 minutes, each asked both ways once before it is measured; filled in {filled_s:.0} s",
        options.rows,
        gigabytes(size)
    );
    let worst = quick.iter().copied().fold(0.0, f64::max);
    let faster = median(&scanned).zip(median(&quick)).map(|(scan, quick)| quick / scan);
    let mut figures = vec![
        Figure::of_runs("P10.who_saw_what", "ms", quick, Some(WITHIN_MS)).note(&note),
        Figure::new("P10.worst", "ms", Some(worst), Some(WITHIN_MS)).note("the slowest of those windows"),
        Figure::of_runs("P10.row_scan", "ms", scanned, None).note("the same question, of the rows of the log"),
    ];
    figures.push(
        Figure::new("P10.part_of_row_scan", "ratio", faster, Some(1.0 / TIMES_FASTER))
            .note("from transitions, divided by the scan of the rows: at most a twentieth"),
    );
    Ok(figures)
}

/// What each vantage saw, from the states that held: one row for each vantage, name, resolver and state.
const TRANSITIONS: &str = "
    select vantage, subject, resolver, presence = 'online' as well
    from v_state
    where during && tstzrange($1, $2) and subject_kind = 'answer'";

/// The same, from the rows.
const SCAN: &str = "
    select vantage, subject, resolver, outcome = 'answered' as well
    from v_observation
    where received_at >= $1 and received_at < $2 and kind = 'resolution'
    group by 1, 2, 3, 4";

/// Five minutes, as SQL.
struct Window {
    from: String,
    to: String,
}

impl Window {
    fn of(origin: &str, second: i64) -> Self {
        let at = |second: i64| format!("(timestamptz '{origin}' + interval '{second} seconds')");
        Self { from: at(second), to: at(second + WINDOW_S) }
    }

    fn in_question(&self, question: &str) -> String {
        question.replace("$1", &self.from).replace("$2", &self.to)
    }
}

/// Asks for a window: milliseconds until the last row was there. The rows themselves stay where they are.
async fn asked(database: &PgPool, question: &str, window: &Window) -> Result<f64> {
    let statement = format!(
        "select count(vantage) + 0 * (count(subject) + count(resolver) + count(well)) from ({}) as asked",
        window.in_question(question)
    );
    let began = now();
    let rows: i64 = sqlx::query_scalar(AssertSqlSafe(statement)).fetch_one(database).await?;
    let ms = began.elapsed().as_secs_f64() * 1000.0;
    ensure!(rows >= SERIES, "{rows} rows in the window from {}", window.from);
    Ok(ms)
}

/// Both ways say the same, but for what changed before the first row of the window: nothing is measured that is not
/// right. It also brings the window into memory, for both alike.
async fn agree(database: &PgPool, window: &Window) -> Result<()> {
    let (states, rows) = (window.in_question(TRANSITIONS), window.in_question(SCAN));
    let statement = format!(
        "with states as (select distinct * from ({states}) as each), seen as ({rows})
         select (select count(*) from seen), (select count(*) from states),
                (select count(*) from (select * from seen except select * from states) as missed)"
    );
    let (seen, held, missed): (i64, i64, i64) = sqlx::query_as(AssertSqlSafe(statement)).fetch_one(database).await?;
    ensure!(
        missed == 0 && held <= seen + seen / 50,
        "of {seen} things seen from {} on, the states miss {missed}; they hold {held}",
        window.from
    );
    Ok(())
}

async fn start(binary: &Path, directory: &Path) -> Result<(Process, PgPool)> {
    let mut command = Command::new(binary);
    fs::write(
        directory.join("parallax.yaml"),
        format!(
            "version: 1\nlisten: {{ web: \"unix:{}\", grpc: \"127.0.0.1:0\" }}\nvantages: [ {{ name: bench }} ]\n\
             resolvers: [ {{ name: live, kind: system, role: live }} ]\ncanaries: [ {{ name: example.com }} ]\n\
             controls: [ {{ name: c, address: 1.0.0.1, port: 443, server_name: one.one.one.one }} ]\n",
            directory.join("web.sock").display()
        ),
    )?;
    command.env_remove("DATABASE_URL").arg("serve").arg("--config").arg(directory.join("parallax.yaml"));
    command.arg("--state").arg(directory.join("state")).arg("--log").arg("warn");
    let log = directory.join("coordinator.log");
    let mut coordinator = Process::start("parallax", &log, command)?;
    let serving = async || fs::read_to_string(&log).is_ok_and(|log| log.contains("parallax: ready"));
    coordinator.until("serving", START_MAX, serving).await?;
    let options = PgConnectOptions::new_without_pgpass()
        .socket(directory.join("state/pg/socket"))
        .username("parallax")
        .database("parallax")
        .application_name("parallax-bench");
    Ok((coordinator, PgPoolOptions::new().max_connections(1).connect_lazy_with(options)))
}

/// Makes rows and states. A question fails in each stretch of 3,000 s whose hash says so.
async fn fill(database: &PgPool, rounds: i64) -> Result<()> {
    for statement in [
        // The figures of the hours are another measurement.
        "insert into history_position (observation_id, received_at, hour) values (9000000000000000000, now(), '9999-01-01')
         on conflict (one) do update set observation_id = excluded.observation_id, hour = excluded.hour",
        "create table bench_origin as select date_trunc('second', now()) as at",
        "insert into vantage (name) select 'vantage-' || n from generate_series(1, 200) as n",
        "create function bench_well(series bigint, second bigint) returns boolean immutable parallel safe language sql
         return (hashint8(series * 100000 + (second + series * 37 % 3000) / 3000) & 2147483647) % 10 <> 0",
        "create table bench_series as
         select s, v.id as vantage_id, v.name as vantage, 'name-' || s % 20 || '.example' as subject,
                'resolver-' || s / 20 % 5 as resolver
         from generate_series(0, 19999) as s
         join (select id, name, row_number() over (order by id) - 1 as n from vantage where name like 'vantage-%') as v
              on v.n = s / 100
         order by s",
    ] {
        sqlx::query(statement).execute(database).await?;
    }
    sqlx::query("update bench_origin set at = at - $1 * interval '1 second' - interval '10 minutes'")
        .bind(f64::from(i32::try_from(rounds * ROUND_S)?))
        .execute(database)
        .await?;
    days(database, rounds).await?;
    let mut done = 0;
    while done < rounds {
        let last = (done + ROUNDS_AT_ONCE).min(rounds);
        sqlx::query(
            "insert into observation (received_at, observed_at, vantage_id, boot_id, lane, sequence, late, purpose,
                                      duration_us, kind, subject, resolver, family, outcome, addresses, ttl_s, detail)
             select t, t, vantage_id, '00000000-0000-0000-0000-000000000001', 'routine', r, false, 'scheduled',
                    20000 + s, 'resolution', subject, resolver, 4,
                    case when well then 'answered' else 'servfail' end,
                    case when well then array['104.26.4.10', '104.26.5.10']::inet[] else '{}' end,
                    case when well then 300 else 0 end, '{\"rcode\": 0}'
             from (select r, b.s, b.vantage_id, b.subject, b.resolver, bench_well(b.s, r * 10) as well,
                          (select at from bench_origin) + r * interval '10 seconds' + b.s * interval '400 microseconds' as t
                   from generate_series($1::bigint, $2::bigint - 1) as r
                   cross join lateral (select * from bench_series where r is not null order by s) as b) as made",
        )
        .bind(done)
        .bind(last)
        .execute(database)
        .await
        .context("filling the log")?;
        done = last;
        eprintln!("bench: {} million rows", done * SERIES / 1_000_000);
    }
    sqlx::query(
        "insert into verdict (at, until, vantage, subject_kind, subject, resolver, verdict, presence, reason, evidence)
         select o.at + began * interval '1 second' + s * interval '400 microseconds',
                o.at + lead(began) over each * interval '1 second' + s * interval '400 microseconds',
                vantage, 'answer', subject, resolver,
                case when well then 'answer_ok' else 'answer_servfail' end, case when well then 'online' else 'offline' end,
                jsonb_build_object('addresses', array['104.26.4.10', '104.26.5.10'], 'because', 'measured', 'probes', 3), '{1,2,3}'
         from bench_origin o,
              (select b.*, began, bench_well(s, began) as well, lag(bench_well(s, began)) over (partition by s order by began) as was
               from bench_series b, generate_series(0, $1::bigint / 300 + 1) as k,
                    lateral (select greatest(0, (k * 3000 - s * 37 % 3000 + 9) / 10 * 10)::bigint as began) as at_round
               where began < $1 * 10) as looked
         where was is distinct from well
         window each as (partition by s order by began)
         order by 1",
    )
    .bind(rounds)
    .execute(database)
    .await
    .context("filling the states")?;
    // What autovacuum does within minutes of such a load.
    for statement in ["vacuum (analyze) verdict", "vacuum (analyze) observation"] {
        sqlx::query(statement).execute(database).await?;
    }
    Ok(())
}

/// Days of the log that the coordinator has not made because they are long over.
async fn days(database: &PgPool, rounds: i64) -> Result<()> {
    for n in 0..=(rounds * ROUND_S / 86_400 + 2) {
        let statement = format!(
            "do $$ declare day date := (now() at time zone 'UTC')::date - {n}; begin
                 execute format('create table if not exists observation_%s partition of observation for values from (%L) to (%L)',
                     to_char(day, 'YYYYMMDD'), day::timestamp at time zone 'UTC', (day + 1)::timestamp at time zone 'UTC');
             end $$"
        );
        sqlx::query(AssertSqlSafe(statement)).execute(database).await?;
    }
    Ok(())
}

fn enough_disk(directory: &Path, millions: u64) -> Result<()> {
    let disk = nix::sys::statvfs::statvfs(directory).context("asking for the room on the disk")?;
    let free = disk.blocks_available() * disk.fragment_size();
    let needed = millions * 1_000_000 * ROW_BYTES + (4 << 30);
    ensure!(
        free > needed,
        "{} has {} GB free and {millions} million rows need {}; give fewer with --rows, or another place with TMPDIR",
        directory.display(),
        free >> 30,
        needed >> 30
    );
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "one digit is shown")]
fn gigabytes(bytes: i64) -> f64 {
    bytes as f64 / 1e9
}
