//! What happened: incidents with their evidence, timeline and plans.

use std::net::IpAddr;
use std::time::Duration;

use parallax_decide::change::Change;
use parallax_decide::finding::{Finding, Subject};
use parallax_decide::incident::IncidentId;
use parallax_decide::plan::{PlanPurpose, PlanReason, PlanStatus};
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

/// An incident cites what was received at most this long before it opened: evidence is fresh when
/// it is used.
const CITED_BEFORE: Duration = Duration::from_secs(24 * 3600);

/// Nothing that was received later than this after the closing is cited; a margin for the clocks.
const CITED_AFTER: Duration = Duration::from_secs(3600);

/// Later than anything: the end of the year 9999.
const FAR: Timestamp = Timestamp(253_402_300_799_000);

/// Steps of a timeline that are shown, the newest ones.
pub const STEPS_MAX: i64 = 300;

/// Plans a list shows, the newest ones.
pub const PLANS_MAX: i64 = 100;

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

/// Open incidents, and those that opened or closed since `since`; the newest first.
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
         from incident
         where closed_at is null or closed_at >= $1
         order by id desc limit $2",
        offset(since),
        limit.clamp(1, INCIDENTS_MAX)
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(IncidentRow::from).collect())
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
    let count = sqlx::query_scalar!(
        r#"select count(*) as "count!" from incident_evidence where incident_id = $1"#,
        id.0
    )
    .fetch_one(connection)
    .await?;
    Ok(count)
}

/// The observations an incident cites, oldest first.
///
/// # Errors
/// When the database refuses.
pub async fn evidence(
    connection: &mut PgConnection,
    incident: &IncidentRow,
) -> Result<Vec<EvidenceRow>, StoreError> {
    let cited = sqlx::query!(
        "select says, observation_id from incident_evidence where incident_id = $1 order by observation_id limit $2",
        incident.id.0,
        EVIDENCE_SHOWN_MAX
    )
    .fetch_all(&mut *connection)
    .await?;
    let ids: Vec<i64> = cited.iter().map(|row| row.observation_id).collect();
    let says: Vec<String> = cited.into_iter().map(|row| row.says).collect();
    // The span of receipt spares the database the partitions of all other days.
    let from = incident.opened_at.minus(CITED_BEFORE);
    let until = incident.closed_at.map_or(FAR, |at| at.plus(CITED_AFTER));
    let rows = sqlx::query!(
        r#"select e.says as "says!", e.observation_id as "observation_id!", o.observed_at as "observed_at?",
                  v.name as "vantage?", o.kind as "kind?", o.subject as "subject?", o.resolver,
                  o.address as "address: IpAddr", o.port, o.outcome as "outcome?", o.stage,
                  o.addresses as "addresses: Vec<IpAddr>", o.ttl_s, o.attempts, o.attempts_connected,
                  o.duration_us as "duration_us?"
           from unnest($1::bigint[], $2::text[]) as e(observation_id, says)
           left join (select * from observation where id = any($1) and received_at between $3 and $4) as o
                  on o.id = e.observation_id
           left join vantage v on v.id = o.vantage_id
           order by e.observation_id"#,
        &ids,
        &says,
        offset(from),
        offset(until)
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

/// A plan, with what could not be read left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanRow {
    /// Number.
    pub id: i64,
    /// Its incident.
    pub incident: IncidentId,
    /// What it is for.
    pub purpose: Option<PlanPurpose>,
    /// Plan whose change it takes back.
    pub undoes: Option<i64>,
    /// Driver.
    pub driver: String,
    /// Vantage whose agent applies it.
    pub vantage: Option<String>,
    /// Service or name.
    pub item: String,
    /// The change.
    pub change: Option<Change>,
    /// What takes it back.
    pub undo: Option<Change>,
    /// Why.
    pub reason: Option<PlanReason>,
    /// Mode's word.
    pub mode: String,
    /// Who approved it.
    pub approved_by: Option<String>,
    /// Where it stands.
    pub status: Option<PlanStatus>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
    /// When it was read back.
    pub applied_at: Option<Timestamp>,
    /// When it was proven.
    pub verified_at: Option<Timestamp>,
    /// Whether it counts against the incident's changes.
    pub counted: bool,
    /// How many vantages have proven it.
    pub proofs: i64,
    /// When the last of them did.
    pub last_proof_at: Option<Timestamp>,
}

struct PlanColumns {
    id: i64,
    incident_id: i64,
    purpose: String,
    undoes: Option<i64>,
    driver: String,
    vantage: Option<String>,
    subject: String,
    change: Value,
    undo: Value,
    reason: Value,
    mode: String,
    approved_by: Option<String>,
    status: String,
    created_at: OffsetDateTime,
    expires_at: OffsetDateTime,
    applied_at: Option<OffsetDateTime>,
    verified_at: Option<OffsetDateTime>,
    counted: bool,
    proofs: i64,
    last_proof_at: Option<OffsetDateTime>,
}

impl From<PlanColumns> for PlanRow {
    fn from(row: PlanColumns) -> Self {
        Self {
            id: row.id,
            incident: IncidentId(row.incident_id),
            purpose: PlanPurpose::from_word(&row.purpose),
            undoes: row.undoes,
            driver: row.driver,
            vantage: row.vantage,
            item: row.subject,
            change: parsed(row.change),
            undo: parsed(row.undo),
            reason: parsed(row.reason),
            mode: row.mode,
            approved_by: row.approved_by,
            status: PlanStatus::from_word(&row.status),
            created_at: timestamp(row.created_at),
            expires_at: timestamp(row.expires_at),
            applied_at: row.applied_at.map(timestamp),
            verified_at: row.verified_at.map(timestamp),
            counted: row.counted,
            proofs: row.proofs,
            last_proof_at: row.last_proof_at.map(timestamp),
        }
    }
}

/// Plans of these incidents, the newest [`PLANS_MAX`], oldest first.
///
/// # Errors
/// When the database refuses.
pub async fn plans_of(connection: &mut PgConnection, incidents: &[IncidentId]) -> Result<Vec<PlanRow>, StoreError> {
    let incidents: Vec<i64> = incidents.iter().map(|id| id.0).collect();
    let rows = sqlx::query_as!(
        PlanColumns,
        r#"select p.id, p.incident_id, p.purpose, p.undoes, p.driver, p.vantage, p.subject, p.change, p.undo, p.reason,
                  p.mode, p.approved_by, p.status, p.created_at, p.expires_at, p.applied_at, p.verified_at, p.counted,
                  (select count(*) from plan_proof f where f.plan_id = p.id) as "proofs!",
                  (select max(f.seen_at) from plan_proof f where f.plan_id = p.id) as last_proof_at
           from plan p where p.incident_id = any($1)
           order by p.id desc limit $2"#,
        &incidents,
        PLANS_MAX
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().rev().map(PlanRow::from).collect())
}

/// Plans that changed DNS or tried to, the newest first.
///
/// # Errors
/// When the database refuses.
pub async fn plans_newest(connection: &mut PgConnection, limit: i64) -> Result<Vec<PlanRow>, StoreError> {
    let rows = sqlx::query_as!(
        PlanColumns,
        r#"select p.id, p.incident_id, p.purpose, p.undoes, p.driver, p.vantage, p.subject, p.change, p.undo, p.reason,
                  p.mode, p.approved_by, p.status, p.created_at, p.expires_at, p.applied_at, p.verified_at, p.counted,
                  (select count(*) from plan_proof f where f.plan_id = p.id) as "proofs!",
                  (select max(f.seen_at) from plan_proof f where f.plan_id = p.id) as last_proof_at
           from plan p
           order by p.id desc limit $1"#,
        limit.clamp(1, PLANS_MAX)
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(PlanRow::from).collect())
}

/// For each record the newest plan that was read back as set: what the record holds by our knowledge.
///
/// # Errors
/// When the database refuses.
pub async fn records_set(connection: &mut PgConnection) -> Result<Vec<PlanRow>, StoreError> {
    let rows = sqlx::query_as!(
        PlanColumns,
        r#"select distinct on (p.subject)
                  p.id, p.incident_id, p.purpose, p.undoes, p.driver, p.vantage, p.subject, p.change, p.undo, p.reason,
                  p.mode, p.approved_by, p.status, p.created_at, p.expires_at, p.applied_at, p.verified_at, p.counted,
                  (select count(*) from plan_proof f where f.plan_id = p.id) as "proofs!",
                  (select max(f.seen_at) from plan_proof f where f.plan_id = p.id) as last_proof_at
           from plan p
           where p.vantage is null and p.applied_at is not null
           order by p.subject, p.applied_at desc, p.id desc limit $1"#,
        PLANS_MAX
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(PlanRow::from).collect())
}

/// Pins in force: remedies applied at a vantage and not taken back.
///
/// # Errors
/// When the database refuses.
pub async fn pins(connection: &mut PgConnection) -> Result<Vec<PlanRow>, StoreError> {
    let rows = sqlx::query_as!(
        PlanColumns,
        r#"select p.id, p.incident_id, p.purpose, p.undoes, p.driver, p.vantage, p.subject, p.change, p.undo, p.reason,
                  p.mode, p.approved_by, p.status, p.created_at, p.expires_at, p.applied_at, p.verified_at, p.counted,
                  (select count(*) from plan_proof f where f.plan_id = p.id) as "proofs!",
                  (select max(f.seen_at) from plan_proof f where f.plan_id = p.id) as last_proof_at
           from plan p join incident i on i.id = p.incident_id
           where i.closed_at is null and p.vantage is not null and p.purpose = 'remedy'
             and p.status in ('applied', 'verified')
           order by p.id limit $1"#,
        PLANS_MAX
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(PlanRow::from).collect())
}

fn parsed<T: DeserializeOwned>(value: Value) -> Option<T> {
    serde_json::from_value(value).ok()
}
