//! What one vantage shall do, as the wire says it.

use std::net::IpAddr;
use std::time::Duration;

use parallax_decide::names::VantageName;
use parallax_decide::topology::ControlKind;
use parallax_proto::v1;
use prost::Message;

use crate::config::{Config, Endpoint};

/// The assignment of a vantage, without its version: 0.
#[must_use]
pub fn content(config: &Config, vantage: &VantageName) -> v1::Assignment {
    let topology = &config.topology;
    let canaries = topology.canaries.iter().map(|(name, canary)| v1::Canary {
        name: name.to_string(),
        port: u32::from(canary.port),
        tls: canary.tls,
        live_only: false,
        ..v1::Canary::default()
    });
    let hostnames = topology.services.values().filter_map(|service| {
        let native = topology.nodes.get(&service.native)?;
        Some(v1::Canary {
            name: service.hostname.to_string(),
            port: u32::from(native.port),
            tls: native.tls,
            live_only: true,
            ..v1::Canary::default()
        })
    });
    v1::Assignment {
        version: 0,
        vantage: vantage.to_string(),
        resolvers: config
            .endpoints
            .iter()
            .map(|(name, endpoint)| v1::Resolver { name: name.to_string(), kind: Some(kind(endpoint)) })
            .collect(),
        canaries: canaries.chain(hostnames).collect(),
        controls: config
            .controls
            .iter()
            .map(|(name, target)| v1::Control {
                name: name.to_string(),
                address: octets(target.address),
                port: u32::from(target.port),
                negative: topology.controls.get(name).is_some_and(|control| control.kind == ControlKind::Negative),
                server_name: target.server_name.as_ref().map(ToString::to_string).unwrap_or_default(),
                ..Default::default()
            })
            .collect(),
        nodes: topology
            .nodes
            .iter()
            .map(|(name, node)| v1::Node {
                name: name.to_string(),
                address: octets(node.address),
                port: u32::from(node.port),
                server_name: config.node_server_names.get(name).map(ToString::to_string).unwrap_or_default(),
                ..Default::default()
            })
            .collect(),
        schedule: Some(schedule(config, vantage)),
        ..v1::Assignment::default()
    }
}

/// The bytes whose change makes a new version.
#[must_use]
pub fn fingerprint(content: &v1::Assignment) -> Vec<u8> {
    content.encode_to_vec()
}

fn kind(endpoint: &Endpoint) -> v1::resolver::Kind {
    match endpoint {
        Endpoint::Live => v1::resolver::Kind::Live(v1::LiveResolver {}),
        Endpoint::Udp(address) => v1::resolver::Kind::Udp(v1::PlainEndpoint {
            address: octets(address.ip()),
            port: u32::from(address.port()),
        }),
        Endpoint::Doh { url, bootstrap } => v1::resolver::Kind::Doh(v1::DohEndpoint {
            url: url.clone(),
            addresses: bootstrap.iter().copied().map(octets).collect(),
            ..v1::DohEndpoint::default()
        }),
        Endpoint::Dot { address, server_name } => v1::resolver::Kind::Dot(v1::DotEndpoint {
            address: octets(address.ip()),
            port: u32::from(address.port()),
            server_name: server_name.to_string(),
        }),
    }
}

fn schedule(config: &Config, vantage: &VantageName) -> v1::Schedule {
    let (policy, schedule) = (&config.topology.policy, &config.schedule);
    v1::Schedule {
        canary_every_ms: ms(policy.canary_every),
        node_every_ms: ms(policy.node_every),
        control_every_ms: ms(policy.control_every),
        endpoint_every_ms: ms(schedule.endpoint_every),
        offset_permille: offset_permille(vantage),
        attempt_at_ms: schedule.attempt_at.iter().copied().map(ms).collect(),
        connect_timeout_ms: ms(schedule.connect_timeout),
        tls_timeout_ms: ms(schedule.tls_timeout),
        resolve_timeout_ms: ms(schedule.resolve_timeout),
        burst_gap_ms: schedule.burst_gaps.iter().copied().map(ms).collect(),
        ..v1::Schedule::default()
    }
}

/// A place in the grid that depends on the name alone (FNV-1a): adding a vantage moves no other.
fn offset_permille(vantage: &VantageName) -> u32 {
    let hash =
        vantage.as_str().bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash % 1000
}

fn ms(span: Duration) -> u32 {
    u32::try_from(span.as_millis()).unwrap_or(u32::MAX)
}

/// An address as the wire has it.
#[must_use]
pub fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::builtin;

    #[test]
    fn the_example_becomes_an_assignment() {
        let config = Config::parse(builtin::EXAMPLE, "example").unwrap();
        let assignment = content(&config, &"branch-kazan".parse().unwrap());
        assert_eq!(assignment.resolvers.len(), 5);
        assert_eq!(assignment.controls.iter().filter(|control| control.negative).count(), 1);
        let service = assignment.canaries.iter().find(|canary| canary.name == "fi.montana.quest").unwrap();
        assert!(service.live_only && service.tls);
        let schedule = assignment.schedule.unwrap();
        assert_eq!((schedule.canary_every_ms, schedule.attempt_at_ms), (60_000, vec![0, 500, 1000, 1500]));
    }

    #[test]
    fn only_a_change_of_content_changes_the_fingerprint() {
        let vantage = "local".parse().unwrap();
        let one = Config::parse(builtin::DEFAULT, "default").unwrap();
        assert_eq!(fingerprint(&content(&one, &vantage)), fingerprint(&content(&one.clone(), &vantage)));
        let other = Config::parse(&builtin::DEFAULT.replace("example.com", "example.org"), "default").unwrap();
        assert_ne!(fingerprint(&content(&one, &vantage)), fingerprint(&content(&other, &vantage)));
    }
}
