//! How things stand now: vantages, the verdict of each name at each of them, and the newest facts.

use std::net::IpAddr;

use parallax_decide::observation::Outcome;
use parallax_decide::time::Timestamp;
use parallax_decide::vantage::VantageJudgement;
use parallax_decide::verdict::{AnswerVerdict, VantageVerdict};
use serde_json::Value;
use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::store::{StoreError, offset, timestamp};

/// Vantages a page shows.
pub const VANTAGES_MAX: i64 = 500;

/// Cells a page shows.
pub const CELLS_MAX: i64 = 20_000;

/// Facts read for one page: the newest of each cell and address.
pub const FACTS_MAX: i64 = 40_000;

/// A vantage and how it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VantageNow {
    /// Name.
    pub name: String,
    /// First session; none: it never connected.
    pub first_seen_at: Option<Timestamp>,
    /// Last message.
    pub last_seen_at: Option<Timestamp>,
    /// Version of its agent.
    pub agent_version: Option<String>,
    /// When its certificate was refused for good.
    pub revoked_at: Option<Timestamp>,
    /// Whether the configuration in force names it.
    pub configured: bool,
    /// Whether it may speak; none: not judged yet.
    pub standing: Option<VantageVerdict>,
    /// Since when.
    pub standing_since: Option<Timestamp>,
    /// Why.
    pub judgement: Option<VantageJudgement>,
    /// Its wall clock less the coordinator's, in milliseconds.
    pub clock_offset_ms: Option<i64>,
    /// Failed and all checks of its positive controls in 20 minutes.
    pub controls_lately: Option<(i64, i64)>,
    /// Numbers of its agent that never arrived.
    pub observations_missing: i64,
    /// Observations of it that were refused.
    pub observations_refused: i64,
    /// Coordinator that holds its stream, and the address that this comes from; none: it is not connected.
    pub held_by: Option<(String, String)>,
    /// Both addresses of an identity that two machines used in the last hour.
    pub cloned: Option<(String, String)>,
}

/// Every vantage that is configured, or has reported and is not revoked; by name.
///
/// # Errors
/// When the database refuses.
pub async fn vantages(connection: &mut PgConnection) -> Result<Vec<VantageNow>, StoreError> {
    let rows = sqlx::query!(
        r#"select vantage as "vantage!", first_seen_at, last_seen_at, agent_version, revoked_at,
                  configured as "configured!", standing, standing_since, standing_reason as "standing_reason: Value",
                  clock_offset_ms, control_failures, control_checks,
                  observations_missing as "observations_missing!", observations_refused as "observations_refused!",
                  h.coordinator as "coordinator?", h.remote as "remote?", c.remote as "clone?", c.other_remote as "other?"
           from v_vantage
           left join lateral (
               select s.coordinator, s.remote from v_session s
               where s.vantage = v_vantage.vantage and s.live order by s.since desc limit 1
           ) h on true
           left join lateral (
               select k.remote, k.other_remote from v_clone k
               where k.vantage = v_vantage.vantage and k.last_at > clock_timestamp() - interval '1 hour'
           ) c on true
           where configured or (revoked_at is null and last_seen_at is not null)
           order by vantage limit $1"#,
        VANTAGES_MAX
    )
    .fetch_all(connection)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| VantageNow {
            name: row.vantage,
            first_seen_at: row.first_seen_at.map(timestamp),
            last_seen_at: row.last_seen_at.map(timestamp),
            agent_version: row.agent_version,
            revoked_at: row.revoked_at.map(timestamp),
            configured: row.configured,
            standing: row.standing.as_deref().and_then(VantageVerdict::from_word),
            standing_since: row.standing_since.map(timestamp),
            judgement: row.standing_reason.and_then(|reason| serde_json::from_value(reason).ok()),
            clock_offset_ms: row.clock_offset_ms,
            controls_lately: row.control_failures.zip(row.control_checks),
            observations_missing: row.observations_missing,
            observations_refused: row.observations_refused,
            held_by: row.coordinator.zip(row.remote),
            cloned: row.clone.zip(row.other),
        })
        .collect())
}

/// The verdict of one name at one vantage, as its live resolver answers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellNow {
    /// Where.
    pub vantage: String,
    /// Canary or service.
    pub item: String,
    /// Name that is resolved.
    pub name: String,
    /// Verdict; none: not judged yet.
    pub verdict: Option<AnswerVerdict>,
    /// Since when.
    pub since: Option<Timestamp>,
    /// Addresses when it was decided.
    pub addresses: Vec<IpAddr>,
    /// Those of them that were proven.
    pub proven: Vec<IpAddr>,
}

/// The matrix of what the configuration names, in its order.
///
/// # Errors
/// When the database refuses.
pub async fn cells(connection: &mut PgConnection) -> Result<Vec<CellNow>, StoreError> {
    let rows = sqlx::query!(
        r#"select vantage as "vantage!", item as "item!", name as "name!", verdict, since,
                  addresses as "addresses: Value", proven as "proven: Value"
           from v_matrix
           order by vantage_position, kind, item_position limit $1"#,
        CELLS_MAX
    )
    .fetch_all(connection)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| CellNow {
            vantage: row.vantage,
            item: row.item,
            name: row.name,
            verdict: row.verdict.as_deref().and_then(AnswerVerdict::from_word),
            since: row.since.map(timestamp),
            addresses: addresses(row.addresses),
            proven: addresses(row.proven),
        })
        .collect())
}

/// The newest answer of the live resolver for a name at a vantage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerFact {
    /// Observation.
    pub id: i64,
    /// Where.
    pub vantage: String,
    /// Name.
    pub name: String,
    /// When it was given.
    pub at: Timestamp,
    /// How it ended; none: a word of another version.
    pub outcome: Option<Outcome>,
    /// Addresses in answer order.
    pub addresses: Vec<IpAddr>,
}

/// The newest answers received from `since` to `until`, both families. Times and not a span: with constants
/// the database reads only those days' partitions.
///
/// # Errors
/// When the database refuses.
pub async fn answers(
    connection: &mut PgConnection,
    resolver: &str,
    since: Timestamp,
    until: Timestamp,
) -> Result<Vec<AnswerFact>, StoreError> {
    let rows = sqlx::query!(
        r#"select distinct on (o.vantage_id, o.subject, o.family)
                  o.id, v.name as vantage, o.subject, o.observed_at, o.outcome,
                  o.addresses as "addresses: Vec<IpAddr>"
           from observation o join vantage v on v.id = o.vantage_id
           where o.received_at > $2 and o.received_at <= $4 and o.kind = 'resolution' and o.resolver = $1
             and not o.late
           order by o.vantage_id, o.subject, o.family, o.id desc
           limit $3"#,
        resolver,
        offset(since),
        FACTS_MAX,
        offset(until)
    )
    .fetch_all(connection)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| AnswerFact {
            id: row.id,
            vantage: row.vantage,
            name: row.subject,
            at: timestamp(row.observed_at),
            outcome: Outcome::from_word(&row.outcome),
            addresses: row.addresses.unwrap_or_default(),
        })
        .collect())
}

/// The newest connection to an address for a name or node (`node:NAME`) at a vantage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReachFact {
    /// Where.
    pub vantage: String,
    /// Name or `node:NAME`.
    pub subject: String,
    /// Address.
    pub address: IpAddr,
    /// When the probe ended.
    pub at: Timestamp,
    /// How it ended; none: a word of another version.
    pub outcome: Option<Outcome>,
    /// How long it took, in microseconds.
    pub duration_us: i64,
}

/// The newest connections received from `since` to `until`.
///
/// # Errors
/// When the database refuses.
pub async fn reached(
    connection: &mut PgConnection,
    since: Timestamp,
    until: Timestamp,
) -> Result<Vec<ReachFact>, StoreError> {
    let rows = sqlx::query!(
        r#"select distinct on (o.vantage_id, o.subject, o.address)
                  v.name as vantage, o.subject, o.address as "address!: IpAddr", o.observed_at, o.outcome, o.duration_us
           from observation o join vantage v on v.id = o.vantage_id
           where o.received_at > $1 and o.received_at <= $3 and o.kind = 'connection' and not o.late
             and o.address is not null
           order by o.vantage_id, o.subject, o.address, o.id desc
           limit $2"#,
        offset(since),
        FACTS_MAX,
        offset(until)
    )
    .fetch_all(connection)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| ReachFact {
            vantage: row.vantage,
            subject: row.subject,
            address: row.address,
            at: timestamp(row.observed_at),
            outcome: Outcome::from_word(&row.outcome),
            duration_us: row.duration_us,
        })
        .collect())
}

/// When the coordinator that runs the tasks last renewed its lease, told by when it runs out; none:
/// nobody ever ran them.
///
/// # Errors
/// When the database refuses.
pub async fn judging_until(connection: &mut PgConnection) -> Result<Option<Timestamp>, StoreError> {
    let at: Option<OffsetDateTime> =
        sqlx::query_scalar!("select expires_at from lease order by expires_at desc limit 1")
            .fetch_optional(connection)
            .await?;
    Ok(at.map(timestamp))
}

fn addresses(value: Option<Value>) -> Vec<IpAddr> {
    value.and_then(|value| serde_json::from_value(value).ok()).unwrap_or_default()
}
