//! What simulated agents report: facts like those of a real one, with the particulars that a real one sends. Which fact
//! has which number follows from the number, so that a redelivery says the same again.

use parallax_proto::v1::{self, Lane, Outcome, observation::Fact};

/// Watched names.
pub const CANARIES: [&str; 3] = ["cdn.bench.example", "api.bench.example", "www.bench.example"];

/// Resolvers, the live one first.
pub const RESOLVERS: [&str; 2] = ["live", "doh"];

/// Controls.
pub const CONTROLS: [&str; 3] = ["control-a", "control-b", "control-c"];

/// Addresses of each name: of a documentation network (RFC 5737) they would be refused as special.
const ADDRESSES: [[u8; 4]; 2] = [[151, 101, 1, 57], [151, 101, 65, 57]];

/// The observation with this number: in the urgent lane controls, as agents send them; in the routine lane
/// resolutions, connections, and each tenth one an endpoint check.
#[must_use]
pub fn observation(lane: Lane, sequence: u64, age_ms: u64) -> v1::Observation {
    let turn = usize::try_from(sequence % 1_000_000).unwrap_or_default();
    let jitter = sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
    let (fact, duration_us) = match (lane, turn % 10) {
        (Lane::Urgent | Lane::Unspecified, _) => (control(turn), 14_000 + jitter % 9_000),
        (Lane::Routine, 9) => (endpoint_check(jitter), 31_000 + jitter % 20_000),
        (Lane::Routine, half) if half % 2 == 0 => (resolution(turn, jitter), 4_000 + jitter % 3_000),
        (Lane::Routine, _) => (connection(turn, jitter), 28_000 + jitter % 9_000),
    };
    let purpose = v1::Purpose::Scheduled.into();
    v1::Observation { sequence, age_ms, purpose, task_id: 0, duration_us, fact: Some(fact) }
}

fn pick<T: Copy>(all: &[T], turn: usize) -> Option<T> {
    all.get(turn % all.len().max(1)).copied()
}

fn control(turn: usize) -> Fact {
    Fact::ControlCheck(v1::ControlCheck {
        control: pick(&CONTROLS, turn).unwrap_or_default().to_owned(),
        outcome: Outcome::TlsOk.into(),
        address: vec![1, 0, 0, 1],
        failures: 0,
        checks: 60,
        clock_offset_ms: Some(3),
        http_status: 0,
        tcp_us: 6_100,
        tls_us: 7_300,
    })
}

fn resolution(turn: usize, jitter: u64) -> Fact {
    let ttl_s = 300 - u32::try_from(jitter % 290).unwrap_or_default();
    Fact::Resolution(v1::Resolution {
        name: pick(&CANARIES, turn / 4).unwrap_or_default().to_owned(),
        resolver: pick(&RESOLVERS, turn / 2).unwrap_or_default().to_owned(),
        family: v1::Family::V4.into(),
        outcome: Outcome::Answered.into(),
        addresses: ADDRESSES.iter().map(|address| address.to_vec()).collect(),
        ttl_s,
        reply: Some(v1::Reply {
            ttls_s: vec![ttl_s, ttl_s],
            flags: 0x8180,
            size: 89,
            transport: v1::Transport::Udp.into(),
            ..v1::Reply::default()
        }),
        server: vec![9, 9, 9, 9],
        ..v1::Resolution::default()
    })
}

fn connection(turn: usize, jitter: u64) -> Fact {
    let tcp_us = 9_000 + jitter % 4_000;
    Fact::Connection(v1::Connection {
        target: Some(v1::connection::Target::Name(pick(&CANARIES, turn / 4).unwrap_or_default().to_owned())),
        address: pick(&ADDRESSES, turn / 2).unwrap_or_default().to_vec(),
        port: 443,
        outcome: Outcome::TlsOk.into(),
        attempts: 1,
        attempts_connected: 1,
        tcp_us,
        tls_us: 19_000 + jitter % 5_000,
        attempt: vec![v1::Attempt { started_ms: 0, outcome: Outcome::TcpOk.into(), duration_us: tcp_us }],
        certificate_sha256: vec![0x5a; 32],
        ..v1::Connection::default()
    })
}

fn endpoint_check(jitter: u64) -> Fact {
    Fact::EndpointCheck(v1::EndpointCheck {
        resolver: "doh".to_owned(),
        address: vec![9, 9, 9, 9],
        stage: v1::Stage::Dns.into(),
        outcome: Outcome::Answered.into(),
        tcp_us: 8_000 + jitter % 3_000,
        tls_us: 11_000,
        http_us: 9_000,
        http_status: 200,
        dns_us: 9_100,
        worked_before: true,
        certificate_sha256: vec![0xa5; 32],
        ..v1::EndpointCheck::default()
    })
}
