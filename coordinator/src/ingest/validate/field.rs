//! Fields that several kinds of fact share, each held against its limit.

use std::net::IpAddr;

use parallax_decide::names::{ControlName, DomainName, NodeName, ResolverName};
use parallax_decide::topology::Topology;
use parallax_proto::TEXT_BYTES_MAX;
use serde_json::{Map, Value};

use super::{DURATION_US_MAX, Fault};
use crate::hex::hex;
use crate::ingest::convert;

/// Bytes of a SHA-256.
const SHA256_BYTES: usize = 32;

pub(super) use convert::address;

/// An address that may be absent.
pub(super) fn address_or_none(bytes: &[u8]) -> Result<Option<IpAddr>, Fault> {
    if bytes.is_empty() { Ok(None) } else { address(bytes).map(Some) }
}

/// Addresses, at most `most`.
pub(super) fn addresses(what: &str, all: &[Vec<u8>], most: usize) -> Result<Vec<IpAddr>, Fault> {
    at_most(what, all.len(), most)?;
    all.iter().map(|bytes| address(bytes)).collect()
}

/// Refuses a list or a text that is longer than its limit.
pub(super) fn at_most(what: &str, count: usize, most: usize) -> Result<(), Fault> {
    if count > most {
        return Err(("too_large", format!("{what}: {count}; at most {most}")));
    }
    Ok(())
}

/// A canary, or a service's host name.
pub(super) fn watched_name(text: &str, topology: &Topology) -> Result<DomainName, Fault> {
    let found: DomainName = name("name", text)?;
    let watched = topology.canaries.contains_key(&found) || topology.services.values().any(|s| s.hostname == found);
    if watched { Ok(found) } else { Err(not_assigned("name", text)) }
}

pub(super) fn resolver(text: &str, topology: &Topology) -> Result<ResolverName, Fault> {
    let found: ResolverName = name("resolver", text)?;
    if topology.resolvers.contains_key(&found) { Ok(found) } else { Err(not_assigned("resolver", text)) }
}

pub(super) fn node(text: &str, topology: &Topology) -> Result<NodeName, Fault> {
    let found: NodeName = name("node", text)?;
    if topology.nodes.contains_key(&found) { Ok(found) } else { Err(not_assigned("node", text)) }
}

pub(super) fn control(text: &str, topology: &Topology) -> Result<ControlName, Fault> {
    let found: ControlName = name("control", text)?;
    if topology.controls.contains_key(&found) { Ok(found) } else { Err(not_assigned("control", text)) }
}

fn name<T: std::str::FromStr<Err: ToString>>(what: &str, text: &str) -> Result<T, Fault> {
    at_most(&format!("bytes of a {what}"), text.len(), TEXT_BYTES_MAX)?;
    text.parse().map_err(|error: T::Err| ("bad_name", format!("{what}: {}", error.to_string())))
}

pub(super) fn not_assigned(what: &str, text: &str) -> Fault {
    ("not_assigned", format!("{what} '{text}' is not in the assignment"))
}

/// A text for people. What was read off the network may hold anything: control characters, the zero
/// byte that Postgres does not take among them, are replaced.
pub(super) fn text(what: &str, text: &str) -> Result<String, Fault> {
    at_most(&format!("bytes of {what}"), text.len(), TEXT_BYTES_MAX)?;
    Ok(text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect())
}

pub(super) fn port(number: u32) -> Result<u16, Fault> {
    match u16::try_from(number) {
        Ok(port) if port > 0 => Ok(port),
        Ok(_) | Err(_) => Err(("out_of_range", format!("port {number}"))),
    }
}

/// Adds times in microseconds; 0 means that the stage was not done.
pub(super) fn times<const N: usize>(detail: &mut Map<String, Value>, stages: [(&str, u64); N]) -> Result<(), Fault> {
    for (key, us) in stages {
        if us > DURATION_US_MAX {
            return Err(("out_of_range", format!("{key} of {us} us")));
        }
        if us > 0 {
            detail.insert(key.to_owned(), us.into());
        }
    }
    Ok(())
}

/// Adds a status; 0: none was received.
pub(super) fn http_status(detail: &mut Map<String, Value>, status: u32) -> Result<(), Fault> {
    match status {
        0 => {}
        // Three digits (RFC 9110, 15).
        100..=999 => {
            detail.insert("http_status".to_owned(), status.into());
        }
        _ => return Err(("out_of_range", format!("HTTP status {status}"))),
    }
    Ok(())
}

/// Adds the SHA-256 of a certificate in hexadecimal, where there was one.
pub(super) fn certificate(detail: &mut Map<String, Value>, bytes: &[u8]) -> Result<(), Fault> {
    match bytes.len() {
        0 => {}
        SHA256_BYTES => {
            detail.insert("certificate_sha256".to_owned(), hex(bytes).into());
        }
        count => return Err(("out_of_range", format!("certificate_sha256 of {count} bytes; a SHA-256 has 32"))),
    }
    Ok(())
}

/// Adds what is there: `false`, 0 and nothing are left out.
pub(super) fn keep(detail: &mut Map<String, Value>, key: &str, value: impl Into<Value>) {
    let value = value.into();
    let nothing = value == Value::Null || value == Value::Bool(false) || value == 0;
    if !nothing && value != Value::String(String::new()) && value != Value::Array(Vec::new()) {
        detail.insert(key.to_owned(), value);
    }
}

/// What a field "plus one" holds; 0 is nothing.
pub(super) fn less_one(plus_one: u32) -> Option<u32> {
    plus_one.checked_sub(1)
}

pub(super) fn as_texts(addresses: &[IpAddr]) -> Vec<String> {
    addresses.iter().map(ToString::to_string).collect()
}
