//! What was planned and done.

use parallax_decide::change::Change;
use parallax_decide::incident::IncidentId;
use parallax_decide::plan::{PlanPurpose, PlanReason, PlanStatus};
use parallax_decide::time::Timestamp;
use serde_json::Value;
use sqlx::PgConnection;
use time::OffsetDateTime;

use super::incident::parsed;
use crate::store::{StoreError, offset, timestamp};

/// Plans a list shows, or an incident.
pub const PLANS_MAX: i64 = 100;

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

/// Plans of these incidents, oldest first: of each at most [`PLANS_MAX`], those that changed DNS before
/// those that came to nothing, and then the newest. What was done is never crowded out by what was not.
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
           from (
               select *, row_number() over (partition by incident_id order by applied_at is not null desc, id desc) as place
               from plan where incident_id = any($1)
           ) as p
           where p.place <= $2
           order by p.id"#,
        &incidents,
        PLANS_MAX
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(PlanRow::from).collect())
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

/// The same at a moment, as the changes until then left it.
///
/// # Errors
/// When the database refuses.
pub async fn records_set_at(connection: &mut PgConnection, at: Timestamp) -> Result<Vec<PlanRow>, StoreError> {
    let rows = sqlx::query_as!(
        PlanColumns,
        r#"select distinct on (subject)
                  id as "id!", incident_id as "incident_id!", purpose as "purpose!", undoes, driver as "driver!", vantage,
                  subject as "subject!", change as "change!: Value", undo as "undo!: Value", reason as "reason!: Value",
                  mode as "mode!", approved_by, status as "status!", created_at as "created_at!",
                  expires_at as "expires_at!", applied_at, verified_at, counted as "counted!",
                  0::bigint as "proofs!", null::timestamptz as last_proof_at
           from v_plan
           where vantage is null and applied_at <= $1
           order by subject, applied_at desc, id desc limit $2"#,
        offset(at),
        PLANS_MAX
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(PlanRow::from).collect())
}

/// Pins at a moment: of each name at each vantage the last change until then, where that set one.
///
/// # Errors
/// When the database refuses.
pub async fn pins_at(connection: &mut PgConnection, at: Timestamp) -> Result<Vec<PlanRow>, StoreError> {
    let rows = sqlx::query_as!(
        PlanColumns,
        r#"select * from (
               select distinct on (vantage, name)
                      id as "id!", incident_id as "incident_id!", purpose as "purpose!", undoes, driver as "driver!", vantage,
                      subject as "subject!", change as "change!: Value", undo as "undo!: Value", reason as "reason!: Value",
                      mode as "mode!", approved_by, status as "status!", created_at as "created_at!",
                      expires_at as "expires_at!", applied_at, verified_at, counted as "counted!",
                      0::bigint as "proofs!", null::timestamptz as last_proof_at
               from v_plan
               where vantage is not null and applied_at <= $1
               order by vantage, name, applied_at desc, id desc
           ) as last
           where "change!: Value" ->> 'kind' = 'pin'
           order by 1 limit $2"#,
        offset(at),
        PLANS_MAX
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(PlanRow::from).collect())
}
