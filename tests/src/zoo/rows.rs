//! What the zoo asks the databases. Only rows count as seen.

use std::collections::HashMap;

use anyhow::Result;
use sqlx::PgPool;

use super::case::{Incident, Planned, Wanted};

type Key = (String, String, Option<String>, Option<String>);

/// Everything that is current at a moment.
#[derive(Debug, Default)]
pub struct Rows {
    verdicts: HashMap<Key, String>,
    incidents: Vec<IncidentRow>,
    plans: Vec<PlanRow>,
    holds: Vec<HoldRow>,
}

/// Why an incident has no plan.
#[derive(Debug, Clone, sqlx::FromRow)]
struct HoldRow {
    incident_id: i64,
    detail: String,
}

/// An incident.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct IncidentRow {
    /// Its number.
    pub id: i64,
    /// What identifies it.
    pub key: String,
    /// The newest finding's word.
    pub kind: String,
    /// Names it affects.
    pub members: Vec<String>,
    /// Whether it is open.
    pub open: bool,
}

/// A plan.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct PlanRow {
    /// Its number.
    pub id: i64,
    /// Why it exists.
    pub incident_id: i64,
    /// Service or name.
    pub subject: String,
    /// What it changes, as JSON text.
    pub change: String,
    /// Where it got to.
    pub status: String,
    /// Whether anything was changed.
    pub applied: bool,
}

impl Rows {
    /// Reads them.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn read(pool: &PgPool) -> Result<Self> {
        type Row = (String, String, Option<String>, Option<String>, String);
        let verdicts: Vec<Row> = sqlx::query_as(
            "select distinct on (subject_kind, subject, vantage, resolver) subject_kind, subject, vantage, resolver, verdict
             from verdict order by subject_kind, subject, vantage, resolver, id desc",
        )
        .fetch_all(pool)
        .await?;
        let verdicts =
            verdicts.into_iter().map(|(kind, subject, vantage, resolver, v)| ((kind, subject, vantage, resolver), v));
        let incidents =
            sqlx::query_as("select id, key, kind, members, closed_at is null as open from incident order by id");
        let plans = sqlx::query_as(
            "select id, incident_id, subject, change::text as change, status, applied_at is not null as applied
             from plan order by id",
        );
        let holds = sqlx::query_as(
            "select incident_id, detail::text as detail from incident_event where what = 'no_plan' order by id",
        );
        Ok(Self {
            verdicts: verdicts.collect(),
            incidents: incidents.fetch_all(pool).await?,
            plans: plans.fetch_all(pool).await?,
            holds: holds.fetch_all(pool).await?,
        })
    }

    /// The current verdict on what is wanted.
    #[must_use]
    pub fn verdict(&self, wanted: &Wanted) -> Option<&str> {
        let (vantage, resolver) = (wanted.vantage.map(str::to_owned), wanted.resolver.map(str::to_owned));
        self.verdicts.get(&(wanted.kind.to_owned(), wanted.subject.clone(), vantage, resolver)).map(String::as_str)
    }

    /// What is missing of an incident; none when nothing is.
    #[must_use]
    pub fn lacks(&self, wanted: &Incident) -> Option<String> {
        let Some(row) = self.incidents.iter().find(|row| row.open && row.key == wanted.key) else {
            return Some(format!("no open incident {}", wanted.key));
        };
        if row.kind != wanted.kind || !row.members.contains(&wanted.member) {
            return Some(format!(
                "incident {} is {} of {:?}, not {} with {}",
                row.key, row.kind, row.members, wanted.kind, wanted.member
            ));
        }
        let plans: Vec<&PlanRow> =
            self.plans.iter().filter(|plan| plan.incident_id == row.id && plan.subject == wanted.item).collect();
        match wanted.plan {
            Planned::Any => None,
            Planned::Nothing => plans.first().map(|plan| format!("plan {} of {}: {}", plan.id, row.key, plan.change)),
            Planned::Offer(resolver) => {
                let holds: Vec<&str> = self
                    .holds
                    .iter()
                    .filter(|hold| hold.incident_id == row.id && hold.detail.contains(&wanted.item))
                    .map(|hold| hold.detail.as_str())
                    .collect();
                let to = format!("\"to\": \"{resolver}\"");
                let found = plans.is_empty() && holds.iter().any(|hold| hold.contains(&to));
                (!found).then(|| format!("incident {}: no offer of {resolver} among {holds:?}", row.key))
            }
            Planned::To(target) => {
                let found = plans.iter().any(|plan| plan.change.contains(target));
                (!found).then(|| {
                    let all: Vec<&str> = plans.iter().map(|plan| plan.change.as_str()).collect();
                    format!("incident {}: no plan of {} to {target} among {all:?}", row.key, wanted.item)
                })
            }
        }
    }

    /// Every incident there ever was.
    #[must_use]
    pub fn incidents(&self) -> &[IncidentRow] {
        &self.incidents
    }

    /// What was changed, though nothing may be.
    pub fn changed(&self) -> impl Iterator<Item = &PlanRow> {
        let touched =
            |plan: &&PlanRow| plan.applied || !["proposed", "expired", "refused"].contains(&plan.status.as_str());
        self.plans.iter().filter(touched)
    }
}
