//! Plans as they come out of the store.

use parallax_decide::incident::IncidentId;
use parallax_decide::names::{DriverName, VantageName};
use parallax_decide::plan::{Plan, PlanId, PlanPurpose, PlanRecord, PlanStatus};
use parallax_decide::time::Timestamp;
use parallax_decide::topology::Mode;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sqlx::PgConnection;
use time::OffsetDateTime;

use super::step::Step;
use crate::store::{StoreError, offset, timestamp};

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

/// Plans one replay reads.
const PLANS_OF_SPAN_MAX: i64 = 20_000;

/// Plans made between two times, and those of these incidents whenever they were made, oldest first. From views alone.
///
/// # Errors
/// When the database refuses, or a row holds what this version cannot read.
pub async fn of_span(
    connection: &mut PgConnection,
    incidents: &[IncidentId],
    from: Timestamp,
    to: Timestamp,
) -> Result<Vec<StoredPlan>, StoreError> {
    let incidents: Vec<i64> = incidents.iter().map(|id| id.0).collect();
    sqlx::query_as!(
        Row,
        r#"select id as "id!", incident_id as "incident_id!", epoch as "epoch!", created_at as "created_at!",
                  expires_at as "expires_at!", purpose as "purpose!", undoes, driver as "driver!", vantage,
                  subject as "subject!", change as "change!: Value", reason as "reason!: Value", mode as "mode!",
                  approved_by, status as "status!", applied_at, verified_at, null::timestamptz as renewed_at,
                  false as "proof_failed!"
           from v_plan
           where created_at <= $3 and (created_at >= $2 or incident_id = any($1))
           order by id limit $4"#,
        &incidents,
        offset(from),
        offset(to),
        PLANS_OF_SPAN_MAX
    )
    .fetch_all(connection)
    .await?
    .into_iter()
    .map(StoredPlan::try_from)
    .collect()
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
