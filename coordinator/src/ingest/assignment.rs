//! What one vantage shall do, as the wire says it.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use parallax_decide::names::{DomainName, VantageName};
use parallax_decide::topology::ControlKind;
use parallax_proto::v1;
use prost::Message;

use crate::config::file::{DohFormatName, DohMethodName, HttpVersionName};
use crate::config::{Config, Endpoint, HttpCheck, Questions};
use crate::identity::request::sha256;

/// The assignment of a vantage, without its version: 0.
#[must_use]
pub fn content(config: &Config, vantage: &VantageName) -> v1::Assignment {
    let topology = &config.topology;
    let canaries = topology.canaries.iter().map(|(name, canary)| {
        let extra = config.canary_extras.get(name);
        v1::Canary {
            name: name.to_string(),
            port: u32::from(canary.port),
            tls: canary.tls,
            live_only: false,
            http: extra.and_then(|extra| extra.http.as_ref()).map(http),
            validate: extra.is_some_and(|extra| extra.validate),
        }
    });
    let hostnames = topology.services.values().filter_map(|service| {
        let native = topology.nodes.get(&service.native)?;
        Some(v1::Canary {
            name: service.hostname.to_string(),
            port: u32::from(native.port),
            tls: native.tls,
            live_only: true,
            // What a client gets in the end is what the machine serves.
            http: config.node_http.get(&service.native).map(http),
            validate: false,
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
                address: target.address.map(octets).unwrap_or_default(),
                port: u32::from(target.port),
                negative: topology.controls.get(name).is_some_and(|control| control.kind == ControlKind::Negative),
                server_name: target.server_name.as_ref().map(ToString::to_string).unwrap_or_default(),
                captive_url: target.captive_url.clone().unwrap_or_default(),
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
                http: config.node_http.get(name).map(http),
                life: config
                    .node_proofs
                    .get(name)
                    .map(|proof| v1::LifeResponder { port: u32::from(proof.port), public_key: proof.key.to_vec() }),
            })
            .collect(),
        schedule: Some(schedule(config, vantage)),
        questions: Some(questions(&config.questions)),
        source: config.sources.get(vantage).map(|source| v1::Source {
            addresses: source.addresses.iter().copied().map(octets).collect(),
            interface: source.interface.clone().unwrap_or_default(),
        }),
    }
}

/// SHA-256 of the bytes whose change makes a new version.
#[must_use]
pub fn fingerprint(content: &v1::Assignment) -> [u8; 32] {
    sha256(&content.encode_to_vec())
}

fn kind(endpoint: &Endpoint) -> v1::resolver::Kind {
    match endpoint {
        Endpoint::Live => v1::resolver::Kind::Live(v1::LiveResolver {}),
        Endpoint::Udp(address) => v1::resolver::Kind::Udp(plain(*address)),
        Endpoint::Tcp(address) => v1::resolver::Kind::Tcp(plain(*address)),
        Endpoint::Doh(doh) => v1::resolver::Kind::Doh(v1::DohEndpoint {
            url: doh.url.clone(),
            addresses: doh.bootstrap.iter().copied().map(octets).collect(),
            format: match doh.format {
                DohFormatName::Wire => v1::DohFormat::Wire,
                DohFormatName::Json => v1::DohFormat::Json,
            }
            .into(),
            method: match doh.method {
                DohMethodName::Post => v1::DohMethod::Post,
                DohMethodName::Get => v1::DohMethod::Get,
            }
            .into(),
            http: match doh.http {
                HttpVersionName::Auto => v1::HttpVersion::Unspecified,
                HttpVersionName::Http1 => v1::HttpVersion::HttpVersion1,
                HttpVersionName::Http2 => v1::HttpVersion::HttpVersion2,
            }
            .into(),
            bootstrap: doh.bootstrap_resolvers.iter().copied().map(plain).collect(),
        }),
        Endpoint::Dot { address, server_name } => v1::resolver::Kind::Dot(v1::DotEndpoint {
            address: octets(address.ip()),
            port: u32::from(address.port()),
            server_name: server_name.to_string(),
        }),
    }
}

fn plain(address: SocketAddr) -> v1::PlainEndpoint {
    v1::PlainEndpoint { address: octets(address.ip()), port: u32::from(address.port()) }
}

fn http(check: &HttpCheck) -> v1::HttpCheck {
    v1::HttpCheck {
        path: check.path.clone(),
        statuses: check.statuses.iter().copied().map(u32::from).collect(),
        read_bytes: check.read_bytes,
    }
}

fn questions(questions: &Questions) -> v1::Questions {
    let text = |name: &Option<DomainName>| name.as_ref().map(ToString::to_string).unwrap_or_default();
    v1::Questions {
        known: text(&questions.known),
        freshness_zone: text(&questions.freshness_zone),
        missing_zone: text(&questions.missing_zone),
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
        http_timeout_ms: ms(schedule.http_timeout),
        udp_hold_ms: ms(schedule.udp_hold),
        jitter_permille: schedule.jitter_permille,
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
        assert_eq!(assignment.resolvers.len(), 6);
        assert_eq!(assignment.controls.iter().filter(|control| control.negative).count(), 1);
        let service = assignment.canaries.iter().find(|canary| canary.name == "fi.montana.quest").unwrap();
        assert!(service.live_only && service.tls);
        assert_eq!(service.http.as_ref().unwrap().path, "/health");
        let schedule = assignment.schedule.unwrap();
        assert_eq!((schedule.canary_every_ms, schedule.attempt_at_ms), (60_000, vec![0, 500, 1000, 1500]));
        assert_eq!((schedule.http_timeout_ms, schedule.udp_hold_ms, schedule.jitter_permille), (3000, 2000, 100));
    }

    #[test]
    fn everything_of_the_file_arrives() {
        let config = Config::parse(builtin::EXAMPLE, "example").unwrap();
        let assignment = content(&config, &"de-fra".parse().unwrap());
        let json = assignment.resolvers.iter().find(|resolver| resolver.name == "doh-google-json").unwrap();
        let Some(v1::resolver::Kind::Doh(json)) = &json.kind else { panic!("no DoH") };
        assert!(json.addresses.is_empty());
        let servers: Vec<u32> = json.bootstrap.iter().map(|server| server.port).collect();
        assert_eq!(
            (json.format(), json.method(), json.http()),
            (v1::DohFormat::Json, v1::DohMethod::Get, v1::HttpVersion::HttpVersion2)
        );
        assert_eq!(servers, [53, 53]);
        let canary = assignment.canaries.iter().find(|canary| canary.name == "example.com").unwrap();
        let http = canary.http.as_ref().unwrap();
        assert!(canary.validate && http.path == "/" && http.statuses == [200] && http.read_bytes == 512);
        assert_eq!(assignment.nodes.iter().filter(|node| node.http.is_some()).count(), 1);
        let captive = assignment.controls.iter().find(|control| !control.captive_url.is_empty()).unwrap();
        assert!(captive.address.is_empty() && captive.port == 80 && !captive.negative);
        let questions = assignment.questions.unwrap();
        assert_eq!((questions.known.as_str(), questions.missing_zone.as_str()), ("example.com", "example.com"));
        assert_eq!(questions.freshness_zone, "fresh.montana.quest");
        let source = assignment.source.unwrap();
        assert_eq!((source.addresses.len(), source.interface.as_str()), (1, "eth0"));
        assert_eq!(content(&config, &"wan-gw".parse().unwrap()).source, None);
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
