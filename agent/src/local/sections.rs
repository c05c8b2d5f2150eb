//! The sections of the owner's file: which keys each has, and what each key takes.

use std::net::{IpAddr, SocketAddr};

use super::fault::{Fault, quoted};
use super::tree::Node;
use super::{Allow, Changes, Drivers, LIVE_SERVERS_MAX, Local, NamePattern, PinDriver};
use crate::policy::never::openable;
use crate::spool::{SPOOL_AGE_MIN, SPOOL_BYTES_MIN};

/// Takes each key of a section to what reads its value, and refuses every other: a misspelt limit would be none.
macro_rules! keys {
    ($node:expr, |$value:ident| { $($key:literal => $read:expr,)+ }) => {
        for entry in $node.section()? {
            let $value = entry.value;
            match entry.key {
                $($key => $read,)+
                other => return Err(Fault::unknown(entry.at, "key", other, &[$($key),+])),
            }
        }
    };
}

/// The whole file.
pub(super) fn local(node: &Node<'_>) -> Result<Local, Fault> {
    let mut local = Local::default();
    keys!(node, |value| {
        "version" => local.version = version(value)?,
        "live_resolver" => local.live_resolver = live_resolver(value)?,
        "tls_roots" => local.tls_roots = value.optional("the path of a PEM file")?,
        "proxy" => local.proxy = value.optional("http://HOST:PORT or environment")?,
        "proxy_credentials_file" => local.proxy_credentials_file = value.optional("the path of a file")?,
        "allow" => local.allow = allow(value)?,
        "drivers" => local.drivers = drivers(value)?,
        "changes" => local.changes = changes(value)?,
        "spool_bytes_max" => local.spool_bytes_max = spool_bytes(value)?,
        "spool_age_max" => local.spool_age_max = spool_age(value)?,
    });
    Ok(local)
}

fn allow(node: &Node<'_>) -> Result<Allow, Fault> {
    let mut allow = Allow::default();
    keys!(node, |value| {
        "ports" => allow.ports = value.list("a list of ports like [443]", port)?,
        "private" => allow.private = value.list("a list of networks like [10.0.0.0/8]", network)?,
        "paths" => allow.paths = value.flag()?,
        "connections_per_minute" => allow.connections_per_minute = limit(value)?,
        "connections_per_minute_to_one" => allow.connections_per_minute_to_one = limit(value)?,
        "connections_per_minute_to_network" => allow.connections_per_minute_to_network = limit(value)?,
        "questions_per_minute" => allow.questions_per_minute = limit(value)?,
        "questions_per_minute_to_one" => allow.questions_per_minute_to_one = limit(value)?,
        "new_addresses_per_hour" => allow.new_addresses_per_hour = limit(value)?,
    });
    Ok(allow)
}

fn drivers(node: &Node<'_>) -> Result<Drivers, Fault> {
    let mut drivers = Drivers::default();
    keys!(node, |value| {
        "pin" => drivers.pin = if value.is_nothing() { None } else { Some(pin(value)?) },
    });
    Ok(drivers)
}

fn pin(node: &Node<'_>) -> Result<PinDriver, Fault> {
    let (mut kind, mut control) = (None, None);
    keys!(node, |value| {
        "kind" => kind = Some(pin_kind(value)?),
        "control" => control = Some(value.text("the path of Unbound's control socket")?),
    });
    let lacks =
        |key| node.fault(format!("the key '{key}' is missing; write {{ kind: unbound, control: /run/unbound.ctl }}"));
    kind.ok_or_else(|| lacks("kind"))?;
    Ok(PinDriver::Unbound { control: control.ok_or_else(|| lacks("control"))?.into() })
}

/// There is one kind of these drivers.
fn pin_kind(node: &Node<'_>) -> Result<(), Fault> {
    match node.text("the driver's kind, unbound")? {
        "unbound" => Ok(()),
        other => Err(Fault::unknown(node.at, "driver", other, &["unbound"])),
    }
}

fn changes(node: &Node<'_>) -> Result<Changes, Fault> {
    let mut changes = Changes::default();
    keys!(node, |value| {
        "allowed" => changes.allowed = value.flag()?,
        "names" => changes.names = value.list("a list of names like [example.com, \"*.example.org\"]", name)?,
    });
    Ok(changes)
}

fn version(node: &Node<'_>) -> Result<u32, Fault> {
    match node.number("1, the version of this file's format")? {
        1 => Ok(1),
        other => Err(node.fault(format!("version is {other}, this agent reads version 1"))),
    }
}

/// One `address:port` or a list of them; a missing port is 53.
fn live_resolver(node: &Node<'_>) -> Result<Vec<SocketAddr>, Fault> {
    let servers = match node.is_text() {
        true => vec![server(node)?],
        false => node.list("an address like \"127.0.0.1:53\", or a list of such", server)?,
    };
    match servers.len() {
        0..=LIVE_SERVERS_MAX => Ok(servers),
        n => Err(node.fault(format!("{n} servers; clients use at most {LIVE_SERVERS_MAX} (resolv.conf(5))"))),
    }
}

fn server(node: &Node<'_>) -> Result<SocketAddr, Fault> {
    let expected = "an address like \"127.0.0.1:53\" or \"[::1]:53\"";
    let text = node.text(expected)?;
    text.parse::<SocketAddr>()
        .or_else(|_| text.parse::<IpAddr>().map(|address| SocketAddr::new(address, 53)))
        .map_err(|_| node.expected(expected))
}

fn port(node: &Node<'_>) -> Result<u16, Fault> {
    node.number("a port, 0 to 65535")
}

fn network(node: &Node<'_>) -> Result<ipnet::IpNet, Fault> {
    let expected = "a network like 10.0.0.0/8 or \"fd00::/8\"";
    let network = node.text(expected)?.parse().map_err(|_| node.expected(expected))?;
    openable(network).map(|()| network).map_err(|shut| node.fault(shut.to_string()))
}

fn name(node: &Node<'_>) -> Result<NamePattern, Fault> {
    let text = node.text("a name like example.com or \"*.example.com\"")?;
    text.parse()
        .map_err(|error| node.fault(format!("{} is no name like example.com or *.example.com: {error}", quoted(text))))
}

fn limit(node: &Node<'_>) -> Result<u32, Fault> {
    match node.number("a whole number from 1 to 4294967295")? {
        0 => Err(node.fault("a limit of 0 would measure nothing; stop the agent instead")),
        limit => Ok(limit),
    }
}

fn spool_bytes(node: &Node<'_>) -> Result<u64, Fault> {
    let bytes = node.number("a number of bytes, like 67108864")?;
    match bytes < SPOOL_BYTES_MIN {
        true => Err(node.fault(format!("spool_bytes_max is {bytes}; it must be at least {SPOOL_BYTES_MIN}"))),
        false => Ok(bytes),
    }
}

fn spool_age(node: &Node<'_>) -> Result<std::time::Duration, Fault> {
    let age = node.time()?;
    match age < SPOOL_AGE_MIN {
        true => Err(node.fault(format!("spool_age_max is {} s; it must be at least 1m", age.as_secs()))),
        false => Ok(age),
    }
}
