//! Assignments as they come over the wire, good and broken.

use super::*;

/// A small assignment as the wire has it.
pub(crate) fn wire() -> v1::Assignment {
    let doh = v1::DohEndpoint {
        url: "https://cloudflare-dns.com/dns-query".into(),
        addresses: vec![vec![1, 1, 1, 1], vec![1, 0, 0, 1]],
        ..Default::default()
    };
    let resolver = |name: &str, kind| v1::Resolver { name: name.into(), kind: Some(kind) };
    v1::Assignment {
        version: 3,
        vantage: "branch-kazan".into(),
        resolvers: vec![
            resolver("live", v1::resolver::Kind::Live(v1::LiveResolver {})),
            resolver("doh-cf", v1::resolver::Kind::Doh(doh)),
            resolver("plain-cf", v1::resolver::Kind::Udp(v1::PlainEndpoint { address: vec![1, 1, 1, 1], port: 53 })),
        ],
        canaries: vec![v1::Canary {
            name: "Example.com.".into(),
            port: 443,
            tls: true,
            live_only: false,
            ..v1::Canary::default()
        }],
        controls: vec![v1::Control {
            name: "negative".into(),
            address: vec![192, 0, 2, 1],
            port: 443,
            negative: true,
            server_name: String::new(),
            ..Default::default()
        }],
        nodes: vec![v1::Node {
            name: "fi".into(),
            address: vec![95, 216, 10, 10],
            port: 443,
            server_name: "fi.montana.quest".into(),
            ..Default::default()
        }],
        schedule: Some(v1::Schedule {
            canary_every_ms: 60_000,
            node_every_ms: 20_000,
            control_every_ms: 20_000,
            endpoint_every_ms: 30_000,
            offset_permille: 333,
            attempt_at_ms: vec![500, 1000, 1500],
            connect_timeout_ms: 3000,
            tls_timeout_ms: 4000,
            resolve_timeout_ms: 5000,
            burst_gap_ms: vec![0, 2000],
            ..Default::default()
        }),
        ..Default::default()
    }
}

#[test]
fn an_assignment_becomes_typed() {
    let assignment = Assignment::try_from(&wire()).unwrap();
    assert_eq!(assignment.canaries[0].name.as_str(), "example.com");
    assert_eq!(assignment.nodes[0].server_name.as_deref(), Some("fi.montana.quest"));
    assert!(matches!(assignment.controls[0].trial, Trial::Negative { .. }));
    let at: Vec<u128> = assignment.schedule.limits.attempt_at.iter().map(Duration::as_millis).collect();
    assert_eq!(at, [0, 500, 1000, 1500], "the first attempt starts with the probe");
    let Transport::Doh(doh) = &assignment.resolvers[1].transport else { panic!("not DoH") };
    assert_eq!((doh.host.as_str(), doh.port, doh.addresses.len()), ("cloudflare-dns.com", 443, 2));
}

#[test]
fn what_is_wrong_is_named() {
    type Spoil = Box<dyn Fn(&mut v1::Assignment)>;
    let broken: Vec<(&str, Spoil)> = vec![
        ("vantage", Box::new(|a| a.vantage.clear())),
        ("schedule", Box::new(|a| a.schedule = None)),
        ("canary_every_ms", Box::new(|a| a.schedule.as_mut().unwrap().canary_every_ms = 0)),
        ("connect_timeout_ms", Box::new(|a| a.schedule.as_mut().unwrap().connect_timeout_ms = 60_000)),
        ("burst_gap_ms", Box::new(|a| a.schedule.as_mut().unwrap().burst_gap_ms = vec![1; 9])),
        ("resolver 'live'", Box::new(|a| a.resolvers[0].kind = None)),
        ("node 'fi'", Box::new(|a| a.nodes[0].address = vec![1, 2, 3])),
        ("node 'fi'", Box::new(|a| a.nodes[0].server_name = "not a name".into())),
        ("control 'negative'", Box::new(|a| a.controls[0].port = 70_000)),
        ("canary 'example.com'", Box::new(|a| a.canaries[0].port = 0)),
        ("canaries", Box::new(|a| a.canaries = vec![a.canaries[0].clone(); 65])),
    ];
    for (part, spoil) in broken {
        let mut wire = wire();
        spoil(&mut wire);
        let error = Assignment::try_from(&wire).unwrap_err().to_string();
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn a_doh_endpoint_must_be_https_with_pinned_addresses() {
    let good = v1::DohEndpoint {
        url: "https://dns.example/q".into(),
        addresses: vec![vec![9, 9, 9, 9]],
        ..Default::default()
    };
    assert!(doh_endpoint(&good).is_ok());
    for bad in [
        v1::DohEndpoint { url: "http://dns.example/q".into(), ..good.clone() },
        v1::DohEndpoint { url: "not a url".into(), ..good.clone() },
        v1::DohEndpoint { url: "https:///q".into(), ..good.clone() },
        v1::DohEndpoint { addresses: vec![], ..good.clone() },
        v1::DohEndpoint { addresses: vec![vec![9]], ..good.clone() },
    ] {
        assert!(doh_endpoint(&bad).is_err(), "{bad:?}");
    }
}
