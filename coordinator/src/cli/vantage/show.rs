//! `parallax vantage list` and `show`.

use std::collections::BTreeMap;

use clap::Args;
use parallax_decide::time::Timestamp;
use serde_json::json;
use time::format_description::well_known::Rfc3339;

use super::{parse, unknown};
use crate::cli::database::Database;
use crate::cli::reading::{Shown, connect, failed};
use crate::cli::{Global, print, print_json};
use crate::error::Failure;
use crate::report::moment::{self, Zone};
use crate::store;
use crate::store::read::now::{self, VantageNow};
use crate::store::vantage::detail::{self, CertificateRow, Detail, GAP_DAYS};
use crate::store::vantage::{self, VantageRow};
use crate::words::vantage::{cloned, condition};

/// `parallax vantage list`
#[derive(Debug, Args)]
pub struct List {
    /// Also those that were removed.
    #[arg(long)]
    pub all: bool,
    /// Where it is stored.
    #[command(flatten)]
    pub database: Database,
}

/// `parallax vantage show`
#[derive(Debug, Args)]
pub struct Show {
    /// Name of the vantage.
    pub name: String,
    /// Where it is stored.
    #[command(flatten)]
    pub database: Database,
    /// How times are shown.
    #[command(flatten)]
    pub shown: Shown,
}

/// What a vantage is, in one word.
fn state(row: &VantageRow, listed: bool) -> &'static str {
    if row.retired_at.is_some() {
        "removed"
    } else if row.revoked_at.is_some() {
        "revoked"
    } else if listed || row.admitted_at.is_some() {
        "valid"
    } else if row.first_seen_at.is_some() {
        "unlisted"
    } else {
        "waiting"
    }
}

pub(super) async fn list(list: &List, global: &Global) -> Result<(), Failure> {
    let mut connection = connect(&list.database).await?;
    let mut rows = vantage::all(&mut connection).await.map_err(failed)?;
    rows.retain(|row| list.all || row.retired_at.is_none());
    let now: BTreeMap<String, VantageNow> = now::vantages(&mut connection)
        .await
        .map_err(failed)?
        .into_iter()
        .map(|vantage| (vantage.name.clone(), vantage))
        .collect();
    let listed = |row: &VantageRow| now.get(row.name.as_str()).is_some_and(|now| now.configured);
    if global.json {
        let rows: Vec<_> = rows
            .iter()
            .map(|row| {
                json!({
                    "name": row.name, "state": state(row, listed(row)),
                    "first_seen_at": row.first_seen_at.map(text), "last_seen_at": row.last_seen_at.map(text),
                    "agent_version": row.agent_version, "revoked_at": row.revoked_at.map(text),
                    "retired_at": row.retired_at.map(text),
                    "clock_offset_ms": now.get(row.name.as_str()).and_then(|now| now.clock_offset_ms),
                    "controls_lately": now.get(row.name.as_str()).and_then(|now| now.controls_lately),
                    "coordinator": now.get(row.name.as_str()).and_then(|now| now.held_by.as_ref()).map(|(name, _)| name),
                    "connected_from": now.get(row.name.as_str()).and_then(|now| now.held_by.as_ref()).map(|(_, from)| from),
                    "cloned": now.get(row.name.as_str()).and_then(|now| now.cloned.as_ref()),
                })
            })
            .collect();
        return print_json(&json!({ "schema": 1, "vantages": rows }));
    }
    let mut out = format!(
        "{:<24} {:<28} {:<12} {:<8} {:<24} {}\n",
        "NAME", "LAST SEEN", "AGENT", "STATE", "AT COORDINATOR", "CLOCK, CONTROLS"
    );
    for row in rows {
        let last = row.last_seen_at.map_or_else(|| "never".to_owned(), text);
        let state = state(&row, listed(&row));
        let now = now.get(row.name.as_str());
        let said = now.map(|now| condition(now.clock_offset_ms, now.controls_lately));
        let held_by = now.and_then(|now| now.held_by.as_ref()).map_or("-", |(name, _)| name.as_str());
        let line = format!(
            "{:<24} {last:<28} {:<12} {state:<8} {held_by:<24} {}",
            row.name.as_str(),
            row.agent_version.unwrap_or_default(),
            said.unwrap_or_default()
        );
        out.push_str(line.trim_end());
        out.push('\n');
        if let Some(both) = now.and_then(|now| now.cloned.as_ref()) {
            out.push_str(&format!("    {}\n", cloned(both)));
        }
    }
    print(&out)
}

pub(super) async fn show(one: &Show, global: &Global) -> Result<(), Failure> {
    let name = parse(&one.name)?;
    let mut connection = connect(&one.database).await?;
    let row = vantage::by_name(&mut connection, &name).await.map_err(failed)?.ok_or_else(|| unknown(&name))?;
    let listed = vantage::is_listed(&mut connection, &name).await.map_err(failed)?;
    let detail = detail::read(&mut connection, row.id).await.map_err(failed)?;
    let condition_now = now::vantages(&mut connection).await.map_err(failed)?;
    let condition_now = condition_now.into_iter().find(|one| one.name == name.as_str());
    let at = store::database_now(&mut connection).await.map_err(failed)?;
    if global.json {
        let certificates: Vec<_> = detail.certificates.iter().map(|one| certificate_json(one, at)).collect();
        return print_json(&json!({
            "schema": 1, "name": name, "state": state(&row, listed), "listed": listed, "labels": row.labels,
            "former_names": detail.former_names, "agent_version": row.agent_version,
            "first_seen_at": row.first_seen_at.map(text), "last_seen_at": row.last_seen_at.map(text),
            "stored_at": detail.stored_at.map(text), "remote": row.last_remote,
            "last_coordinator": row.last_coordinator.map(|id| id.to_string()),
            "coordinator": condition_now.as_ref().and_then(|now| now.held_by.as_ref()).map(|(name, _)| name),
            "cloned": condition_now.as_ref().and_then(|now| now.cloned.as_ref()),
            "clock_offset_ms": condition_now.as_ref().and_then(|now| now.clock_offset_ms),
            "controls_lately": condition_now.as_ref().and_then(|now| now.controls_lately),
            "gaps": detail.gaps, "observations_missing": detail.missing, "gap_days": GAP_DAYS,
            "refused": detail.refused, "certificates": certificates,
        }));
    }
    let mut out = as_text(&row, state(&row, listed), &detail, at, &one.shown.style().zone);
    if let Some(now) = condition_now {
        let said = condition(now.clock_offset_ms, now.controls_lately);
        if !said.is_empty() {
            out.push_str(&format!("{:<14} {said}\n", "condition"));
        }
        match &now.held_by {
            Some((coordinator, from)) => out.push_str(&format!("{:<14} to {coordinator}, from {from}\n", "connected")),
            None => out.push_str(&format!("{:<14} no\n", "connected")),
        }
        if let Some(both) = &now.cloned {
            out.push_str(&format!("{:<14} {}\n", "CLONED", cloned(both)));
        }
    }
    print(&out)
}

/// Whole days until a certificate ends; below 0 when it has.
fn days_left(one: &CertificateRow, now: Timestamp) -> i64 {
    (one.not_after.0 - now.0).div_euclid(86_400_000)
}

fn certificate_json(one: &CertificateRow, now: Timestamp) -> serde_json::Value {
    json!({
        "serial": one.serial, "key_sha256": one.key_sha256, "how": one.how, "not_after": text(one.not_after),
        "days_left": days_left(one, now), "recorded_at": text(one.recorded_at), "remote": one.remote,
        "revoked_at": one.revoked_at.map(text),
    })
}

fn as_text(row: &VantageRow, state: &str, detail: &Detail, now: Timestamp, zone: &Zone) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: String| {
        if !value.is_empty() {
            out.push_str(&format!("{name:<14} {value}\n"));
        }
    };
    let ago = |at: Timestamp| format!("{} ago ({})", moment::coarse(now.since(at)), zone.minute(at));
    line("vantage", format!("{}  {state}", row.name));
    line("before", detail.former_names.join(", "));
    line("labels", row.labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" "));
    line("agent", row.agent_version.clone().unwrap_or_default());
    line("last seen", row.last_seen_at.map_or_else(|| "never".to_owned(), ago));
    line("last stored", detail.stored_at.map(ago).unwrap_or_default());
    line("last from", row.last_remote.clone().unwrap_or_default());
    line(
        "gaps",
        match detail.gaps {
            0 => format!("none in {GAP_DAYS} days"),
            gaps => format!(
                "{gaps} in {GAP_DAYS} days, {} observations never arrived (select * from v_gap)",
                detail.missing
            ),
        },
    );
    if detail.refused > 0 {
        line("refused", format!("{} messages or observations, ever (select * from ingest_refusal)", detail.refused));
    }
    if detail.certificates.is_empty() {
        line("certificates", "none; parallax token create makes a token to join with".to_owned());
    }
    for (place, one) in detail.certificates.iter().enumerate() {
        let state = match (one.revoked_at, days_left(one, now)) {
            (Some(at), _) => format!("revoked {}", zone.minute(at)),
            (None, days) if days < 0 => format!("ended {}", zone.minute(one.not_after)),
            (None, ..2) => {
                let hours = (one.not_after.0 - now.0).div_euclid(3_600_000);
                format!("{hours} hours left, until {}", zone.minute(one.not_after))
            }
            (None, days) => format!("{days} days left, until {}", zone.minute(one.not_after)),
        };
        let serial = one.serial.get(..16).unwrap_or(&one.serial);
        let from = one.remote.as_deref().map(|remote| format!(" from {remote}")).unwrap_or_default();
        line(
            if place == 0 { "certificates" } else { "" },
            format!("{serial}  {state}; {}{from}, {}", one.how.replace('_', " "), zone.minute(one.recorded_at)),
        );
    }
    out
}

fn text(at: Timestamp) -> String {
    store::offset(at).format(&Rfc3339).unwrap_or_default()
}
