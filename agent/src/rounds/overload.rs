//! What happens to rounds when something hangs, breaks down, or the process does not run.

use parallax_proto::v1::{self, observation::Fact};
use tokio::net::TcpListener;

use super::tests::{GOOD, World, assignment};
use super::*;
use crate::local::Allow;
use crate::policy::Policy;
use crate::probe::testing::refused_port;

/// Rounds that were recorded as missed: what, why, how many.
fn missed(seen: &[v1::Observation]) -> Vec<(String, v1::MissedReason, u64)> {
    let mut missed = Vec::new();
    for observation in seen {
        if let Some(Fact::Missed(one)) = &observation.fact {
            missed.push((one.what.clone(), one.reason(), one.count));
        }
    }
    missed
}

#[tokio::test(start_paused = true)]
async fn b52_after_a_pause_one_round_runs_and_the_missed_ones_are_told() {
    let world = World::with_answers(&[GOOD]).await;
    let (_assign, follow) = watch::channel(Some(assignment(|wire| {
        let schedule = wire.schedule.as_mut().unwrap();
        (schedule.control_every_ms, schedule.burst_gap_ms) = (10_000, vec![]);
    })));
    let following = tokio::spawn(Arc::clone(&world.rounds).follow(Kind::Controls, follow));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(world.seen().len(), 1);
    // As SIGSTOP and SIGCONT ten minutes later: the timer is late, and fires once.
    tokio::time::advance(Duration::from_secs(600)).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let seen = world.seen();
    assert_eq!(missed(&seen), [("controls".to_owned(), v1::MissedReason::Paused, 59)]);
    assert_eq!(seen.len(), 2, "one round, and the record");
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(world.seen().len(), 3, "then the usual rhythm");
    following.abort();
}

#[test]
fn time_asleep_counts_as_a_pause_too() {
    let monotonic = clock::now();
    let mut stopwatch = Stopwatch { monotonic, boottime_ms: clock::boottime_ms().saturating_sub(60_000) };
    let paused = stopwatch.lap(monotonic + Duration::from_secs(3600));
    assert!((59..=61).contains(&paused.as_secs()), "{paused:?}");
    assert!(stopwatch.lap(clock::now()).as_secs() < 1);
}

#[tokio::test(start_paused = true)]
async fn b48_an_answer_slower_than_the_interval_skips_rounds_and_says_so() {
    let mut world = World::with_answers(&[GOOD]).await;
    let (silent, _held) = crate::probe::testing::silent_port().await;
    world.place("95.216.10.10", silent);
    let assignment = assignment(|wire| wire.schedule.as_mut().unwrap().burst_gap_ms = vec![]);
    for _ in 0..3 {
        world.rounds.start(Kind::Nodes, &assignment);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let name = assignment.nodes[0].name.to_string();
    let once = (name, v1::MissedReason::Overrun, 1);
    assert_eq!(missed(&world.seen()), [once.clone(), once]);
}

/// A server that takes the connection and holds the TLS handshake for ever, and a limit that was turned off by
/// mistake: that round is given up and told, the next one tries again, and the others go on meanwhile.
#[tokio::test(start_paused = true)]
async fn b50_a_round_that_never_ends_is_given_up_told_and_bans_no_later_one() {
    let mut world = World::with_answers(&[GOOD]).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    world.place("95.216.10.10", listener.local_addr().unwrap());
    world.place("49.12.20.20", refused_port());
    let taken = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&taken);
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::Relaxed);
            held.push(stream);
        }
    });
    let mut assignment = assignment(|wire| {
        let schedule = wire.schedule.as_mut().unwrap();
        (schedule.node_every_ms, schedule.burst_gap_ms) = (30_000, vec![]);
        let node = v1::Node { name: "de".into(), address: vec![49, 12, 20, 20], port: 443, ..v1::Node::default() };
        wire.nodes.push(node);
    });
    Arc::get_mut(&mut assignment).unwrap().schedule.limits.tls = Duration::from_secs(86_400);
    let (_assign, follow) = watch::channel(Some(assignment));
    let following = tokio::spawn(Arc::clone(&world.rounds).follow(Kind::Nodes, follow));
    tokio::time::sleep(ROUND_MAX + Duration::from_secs(60)).await;
    following.abort();
    let seen = world.seen();
    let missed = missed(&seen);
    let of = |reason| missed.iter().filter(|one| one.0 == "fi" && one.1 == reason).map(|one| one.2).sum::<u64>();
    assert_eq!(of(v1::MissedReason::GivenUp), 1, "{missed:?}");
    // A point each 30 s: one began, those until the limit were skipped, then one began again.
    assert!((5..=6).contains(&of(v1::MissedReason::Overrun)), "{missed:?}");
    assert_eq!(taken.load(Ordering::Relaxed), 2, "the one after it reached the server again");
    let other =
        |one: &&v1::Observation| matches!(&one.fact, Some(Fact::Connection(one)) if one.address == [49, 12, 20, 20]);
    assert!(seen.iter().filter(other).count() >= 7, "the other node had its rounds");
}

/// A round whose task panics: it is counted and told, and the next one measures.
#[tokio::test(start_paused = true)]
async fn b50_a_round_that_breaks_down_is_told_and_bans_no_later_one() {
    let mut world = World::with_answers(&[GOOD]).await;
    world.place("95.216.10.10", refused_port());
    let assignment = assignment(|wire| wire.schedule.as_mut().unwrap().burst_gap_ms = vec![]);
    let broken = |_: Arc<Rounds>, _: Arc<Assignment>, (): ()| async { panic!("a fault of ours") };
    assert_eq!(world.rounds.spawn(Kind::Nodes, "fi", broken, &assignment, ()), 0);
    while !world.rounds.running.lock().unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(missed(&world.seen()), [("fi".to_owned(), v1::MissedReason::Broken, 1)]);
    world.round(Kind::Nodes, &assignment).await;
    let seen = world.seen();
    assert!(missed(&seen).is_empty());
    assert!(matches!(&seen[0].fact, Some(Fact::Connection(one)) if one.outcome() == v1::Outcome::ConnectionRefused));
}

#[tokio::test(start_paused = true)]
async fn probes_without_a_place_are_counted_into_one_record() {
    let world = World::with_answers(&[GOOD]).await;
    let assignment = assignment(|wire| wire.schedule.as_mut().unwrap().burst_gap_ms = vec![]);
    let held = world.rounds.places.acquire_many(64).await.unwrap();
    world.round(Kind::Nodes, &assignment).await;
    world.round(Kind::Nodes, &assignment).await;
    drop(held);
    assert_eq!(missed(&world.seen()), [("probes".to_owned(), v1::MissedReason::Busy, 1)]);
    world.round(Kind::Nodes, &assignment).await;
    assert_eq!(missed(&world.seen()), [("probes".to_owned(), v1::MissedReason::Busy, 1)]);
}

/// Every resolver's endpoint accepts and says nothing.
#[tokio::test]
async fn r10_silent_endpoints_delay_nothing_else() {
    let mut world = World::with_answers(&[GOOD]).await;
    let mut listeners = Vec::new();
    for last in 1..=20_u8 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        world.place(&format!("9.9.9.{last}"), listener.local_addr().unwrap());
        listeners.push(listener);
    }
    let assignment = assignment(|wire| {
        for last in 1..=20_u8 {
            let dot = v1::DotEndpoint { address: vec![9, 9, 9, last], port: 443, server_name: "dns.example".into() };
            let kind = Some(v1::resolver::Kind::Dot(dot));
            wire.resolvers.push(v1::Resolver { name: format!("silent-{last}"), kind });
        }
    });
    world.rounds.start(Kind::Endpoints, &assignment);
    world.rounds.start(Kind::Canaries, &assignment);
    world.rounds.start(Kind::Controls, &assignment);
    let proven = |seen: &[v1::Observation]| {
        seen.iter().any(|one| matches!(&one.fact, Some(Fact::Connection(one)) if one.outcome() == v1::Outcome::TlsOk))
    };
    let mut seen = Vec::new();
    while !proven(&seen) {
        tokio::time::sleep(Duration::from_millis(5)).await;
        seen.extend(world.seen());
    }
    let hung =
        world.rounds.running.lock().unwrap().iter().filter(|Running(_, name)| name.starts_with("silent")).count();
    assert_eq!(hung, 20, "the canary was proven while every endpoint hung");
}

#[tokio::test]
async fn a_resolver_that_wants_to_be_left_alone_is_and_the_checks_it_missed_are_told() {
    let world = World::with_answers(&[GOOD]).await;
    let assignment = assignment(|_| {});
    let name = "plain-cf".parse().unwrap();
    world.rounds.site.throttle.obey(&name, Some(Duration::from_secs(600)));
    world.round(Kind::Endpoints, &assignment).await;
    world.round(Kind::Canaries, &assignment).await;
    let seen = world.seen();
    let told = [("plain-cf", 1), ("example.com", 2)]
        .map(|(what, count)| (what.to_owned(), v1::MissedReason::Throttled, count));
    assert_eq!(missed(&seen), told, "its check, and the canary's questions to it");
    let asked = |one: &v1::Observation| match &one.fact {
        Some(Fact::Resolution(one)) => one.resolver == "plain-cf",
        Some(Fact::EndpointCheck(_)) => true,
        Some(_) | None => false,
    };
    assert!(!seen.iter().any(asked), "nothing was sent to it");
}

/// The owner's limits keep questions back: what did not run is told in one row a round, however much it was.
#[tokio::test(start_paused = true)]
async fn questions_that_the_owners_limits_keep_back_are_told_as_missed() {
    let mut world = World::with_answers(&[GOOD]).await;
    // One question at once, and one more each minute.
    let allow = Allow { questions_per_minute: 1, ..Allow::default() };
    Arc::get_mut(&mut world.rounds).unwrap().site.policy = Policy::new(allow);
    world.round(Kind::Canaries, &assignment(|_| {})).await;
    let seen = world.seen();
    assert_eq!(missed(&seen), [("example.com".to_owned(), v1::MissedReason::Limited, 3)]);
    let resolved = seen.iter().filter(|one| matches!(one.fact, Some(Fact::Resolution(_)))).count();
    assert_eq!(resolved, 1, "the fourth was asked");
}

#[tokio::test(start_paused = true)]
async fn r10_a_canary_at_many_resolvers_lets_everything_else_that_is_due_begin() {
    let world = World::with_answers(&[GOOD]).await;
    let many = assignment(|wire| {
        let plain = wire.resolvers.pop().unwrap();
        wire.resolvers = (0..30).map(|n| v1::Resolver { name: format!("plain-{n}"), ..plain.clone() }).collect();
    });
    world.rounds.start(Kind::Canaries, &many);
    let rounds = Arc::clone(&world.rounds);
    let begun = tokio::spawn(async move { 64 - rounds.places.available_permits() }).await.unwrap();
    assert!((1..=subjects::TURN).contains(&begun), "{begun} of 60 questions before anything else");
    world.round(Kind::Nodes, &many).await;
    let resolved = |one: &v1::Observation| matches!(one.fact, Some(Fact::Resolution(_)));
    while !world.rounds.running.lock().unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(world.seen().iter().filter(|one| resolved(one)).count(), 60);
}
