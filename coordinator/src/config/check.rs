//! From what is written to what is meant: every reference resolved, every fault found at once.
//!
//! [`resolvers`], [`canaries`], [`controls`] and [`services`] have a part each.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use parallax_decide::names::{DomainName, ResolverName, VantageName};
use parallax_decide::topology::{Mode, Policy, Role, Topology, Vantage};
use serde_saphyr::Spanned;

use super::canaries::{self, NAMES_MAX, Times};
use super::controls;
use super::error::{Fault, Found, nearest};
use super::file::{File, SourceFile, SwitchName, VantageFile};
use super::resolvers::{self, Resolvers};
use super::{Config, Listen, Schedule, Source, WebListen, embedded, identity, policy, retain, services};

/// Most vantages: half as many again as `./x bench fleet` holds streams for. A stream and a page's column for each.
const VANTAGES_MAX: usize = 15_000;
/// Most labels of one vantage.
const LABELS_MAX: usize = 16;
/// Longest name of a network interface, in bytes: IFNAMSIZ without the closing zero, netdevice(7).
const INTERFACE_BYTES_MAX: usize = 15;

/// Default place of page and API.
const WEB_DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8080);
/// Default place for agents.
const GRPC_DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8443);

/// Checks a file. Beside what it means, what is allowed in it and hardly meant.
///
/// # Errors
/// All faults, in the order of the lines.
pub fn check(file: &File) -> Result<(Config, Vec<Fault>), Vec<Fault>> {
    let mut found = Found::default();
    if file.version.value != 1 {
        found.at(&file.version, format!("version {} is not known; this program reads version 1", file.version.value));
    }
    let (policy, schedule) = check_policy(file, &mut found);
    let (resolvers, endpoints) = resolvers::check(file, &mut found);
    let (vantages, labels) = check_vantages(file, &resolvers, &mut found);
    let sources = check_sources(file, &mut found);
    let times = Times { policy: &policy, schedule: &schedule };
    let (canaries, canary_extras) = canaries::check(file, times, &mut found);
    let questions = canaries::check_questions(file, &mut found);
    let (controls, control_targets) = controls::check(file, &mut found);
    let ours = services::check(file, times, &mut found);
    services::check_steered(file, &ours, &mut found);
    let names = canaries.len() + ours.services.len();
    if names > NAMES_MAX {
        found.whole(format!("{names} names in `canaries` and `services`; an agent watches at most {NAMES_MAX}"));
    }
    if file.canaries.is_none() && file.services.is_none() {
        found.whole("nothing to watch: give `canaries`, `services` or both");
    }
    let stubs = check_stubs(file, &mut found);
    let listen = check_listen(file, &mut found);
    let identity = identity::check(&file.identity, &mut found);
    let retain = retain::check(&file.database.retain, &mut found);
    let disk_max = embedded::check(&file.database.embedded, &mut found);
    let doubts = found.into_sorted()?;
    let topology =
        Topology { vantages, resolvers, canaries, controls, nodes: ours.nodes, services: ours.services, stubs, policy };
    let config = Config {
        warnings: None,
        topology,
        listen,
        identity,
        admitted: std::collections::BTreeSet::new(),
        retain,
        disk_max,
        labels,
        drivers: ours.drivers,
        endpoints,
        controls: control_targets,
        node_server_names: ours.server_names,
        node_http: ours.http,
        node_proofs: ours.proofs,
        canary_extras,
        questions,
        sources,
        schedule,
    };
    Ok((config, doubts))
}

fn check_policy(file: &File, found: &mut Found) -> (Policy, Schedule) {
    let (mut policy, mut schedule) = (policy::policy(file.policy), policy::schedule(file.policy));
    if let Some(overrides) = &file.policy_overrides {
        if let Err(fault) = overrides.value.apply(&mut policy, &mut schedule) {
            found.at(overrides, fault);
        }
        for fault in policy::faults(&policy, &schedule) {
            found.at(overrides, fault);
        }
    }
    (policy, schedule)
}

fn check_listen(file: &File, found: &mut Found) -> Listen {
    let grpc = file.listen.grpc.as_ref().map_or(GRPC_DEFAULT, |grpc| grpc.value);
    let web = match &file.listen.web {
        None => Some(WebListen::Tcp(WEB_DEFAULT)),
        Some(web) => WebListen::named(&web.value).map_err(|why| found.at(web, why)).ok(),
    };
    Listen { web: web.unwrap_or(WebListen::Tcp(WEB_DEFAULT)), grpc }
}

type Labels = BTreeMap<VantageName, BTreeMap<String, String>>;

fn check_vantages(file: &File, resolvers: &Resolvers, found: &mut Found) -> (BTreeMap<VantageName, Vantage>, Labels) {
    let (mut vantages, mut labels) = (BTreeMap::new(), BTreeMap::new());
    bounded(&file.vantages, "vantages", VANTAGES_MAX, found);
    for one in &file.vantages.value {
        let Some(name) = found.parse::<VantageName>("name of a vantage", &one.name) else { continue };
        if one.labels.len() > LABELS_MAX {
            found.at(&one.name, format!("vantage `{name}` has more than {LABELS_MAX} labels"));
        }
        let Some(vantage) = check_vantage(one, resolvers, found) else { continue };
        if vantages.insert(name.clone(), vantage).is_some() {
            found.at(&one.name, format!("vantage `{name}` is there twice"));
        }
        labels.insert(name, one.labels.clone());
    }
    (vantages, labels)
}

fn check_sources(file: &File, found: &mut Found) -> BTreeMap<VantageName, Source> {
    let mut sources = BTreeMap::new();
    for one in &file.vantages.value {
        let (Some(source), Ok(name)) = (&one.source, one.name.value.parse()) else { continue };
        let SourceFile { addresses, interface } = &source.value;
        let families = |v4: bool| addresses.iter().filter(|address| address.is_ipv4() == v4).count();
        if families(true) > 1 || families(false) > 1 {
            found.at(source, "`addresses` must hold at most one address of each family");
        }
        if addresses.is_empty() && interface.is_none() {
            found.at(source, "`source` says nothing: give `addresses`, `interface`, or leave it out");
        }
        let bad =
            |text: &String| text.is_empty() || text.len() > INTERFACE_BYTES_MAX || text.contains(['/', ' ', '\0']);
        if interface.as_ref().is_some_and(bad) {
            found.at(source, format!("`interface` must be a name of 1 to {INTERFACE_BYTES_MAX} characters"));
        }
        sources.insert(name, Source { addresses: addresses.clone(), interface: interface.clone() });
    }
    sources
}

/// Most addresses that stand for a block: every one is compared with every answer.
const STUBS_MAX: usize = 256;

fn check_stubs(file: &File, found: &mut Found) -> std::collections::BTreeSet<std::net::IpAddr> {
    let Some(stubs) = &file.stubs else { return std::collections::BTreeSet::new() };
    if stubs.value.len() > STUBS_MAX {
        found.at(stubs, format!("{} addresses in `stubs`; at most {STUBS_MAX}", stubs.value.len()));
    }
    stubs.value.iter().copied().collect()
}

fn check_vantage(one: &VantageFile, resolvers: &Resolvers, found: &mut Found) -> Option<Vantage> {
    let domain = one.failure_domain.as_ref().unwrap_or(&one.name);
    let failure_domain = found.parse("failure domain", domain)?;
    let upstream = match &one.upstream {
        None => None,
        Some(text) => {
            let name = found.parse::<ResolverName>("name of a resolver", text)?;
            match resolvers.get(&name) {
                Some(resolver) if resolver.role == Role::Live => {
                    found.at(text, "the live resolver cannot be its own upstream");
                }
                Some(_) => {}
                None => unknown(text, "resolver", resolvers.keys().map(ResolverName::as_str), found),
            }
            Some(name)
        }
    };
    let (pin_driver, pin_mode) = match &one.pin {
        None => (None, Mode::Observe),
        Some(pin) => (Some(found.parse("name of a driver", &pin.driver)?), pin.mode),
    };
    let switch_by_hand = one.switch == Some(SwitchName::ByHand);
    Some(Vantage { failure_domain, upstream, pin_driver, pin_mode, switch_by_hand, audience: one.audience })
}

/// A name that is looked up in public DNS.
pub(super) fn public_name(what: &str, text: &Spanned<String>, found: &mut Found) -> Option<DomainName> {
    if text.value.parse::<std::net::IpAddr>().is_ok() {
        found.at(text, format!("a {what} is a name, not an address"));
        return None;
    }
    let name: DomainName = found.parse(what, text)?;
    let last = name.as_str().rsplit('.').next().unwrap_or_default();
    if last == name.as_str() || ["localhost", "local", "invalid", "onion", "internal"].contains(&last) {
        found.at(
            text,
            format!("`{name}` has a special use (RFC 6761) or a single label; public DNS does not answer for it"),
        );
        return None;
    }
    Some(name)
}

/// Ports are 1 to 65535.
pub(super) fn port(port: u16, place: &Spanned<String>, found: &mut Found) {
    if port == 0 {
        found.at(place, "port 0 cannot be contacted");
    }
}

/// A list that is given must not be empty, nor without bounds.
pub(super) fn bounded<T>(list: &Spanned<Vec<T>>, what: &str, max: usize, found: &mut Found) {
    if list.value.is_empty() {
        found.at(list, format!("`{what}` is empty"));
    } else if list.value.len() > max {
        found.at(list, format!("`{what}` holds {}; at most {max} are supported", list.value.len()));
    }
}

/// A reference to something that is not there.
pub(super) fn unknown<'a>(
    text: &Spanned<String>,
    what: &str,
    known: impl Iterator<Item = &'a str> + Clone,
    found: &mut Found,
) {
    let all: Vec<&str> = known.clone().collect();
    let hint = match nearest(&text.value, known) {
        Some(near) => format!(", did you mean `{near}`?"),
        None if all.is_empty() => "; there is none".to_owned(),
        None => format!("; there are: {}", all.join(", ")),
    };
    found.at(text, format!("unknown {what} `{}`{hint}", text.value));
}
