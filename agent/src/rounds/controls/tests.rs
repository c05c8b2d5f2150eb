//! Rounds of controls in a small world, and the whole agent's measuring part in a namespace of its own.

use std::net::{IpAddr, SocketAddr};

use parallax_decide::observation::Outcome;
use parallax_proto::v1::{self, observation::Fact};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::sleep;

use super::*;
use crate::dial::Dialer;
use crate::local::Allow;
use crate::netns::{inside, sh};
use crate::policy::Policy;
use crate::probe::live::LiveServers;
use crate::probe::testing::{Authority, name_server};
use crate::recorder::Recorder;
use crate::rounds::tests::{GOOD, World, assignment};
use crate::schedule::{Kind, Timeline};
use crate::site::Site;
use crate::spool::{BootId, Spool};
use crate::uplink::wire::row;

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

/// Answers each HTTP request with these bytes; what it was asked.
async fn web(bytes: &'static str) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&heard);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            noted.lock().unwrap().push(String::from_utf8(request).unwrap());
            stream.write_all(bytes.as_bytes()).await.unwrap();
        }
    });
    (at, heard)
}

#[tokio::test]
async fn the_captive_portal_question_is_good_with_204_alone() {
    use Outcome as O;
    for (answer, outcome, status) in [
        ("HTTP/1.1 204 No Content\r\n\r\n", O::HttpOk, 204),
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nlogin", O::HttpStatus, 200),
        ("HTTP/1.1 511 Network Authentication Required\r\ncontent-length: 0\r\n\r\n", O::HttpStatus, 511),
        ("HTTP/1.0 302 Found\r\nlocation: http://10.0.0.1/login\r\n\r\n", O::HttpRedirect, 302),
        ("<html>log in</html>\r\n\r\n", O::HttpMalformed, 0),
        ("", O::HttpClosed, 0),
    ] {
        let (at, heard) = web(answer).await;
        let mut world = World::with_answers(&[GOOD]).await;
        world.place_at(&format!("{GOOD}:80"), at);
        let assignment = assignment(|wire| wire.controls = vec![captive("http://portal.example/generate_204?x=1")]);
        world.round(Kind::Controls, &assignment).await;
        let [check] = checks(world.seen()).try_into().unwrap();
        assert_eq!((check.outcome().as_str_name(), check.http_status), (wire_name(outcome), status), "{answer:?}");
        assert_eq!(check.address, bytes(GOOD), "found at the live resolver");
        assert!(check.tcp_us > 0);
        let request = heard.lock().unwrap().concat();
        assert!(request.starts_with("GET /generate_204?x=1 HTTP/1.1\r\nhost: portal.example\r\n"), "{request}");
    }
}

fn wire_name(outcome: Outcome) -> &'static str {
    let mut name = String::from("OUTCOME_");
    name.push_str(&outcome.word().to_uppercase());
    v1::Outcome::from_str_name(&name).unwrap().as_str_name()
}

#[tokio::test]
async fn a_portal_that_lies_in_dns_is_told_and_not_contacted() {
    let mut world = World::with_answers(&["10.0.0.1"]).await;
    let (at, heard) = web("HTTP/1.1 204 No Content\r\n\r\n").await;
    world.place_at("10.0.0.1:80", at);
    let assignment = assignment(|wire| wire.controls = vec![captive("http://portal.example/")]);
    world.round(Kind::Controls, &assignment).await;
    let [check] = checks(world.seen()).try_into().unwrap();
    assert_eq!((check.outcome(), &check.address), (v1::Outcome::SpecialAddress, &bytes("10.0.0.1")));
    assert!(heard.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_captive_url_with_an_address_asks_no_resolver() {
    let world = World::with_answers(&[GOOD]).await;
    for url in ["http://portal.example:8080/", "http://104.26.4.10/"] {
        let assignment = assignment(|wire| {
            wire.controls = vec![captive(url)];
            wire.controls[0].address = bytes(GOOD);
        });
        world.round(Kind::Controls, &assignment).await;
    }
    let outcomes: Vec<v1::Outcome> = checks(world.seen()).iter().map(v1::ControlCheck::outcome).collect();
    // A port of the owner's; nothing at port 80 in this world.
    assert_eq!(outcomes, [v1::Outcome::RefusedByPolicy, v1::Outcome::NetUnreachable]);
    assert_eq!(world.questions(), 0);
}

#[tokio::test]
async fn a_portals_host_that_cannot_be_looked_up_is_told_in_the_resolvers_words() {
    let site = |servers| {
        let dialer = Dialer::direct();
        Site::new(dialer, Policy::new(Allow::default()), Authority::new().trust(), LiveServers::new(servers))
    };
    let mut limits = crate::probe::testing::limits();
    limits.resolve = Duration::from_millis(300);
    let [control] = controls_of(vec![captive("http://portal.example/")]).try_into().unwrap();
    for (servers, outcome) in [
        (vec![name_server(&[]).await], Outcome::Empty),
        (vec![crate::probe::testing::refused_port()], Outcome::ConnectionRefused),
    ] {
        let measured = control::check(&site(servers), &limits, &control).await;
        assert_eq!(measured.what.outcome(), outcome);
    }
}

/// An agent's measuring part in a network namespace: nothing is mapped.
struct Place {
    rounds: Arc<Rounds>,
    recorder: Recorder,
    authority: Authority,
    _folder: tempfile::TempDir,
}

impl Place {
    /// At a place with a way out over IPv4, whose live resolver answers with these addresses.
    async fn with_answers(answers: &[&str]) -> Self {
        sh("ip link add out type veth peer name far; ip link set out up; ip link set far up");
        sh("ip addr add 198.51.100.1/24 dev out; ip route add default via 198.51.100.2");
        let authority = Authority::new();
        let live = LiveServers::new(vec![name_server(answers).await]);
        // The addresses served here are this machine's own, which the owner must allow.
        let private =
            ["8.0.0.0/8", "9.0.0.0/8", "104.0.0.0/8", "2606:4700::/32"].map(|network| network.parse().unwrap());
        let policy = Policy::new(Allow { private: private.to_vec(), ..Allow::default() });
        let site = Site::new(Dialer::direct(), policy, authority.trust(), live);
        let folder = tempfile::tempdir().unwrap();
        let (boot, limits) = (BootId::random().unwrap(), crate::spool::Limits::default());
        let spool = Spool::open(folder.path().join("spool"), boot, limits, 0);
        let recorder = Recorder::new(spool);
        let rounds = Rounds::new(site, recorder.clone(), Timeline::begin(Duration::ZERO), 64);
        Self { rounds, recorder, authority, _folder: folder }
    }

    /// A TLS server for the canary's name at this address, which becomes one of this machine's.
    async fn serve(&self, address: &str) {
        let length = if address.contains(':') { "128 dev lo nodad" } else { "32 dev lo" };
        sh(&format!("ip addr add {address}/{length}"));
        let listener = TcpListener::bind(SocketAddr::new(address.parse().unwrap(), 443)).await.unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(self.authority.server("example.com")));
        tokio::spawn(async move {
            let mut held = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                held.push(acceptor.accept(stream).await);
            }
        });
    }

    fn seen(&self) -> Vec<v1::Observation> {
        let mut seen = Vec::new();
        while let Some(batch) = self.recorder.spool().next_batch(500, 1 << 20).unwrap() {
            seen.extend(batch.rows.iter().map(|stored| row(stored, 0).unwrap()));
        }
        seen
    }

    async fn round(&self, kind: Kind, assignment: &Arc<Assignment>) -> Vec<v1::Observation> {
        self.rounds.start(kind, assignment);
        while !self.rounds.running.lock().unwrap().is_empty() {
            sleep(Duration::from_millis(10)).await;
        }
        self.seen()
    }

    async fn controls(&self, assignment: &Arc<Assignment>) -> Vec<(String, v1::Outcome)> {
        let seen = checks(self.round(Kind::Controls, assignment).await);
        let mut told: Vec<_> = seen.iter().map(|check| (check.control.clone(), check.outcome())).collect();
        told.sort();
        told
    }
}

fn live_alone(change: impl FnOnce(&mut v1::Assignment)) -> Arc<Assignment> {
    assignment(|wire| {
        wire.resolvers.truncate(1);
        let schedule = wire.schedule.as_mut().unwrap();
        (schedule.burst_gap_ms, schedule.attempt_at_ms) = (vec![], vec![100]);
        (schedule.connect_timeout_ms, schedule.tls_timeout_ms, schedule.http_timeout_ms) = (400, 400, 400);
        change(wire);
    })
}

#[tokio::test]
async fn b31_a_box_that_accepts_every_connection_is_exposed_within_two_rounds() {
    if !inside(module_path!(), "b31_a_box_that_accepts_every_connection_is_exposed_within_two_rounds") {
        return;
    }
    let place = Place::with_answers(&[GOOD]).await;
    let assignment = live_alone(|wire| {
        wire.controls.push(positive("a", "9.9.9.9"));
        wire.canaries[0].tls = false;
    });
    let before = place.controls(&assignment).await;
    assert!(before.iter().all(|(_, outcome)| *outcome != v1::Outcome::TcpOk), "{before:?}");

    let liar = TcpListener::bind("0.0.0.0:9").await.unwrap();
    tokio::spawn(async move {
        loop {
            drop(liar.accept().await);
        }
    });
    sh("nft 'table ip liar { chain out { type nat hook output priority -100; tcp dport 443 redirect to :9; }; }'");
    let told = place.controls(&assignment).await;
    assert_eq!(
        told,
        [("a".to_owned(), v1::Outcome::TlsReset), ("negative".to_owned(), v1::Outcome::TcpOk)],
        "the first round after it: it answers in a dead address's place, and its TCP proves nothing"
    );
    // What a canary without TLS then says is exactly that TCP completed.
    let seen = place.round(Kind::Canaries, &assignment).await;
    let tcp = seen.iter().filter(|one| {
            matches!(&one.fact, Some(Fact::Connection(one)) if one.outcome() == v1::Outcome::TcpOk && one.tls_us == 0)
        });
    assert_eq!(tcp.count(), 1);
}

/// Also B34: the internal address that a provider gives for public names.
#[tokio::test]
async fn b33_answers_with_special_addresses_are_never_contacted() {
    if !inside(module_path!(), "b33_answers_with_special_addresses_are_never_contacted") {
        return;
    }
    let special = ["0.0.0.0", "127.0.0.1", "169.254.1.1", "224.0.0.1", "255.255.255.255", "192.0.2.1", "10.10.34.35"];
    let special6 = ["::", "::1", "fe80::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1"];
    let place = Place::with_answers(&[&special[..], &special6[..]].concat()).await;
    sh("ip addr add 10.10.34.35/32 dev lo; ip addr add 192.0.2.1/32 dev lo; ip addr add 169.254.1.1/32 dev lo");
    let trap = std::net::TcpListener::bind("[::]:443").unwrap();
    trap.set_nonblocking(true).unwrap();
    let seen = place.round(Kind::Canaries, &live_alone(|_| {})).await;
    let mut tried = Vec::new();
    for one in seen {
        if let Some(Fact::Connection(one)) = one.fact {
            assert_eq!((one.outcome(), one.attempts), (v1::Outcome::SpecialAddress, 0), "{one:?}");
            tried.push(one.address);
        }
    }
    assert_eq!(tried.len(), special.len() + special6.len(), "each is told");
    assert!(trap.accept().is_err(), "nobody came");
}

#[tokio::test]
async fn b39_dead_controls_end_nothing_and_are_found_alive_again() {
    if !inside(module_path!(), "b39_dead_controls_end_nothing_and_are_found_alive_again") {
        return;
    }
    let place = Place::with_answers(&[GOOD]).await;
    place.serve(GOOD).await;
    place.serve("9.9.9.9").await;
    sh("nft 'table ip faults { chain arriving { type filter hook input priority 0; ip daddr 9.9.9.9 drop; }; }'");
    let assignment = live_alone(|wire| wire.controls.push(positive("a", "9.9.9.9")));
    for round in 1..=3 {
        let seen = checks(place.round(Kind::Controls, &assignment).await);
        let check = seen.iter().find(|check| check.control == "a").unwrap();
        assert_eq!((check.outcome(), check.failures, check.checks), (v1::Outcome::Silent, round, round));
    }
    // Everything else goes on.
    let seen = place.round(Kind::Canaries, &assignment).await;
    let proven =
        |one: &v1::Observation| matches!(&one.fact, Some(Fact::Connection(one)) if one.outcome() == v1::Outcome::TlsOk);
    assert!(seen.iter().any(proven));
    sh("nft delete table ip faults");
    let seen = checks(place.round(Kind::Controls, &assignment).await);
    let check = seen.iter().find(|check| check.control == "a").unwrap();
    assert_eq!((check.outcome(), check.failures, check.checks), (v1::Outcome::TlsOk, 3, 4));
}

#[tokio::test]
async fn b41_without_ipv6_its_part_is_skipped_and_picked_up_when_it_comes() {
    if !inside(module_path!(), "b41_without_ipv6_its_part_is_skipped_and_picked_up_when_it_comes") {
        return;
    }
    let place = Place::with_answers(&[GOOD, V6]).await;
    place.serve(GOOD).await;
    let assignment = live_alone(|wire| wire.controls = vec![positive("six", V6), positive("four", GOOD)]);
    let by_address = |seen: Vec<v1::Observation>, address: &str| -> Vec<v1::Outcome> {
        let tried = seen.into_iter().filter_map(|one| match one.fact {
            Some(Fact::Connection(one)) if one.address == bytes(address) => Some(one.outcome()),
            _ => None,
        });
        tried.collect()
    };
    let seen = place.round(Kind::Canaries, &assignment).await;
    assert_eq!(by_address(seen.clone(), GOOD), [v1::Outcome::TlsOk]);
    assert_eq!(by_address(seen, V6), [v1::Outcome::FamilyUnavailable]);
    let told = place.controls(&assignment).await;
    assert_eq!(told, [("four".into(), v1::Outcome::TlsOk), ("six".into(), v1::Outcome::FamilyUnavailable)]);

    sh("ip -6 addr add 2606:4700::1/64 dev out nodad; ip -6 route add default dev out");
    place.serve(V6).await;
    assert_eq!(by_address(place.round(Kind::Canaries, &assignment).await, V6), [v1::Outcome::TlsOk]);
    let told = place.controls(&assignment).await;
    assert_eq!(told, [("four".into(), v1::Outcome::TlsOk), ("six".into(), v1::Outcome::TlsOk)]);
}

#[tokio::test]
async fn b43_a_dead_ipv6_address_costs_the_ipv4_one_nothing() {
    if !inside(module_path!(), "b43_a_dead_ipv6_address_costs_the_ipv4_one_nothing") {
        return;
    }
    let place = Place::with_answers(&[GOOD, V6]).await;
    place.serve(GOOD).await;
    sh("ip -6 addr add 2606:4700::1/64 dev out nodad; ip -6 route add default dev out");
    place.serve(V6).await;
    sh(&format!(
        "nft 'table ip6 faults {{ chain arriving {{ type filter hook input priority 0; ip6 daddr {V6} drop; }}; }}'"
    ));
    let assignment = live_alone(|wire| {
        let schedule = wire.schedule.as_mut().unwrap();
        schedule.connect_timeout_ms = 3000;
    });
    place.rounds.start(Kind::Canaries, &assignment);
    let mut tried: Vec<(IpAddr, v1::Outcome)> = Vec::new();
    while tried.len() < 2 {
        sleep(Duration::from_millis(5)).await;
        for one in place.seen() {
            if let Some(Fact::Connection(connection)) = one.fact {
                let address = crate::assignment::wire::address(&connection.address).unwrap();
                tried.push((address, connection.outcome()));
                let running = !place.rounds.running.lock().unwrap().is_empty();
                assert!(tried.len() > 1 || running, "the first is told while the other is still tried");
            }
        }
    }
    let by_family = [(GOOD.parse().unwrap(), v1::Outcome::TlsOk), (V6.parse().unwrap(), v1::Outcome::Silent)];
    assert_eq!(tried, by_family);
}
