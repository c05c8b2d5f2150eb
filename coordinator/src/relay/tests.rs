//! Two coordinators on one database, each with its own pool, hub and relay. Waits are bounded by the
//! test runner's own limit.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use parallax_decide::names::VantageName;
use parallax_decide::observation::{Purpose, Target};
use sqlx::PgPool;
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

use crate::clock::Clock;
use crate::hub::{
    Arrival, ChangeFailed, ChangeOutcome, ChangeReport, ChangeTask, LocalChange, News, NotConnected, OUTBOUND_MAX,
    Outbound, Place, Task, Work,
};
use crate::mailbox;
use crate::state::App;
use crate::store::{self, lease, vantage};
use crate::testing;

const FIRST: &str = "192.0.2.1:1001";
const SECOND: &str = "198.51.100.2:2002";

struct Two {
    one: Arc<App>,
    two: Arc<App>,
    epoch: i64,
    _end: DropGuard,
}

/// Two coordinators, of which the first holds the lease.
async fn two() -> Two {
    let options = testing::fresh().await;
    let end = CancellationToken::new();
    let start = |name: &str| {
        let app = App::new(store::pool(options.clone()), testing::example(), Clock::system(), "/nonexistent".into());
        tokio::spawn(super::run(Arc::clone(&app), name.to_owned(), end.clone()));
        app
    };
    let (one, two) = (start("one:8443"), start("two:8443"));
    let mut connection = one.pool.acquire().await.unwrap();
    vantage::ensure(&mut connection, one.config.load().topology.vantages.keys()).await.unwrap();
    let epoch = lease::acquire(&mut connection, one.instance, 0).await.unwrap().unwrap();
    // The lock stays with a session of the pool; the row is what counts here.
    drop(connection);
    Two { one, two, epoch, _end: end.drop_guard() }
}

fn kazan() -> VantageName {
    "branch-kazan".parse().unwrap()
}

/// An agent's stream at a coordinator.
fn enter<'a>(app: &'a App, boot: u128, from: &str) -> (Place<'a>, mailbox::Receiver<Box<Outbound>>) {
    let (outbound, orders) = mailbox::mailbox(OUTBOUND_MAX);
    let remote: SocketAddr = from.parse().unwrap();
    let arrival = Arrival { agent_version: "1".to_owned(), boot: Uuid::from_u128(boot), remote };
    (app.hub.enter(&kazan(), arrival, outbound), orders)
}

fn task() -> Task {
    let work = Work::Connect {
        target: Target::Name("cdnjs.cloudflare.com".parse().unwrap()),
        address: "8.6.112.0".parse().unwrap(),
        repeat: 3,
        gap: Duration::from_secs(2),
    };
    Task { purpose: Purpose::CrossCheck, deadline: Duration::from_secs(30), work }
}

fn change(epoch: i64) -> ChangeTask {
    ChangeTask { plan_id: 7, epoch, change: LocalChange::Read { name: "cdnjs.cloudflare.com".parse().unwrap() } }
}

async fn until(mut is: impl AsyncFnMut() -> bool) {
    while !is().await {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn count(pool: &PgPool, what: &'static str) -> i64 {
    sqlx::query_scalar(what).fetch_one(pool).await.unwrap()
}

#[tokio::test]
async fn tasks_and_changes_reach_the_agent_of_the_other_coordinator_and_reports_come_back() {
    let world = two().await;
    assert_eq!(world.one.hub.send_task(&kazan(), task(), world.epoch), Err(NotConnected(kazan())));
    let (place, mut orders) = enter(&world.two, 1, FIRST);
    until(async || world.one.hub.reachable().contains(&kazan())).await;
    assert!(world.one.hub.connected().is_empty(), "it is reachable, not connected here");
    let id = world.one.hub.send_task(&kazan(), task(), world.epoch).unwrap();
    assert_eq!(orders.recv().await.map(|order| *order), Some(Outbound::Task(id, task())));
    let asked = {
        let (app, epoch) = (Arc::clone(&world.one), world.epoch);
        tokio::spawn(async move { app.hub.change(&kazan(), change(epoch), Duration::from_secs(60)).await })
    };
    let Some(Outbound::Change(id, order, life)) = orders.recv().await.map(|order| *order) else {
        panic!("no change came")
    };
    assert_eq!(order, change(world.epoch));
    assert!(life <= Duration::from_secs(60) && life > Duration::from_secs(30), "what is left of it: {life:?}");
    let report = ChangeReport { outcome: ChangeOutcome::Read, found: vec![], detail: "nothing".to_owned() };
    assert!(world.two.hub.report(&kazan(), id, report.clone()));
    assert_eq!(asked.await.unwrap(), Ok(report));
    assert_eq!(count(&world.one.pool, "select count(*) from relay").await, 0, "what was taken out is gone");
    // The stream ends: nobody can be asked any more, here or there.
    drop(place);
    until(async || world.one.hub.reachable().is_empty()).await;
    let nobody = world.one.hub.change(&kazan(), change(world.epoch), Duration::from_secs(60)).await;
    assert_eq!(nobody, Err(ChangeFailed::NotConnected(kazan())));
}

/// G1: an order of a lease that was taken is refused by the database, and where it arrives.
#[tokio::test]
async fn g1_an_order_of_a_stale_epoch_is_refused_by_the_database_and_by_the_one_it_reaches() {
    let world = two().await;
    let (_place, mut orders) = enter(&world.two, 1, FIRST);
    until(async || world.one.hub.reachable().contains(&kazan())).await;
    sqlx::query("update lease set epoch = epoch + 1").execute(&world.one.pool).await.unwrap();
    let refused = world.one.hub.change(&kazan(), change(world.epoch), Duration::from_secs(60)).await.unwrap();
    assert_eq!(refused.outcome, ChangeOutcome::Refused);
    assert!(refused.detail.contains("moved on"), "{}", refused.detail);
    // One that lay in the table when the lease moved on.
    sqlx::query(
        "insert into relay (to_instance, from_instance, kind, vantage, task_id, epoch, payload, deadline_at)
         values ($1, $2, 'change', 'branch-kazan', 5, $3, $4, clock_timestamp() + interval '1 minute')",
    )
    .bind(world.two.instance)
    .bind(world.one.instance)
    .bind(world.epoch)
    .bind(serde_json::json!(change(world.epoch)))
    .execute(&world.one.pool)
    .await
    .unwrap();
    let channel = store::relay::channel(world.two.instance);
    sqlx::query("select pg_notify($1, '')").bind(channel).execute(&world.one.pool).await.unwrap();
    until(async || count(&world.one.pool, "select count(*) from relay").await == 0).await;
    assert!(orders.recv().now_or_never().is_none(), "nothing stale reaches the agent");
    // Under the epoch that holds it does.
    world.one.hub.send_task(&kazan(), task(), world.epoch + 1).unwrap();
    assert!(matches!(orders.recv().await.map(|order| *order), Some(Outbound::Task(..))));
}

#[tokio::test]
async fn the_newest_stream_counts_and_an_identity_of_two_machines_is_named_with_both_addresses() {
    let world = two().await;
    let (old, _orders) = enter(&world.one, 1, FIRST);
    until(async || world.two.hub.reachable().contains(&kazan())).await;
    // The same start of the agent, at the other coordinator: it moved.
    let (new, _orders) = enter(&world.two, 1, FIRST);
    old.closed.cancelled().await;
    assert!(old.closed.is_cancelled());
    drop(old);
    assert_eq!(count(&world.one.pool, "select count(*) from session_clone").await, 0);
    // Another start, from elsewhere: perhaps only a restart. Then the first one comes back, which no
    // process does that ended.
    let (other, _orders) = enter(&world.one, 2, SECOND);
    new.closed.cancelled().await;
    assert!(new.closed.is_cancelled());
    drop(new);
    assert_eq!(count(&world.one.pool, "select count(*) from session_clone").await, 0);
    let (_back, _orders) = enter(&world.two, 1, FIRST);
    other.closed.cancelled().await;
    drop(other);
    until(async || count(&world.one.pool, "select count(*) from v_session where live").await == 1).await;
    until(async || count(&world.one.pool, "select count(*) from v_clone").await == 1).await;
    let (remote, other): (String, String) =
        sqlx::query_as("select remote, other_remote from v_clone").fetch_one(&world.one.pool).await.unwrap();
    assert_eq!((remote.as_str(), other.as_str()), (FIRST, SECOND));
    let live: Vec<(String, String)> = sqlx::query_as("select coordinator, remote from v_session where live")
        .fetch_all(&world.one.pool)
        .await
        .unwrap();
    assert_eq!(live, [("two:8443".to_owned(), FIRST.to_owned())]);
}

/// B88: what was told while the listener's connection was being made anew is not missed.
#[tokio::test]
async fn b88_what_was_told_while_nobody_listened_is_read_afterwards() {
    let world = two().await;
    let (_place, mut orders) = enter(&world.two, 1, FIRST);
    until(async || world.one.hub.reachable().contains(&kazan())).await;
    for round in 0..5 {
        sqlx::query(
            "select pg_terminate_backend(pid) from pg_stat_activity
             where datname = current_database() and pid <> pg_backend_pid() and query ilike 'listen%'",
        )
        .execute(&world.one.pool)
        .await
        .unwrap();
        // Its notice finds nobody.
        world.one.hub.send_task(&kazan(), task(), world.epoch).unwrap();
        assert!(matches!(orders.recv().await.map(|order| *order), Some(Outbound::Task(..))), "round {round}");
    }
}

#[tokio::test]
async fn news_is_heard_at_every_coordinator_and_a_killed_one_is_forgotten() {
    let world = two().await;
    let (_place, _orders) = enter(&world.two, 1, FIRST);
    until(async || world.one.hub.reachable().contains(&kazan())).await;
    let mut news = world.one.hub.news();
    world.two.hub.announce(News::Incidents);
    while news.recv().await != Ok(News::Incidents) {}
    // As if it had been silent for long: it comes back by itself, with its streams.
    sqlx::query("delete from coordinator where instance = $1")
        .bind(world.two.instance)
        .execute(&world.one.pool)
        .await
        .unwrap();
    until(async || count(&world.one.pool, "select count(*) from v_session where live").await == 1).await;
}
