//! DNS over HTTPS: where the endpoint is, and in which form it is asked.

use serde_saphyr::Spanned;

use super::error::Found;
use super::file::{DohFormatName, DohMethodName, HttpVersionName, ResolverFile};
use super::{Doh, spelling};

/// Most pinned addresses of one endpoint: what agents take.
const ADDRESSES_MAX: usize = 4;

/// Most servers that are asked for an endpoint's address: what agents take.
const BOOTSTRAP_RESOLVERS_MAX: usize = 3;

/// Port of plain DNS, as a suggestion names it.
pub(super) const DNS_PORT: u16 = 53;

/// Checks a DoH endpoint.
pub(super) fn check(one: &ResolverFile, found: &mut Found) -> Option<Doh> {
    let url = one.url.as_ref()?;
    let (_, literal) = match spelling::url(&url.value, "https") {
        Ok(good) => good,
        Err(fault) => {
            found.at(url, fault);
            return None;
        }
    };
    let mut bootstrap = one.bootstrap.as_ref().map(|list| list.value.clone()).unwrap_or_default();
    let resolvers = bootstrap_resolvers(one, found)?;
    if let Some(list) = &one.bootstrap
        && (bootstrap.is_empty() || bootstrap.len() > ADDRESSES_MAX)
    {
        found.at(list, format!("`bootstrap` must hold one to {ADDRESSES_MAX} addresses of the endpoint"));
        return None;
    }
    if let (Some(list), false) = (&one.bootstrap_resolvers, bootstrap.is_empty()) {
        found.at(list, "`bootstrap_resolvers` is not used while `bootstrap` pins the addresses; keep one of them");
        return None;
    }
    // A URL with an address says itself where to go.
    if bootstrap.is_empty() && resolvers.is_empty() {
        bootstrap.extend(literal);
    }
    if bootstrap.is_empty() && resolvers.is_empty() {
        found.at(
            &one.name,
            format!(
                "resolver `{}` needs `bootstrap` (its addresses) or `bootstrap_resolvers` (servers that know them): \
                 its own name cannot be looked up through itself",
                one.name.value
            ),
        );
        return None;
    }
    let format = one.format.as_ref().map_or(DohFormatName::Wire, |format| format.value);
    let method = match (format, &one.method) {
        (DohFormatName::Json, Some(method)) if method.value == DohMethodName::Post => {
            found.at(method, "the JSON form is a GET; it has no POST");
            return None;
        }
        (DohFormatName::Json, _) => DohMethodName::Get,
        (DohFormatName::Wire, method) => method.as_ref().map_or(DohMethodName::Post, |method| method.value),
    };
    let http = one.http.as_ref().map_or(HttpVersionName::Auto, |http| http.value);
    Some(Doh { url: url.value.clone(), bootstrap, bootstrap_resolvers: resolvers, format, method, http })
}

fn bootstrap_resolvers(one: &ResolverFile, found: &mut Found) -> Option<Vec<std::net::SocketAddr>> {
    let Some(list) = &one.bootstrap_resolvers else { return Some(Vec::new()) };
    if list.value.is_empty() || list.value.len() > BOOTSTRAP_RESOLVERS_MAX {
        found.at(list, format!("`bootstrap_resolvers` must hold one to {BOOTSTRAP_RESOLVERS_MAX} servers"));
        return None;
    }
    list.value.iter().map(|text| server(text, DNS_PORT, found)).collect()
}

/// An address with its port.
pub(super) fn server(text: &Spanned<String>, usual: u16, found: &mut Found) -> Option<std::net::SocketAddr> {
    spelling::socket(&text.value, usual).map_err(|fault| found.at(text, fault)).ok()
}
