//! Plans: made, journalled before they are sent, applied, proven. Never deleted.

use std::collections::BTreeMap;

use parallax_decide::incident::IncidentId;
use parallax_decide::names::VantageName;
use parallax_decide::plan::{Plan, PlanId, PlanPurpose, PlanStatus};
use parallax_decide::time::Timestamp;
use parallax_decide::topology::Mode;
use parallax_decide::verify::Seen;
use serde::Serialize;
use serde_json::Value;
use sqlx::PgConnection;

use super::{StoreError, citation, offset};

pub use step::Step;
pub use stored::{APPROVED_BY_POLICY, StoredPlan, mode_word, of_open_incidents, of_span};

mod step;
mod stored;

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
         select $1::bigint, $2::bigint, $3::timestamptz, $4::timestamptz, $5::text, $6::bigint, $7::text, $8::text,
                $9::text, $10::jsonb, $11::jsonb, $12::jsonb, $13::text, $14::text, $15::text
         where $15 <> 'approved' or not exists (
             select from plan where driver = $7 and vantage is not distinct from $8
                 and status in ('approved', 'applying'))
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
            sight.connection.map(|id| id.0)
        )
        .execute(&mut *connection)
        .await?;
        if made.rows_affected() > 0 {
            let seen: Vec<_> = [Some(sight.resolution), sight.connection].into_iter().flatten().collect();
            citation::keep(&mut *connection, sight.at, &seen).await?;
            new.push(sight.vantage.clone());
        }
    }
    Ok(new)
}

/// How often each name or service of an incident's key relapsed since a moment: its returns that a
/// later remedy of the same one followed, by key and then by name or service.
///
/// # Errors
/// The database refuses.
pub async fn relapses_since(
    connection: &mut PgConnection,
    since: Timestamp,
) -> Result<BTreeMap<String, BTreeMap<String, u32>>, StoreError> {
    let rows = sqlx::query!(
        r#"select i.key, back.subject, count(*) as "n!"
           from plan back join incident i on i.id = back.incident_id
           where back.purpose = $2 and back.applied_at > $1 and exists (
               select from plan again join incident j on j.id = again.incident_id
               where j.key = i.key and again.subject = back.subject and again.purpose = $3
                   and again.applied_at > back.applied_at)
           group by i.key, back.subject"#,
        offset(since),
        PlanPurpose::Return.word(),
        PlanPurpose::Remedy.word()
    )
    .fetch_all(connection)
    .await?;
    let mut relapses: BTreeMap<String, BTreeMap<String, u32>> = BTreeMap::new();
    for row in rows {
        relapses.entry(row.key).or_default().insert(row.subject, u32::try_from(row.n).unwrap_or(u32::MAX));
    }
    Ok(relapses)
}

fn write(column: &'static str, value: &impl Serialize) -> Result<Value, StoreError> {
    serde_json::to_value(value).map_err(|error| StoreError::content("plan", column, "new", error))
}
