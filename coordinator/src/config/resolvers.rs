//! Resolvers: how each is spoken to, and what it may be used for.

use std::collections::{BTreeMap, BTreeSet};

use parallax_decide::names::ResolverName;
use parallax_decide::topology::{Resolver, Role, Transport};

use super::Endpoint;
use super::check::bounded;
use super::doh::{self, DNS_PORT, server};
use super::error::Found;
use super::file::{File, ResolverFile, ResolverKind, RoleName};

/// Most resolvers: each is asked for each canary, in each round, at each vantage.
const RESOLVERS_MAX: usize = 32;

/// The resolvers by name.
pub type Resolvers = BTreeMap<ResolverName, Resolver>;

/// Checks the resolvers.
pub fn check(file: &File, found: &mut Found) -> (Resolvers, BTreeMap<ResolverName, Endpoint>) {
    let (mut resolvers, mut endpoints) = (BTreeMap::new(), BTreeMap::new());
    bounded(&file.resolvers, "resolvers", RESOLVERS_MAX, found);
    let mut orders = BTreeSet::new();
    for one in &file.resolvers.value {
        let name: Option<ResolverName> = found.parse("name of a resolver", &one.name);
        let endpoint = check_endpoint(one, found);
        let role = check_role(one, &mut orders, found);
        let (Some(name), Some(endpoint), Some(role)) = (name, endpoint, role) else { continue };
        let transport = match endpoint {
            Endpoint::Live => Transport::Live,
            Endpoint::Udp(_) | Endpoint::Tcp(_) => Transport::Plain,
            Endpoint::Doh(_) => Transport::Doh,
            Endpoint::Dot { .. } => Transport::Dot,
        };
        let resolver = Resolver { transport, role, validates: one.validates, filtering_wanted: one.filtering_wanted };
        if resolvers.insert(name.clone(), resolver).is_some() {
            found.at(&one.name, format!("resolver `{name}` is there twice"));
        }
        endpoints.insert(name, endpoint);
    }
    let live = file.resolvers.value.iter().filter(|one| one.role == RoleName::Live).count();
    if live != 1 {
        found.at(&file.resolvers, format!("exactly one resolver must have the role `live`; {live} have it"));
    }
    (resolvers, endpoints)
}

fn check_role(one: &ResolverFile, orders: &mut BTreeSet<u8>, found: &mut Found) -> Option<Role> {
    if (one.role == RoleName::Live) != (one.kind == ResolverKind::System) {
        found.at(&one.name, "role `live` and kind `system` belong together: what clients at the place use");
        return None;
    }
    match (one.role, &one.order) {
        (RoleName::Reserve, _) if matches!(one.kind, ResolverKind::Udp | ResolverKind::Tcp) => {
            found.at(
                &one.name,
                "a plain resolver cannot be a reserve: a failover never gives up encryption; use observe_only",
            );
            None
        }
        (RoleName::Reserve, Some(order)) => {
            if !orders.insert(order.value) {
                found.at(order, format!("two reserves have order {}", order.value));
            }
            Some(Role::Reserve(order.value))
        }
        (RoleName::Reserve, None) => {
            found.at(&one.name, "a reserve needs an `order`: 1 is taken first");
            None
        }
        (RoleName::Live | RoleName::Primary | RoleName::ObserveOnly, Some(order)) => {
            found.at(order, "only a reserve has an order");
            None
        }
        (RoleName::Live, None) => Some(Role::Live),
        (RoleName::Primary, None) => Some(Role::Primary),
        (RoleName::ObserveOnly, None) => Some(Role::ObserveOnly),
    }
}

/// Port of DNS over TLS, as a suggestion names it.
const DOT_PORT: u16 = 853;

fn check_endpoint(one: &ResolverFile, found: &mut Found) -> Option<Endpoint> {
    let (needs, may): (&[&str], &[&str]) = match one.kind {
        ResolverKind::System => (&[], &[]),
        ResolverKind::Udp | ResolverKind::Tcp => (&["address"], &[]),
        ResolverKind::Doh => (&["url"], &["bootstrap", "bootstrap_resolvers", "format", "method", "http"]),
        ResolverKind::Dot => (&["address", "server_name"], &[]),
    };
    let mut good = true;
    for (key, given) in [
        ("url", one.url.is_some()),
        ("bootstrap", one.bootstrap.is_some()),
        ("bootstrap_resolvers", one.bootstrap_resolvers.is_some()),
        ("format", one.format.is_some()),
        ("method", one.method.is_some()),
        ("http", one.http.is_some()),
        ("address", one.address.is_some()),
        ("server_name", one.server_name.is_some()),
    ] {
        if needs.contains(&key) && !given {
            found.at(&one.name, format!("resolver `{}` needs `{key}`", one.name.value));
            good = false;
        } else if given && !needs.contains(&key) && !may.contains(&key) {
            found.at(&one.name, format!("`{key}` does not belong to a resolver of this kind"));
            good = false;
        }
    }
    if !good {
        return None;
    }
    match one.kind {
        ResolverKind::System => Some(Endpoint::Live),
        ResolverKind::Udp => server(one.address.as_ref()?, DNS_PORT, found).map(Endpoint::Udp),
        ResolverKind::Tcp => server(one.address.as_ref()?, DNS_PORT, found).map(Endpoint::Tcp),
        ResolverKind::Doh => doh::check(one, found).map(Endpoint::Doh),
        ResolverKind::Dot => {
            let server_name = found.parse("name of the certificate", one.server_name.as_ref()?);
            let address = server(one.address.as_ref()?, DOT_PORT, found)?;
            Some(Endpoint::Dot { address, server_name: server_name? })
        }
    }
}
