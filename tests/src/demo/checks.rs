//! After the stories: what the whole log must say, and must not.

use anyhow::Result;
use sqlx::PgPool;

use super::stage::Stage;
use super::{dead_node, unroutable};
use crate::lab::faults::handed;

/// Fewest agreeing failed probes before anything is accused, and the shortest time they span, as the policy has it.
const PROBES_MIN: i64 = 3;
const SPAN_MIN_S: f64 = 3.0;
/// Failures that are older than this before a verdict did not decide it: twice the policy's freshness.
const LOOK_BACK_S: f64 = 25.0;
/// Places may not be accused by fewer.
const ACCUSERS_MIN: usize = 2;

/// Failed probes of one address or node at one vantage before a verdict.
#[derive(Debug, sqlx::FromRow)]
struct Accuser {
    vantage: String,
    subject: String,
    probes: i64,
    span_s: f64,
}

/// Runs every check, prints each, and returns how many failed.
///
/// # Errors
/// The database does not answer.
pub async fn run(stage: &mut Stage<'_>, [unroutable_incident, node_incident]: [i64; 2]) -> Result<usize> {
    let pool = stage.pool.clone();
    let mut failed = 0;
    stage.timeline.note("checks of the log");
    let mut check = |what: &str, faults: Vec<String>| {
        let mark = if faults.is_empty() { "ok " } else { "BAD" };
        stage.timeline.more(&format!("{mark} {what}"));
        faults.iter().for_each(|fault| stage.timeline.more(&format!("      {fault}")));
        failed += usize::from(!faults.is_empty());
    };

    let at_branch = unroutable_accusers(&pool, unroutable_incident).await?;
    check("no answer accused on fewer than 3 failed probes over 3 s", too_few(&at_branch, 1));
    let of_node = node_accusers(&pool, node_incident).await?;
    // One vantage is one failure domain in the demo's configuration.
    check(
        "the record moved on two accusers in two failure domains, 3 failed probes over 3 s each",
        too_few(&of_node, ACCUSERS_MIN),
    );
    check(
        "one pin and one unpin for each name, one repoint and one return, none twice",
        changes(&pool, [unroutable_incident, node_incident]).await?,
    );
    check(
        "every incident cites stored observations of at least two vantages",
        uncited(&pool, [unroutable_incident, node_incident]).await?,
    );
    check("no observation stored twice", duplicates(&pool).await?);
    check("nothing refused at the door", refusals(&pool).await?);
    check("no verdict and no incident twice, no epoch going back", doubled(&pool).await?);
    check("no other incident", strangers(&pool, [unroutable_incident, node_incident]).await?);
    Ok(failed)
}

/// For each address of the decided answers: failed probes at the branch up to the moment of the verdict.
async fn unroutable_accusers(pool: &PgPool, incident: i64) -> Result<Vec<Accuser>> {
    let rows = sqlx::query_as(
        "with decided as (
             select v.subject, v.resolver, min(v.at) as at from verdict v join incident i on i.id = $1
             where v.subject_kind = 'answer' and v.verdict = $2 and v.vantage = i.vantage
               and v.at >= i.opened_at - make_interval(secs => 60)
               and (i.closed_at is null or v.at <= i.closed_at)
             group by v.subject, v.resolver),
         answer as (
             select d.subject, d.resolver, d.at, unnest(a.addresses) as address from decided d
             cross join lateral (
                 select o.addresses from observation o join vantage n on n.id = o.vantage_id
                 join incident i on i.id = $1 and i.vantage = n.name
                 where o.kind = 'resolution' and o.subject = d.subject and o.resolver = d.resolver
                   and o.outcome = 'answered' and o.received_at <= d.at order by o.id desc limit 1) a)
         select n.name as vantage, format('%s %s via %s', a.subject, host(a.address), a.resolver) as subject,
                count(o.id) as probes,
                coalesce(extract(epoch from max(o.observed_at) - min(o.observed_at)), 0)::float8 as span_s
         from answer a join incident i on i.id = $1 join vantage n on n.name = i.vantage
         left join observation o on o.vantage_id = n.id and o.kind = 'connection' and o.subject = a.subject
              and o.address = a.address
              and o.outcome = 'silent' and o.received_at <= a.at and o.observed_at >= a.at - make_interval(secs => $3)
         group by 1, 2 order by 2",
    )
    .bind(incident)
    .bind(unroutable::KIND)
    .bind(LOOK_BACK_S);
    Ok(rows.fetch_all(pool).await?)
}

/// For each vantage: failed probes of the node up to the moment of the plan.
async fn node_accusers(pool: &PgPool, incident: i64) -> Result<Vec<Accuser>> {
    let rows = sqlx::query_as(
        "select n.name as vantage, o.subject, count(*) as probes,
                extract(epoch from max(o.observed_at) - min(o.observed_at))::float8 as span_s
         from observation o join vantage n on n.id = o.vantage_id
         join plan p on p.incident_id = $1 and p.purpose = 'remedy'
         where o.kind = 'connection' and o.subject = 'node:' || $2 and o.outcome not in ('tls_ok', 'tcp_ok')
           and o.received_at <= p.created_at and o.observed_at >= p.created_at - make_interval(secs => $3)
         group by 1, 2 order by 1",
    )
    .bind(incident)
    .bind(dead_node::NODE)
    .bind(LOOK_BACK_S);
    Ok(rows.fetch_all(pool).await?)
}

fn too_few(accusers: &[Accuser], wanted: usize) -> Vec<String> {
    let enough = |a: &&Accuser| a.probes >= PROBES_MIN && a.span_s >= SPAN_MIN_S;
    let show =
        |a: &Accuser| format!("{} at {}: {} failed probes over {:.2} s", a.subject, a.vantage, a.probes, a.span_s);
    let good = accusers.iter().filter(enough).count();
    // An answer needs every address dead; a node needs enough accusers, others may still be confirming.
    let all_needed = wanted == 1;
    if good >= wanted && (!all_needed || good == accusers.len()) {
        return Vec::new();
    }
    let mut faults: Vec<String> = accusers.iter().filter(|a| !enough(a)).map(show).collect();
    faults.push(format!("{good} of {} had enough", accusers.len()));
    faults
}

/// Changes made: exactly one of each kind for each subject, counting whatever reached a server.
async fn changes(pool: &PgPool, incidents: [i64; 2]) -> Result<Vec<String>> {
    let made: Vec<(i64, String, String, i64)> = sqlx::query_as(
        "select incident_id, subject, purpose, count(*) from plan
         where applied_at is not null or status in ('applying', 'applied', 'verified', 'undone', 'rolled_back', 'failed')
         group by 1, 2, 3 order by 1, 2, 3",
    )
    .fetch_all(pool)
    .await?;
    let mut wanted: Vec<(i64, String, String, i64)> = Vec::new();
    let names = handed().map(|name| (incidents[0], name)).chain([(incidents[1], dead_node::NODE)]);
    for (incident, subject) in names {
        wanted.extend(["remedy", "return"].map(|purpose| (incident, subject.to_owned(), purpose.to_owned(), 1)));
    }
    wanted.sort();
    let show = |(incident, subject, purpose, count): &(i64, String, String, i64)| {
        format!("incident {incident}: {count} x {purpose} of {subject}")
    };
    let surplus = made.iter().filter(|m| !wanted.contains(m)).map(|m| format!("made {}", show(m)));
    let missing = wanted.iter().filter(|w| !made.contains(w)).map(|w| format!("wanted {}", show(w)));
    Ok(surplus.chain(missing).collect())
}

/// Incidents whose evidence is missing, dangling, or of one place only: a finding is a comparison.
async fn uncited(pool: &PgPool, incidents: [i64; 2]) -> Result<Vec<String>> {
    Ok(sqlx::query_scalar(
        "select format('incident %s: %s cited, %s of them stored, of %s vantages', i.id, count(e.observation_id),
                count(o.id), count(distinct o.vantage_id))
         from incident i left join incident_evidence e on e.incident_id = i.id
         left join observation o on o.id = e.observation_id
         where i.id = any($1) group by i.id
         having count(o.id) = 0 or count(o.id) < count(e.observation_id) or count(distinct o.vantage_id) < 2",
    )
    .bind(incidents)
    .fetch_all(pool)
    .await?)
}

/// What two coordinators that both decide would leave behind.
async fn doubled(pool: &PgPool) -> Result<Vec<String>> {
    Ok(sqlx::query_scalar(
        "select format('verdict %s repeats the one before it', id) from (
             select id, verdict, reason, lag(verdict) over w as verdict_before, lag(reason) over w as reason_before
             from verdict window w as (partition by vantage, subject_kind, subject, resolver order by id)) v
         where verdict = verdict_before and reason = reason_before
         union all
         select format('incidents %s and %s are open at once about the same', a.id, b.id)
         from incident a join incident b on a.id < b.id and a.kind = b.kind and a.subject = b.subject
              and a.vantage is not distinct from b.vantage and (a.closed_at is null or a.closed_at > b.opened_at)
         union all
         select format('plan %s has a lower epoch than one before it', id) from (
             select id, epoch, max(epoch) over (order by id rows between unbounded preceding and 1 preceding) as before
             from plan) p
         where epoch < before",
    )
    .fetch_all(pool)
    .await?)
}

async fn duplicates(pool: &PgPool) -> Result<Vec<String>> {
    Ok(sqlx::query_scalar(
        "select format('vantage %s boot %s lane %s sequence %s: %s times', vantage_id, boot_id, lane, sequence, count(*))
         from observation group by vantage_id, boot_id, lane, sequence having count(*) > 1 limit 5",
    )
    .fetch_all(pool)
    .await?)
}

async fn refusals(pool: &PgPool) -> Result<Vec<String>> {
    Ok(sqlx::query_scalar(
        "select format('%s: %s x %s: %s', v.name, r.count, r.reason, r.last_detail)
         from ingest_refusal r join vantage v on v.id = r.vantage_id limit 5",
    )
    .fetch_all(pool)
    .await?)
}

async fn strangers(pool: &PgPool, ours: [i64; 2]) -> Result<Vec<String>> {
    Ok(sqlx::query_scalar(
        "select format('incident %s: %s %s at %s', id, kind, subject, coalesce(vantage, 'all'))
         from incident where id <> all($1) order by id",
    )
    .bind(ours)
    .fetch_all(pool)
    .await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accuser(probes: i64, span_s: f64) -> Accuser {
        Accuser { vantage: "wan-gw".to_owned(), subject: "node:fi".to_owned(), probes, span_s }
    }

    #[test]
    fn two_probes_or_two_seconds_are_too_few() {
        assert!(too_few(&[accuser(3, 3.0), accuser(4, 9.0)], 2).is_empty());
        assert!(!too_few(&[accuser(3, 3.0), accuser(2, 9.0)], 2).is_empty());
        assert!(!too_few(&[accuser(3, 3.0), accuser(9, 2.9)], 2).is_empty());
        assert!(too_few(&[accuser(3, 3.0), accuser(3, 3.0), accuser(1, 0.0)], 2).is_empty());
    }

    #[test]
    fn an_answer_needs_every_address_tried_enough() {
        assert!(!too_few(&[accuser(3, 3.0), accuser(1, 0.0)], 1).is_empty());
        assert!(!too_few(&[], 1).is_empty());
    }
}
