//! Incidents: opening, changing and closing, each with its line in the timeline.

use std::collections::{BTreeMap, BTreeSet};

use parallax_decide::finding::{Finding, Shows};
use parallax_decide::incident::{Closed, IncidentId, Open, Steady, outline};
use parallax_decide::observation::ObservationId;
use parallax_decide::plan::PlanStatus;
use parallax_decide::time::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use sqlx::PgConnection;
use time::OffsetDateTime;

use super::{StoreError, citation, offset, timestamp};

/// Observations one incident may cite: enough to show every member from every vantage, and a bound
/// for a finding that changes a thousand times.
pub const EVIDENCE_MAX: i64 = 500;

/// What happened, in the timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Happened {
    /// It opened.
    Opened,
    /// Its kind, members or counterfactual changed.
    MembersChanged,
    /// Nothing is planned for one of its items, and why.
    NoPlan,
    /// A plan was made.
    Planned,
    /// A change was read back as set.
    Applied,
    /// A change was proven from the client's side.
    Proven,
    /// Somebody else changed the record: left to them. Alerts.
    Yielded,
    /// A plan ended without a change. Alerts.
    PlanFailed,
    /// A change was not proven in time and is taken back. Alerts.
    ProofFailed,
    /// A rollback could not be made or proven: people must look. Alerts.
    RollbackUnproven,
    /// It closed.
    Closed,
}

impl Happened {
    /// The word in SQL.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::MembersChanged => "members_changed",
            Self::NoPlan => "no_plan",
            Self::Planned => "planned",
            Self::Applied => "applied",
            Self::Proven => "proven",
            Self::Yielded => "yielded",
            Self::PlanFailed => "plan_failed",
            Self::ProofFailed => "proof_failed",
            Self::RollbackUnproven => "rollback_unproven",
            Self::Closed => "closed",
        }
    }
}

struct Row {
    id: i64,
    opened_at: OffsetDateTime,
    about: Value,
    kind: String,
    members: Vec<String>,
    conclusion: Value,
    changes_made: i32,
    relapses: i32,
}

impl TryFrom<Row> for Open {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        let subject = serde_json::from_value(row.about)
            .map_err(|error| StoreError::content("incident", "about", row.id, error))?;
        // A conclusion of an older version that cannot be read costs one more row in the timeline.
        let finding: Option<Finding> = serde_json::from_value(row.conclusion).ok();
        Ok(Self {
            id: IncidentId(row.id),
            subject,
            kind: row.kind,
            members: row.members.into_iter().collect(),
            opened_at: timestamp(row.opened_at),
            outline: finding.as_ref().map(outline),
            well_since: None,
            steady: Steady { relapses: relapses(row.relapses), acted: row.changes_made > 0, naming: None },
        })
    }
}

/// The open incidents.
///
/// # Errors
/// When the database refuses, or a row holds what this version cannot read.
pub async fn all_open(connection: &mut PgConnection) -> Result<Vec<Open>, StoreError> {
    sqlx::query_as!(
        Row,
        "select id, opened_at, about, kind, members, conclusion, changes_made, relapses from incident where closed_at is null order by id"
    )
    .fetch_all(connection)
    .await?
    .into_iter()
    .map(Open::try_from)
    .collect()
}

/// Incidents that closed after a moment.
///
/// # Errors
/// When the database refuses, or a row holds what this version cannot read.
pub async fn closed_since(connection: &mut PgConnection, since: Timestamp) -> Result<Vec<Closed>, StoreError> {
    let rows = sqlx::query!(
        r#"select id, about, closed_at as "closed_at!", relapses from incident where closed_at > $1 order by id"#,
        offset(since)
    )
    .fetch_all(connection)
    .await?;
    let closed = rows.into_iter().map(|row| {
        let subject = serde_json::from_value(row.about)
            .map_err(|error| StoreError::content("incident", "about", row.id, error))?;
        Ok(Closed { subject, at: timestamp(row.closed_at), relapses: relapses(row.relapses) })
    });
    closed.collect()
}

fn relapses(stored: i32) -> u32 {
    u32::try_from(stored).unwrap_or(0)
}

/// Notes how often in a row the subject of a new incident has relapsed. Part of the transaction that opened it.
///
/// # Errors
/// When the database refuses.
pub async fn relapsed(connection: &mut PgConnection, id: IncidentId, relapses: u32) -> Result<(), StoreError> {
    let relapses = i32::try_from(relapses).unwrap_or(i32::MAX);
    sqlx::query!("update incident set relapses = $2 where id = $1", id.0, relapses).execute(connection).await?;
    Ok(())
}

/// Opens an incident with its evidence. Part of a transaction.
///
/// # Errors
/// When the database refuses; also when one with this key is open already.
pub async fn open(connection: &mut PgConnection, at: Timestamp, finding: &Finding) -> Result<IncidentId, StoreError> {
    let members: Vec<String> = finding.members.iter().cloned().collect();
    let id = sqlx::query_scalar!(
        "insert into incident (opened_at, key, about, kind, vantage, subject, members, conclusion)
         values ($1, $2, $3, $4, $5, $6, $7, $8) returning id",
        offset(at),
        finding.subject.key(),
        data(&finding.subject)?,
        finding.kind,
        finding.subject.vantage().map(ToString::to_string),
        finding.subject.name(),
        &members,
        data(finding)?
    )
    .fetch_one(&mut *connection)
    .await?;
    let id = IncidentId(id);
    cite(connection, id, at, &finding.evidence).await?;
    event(connection, id, at, Happened::Opened, &data(finding)?).await?;
    Ok(id)
}

/// Records that the finding of an open incident changed. Part of a transaction.
///
/// # Errors
/// When the database refuses.
pub async fn change(
    connection: &mut PgConnection,
    id: IncidentId,
    at: Timestamp,
    finding: &Finding,
) -> Result<(), StoreError> {
    let members: Vec<String> = finding.members.iter().cloned().collect();
    sqlx::query!(
        "update incident set kind = $2, conclusion = $3,
                members = array(select unnest(members) union select unnest($4::text[]) order by 1)
         where id = $1 and closed_at is null",
        id.0,
        finding.kind,
        data(finding)?,
        &members
    )
    .execute(&mut *connection)
    .await?;
    cite(connection, id, at, &finding.evidence).await?;
    event(connection, id, at, Happened::MembersChanged, &data(finding)?).await
}

/// Closes an incident; proposals nobody took up end with it. Part of a transaction.
///
/// # Errors
/// When the database refuses.
pub async fn close(
    connection: &mut PgConnection,
    id: IncidentId,
    at: Timestamp,
    well_since: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query!(
        "update incident set closed_at = greatest($2, opened_at) where id = $1 and closed_at is null",
        id.0,
        offset(at)
    )
    .execute(&mut *connection)
    .await?;
    sqlx::query!(
        "update plan set status = $2 where incident_id = $1 and status = $3",
        id.0,
        PlanStatus::Expired.word(),
        PlanStatus::Proposed.word()
    )
    .execute(&mut *connection)
    .await?;
    event(connection, id, at, Happened::Closed, &json!({ "well_since": well_since })).await
}

/// Adds a line to the timeline.
///
/// # Errors
/// When the database refuses.
pub async fn event(
    connection: &mut PgConnection,
    id: IncidentId,
    at: Timestamp,
    what: Happened,
    detail: &Value,
) -> Result<(), StoreError> {
    sqlx::query!(
        "insert into incident_event (incident_id, at, what, detail) values ($1, $2, $3, $4)",
        id.0,
        offset(at),
        what.word(),
        detail
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Brings the number of changes made up to date. Part of the transaction that made one.
///
/// # Errors
/// When the database refuses.
pub async fn count_changes(connection: &mut PgConnection, id: IncidentId) -> Result<(), StoreError> {
    sqlx::query!(
        "update incident set changes_made = (select count(*) from plan where incident_id = $1 and counted) where id = $1",
        id.0
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// The newest reason why nothing was planned, of each item of the open incidents.
///
/// # Errors
/// When the database refuses.
pub async fn last_holds(connection: &mut PgConnection) -> Result<BTreeMap<(IncidentId, String), Value>, StoreError> {
    let rows = sqlx::query!(
        r#"select distinct on (e.incident_id, e.detail ->> 'item')
                  e.incident_id, e.detail ->> 'item' as "item!", e.detail -> 'why' as "why!: Value"
           from incident_event e join incident i on i.id = e.incident_id
           where i.closed_at is null and e.what = $1 and e.detail ? 'item' and e.detail ? 'why'
           order by e.incident_id, e.detail ->> 'item', e.id desc"#,
        Happened::NoPlan.word()
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(|row| ((IncidentId(row.incident_id), row.item), row.why)).collect())
}

/// Cites observations, up to [`EVIDENCE_MAX`], and keeps copies of them. One that is cited twice keeps what it showed first.
async fn cite(
    connection: &mut PgConnection,
    id: IncidentId,
    at: Timestamp,
    evidence: &[(ObservationId, Shows)],
) -> Result<(), StoreError> {
    let mut seen = BTreeSet::new();
    let first: Vec<_> = evidence.iter().filter(|(observation, _)| seen.insert(*observation)).collect();
    let observations: Vec<i64> = first.iter().map(|(observation, _)| observation.0).collect();
    let says: Vec<String> = first.iter().map(|(_, shows)| shows_word(*shows).to_owned()).collect();
    let cited = sqlx::query_scalar!(
        "insert into incident_evidence (incident_id, observation_id, says)
         select $1, n.observation_id, n.says
         from unnest($2::bigint[], $3::text[]) as n(observation_id, says)
         limit greatest(0, $4 - (select count(*) from incident_evidence where incident_id = $1))
         on conflict do nothing
         returning observation_id",
        id.0,
        &observations,
        &says,
        EVIDENCE_MAX
    )
    .fetch_all(&mut *connection)
    .await?;
    let cited: Vec<ObservationId> = cited.into_iter().map(ObservationId).collect();
    citation::keep(connection, at, &cited).await
}

/// The word of what an observation shows, in SQL.
#[must_use]
pub fn shows_word(shows: Shows) -> &'static str {
    match shows {
        Shows::FailsHere => "fails_here",
        Shows::SeenElsewhere => "seen_elsewhere",
        Shows::OtherResolver => "other_resolver",
        Shows::NodeProbe => "node_probe",
        Shows::Control => "control",
    }
}

/// A value of the model as JSON.
fn data(value: &impl Serialize) -> Result<Value, StoreError> {
    serde_json::to_value(value).map_err(|error| StoreError::content("incident", "conclusion", "new", error))
}
