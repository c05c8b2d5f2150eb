//! What happened: incidents with their evidence and timeline.

use std::net::IpAddr;

use parallax_decide::finding::{Finding, Subject};
use parallax_decide::incident::IncidentId;
use parallax_decide::time::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::store::{StoreError, offset, timestamp};

/// Incidents a list shows.
pub const INCIDENTS_MAX: i64 = 200;

/// Evidence an incident shows; the store keeps up to
/// [`EVIDENCE_MAX`](crate::store::incident::EVIDENCE_MAX).
pub const EVIDENCE_SHOWN_MAX: i64 = 200;

/// Steps of a timeline that are shown, the newest ones.
pub const STEPS_MAX: i64 = 300;

/// An incident.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IncidentRow {
    /// Number.
    pub id: IncidentId,
    /// When it opened.
    pub opened_at: Timestamp,
    /// When it closed; none: open.
    pub closed_at: Option<Timestamp>,
    /// What identifies it among open ones.
    pub key: String,
    /// Kind's word.
    pub kind: String,
    /// What it is about; none: written by another version.
    pub subject: Option<Subject>,
    /// Names it affects.
    pub members: Vec<String>,
    /// Changes made for it.
    pub changes_made: i32,
    /// The finding; none: written by another version.
    pub finding: Option<Finding>,
}

struct Row {
    id: i64,
    opened_at: OffsetDateTime,
    closed_at: Option<OffsetDateTime>,
    key: String,
    kind: String,
    about: Value,
    members: Vec<String>,
    changes_made: i32,
    conclusion: Value,
}

impl From<Row> for IncidentRow {
    fn from(row: Row) -> Self {
        Self {
            id: IncidentId(row.id),
            opened_at: timestamp(row.opened_at),
            closed_at: row.closed_at.map(timestamp),
            key: row.key,
            kind: row.kind,
            subject: parsed(row.about),
            members: row.members,
            changes_made: row.changes_made,
            finding: parsed(row.conclusion),
        }
    }
}

/// Open incidents, and those that closed since `since`; the newest first. Of too many the open ones
/// come before the closed: a page must never say that nothing is open because much has been.
///
/// # Errors
/// When the database refuses.
pub async fn incidents(
    connection: &mut PgConnection,
    since: Timestamp,
    limit: i64,
) -> Result<Vec<IncidentRow>, StoreError> {
    let rows = sqlx::query_as!(
        Row,
        "select id, opened_at, closed_at, key, kind, about, members, changes_made, conclusion
         from (
             select * from incident
             where closed_at is null or closed_at >= $1
             order by closed_at is null desc, id desc limit $2
         ) as listed
         order by id desc",
        offset(since),
        limit.clamp(1, INCIDENTS_MAX)
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(IncidentRow::from).collect())
}

/// Which incidents are listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Open then or later; none: whenever.
    pub since: Option<Timestamp>,
    /// Opened until then; none: until now.
    pub until: Option<Timestamp>,
    /// Only those that are open.
    pub open: bool,
    /// Only those at this vantage, or that affect it.
    pub vantage: Option<String>,
    /// Only those of these kinds; empty: of any.
    pub kinds: Vec<String>,
    /// Only those that affect this name, or are about this service or node.
    pub about: Option<String>,
}

struct ViewRow {
    id: i64,
    opened_at: OffsetDateTime,
    closed_at: Option<OffsetDateTime>,
    key: String,
    kind: String,
    members: Vec<String>,
    changes_made: i32,
    conclusion: Value,
}

impl From<ViewRow> for IncidentRow {
    fn from(row: ViewRow) -> Self {
        let finding: Option<Finding> = parsed(row.conclusion);
        Self {
            id: IncidentId(row.id),
            opened_at: timestamp(row.opened_at),
            closed_at: row.closed_at.map(timestamp),
            key: row.key,
            kind: row.kind,
            subject: finding.as_ref().map(|finding| finding.subject.clone()),
            members: row.members,
            changes_made: row.changes_made,
            finding,
        }
    }
}

/// Incidents that a filter lets through, the newest first; of too many the open ones come before the closed.
///
/// # Errors
/// When the database refuses.
pub async fn listed(
    connection: &mut PgConnection,
    filter: &Filter,
    limit: i64,
) -> Result<Vec<IncidentRow>, StoreError> {
    let rows = sqlx::query_as!(
        ViewRow,
        r#"select id as "id!", opened_at as "opened_at!", closed_at, key as "key!", kind as "kind!", members as "members!",
                  changes_made as "changes_made!", conclusion as "conclusion!: Value"
           from (
               select * from v_incident
               where ($1::timestamptz is null or closed_at is null or closed_at >= $1)
                 and ($2::timestamptz is null or opened_at <= $2)
                 and (not $3 or closed_at is null)
                 and ($4::text is null or vantage = $4 or $4 = any(members))
                 and ($5::text[] = '{}' or kind = any($5))
                 and ($6::text is null or subject = $6 or $6 = any(members))
               order by closed_at is null desc, id desc limit $7
           ) as listed
           order by id desc"#,
        filter.since.map(offset),
        filter.until.map(offset),
        filter.open,
        filter.vantage.as_deref(),
        &filter.kinds,
        filter.about.as_deref(),
        limit
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(IncidentRow::from).collect())
}

/// Every kind of which there was an incident.
///
/// # Errors
/// When the database refuses.
pub async fn kinds(connection: &mut PgConnection) -> Result<Vec<String>, StoreError> {
    Ok(sqlx::query_scalar!(r#"select distinct kind as "kind!" from v_incident order by 1"#)
        .fetch_all(connection)
        .await?)
}

/// One incident.
///
/// # Errors
/// When the database refuses.
pub async fn incident(connection: &mut PgConnection, id: IncidentId) -> Result<Option<IncidentRow>, StoreError> {
    let row = sqlx::query_as!(
        Row,
        "select id, opened_at, closed_at, key, kind, about, members, changes_made, conclusion
         from incident where id = $1",
        id.0
    )
    .fetch_optional(connection)
    .await?;
    Ok(row.map(IncidentRow::from))
}

/// The highest number of an incident, for people who mistype one.
///
/// # Errors
/// When the database refuses.
pub async fn newest(connection: &mut PgConnection) -> Result<Option<IncidentId>, StoreError> {
    Ok(sqlx::query_scalar!("select max(id) from incident").fetch_one(connection).await?.map(IncidentId))
}

/// A cited observation; the fields from `at` on are none when it is no longer in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvidenceRow {
    /// Observation.
    pub observation: i64,
    /// What it shows.
    pub says: String,
    /// When the probe ended.
    pub at: Option<Timestamp>,
    /// Where.
    pub vantage: Option<String>,
    /// Kind of fact.
    pub kind: Option<String>,
    /// What it was about.
    pub subject: Option<String>,
    /// Resolver asked.
    pub resolver: Option<String>,
    /// Address contacted.
    pub address: Option<IpAddr>,
    /// Port contacted.
    pub port: Option<i32>,
    /// Outcome's word.
    pub outcome: Option<String>,
    /// Stage's word.
    pub stage: Option<String>,
    /// Addresses answered.
    pub addresses: Vec<IpAddr>,
    /// TTL of the answer, seconds.
    pub ttl_s: Option<i32>,
    /// Own attempts.
    pub attempts: Option<i16>,
    /// Attempts that completed TCP.
    pub attempts_connected: Option<i16>,
    /// How long it took, microseconds.
    pub duration_us: Option<i64>,
}

/// How many observations an incident cites.
///
/// # Errors
/// When the database refuses.
pub async fn evidence_count(connection: &mut PgConnection, id: IncidentId) -> Result<i64, StoreError> {
    let count =
        sqlx::query_scalar!(r#"select count(*) as "count!" from incident_evidence where incident_id = $1"#, id.0)
            .fetch_one(connection)
            .await?;
    Ok(count)
}

/// The observations an incident cites, oldest first.
///
/// # Errors
/// When the database refuses.
pub async fn evidence(connection: &mut PgConnection, incident: &IncidentRow) -> Result<Vec<EvidenceRow>, StoreError> {
    let cited = sqlx::query!(
        "select says, observation_id from incident_evidence where incident_id = $1 order by observation_id limit $2",
        incident.id.0,
        EVIDENCE_SHOWN_MAX
    )
    .fetch_all(&mut *connection)
    .await?;
    let ids: Vec<i64> = cited.iter().map(|row| row.observation_id).collect();
    let says: Vec<String> = cited.into_iter().map(|row| row.says).collect();
    let rows = sqlx::query!(
        r#"select e.says as "says!", e.observation_id as "observation_id!", o.observed_at as "observed_at?",
                  v.name as "vantage?", o.kind as "kind?", o.subject as "subject?", o.resolver,
                  o.address as "address: IpAddr", o.port, o.outcome as "outcome?", o.stage,
                  o.addresses as "addresses: Vec<IpAddr>", o.ttl_s, o.attempts, o.attempts_connected,
                  o.duration_us as "duration_us?"
           from unnest($1::bigint[], $2::text[]) as e(observation_id, says)
           left join cited_observation o on o.id = e.observation_id
           left join vantage v on v.id = o.vantage_id
           order by e.observation_id"#,
        &ids,
        &says
    )
    .fetch_all(connection)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| EvidenceRow {
            observation: row.observation_id,
            says: row.says,
            at: row.observed_at.map(timestamp),
            vantage: row.vantage,
            kind: row.kind,
            subject: row.subject,
            resolver: row.resolver,
            address: row.address,
            port: row.port,
            outcome: row.outcome,
            stage: row.stage,
            addresses: row.addresses.unwrap_or_default(),
            ttl_s: row.ttl_s,
            attempts: row.attempts,
            attempts_connected: row.attempts_connected,
            duration_us: row.duration_us,
        })
        .collect())
}

/// A step of a timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepRow {
    /// When.
    pub at: Timestamp,
    /// incident, plan or proof.
    pub source: String,
    /// Plan concerned.
    pub plan: Option<i64>,
    /// Vantage concerned.
    pub vantage: Option<String>,
    /// Word for what happened.
    pub what: String,
    /// Particulars.
    pub detail: Value,
}

/// The timeline of an incident, oldest first; of a very long one the newest [`STEPS_MAX`] steps.
///
/// # Errors
/// When the database refuses.
pub async fn timeline(connection: &mut PgConnection, id: IncidentId) -> Result<Vec<StepRow>, StoreError> {
    let rows = sqlx::query!(
        r#"select * from (
               select at as "at!", rank as "rank!", item as "item!", source as "source!", plan_id, vantage,
                      what as "what!", detail as "detail!: Value"
               from v_timeline where incident_id = $1
               order by at desc, rank desc, item desc limit $2
           ) as newest
           order by 1, 2, 3"#,
        id.0,
        STEPS_MAX
    )
    .fetch_all(connection)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| StepRow {
            at: timestamp(row.at),
            source: row.source,
            plan: row.plan_id,
            vantage: row.vantage,
            what: row.what,
            detail: row.detail,
        })
        .collect())
}

/// A value, unless another version wrote it.
pub(super) fn parsed<T: DeserializeOwned>(value: Value) -> Option<T> {
    serde_json::from_value(value).ok()
}
