//! What really happened in a span, for a replay to stand beside: from views alone, so that the reading role is enough.

use std::collections::BTreeMap;

use parallax_decide::finding::Finding;
use parallax_decide::incident::IncidentId;
use parallax_decide::plan::PlanId;
use parallax_decide::time::Timestamp;
use parallax_decide::topology::Topology;
use serde_json::Value;
use sqlx::PgConnection;

use super::incident::parsed;
use crate::store::{StoreError, offset, timestamp};

/// Incidents one replay stands beside.
pub const INCIDENTS_MAX: i64 = 10_000;

/// Changes of configuration, and spans of judging, that one replay follows.
pub const SPANS_MAX: i64 = 10_000;

/// When the oldest row of the log was received; none: the log is empty.
///
/// # Errors
/// When the database refuses.
pub async fn log_begins(connection: &mut PgConnection) -> Result<Option<Timestamp>, StoreError> {
    let at = sqlx::query_scalar!(r#"select received_at as "at!" from v_observation order by id limit 1"#)
        .fetch_optional(connection)
        .await?;
    Ok(at.map(timestamp))
}

/// Spans between two times in which a coordinator judged, in order.
///
/// # Errors
/// When the database refuses.
pub async fn watched(
    connection: &mut PgConnection,
    from: Timestamp,
    to: Timestamp,
) -> Result<Vec<(Timestamp, Timestamp)>, StoreError> {
    let rows = sqlx::query!(
        r#"select began_at as "began_at!", until as "until!" from v_watch
           where until >= $1 and began_at <= $2 order by began_at, until limit $3"#,
        offset(from),
        offset(to),
        SPANS_MAX
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(|row| (timestamp(row.began_at), timestamp(row.until))).collect())
}

/// A configuration as judging reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InForce {
    /// Since when.
    pub at: Timestamp,
    /// Its number.
    pub number: i32,
    /// What judging reads of it.
    pub topology: Topology,
}

/// The configuration in force at `from` and those that came until `to`, in order. When none was in force yet at `from`,
/// the first one after it leads.
///
/// # Errors
/// When the database refuses, or a version cannot be read by this one.
pub async fn configurations(
    connection: &mut PgConnection,
    from: Timestamp,
    to: Timestamp,
) -> Result<Vec<InForce>, StoreError> {
    let rows = sqlx::query!(
        r#"select at as "at!", number as "number!", topology as "topology!: Value" from v_config
           where at <= $2 and at >= coalesce((select max(at) from v_config where at <= $1), '-infinity')
           order by at limit $3"#,
        offset(from),
        offset(to),
        SPANS_MAX
    )
    .fetch_all(connection)
    .await?;
    let mut configurations: Vec<InForce> = Vec::new();
    for row in rows {
        // Several coordinators take the same one, each in its moment.
        if configurations.last().is_some_and(|last| last.number == row.number) {
            continue;
        }
        let topology = serde_json::from_value(row.topology)
            .map_err(|error| StoreError::content("config_version", "topology", row.number, error))?;
        configurations.push(InForce { at: timestamp(row.at), number: row.number, topology });
    }
    Ok(configurations)
}

/// An incident as it really was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Really {
    /// Its number.
    pub id: IncidentId,
    /// What identifies it among open ones.
    pub key: String,
    /// Kind's word, the last one.
    pub kind: String,
    /// Everything it affected.
    pub members: Vec<String>,
    /// When it opened.
    pub opened_at: Timestamp,
    /// When it closed; none: it is open.
    pub closed_at: Option<Timestamp>,
    /// Its findings, each with when it was stored, oldest first; those of another version are left out.
    pub findings: Vec<(Timestamp, Finding)>,
}

impl Really {
    /// Whether it was open at a moment.
    #[must_use]
    pub fn open_at(&self, moment: Timestamp) -> bool {
        self.opened_at <= moment && self.closed_at.is_none_or(|closed| closed >= moment)
    }

    /// Its finding as it was stored last until a moment.
    #[must_use]
    pub fn finding_at(&self, moment: Timestamp) -> Option<&Finding> {
        self.findings.iter().rev().find(|(at, _)| *at <= moment).map(|(_, finding)| finding)
    }
}

/// Incidents that were open between two times, oldest first.
///
/// # Errors
/// When the database refuses.
pub async fn incidents(
    connection: &mut PgConnection,
    from: Timestamp,
    to: Timestamp,
) -> Result<Vec<Really>, StoreError> {
    let rows = sqlx::query!(
        r#"select id as "id!", key as "key!", kind as "kind!", members as "members!", opened_at as "opened_at!", closed_at
           from v_incident
           where opened_at <= $2 and (closed_at is null or closed_at >= $1) order by id limit $3"#,
        offset(from),
        offset(to),
        INCIDENTS_MAX
    )
    .fetch_all(&mut *connection)
    .await?;
    let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
    let mut findings: BTreeMap<i64, Vec<(Timestamp, Finding)>> = BTreeMap::new();
    let steps = sqlx::query!(
        r#"select incident_id as "incident_id!", at as "at!", detail as "detail!: Value" from v_timeline
           where incident_id = any($1) and source = 'incident' and what in ('opened', 'members_changed')
           order by at, item"#,
        &ids
    )
    .fetch_all(connection)
    .await?;
    for step in steps {
        if let Some(finding) = parsed(step.detail) {
            findings.entry(step.incident_id).or_default().push((timestamp(step.at), finding));
        }
    }
    Ok(rows
        .into_iter()
        .map(|row| Really {
            id: IncidentId(row.id),
            key: row.key,
            kind: row.kind,
            members: row.members,
            opened_at: timestamp(row.opened_at),
            closed_at: row.closed_at.map(timestamp),
            findings: findings.remove(&row.id).unwrap_or_default(),
        })
        .collect())
}

/// When each of these plans came to nothing, as far as its journal says so.
///
/// # Errors
/// When the database refuses.
pub async fn ended(connection: &mut PgConnection, plans: &[PlanId]) -> Result<BTreeMap<PlanId, Timestamp>, StoreError> {
    let ids: Vec<i64> = plans.iter().map(|id| id.0).collect();
    let rows = sqlx::query!(
        r#"select plan_id as "plan_id!", max(at) as "at!" from v_timeline
           where plan_id = any($1) and source = 'plan' and what in ('failed', 'refused', 'conflict', 'expired')
           group by plan_id"#,
        &ids
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(|row| (PlanId(row.plan_id), timestamp(row.at))).collect())
}

/// What the last change of each service's record before a time set, by service.
///
/// # Errors
/// When the database refuses.
pub async fn records_at(
    connection: &mut PgConnection,
    at: Timestamp,
) -> Result<BTreeMap<String, parallax_decide::change::Change>, StoreError> {
    let rows = sqlx::query!(
        r#"select distinct on (subject) subject as "subject!", change as "change!: Value" from v_plan
           where vantage is null and applied_at <= $1
           order by subject, applied_at desc, id desc limit $2"#,
        offset(at),
        INCIDENTS_MAX
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().filter_map(|row| Some((row.subject, parsed(row.change)?))).collect())
}
