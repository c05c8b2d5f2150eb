//! How to see it with one's own eyes: commands for the place where it hurts and for elsewhere.
//!
//! What goes into a command line comes from typed names and addresses, whose characters need no
//! quoting in any shell.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use parallax_decide::endpoint::EndpointJudgement;
use parallax_decide::finding::{Reason, Subject};
use parallax_decide::names::{DomainName, VantageName};
use serde::Serialize;

use crate::store::configured::Configured;

/// Names a section spells out.
const NAMES_MAX: usize = 3;

/// A place and what to type there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Where to type it, and what it tells.
    pub place: String,
    /// Commands.
    pub commands: Vec<String>,
}

/// Commands for an incident.
#[must_use]
pub fn checks(subject: &Subject, reason: &Reason, configured: &Configured) -> Vec<Check> {
    match reason {
        Reason::UnroutableHere { names } => {
            let here = names.iter().take(NAMES_MAX).flat_map(|(name, unroutable)| {
                let first = unroutable.addresses.iter().next().copied();
                [Some(dig(name)), first.map(|address| curl(name, port(configured, name), address))]
                    .into_iter()
                    .flatten()
            });
            let witness = names.values().flat_map(|unroutable| unroutable.proven_at.values().flatten()).next();
            let elsewhere = names.iter().take(1).flat_map(|(name, unroutable)| {
                let first = unroutable.proven_at.keys().next().copied();
                first.map(|address| curl(name, port(configured, name), address))
            });
            let router = names.iter().next().into_iter().flat_map(|(name, unroutable)| {
                let first = unroutable.addresses.iter().next().copied();
                routeros(name, port(configured, name), first)
            });
            let mut checks = vec![
                Check {
                    place: format!("on the LAN of {}: resolves, then times out", subject.name()),
                    commands: here.collect(),
                },
                Check { place: format!("on a RouterOS router at {}", subject.name()), commands: router.collect() },
            ];
            if let Some(witness) = witness {
                let commands: Vec<String> = elsewhere.collect();
                checks.insert(1, Check { place: format!("at {witness}: the same address works"), commands });
            }
            checks
        }
        Reason::DeadEverywhere { addresses, .. } => by_name(subject, addresses, configured),
        Reason::AnswerUnusable { addresses, .. } => by_name(subject, addresses, configured),
        Reason::Endpoint { places, .. } => endpoint_checks(places),
        Reason::Node { node, .. } => node_checks(subject, node.as_str(), configured),
        Reason::Vantage { .. } => vec![Check {
            place: format!("at {}", subject.name()),
            commands: vec![
                "ip route get 1.1.1.1".to_owned(),
                "systemctl status parallax-agent".to_owned(),
                "journalctl -u parallax-agent -n 50".to_owned(),
            ],
        }],
        Reason::Fleet { .. } => vec![Check {
            place: "at the coordinator".to_owned(),
            commands: vec!["parallax vantage list".to_owned(), "parallax matrix".to_owned()],
        }],
    }
}

fn endpoint_checks(places: &BTreeMap<VantageName, EndpointJudgement>) -> Vec<Check> {
    let contacted = places.iter().filter(|(_, judged)| !judged.address.is_unspecified());
    let checks = contacted.take(NAMES_MAX).map(|(vantage, judged)| Check {
        place: format!("at {vantage}"),
        commands: vec![
            format!("openssl s_client -connect {} </dev/null", std::net::SocketAddr::new(judged.address, HTTPS)),
            format!("tracepath -n {}", judged.address),
        ],
    });
    checks.collect()
}

/// Where most endpoints are.
const HTTPS: u16 = 443;

fn by_name(subject: &Subject, addresses: &BTreeSet<IpAddr>, configured: &Configured) -> Vec<Check> {
    let (Subject::Name { name } | Subject::NameAt { name, .. }) = subject else { return Vec::new() };
    let place = subject.vantage().map_or_else(|| "anywhere".to_owned(), |v| format!("on the LAN of {v}"));
    let connects = addresses.iter().take(NAMES_MAX).map(|address| curl(name, port(configured, name), *address));
    vec![Check { place, commands: std::iter::once(dig(name)).chain(connects).collect() }]
}

fn node_checks(subject: &Subject, node: &str, configured: &Configured) -> Vec<Check> {
    let Some((_, machine)) = configured.nodes.iter().find(|(name, _)| name == node) else { return Vec::new() };
    let hostname = match subject {
        Subject::Service { service } => {
            configured.services.iter().find(|(name, _)| name == service.as_str()).map(|(_, s)| s.hostname.as_str())
        }
        Subject::Fleet
        | Subject::Vantage { .. }
        | Subject::UnroutableAt { .. }
        | Subject::Name { .. }
        | Subject::NameAt { .. }
        | Subject::Endpoint { .. }
        | Subject::Node { .. } => None,
    };
    let name = hostname.and_then(|name| name.parse::<DomainName>().ok());
    let connect = match &name {
        Some(name) => curl(name, machine.port, machine.address),
        None => format!("nc -vz -w 5 {} {}", machine.address, machine.port),
    };
    let mut checks =
        vec![Check { place: "from two places with different uplinks".to_owned(), commands: vec![connect] }];
    if let Some(name) = &name {
        checks.push(Check {
            place: "what the record holds, and what a place is served".to_owned(),
            commands: vec![dig(name), format!("dig +noall +answer +trace {} A | tail -3", name.as_str())],
        });
    }
    checks
}

fn port(configured: &Configured, name: &DomainName) -> u16 {
    configured.canaries.iter().find(|(canary, _)| canary == name.as_str()).map_or(443, |(_, canary)| canary.port)
}

/// A question to whatever resolver the machine uses.
#[must_use]
pub fn dig(name: &DomainName) -> String {
    format!("dig +noall +comments +answer {} A", name.as_str())
}

/// A connection to one address under the name's own certificate.
#[must_use]
pub fn curl(name: &DomainName, port: u16, address: IpAddr) -> String {
    let host = match address {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => format!("[{v6}]"),
    };
    let name = name.as_str();
    let url = if port == 443 { format!("https://{name}/") } else { format!("https://{name}:{port}/") };
    format!("curl -sS -o /dev/null -m 5 -w '%{{http_code}} %{{time_connect}}s\\n' --resolve {name}:{port}:{host} {url}")
}

/// The same on a RouterOS router.
#[must_use]
pub fn routeros(name: &DomainName, port: u16, address: Option<IpAddr>) -> Vec<String> {
    let mut lines = vec![format!(":put [:resolve {}]", name.as_str())];
    if let Some(address) = address {
        lines.push(format!("/tool/netwatch/add type=tcp-conn host={address} port={port} comment=parallax"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_uses_the_judged_address_and_the_name() {
        let name: DomainName = "cdnjs.cloudflare.com".parse().unwrap();
        let line = curl(&name, 443, "8.6.112.0".parse().unwrap());
        assert!(line.ends_with("--resolve cdnjs.cloudflare.com:443:8.6.112.0 https://cdnjs.cloudflare.com/"), "{line}");
        let line = curl(&name, 8443, "2606:4700::1".parse().unwrap());
        assert!(
            line.ends_with("--resolve cdnjs.cloudflare.com:8443:[2606:4700::1] https://cdnjs.cloudflare.com:8443/")
        );
    }
}
