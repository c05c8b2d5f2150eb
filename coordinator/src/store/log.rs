//! The log of facts: written once, read in commit order.
//!
//! `columns` has the shape of a row; `read` the way back.

use std::time::Duration;

use parallax_decide::observation::{Fact, ObservationId, Purpose};
use serde_json::Value;
use sqlx::PgConnection;

use super::StoreError;
use super::cursor::Numbering;
use columns::Columns;

mod columns;
mod read;

pub use read::{Position, observations_after, observations_by_id};

/// An observation that is not stored yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewObservation {
    /// History only: of an earlier start, or too old. Never evidence.
    pub late: bool,
    /// How long ago the probe ended, at receipt.
    pub age: Duration,
    /// Why it was measured.
    pub purpose: Purpose,
    /// The task that asked for it.
    pub task_id: Option<i64>,
    /// Whole duration of the probe.
    pub duration_us: i64,
    /// What was measured.
    pub fact: Fact,
    /// Particulars under the names of the `.proto` file, for people: an object.
    pub detail: Value,
    /// Of a loss: how long ago the first and the last of what was dropped ended, at receipt. `None`:
    /// not known.
    pub lost_ago: Option<(Duration, Duration)>,
}

/// An observation with its place in the numbering, about to be stored.
#[derive(Debug, Clone, Copy)]
pub struct Stored<'a> {
    /// Whose, which start of it, which lane.
    pub numbering: Numbering,
    /// Its number in that.
    pub sequence: i64,
    /// How long it waited here; added to its age.
    pub waited: Duration,
    /// The observation.
    pub observation: &'a NewObservation,
}

/// The word of a purpose in SQL.
#[must_use]
pub fn purpose_word(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Scheduled => "scheduled",
        Purpose::Confirm => "confirm",
        Purpose::CrossCheck => "cross_check",
        Purpose::Verify => "verify",
    }
}

/// Stores observations in this order and returns the highest id. The caller holds the writers'
/// lock and moves the cursors in the same transaction.
///
/// # Errors
/// When the database refuses.
pub async fn insert(connection: &mut PgConnection, new: &[Stored<'_>]) -> Result<Option<ObservationId>, StoreError> {
    if new.is_empty() {
        return Ok(None);
    }
    let columns: Vec<Columns> = new.iter().map(|stored| Columns::of(stored.observation)).collect();
    let of_new = |f: fn(&Stored<'_>) -> i64| new.iter().map(f).collect::<Vec<i64>>();
    let vantages: Vec<i16> = new.iter().map(|s| s.numbering.0.0).collect();
    let boots: Vec<_> = new.iter().map(|s| s.numbering.1).collect();
    let lanes: Vec<String> = new.iter().map(|s| s.numbering.2.word().to_owned()).collect();
    let sequences = of_new(|s| s.sequence);
    let ages_ms = of_new(|s| milliseconds(s.observation.age + s.waited));
    let lost = |pick: fn((Duration, Duration)) -> Duration| -> Vec<Option<i64>> {
        new.iter().map(|s| s.observation.lost_ago.map(|ago| milliseconds(pick(ago) + s.waited))).collect()
    };
    let (lost_from, lost_to) = (lost(|(first, _)| first), lost(|(_, last)| last));
    let late: Vec<bool> = new.iter().map(|s| s.observation.late).collect();
    let purposes: Vec<String> = new.iter().map(|s| purpose_word(s.observation.purpose).to_owned()).collect();
    let tasks: Vec<Option<i64>> = new.iter().map(|s| s.observation.task_id).collect();
    let durations = of_new(|s| s.observation.duration_us);
    let details: Vec<Value> = new.iter().map(|s| s.observation.detail.clone()).collect();
    let kinds: Vec<String> = columns.iter().map(|c| c.kind.to_owned()).collect();
    let subjects: Vec<String> = columns.iter().map(|c| c.subject.clone()).collect();
    let resolvers: Vec<Option<String>> = columns.iter().map(|c| c.resolver.clone()).collect();
    let families: Vec<Option<i16>> = columns.iter().map(|c| c.family).collect();
    let addresses: Vec<Option<String>> = columns.iter().map(|c| c.address.map(|a| a.to_string())).collect();
    let ports: Vec<Option<i32>> = columns.iter().map(|c| c.port).collect();
    let outcomes: Vec<String> = columns.iter().map(|c| c.outcome.to_owned()).collect();
    let stages: Vec<Option<String>> = columns.iter().map(|c| c.stage.map(str::to_owned)).collect();
    let answers: Vec<Option<String>> = columns.iter().map(|c| c.addresses.clone()).collect();
    let ttls: Vec<Option<i32>> = columns.iter().map(|c| c.ttl_s).collect();
    let attempts: Vec<Option<i16>> = columns.iter().map(|c| c.attempts).collect();
    let connected: Vec<Option<i16>> = columns.iter().map(|c| c.attempts_connected).collect();
    let newest = sqlx::query_scalar!(
        r#"with receipt as materialized (select clock_timestamp() as at),
           inserted as (
               insert into observation (received_at, observed_at, vantage_id, boot_id, lane, sequence, late, purpose,
                                        task_id, duration_us, kind, subject, resolver, family, address, port, outcome,
                                        stage, addresses, ttl_s, attempts, attempts_connected, detail)
               select receipt.at, receipt.at - n.age_ms * interval '1 millisecond', n.vantage_id, n.boot_id, n.lane,
                      n.sequence, n.late, n.purpose, n.task_id, n.duration_us, n.kind, n.subject, n.resolver, n.family,
                      n.address::inet, n.port, n.outcome, n.stage, n.addresses::inet[], n.ttl_s, n.attempts,
                      n.attempts_connected,
                      case n.kind when 'loss'
                          then n.detail || jsonb_build_object(
                                   'from', receipt.at - n.lost_from_ms * interval '1 millisecond',
                                   'to', receipt.at - n.lost_to_ms * interval '1 millisecond')
                          else n.detail end
               from receipt,
                    unnest($1::smallint[], $2::uuid[], $3::bigint[], $4::bigint[], $5::boolean[], $6::text[],
                           $7::bigint[], $8::bigint[], $9::text[], $10::text[], $11::text[], $12::smallint[],
                           $13::text[], $14::integer[], $15::text[], $16::text[], $17::text[], $18::integer[],
                           $19::smallint[], $20::smallint[], $21::jsonb[], $22::text[], $23::bigint[], $24::bigint[])
                        with ordinality
                        as n(vantage_id, boot_id, sequence, age_ms, late, purpose, task_id, duration_us, kind, subject,
                             resolver, family, address, port, outcome, stage, addresses, ttl_s, attempts,
                             attempts_connected, detail, lane, lost_from_ms, lost_to_ms, place)
               order by n.place
               returning id, vantage_id, kind, detail
           ),
           losses as (
               insert into observation_loss (observation_id, vantage_id, boot_id, lane, first_sequence, last_sequence,
                                             reason, count, lost_from, lost_to)
               select id, vantage_id, (detail ->> 'boot_id')::uuid, detail ->> 'lane',
                      (detail ->> 'first_sequence')::bigint, (detail ->> 'last_sequence')::bigint,
                      detail ->> 'reason', (detail ->> 'count')::bigint, (detail ->> 'from')::timestamptz,
                      (detail ->> 'to')::timestamptz
               from inserted where kind = 'loss'
           )
           select max(id) from inserted"#,
        &vantages,
        &boots,
        &sequences,
        &ages_ms,
        &late,
        &purposes,
        &tasks as &[Option<i64>],
        &durations,
        &kinds,
        &subjects,
        &resolvers as &[Option<String>],
        &families as &[Option<i16>],
        &addresses as &[Option<String>],
        &ports as &[Option<i32>],
        &outcomes,
        &stages as &[Option<String>],
        &answers as &[Option<String>],
        &ttls as &[Option<i32>],
        &attempts as &[Option<i16>],
        &connected as &[Option<i16>],
        &details,
        &lanes,
        &lost_from as &[Option<i64>],
        &lost_to as &[Option<i64>]
    )
    .fetch_one(connection)
    .await?;
    Ok(newest.map(ObservationId))
}

fn milliseconds(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}
