//! One fault, from its beginning to its verdict and until everything is well again.

use std::time::Duration;

use anyhow::{Result, bail};
use sqlx::PgPool;

use super::Patience;
use crate::clock::now;
use crate::demo::rows;
use crate::demo::unroutable::KIND;
use crate::lab::atlas::{NODES, Place, VANTAGES};
use crate::lab::faults::handed;
use crate::lab::world::World;

/// A verdict that takes longer than this does not come.
const VERDICT_MAX: Duration = Duration::from_secs(90);
/// After a start, or after a fault, until everything is known to be well.
const WELL_MAX: Duration = Duration::from_secs(240);
/// What was found of an address counts for 12.5 s (policy `fast`): in that time the same one is known dead without a try.
const FORGET: Duration = Duration::from_secs(15);
/// How often the database is asked.
const POLL: Duration = Duration::from_millis(100);

/// What one fault took.
#[derive(Debug, Clone)]
pub struct Trial {
    /// What was at fault.
    pub what: String,
    /// From the fault to the verdict, by the database's clock, s.
    pub took_s: f64,
    /// When it could have come at the earliest, s after the fault.
    pub theory_s: f64,
}

/// All machines go dark, each at a moment of its own within a round, and come back when all are found.
///
/// # Errors
/// A verdict does not come, or the world refuses.
pub async fn dark_nodes(
    world: &mut World,
    database: &PgPool,
    patience: Patience,
    moments: &mut Moments,
) -> Result<Vec<Trial>> {
    until("every machine well", WELL_MAX, async || Ok((rows::nodes_ok(database).await? == NODES.len()).then_some(())))
        .await?;
    let round = patience.round();
    // Somewhere between two probes of everybody.
    tokio::time::sleep(moments.next(round)).await;
    let mut faults: Vec<(Duration, &str)> = NODES.iter().map(|node| (moments.next(round), node.name)).collect();
    faults.sort_unstable();
    let (begun, mut dark) = (now(), Vec::new());
    for (after, name) in faults {
        tokio::time::sleep(after.saturating_sub(begun.elapsed())).await;
        let at = rows::clock(database).await?;
        world.darken_node(name).await?;
        dark.push((name, at));
    }
    let mut trials = Vec::new();
    for (name, at) in dark {
        let found = async || verdict_at(database, "node", name, "node_dead_everywhere", None, at).await;
        let took_s = until(&format!("{name} dead everywhere"), VERDICT_MAX, found).await?;
        let begun = begun_after(database, &format!("node:{name}"), "connection", at).await?;
        let Some(theory_s) = patience.rule().two_accusers_s(&begun) else { bail!("nobody tried {name}") };
        trials.push(Trial { what: name.to_owned(), took_s, theory_s });
    }
    for node in NODES {
        world.light_node(node.name).await?;
    }
    Ok(trials)
}

/// The branch is handed addresses without a path from there, until that is found.
///
/// # Errors
/// A verdict does not come, or the world refuses.
pub async fn black_hole(
    world: &mut World,
    database: &PgPool,
    patience: Patience,
    moments: &mut Moments,
) -> Result<Vec<Trial>> {
    let (branch, names) = (Place::Branch.name(), handed().collect::<Vec<_>>());
    let cells = crate::lab::atlas::CANARIES.len() * VANTAGES.len();
    until("every canary usable everywhere", WELL_MAX, async || {
        Ok((rows::usable_cells(database).await? == cells).then_some(()))
    })
    .await?;
    tokio::time::sleep(FORGET + moments.next(patience.round())).await;
    let at = rows::clock(database).await?;
    world.hand_branch_the_pair().await?;
    let mut trials = Vec::new();
    for name in names {
        let found = async || verdict_at(database, "answer", name, KIND, Some(branch), at).await;
        let took_s = until(&format!("{name} unroutable from {branch}"), VERDICT_MAX, found).await?;
        // The address is tried as soon as it is known.
        match tried_in_vain_after(database, branch, name, at).await? {
            Some(tried) => {
                trials.push(Trial { what: name.to_owned(), took_s, theory_s: tried + patience.rule().burst_s() });
            }
            None => eprintln!("bench: {name}: the address was still known dead, which is no detection; not counted"),
        }
    }
    world.hand_branch_native_answers().await?;
    Ok(trials)
}

/// Moments within a round, one after the other: spread evenly however many are taken, and the same in every run.
#[derive(Debug, Default)]
pub struct Moments {
    taken: u32,
}

impl Moments {
    /// The next one, less than `round`.
    pub fn next(&mut self, round: Duration) -> Duration {
        // The part of the golden section: its multiples lie farther apart than those of any other number.
        let part = (f64::from(self.taken) * 0.618_033_988_749_895).fract();
        self.taken += 1;
        round.mul_f64(part)
    }
}

/// Waits until `look` finds something.
async fn until<T>(what: &str, limit: Duration, look: impl AsyncFn() -> Result<Option<T>>) -> Result<T> {
    let begun = now();
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        if begun.elapsed() > limit {
            bail!("{what}: not seen within {limit:?}");
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Seconds from `since` to a subject's first verdict of that word.
async fn verdict_at(
    database: &PgPool,
    kind: &str,
    subject: &str,
    verdict: &str,
    vantage: Option<&str>,
    since: f64,
) -> Result<Option<f64>> {
    let at = sqlx::query_scalar(
        "select extract(epoch from min(at))::float8 - $5 from verdict
         where subject_kind = $1 and subject = $2 and verdict = $3 and vantage is not distinct from $4
           and at >= to_timestamp($5)",
    );
    Ok(at.bind(kind).bind(subject).bind(verdict).bind(vantage).bind(since).fetch_one(database).await?)
}

/// Seconds after `since` at which each vantage's first scheduled probe of a subject began.
async fn begun_after(database: &PgPool, subject: &str, kind: &str, since: f64) -> Result<Vec<f64>> {
    let begun = sqlx::query_scalar(
        "select min(begun) from (
             select vantage_id, extract(epoch from observed_at)::float8 - duration_us / 1e6 - $3 as begun
             from observation where subject = $1 and kind = $2 and purpose = 'scheduled'
               and received_at >= to_timestamp($3)) as each
         where begun >= 0 group by vantage_id",
    );
    Ok(begun.bind(subject).bind(kind).bind(since).fetch_all(database).await?)
}

/// Seconds after `since` at which a vantage began to try an address of a name in vain.
async fn tried_in_vain_after(database: &PgPool, vantage: &str, name: &str, since: f64) -> Result<Option<f64>> {
    let tried = sqlx::query_scalar(
        "select extract(epoch from min(c.observed_at))::float8 - min(c.duration_us) / 1e6 - $3
         from observation c join vantage v on v.id = c.vantage_id
         where v.name = $1 and c.subject = $2 and c.kind = 'connection' and c.outcome not in ('tcp_ok', 'tls_ok', 'http_ok')
           and c.received_at >= to_timestamp($3)",
    )
    .bind(vantage)
    .bind(name)
    .bind(since)
    .fetch_one(database)
    .await?;
    Ok(tried)
}
