//! Resolutions as they are recorded.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use parallax_decide::observation::{Family, Outcome};

use super::*;
use crate::assignment::Transport;
use crate::dial::Dialer;
use crate::local::Allow;
use crate::measured::OddKind;
use crate::policy::Policy;
use crate::probe::live::LiveServers;
use crate::probe::testing::rig1::{Datagram, Rig1, Said, Write};
use crate::probe::testing::{Authority, limits};

const HOLD: Duration = Duration::from_millis(400);

/// A place whose live resolver is these servers.
fn site(servers: &[SocketAddr]) -> Site {
    let allow =
        Allow { private: vec!["127.0.0.0/8".parse().unwrap()], ports: (1..=u16::MAX).collect(), ..Allow::default() };
    Site::new(
        Dialer::direct(),
        Policy::on_loopback(allow),
        Authority::new().trust(),
        LiveServers::new(servers.to_vec()),
    )
}

fn live() -> Resolver {
    Resolver { name: "live".parse().unwrap(), transport: Transport::Live }
}

fn plain(server: SocketAddr) -> Resolver {
    Resolver { name: "plain".parse().unwrap(), transport: Transport::Plain { server } }
}

async fn resolved(resolver: &Resolver, servers: &[SocketAddr], family: Family) -> Resolved {
    let question = Question { name: "example.com".parse().unwrap(), family };
    let limits = Limits { udp_hold: HOLD, ..limits() };
    resolve(&site(servers), &limits, resolver, &question).await
}

async fn answers(script: impl Fn(&[u8]) -> Said + Send + 'static) -> Rig1 {
    Rig1::udp(move |query, _| vec![Datagram::now(script(query).bytes())]).await
}

fn kept(measured: &Measured) -> &ResolutionParticulars {
    let What::Resolution(_, kept) = &measured.what else { panic!("{measured:?}") };
    kept
}

#[tokio::test]
async fn an_answer_is_handed_on_before_its_socket_has_listened_to_the_end() {
    let rig = Rig1::udp(|query, _| {
        let said = Said::to(query);
        vec![
            Datagram::now(said.clone().address("198.51.100.66", 60).bytes()),
            Datagram::after_ms(100, said.address("203.0.113.10", 60).bytes()),
        ]
    })
    .await;
    let begin = clock::now();
    let resolved = resolved(&live(), &[rig.address], Family::V4).await;
    assert!(clock::since(begin) < HOLD);
    assert_eq!(resolved.fact.addresses, ["198.51.100.66".parse::<IpAddr>().unwrap()]);
    let measured = resolved.finish().await;
    assert!(clock::since(begin) >= HOLD);
    assert!(measured.duration < HOLD, "the time of the reply");
    let odd = &kept(&measured).odd_replies;
    assert_eq!((odd.len(), odd[0].kind), (1, OddKind::Different));
    assert_eq!(odd[0].addresses, ["203.0.113.10".parse::<IpAddr>().unwrap()]);
}

#[tokio::test]
async fn b05_a_failure_has_no_address_that_could_be_used() {
    let rig = answers(|query| Said::to(query).rcode(2).address("203.0.113.10", 60).address("203.0.113.11", 60)).await;
    let resolved = resolved(&plain(rig.address), &[], Family::V4).await;
    assert_eq!((resolved.fact.outcome, &resolved.fact.addresses[..]), (Outcome::Servfail, &[][..]));
    let measured = resolved.finish().await;
    assert_eq!(kept(&measured).addresses_not_used.len(), 2);
}

#[tokio::test]
async fn b11_a_rotating_answer_is_the_same_set_each_time() {
    let rig = Rig1::udp(|query, before| {
        let said = (0..3).fold(Said::to(query), |said, place| {
            said.address(["203.0.113.10", "203.0.113.11", "203.0.113.12"][(place + before) % 3], 60)
        });
        vec![Datagram::now(said.address("203.0.113.11", 60).bytes())]
    })
    .await;
    let mut sets = BTreeSet::new();
    for _ in 0..20 {
        let resolved = resolved(&plain(rig.address), &[], Family::V4).await;
        assert_eq!(resolved.fact.addresses.len(), 3);
        sets.insert(resolved.fact.addresses.iter().copied().collect::<BTreeSet<_>>());
    }
    assert_eq!(sets.len(), 1);
}

#[tokio::test]
async fn b11_of_64_addresses_16_are_used_and_the_others_counted() {
    let rig = Rig1::both(
        |query, _| vec![Datagram::now(Said::to(query).cut().bytes())],
        |query| {
            let said = (0..64).fold(Said::to(query), |said, i| said.address(&format!("203.0.113.{i}"), 60));
            vec![Write::message(&said.bytes())]
        },
    )
    .await;
    let resolved = resolved(&plain(rig.address), &[], Family::V4).await;
    assert_eq!(resolved.fact.addresses.len(), 16);
    assert_eq!(kept(&resolved.finish().await).addresses_skipped, 48);
}

#[tokio::test]
async fn b24_a_stale_answer_and_b26_a_missing_name_keep_their_marks() {
    let stale = answers(|query| Said::to(query).address("203.0.113.10", 30).opt(0, &[(15, b"\x00\x03old")])).await;
    let measured = resolved(&plain(stale.address), &[], Family::V4).await.finish().await;
    let stale = kept(&measured);
    assert_eq!((stale.extended_error, stale.remark.as_str()), (Some(3), "old"));
    assert_eq!(stale.reply.as_ref().unwrap().ttls_s, [30]);

    let missing = answers(|query| Said::to(query).rcode(3).soa("example.com", 86400, 86400)).await;
    let measured = resolved(&plain(missing.address), &[], Family::V4).await.finish().await;
    assert_eq!(measured.what.outcome(), Outcome::Nxdomain);
    assert_eq!(kept(&measured).reply.as_ref().unwrap().negative_ttl_s, Some(86400));
}

#[tokio::test]
async fn b27_a_stuck_stub_is_told_from_its_upstream() {
    let stub = answers(|query| Said::to(query).rcode(2)).await;
    let upstream = answers(|query| Said::to(query).address("203.0.113.10", 60)).await;
    let by_stub = resolved(&live(), &[stub.address], Family::V4).await;
    let direct = resolved(&plain(upstream.address), &[stub.address], Family::V4).await;
    assert_eq!((by_stub.fact.outcome, direct.fact.outcome), (Outcome::Servfail, Outcome::Answered));
    let measured = by_stub.finish().await;
    assert_eq!(kept(&measured).server, Some(stub.address.ip()));
}

#[tokio::test]
async fn b28_an_answer_that_was_emptied_is_empty_and_a_private_one_is_told() {
    let filtering = answers(Said::to).await;
    let branch = answers(|query| Said::to(query).address("10.0.0.5", 60)).await;
    assert_eq!(resolved(&plain(filtering.address), &[], Family::V4).await.fact.outcome, Outcome::Empty);
    let told = resolved(&plain(branch.address), &[], Family::V4).await.fact;
    assert_eq!((told.outcome, told.addresses), (Outcome::Answered, vec![IpAddr::from([10, 0, 0, 5])]));
}

#[tokio::test]
async fn without_a_server_there_is_no_resolver_and_nothing_of_a_reply() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("resolv.conf");
    std::fs::write(&file, "search example.com\n").unwrap();
    let site = Site { live: LiveServers::of_file(file), ..site(&[]) };
    let question = Question { name: "example.com".parse().unwrap(), family: Family::V4 };
    let measured = resolve(&site, &limits(), &live(), &question).await.finish().await;
    assert_eq!(measured.what.outcome(), Outcome::NoResolver);
    assert_eq!((kept(&measured).server, &kept(&measured).reply), (None, &None));
}

#[tokio::test]
async fn the_next_live_server_is_asked_and_what_was_noted_of_the_first_is_forgotten() {
    let broken = Rig1::udp(|query, _| vec![Datagram::now(query[..6].to_vec())]).await;
    let good = answers(|query| Said::to(query).address("203.0.113.10", 60)).await;
    let resolved = resolved(&live(), &[broken.address, good.address], Family::V4).await;
    assert_eq!(resolved.fact.outcome, Outcome::Answered);
    let measured = resolved.finish().await;
    let reply = kept(&measured).reply.clone().unwrap();
    assert_eq!((reply.first_bytes, reply.ttls_s), (vec![], vec![60]));
}
