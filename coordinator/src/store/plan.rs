//! Plans: made, journalled before they are sent, applied, proven. Never deleted.

use std::collections::BTreeMap;

use parallax_decide::incident::IncidentId;
use parallax_decide::names::{DriverName, VantageName};
use parallax_decide::plan::{Plan, PlanId, PlanPurpose, PlanRecord, PlanStatus};
use parallax_decide::time::Timestamp;
use parallax_decide::topology::Mode;
use parallax_decide::verify::Seen;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sqlx::PgConnection;
use time::OffsetDateTime;

use super::{StoreError, offset, timestamp};

/// What stands in `approved_by` when the policy lets automation act.
pub const APPROVED_BY_POLICY: &str = "policy";

/// A plan with what only the store knows about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPlan {
    /// The plan and where it stands.
    pub record: PlanRecord,
    /// Who approved it.
    pub approved_by: Option<String>,
    /// When a pin was last renewed.
    pub renewed_at: Option<Timestamp>,
    /// Whether it was stored that its proof failed.
    pub proof_failed: bool,
}

impl StoredPlan {
    /// Whether a person approved it.
    #[must_use]
    pub fn approved_by_person(&self) -> bool {
        self.approved_by.as_deref().is_some_and(|by| by != APPROVED_BY_POLICY)
    }
}

/// A step of a plan, in its journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Written before the change is sent.
    Intent,
    /// What the driver found.
    Read,
    /// Written and read back.
    Applied,
    /// Stood already.
    Already,
    /// Somebody else's data was there.
    Conflict,
    /// A guard, the server or the branch's owner said no.
    Refused,
    /// The driver failed; nothing was changed.
    Failed,
    /// Perhaps applied.
    Uncertain,
    /// A vantage's clients see and use it.
    Proof,
    /// Nobody did in time.
    ProofFailed,
    /// Everybody concerned does.
    Verified,
    /// Another holder of the lease goes on with it.
    TakenOver,
    /// A pin's life was extended.
    Renewed,
    /// Not applied in time.
    Expired,
}

impl Step {
    /// The word in SQL.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Intent => "intent",
            Self::Read => "read",
            Self::Applied => "applied",
            Self::Already => "already",
            Self::Conflict => "conflict",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Uncertain => "uncertain",
            Self::Proof => "proof",
            Self::ProofFailed => "proof_failed",
            Self::Verified => "verified",
            Self::TakenOver => "taken_over",
            Self::Renewed => "renewed",
            Self::Expired => "expired",
        }
    }
}

struct Row {
    id: i64,
    incident_id: i64,
    epoch: i64,
    created_at: OffsetDateTime,
    expires_at: OffsetDateTime,
    purpose: String,
    undoes: Option<i64>,
    driver: String,
    vantage: Option<String>,
    subject: String,
    change: Value,
    reason: Value,
    mode: String,
    approved_by: Option<String>,
    status: String,
    applied_at: Option<OffsetDateTime>,
    verified_at: Option<OffsetDateTime>,
    renewed_at: Option<OffsetDateTime>,
    proof_failed: bool,
}

impl TryFrom<Row> for StoredPlan {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        let bad = |column, why: String| StoreError::content("plan", column, row.id, why);
        let unknown = |word: &str| format!("'{word}' is not a word this version knows");
        let plan = Plan {
            purpose: PlanPurpose::from_word(&row.purpose).ok_or_else(|| bad("purpose", unknown(&row.purpose)))?,
            undoes: row.undoes.map(PlanId),
            driver: row.driver.parse::<DriverName>().map_err(|error| bad("driver", error.to_string()))?,
            vantage: row
                .vantage
                .map(|name| name.parse::<VantageName>())
                .transpose()
                .map_err(|error| bad("vantage", error.to_string()))?,
            item: row.subject,
            change: read(row.change).map_err(|why| bad("change", why))?,
            reason: read(row.reason).map_err(|why| bad("reason", why))?,
            expires_at: timestamp(row.expires_at),
            mode: mode(&row.mode).ok_or_else(|| bad("mode", unknown(&row.mode)))?,
        };
        let record = PlanRecord {
            id: PlanId(row.id),
            incident: IncidentId(row.incident_id),
            epoch: row.epoch,
            created_at: timestamp(row.created_at),
            status: PlanStatus::from_word(&row.status).ok_or_else(|| bad("status", unknown(&row.status)))?,
            applied_at: row.applied_at.map(timestamp),
            verified_at: row.verified_at.map(timestamp),
            plan,
        };
        let renewed_at = row.renewed_at.map(timestamp);
        Ok(Self { record, approved_by: row.approved_by, renewed_at, proof_failed: row.proof_failed })
    }
}

/// Every plan of the open incidents, oldest first.
///
/// # Errors
/// When the database refuses, or a row holds what this version cannot read.
pub async fn of_open_incidents(connection: &mut PgConnection) -> Result<Vec<StoredPlan>, StoreError> {
    sqlx::query_as!(
        Row,
        r#"select p.id, p.incident_id, p.epoch, p.created_at, p.expires_at, p.purpose, p.undoes, p.driver, p.vantage,
                  p.subject, p.change, p.reason, p.mode, p.approved_by, p.status, p.applied_at, p.verified_at,
                  (select max(e.at) from plan_event e where e.plan_id = p.id and e.what = $1) as renewed_at,
                  exists (select from plan_event e where e.plan_id = p.id and e.what = $2) as "proof_failed!"
           from plan p join incident i on i.id = p.incident_id
           where i.closed_at is null
           order by p.id"#,
        Step::Renewed.word(),
        Step::ProofFailed.word()
    )
    .fetch_all(connection)
    .await?
    .into_iter()
    .map(StoredPlan::try_from)
    .collect()
}

/// Stores a new plan, approved by the policy when it may act by itself, else proposed. `None`:
/// another plan of the same driver is on its way. Part of a transaction.
///
/// # Errors
/// When the database refuses.
pub async fn insert(
    connection: &mut PgConnection,
    incident: IncidentId,
    epoch: i64,
    at: Timestamp,
    plan: &Plan,
) -> Result<Option<PlanId>, StoreError> {
    let (status, approved_by) = match plan.mode {
        Mode::Act => (PlanStatus::Approved, Some(APPROVED_BY_POLICY)),
        Mode::Propose | Mode::Observe => (PlanStatus::Proposed, None),
    };
    let id = sqlx::query_scalar!(
        "insert into plan (incident_id, epoch, created_at, expires_at, purpose, undoes, driver, vantage, subject,
                           change, undo, reason, mode, approved_by, status)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
         on conflict do nothing
         returning id",
        incident.0,
        epoch,
        offset(at),
        offset(plan.expires_at),
        plan.purpose.word(),
        plan.undoes.map(|id| id.0),
        plan.driver.as_str(),
        plan.vantage.as_ref().map(VantageName::as_str),
        plan.item,
        write("change", &plan.change)?,
        write("undo", &plan.change.undo())?,
        write("reason", &plan.reason)?,
        mode_word(plan.mode),
        approved_by,
        status.word()
    )
    .fetch_optional(connection)
    .await?;
    Ok(id.map(PlanId))
}

/// Moves a plan from one status to another. False when it no longer stands where it was thought to.
///
/// # Errors
/// When the database refuses.
pub async fn advance(
    connection: &mut PgConnection,
    id: PlanId,
    from: PlanStatus,
    to: PlanStatus,
) -> Result<bool, StoreError> {
    let moved = sqlx::query!("update plan set status = $3 where id = $1 and status = $2", id.0, from.word(), to.word())
        .execute(connection)
        .await?;
    Ok(moved.rows_affected() == 1)
}

/// Notes that the driver confirmed a plan. False when it is not on its way.
///
/// # Errors
/// When the database refuses.
pub async fn applied(
    connection: &mut PgConnection,
    id: PlanId,
    at: Timestamp,
    counted: bool,
) -> Result<bool, StoreError> {
    let moved = sqlx::query!(
        "update plan set status = $2, applied_at = $3, counted = $4 where id = $1 and status = $5",
        id.0,
        PlanStatus::Applied.word(),
        offset(at),
        counted,
        PlanStatus::Applying.word()
    )
    .execute(connection)
    .await?;
    Ok(moved.rows_affected() == 1)
}

/// Notes that a plan is proven from the client's side. False when it does not stand applied.
///
/// # Errors
/// When the database refuses.
pub async fn verified(connection: &mut PgConnection, id: PlanId, at: Timestamp) -> Result<bool, StoreError> {
    let moved = sqlx::query!(
        "update plan set status = $2, verified_at = $3 where id = $1 and status = $4",
        id.0,
        PlanStatus::Verified.word(),
        offset(at),
        PlanStatus::Applied.word()
    )
    .execute(connection)
    .await?;
    Ok(moved.rows_affected() == 1)
}

/// Ends the remedies of an item that served until now: a proven return took them back.
///
/// # Errors
/// When the database refuses.
pub async fn undone(connection: &mut PgConnection, incident: IncidentId, item: &str) -> Result<(), StoreError> {
    sqlx::query!(
        "update plan set status = $3 where incident_id = $1 and subject = $2 and purpose <> $4 and status = $5",
        incident.0,
        item,
        PlanStatus::Undone.word(),
        PlanPurpose::Return.word(),
        PlanStatus::Verified.word()
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Puts a plan under the epoch of the lease held now.
///
/// # Errors
/// When the database refuses.
pub async fn take_over(connection: &mut PgConnection, id: PlanId, epoch: i64) -> Result<(), StoreError> {
    sqlx::query!("update plan set epoch = $2 where id = $1 and epoch < $2", id.0, epoch).execute(connection).await?;
    Ok(())
}

/// Adds a step to a plan's journal.
///
/// # Errors
/// When the database refuses.
pub async fn event(
    connection: &mut PgConnection,
    id: PlanId,
    at: Timestamp,
    step: Step,
    detail: &Value,
) -> Result<(), StoreError> {
    sqlx::query!(
        "insert into plan_event (plan_id, at, what, detail) values ($1, $2, $3, $4)",
        id.0,
        offset(at),
        step.word(),
        detail
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Stores who sees the change. The first sight of a vantage stays. Returns the new ones.
///
/// # Errors
/// When the database refuses.
pub async fn seen(connection: &mut PgConnection, id: PlanId, seen: &[Seen]) -> Result<Vec<VantageName>, StoreError> {
    let mut new = Vec::new();
    for sight in seen {
        let made = sqlx::query!(
            "insert into plan_proof (plan_id, vantage, seen_at, resolution_id, connection_id)
             values ($1, $2, $3, $4, $5) on conflict do nothing",
            id.0,
            sight.vantage.as_str(),
            offset(sight.at),
            sight.resolution.0,
            sight.connection.0
        )
        .execute(&mut *connection)
        .await?;
        if made.rows_affected() > 0 {
            new.push(sight.vantage.clone());
        }
    }
    Ok(new)
}

/// How often each incident key's subject went back to native since this time: of its items the one
/// that did so most often.
///
/// # Errors
/// When the database refuses.
pub async fn returns_since(
    connection: &mut PgConnection,
    since: Timestamp,
) -> Result<BTreeMap<String, u32>, StoreError> {
    let rows = sqlx::query!(
        r#"select key, max(n) as "n!" from (
               select i.key, count(*) as n
               from plan p join incident i on i.id = p.incident_id
               where p.purpose = $2 and p.applied_at > $1
               group by i.key, p.subject
           ) as returns
           group by key"#,
        offset(since),
        PlanPurpose::Return.word()
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(|row| (row.key, u32::try_from(row.n).unwrap_or(u32::MAX))).collect())
}

/// The word of a mode in SQL.
#[must_use]
pub fn mode_word(mode: Mode) -> &'static str {
    match mode {
        Mode::Observe => "observe",
        Mode::Propose => "propose",
        Mode::Act => "act",
    }
}

fn mode(word: &str) -> Option<Mode> {
    [Mode::Observe, Mode::Propose, Mode::Act].into_iter().find(|mode| mode_word(*mode) == word)
}

fn read<T: DeserializeOwned>(value: Value) -> Result<T, String> {
    serde_json::from_value(value).map_err(|error| error.to_string())
}

fn write(column: &'static str, value: &impl Serialize) -> Result<Value, StoreError> {
    serde_json::to_value(value).map_err(|error| StoreError::content("plan", column, "new", error))
}
