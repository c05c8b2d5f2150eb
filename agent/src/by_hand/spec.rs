//! Resolvers as they are written on the command line.

use std::net::{IpAddr, SocketAddr};

use http::Uri;
use parallax_decide::names::ResolverName;
use rustls_pki_types::ServerName;

use crate::assignment::{Resolver, Transport};
use crate::probe::doh::{DohEndpoint, Form};

/// Reads one resolver.
///
/// # Errors
/// What is wrong with the text, and how it is written.
pub fn resolver(text: &str) -> Result<Resolver, String> {
    let transport = if text == "live" {
        Transport::Live
    } else if let Some(rest) = text.strip_prefix("tcp://") {
        Transport::Tcp { server: server(rest, 53)? }
    } else if let Some(rest) = text.strip_prefix("tls://") {
        let (host, at) = rest.split_once('@').unwrap_or((rest, rest));
        let (address, host) = (server(at, 853)?, host.trim_matches(['[', ']']));
        ServerName::try_from(host).map_err(|_| format!("'{host}' is no TLS server name"))?;
        Transport::Dot { server: address, server_name: host.to_owned() }
    } else if let Some((form, url)) = over_https(text) {
        Transport::Doh(endpoint(form, url)?)
    } else {
        Transport::Plain { server: server(text.strip_prefix("udp://").unwrap_or(text), 53)? }
    };
    Ok(Resolver { name: name(&transport)?, transport })
}

fn over_https(text: &str) -> Option<(Form, &str)> {
    for (prefix, form) in [("https://", Form::WirePost), ("get+https://", Form::WireGet), ("json+https://", Form::Json)]
    {
        if text.starts_with(prefix) {
            return Some((form, text.split_once('+').map_or(text, |(_, url)| url)));
        }
    }
    None
}

fn endpoint(form: Form, text: &str) -> Result<DohEndpoint, String> {
    let (url, address) = match text.rsplit_once('@') {
        None => (text, None),
        Some((url, at)) => (url, Some(address(at)?)),
    };
    let why =
        |why: &str| format!("'{url}' is no URL of a resolver: {why}; write it like https://dns.example/dns-query");
    let uri: Uri = url.parse().map_err(|_| why("it cannot be read"))?;
    let host = uri.host().map(|host| host.trim_matches(['[', ']']).to_owned()).filter(|host| !host.is_empty());
    let host = host.ok_or_else(|| why("it has no host"))?;
    ServerName::try_from(host.as_str()).map_err(|_| why("its host is no TLS server name"))?;
    let addresses = address.or_else(|| host.parse().ok()).into_iter().collect();
    Ok(DohEndpoint {
        port: uri.port_u16().unwrap_or(443),
        url: uri,
        host,
        addresses,
        bootstrap: Vec::new(),
        form,
        http: None,
    })
}

fn address(text: &str) -> Result<IpAddr, String> {
    text.trim_matches(['[', ']']).parse().map_err(|_| format!("'{text}' is no IP address"))
}

/// An address with a port, or without.
fn server(text: &str, port: u16) -> Result<SocketAddr, String> {
    if let Ok(server) = text.parse::<SocketAddr>() {
        return Ok(server);
    }
    let bracketless = text.contains(':') && !text.contains('[');
    match text.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(address) => Ok(SocketAddr::new(address, port)),
        Err(_) if bracketless => {
            Err(format!("'{text}' cannot be read; an IPv6 address with a port is written [2001:db8::53]:{port}"))
        }
        Err(_) => Err(format!(
            "'{text}' is no address; resolvers are named by address, like 1.1.1.1 or tls://one.one.one.one@1.1.1.1"
        )),
    }
}

/// A short name that the records can carry, like `doh-dns-quad9-net`.
fn name(transport: &Transport) -> Result<ResolverName, String> {
    let (kind, rest) = match transport {
        Transport::Live => ("live", String::new()),
        Transport::Plain { server } => ("udp", server.ip().to_string()),
        Transport::Tcp { server } => ("tcp", server.ip().to_string()),
        Transport::Dot { server_name, .. } => ("dot", server_name.clone()),
        Transport::Doh(endpoint) => match endpoint.form {
            Form::WirePost => ("doh", endpoint.host.clone()),
            Form::WireGet => ("doh-get", endpoint.host.clone()),
            Form::Json => ("doh-json", endpoint.host.clone()),
        },
    };
    let plain = rest.to_ascii_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let parts: Vec<&str> = std::iter::once(kind).chain(plain.split('-').filter(|part| !part.is_empty())).collect();
    let joined = parts.join("-");
    joined.parse().map_err(|error| format!("'{rest}' makes no name: {error}"))
}

/// What is asked when nothing is named: the live resolver; two operators over HTTPS; the same over
/// plain DNS, which shows forged answers beside genuine ones.
#[must_use]
pub fn usual() -> Vec<Resolver> {
    let usual = [
        "live",
        "https://cloudflare-dns.com/dns-query@1.1.1.1",
        "https://dns.quad9.net/dns-query@9.9.9.9",
        "1.1.1.1",
        "8.8.8.8",
    ];
    usual.iter().filter_map(|text| resolver(text).ok()).collect()
}

/// An endpoint without an address is looked up at the live resolver, as any program here would do.
#[must_use]
pub fn with_bootstrap(mut resolvers: Vec<Resolver>, live: &[SocketAddr]) -> Vec<Resolver> {
    for resolver in &mut resolvers {
        match &mut resolver.transport {
            Transport::Doh(endpoint) if endpoint.addresses.is_empty() => endpoint.bootstrap = live.to_vec(),
            Transport::Live
            | Transport::Plain { .. }
            | Transport::Tcp { .. }
            | Transport::Dot { .. }
            | Transport::Doh(_) => {}
        }
    }
    resolvers
}
