//! Deciding alone: how much of a processor it takes at 15,000 observations a second, how soon a verdict follows its
//! rows, how fast it catches up, and that what it remembers does not grow with the log.
//!
//! The rows are made on the database's own server, in the coordinator's schema, and committed in small parts as agents'
//! batches are: 1,000 vantages, each with 16 facts a round, which at 15,000 rows a second measure everything about once a
//! second. A hundredth of the vantages loses one name for 20 s in every 40, so that verdicts change and incidents open
//! and close meanwhile. The coordinator has no agents: its processor time is that of deciding, with the hourly figures
//! that it keeps of the same rows.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use sqlx::{AssertSqlSafe, PgPool};

use super::figure::{Figure, median, p95};
use super::fleet::facts::{CANARIES, CONTROLS, RESOLVERS};
use super::fleet::vantage;
use super::installation::Installation;
use super::proc;
use crate::clock;

/// Rows a second that one processor must keep up with.
const RATE: i64 = 15_000;
/// Vantages that measure.
const VANTAGES: u32 = 1_000;
/// Vantages that are heard for the first time in the middle of it: each tells how soon a verdict follows its rows.
const MARKERS: u32 = 48;
/// From one part of the feed to the next.
const PART: Duration = Duration::from_millis(100);
/// From one marker to the next.
const MARK_EVERY: Duration = Duration::from_secs(2);
/// P11 lets detection take 5 % and 100 ms longer than theory has it, at the 95th percentile: of the 18 s that policy
/// `default` takes for a dead node, ms.
const LAG_GOAL_MS: f64 = 1_000.0;
/// Memory at the end may be this part of that in the middle.
const GROWTH_GOAL: f64 = 1.1;
/// A fault lasts so long, and so long again everything is well.
const SWING_S: u64 = 20;
/// Rounds that are caught up with in one go.
const BACKLOG_ROUNDS: i64 = 60;
/// Longest wait for a verdict.
const VERDICT_MAX: Duration = Duration::from_secs(240);

/// Options of `bench detect`.
#[derive(Debug, clap::Args)]
pub struct DetectOptions {
    /// One JSON object a line.
    #[arg(long)]
    pub json: bool,
    /// How long rows are fed.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(10..=80))]
    pub seconds: u64,
    /// The coordinator's binary; without it the one beside this program.
    #[arg(long, value_name = "FILE")]
    pub coordinator: Option<PathBuf>,
}

/// Measures; the database is below `directory`.
///
/// # Errors
/// Something does not start, a verdict does not come, or a row could not be read.
pub async fn figures(binary: &Path, directory: &Path, long: Duration) -> Result<Vec<Figure>> {
    let mut installation = Installation::start(binary, directory, VANTAGES + MARKERS, false).await?;
    let database = installation.database.clone();
    prepare(&database).await?;
    let mut feed = Feed { database: database.clone(), next: 0, marks: 0 };
    // Until everybody has been heard and every subject has a verdict.
    feed.at_rate(Duration::from_secs(6), &mut Vec::new()).await?;
    feed.mark().await?;

    let pid = installation.pid()?;
    let (before, began, first) = (proc::cpu_s(pid)?, clock::now(), feed.next);
    let mut lags = Vec::new();
    feed.at_rate(long / 2, &mut lags).await?;
    let middle = proc::memory(pid)?.rss;
    feed.at_rate(long / 2, &mut lags).await?;
    let end = proc::memory(pid)?.rss;
    let seconds = began.elapsed().as_secs_f64();
    let (cores, rate) = ((proc::cpu_s(pid)? - before) / seconds, rows(feed.next - first) / seconds);

    let (before, began, first) = (proc::cpu_s(pid)?, clock::now(), feed.next);
    for _ in 0..BACKLOG_ROUNDS {
        feed.rows(feed.round().await?).await?;
    }
    feed.mark().await?;
    let (caught_up_s, spent_s) = (began.elapsed().as_secs_f64(), proc::cpu_s(pid)? - before);
    let backlog = rows(feed.next - first);
    let grown = proc::memory(pid)?.rss;

    let (verdicts, incidents, unreadable): (i64, i64, i64) = sqlx::query_as(
        "select (select count(*) from verdict), (select count(*) from incident), (select count(*) from observation_unreadable)",
    )
    .fetch_one(&database)
    .await?;
    ensure!(unreadable == 0, "{unreadable} rows could not be read: the bench makes rows of another version");
    ensure!(incidents > 0, "no incident was opened: the faults of the bench are not seen");
    let figures = vec![
        Figure::new("detect.cores", "cores", Some(cores), Some(1.0)).note(&format!(
            "deciding at {rate:.0} rows/s of {VANTAGES} vantages for {seconds:.0} s; {verdicts} verdicts and {incidents} incidents in all"
        )),
        Figure::at_least("detect.rate", "rows/s", Some(rate), 0.99 * rows(RATE)),
        Figure::new("detect.lag", "ms", p95(&lags), Some(LAG_GOAL_MS)).note(&format!(
            "p95 of {}, from the commit of a vantage's first rows to its first verdict; median {:.0}",
            lags.len(),
            median(&lags).unwrap_or(f64::NAN)
        )),
        Figure::new("detect.catching_up", "rows/s", Some(backlog / caught_up_s), None)
            .note(&format!("{backlog:.0} rows as fast as Postgres makes them on the same processors, until the verdict behind them")),
        Figure::at_least("detect.of_one_core", "rows/s", Some(backlog / spent_s), rows(RATE))
            .note("the same rows, divided by the processor time they took"),
        Figure::new("detect.growth", "ratio", Some(kib(end) / kib(middle)), Some(GROWTH_GOAL)).note(&format!(
            "resident memory at the end, divided by that in the middle: {:.1} and {:.1} MiB; after the backlog {:.1}",
            kib(end) / 1024.0,
            kib(middle) / 1024.0,
            kib(grown) / 1024.0
        )),
    ];
    database.close().await;
    installation.stop().await?;
    Ok(figures)
}

#[expect(clippy::cast_precision_loss, reason = "a count of rows")]
fn rows(count: i64) -> f64 {
    count as f64
}

#[expect(clippy::cast_precision_loss, reason = "KiB of memory")]
fn kib(memory: u64) -> f64 {
    memory as f64
}

/// What is fed, from a table with one round of everybody's facts.
struct Feed {
    database: PgPool,
    /// Number of the next row.
    next: i64,
    /// Markers used up.
    marks: u32,
}

impl Feed {
    async fn round(&self) -> Result<i64> {
        Ok(sqlx::query_scalar("select count(*) from bench_fact").fetch_one(&self.database).await?)
    }

    /// Feeds at the rate, with a marker now and then; how long its verdict took, in ms, is added to `lags`.
    async fn at_rate(&mut self, long: Duration, lags: &mut Vec<f64>) -> Result<()> {
        let (began, from) = (clock::now(), self.next);
        let mut marked_at: Option<Instant> = None;
        let mut waiting: Option<(String, Instant)> = None;
        while began.elapsed() < long {
            let due = from + i64::try_from(began.elapsed().as_micros())? * RATE / 1_000_000;
            if due > self.next {
                self.rows(due - self.next).await?;
            }
            if waiting.is_none() && marked_at.is_none_or(|at| at.elapsed() >= MARK_EVERY) {
                let marker = self.appear().await?;
                marked_at = Some(clock::now());
                waiting = Some((marker, clock::now()));
            }
            let part_ends = clock::now() + PART;
            while clock::now() < part_ends {
                if let Some((marker, since)) = &waiting
                    && heard(&self.database, marker).await?
                {
                    lags.push(since.elapsed().as_secs_f64() * 1000.0);
                    waiting = None;
                }
                tokio::time::sleep(PART / 10).await;
            }
        }
        Ok(())
    }

    /// The next rows, committed at once, and told as a batch is.
    async fn rows(&mut self, count: i64) -> Result<()> {
        sqlx::query(
            "with round as (select count(*) as size from bench_fact),
                  stored as (
                 insert into observation (observed_at, vantage_id, boot_id, lane, sequence, late, purpose, duration_us, kind,
                                          subject, resolver, family, address, port, outcome, stage, addresses, ttl_s,
                                          attempts, attempts_connected, detail)
                 select clock_timestamp(), f.vantage_id, '00000000-0000-0000-0000-000000000001', 'routine', g.n, false,
                        'scheduled', 9000 + g.n % 5000, f.kind, f.subject, f.resolver, f.family, f.address, f.port,
                        case when f.swings and extract(epoch from now())::bigint / $3 % 2 = 1 then 'silent' else f.outcome end,
                        f.stage, f.addresses, f.ttl_s, f.attempts,
                        case when f.swings and extract(epoch from now())::bigint / $3 % 2 = 1 then 0 else f.attempts_connected end,
                        f.detail
                 from generate_series($1, $1 + $2 - 1) as g(n), round, bench_fact f
                 where f.n = g.n % round.size
                 order by g.n
                 returning 1)
             select count(*), pg_notify('observations', '0') from stored",
        )
        .bind(self.next)
        .bind(count)
        .bind(i64::try_from(SWING_S)?)
        .execute(&self.database)
        .await?;
        self.next += count;
        Ok(())
    }

    /// The controls of a vantage that nobody has heard before; its name.
    async fn appear(&mut self) -> Result<String> {
        ensure!(self.marks < MARKERS, "all {MARKERS} markers are used up");
        let name = vantage(VANTAGES + self.marks);
        self.marks += 1;
        sqlx::query(AssertSqlSafe(format!(
            "with stored as (
                 insert into observation (observed_at, vantage_id, boot_id, lane, sequence, late, purpose, duration_us, kind,
                                          subject, address, outcome, detail)
                 select clock_timestamp(), v.id, '00000000-0000-0000-0000-000000000001', 'urgent', g.n, false, 'scheduled',
                        9000, 'control_check', c.name, '1.0.0.1', 'tls_ok', {CONTROL_DETAIL}
                 from vantage v, generate_series(0, 1) as g(n), unnest($2::text[]) as c(name)
                 where v.name = $1
                 returning 1)
             select count(*), pg_notify('observations', '0') from stored"
        )))
        .bind(&name)
        .bind(CONTROLS.as_slice())
        .execute(&self.database)
        .await?;
        Ok(name)
    }

    /// A marker, and its verdict.
    async fn mark(&mut self) -> Result<()> {
        let marker = self.appear().await?;
        let since = clock::now();
        while !heard(&self.database, &marker).await? {
            if since.elapsed() > VERDICT_MAX {
                bail!("no verdict about {marker} within {VERDICT_MAX:?}");
            }
            tokio::time::sleep(PART / 10).await;
        }
        Ok(())
    }
}

/// As agents send it.
const CONTROL_DETAIL: &str = "jsonb_build_object('failures', 0, 'checks', 60, 'clock_offset_ms', 3)";

/// Whether a vantage is known to be well.
async fn heard(database: &PgPool, vantage: &str) -> Result<bool> {
    Ok(sqlx::query_scalar(
        "select exists (select from verdict where subject_kind = 'vantage' and subject = $1 and verdict = 'vantage_ok')",
    )
    .bind(vantage)
    .fetch_one(database)
    .await?)
}

/// The round of everybody: controls, then each name by each resolver, its two addresses, and the endpoint.
async fn prepare(database: &PgPool) -> Result<()> {
    sqlx::query("insert into vantage (name) select * from unnest($1::text[]) on conflict do nothing")
        .bind((0..VANTAGES + MARKERS).map(vantage).collect::<Vec<_>>())
        .execute(database)
        .await?;
    sqlx::query(AssertSqlSafe(format!(
        "create table bench_fact as
         select row_number() over (order by v.id, f.turn) - 1 as n, v.id as vantage_id, f.*,
                f.kind = 'connection' and f.subject = $1[1] and v.name like '%07' as swings
         from (select * from vantage order by name limit $4) as v,
              (select 1 as turn, 'control_check' as kind, c as subject, null::text as resolver, null::smallint as family,
                      '1.0.0.1'::inet as address, null::integer as port, 'tls_ok' as outcome, null::text as stage,
                      null::inet[] as addresses, null::integer as ttl_s, null::smallint as attempts,
                      null::smallint as attempts_connected, {CONTROL_DETAIL} as detail
               from unnest($2::text[]) as c
               union all
               select 2, 'resolution', name, resolver, 4::smallint, null, null, 'answered', null,
                      array['151.101.1.57', '151.101.65.57']::inet[], 300, null, null, jsonb_build_object('rcode', 0)
               from unnest($1::text[]) as name, unnest($3::text[]) as resolver
               union all
               select 3, 'connection', name, null, null, a::inet, 443, 'tls_ok', null, null, null, 1::smallint, 1::smallint,
                      jsonb_build_object('tcp_us', 9000, 'tls_us', 19000)
               from unnest($1::text[]) as name, unnest(array['151.101.1.57', '151.101.65.57']) as a
               union all
               select 4, 'endpoint_check', 'doh', null, null, '9.9.9.9', null, 'answered', 'dns', null, null, null, null,
                      jsonb_build_object('worked_before', true)) as f"
    )))
    .bind(CANARIES.as_slice())
    .bind(CONTROLS.as_slice())
    .bind(RESOLVERS.as_slice())
    .bind(i64::from(VANTAGES))
    .execute(database)
    .await?;
    sqlx::query("create unique index on bench_fact (n)").execute(database).await?;
    sqlx::query("analyze bench_fact").execute(database).await?;
    Ok(())
}
