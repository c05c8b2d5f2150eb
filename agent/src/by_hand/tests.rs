//! What is read, said and printed, from made-up sights and from real sockets.

use std::time::Duration;

use parallax_decide::observation::{Connection, EndpointCheck, Family, Outcome, Resolution, Stage, Target};

use super::look::{Asked, Seen, TriedAddress, Wanted};
use super::told::Verdict;
use super::*;
use crate::assignment::Transport;
use crate::measured::{ConnectionParticulars, EndpointParticulars, ResolutionParticulars};

#[test]
fn resolvers_are_read_as_they_are_written() {
    for (text, name) in [
        ("live", "live"),
        ("1.1.1.1", "udp-1-1-1-1"),
        ("udp://[2001:db8::53]:5353", "udp-2001-db8-53"),
        ("tcp://9.9.9.9", "tcp-9-9-9-9"),
        ("tls://one.one.one.one@1.1.1.1", "dot-one-one-one-one"),
        ("https://dns.quad9.net/dns-query@9.9.9.9", "doh-dns-quad9-net"),
        ("json+https://dns.google/resolve", "doh-json-dns-google"),
        ("https://[2606:4700:4700::1111]/dns-query", "doh-2606-4700-4700-1111"),
    ] {
        assert_eq!(spec::resolver(text).unwrap().name.to_string(), name);
    }
    let Transport::Doh(endpoint) = spec::resolver("https://[2606:4700:4700::1111]/q").unwrap().transport else {
        panic!()
    };
    assert_eq!(endpoint.addresses, ["2606:4700:4700::1111".parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!(spec::usual().len(), 5);
}

#[test]
fn b46_mistakes_are_named_with_the_right_spelling() {
    for (text, part) in [
        ("dns.example", "named by address"),
        ("tls://2001:db8::53:853:x", "[2001:db8::53]:853"),
        ("https://", "https://dns.example/dns-query"),
        ("https://dns.example/q@nine", "no IP address"),
        ("tls://bad name@1.1.1.1", "no TLS server name"),
    ] {
        let error = spec::resolver(text).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
}

const UP: [Outcome; 3] = [Outcome::TlsOk; 3];

fn seen(live: &[&str], tried: &[(&str, Outcome)], endpoint: Outcome, stage: Stage, controls: &[Outcome]) -> Seen {
    let name: DomainName = "example.com".parse().unwrap();
    let answer = |resolver: &Resolver, addresses: &[&str]| {
        let fact = Resolution {
            name: "example.com".parse().unwrap(),
            resolver: resolver.name.clone(),
            family: Family::V4,
            outcome: if addresses.is_empty() { Outcome::DnsSilent } else { Outcome::Answered },
            addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
            ttl_s: 60,
        };
        (fact, ResolutionParticulars::default(), Duration::from_millis(3))
    };
    let live_resolver = spec::resolver("live").unwrap();
    let doh = spec::resolver("https://dns.quad9.net/dns-query@9.9.9.9").unwrap();
    let check = EndpointCheck {
        resolver: doh.name.clone(),
        address: "9.9.9.9".parse().unwrap(),
        stage,
        outcome: endpoint,
        fresh: None,
        missing: None,
        worked_before: false,
    };
    let others: Vec<&str> =
        tried.iter().map(|(address, _)| *address).filter(|address| !live.contains(address)).collect();
    Seen {
        wanted: Wanted {
            name: name.clone(),
            port: 443,
            tls: true,
            resolvers: vec![live_resolver.clone(), doh.clone()],
        },
        asked: vec![
            Asked { answers: vec![answer(&live_resolver, live)], resolver: live_resolver, endpoint: None },
            Asked {
                answers: vec![answer(&doh, &others)],
                resolver: doh,
                endpoint: Some((check, EndpointParticulars::default(), Duration::from_millis(9))),
            },
        ],
        tried: tried
            .iter()
            .map(|(address, outcome)| TriedAddress {
                connection: Connection {
                    target: Target::Name(name.clone()),
                    address: address.parse().unwrap(),
                    port: 443,
                    outcome: *outcome,
                    attempts: 4,
                    attempts_connected: 0,
                },
                kept: ConnectionParticulars::default(),
                duration: Duration::from_secs(3),
                given_by: vec!["live".to_owned()],
            })
            .collect(),
        controls: controls.to_vec(),
    }
}

#[test]
fn r17_alive_but_not_resolving_is_told_from_no_path() {
    for (outcome, stage, part) in [
        (Outcome::Servfail, Stage::Dns, "the endpoint is alive and does not resolve"),
        (Outcome::Silent, Stage::Tcp, "there is no path to the endpoint: 9.9.9.9 gives no sign of life"),
        (Outcome::ConnectionRefused, Stage::Tcp, "there is no path to the endpoint"),
        (Outcome::TlsSilent, Stage::Tls, "there is a path to the endpoint, but no TLS"),
        (Outcome::CertificateName, Stage::Tls, "not proven to be the endpoint"),
        (Outcome::HttpNotDns, Stage::Http, "it gives no DNS answer"),
        (Outcome::DnsSilent, Stage::Dns, "there is a path to the endpoint, but it does not resolve"),
    ] {
        let seen = seen(&["104.26.4.10"], &[("104.26.4.10", Outcome::TlsOk)], outcome, stage, &UP);
        assert_eq!(told::verdict(&seen), Verdict::Usable);
        let text = table::text(&seen);
        assert!(text.contains(part), "{part}: {text}");
        assert!(text.contains(outcome.word()), "{text}");
    }
}

#[test]
fn an_answer_that_cannot_be_used_is_told_with_what_would_help() {
    let helped = seen(
        &["8.6.112.0"],
        &[("8.6.112.0", Outcome::Silent), ("104.26.4.10", Outcome::TlsOk)],
        Outcome::Answered,
        Stage::Dns,
        &UP,
    );
    assert_eq!(told::verdict(&helped), Verdict::NotUsable);
    let text = table::text(&helped);
    assert!(
        text.contains("8.6.112.0 gives no sign of life") && text.contains("Another resolver would help: 104.26.4.10"),
        "{text}"
    );

    let pair = [("8.6.112.0", Outcome::Silent), ("8.47.69.0", Outcome::Silent)];
    let helpless = seen(&["8.6.112.0", "8.47.69.0"], &pair, Outcome::Answered, Stage::Dns, &UP);
    assert!(table::text(&helpless).contains("changing the resolver cannot help"));

    let island =
        seen(&["8.6.112.0"], &[("8.6.112.0", Outcome::Silent)], Outcome::Silent, Stage::Tcp, &[Outcome::Silent; 3]);
    assert_eq!(told::verdict(&island), Verdict::NoWayOut);
    assert!(table::text(&island).contains("no way out"));
    let caught = seen(
        &["8.6.112.0"],
        &[("8.6.112.0", Outcome::Silent)],
        Outcome::Silent,
        Stage::Tcp,
        &[Outcome::CertificateName; 3],
    );
    assert_eq!(told::verdict(&caught), Verdict::NoWayOut);
    assert!(table::text(&caught).contains("in their place"), "{}", table::text(&caught));
}

#[test]
fn the_document_has_its_fields() {
    let seen = seen(&["104.26.4.10"], &[("104.26.4.10", Outcome::TlsOk)], Outcome::Answered, Stage::Dns, &UP);
    let document = json::document(&seen);
    assert_eq!(document["schema"], 1);
    assert_eq!(document["verdict"], "usable");
    assert_eq!(document["addresses"][0]["outcome"], "tls_ok");
    assert_eq!(document["resolvers"][1]["endpoint"]["stage"], "dns");
}
