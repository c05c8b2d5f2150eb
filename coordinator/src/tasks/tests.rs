//! The two field cases and their troubles as timelines, against a real Postgres.

use parallax_decide::change::Change;

use world::World;

mod brakes;
mod clocks;
mod played;
mod postmortem;
mod replayed;
mod stories;
mod troubles;
mod typed;
mod world;

/// One remedy and its return, both proven.
const PLANS_DONE: &str = "select count(*) = 2 and bool_and(status in ('verified', 'undone')) from plan";
/// Everything that opened has closed.
const CLOSED: &str = "select count(*) > 0 and bool_and(closed_at is not null) from incident";

/// Rows that must never be there, whatever happened.
async fn nothing_twice(world: &World) {
    for (what, sql) in [
        (
            "a verdict said twice",
            "select count(*) from (select verdict = lag(verdict) over (partition by subject_kind, subject, vantage, resolver order by id) as same from verdict) as a where same",
        ),
        (
            "a reason said twice",
            "select count(*) from (select detail = lag(detail) over (partition by incident_id, detail ->> 'item' order by id) as same from incident_event where what = 'no_plan') as a where same",
        ),
        (
            "an event that can be only once, twice",
            "select count(*) from (select incident_id from incident_event where what in ('opened', 'closed') group by incident_id, what having count(*) > 1) as a",
        ),
        (
            "a plan applied twice",
            "select count(*) from (select plan_id from plan_event where what in ('applied', 'already') group by plan_id having count(*) > 1) as a",
        ),
        (
            "a plan sent without a journal",
            "select count(*) from plan p where applied_at is not null and not exists (select from plan_event e where e.plan_id = p.id and e.what = 'intent')",
        ),
        (
            "an incident whose number of changes is wrong",
            "select count(*) from incident i where changes_made <> (select count(*) from plan p where p.incident_id = i.id and counted)",
        ),
        ("an incident that is not what its stored transitions make it", NOT_ITS_TRANSITIONS),
        (
            "a renaming told twice",
            "select count(*) from (select detail -> 'kind' is not distinct from lag(detail -> 'kind') over told
                                     and detail -> 'members' <@ lag(detail -> 'members') over told
                                     and detail -> 'reason' is not distinct from lag(detail -> 'reason') over told as same
                                   from incident_event where what in ('opened', 'members_changed')
                                   window told as (partition by incident_id order by id)) as a where same",
        ),
    ] {
        assert_eq!(world.count(sql).await, 0, "{what}\n{}", world.journal().await);
    }
}

/// The row of an incident, beside its replay from the transitions that were stored one after another.
const NOT_ITS_TRANSITIONS: &str = "
    select count(*) from incident i
    left join lateral (select at, detail from incident_event e where e.incident_id = i.id and what = 'opened') as o on true
    left join lateral (
        select detail from incident_event e where e.incident_id = i.id and what in ('opened', 'members_changed') order by id desc limit 1
    ) as newest on true
    left join lateral (select at from incident_event e where e.incident_id = i.id and what = 'closed') as c on true
    left join lateral (
        select coalesce(array_agg(distinct member), '{}') as every from incident_event e, jsonb_array_elements_text(e.detail -> 'members') as member
        where e.incident_id = i.id and what in ('opened', 'members_changed')
    ) as members on true
    where (i.opened_at, i.closed_at, i.kind, i.conclusion)
          is distinct from (o.at, case when c.at is not null then greatest(c.at, o.at) end, newest.detail ->> 'kind', newest.detail)
       or not (i.members @> members.every and i.members <@ members.every)";

fn sets(change: &Change) -> Vec<std::net::IpAddr> {
    change.sets().map(|addresses| addresses.iter().collect()).unwrap_or_default()
}
