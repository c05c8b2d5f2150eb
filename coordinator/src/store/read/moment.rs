//! How things stood at a moment, from the stored transitions: views alone.

use parallax_decide::observation::ObservationId;
use parallax_decide::time::Timestamp;
use serde_json::Value;
use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::store::configured::{self, Configured};
use crate::store::{StoreError, offset, timestamp};

/// States read for one moment.
pub const STATES_MAX: i64 = 40_000;

/// What was said of a subject.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// Verdict.
    pub id: i64,
    /// Since when.
    pub since: Timestamp,
    /// Until when; none: it holds.
    pub until: Option<Timestamp>,
    /// vantage, answer, address, endpoint or node.
    pub kind: String,
    /// Vantage, name, resolver or node; target and address with a blank between.
    pub subject: String,
    /// Where; none: across vantages.
    pub vantage: Option<String>,
    /// Resolver that gave the answer.
    pub resolver: Option<String>,
    /// Its word.
    pub verdict: String,
    /// online, offline or unknown.
    pub presence: String,
    /// Why, as data.
    pub reason: Value,
    /// Observations that decided.
    pub evidence: Vec<ObservationId>,
}

struct Row {
    id: i64,
    since: OffsetDateTime,
    until: Option<OffsetDateTime>,
    subject_kind: String,
    subject: String,
    vantage: Option<String>,
    resolver: Option<String>,
    verdict: String,
    presence: String,
    reason: Value,
    evidence: Vec<i64>,
}

impl From<Row> for State {
    fn from(row: Row) -> Self {
        Self {
            id: row.id,
            since: timestamp(row.since),
            until: row.until.map(timestamp),
            kind: row.subject_kind,
            subject: row.subject,
            vantage: row.vantage,
            resolver: row.resolver,
            verdict: row.verdict,
            presence: row.presence,
            reason: row.reason,
            evidence: row.evidence.into_iter().map(ObservationId).collect(),
        }
    }
}

/// What was said at a moment of subjects of these kinds. `name`: only answers for it, addresses tried for it, and what is
/// about no name at all.
///
/// # Errors
/// When the database refuses.
pub async fn states(
    connection: &mut PgConnection,
    at: Timestamp,
    kinds: &[&str],
    name: Option<&str>,
) -> Result<Vec<State>, StoreError> {
    let kinds: Vec<String> = kinds.iter().map(|kind| (*kind).to_owned()).collect();
    let rows = sqlx::query_as!(
        Row,
        r#"select id as "id!", since as "since!", until, subject_kind as "subject_kind!", subject as "subject!", vantage,
                  resolver, verdict as "verdict!", presence as "presence!", reason as "reason!: Value",
                  evidence as "evidence!"
           from v_state
           where during @> $1::timestamptz and subject_kind = any($2)
             and ($3::text is null or subject_kind not in ('answer', 'address') or split_part(subject, ' ', 1) = $3
                  or (subject_kind = 'address' and subject like 'node:%'))
           order by subject_kind, subject, vantage, resolver limit $4"#,
        offset(at),
        &kinds,
        name,
        STATES_MAX
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(State::from).collect())
}

/// What the configuration in force at a moment names; else what the one after it does; none: there never was one.
///
/// # Errors
/// When the database refuses, or a row holds what this version cannot read.
pub async fn configured(connection: &mut PgConnection, at: Timestamp) -> Result<Option<(i32, Configured)>, StoreError> {
    let number = sqlx::query_scalar!(
        r#"select number as "number!" from v_config
           order by at > $1, case when at <= $1 then -extract(epoch from at) else extract(epoch from at) end limit 1"#,
        offset(at)
    )
    .fetch_optional(&mut *connection)
    .await?;
    let Some(number) = number else { return Ok(None) };
    let rows = sqlx::query!(
        r#"select kind as "kind!", name as "name!", detail as "detail!: Value" from v_configured
           where number = $1 order by kind, position"#,
        number
    )
    .fetch_all(connection)
    .await?;
    let rows = rows.into_iter().map(|row| (row.kind, row.name, row.detail));
    Ok(Some((number, configured::from_rows(rows)?)))
}

/// Whether a coordinator judged at a moment, to within `slack`; else when one did last before, if ever.
///
/// # Errors
/// When the database refuses.
pub async fn watched(connection: &mut PgConnection, at: Timestamp) -> Result<Watched, StoreError> {
    let until =
        sqlx::query_scalar!(r#"select max(least(until, $1)) as at from v_watch where began_at <= $1"#, offset(at))
            .fetch_one(connection)
            .await?;
    Ok(match until.map(timestamp) {
        Some(until) if at.since(until) <= crate::store::watch::PAUSE_MAX => Watched::Yes,
        Some(until) => Watched::NotSince(until),
        None => Watched::NeverBefore,
    })
}

/// Whether a coordinator judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watched {
    /// It did.
    Yes,
    /// The last one that did stopped then.
    NotSince(Timestamp),
    /// None ever had.
    NeverBefore,
}

/// The freeze of every write that stood at a moment: since when, by whom and why.
///
/// # Errors
/// When the database refuses.
pub async fn frozen(
    connection: &mut PgConnection,
    at: Timestamp,
) -> Result<Option<(Timestamp, String, String)>, StoreError> {
    let row = sqlx::query!(
        r#"select at as "at!", by, did as "did!", what from v_audit
           where at <= $1 and did in ('froze every write', 'allowed writes again')
           order by at desc, did limit 1"#,
        offset(at)
    )
    .fetch_optional(connection)
    .await?;
    Ok(row
        .filter(|row| row.did == "froze every write")
        .map(|row| (timestamp(row.at), row.by.unwrap_or_else(|| "somebody".to_owned()), row.what.unwrap_or_default())))
}
