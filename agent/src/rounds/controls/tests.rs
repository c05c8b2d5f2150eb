//! Rounds of controls in a small world on the loopback interface.

use parallax_proto::v1::{self, observation::Fact};
use tokio::time::sleep;

use super::*;
use crate::rounds::tests::{GOOD, World, assignment};
use crate::schedule::Kind;

mod captive;
mod in_a_namespace;

const V6: &str = "2606:4700::6810:a";

fn bytes(address: &str) -> Vec<u8> {
    crate::uplink::wire::address(address.parse().unwrap())
}

fn positive(name: &str, address: &str) -> v1::Control {
    let (name, server_name) = (name.to_owned(), "example.com".to_owned());
    v1::Control { name, address: bytes(address), port: 443, server_name, ..Default::default() }
}

fn captive(url: &str) -> v1::Control {
    v1::Control { name: "captive".into(), captive_url: url.into(), ..Default::default() }
}

fn controls_of(list: Vec<v1::Control>) -> Vec<Control> {
    assignment(|wire| wire.controls = list).controls.clone()
}

fn names(chosen: &[Control]) -> Vec<&str> {
    chosen.iter().map(|control| control.name.as_str()).collect()
}

fn checks(seen: Vec<v1::Observation>) -> Vec<v1::ControlCheck> {
    let check = |one: v1::Observation| match one.fact {
        Some(Fact::ControlCheck(check)) => Some(check),
        _ => None,
    };
    seen.into_iter().filter_map(check).collect()
}

#[test]
fn of_many_positive_controls_three_take_their_turn_and_the_others_are_asked_each_time() {
    let mut list: Vec<v1::Control> =
        (1..=5).map(|number| positive(&format!("c{number}"), &format!("9.9.9.{number}"))).collect();
    list.push(positive("six", V6));
    list.push(v1::Control {
        name: "negative".into(),
        address: bytes("192.0.2.1"),
        port: 443,
        negative: true,
        ..Default::default()
    });
    list.push(captive("http://portal.example/generate_204"));
    let controls = controls_of(list);
    let mut turns = Turns::default();
    let mut round = |families| names(&chosen(&controls, families, &mut turns)).join(" ");
    assert_eq!(round(Families::ALL), "c1 c2 c3 six negative captive");
    assert_eq!(round(Families::one(Family::V4)), "c4 c5 c1 negative captive");
    assert_eq!(round(Families::one(Family::V6)), "six negative captive", "a failure over IPv6 asks that family's");
    assert_eq!(round(Families::one(Family::V4)), "c2 c3 c4 negative captive");
}

#[test]
fn a_family_without_controls_of_its_own_asks_the_others() {
    let controls = controls_of(vec![positive("a", "9.9.9.1")]);
    assert_eq!(names(&chosen(&controls, Families::one(Family::V6), &mut Turns::default())), ["a"]);
    assert!(chosen(&[], Families::ALL, &mut Turns::default()).is_empty());
}

#[tokio::test(start_paused = true)]
async fn rounds_are_one_at_a_time_and_a_second_apart_and_the_last_asked_for_is_run() {
    let world = World::with_answers(&[GOOD]).await;
    let assignment = assignment(|wire| wire.controls = vec![positive("a", GOOD)]);
    for _ in 0..50 {
        world.rounds.bracket(&assignment, Families::one(Family::V4));
        sleep(Duration::from_millis(50)).await;
    }
    sleep(Duration::from_secs(5)).await;
    let seen = checks(world.seen());
    assert!((3..=4).contains(&seen.len()), "{} rounds in 2.5 s", seen.len());
    assert!(!world.rounds.controls.queue().taken);
    world.rounds.bracket(&assignment, Families::one(Family::V4));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(checks(world.seen()).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_failures_of_the_last_twenty_minutes_travel_with_each_check() {
    let mut world = World::with_answers(&[GOOD]).await;
    world.place("9.9.9.1", crate::probe::testing::refused_port());
    let list = vec![positive("good", GOOD), positive("bad", "9.9.9.1"), positive("six", V6)];
    let assignment = assignment(|wire| {
        wire.controls.extend(list);
        wire.schedule.as_mut().unwrap().attempt_at_ms = vec![];
    });
    for _ in 0..3 {
        world.round(Kind::Controls, &assignment).await;
        sleep(Duration::from_secs(20)).await;
    }
    let seen = checks(world.seen());
    assert!(seen.iter().all(|one| one.clock_offset_ms.is_none()), "nobody has told the time yet");
    let of = |name: &str| -> Vec<(u32, u32)> {
        seen.iter().filter(|one| one.control == name).map(|one| (one.failures, one.checks)).collect()
    };
    let mut counted: Vec<u32> = [of("good"), of("bad")].concat().iter().map(|one| one.1).collect();
    counted.sort_unstable();
    assert_eq!(counted, [1, 2, 3, 4, 5, 6], "the check itself included");
    assert_eq!(of("bad").iter().map(|one| one.0).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(of("six"), [(0, 0); 3], "a family that is not here has no failures");
    assert!(seen.iter().filter(|one| one.control == "six").all(|one| one.outcome() == v1::Outcome::FamilyUnavailable));
}

#[tokio::test(start_paused = true)]
async fn the_distance_of_the_clocks_travels_with_each_check() {
    let world = World::with_answers(&[GOOD]).await;
    let assignment = assignment(|wire| wire.controls = vec![positive("a", GOOD)]);
    world.rounds.site.offset.heard(clock::unix_ms() + 60_000, clock::boottime_ms());
    world.round(Kind::Controls, &assignment).await;
    let [check] = checks(world.seen()).try_into().unwrap();
    assert!((-61_000..-59_000).contains(&check.clock_offset_ms.unwrap()), "{check:?}");
}
