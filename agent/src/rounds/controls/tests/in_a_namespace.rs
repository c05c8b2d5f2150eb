//! Whole rounds in a network of their own, where filters and addresses can be anything.

use std::net::{IpAddr, SocketAddr};

use tokio::net::TcpListener;

use super::*;
use crate::dial::Dialer;
use crate::local::Allow;
use crate::netns::{inside, sh};
use crate::policy::Policy;
use crate::probe::live::LiveServers;
use crate::probe::testing::{Authority, name_server};
use crate::recorder::Recorder;
use crate::rounds::tests::seen;
use crate::schedule::Timeline;
use crate::site::Site;
use crate::spool::{BootId, Spool};

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
        seen(&self.recorder)
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
