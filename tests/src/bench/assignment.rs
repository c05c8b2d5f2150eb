//! What the agent is told to do, for each figure.

use std::net::Ipv4Addr;

use parallax_proto::v1;
use parallax_proto::v1::resolver::Kind;

use super::targets::{DNS_NAME, HUNG, HUNG_ZONE, Targets, WEB, WIDE_ZONE, ZONE};

/// Most subjects of a kind that an agent takes (agent/src/assignment/wire.rs, `SUBJECTS_MAX`).
pub const SUBJECTS_MAX: usize = 64;
/// A grid that does not come round within a sitting: the longest interval an agent takes.
const NEVER_MS: u32 = 24 * 3600 * 1000;
/// Names of P1 and of the weak machine.
pub const NAMES: usize = 20;
/// Interval of their grids, ms.
pub const ROUND_MS: u32 = 10_000;
/// Resolvers of [`ordinary`].
const RESOLVERS: usize = 5;
/// Controls of [`ordinary`], and nodes.
const OTHERS: usize = 3;
/// Scheduled probes of one round of [`ordinary`]: questions, one connection a name, endpoints (the live resolver has
/// none), controls, nodes.
pub const ORDINARY_PROBES: usize = NAMES * RESOLVERS * 2 + NAMES + (RESOLVERS - 1) + 2 * OTHERS;

/// An assignment with nothing in it, whose grids never come round.
#[must_use]
pub fn empty() -> v1::Assignment {
    v1::Assignment {
        version: 1,
        vantage: "bench".to_owned(),
        schedule: Some(v1::Schedule {
            canary_every_ms: NEVER_MS,
            node_every_ms: NEVER_MS,
            control_every_ms: NEVER_MS,
            endpoint_every_ms: NEVER_MS,
            offset_permille: 0,
            attempt_at_ms: Vec::new(),
            connect_timeout_ms: 3000,
            tls_timeout_ms: 3000,
            resolve_timeout_ms: 3000,
            burst_gap_ms: Vec::new(),
            http_timeout_ms: 3000,
            udp_hold_ms: 0,
            jitter_permille: 0,
        }),
        ..v1::Assignment::default()
    }
}

fn with_schedule(mut assignment: v1::Assignment, change: impl FnOnce(&mut v1::Schedule)) -> v1::Assignment {
    if let Some(schedule) = &mut assignment.schedule {
        change(schedule);
    }
    assignment
}

/// The ordinary work of a place: 20 names at 5 resolvers, one of each transport, both families, TLS to what they answer;
/// every resolver's endpoint, three controls and three nodes; each every `round_ms`.
#[must_use]
pub fn ordinary(targets: &Targets, round_ms: u32) -> v1::Assignment {
    let base = empty();
    let assignment = v1::Assignment {
        resolvers: resolvers(targets),
        canaries: (0..NAMES).map(|n| canary(&format!("n{n:02}.{ZONE}"), targets.tls.port(), true)).collect(),
        controls: (0..OTHERS)
            .map(|n| v1::Control {
                name: format!("control-{n}"),
                address: bytes(WEB),
                port: u32::from(targets.tls.port()),
                server_name: format!("c{n}.{ZONE}"),
                ..v1::Control::default()
            })
            .collect(),
        nodes: (0..OTHERS).map(|n| node(n, WEB, targets.tls.port(), &format!("node{n}.{ZONE}"))).collect(),
        questions: Some(v1::Questions {
            known: format!("known.{ZONE}"),
            freshness_zone: ZONE.to_owned(),
            missing_zone: String::new(),
        }),
        ..base
    };
    with_schedule(assignment, |schedule| {
        schedule.canary_every_ms = round_ms;
        schedule.node_every_ms = round_ms;
        schedule.control_every_ms = round_ms;
        schedule.endpoint_every_ms = round_ms;
        schedule.attempt_at_ms = vec![0, 500, 1000, 1500];
        schedule.burst_gap_ms = vec![0, 2000];
        schedule.udp_hold_ms = 200;
        schedule.jitter_permille = 50;
    })
}

/// Connections alone, stopping after TCP: as many as there can be nodes, every second.
#[must_use]
pub fn tcp_alone(targets: &Targets) -> v1::Assignment {
    let nodes = (0..SUBJECTS_MAX).map(|n| node(n, *targets.tcp.ip(), targets.tcp.port(), "")).collect();
    with_schedule(v1::Assignment { nodes, ..empty() }, |schedule| schedule.node_every_ms = 1000)
}

/// Names of [`tcp_wide`]: below what the stream's pace for routine rows lets through, 500 in half a second
/// (agent/src/uplink/flight.rs, `ROUTINE_GAP`), or rows would wait in the spool and each that came would count for more.
const WIDE_NAMES: usize = 44;

/// Connections in number: 44 names, asked at the live resolver for both families, each with the sixteen addresses of
/// [`WIDE`](super::targets::WIDE), every second.
#[must_use]
pub fn tcp_wide(targets: &Targets) -> v1::Assignment {
    let canaries = (0..WIDE_NAMES).map(|n| canary(&format!("w{n:02}.{WIDE_ZONE}"), targets.wide_port, false)).collect();
    let resolvers = vec![resolver("live", Kind::Live(v1::LiveResolver {}))];
    with_schedule(v1::Assignment { canaries, resolvers, ..empty() }, |schedule| schedule.canary_every_ms = 1000)
}

/// DNS over UDP: 64 names at 5 resolvers, A and AAAA, every second; each name's one address is tried once a round, which
/// is one TCP connection in eleven probes.
#[must_use]
pub fn dns_alone(targets: &Targets) -> v1::Assignment {
    let canaries = (0..SUBJECTS_MAX).map(|n| canary(&format!("n{n:02}.{ZONE}"), targets.tcp.port(), false)).collect();
    let server = plain(*targets.dns.ip(), targets.dns.port());
    let resolvers = (0..5).map(|n| resolver(&format!("udp-{n}"), Kind::Udp(server.clone()))).collect();
    with_schedule(v1::Assignment { canaries, resolvers, ..empty() }, |schedule| schedule.canary_every_ms = 1000)
}

/// Connections that hang: 64 names, each with the eight addresses of [`HUNG`], one SYN each that nobody answers.
#[must_use]
pub fn hung_connections(targets: &Targets) -> v1::Assignment {
    let canaries =
        (0..SUBJECTS_MAX).map(|n| canary(&format!("h{n:02}.{HUNG_ZONE}"), targets.hung_port, false)).collect();
    let resolvers = vec![resolver("live", Kind::Live(v1::LiveResolver {}))];
    with_schedule(v1::Assignment { canaries, resolvers, ..empty() }, |schedule| {
        schedule.canary_every_ms = 60_000;
        schedule.connect_timeout_ms = 20_000;
    })
}

/// Questions that hang: 50 names at 5 resolvers that never answer, both families.
#[must_use]
pub fn hung_questions(targets: &Targets) -> v1::Assignment {
    let canaries = (0..50).map(|n| canary(&format!("n{n:02}.{ZONE}"), targets.tcp.port(), false)).collect();
    let server = plain(*targets.silent_udp.ip(), targets.silent_udp.port());
    let resolvers = (0..5).map(|n| resolver(&format!("silent-{n}"), Kind::Udp(server.clone()))).collect();
    with_schedule(v1::Assignment { canaries, resolvers, ..empty() }, |schedule| {
        schedule.canary_every_ms = 60_000;
        schedule.resolve_timeout_ms = 20_000;
    })
}

/// Interval of P5's grids, ms.
pub const STARTS_EVERY_MS: u32 = 2500;
/// Deadline of each stage in P5, ms: shorter than the interval, or every second round would rightly be an overrun.
const STARTS_LIMIT_MS: u32 = 2000;

/// Probes of one grid point of [`everything_hangs`].
pub const STARTS_SUBJECTS: usize = SUBJECTS_MAX + 30 + STARTS_NAMES * 30 * 2;
/// Names of [`everything_hangs`].
const STARTS_NAMES: usize = 7;

/// 200 probes a second, and every target hangs: 64 nodes whose SYN nobody answers, 20 endpoints (DoT, DoH) that take a
/// connection and stay silent, 10 that take datagrams and stay silent, and 7 names asked at all 30 of them for both
/// families: 514 probes every 2.5 s, all at the same moment.
#[must_use]
pub fn everything_hangs(targets: &Targets) -> v1::Assignment {
    let hung = |n: usize| HUNG.get(n % HUNG.len()).copied().unwrap_or(WEB);
    let silent = targets.silent_tcp;
    let mut resolvers = Vec::new();
    for n in 0..10 {
        resolvers.push(resolver(
            &format!("doh-{n}"),
            Kind::Doh(v1::DohEndpoint {
                url: format!("https://{DNS_NAME}:{}/dns-query", silent.port()),
                addresses: vec![bytes(*silent.ip())],
                ..v1::DohEndpoint::default()
            }),
        ));
        resolvers.push(resolver(
            &format!("dot-{n}"),
            Kind::Dot(v1::DotEndpoint {
                address: bytes(*silent.ip()),
                port: u32::from(silent.port()),
                server_name: DNS_NAME.to_owned(),
            }),
        ));
        let server = plain(*targets.silent_udp.ip(), targets.silent_udp.port());
        resolvers.push(resolver(&format!("udp-{n}"), Kind::Udp(server)));
    }
    let assignment = v1::Assignment {
        nodes: (0..SUBJECTS_MAX).map(|n| node(n, hung(n), targets.hung_port, "")).collect(),
        canaries: (0..STARTS_NAMES).map(|n| canary(&format!("n{n:02}.{ZONE}"), targets.tcp.port(), false)).collect(),
        resolvers,
        ..empty()
    };
    with_schedule(assignment, |schedule| {
        schedule.node_every_ms = STARTS_EVERY_MS;
        schedule.control_every_ms = STARTS_EVERY_MS;
        schedule.endpoint_every_ms = STARTS_EVERY_MS;
        schedule.canary_every_ms = STARTS_EVERY_MS;
        schedule.connect_timeout_ms = STARTS_LIMIT_MS;
        schedule.tls_timeout_ms = STARTS_LIMIT_MS;
        schedule.http_timeout_ms = STARTS_LIMIT_MS;
        schedule.resolve_timeout_ms = STARTS_LIMIT_MS;
    })
}

/// Nodes of [`silent_endpoints`], all of which answer.
pub const ANSWERING_NODES: usize = SUBJECTS_MAX;
/// Interval of their grid, ms.
pub const ANSWERING_EVERY_MS: u32 = 1000;

/// R10: 62 endpoints that take a connection and then stay silent, asked for 4 names, both families, and checked, all the
/// time; beside them 64 nodes that answer.
#[must_use]
pub fn silent_endpoints(targets: &Targets) -> v1::Assignment {
    let silent = targets.silent_tcp;
    let doh = || {
        Kind::Doh(v1::DohEndpoint {
            url: format!("https://{DNS_NAME}:{}/dns-query", silent.port()),
            addresses: vec![bytes(*silent.ip())],
            ..v1::DohEndpoint::default()
        })
    };
    let dot = || {
        Kind::Dot(v1::DotEndpoint {
            address: bytes(*silent.ip()),
            port: u32::from(silent.port()),
            server_name: DNS_NAME.to_owned(),
        })
    };
    let resolvers = (0..31).flat_map(|n| [resolver(&format!("doh-{n}"), doh()), resolver(&format!("dot-{n}"), dot())]);
    let assignment = v1::Assignment {
        resolvers: resolvers.collect(),
        canaries: (0..4).map(|n| canary(&format!("n{n:02}.{ZONE}"), targets.tcp.port(), false)).collect(),
        nodes: (0..ANSWERING_NODES).map(|n| node(n, WEB, targets.tcp.port(), "")).collect(),
        ..empty()
    };
    with_schedule(assignment, |schedule| {
        schedule.node_every_ms = ANSWERING_EVERY_MS;
        schedule.endpoint_every_ms = STARTS_EVERY_MS;
        schedule.canary_every_ms = STARTS_EVERY_MS;
        schedule.connect_timeout_ms = STARTS_LIMIT_MS;
        schedule.tls_timeout_ms = STARTS_LIMIT_MS;
        schedule.http_timeout_ms = STARTS_LIMIT_MS;
        schedule.resolve_timeout_ms = STARTS_LIMIT_MS;
    })
}

fn resolvers(targets: &Targets) -> Vec<v1::Resolver> {
    let dns = plain(*targets.dns.ip(), targets.dns.port());
    vec![
        resolver("live", Kind::Live(v1::LiveResolver {})),
        resolver("udp", Kind::Udp(dns.clone())),
        resolver("tcp", Kind::Tcp(dns)),
        resolver(
            "dot",
            Kind::Dot(v1::DotEndpoint {
                address: bytes(*targets.dot.ip()),
                port: u32::from(targets.dot.port()),
                server_name: DNS_NAME.to_owned(),
            }),
        ),
        resolver(
            "doh",
            Kind::Doh(v1::DohEndpoint {
                url: targets.doh_url(),
                addresses: vec![bytes(*targets.doh.ip())],
                ..v1::DohEndpoint::default()
            }),
        ),
    ]
}

fn resolver(name: &str, kind: Kind) -> v1::Resolver {
    v1::Resolver { name: name.to_owned(), kind: Some(kind) }
}

fn plain(address: Ipv4Addr, port: u16) -> v1::PlainEndpoint {
    v1::PlainEndpoint { address: bytes(address), port: u32::from(port) }
}

fn canary(name: &str, port: u16, tls: bool) -> v1::Canary {
    v1::Canary { name: name.to_owned(), port: u32::from(port), tls, ..v1::Canary::default() }
}

fn node(number: usize, address: Ipv4Addr, port: u16, server_name: &str) -> v1::Node {
    v1::Node {
        name: format!("node-{number:02}"),
        address: bytes(address),
        port: u32::from(port),
        server_name: server_name.to_owned(),
        ..v1::Node::default()
    }
}

fn bytes(address: Ipv4Addr) -> Vec<u8> {
    address.octets().to_vec()
}
