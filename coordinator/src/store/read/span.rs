//! What happened between two times, from views alone: changes of verdicts, incidents, changes of records and pins, what
//! people did, and time in which nobody judged.

use std::net::IpAddr;

use parallax_decide::time::Timestamp;
use serde_json::Value;
use sqlx::PgConnection;

use super::moment::State;
use crate::store::{StoreError, offset, timestamp};

/// Rows of each kind that one timeline reads.
pub const ROWS_MAX: i64 = 5_000;

/// Whose timeline it is; none of both: everybody's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Whose {
    /// Names, services, nodes (`node:NAME` for addresses) or vantages.
    pub subjects: Vec<String>,
    /// Only what is so at this vantage.
    pub vantage: Option<String>,
    /// Single addresses as well, not only answers, endpoints, nodes and vantages.
    pub addresses: bool,
}

/// States that held at some time between two, oldest first.
///
/// # Errors
/// When the database refuses.
pub async fn states(
    connection: &mut PgConnection,
    whose: &Whose,
    from: Timestamp,
    to: Timestamp,
) -> Result<Vec<State>, StoreError> {
    let rows = sqlx::query!(
        r#"select id as "id!", since as "since!", until, subject_kind as "subject_kind!", subject as "subject!", vantage,
                  resolver, verdict as "verdict!", presence as "presence!", evidence as "evidence!"
           from v_state
           where during && tstzrange($1::timestamptz, $2::timestamptz, '[]')
             and ($3::text[] = '{}' or split_part(subject, ' ', 1) = any($3))
             and ($4::text is null or vantage = $4)
             and ($5 or subject_kind <> 'address')
           order by id limit $6"#,
        offset(from),
        offset(to),
        &whose.subjects,
        whose.vantage.as_deref(),
        whose.addresses,
        ROWS_MAX
    )
    .fetch_all(connection)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| State {
            id: row.id,
            since: timestamp(row.since),
            until: row.until.map(timestamp),
            kind: row.subject_kind,
            subject: row.subject,
            vantage: row.vantage,
            resolver: row.resolver,
            verdict: row.verdict,
            presence: row.presence,
            reason: Value::Null,
            evidence: row.evidence.into_iter().map(parallax_decide::observation::ObservationId).collect(),
        })
        .collect())
}

/// A change of a record or of a pin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeRow {
    /// When the driver confirmed it.
    pub at: Timestamp,
    /// Whether Parallax made it; else somebody else's was found.
    pub ours: bool,
    /// Incident it was made for.
    pub incident: i64,
    /// Plan.
    pub plan: i64,
    /// remedy, return or rollback.
    pub purpose: String,
    /// Name whose answer it changes.
    pub name: String,
    /// pin, unpin or repoint.
    pub kind: String,
    /// Vantage whose agent made it.
    pub vantage: Option<String>,
    /// Addresses before; empty: the native answer.
    pub before: Vec<IpAddr>,
    /// Addresses after; empty: the native answer.
    pub after: Vec<IpAddr>,
    /// Who approved it.
    pub by: Option<String>,
}

/// Changes between two times, oldest first.
///
/// # Errors
/// When the database refuses.
pub async fn changes(
    connection: &mut PgConnection,
    from: Timestamp,
    to: Timestamp,
) -> Result<Vec<ChangeRow>, StoreError> {
    let rows = sqlx::query!(
        r#"select at as "at!", what as "what!", incident_id as "incident_id!", plan_id as "plan_id!", purpose as "purpose!",
                  name as "name!", change_kind as "change_kind!", vantage, before as "before: Value",
                  after as "after: Value", by
           from v_change where at >= $1 and at <= $2 order by at, plan_id limit $3"#,
        offset(from),
        offset(to),
        ROWS_MAX
    )
    .fetch_all(connection)
    .await?;
    let addresses =
        |value: Option<Value>| value.and_then(|value| serde_json::from_value(value).ok()).unwrap_or_default();
    Ok(rows
        .into_iter()
        .map(|row| ChangeRow {
            at: timestamp(row.at),
            ours: row.what == "changed",
            incident: row.incident_id,
            plan: row.plan_id,
            purpose: row.purpose,
            name: row.name,
            kind: row.change_kind,
            vantage: row.vantage,
            before: addresses(row.before),
            after: addresses(row.after),
            by: row.by,
        })
        .collect())
}

/// What somebody did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deed {
    /// When.
    pub at: Timestamp,
    /// Who, as far as it is stored.
    pub by: Option<String>,
    /// What they did.
    pub did: String,
    /// To what, or why.
    pub what: Option<String>,
}

/// What people did between two times, oldest first.
///
/// # Errors
/// When the database refuses.
pub async fn deeds(connection: &mut PgConnection, from: Timestamp, to: Timestamp) -> Result<Vec<Deed>, StoreError> {
    let rows = sqlx::query!(
        r#"select at as "at!", by, did as "did!", what from v_audit where at >= $1 and at <= $2 order by at limit $3"#,
        offset(from),
        offset(to),
        ROWS_MAX
    )
    .fetch_all(connection)
    .await?;
    let deeds = rows.into_iter().map(|row| Deed { at: timestamp(row.at), by: row.by, did: row.did, what: row.what });
    Ok(deeds.collect())
}

/// An answer that was given for the first time in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// Since when.
    pub since: Timestamp,
    /// Where.
    pub vantage: String,
    /// Name.
    pub name: String,
    /// Resolver.
    pub resolver: String,
    /// Outcome's word.
    pub outcome: String,
    /// Its addresses, sorted.
    pub addresses: Vec<IpAddr>,
}

/// Answers that began between two times, of these names or at this vantage, oldest first.
///
/// # Errors
/// When the database refuses.
pub async fn given(
    connection: &mut PgConnection,
    whose: &Whose,
    from: Timestamp,
    to: Timestamp,
) -> Result<Vec<Given>, StoreError> {
    let rows = sqlx::query!(
        r#"select since as "since!", vantage as "vantage!", name as "name!", resolver as "resolver!", outcome as "outcome!",
                  addresses as "addresses!: Vec<IpAddr>"
           from v_answer
           where last_seen >= $1 and since >= $1 and since <= $2 and ($3::text[] = '{}' or name = any($3))
             and ($4::text is null or vantage = $4)
           order by since limit $5"#,
        offset(from),
        offset(to),
        &whose.subjects,
        whose.vantage.as_deref(),
        ROWS_MAX
    )
    .fetch_all(connection)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Given {
            since: timestamp(row.since),
            vantage: row.vantage,
            name: row.name,
            resolver: row.resolver,
            outcome: row.outcome,
            addresses: row.addresses,
        })
        .collect())
}
