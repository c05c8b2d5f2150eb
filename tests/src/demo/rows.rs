//! What the stories ask the database. Only rows count as seen: nothing is believed because a program said so.

use std::net::IpAddr;

use anyhow::Result;
use sqlx::PgPool;
use sqlx::types::ipnet::IpNet;

/// An incident as its row has it.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct Incident {
    /// Its number.
    pub id: i64,
    /// Names it affects.
    pub members: Vec<String>,
}

/// A plan as its row has it.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct Plan {
    /// Its number.
    pub id: i64,
    /// Service or name.
    pub subject: String,
    /// Where it got to.
    pub status: String,
    /// Whether the driver confirmed it by reading back.
    pub applied: bool,
    /// Whether it was proven from the clients' side.
    pub verified: bool,
    /// The change, as JSON text.
    pub change: String,
    /// Vantages with a proof.
    pub proofs: Vec<String>,
}

/// The database's clock, seconds since 1970. Rows are compared with this, never with ours.
///
/// # Errors
/// The database does not answer.
pub async fn clock(pool: &PgPool) -> Result<f64> {
    Ok(sqlx::query_scalar("select extract(epoch from clock_timestamp())::float8").fetch_one(pool).await?)
}

/// The first verdict that needed more than one vantage.
///
/// # Errors
/// The database does not answer.
pub async fn first_comparison(pool: &PgPool) -> Result<Option<String>> {
    let row: Option<(String, String, Option<String>)> = sqlx::query_as(
        "select subject, verdict, vantage from verdict
         where verdict = 'answer_steered_by_vantage'
             or (verdict = 'node_ok' and jsonb_array_length(reason->'alive_at') > 1)
         order by id limit 1",
    )
    .fetch_optional(pool)
    .await?;
    Ok(row.map(|(subject, verdict, vantage)| match vantage {
        Some(vantage) => format!("{subject} at {vantage}: {verdict}"),
        None => format!("{subject}: {verdict}"),
    }))
}

/// Which other vantages reach an unroutable name's own addresses, as the incident's finding has it.
///
/// # Errors
/// The database does not answer.
pub async fn reached_from(pool: &PgPool, incident: i64, name: &str) -> Result<Vec<String>> {
    let vantages = sqlx::query_scalar(
        "select distinct there.name from incident i,
             jsonb_each(i.conclusion->'reason'->'names'->$2->'proven_at') as reached(address, vantages),
             jsonb_array_elements_text(reached.vantages) as there(name)
         where i.id = $1 order by there.name",
    );
    Ok(vantages.bind(incident).bind(name).fetch_all(pool).await?)
}

/// How many cells of vantage and canary are usable through the live resolver now.
///
/// # Errors
/// The database does not answer.
pub async fn usable_cells(pool: &PgPool) -> Result<usize> {
    let count: i64 = sqlx::query_scalar(
        "select count(*) from (
             select distinct on (v.vantage, v.subject) v.verdict from verdict v
             where v.subject_kind = 'answer' and v.resolver = 'live' and v.subject not like '%.montana.quest'
             order by v.vantage, v.subject, v.id desc) newest
         where verdict in ('answer_ok', 'answer_steered_by_vantage')",
    )
    .fetch_one(pool)
    .await?;
    Ok(usize::try_from(count)?)
}

/// How many nodes are well now.
///
/// # Errors
/// The database does not answer.
pub async fn nodes_ok(pool: &PgPool) -> Result<usize> {
    let count: i64 = sqlx::query_scalar(
        "select count(*) from (
             select distinct on (subject) verdict from verdict where subject_kind = 'node' order by subject, id desc) newest
         where verdict = 'node_ok'",
    )
    .fetch_one(pool)
    .await?;
    Ok(usize::try_from(count)?)
}

/// Subjects that got a verdict after `since`, at a vantage or across all.
///
/// # Errors
/// The database does not answer.
pub async fn subjects_with(
    pool: &PgPool,
    kind: &str,
    verdict: &str,
    vantage: Option<&str>,
    since: f64,
) -> Result<Vec<String>> {
    let rows = sqlx::query_scalar(
        "select distinct subject from verdict
         where subject_kind = $1 and verdict = $2 and vantage is not distinct from $3 and at >= to_timestamp($4)
         order by subject",
    )
    .bind(kind)
    .bind(verdict)
    .bind(vantage)
    .bind(since);
    Ok(rows.fetch_all(pool).await?)
}

/// The newest open incident of a kind that opened after `since`.
///
/// # Errors
/// The database does not answer.
pub async fn incident(pool: &PgPool, kind: &str, since: f64) -> Result<Option<Incident>> {
    let row = sqlx::query_as(
        "select id, members from incident where kind = $1 and closed_at is null and opened_at >= to_timestamp($2)
         order by id desc limit 1",
    )
    .bind(kind)
    .bind(since);
    Ok(row.fetch_optional(pool).await?)
}

/// Whether an incident is closed, whatever its finding turned into meanwhile.
///
/// # Errors
/// The database does not answer.
pub async fn is_closed(pool: &PgPool, incident: i64) -> Result<bool> {
    Ok(sqlx::query_scalar("select closed_at is not null from incident where id = $1")
        .bind(incident)
        .fetch_one(pool)
        .await?)
}

/// The plans of an incident with a purpose, in order.
///
/// # Errors
/// The database does not answer.
pub async fn plans(pool: &PgPool, incident: i64, purpose: &str) -> Result<Vec<Plan>> {
    let rows = sqlx::query_as(
        "select id, subject, status, applied_at is not null as applied, verified_at is not null as verified,
                change::text as change,
                array(select p.vantage from plan_proof p where p.plan_id = plan.id order by 1) as proofs
         from plan where incident_id = $1 and purpose = $2 order by id",
    )
    .bind(incident)
    .bind(purpose);
    Ok(rows.fetch_all(pool).await?)
}

/// What each resolver said about a name at a vantage when asked after `since`, the newest first.
///
/// # Errors
/// The database does not answer.
pub async fn answers(pool: &PgPool, vantage: &str, name: &str, since: f64) -> Result<Vec<(String, Vec<IpAddr>)>> {
    let rows: Vec<(String, Vec<IpNet>)> = sqlx::query_as(
        "select o.resolver, o.addresses
         from observation o join vantage v on v.id = o.vantage_id
         where v.name = $1 and o.subject = $2 and o.kind = 'resolution' and o.family = 4 and o.outcome = 'answered'
           and o.observed_at >= to_timestamp($3)
         order by o.id desc",
    )
    .bind(vantage)
    .bind(name)
    .bind(since)
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(|(resolver, all)| (resolver, all.into_iter().map(|n| n.addr()).collect())).collect())
}

/// Incidents and plans in a few lines, for a failure message.
///
/// # Errors
/// The database does not answer.
pub async fn describe(pool: &PgPool) -> Result<String> {
    let lines: Vec<String> = sqlx::query_scalar(
        "select line from (
             select 1 as part, id, format('  incident %s %s %s at %s, members %s, closed %s', id, kind, subject,
                    coalesce(vantage, 'all'), members, coalesce(closed_at::text, 'no')) as line from incident
             union all
             select 2, id, format('  plan %s of incident %s: %s %s %s %s', id, incident_id, purpose, subject, status, change)
             from plan
             union all
             select 3, id, format('    step of plan %s: %s %s', plan_id, what, detail) from plan_event
             union all
             (select 4, id, format('  verdict %s %s %s %s: %s', subject_kind, subject, coalesce(resolver, ''),
                    coalesce(vantage, ''), verdict) from verdict order by id desc limit 20)
         ) told order by part, id",
    )
    .fetch_all(pool)
    .await?;
    Ok(lines.into_iter().map(|line| line + "\n").collect())
}
