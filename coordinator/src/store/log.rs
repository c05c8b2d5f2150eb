//! The log of facts: written once, read in commit order.
//!
//! `columns` has the shape of a row, `copy` its form on the way to the server; `read` is the way back.

use std::time::Duration;

use parallax_decide::observation::{Fact, ObservationId, Purpose};
use serde_json::{Map, Value};
use sqlx::PgConnection;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::StoreError;
use super::cursor::Numbering;
use columns::Columns;
use copy::{CopyRows, Json};

mod columns;
mod copy;
mod read;

pub use read::{Page, Position, STEP_BACK, Unreadable, observations_after, observations_by_id, set_aside};

/// An observation that is not stored yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewObservation {
    /// History only: of an earlier start. Never evidence.
    pub of_earlier_start: bool,
    /// Older than this when it is stored, it is history as well: the next round has spoken since.
    pub late_after: Duration,
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

impl Stored<'_> {
    /// Whether it is history and never evidence, at this moment: the wait for the database counts.
    #[must_use]
    pub fn is_late(&self) -> bool {
        self.observation.of_earlier_start || self.observation.age + self.waited > self.observation.late_after
    }
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

/// Columns that [`COPY`] names, in its order. No parameter can be bound in it, and none is needed.
const COLUMNS: i16 = 24;

/// How rows come in.
const COPY: &str =
    "copy observation (id, received_at, observed_at, vantage_id, boot_id, lane, sequence, late, purpose, task_id,
    duration_us, kind, subject, resolver, family, address, port, outcome, stage, addresses, ttl_s, attempts,
    attempts_connected, detail) from stdin (format binary)";

/// The moment at which rows count as received, by the database's clock, with their keys.
#[derive(Debug)]
pub struct Receipt {
    /// The moment.
    pub at: OffsetDateTime,
    /// Rising; one for each row.
    pub ids: Vec<i64>,
}

/// Takes the moment and the keys of so many rows. The caller holds the writers' lock: keys rise in commit order.
///
/// # Errors
/// When the database refuses.
pub async fn receipt(connection: &mut PgConnection, rows: usize) -> Result<Receipt, StoreError> {
    let rows = i32::try_from(rows).unwrap_or(i32::MAX);
    let row = sqlx::query!(
        r#"select clock_timestamp() as "at!",
                  array(select nextval('observation_id_seq') from generate_series(1, $1)) as "ids!""#,
        rows
    )
    .fetch_one(connection)
    .await?;
    Ok(Receipt { at: row.at, ids: row.ids })
}

/// Stores observations under the keys of their receipt, in this order, and returns the highest. The caller holds the
/// writers' lock and moves the cursors in the same transaction.
///
/// # Errors
/// When the database refuses.
pub async fn insert(
    connection: &mut PgConnection,
    receipt: &Receipt,
    new: &[Stored<'_>],
) -> Result<Option<ObservationId>, StoreError> {
    let Some(newest) = receipt.ids.last().copied().filter(|_| !new.is_empty()) else { return Ok(None) };
    let mut rows = CopyRows::new(COLUMNS, new.len());
    let mut losses = Vec::new();
    for (stored, id) in new.iter().zip(&receipt.ids) {
        let observation = stored.observation;
        let columns = Columns::of(observation);
        let detail = match &observation.fact {
            Fact::Loss(_) => {
                losses.push((*id, stored));
                Some(lost_detail(stored, receipt.at))
            }
            Fact::Resolution(_)
            | Fact::Connection(_)
            | Fact::EndpointCheck(_)
            | Fact::ControlCheck(_)
            | Fact::Path(_)
            | Fact::Missed(_) => None,
        };
        let (vantage, boot, lane) = stored.numbering;
        rows.row()
            .put(id)
            .put(&receipt.at)
            .put(&before(receipt.at, observation.age + stored.waited))
            .put(&vantage.0)
            .put(&boot)
            .put(&lane.word())
            .put(&stored.sequence)
            .put(&stored.is_late())
            .put(&purpose_word(observation.purpose))
            .put(&observation.task_id)
            .put(&observation.duration_us)
            .put(&columns.kind)
            .put(&columns.subject.as_ref())
            .put(&columns.resolver)
            .put(&columns.family)
            .put(&columns.address)
            .put(&columns.port)
            .put(&columns.outcome)
            .put(&columns.stage)
            .put(&columns.addresses)
            .put(&columns.ttl_s)
            .put(&columns.attempts)
            .put(&columns.attempts_connected)
            .put(&Json(detail.as_ref().unwrap_or(&observation.detail)));
    }
    let mut copy = connection.copy_in_raw(COPY).await?;
    if let Err(error) = copy.send(rows.finish()).await {
        // The transaction is lost with its connection.
        return Err(error.into());
    }
    copy.finish().await?;
    if !losses.is_empty() {
        record_losses(connection, receipt.at, &losses).await?;
    }
    Ok(Some(ObservationId(newest)))
}

/// What agents say of observations that they dropped, once more where it outlives the log.
async fn record_losses(
    connection: &mut PgConnection,
    at: OffsetDateTime,
    losses: &[(i64, &Stored<'_>)],
) -> Result<(), StoreError> {
    let ids: Vec<i64> = losses.iter().map(|(id, _)| *id).collect();
    let vantages: Vec<i16> = losses.iter().map(|(_, stored)| stored.numbering.0.0).collect();
    let details: Vec<Value> = losses.iter().map(|(_, stored)| lost_detail(stored, at)).collect();
    sqlx::query!(
        "insert into observation_loss (observation_id, vantage_id, boot_id, lane, first_sequence, last_sequence,
                                       reason, count, lost_from, lost_to)
         select id, vantage, (d ->> 'boot_id')::uuid, d ->> 'lane', (d ->> 'first_sequence')::bigint,
                (d ->> 'last_sequence')::bigint, d ->> 'reason', (d ->> 'count')::bigint,
                (d ->> 'from')::timestamptz, (d ->> 'to')::timestamptz
         from unnest($1::bigint[], $2::smallint[], $3::jsonb[]) as n(id, vantage, d)",
        &ids,
        &vantages,
        &details
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// The particulars of a loss, with times in place of ages.
fn lost_detail(stored: &Stored<'_>, at: OffsetDateTime) -> Value {
    let observation = stored.observation;
    let mut detail = observation.detail.as_object().cloned().unwrap_or_else(Map::new);
    let time = |ago: Duration| before(at, ago + stored.waited).format(&Rfc3339).map_or(Value::Null, Value::String);
    let (from, to) = observation.lost_ago.map_or((Value::Null, Value::Null), |(first, last)| (time(first), time(last)));
    detail.insert("from".to_owned(), from);
    detail.insert("to".to_owned(), to);
    Value::Object(detail)
}

/// So long before a moment, in whole milliseconds as agents measure. Ages are bounded; one that is not becomes 1970.
fn before(at: OffsetDateTime, ago: Duration) -> OffsetDateTime {
    let ago = i64::try_from(ago.as_millis()).map(time::Duration::milliseconds).ok();
    ago.and_then(|ago| at.checked_sub(ago)).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}
