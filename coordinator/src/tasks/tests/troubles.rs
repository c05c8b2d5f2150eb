//! What happens when those who change DNS, or the store, have a bad day.

use super::played::Mood;
use super::world::{DE, FI, US, World, ip};
use super::{CLOSED, PLANS_DONE, nothing_twice, sets};

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
async fn a_change_that_does_not_get_through_is_sent_again() {
    let mut world = World::new().await;
    world.pass(5).await;
    world.play().mood = Mood::Unreachable;
    world.play().kill_node(FI);
    world
        .until("select count(*) > 2 from plan_event where what = 'failed' and detail @> '{\"again\": true}'", 15)
        .await;
    world.play().mood = Mood::Works;
    world.until("select count(*) = 1 from plan where status = 'verified'", 15).await;
    assert_eq!(world.count("select count(*) from plan").await, 1);
    assert_eq!(world.play().writes.len(), 1);
    nothing_twice(&world).await;
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
        let writes = world.play().writes.len();
        assert_eq!(writes, 1, "{mood:?}\n{}", world.journal().await);
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
async fn b96_a_record_changed_by_somebody_else_is_left_to_them() {
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
async fn b96_a_record_changed_at_the_last_moment_is_yielded() {
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

/// A forgotten updater, or a second installation, sets the record to its own value again and again.
#[tokio::test]
async fn b96_a_second_writer_is_not_fought() {
    let mut world = World::new().await;
    world.pass(5).await;
    world.play().kill_node(FI);
    world.until("select count(*) = 1 from plan where status = 'verified'", 30).await;
    for _ in 0..6 {
        world.play().record = [ip("203.0.114.7")].into();
        world.pass(10).await;
    }
    let writes: Vec<_> = world.play().writes.iter().map(sets).collect();
    assert_eq!(writes, vec![vec![ip(DE)]], "{}", world.journal().await);
    let told = "select exists (select from incident_event where detail -> 'why' ->> 'because' = 'foreign_record')";
    assert!(world.is(told).await, "{}", world.journal().await);
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
    world.until("select count(*) = 2 from plan where status = 'rolled_back'", 90).await;
    let writes = |world: &World| world.play().writes.iter().map(sets).collect::<Vec<_>>();
    let tried = vec![vec![ip(DE)], vec![ip(FI)], vec![ip(US)], vec![ip(FI)]];
    assert_eq!(writes(&world), tried, "each fallback once, and back");
    // What was there before is served again: that is all a way back can prove while its node is dead.
    world.until("select count(*) = 2 from plan where purpose = 'rollback' and status = 'verified'", 20).await;
    assert!(world.is("select count(*) = 2 from incident_event where what = 'proof_failed'").await);
    assert!(world.is("select changes_made = 4 from incident").await);
    world.restart().await;
    world.pass(30).await;
    assert_eq!(writes(&world), tried, "nothing loops");
    assert!(world.is("select count(*) = 0 from incident_event where what = 'rollback_unproven'").await);
    // It recovers: closed.
    world.play().dead.clear();
    world.until(CLOSED, 20).await;
    nothing_twice(&world).await;
}
