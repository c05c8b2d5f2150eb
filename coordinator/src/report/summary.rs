//! An incident in one line.

use parallax_decide::change::Change;
use parallax_decide::plan::{PlanPurpose, PlanStatus};
use parallax_decide::time::Timestamp;
use serde::Serialize;
use sqlx::PgConnection;

use super::moment::{At, coarse, span};
use crate::store::StoreError;
use crate::store::configured::Configured;
use crate::store::read::incident::{self, Filter, IncidentRow};
use crate::store::read::plan::{self, PlanRow};
use crate::words::{self, State, finding, verdict};

/// An incident as lists and banners show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Number.
    pub id: i64,
    /// Whether it is open.
    pub open: bool,
    /// Kind's word.
    pub kind: String,
    /// Kind in words.
    pub title: String,
    /// What it is drawn as.
    pub state: State,
    /// The one vantage it holds at; none: wider.
    pub vantage: Option<String>,
    /// Where it holds, in words.
    pub place: String,
    /// What it is about.
    pub about: String,
    /// Names it affects.
    pub members: Vec<String>,
    /// Conclusion in half a line.
    pub conclusion: String,
    /// What was done, in half a line.
    pub action: String,
    /// When it opened.
    pub opened_at: At,
    /// When it closed.
    pub closed_at: Option<At>,
    /// Seconds from opening to closing, or to now.
    pub lasted_s: u64,
}

impl Summary {
    /// From its rows.
    #[must_use]
    pub fn of(row: &IncidentRow, plans: &[PlanRow], configured: &Configured, now: Timestamp) -> Self {
        let (place, about, conclusion) = match (&row.subject, &row.finding) {
            (Some(subject), Some(found)) => {
                (finding::place(subject), finding::about(subject, &row.members), finding::short(subject, &found.reason))
            }
            (Some(subject), None) => {
                (finding::place(subject), finding::about(subject, &row.members), verdict::kind_title(&row.kind))
            }
            (None, _) => (String::new(), row.key.clone(), verdict::kind_title(&row.kind)),
        };
        let mine: Vec<&PlanRow> = plans.iter().filter(|plan| plan.incident == row.id).collect();
        Self {
            id: row.id.0,
            open: row.closed_at.is_none(),
            kind: row.kind.clone(),
            title: verdict::kind_title(&row.kind),
            state: verdict::kind_state(&row.kind),
            vantage: row.subject.as_ref().and_then(|subject| subject.vantage()).map(ToString::to_string),
            place,
            about,
            members: row.members.clone(),
            conclusion,
            action: action(&mine, configured),
            opened_at: At(row.opened_at),
            closed_at: row.closed_at.map(At),
            lasted_s: row.closed_at.unwrap_or(now).since(row.opened_at).as_secs(),
        }
    }

    /// How long it lasted or lasts: `41m12s`.
    #[must_use]
    pub fn lasted(&self) -> String {
        span(std::time::Duration::from_secs(self.lasted_s))
    }

    /// The same in one unit: `18 min`.
    #[must_use]
    pub fn lasted_coarse(&self) -> String {
        coarse(std::time::Duration::from_secs(self.lasted_s))
    }
}

/// Open incidents, and those that closed since `since`; the newest first.
///
/// # Errors
/// When the database refuses.
pub async fn read(
    connection: &mut PgConnection,
    configured: &Configured,
    since: Timestamp,
    now: Timestamp,
    limit: i64,
) -> Result<Vec<Summary>, StoreError> {
    let rows = incident::incidents(&mut *connection, since, limit).await?;
    let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
    let plans = plan::plans_of(connection, &ids).await?;
    Ok(rows.iter().map(|row| Summary::of(row, &plans, configured, now)).collect())
}

/// Those that a filter lets through; the newest first.
///
/// # Errors
/// When the database refuses.
pub async fn listed(
    connection: &mut PgConnection,
    configured: &Configured,
    filter: &Filter,
    now: Timestamp,
    limit: i64,
) -> Result<Vec<Summary>, StoreError> {
    let rows = incident::listed(&mut *connection, filter, limit).await?;
    let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
    let plans = plan::plans_of(connection, &ids).await?;
    Ok(rows.iter().map(|row| Summary::of(row, &plans, configured, now)).collect())
}

/// What was done: `2 names pinned`, `fi → de, back`, `none`.
fn action(plans: &[&PlanRow], configured: &Configured) -> String {
    let mut parts = Vec::new();
    let remedies = |plan: &&&PlanRow| plan.purpose == Some(PlanPurpose::Remedy);
    let pinned: Vec<_> = plans
        .iter()
        .filter(remedies)
        .filter(|plan| plan.applied_at.is_some() && matches!(plan.change, Some(Change::Pin { .. })))
        .collect();
    if !pinned.is_empty() {
        let back = pinned.iter().all(|plan| matches!(plan.status, Some(PlanStatus::Undone | PlanStatus::RolledBack)));
        let mut names: Vec<&str> = pinned.iter().map(|plan| plan.item.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let pinned = format!("{} pinned", words::count(names.len(), "name"));
        parts.push(if back { format!("{pinned}, taken back") } else { pinned });
    }
    for plan in plans.iter().filter(remedies).filter(|plan| plan.applied_at.is_some()) {
        if let Some(Change::Repoint { expects, sets, .. }) = &plan.change {
            let node = |address: Option<std::net::IpAddr>| {
                address.map_or_else(
                    || "?".to_owned(),
                    |a| configured.node_at(a).map_or_else(|| a.to_string(), str::to_owned),
                )
            };
            let moved = format!("{} → {}", node(expects.iter().next()), node(sets.iter().next()));
            parts.push(match plan.status {
                Some(PlanStatus::Undone) => format!("{moved}, back"),
                Some(PlanStatus::RolledBack) => format!("{moved}, rolled back"),
                Some(
                    PlanStatus::Proposed
                    | PlanStatus::Approved
                    | PlanStatus::Applying
                    | PlanStatus::Applied
                    | PlanStatus::Verified
                    | PlanStatus::Failed
                    | PlanStatus::Refused
                    | PlanStatus::Yielded
                    | PlanStatus::Expired,
                )
                | None => moved,
            });
        }
    }
    if parts.is_empty() {
        let on_the_way = plans.iter().any(|plan| plan.status.is_some_and(PlanStatus::in_flight));
        let proposed = plans.iter().filter(|plan| plan.status == Some(PlanStatus::Proposed)).count();
        parts.push(if on_the_way {
            "a change is on its way".to_owned()
        } else if proposed > 0 {
            format!("{} proposed", words::count(proposed, "change"))
        } else if plans.is_empty() {
            "none".to_owned()
        } else {
            "tried, nothing changed".to_owned()
        });
    }
    parts.join("; ")
}
