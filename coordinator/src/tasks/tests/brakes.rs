//! What keeps changes from being made.

use super::nothing_twice;
use super::played::Mood;
use super::world::{BRANCH, CONFIG, DE, FI, World};
use crate::store::{StoreError, freeze};

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
async fn nothing_is_written_while_frozen() {
    let mut world = World::new().await;
    world.pass(5).await;
    let mut connection = world.app.pool.acquire().await.unwrap();
    assert!(freeze::freeze(&mut connection, "anna", "maintenance").await.unwrap());
    assert!(!freeze::freeze(&mut connection, "boris", "again").await.unwrap());
    assert_eq!(
        freeze::current(&mut connection).await.unwrap().map(|f| (f.by, f.reason)),
        Some(("anna".into(), "maintenance".into()))
    );
    world.play().kill_node(FI);
    world.pass(15).await;
    assert!(world.play().writes.is_empty());
    assert_eq!(world.count("select count(*) from plan").await, 0);
    assert!(world.is("select exists (select from incident_event where what = 'no_plan' and detail #>> '{why,refusals,0,because}' = 'frozen')").await, "{}", world.journal().await);
    assert!(freeze::thaw(&mut connection, "anna", None).await.unwrap());
    assert!(!freeze::thaw(&mut connection, "anna", None).await.unwrap());
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
    freeze::thaw(&mut connection, "anna", None).await.unwrap();
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
    let text = CONFIG.replace("driver: auth, mode: act", "driver: auth, mode: observe");
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
async fn a_vantage_without_an_uplink_accuses_nobody() {
    let mut world = World::new().await;
    world.pass(5).await;
    world.play().uplink_down.extend([BRANCH, "wan-gw"]);
    world.pass(20).await;
    assert!(world.play().writes.is_empty());
    assert_eq!(world.count("select count(*) from plan").await, 0);
    assert!(
        world.is("select count(*) = 2 and bool_and(kind = 'vantage_uplink_down') from incident").await,
        "{}",
        world.journal().await
    );
    assert!(world.is("select not exists (select from incident where subject = 'fi')").await);
}
