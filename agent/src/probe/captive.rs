//! The captive-portal question, as operating systems ask it: a plain HTTP GET that must be answered
//! with status 204 (RFC 8952 calls a network that answers otherwise captive).
//!
//! The host is looked up at the live resolver, as clients here do, unless an address is given: a portal
//! often lies in DNS first. An answer with a special-purpose address is what such a portal gives; it is
//! told, and not contacted.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http::Uri;
use http::uri::PathAndQuery;
use parallax_decide::names::DomainName;
use parallax_decide::observation::{Family, Outcome};

use super::Limits;
use super::ask::ask;
use super::connection::attempts;
use super::http_check::{self, Heard, Patience};
use super::message::Question;
use crate::assignment::{Resolver, Transport};
use crate::clock::{now, since};
use crate::dial::Segments;
use crate::policy::Role;
use crate::site::Site;

/// The port of HTTP.
const HTTP: u16 = 80;

/// The status that means: nobody in between (No Content, RFC 9110, 15.3.5).
const NOBODY_IN_BETWEEN: u16 = 204;

/// What came of the question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// The one outcome; [`Outcome::HttpOk`] for status 204 alone.
    pub outcome: Outcome,
    /// The address the host has here; `None`: not found out.
    pub address: Option<IpAddr>,
    /// HTTP status where one was received, else 0.
    pub status: u16,
    /// Time to the first completed TCP handshake.
    pub tcp: Duration,
    /// What time the server said it was, in seconds since 1970.
    pub date_s: Option<i64>,
}

impl Found {
    fn nothing(outcome: Outcome, address: Option<IpAddr>) -> Self {
        Self { outcome, address, status: 0, tcp: Duration::ZERO, date_s: None }
    }
}

/// Asks for the URL.
pub async fn question(site: &Site, limits: &Limits, url: &Uri, address: Option<IpAddr>) -> Found {
    let host = url.host().unwrap_or_default();
    let literal = host.trim_matches(['[', ']']).parse().ok();
    let port = url.port_u16().unwrap_or(HTTP);
    let address = match address.or(literal) {
        Some(address) => address,
        None => match look_up(site, limits, host, port).await {
            Ok(address) => address,
            Err(outcome) => return Found::nothing(outcome, None),
        },
    };
    let to = SocketAddr::new(address, port);
    let permitted = site.policy.permits(address, port, Role::Captive);
    if let Err(denial) = permitted.and_then(|()| site.policy.take_connection(address)) {
        tracing::debug!(%url, %to, %denial, "captive-portal question not asked");
        return Found::nothing(denial.outcome(), Some(address));
    }
    let start = now();
    let stream = match attempts::connect(&site.dialer, limits, Segments::Usual, to).await.outcome {
        Ok(stream) => stream,
        Err(outcome) => return Found::nothing(outcome, Some(address)),
    };
    let tcp = since(start);
    let root = PathAndQuery::from_static("/");
    let path = url.path_and_query().unwrap_or(&root);
    let host = url.authority().map_or(host, http::uri::Authority::as_str);
    let patience = Patience { wait: limits.http, deadline: now() + limits.http };
    let mut heard = Heard::default();
    let ended = http_check::get(stream, host, path, |_| 0, patience, &mut heard).await;
    let outcome = match ended {
        Err(outcome) => outcome,
        Ok(()) if heard.status == NOBODY_IN_BETWEEN => Outcome::HttpOk,
        Ok(()) => http_check::unexpected(&heard),
    };
    Found { outcome, address: Some(address), status: heard.status, tcp, date_s: heard.date_s }
}

/// The host's address, or the first that may not be contacted: it says more than the others.
async fn look_up(site: &Site, limits: &Limits, host: &str, port: u16) -> Result<IpAddr, Outcome> {
    let (Ok(name), Ok(resolver)) = (host.parse::<DomainName>(), "live".parse()) else {
        tracing::warn!(host, "the captive URL's host is no name; correct the coordinator's configuration");
        return Err(Outcome::OwnTrouble);
    };
    let live = Resolver { name: resolver, transport: Transport::Live };
    // As clients do where one family has no way out: they do not use its addresses.
    let families = match site.dialer.family_available(Family::V4) {
        true => [Family::V4, Family::V6],
        false => [Family::V6, Family::V4],
    };
    let mut first = None;
    for family in families {
        let asked = ask(site, limits, &live, &Question { name: name.clone(), family }).await;
        let said = match asked.ended {
            Ok(reply) => {
                let special = |address: &&IpAddr| site.policy.permits(**address, port, Role::Captive).is_err();
                let chosen = reply.addresses.iter().find(special).or(reply.addresses.first());
                if let (Outcome::Answered, Some(address)) = (reply.outcome, chosen) {
                    return Ok(*address);
                }
                reply.outcome
            }
            Err(outcome) => outcome,
        };
        first.get_or_insert(said);
        // Another family helps only a name that exists without this one.
        if !matches!(said, Outcome::Empty | Outcome::DanglingCname) {
            break;
        }
    }
    Err(first.unwrap_or(Outcome::OwnTrouble))
}
