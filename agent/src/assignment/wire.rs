//! Reads an assignment from the wire, with its limits.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http::Uri;
use parallax_decide::names::{ControlName, DomainName, NodeName};
use parallax_proto::v1;
use rustls_pki_types::ServerName;

use super::{
    Assignment, Canary, Control, HttpCheck, Invalid, Node, Questions, Resolver, Responder, Schedule, Source, Transport,
    Trial,
};
use crate::probe::Limits;
use crate::probe::doh::{DohEndpoint, Form, HttpVersion};

/// Most resolvers, canaries, controls and nodes one assignment may hold, each. Far above a real
/// network's, and small enough that a round of everything stays a few thousand packets.
pub const SUBJECTS_MAX: usize = 64;

/// Most pinned addresses of one DoH endpoint.
const ENDPOINT_ADDRESSES_MAX: usize = 4;

/// Most bootstrap servers of one DoH endpoint.
const BOOTSTRAP_MAX: usize = 3;

/// Most HTTP statuses a target may expect, and most bytes of a body that are read.
const STATUSES_MAX: usize = 16;
const READ_BYTES_MAX: u32 = 1 << 20;

/// Longest wait for an HTTP answer when the coordinator names none (computed default).
const HTTP_TIMEOUT: Duration = Duration::from_secs(3);

/// Longest wait for a second UDP reply.
const UDP_HOLD_MAX: Duration = Duration::from_secs(5);

/// Most jitter, in thousandths of the interval (up to 10 %).
const JITTER_PERMILLE_MAX: u32 = 100;

/// Most own attempts of one probe.
const ATTEMPTS_MAX: usize = 4;

/// Most confirming probes after a first failure, and the longest gap before one.
const BURST_MAX: usize = 8;
const BURST_GAP_MAX: Duration = Duration::from_secs(60);

/// Shortest and longest interval of a grid: whatever the coordinator says, the agent is no flood.
const INTERVAL_MIN: Duration = Duration::from_secs(1);
const INTERVAL_MAX: Duration = Duration::from_secs(24 * 3600);

/// Shortest and longest limit of a stage.
const LIMIT_MIN: Duration = Duration::from_millis(50);
const LIMIT_MAX: Duration = Duration::from_secs(30);

impl Invalid {
    fn new(what: impl Into<String>, why: impl ToString) -> Self {
        Self { what: what.into(), why: why.to_string() }
    }
}

impl TryFrom<&v1::Assignment> for Assignment {
    type Error = Invalid;

    fn try_from(wire: &v1::Assignment) -> Result<Self, Invalid> {
        for (what, count) in [
            ("resolvers", wire.resolvers.len()),
            ("canaries", wire.canaries.len()),
            ("controls", wire.controls.len()),
            ("nodes", wire.nodes.len()),
        ] {
            if count > SUBJECTS_MAX {
                return Err(Invalid::new(what, format!("{count} of them, at most {SUBJECTS_MAX} are taken")));
            }
        }
        let schedule = wire.schedule.as_ref().ok_or_else(|| Invalid::new("schedule", "it is missing"))?;
        Ok(Self {
            version: wire.version,
            vantage: wire.vantage.parse().map_err(|error| Invalid::new("vantage", error))?,
            resolvers: wire.resolvers.iter().map(Resolver::try_from).collect::<Result<_, _>>()?,
            canaries: wire.canaries.iter().map(Canary::try_from).collect::<Result<_, _>>()?,
            controls: wire.controls.iter().map(Control::try_from).collect::<Result<_, _>>()?,
            nodes: wire.nodes.iter().map(Node::try_from).collect::<Result<_, _>>()?,
            schedule: Schedule::try_from(schedule)?,
            questions: wire.questions.as_ref().map_or_else(|| Ok(Questions::default()), questions)?,
            source: wire.source.as_ref().map_or_else(|| Ok(Source::default()), source)?,
        })
    }
}

impl TryFrom<&v1::Resolver> for Resolver {
    type Error = Invalid;

    fn try_from(wire: &v1::Resolver) -> Result<Self, Invalid> {
        use v1::resolver::Kind;

        let invalid = |why: &str| Invalid::new(format!("resolver '{}'", wire.name), why);
        let server = |bytes: &[u8], number: u32| -> Result<SocketAddr, Invalid> {
            let address = address(bytes).ok_or_else(|| invalid("its address has neither 4 nor 16 bytes"))?;
            Ok(SocketAddr::new(address, port(number).ok_or_else(|| invalid("its port is not 1 to 65535"))?))
        };
        let transport = match wire.kind.as_ref().ok_or_else(|| invalid("its kind is not known to this agent"))? {
            Kind::Live(v1::LiveResolver {}) => Transport::Live,
            Kind::Udp(plain) => Transport::Plain { server: server(&plain.address, plain.port)? },
            Kind::Tcp(plain) => Transport::Tcp { server: server(&plain.address, plain.port)? },
            Kind::Dot(dot) => Transport::Dot {
                server: server(&dot.address, dot.port)?,
                server_name: server_name(&dot.server_name)
                    .map_err(invalid)?
                    .ok_or_else(|| invalid("it has no TLS server name"))?,
            },
            Kind::Doh(doh) => Transport::Doh(doh_endpoint(doh).map_err(invalid)?),
        };
        let name = wire.name.parse().map_err(|error| Invalid::new("resolver", error))?;
        Ok(Self { name, transport })
    }
}

fn doh_endpoint(wire: &v1::DohEndpoint) -> Result<DohEndpoint, &'static str> {
    let url: Uri = wire.url.parse().map_err(|_| "its URL cannot be read")?;
    if url.scheme() != Some(&http::uri::Scheme::HTTPS) {
        return Err("its URL is not https");
    }
    let host = url.host().map(|host| host.trim_matches(['[', ']'])).filter(|host| !host.is_empty());
    let host = host.and_then(|host| server_name(host).transpose()).ok_or("its URL has no host")??;
    let addresses: Option<Vec<IpAddr>> = wire.addresses.iter().map(|bytes| address(bytes)).collect();
    let addresses = addresses.ok_or("one of its addresses has neither 4 nor 16 bytes")?;
    let bootstrap: Option<Vec<SocketAddr>> = wire
        .bootstrap
        .iter()
        .map(|server| Some(SocketAddr::new(address(&server.address)?, port(server.port)?)))
        .collect();
    let bootstrap = bootstrap.ok_or("one of its bootstrap servers has no usable address or port")?;
    if addresses.len() > ENDPOINT_ADDRESSES_MAX || bootstrap.len() > BOOTSTRAP_MAX {
        return Err("it takes at most 4 pinned addresses and 3 bootstrap servers");
    }
    if addresses.is_empty() && bootstrap.is_empty() {
        return Err("it needs pinned addresses, or bootstrap servers to find them");
    }
    use v1::{DohFormat, DohMethod};
    let form = match (
        DohFormat::try_from(wire.format).map_err(|_| "its format is not known to this agent")?,
        DohMethod::try_from(wire.method).map_err(|_| "its method is not known to this agent")?,
    ) {
        (DohFormat::Json, DohMethod::Post) => return Err("the JSON form is a GET; it has no POST"),
        (DohFormat::Json, DohMethod::Get | DohMethod::Unspecified) => Form::Json,
        (DohFormat::Wire | DohFormat::Unspecified, DohMethod::Get) => Form::WireGet,
        (DohFormat::Wire | DohFormat::Unspecified, DohMethod::Post | DohMethod::Unspecified) => Form::WirePost,
    };
    let http = match v1::HttpVersion::try_from(wire.http).map_err(|_| "its HTTP version is not known to this agent")? {
        v1::HttpVersion::Unspecified => None,
        v1::HttpVersion::HttpVersion1 => Some(HttpVersion::Http1),
        v1::HttpVersion::HttpVersion2 => Some(HttpVersion::Http2),
    };
    Ok(DohEndpoint { port: url.port_u16().unwrap_or(443), url, host, addresses, bootstrap, form, http })
}

fn questions(wire: &v1::Questions) -> Result<Questions, Invalid> {
    let name = |what: &str, text: &str| match text {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|error| Invalid::new(what, error)),
    };
    Ok(Questions {
        known: name("questions.known", &wire.known)?,
        freshness_zone: name("questions.freshness_zone", &wire.freshness_zone)?,
        missing_zone: name("questions.missing_zone", &wire.missing_zone)?,
    })
}

fn source(wire: &v1::Source) -> Result<Source, Invalid> {
    let addresses: Option<Vec<IpAddr>> = wire.addresses.iter().map(|bytes| address(bytes)).collect();
    let addresses = addresses.ok_or_else(|| Invalid::new("source", "an address has neither 4 nor 16 bytes"))?;
    let families = |v4: bool| addresses.iter().filter(|address| address.is_ipv4() == v4).count();
    if families(true) > 1 || families(false) > 1 {
        return Err(Invalid::new("source", "more than one address of a family"));
    }
    // The kernel's limit with the closing zero (IFNAMSIZ, netdevice(7)).
    if wire.interface.len() > 15 || wire.interface.contains(['/', '\0']) {
        return Err(Invalid::new("source", "its interface is no name of an interface"));
    }
    Ok(Source { addresses, interface: (!wire.interface.is_empty()).then(|| wire.interface.clone()) })
}

fn http_check(what: &str, wire: Option<&v1::HttpCheck>) -> Result<Option<HttpCheck>, Invalid> {
    let Some(wire) = wire else { return Ok(None) };
    let invalid = |why: &str| Invalid::new(what, why);
    if !wire.path.starts_with('/') {
        return Err(invalid("the path of its HTTP request does not begin with '/'"));
    }
    let path = wire.path.parse().map_err(|_| invalid("the path of its HTTP request cannot be read"))?;
    if wire.statuses.len() > STATUSES_MAX {
        return Err(invalid("it expects more than 16 statuses"));
    }
    let status = |number: &u32| u16::try_from(*number).ok().filter(|status| (100..600).contains(status));
    let statuses: Option<Vec<u16>> = wire.statuses.iter().map(status).collect();
    let statuses = statuses.ok_or_else(|| invalid("an expected HTTP status is not 100 to 599"))?;
    if wire.read_bytes > READ_BYTES_MAX {
        return Err(invalid("it reads more than a megabyte of the body"));
    }
    Ok(Some(HttpCheck { path, statuses, read_bytes: wire.read_bytes }))
}

impl TryFrom<&v1::Canary> for Canary {
    type Error = Invalid;

    fn try_from(wire: &v1::Canary) -> Result<Self, Invalid> {
        let name: DomainName = wire.name.parse().map_err(|error| Invalid::new("canary", error))?;
        let port =
            port(wire.port).ok_or_else(|| Invalid::new(format!("canary '{name}'"), "its port is not 1 to 65535"))?;
        if wire.tls {
            server_name(name.as_str()).map_err(|why| Invalid::new(format!("canary '{name}'"), why))?;
        }
        let http = http_check(&format!("canary '{name}'"), wire.http.as_ref())?;
        if http.is_some() && !wire.tls {
            return Err(Invalid::new(format!("canary '{name}'"), "an HTTP request needs TLS first"));
        }
        Ok(Self { name, port, tls: wire.tls, live_only: wire.live_only, http, validate: wire.validate })
    }
}

impl TryFrom<&v1::Control> for Control {
    type Error = Invalid;

    fn try_from(wire: &v1::Control) -> Result<Self, Invalid> {
        let name: ControlName = wire.name.parse().map_err(|error| Invalid::new("control", error))?;
        let what = format!("control '{name}'");
        if !wire.captive_url.is_empty() {
            let url: Uri = wire.captive_url.parse().map_err(|_| Invalid::new(&what, "its URL cannot be read"))?;
            if url.scheme() != Some(&http::uri::Scheme::HTTP) || url.host().is_none_or(str::is_empty) {
                return Err(Invalid::new(what, "its captive URL is not plain http with a host: portals answer that"));
            }
            let address = match wire.address.as_slice() {
                [] => None,
                bytes => Some(address(bytes).ok_or_else(|| Invalid::new(what, "its address has not 4 or 16 bytes"))?),
            };
            return Ok(Self { name, trial: Trial::Captive { url, address } });
        }
        let (address, port) = place(&what, &wire.address, wire.port)?;
        let at = SocketAddr::new(address, port);
        if wire.negative {
            return Ok(Self { name, trial: Trial::Negative { at } });
        }
        let server_name = server_name(&wire.server_name).map_err(|why| Invalid::new(what, why))?;
        Ok(Self { name, trial: Trial::Positive { at, server_name } })
    }
}

impl TryFrom<&v1::Node> for Node {
    type Error = Invalid;

    fn try_from(wire: &v1::Node) -> Result<Self, Invalid> {
        let name: NodeName = wire.name.parse().map_err(|error| Invalid::new("node", error))?;
        let what = format!("node '{name}'");
        let (address, port) = place(&what, &wire.address, wire.port)?;
        let http = http_check(&what, wire.http.as_ref())?;
        let server_name = server_name(&wire.server_name).map_err(|why| Invalid::new(&what, why))?;
        if http.is_some() && server_name.is_none() {
            return Err(Invalid::new(what, "an HTTP request needs TLS first"));
        }
        let life = wire.life.as_ref().map(|life| responder(&what, life)).transpose()?;
        Ok(Self { name, address, port, server_name, http, life })
    }
}

fn responder(what: &str, wire: &v1::LifeResponder) -> Result<Responder, Invalid> {
    let port = port(wire.port).ok_or_else(|| Invalid::new(what, "the port of its responder is not 1 to 65535"))?;
    let key = wire.public_key.as_slice().try_into();
    Ok(Responder { port, public_key: key.map_err(|_| Invalid::new(what, "its public key has not 32 bytes"))? })
}

fn place(what: &str, bytes: &[u8], number: u32) -> Result<(IpAddr, u16), Invalid> {
    let address = address(bytes).ok_or_else(|| Invalid::new(what, "its address has neither 4 nor 16 bytes"))?;
    Ok((address, port(number).ok_or_else(|| Invalid::new(what, "its port is not 1 to 65535"))?))
}

/// An address of the wire: 4 or 16 bytes.
#[must_use]
pub fn address(bytes: &[u8]) -> Option<IpAddr> {
    <[u8; 4]>::try_from(bytes).map(IpAddr::from).or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

fn port(number: u32) -> Option<u16> {
    u16::try_from(number).ok().filter(|port| *port != 0)
}

/// A name that TLS can ask for; `None`: no TLS.
fn server_name(text: &str) -> Result<Option<String>, &'static str> {
    if text.is_empty() {
        return Ok(None);
    }
    ServerName::try_from(text).map_err(|_| "its TLS server name is no DNS name and no address")?;
    Ok(Some(text.to_owned()))
}

impl TryFrom<&v1::Schedule> for Schedule {
    type Error = Invalid;

    fn try_from(wire: &v1::Schedule) -> Result<Self, Invalid> {
        let mut attempt_at: Vec<Duration> = wire.attempt_at_ms.iter().map(|ms| ms_of(*ms)).collect();
        // The first attempt starts with the probe, whether or not the list says so.
        attempt_at.push(Duration::ZERO);
        attempt_at.sort_unstable();
        attempt_at.dedup();
        attempt_at.truncate(ATTEMPTS_MAX);
        let burst_gaps: Vec<Duration> = wire.burst_gap_ms.iter().map(|ms| ms_of(*ms)).collect();
        if burst_gaps.len() > BURST_MAX || burst_gaps.iter().any(|gap| *gap > BURST_GAP_MAX) {
            return Err(Invalid::new("burst_gap_ms", format!("at most {BURST_MAX} gaps of at most 60000 are taken")));
        }
        Ok(Self {
            canary_every: between("canary_every_ms", wire.canary_every_ms, INTERVAL_MIN, INTERVAL_MAX)?,
            node_every: between("node_every_ms", wire.node_every_ms, INTERVAL_MIN, INTERVAL_MAX)?,
            control_every: between("control_every_ms", wire.control_every_ms, INTERVAL_MIN, INTERVAL_MAX)?,
            endpoint_every: between("endpoint_every_ms", wire.endpoint_every_ms, INTERVAL_MIN, INTERVAL_MAX)?,
            offset_permille: wire.offset_permille.min(999),
            limits: Limits {
                attempt_at,
                connect: between("connect_timeout_ms", wire.connect_timeout_ms, LIMIT_MIN, LIMIT_MAX)?,
                tls: between("tls_timeout_ms", wire.tls_timeout_ms, LIMIT_MIN, LIMIT_MAX)?,
                http: match wire.http_timeout_ms {
                    // A coordinator of before it was known.
                    0 => HTTP_TIMEOUT,
                    ms => between("http_timeout_ms", ms, LIMIT_MIN, LIMIT_MAX)?,
                },
                resolve: between("resolve_timeout_ms", wire.resolve_timeout_ms, LIMIT_MIN, LIMIT_MAX)?,
                udp_hold: between("udp_hold_ms", wire.udp_hold_ms, Duration::ZERO, UDP_HOLD_MAX)?,
            },
            burst_gaps,
            jitter_permille: wire.jitter_permille.min(JITTER_PERMILLE_MAX),
        })
    }
}

fn ms_of(ms: u32) -> Duration {
    Duration::from_millis(u64::from(ms))
}

fn between(what: &str, ms: u32, least: Duration, most: Duration) -> Result<Duration, Invalid> {
    let value = ms_of(ms);
    if value < least || value > most {
        let why = format!("{ms} ms is not between {} and {} ms", least.as_millis(), most.as_millis());
        return Err(Invalid::new(what, why));
    }
    Ok(value)
}

#[cfg(test)]
pub(crate) mod tests;
