//! The two field cases and their troubles as timelines, against a real Postgres.

use parallax_decide::change::Change;

use super::played::Mood;
use super::world::{BRANCH, CANARY, DE, FI, US, World, ip};
use crate::store::{StoreError, freeze};

const PLANS_DONE: &str = "select count(*) = 2 and bool_and(status in ('verified', 'undone')) from plan";
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
        ("a plan applied twice", "select count(*) from (select plan_id from plan_event where what in ('applied', 'already') group by plan_id having count(*) > 1) as a"),
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

/// Case 2: node fi dies and comes back.
async fn node_dies_and_returns(kill: Option<bool>) -> World {
    let mut world = World::new().await;
    world.pass(5).await;
    world.kill = kill;
    world.play().kill_node(FI);
    world.until("select count(*) = 1 from plan where status = 'verified'", 15).await;
    assert_eq!(world.play().record.iter().copied().collect::<Vec<_>>(), vec![ip(DE)]);
    world.pass(10).await;
    world.play().dead.clear();
    world.until(PLANS_DONE, 40).await;
    assert_eq!(world.play().record.iter().copied().collect::<Vec<_>>(), vec![ip(FI)]);
    world.until(CLOSED, 15).await;
    let writes: Vec<_> = world.play().writes.iter().map(sets).collect();
    assert_eq!(writes, vec![vec![ip(DE)], vec![ip(FI)]], "{}", world.journal().await);
    assert_eq!(world.count("select count(*) from incident where key = 'service/fi'").await, 1);
    assert!(world.is("select changes_made = 1 from incident").await);
    assert!(world.is("select count(*) = 6 from plan_proof").await, "each vantage saw each change");
    nothing_twice(&world).await;
    world
}

#[tokio::test]
async fn a_dead_node_is_left_and_returned_to() {
    let world = node_dies_and_returns(None).await;
    assert!(world.is("select bool_and(epoch = 1) from plan").await);
    assert!(world.is("select count(*) >= 4 from incident_evidence").await);
    // Never on fewer than two accusers, three failures and the policy's span.
    let reason: serde_json::Value =
        sqlx::query_scalar("select reason from plan order by id limit 1").fetch_one(&world.app.pool).await.unwrap();
    assert_eq!(reason["because"], "node_gone");
    assert!(reason["accusers"].as_array().unwrap().len() >= 2);
}

#[tokio::test]
async fn killed_at_every_step_before_it_hears_of_a_change_it_makes_one() {
    let world = node_dies_and_returns(Some(true)).await;
    assert!(world.epoch > 8, "killed {} times", world.epoch - 1);
}

#[tokio::test]
async fn killed_at_every_step_before_anything_is_sent_it_makes_one() {
    let world = node_dies_and_returns(Some(false)).await;
    assert!(world.epoch > 8, "killed {} times", world.epoch - 1);
}

/// Case 1: the branch is handed a pair without a path.
async fn branch_is_steered(kill: Option<bool>) -> World {
    let mut world = World::new().await;
    world.pass(5).await;
    world.kill = kill;
    world.play().steer_branch();
    world.until("select count(*) = 1 from plan where status = 'verified'", 20).await;
    let pin = world.play().pins.get(&(BRANCH.to_owned(), CANARY.to_owned())).cloned();
    assert_eq!(pin.map(|pin| pin.iter().collect::<Vec<_>>()), Some(vec![ip("104.26.4.10")]));
    world.pass(5).await;
    world.play().heal_branch();
    world.until(PLANS_DONE, 45).await;
    assert!(world.play().pins.is_empty());
    world.until(CLOSED, 15).await;
    assert_eq!(world.play().writes.len(), 2, "{}", world.journal().await);
    assert_eq!(world.count("select count(*) from incident where key = 'unroutable/branch-kazan'").await, 1);
    nothing_twice(&world).await;
    world
}

#[tokio::test]
async fn an_unroutable_answer_is_pinned_and_unpinned() {
    let world = branch_is_steered(None).await;
    let conclusion: serde_json::Value =
        sqlx::query_scalar("select conclusion from incident").fetch_one(&world.app.pool).await.unwrap();
    let resolvers = &conclusion["reason"]["names"][CANARY]["resolvers"];
    assert!(resolvers.get("doh-family").is_some(), "what another resolver would give: {conclusion}");
    assert_eq!(world.count("select count(*) from plan_proof where vantage <> 'branch-kazan'").await, 0);
}

#[tokio::test]
async fn a_pin_is_made_once_although_killed_at_every_step() {
    for after in [false, true] {
        let world = branch_is_steered(Some(after)).await;
        assert!(world.epoch > 6, "killed {} times", world.epoch - 1);
    }
}

#[tokio::test]
async fn a_change_nobody_knows_of_is_looked_at_and_never_made_twice() {
    // How it went, how often a driver was told to, and what the journal has.
    for (mood, intents, steps) in [
        (Mood::MadeButUncertain, 1, "intent uncertain read already"),
        (Mood::LostAndUncertain, 2, "intent uncertain intent applied"),
    ] {
        let mut world = World::new().await;
        world.pass(5).await;
        world.play().mood = mood;
        world.play().kill_node(FI);
        world.until("select exists (select from plan_event where what = 'uncertain')", 15).await;
        assert!(world.is("select bool_and(status = 'applying') from plan").await, "{mood:?}");
        world.play().mood = Mood::Works;
        world.until("select count(*) = 1 from plan where status = 'verified'", 20).await;
        let writes: Vec<_> = world.play().writes.iter().map(sets).collect();
        assert_eq!(writes, vec![vec![ip(DE)]], "{mood:?}\n{}", world.journal().await);
        assert_eq!(world.count("select count(*) from plan").await, 1);
        assert_eq!(world.count("select count(*) from plan_event where what = 'intent'").await, intents, "{mood:?}");
        let journal: String = sqlx::query_scalar(
            "select string_agg(what, ' ' order by id) from plan_event where what not in ('proof', 'verified')",
        )
        .fetch_one(&world.app.pool)
        .await
        .unwrap();
        assert_eq!(journal, steps, "{mood:?}");
        nothing_twice(&world).await;
    }
}

#[tokio::test]
async fn a_branch_that_cannot_say_what_it_did_is_asked_first() {
    for mood in [Mood::MadeButUncertain, Mood::LostAndUncertain] {
        let mut world = World::new().await;
        world.pass(5).await;
        world.play().mood = mood;
        world.play().steer_branch();
        world.until("select exists (select from plan_event where what = 'uncertain')", 20).await;
        world.play().mood = Mood::Works;
        world.until("select count(*) = 1 from plan where status = 'verified'", 20).await;
        assert_eq!(world.play().writes.len(), 1, "{mood:?}\n{}", world.journal().await);
        assert_eq!(world.count("select count(*) from plan").await, 1);
        nothing_twice(&world).await;
    }
}

#[tokio::test]
async fn a_store_that_fails_for_a_while_costs_time_and_nothing_else() {
    let mut world = World::new().await;
    world.pass(5).await;
    world.failing = true;
    world.play().kill_node(FI);
    let tables = ["verdict", "incident", "incident_event", "plan_event", "plan", "plan_proof", "write_freeze", "lease"];
    for round in 0..2 {
        for table in tables {
            world.execute(format!("alter table {table} rename to broken")).await;
            world.pass(2).await;
            world.execute(format!("alter table broken rename to {table}")).await;
            world.pass(1).await;
        }
        if round == 0 {
            world.until("select count(*) = 1 from plan where status = 'verified'", 15).await;
            world.play().dead.clear();
        }
    }
    world.until(PLANS_DONE, 40).await;
    world.until(CLOSED, 15).await;
    let writes: Vec<_> = world.play().writes.iter().map(sets).collect();
    assert_eq!(writes, vec![vec![ip(DE)], vec![ip(FI)]], "{}", world.journal().await);
    nothing_twice(&world).await;
}

#[tokio::test]
async fn a_provider_that_hangs_after_the_change_is_asked_again_after_a_restart() {
    let mut world = World::new().await;
    world.pass(5).await;
    world.play().mood = Mood::MadeThenHangs;
    world.play().kill_node(FI);
    world.until("select exists (select from plan where status = 'applying')", 15).await;
    world.pass(1).await;
    assert_eq!(world.play().writes.len(), 1);
    world.play().mood = Mood::Works;
    world.restart().await;
    world.until("select count(*) = 1 from plan where status = 'verified'", 15).await;
    assert_eq!(world.play().writes.len(), 1);
    assert!(world.is("select count(*) = 1 from plan_event where what = 'taken_over'").await);
    assert!(world.is("select epoch = 2 from plan").await);
    nothing_twice(&world).await;
}

#[tokio::test]
async fn a_hanging_provider_stalls_nothing_and_its_record_is_unknown() {
    let mut world = World::new().await;
    world.play().mood = Mood::Hangs;
    world.pass(5).await;
    world.play().kill_node(FI);
    world.until("select exists (select from incident_event where what = 'no_plan' and detail -> 'why' ->> 'because' = 'record_unknown')", 15).await;
    assert_eq!(world.count("select count(*) from plan").await, 0);
    nothing_twice(&world).await;
}

#[tokio::test]
async fn a_record_changed_by_somebody_else_is_left_to_them() {
    let mut world = World::new().await;
    world.pass(5).await;
    world.play().kill_node(FI);
    world.play().record = [ip("203.0.114.7")].into();
    world.pass(20).await;
    assert!(world.play().writes.is_empty());
    assert!(world.is("select count(*) = 1 from incident_event where what = 'no_plan' and detail -> 'why' ->> 'because' = 'foreign_record'").await, "{}", world.journal().await);
    nothing_twice(&world).await;
}

#[tokio::test]
async fn a_record_changed_at_the_last_moment_is_yielded() {
    let mut world = World::new().await;
    world.pass(5).await;
    world.play().mood = Mood::LostAndUncertain;
    world.play().kill_node(FI);
    world.until("select exists (select from plan_event where what = 'uncertain')", 15).await;
    world.play().record = [ip("203.0.114.7")].into();
    world.play().mood = Mood::Works;
    world.until("select exists (select from plan where status = 'yielded')", 5).await;
    world.pass(10).await;
    assert!(world.play().writes.is_empty());
    assert!(world.is("select count(*) = 1 from incident_event where what = 'yielded'").await);
    assert_eq!(world.count("select count(*) from plan").await, 1, "{}", world.journal().await);
    nothing_twice(&world).await;
}

#[tokio::test]
async fn a_refused_change_is_tried_ever_more_seldom() {
    let mut world = World::new().await;
    world.pass(5).await;
    world.play().mood = Mood::Refuses;
    world.play().kill_node(FI);
    world.pass(45).await;
    let plans = world.count("select count(*) from plan where status = 'failed'").await;
    assert!((2..=4).contains(&plans), "{plans}\n{}", world.journal().await);
    assert!(world.play().writes.is_empty());
    assert!(world.is("select changes_made = 0 from incident").await);
    nothing_twice(&world).await;
}

#[tokio::test]
async fn a_change_nobody_can_use_is_taken_back() {
    let mut world = World::with("policy_overrides: { verify_within_s: 5 }\n").await;
    world.pass(5).await;
    world.play().unserved.extend([ip(DE), ip(US)]);
    world.play().kill_node(FI);
    world.until("select exists (select from plan where status = 'rolled_back')", 30).await;
    let writes: Vec<_> = world.play().writes.iter().map(sets).collect();
    assert_eq!(writes, vec![vec![ip(DE)], vec![ip(FI)]]);
    assert!(world.is("select count(*) = 1 from incident_event where what = 'proof_failed'").await);
    assert!(world.is("select changes_made = 2 from incident").await);
    // The old node is dead: its proof cannot come. Said once; nothing loops.
    world.until("select exists (select from incident_event where what = 'rollback_unproven')", 20).await;
    world.restart().await;
    world.pass(10).await;
    assert_eq!(world.play().writes.len(), 2);
    assert!(world.is("select count(*) = 1 from incident_event where what = 'rollback_unproven'").await);
    // It recovers: proven, and closed.
    world.play().dead.clear();
    world.until("select exists (select from plan where purpose = 'rollback' and status = 'verified')", 15).await;
    world.until(CLOSED, 20).await;
    nothing_twice(&world).await;
}

#[tokio::test]
async fn an_incident_makes_no_more_changes_than_it_may() {
    let mut world = World::with("policy_overrides: { changes_max: 1 }\n").await;
    world.pass(5).await;
    world.play().kill_node(FI);
    world.until("select count(*) = 1 from plan where status = 'verified'", 15).await;
    world.play().kill_node(DE);
    world.until("select exists (select from incident_event where what = 'no_plan' and detail -> 'why' ->> 'because' = 'budget_spent')", 20).await;
    world.pass(5).await;
    assert_eq!(world.play().writes.len(), 1);
    nothing_twice(&world).await;
}

#[tokio::test]
async fn a_fallback_that_dies_is_left_as_well() {
    let mut world = World::new().await;
    world.pass(5).await;
    world.play().kill_node(FI);
    world.until("select count(*) = 1 from plan where status = 'verified'", 15).await;
    world.play().kill_node(DE);
    world.until("select count(*) = 2 from plan where status = 'verified'", 20).await;
    assert_eq!(world.play().record.iter().copied().collect::<Vec<_>>(), vec![ip(US)]);
    nothing_twice(&world).await;
}

#[tokio::test]
async fn nothing_is_written_while_frozen() {
    let mut world = World::new().await;
    world.pass(5).await;
    let mut connection = world.app.pool.acquire().await.unwrap();
    assert!(freeze::freeze(&mut connection, "anna", "maintenance").await.unwrap());
    assert!(!freeze::freeze(&mut connection, "boris", "again").await.unwrap());
    assert_eq!(freeze::current(&mut connection).await.unwrap().map(|f| (f.by, f.reason)), Some(("anna".into(), "maintenance".into())));
    world.play().kill_node(FI);
    world.pass(15).await;
    assert!(world.play().writes.is_empty());
    assert_eq!(world.count("select count(*) from plan").await, 0);
    assert!(world.is("select exists (select from incident_event where what = 'no_plan' and detail #>> '{why,refusals,0,because}' = 'frozen')").await, "{}", world.journal().await);
    assert!(freeze::thaw(&mut connection, "anna").await.unwrap());
    assert!(!freeze::thaw(&mut connection, "anna").await.unwrap());
    world.until("select count(*) = 1 from plan where status = 'verified'", 15).await;
    nothing_twice(&world).await;
}

#[tokio::test]
async fn a_plan_on_its_way_stops_at_the_freeze_and_expires() {
    let mut world = World::new().await;
    world.pass(5).await;
    world.play().mood = Mood::LostAndUncertain;
    world.play().kill_node(FI);
    world.until("select exists (select from plan_event where what = 'uncertain')", 15).await;
    let mut connection = world.app.pool.acquire().await.unwrap();
    freeze::freeze(&mut connection, "anna", "stop").await.unwrap();
    world.play().mood = Mood::Works;
    world.pass(15).await;
    assert!(world.play().writes.is_empty());
    freeze::thaw(&mut connection, "anna").await.unwrap();
    world.until("select exists (select from plan where status = 'expired')", 12).await;
    // What was planned then is over; what is planned now is new.
    world.until("select count(*) = 1 from plan where status = 'verified'", 30).await;
    assert_eq!(world.play().writes.len(), 1);
    nothing_twice(&world).await;
}

#[tokio::test]
async fn a_holder_that_lost_the_lease_stores_nothing() {
    let mut world = World::new().await;
    world.pass(5).await;
    let mut stale = world.engine.take().unwrap();
    world.restart().await;
    world.play().kill_node(FI);
    world.pass(1).await;
    let before = world.state().await;
    world.app.clock.advance(std::time::Duration::from_secs(60));
    let error = stale.tick().await.unwrap_err();
    assert!(matches!(error, StoreError::StaleEpoch { epoch: 1 }), "{error}");
    assert_eq!(world.state().await, before);
}

#[tokio::test]
async fn a_service_that_only_observes_gets_a_proposal() {
    let mut world = World::new().await;
    let text = super::world::CONFIG.replace("driver: auth, mode: act", "driver: auth, mode: observe");
    world.app.config.store(std::sync::Arc::new(crate::config::Config::parse(&text, "world").unwrap()));
    world.pass(5).await;
    world.play().kill_node(FI);
    world.pass(20).await;
    assert!(world.play().writes.is_empty());
    assert!(world.is("select count(*) = 1 and bool_and(status = 'proposed') from plan").await);
    assert!(world.is("select count(*) = 1 from incident_event where what = 'no_plan' and detail -> 'why' ->> 'because' = 'waits_for_person'").await, "{}", world.journal().await);
    // Approved by a person, it is applied like any other.
    sqlx::query("update plan set status = 'approved', approved_by = 'anna'").execute(&world.app.pool).await.unwrap();
    world.until("select count(*) = 1 from plan where status = 'verified'", 15).await;
    nothing_twice(&world).await;
}

#[tokio::test]
async fn a_standing_pin_is_renewed_at_half_its_life() {
    let mut world = World::with("policy_overrides: { pin_life_s: 60 }\n").await;
    world.pass(5).await;
    world.play().steer_branch();
    world.until("select count(*) = 1 from plan where status = 'verified'", 20).await;
    assert_eq!(world.play().pin_orders, 1);
    world.pass(45).await;
    assert_eq!(world.play().pin_orders, 2);
    assert_eq!(world.play().writes.len(), 1);
    world.restart().await;
    world.pass(5).await;
    assert_eq!(world.play().pin_orders, 2);
    world.pass(30).await;
    assert_eq!(world.count("select count(*) from plan_event where what = 'renewed'").await, 2);
}

#[tokio::test]
async fn a_vantage_without_an_uplink_accuses_nobody() {
    let mut world = World::new().await;
    world.pass(5).await;
    world.play().uplink_down.extend([BRANCH, "wan-gw"]);
    world.pass(20).await;
    assert!(world.play().writes.is_empty());
    assert_eq!(world.count("select count(*) from plan").await, 0);
    assert!(world.is("select count(*) = 2 and bool_and(kind = 'vantage_uplink_down') from incident").await, "{}", world.journal().await);
    assert!(world.is("select not exists (select from incident where subject = 'fi')").await);
}

#[tokio::test]
async fn a_restart_says_nothing_again() {
    let mut world = World::new().await;
    world.pass(10).await;
    let before = world.count("select count(*) from verdict").await;
    assert!(before > 10);
    for _ in 0..3 {
        world.restart().await;
        world.pass(1).await;
    }
    assert_eq!(world.count("select count(*) from verdict").await, before);
    // What is not measured any more is not called good for ever.
    world.play().silent.extend([BRANCH, "wan-gw", "de-fra"]);
    world.pass(20).await;
    world.restart().await;
    world.app.clock.advance(std::time::Duration::from_secs(3600));
    world.tick().await;
    let good = "select count(*) from (select distinct on (subject_kind, subject, vantage, resolver) verdict from verdict
                order by subject_kind, subject, vantage, resolver, id desc) as a where verdict like '%\\_ok'";
    assert_eq!(world.count(good).await, 0);
    assert!(world.is("select exists (select from incident where kind = 'freeze_coordinator_isolated')").await);
}
