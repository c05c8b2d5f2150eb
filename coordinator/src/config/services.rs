//! Machines of ours, the services they serve, and the drivers that change their records.

use std::collections::{BTreeMap, BTreeSet};

use parallax_decide::address::special_purpose;
use parallax_decide::names::{DomainName, DriverName, NodeName, ServiceName};
use parallax_decide::topology::{Node, Service};
use parallax_proto::LIFE_PORT;
use serde_saphyr::Spanned;

use super::canaries::{self, Times};
use super::check::{bounded, port, public_name, unknown};
use super::error::Found;
use super::file::{DriverFile, DriverKind, File, ServiceFile, TsigAlgorithmName};
use super::{Driver, HttpCheck, NodeProof, Rfc2136, TsigAlgorithm, spelling};
use crate::ingest::life;
use crate::secret::Source;

/// Most nodes: each is probed from each vantage.
const NODES_MAX: usize = 64;
/// Most services.
const SERVICES_MAX: usize = 64;
/// Most fallbacks of one service.
const FALLBACKS_MAX: usize = 8;
/// Most drivers.
const DRIVERS_MAX: usize = 64;
/// Longest TTL, seconds: a failover is not faster than the old answer's life.
const TTL_S_MAX: u32 = 3600;

/// What this file checks.
pub struct Ours {
    /// Machines.
    pub nodes: BTreeMap<NodeName, Node>,
    /// Names of their certificates.
    pub server_names: BTreeMap<NodeName, DomainName>,
    /// Requests after TLS.
    pub http: BTreeMap<NodeName, HttpCheck>,
    /// What proves their life.
    pub proofs: BTreeMap<NodeName, NodeProof>,
    /// Services.
    pub services: BTreeMap<ServiceName, Service>,
    /// Drivers.
    pub drivers: BTreeMap<DriverName, Driver>,
}

/// Checks nodes, drivers and services.
pub fn check(file: &File, times: Times<'_>, found: &mut Found) -> Ours {
    let (nodes, server_names, http) = check_nodes(file, times, found);
    let proofs = check_proofs(file, found);
    let mut drivers = BTreeMap::new();
    if file.drivers.len() > DRIVERS_MAX {
        found.whole(format!("`drivers` holds {}; at most {DRIVERS_MAX} are supported", file.drivers.len()));
    }
    for (name, one) in &file.drivers {
        let parsed = name.parse::<DriverName>().map_err(|error| found.at(one, format!("name of a driver: {error}")));
        if let (Ok(name), Some(driver)) = (parsed, check_driver(&one.value, found)) {
            drivers.insert(name, driver);
        }
    }
    let mut services = BTreeMap::new();
    let mut hostnames = BTreeSet::new();
    if let Some(list) = &file.services {
        bounded(list, "services", SERVICES_MAX, found);
        for one in &list.value {
            let Some(name) = found.parse::<ServiceName>("name of a service", &one.name) else { continue };
            let Some(service) = check_service(one, &nodes, &drivers, found) else { continue };
            if !hostnames.insert(service.hostname.clone()) {
                found.at(
                    &one.hostname,
                    format!("two services claim `{}`: they would fight over its record", service.hostname),
                );
            }
            if services.insert(name.clone(), service).is_some() {
                found.at(&one.name, format!("service `{name}` is there twice"));
            }
        }
    }
    check_used(file, found);
    Ours { nodes, server_names, http, proofs, services, drivers }
}

/// A driver that nothing uses is a name that was misspelt, or access to a zone that nobody needs.
fn check_used(file: &File, found: &mut Found) {
    let used: BTreeSet<&str> =
        file.services.iter().flat_map(|list| &list.value).map(|service| service.driver.value.as_str()).collect();
    // With a dangling name that is the fault to mend first.
    if used.iter().all(|name| file.drivers.contains_key(*name)) {
        for (name, one) in file.drivers.iter().filter(|(name, _)| !used.contains(name.as_str())) {
            found.at(one, format!("driver `{name}` is used by no service: name it there, or leave it out"));
        }
    }
}

/// A check must not depend on a name that a failover moves: it would prove itself.
pub fn check_steered(file: &File, ours: &Ours, found: &mut Found) {
    let steered: BTreeSet<&str> = ours.services.values().map(|service| service.hostname.as_str()).collect();
    let mut refuse = |text: &Spanned<String>, host: &str, what: &str| {
        if steered.contains(host.trim_end_matches('.').to_ascii_lowercase().as_str()) {
            found.at(text, format!("`{host}` is the name of a service, which a failover moves: it cannot be {what}"));
        }
    };
    for canary in file.canaries.iter().flat_map(|list| &list.value) {
        refuse(&canary.name, &canary.name.value, "a canary as well; services are watched without that");
    }
    for server_name in file.controls.value.iter().filter_map(|control| control.server_name.as_ref()) {
        refuse(server_name, &server_name.value, "a control");
    }
    for url in file.controls.value.iter().filter_map(|control| control.captive_url.as_ref()) {
        refuse(url, &host_of(&url.value, "http"), "a control");
    }
    for resolver in &file.resolvers.value {
        if let Some(server_name) = &resolver.server_name {
            refuse(server_name, &server_name.value, "a resolver");
        }
        if let Some(url) = &resolver.url {
            refuse(url, &host_of(&url.value, "https"), "a resolver");
        }
    }
}

fn host_of(url: &str, scheme: &str) -> String {
    spelling::url(url, scheme).ok().and_then(|(uri, _)| uri.host().map(str::to_owned)).unwrap_or_default()
}

type Nodes = BTreeMap<NodeName, Node>;

type Particulars = (Nodes, BTreeMap<NodeName, DomainName>, BTreeMap<NodeName, HttpCheck>);

fn check_nodes(file: &File, times: Times<'_>, found: &mut Found) -> Particulars {
    let (mut nodes, mut server_names, mut addresses) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let mut requests = BTreeMap::new();
    if file.nodes.len() > NODES_MAX {
        found.whole(format!("`nodes` holds {}; at most {NODES_MAX} are supported", file.nodes.len()));
    }
    for (name, one) in &file.nodes {
        let name = match name.parse::<NodeName>() {
            Ok(name) => name,
            Err(error) => {
                found.at(one, format!("name of a node: {error}"));
                continue;
            }
        };
        let node = &one.value;
        if let Some(why) = special_purpose(node.address.value) {
            found.at(&node.address, format!("node `{name}` has an address that can never be served: {why}"));
        }
        if node.port == 0 {
            found.at(one, "port 0 cannot be contacted");
        }
        if let Some(other) = addresses.insert(node.address.value, name.clone()) {
            found.at(&node.address, format!("nodes `{other}` and `{name}` have the same address"));
        }
        let server_name = node.server_name.as_ref().and_then(|text| found.parse("name of the certificate", text));
        if let Some(http) = &node.http {
            if node.server_name.is_none() {
                found.at(http, "an HTTP request needs TLS first: give `server_name`, or leave out `http`");
            }
            canaries::check_http(http, found);
            canaries::in_time(http, "node_every", times.policy.node_every, times.schedule, found);
            requests.extend(canaries::http_of(http).map(|http| (name.clone(), http)));
        }
        nodes.insert(
            name.clone(),
            Node {
                address: node.address.value,
                port: node.port,
                tls: node.server_name.is_some(),
                proof: node.proof.is_some(),
            },
        );
        if let Some(server_name) = server_name {
            server_names.insert(name, server_name);
        }
    }
    (nodes, server_names, requests)
}

/// A key that two nodes had would let the one prove the other's life.
fn check_proofs(file: &File, found: &mut Found) -> BTreeMap<NodeName, NodeProof> {
    let (mut proofs, mut keys) = (BTreeMap::new(), BTreeMap::new());
    for (name, one) in &file.nodes {
        let (Ok(name), Some(proof)) = (name.parse::<NodeName>(), &one.value.proof) else { continue };
        if proof.port.unwrap_or(LIFE_PORT) == 0 {
            found.at(one, "port 0 of `proof` cannot be contacted");
        }
        let Some(key) = life::key(&proof.key.value) else {
            found.at(
                &proof.key,
                "a public key has 64 hexadecimal digits: `parallax-agent respond --public` on the node prints it",
            );
            continue;
        };
        if let Some(other) = keys.insert(key, name.clone()) {
            found.at(&proof.key, format!("nodes `{other}` and `{name}` have the same key: give each its own"));
        }
        proofs.insert(name, NodeProof { key, port: proof.port.unwrap_or(LIFE_PORT) });
    }
    proofs
}

fn check_driver(one: &DriverFile, found: &mut Found) -> Option<Driver> {
    let zone = found.parse("zone", &one.zone);
    let tsig_name = found.parse("name of the TSIG key", &one.tsig_name);
    let tsig_secret = match (&one.tsig_secret_file, &one.tsig_secret_env) {
        (Some(file), None) => Some(Source::File(file.clone())),
        (None, Some(name)) => Some(Source::Variable(name.clone())),
        (Some(_), Some(_)) => {
            found.at(&one.tsig_name, "`tsig_secret_file` and `tsig_secret_env` are both given; keep one");
            None
        }
        (None, None) => {
            found.at(&one.tsig_name, "the key's secret is missing: give `tsig_secret_file` or `tsig_secret_env`");
            None
        }
    };
    match one.kind {
        DriverKind::Rfc2136 => Some(Driver::Rfc2136(Rfc2136 {
            server: one.server,
            zone: zone?,
            tsig_name: tsig_name?,
            tsig_algorithm: match one.tsig_algorithm {
                TsigAlgorithmName::HmacSha256 => TsigAlgorithm::HmacSha256,
                TsigAlgorithmName::HmacSha384 => TsigAlgorithm::HmacSha384,
                TsigAlgorithmName::HmacSha512 => TsigAlgorithm::HmacSha512,
            },
            tsig_secret: tsig_secret?,
            mode: one.mode,
        })),
    }
}

fn check_service(
    one: &ServiceFile,
    nodes: &Nodes,
    drivers: &BTreeMap<DriverName, Driver>,
    found: &mut Found,
) -> Option<Service> {
    let hostname = public_name("host name", &one.hostname, found)?;
    if !(1..=TTL_S_MAX).contains(&one.ttl_s.value) {
        found.at(
            &one.ttl_s,
            format!("ttl_s must be 1 to {TTL_S_MAX} seconds: no failover is faster than the old answer's life"),
        );
    }
    let native = reference(&one.native, nodes, found)?;
    bounded(&one.fallbacks, "fallbacks", FALLBACKS_MAX, found);
    let mut fallbacks: Vec<NodeName> = Vec::new();
    for text in &one.fallbacks.value {
        let node = reference(text, nodes, found)?;
        if node == native || fallbacks.contains(&node) {
            found.at(text, format!("node `{node}` serves `{}` already", one.name.value));
        }
        fallbacks.push(node);
    }
    port(nodes.get(&native).map_or(1, |node| node.port), &one.native, found);
    let driver: DriverName = found.parse("name of a driver", &one.driver)?;
    let mode = match drivers.get(&driver) {
        Some(Driver::Rfc2136(rfc2136)) => {
            if !within(&hostname, &rfc2136.zone) {
                found.at(
                    &one.hostname,
                    format!("driver `{driver}` changes zone `{}`, which does not hold this name", rfc2136.zone),
                );
            }
            one.mode.min(rfc2136.mode)
        }
        None => {
            unknown(&one.driver, "driver", drivers.keys().map(DriverName::as_str), found);
            return None;
        }
    };
    Some(Service {
        hostname,
        ttl_s: one.ttl_s.value,
        native,
        fallbacks,
        driver,
        mode,
        audience_failover: one.audience_failover,
    })
}

fn reference(text: &Spanned<String>, nodes: &Nodes, found: &mut Found) -> Option<NodeName> {
    let name: NodeName = found.parse("name of a node", text)?;
    if !nodes.contains_key(&name) {
        unknown(text, "node", nodes.keys().map(NodeName::as_str), found);
        return None;
    }
    Some(name)
}

fn within(name: &DomainName, zone: &DomainName) -> bool {
    name == zone || name.as_str().strip_suffix(zone.as_str()).is_some_and(|rest| rest.ends_with('.'))
}
