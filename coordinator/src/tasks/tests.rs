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
    ] {
        assert_eq!(world.count(sql).await, 0, "{what}\n{}", world.journal().await);
    }
}

fn sets(change: &Change) -> Vec<std::net::IpAddr> {
    change.sets().map(|addresses| addresses.iter().collect()).unwrap_or_default()
}
