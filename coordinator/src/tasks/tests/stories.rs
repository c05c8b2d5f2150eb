//! What happens when all goes as planned, also when the coordinator is killed again and again.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::world::{BRANCH, CANARY, DE, FI, US, World, ip};
use super::{CLOSED, PLANS_DONE, nothing_twice, sets};
use crate::clock::monotonic;
use crate::tasks::{LeaseHeld, Term, deciding};

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
    let writes = world.play().writes.len();
    assert_eq!(writes, 2, "{}", world.journal().await);
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
    // Where the pair is lost on the way is asked once, of the one that suffers.
    let mut paths = world.play().paths.clone();
    paths.sort();
    let branch: parallax_decide::names::VantageName = BRANCH.parse().unwrap();
    assert_eq!(paths, [(branch.clone(), ip("8.6.112.0")), (branch, ip("8.47.69.0"))]);
}

#[tokio::test]
async fn a_pin_is_made_once_although_killed_at_every_step() {
    for after in [false, true] {
        let world = branch_is_steered(Some(after)).await;
        assert!(world.epoch > 6, "killed {} times", world.epoch - 1);
    }
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
    world.app.clock.advance(Duration::from_secs(3600));
    world.tick().await;
    let good =
        "select count(*) from (select distinct on (subject_kind, subject, vantage, resolver) verdict from verdict
                order by subject_kind, subject, vantage, resolver, id desc) as a where verdict like '%\\_ok'";
    assert_eq!(world.count(good).await, 0);
    assert!(world.is("select exists (select from incident where kind = 'freeze_coordinator_isolated')").await);
}

#[tokio::test]
async fn after_a_relapse_the_return_takes_twice_as_long() {
    let mut world = node_dies_and_returns(None).await;
    world.play().kill_node(FI);
    world.until("select count(*) = 3 and bool_and(applied_at is not null) from plan", 15).await;
    world.play().dead.clear();
    world.until("select count(*) = 4 and bool_and(status in ('verified', 'undone')) from plan", 60).await;
    let spans: Vec<i64> = sqlx::query_scalar(
        "select extract(epoch from back.applied_at - p.applied_at)::bigint
         from plan p join plan back on back.undoes = p.id where back.purpose = 'return' order by p.id",
    )
    .fetch_all(&world.app.pool)
    .await
    .unwrap();
    assert!(spans[0] < 25 && spans[1] >= 40 && spans[1] < 50, "{spans:?}");
    nothing_twice(&world).await;
}

#[tokio::test]
async fn the_loop_decides_when_there_is_news_and_stops_with_the_lease() {
    let mut world = World::new().await;
    world.engine = None;
    let term = Term::from(monotonic() + Duration::from_secs(3600));
    let held = LeaseHeld { epoch: world.epoch, lost: CancellationToken::new(), term };
    let deciding = tokio::spawn(deciding::run(world.app.clone(), held.clone()));
    world.measure().await;
    for _ in 0..500 {
        if world.is("select count(*) = 3 from verdict where verdict = 'node_ok'").await {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(world.is("select count(*) = 3 from verdict where verdict = 'node_ok'").await);
    held.lost.cancel();
    deciding.await.unwrap();
}
