//! Resolvers: how each is spoken to, and what it may be used for.

use std::collections::{BTreeMap, BTreeSet};

use parallax_decide::names::ResolverName;
use parallax_decide::topology::{Resolver, Role, Transport};

use super::Endpoint;
use super::check::bounded;
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
            Endpoint::Udp(_) => Transport::Plain,
            Endpoint::Doh { .. } => Transport::Doh,
            Endpoint::Dot { .. } => Transport::Dot,
        };
        if resolvers.insert(name.clone(), Resolver { transport, role }).is_some() {
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
        (RoleName::Reserve, _) if one.kind == ResolverKind::Udp => {
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

fn check_endpoint(one: &ResolverFile, found: &mut Found) -> Option<Endpoint> {
    let needs = match one.kind {
        ResolverKind::System => [false, false, false, false],
        ResolverKind::Udp => [false, false, true, false],
        ResolverKind::Doh => [true, true, false, false],
        ResolverKind::Dot => [false, false, true, true],
    };
    let has = [one.url.is_some(), one.bootstrap.is_some(), one.address.is_some(), one.server_name.is_some()];
    let keys = ["url", "bootstrap", "address", "server_name"];
    for ((key, needed), given) in keys.into_iter().zip(needs).zip(has) {
        if needed && !given {
            found.at(&one.name, format!("resolver `{}` needs `{key}`", one.name.value));
        } else if given && !needed {
            found.at(&one.name, format!("`{key}` does not belong to a resolver of this kind"));
        }
    }
    if needs != has {
        return None;
    }
    match one.kind {
        ResolverKind::System => Some(Endpoint::Live),
        ResolverKind::Udp => one.address.as_ref().map(|address| Endpoint::Udp(address.value)),
        ResolverKind::Doh => check_doh(one, found),
        ResolverKind::Dot => {
            let server_name = found.parse("name of the certificate", one.server_name.as_ref()?)?;
            one.address.as_ref().map(|address| Endpoint::Dot { address: address.value, server_name })
        }
    }
}

fn check_doh(one: &ResolverFile, found: &mut Found) -> Option<Endpoint> {
    let (url, bootstrap) = (one.url.as_ref()?, one.bootstrap.clone()?);
    if bootstrap.is_empty() || bootstrap.len() > 8 {
        found
            .at(&one.name, "`bootstrap` must hold one to eight addresses: the endpoint's own name cannot be looked up");
        return None;
    }
    let parsed: axum::http::Uri = found.parse("url", url)?;
    let good = parsed.scheme_str() == Some("https") && parsed.host().is_some() && url.value.len() <= 255;
    if !good {
        found.at(url, "must read https://HOST/PATH");
        return None;
    }
    Some(Endpoint::Doh { url: url.value.clone(), bootstrap })
}
