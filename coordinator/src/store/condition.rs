//! What agents say of their own place: how its controls did, and how far its clock is off.

use std::collections::BTreeMap;

use parallax_decide::observation::{Fact, Family};
use serde_json::Value;
use sqlx::PgConnection;

use super::StoreError;
use super::log::NewObservation;
use super::vantage::VantageId;

/// What one batch says of its vantage; the newest counts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Condition {
    /// Failed and all checks of the positive controls in 20 minutes, by family.
    controls: BTreeMap<i16, (i32, i32)>,
    /// Its wall clock less ours.
    clock_offset_ms: Option<i64>,
}

impl Condition {
    /// Takes in an observation that is not late: history says nothing of now.
    pub fn take(&mut self, observation: &NewObservation) {
        if !matches!(observation.fact, Fact::ControlCheck(_)) {
            return;
        }
        let number = |key: &str| observation.detail.get(key).and_then(Value::as_i64);
        let small = |key: &str| number(key).and_then(|number| i32::try_from(number).ok());
        if let Some(offset) = number("clock_offset_ms") {
            self.clock_offset_ms = Some(offset);
        }
        let address = observation.detail.get("address").and_then(Value::as_str);
        if let (Some(Ok(address)), Some(failures), Some(checks)) =
            (address.map(str::parse), small("failures"), small("checks"))
        {
            let family = match Family::of(address) {
                Family::V4 => 4,
                Family::V6 => 6,
            };
            self.controls.insert(family, (failures, checks));
        }
    }
}

/// Stores what vantages say of themselves.
///
/// # Errors
/// When the database refuses.
pub async fn record(
    connection: &mut PgConnection,
    conditions: &BTreeMap<VantageId, Condition>,
) -> Result<(), StoreError> {
    let (mut vantages, mut families, mut failures, mut checks) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut told, mut offsets) = (Vec::new(), Vec::new());
    for (vantage, condition) in conditions {
        for (family, (failed, all)) in &condition.controls {
            vantages.push(vantage.0);
            families.push(*family);
            failures.push(*failed);
            checks.push(*all);
        }
        if let Some(offset) = condition.clock_offset_ms {
            told.push(vantage.0);
            offsets.push(offset);
        }
    }
    if !vantages.is_empty() {
        sqlx::query!(
            "insert into vantage_controls (vantage_id, family, failures, checks, told_at)
             select v, f, failed, checks, clock_timestamp()
             from unnest($1::smallint[], $2::smallint[], $3::integer[], $4::integer[]) as n(v, f, failed, checks)
             order by v, f
             on conflict (vantage_id, family) do update
                 set failures = excluded.failures, checks = excluded.checks, told_at = excluded.told_at",
            &vantages,
            &families,
            &failures,
            &checks
        )
        .execute(&mut *connection)
        .await?;
    }
    if !told.is_empty() {
        sqlx::query!(
            "update vantage set clock_offset_ms = n.off, clock_told_at = clock_timestamp()
             from unnest($1::smallint[], $2::bigint[]) as n(v, off) where id = n.v",
            &told,
            &offsets
        )
        .execute(connection)
        .await?;
    }
    Ok(())
}
