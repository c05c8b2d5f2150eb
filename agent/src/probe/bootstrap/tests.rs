use std::sync::atomic::{AtomicBool, Ordering};

use domain::base::iana::Rcode;
use domain::base::{Message, MessageBuilder, Rtype, Ttl};
use domain::rdata::{A, Aaaa};
use parallax_decide::observation::Stage;

use super::*;
use crate::assignment::{Resolver, Transport};
use crate::dial::Dialer;
use crate::local::Allow;
use crate::measured::What;
use crate::policy::Policy;
use crate::probe::endpoint::{self, Questions};
use crate::probe::testing::doh::{Answer, HOST, doh, place, serve};
use crate::probe::testing::rig1::{Datagram, Rig1};
use crate::probe::testing::{Authority, limits};

/// Where the endpoint and its bootstrap server seem to be.
const ENDPOINT: &str = "104.26.4.10";
const SERVER: &str = "9.9.9.9:53";

/// A world: a DoH endpoint, a bootstrap server that answers by a script, no IPv6, and a place.
struct World {
    site: Site,
    resolver: Resolver,
    server: Rig1,
    _map: tempfile::TempDir,
}

async fn world(script: impl Fn(&[u8], usize) -> Vec<Datagram> + Send + 'static) -> World {
    let authority = Authority::new();
    let endpoint = serve(authority.server(HOST), &["h2"], Answer::good).await;
    let server = Rig1::udp(script).await;
    let folder = tempfile::tempdir().unwrap();
    let map = folder.path().join("map.json");
    let text = format!("{{\"{ENDPOINT}:443\": \"{}\", \"{SERVER}\": \"{}\"}}", endpoint.address, server.address);
    std::fs::write(&map, text).unwrap();
    let mut resolver = doh(format!("{ENDPOINT}:443").parse().unwrap(), crate::probe::doh::Form::WirePost, None);
    let Transport::Doh(doh) = &mut resolver.transport else { unreachable!() };
    doh.addresses.clear();
    doh.bootstrap = vec![SERVER.parse().unwrap()];
    let policy = Policy::new(Allow { new_addresses_per_hour: 10_000, ..Allow::default() });
    let site = Site { dialer: Dialer::mapped(map), policy, ..place(authority.trust()) };
    World { site, resolver, server, _map: folder }
}

impl World {
    async fn check(&self) -> (Stage, Outcome) {
        let known = Question { name: "example.com".parse().unwrap(), family: Family::V4 };
        let questions = Questions { known, freshness_zone: None, missing_zone: None };
        let measured = endpoint::check(&self.site, &limits(), &self.resolver, &questions).await;
        assert!(measured.duration < limits().resolve * 2);
        let What::EndpointCheck(fact, kept) = measured.what else { panic!("{measured:?}") };
        // Searched just now, or remembered.
        assert!(fact.stage > Stage::Bootstrap || !kept.stages.bootstrap.is_zero());
        (fact.stage, fact.outcome)
    }
}

fn rtype(query: &[u8]) -> Rtype {
    Message::from_octets(query).unwrap().sole_question().unwrap().qtype()
}

fn reply(query: &[u8], code: Rcode, address: Option<&str>, ttl_s: u32) -> Vec<Datagram> {
    let query = Message::from_octets(query).unwrap();
    let mut answer = MessageBuilder::new_vec().start_answer(&query, code).unwrap();
    let name = query.sole_question().unwrap().qname().to_owned();
    match address.map(|text| text.parse().unwrap()) {
        None => {}
        Some(IpAddr::V4(v4)) => answer.push((name, Ttl::from_secs(ttl_s), A::new(v4))).unwrap(),
        Some(IpAddr::V6(v6)) => answer.push((name, Ttl::from_secs(ttl_s), Aaaa::new(v6))).unwrap(),
    }
    vec![Datagram::now(answer.finish())]
}

const GOOD: (Stage, Outcome) = (Stage::Dns, Outcome::Answered);

#[tokio::test]
async fn b20_a_silent_or_failing_family_costs_nothing() {
    for aaaa in [None, Some(Rcode::SERVFAIL), Some(Rcode::NXDOMAIN)] {
        let world = world(move |query, _| match (rtype(query) == Rtype::A, aaaa) {
            (true, _) => reply(query, Rcode::NOERROR, Some(ENDPOINT), 60),
            (false, None) => Vec::new(),
            (false, Some(code)) => reply(query, code, None, 0),
        })
        .await;
        assert_eq!(world.check().await, GOOD, "{aaaa:?}");
        let asked = world.server.queries().len();
        assert_eq!(world.check().await, GOOD, "{aaaa:?}");
        assert_eq!(world.server.queries().len(), asked, "the address is remembered");
    }
}

#[tokio::test]
async fn b20_a_family_that_is_not_here_is_no_way_and_nothing_is_remembered() {
    let world = world(|query, _| match rtype(query) == Rtype::A {
        true => reply(query, Rcode::SERVFAIL, None, 0),
        false => reply(query, Rcode::NOERROR, Some("2606:4700::6810:a"), 3600),
    })
    .await;
    for _ in 0..2 {
        assert_eq!(world.check().await, (Stage::Bootstrap, Outcome::Servfail));
    }
    assert_eq!(world.server.queries().len(), 4, "each question searches again");
}

#[tokio::test]
async fn b23_a_wrong_or_failed_bootstrap_is_over_with_the_next_question() {
    type Wrong = fn(&[u8]) -> Vec<Datagram>;
    let wrongs: [(Wrong, Outcome); 4] = [
        (|query| reply(query, Rcode::SERVFAIL, None, 0), Outcome::Servfail),
        (
            |query| match rtype(query) == Rtype::A {
                true => reply(query, Rcode::NOERROR, Some("10.0.0.1"), 3600),
                false => reply(query, Rcode::NOERROR, None, 0),
            },
            Outcome::SpecialAddress,
        ),
        (|query| reply(query, Rcode::NXDOMAIN, None, 3600), Outcome::Nxdomain),
        (|_| Vec::new(), Outcome::DnsSilent),
    ];
    for (wrong, outcome) in wrongs {
        let right = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&right);
        let world = world(move |query, _| match seen.load(Ordering::SeqCst) {
            false => wrong(query),
            true if rtype(query) == Rtype::A => reply(query, Rcode::NOERROR, Some(ENDPOINT), 60),
            true => Vec::new(),
        })
        .await;
        assert_eq!(world.check().await, (Stage::Bootstrap, outcome));
        right.store(true, Ordering::SeqCst);
        assert_eq!(world.check().await, GOOD, "{outcome}");
    }
}

#[tokio::test]
async fn b23_an_address_that_does_not_work_is_searched_again() {
    let moved = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&moved);
    let world = world(move |query, _| match (rtype(query) == Rtype::A, seen.load(Ordering::SeqCst)) {
        // Nobody is at the first address: the world's map does not know it.
        (true, false) => reply(query, Rcode::NOERROR, Some("104.26.4.99"), 86_400),
        (true, true) => reply(query, Rcode::NOERROR, Some(ENDPOINT), 86_400),
        (false, _) => Vec::new(),
    })
    .await;
    assert_eq!(world.check().await.0, Stage::Tcp);
    moved.store(true, Ordering::SeqCst);
    let found = |world: &World| world.site.bootstrap.host(HOST).last.lock().unwrap().found.clone();
    assert!(found(&world).unwrap().until <= now() + LIFE_MAX);
    // As an interval later.
    let at = now() - SETTLED;
    world.site.bootstrap.host(HOST).last.lock().unwrap().found.as_mut().unwrap().at = at;
    assert_eq!(world.check().await.0, Stage::Tcp);
    assert!(found(&world).is_none());
    assert_eq!(world.check().await, GOOD);
}

#[tokio::test]
async fn questions_at_the_same_time_search_once_also_when_that_fails() {
    for code in [Rcode::NOERROR, Rcode::SERVFAIL] {
        let world = world(move |query, _| match rtype(query) == Rtype::A {
            true => reply(query, code, (code == Rcode::NOERROR).then_some(ENDPOINT), 60),
            false => reply(query, code, None, 0),
        })
        .await;
        let Transport::Doh(endpoint) = &world.resolver.transport else { unreachable!() };
        let asking = (0..20).map(|_| async {
            let mut trace = Trace::default();
            world.site.bootstrap.addresses(&world.site, &limits(), endpoint, &mut trace).await
        });
        for ended in futures_util::future::join_all(asking).await {
            assert_eq!(ended.is_ok(), code == Rcode::NOERROR);
        }
        assert_eq!(world.server.queries().len(), 2);
    }
}
