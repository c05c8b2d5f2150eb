//! Addresses and URLs as people write them, with the right spelling where one is wrong.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use axum::http::Uri;

/// Longest URL, in bytes: what the wire takes.
const URL_BYTES_MAX: usize = 255;

/// An address with its port. `usual` is the port that a suggestion names.
///
/// # Errors
/// What is wrong, with the right spelling.
pub fn socket(text: &str, usual: u16) -> Result<SocketAddr, String> {
    if let Ok(found) = text.parse::<SocketAddr>() {
        return if found.port() == 0 { Err("port 0 cannot be contacted".to_owned()) } else { Ok(found) };
    }
    if let Some((scheme, rest)) = text.split_once("://") {
        let right = socket(rest, usual).map_or_else(|_| bracketed(rest, usual), |found| Some(found.to_string()));
        let right = right.unwrap_or_else(|| format!("ADDRESS:{usual}"));
        return Err(format!("`{text}` is a URL ({scheme}); an address and a port are wanted, as in \"{right}\""));
    }
    match bracketed(text, usual) {
        Some(right) if text.parse::<Ipv6Addr>().is_ok() => {
            Err(format!("`{text}`: an IPv6 address stands in brackets before its port, as in \"{right}\""))
        }
        Some(right) => Err(format!("`{text}` has no port; write \"{right}\"")),
        None => Err(format!(
            "`{text}` is no address with a port, as in \"192.0.2.53:{usual}\" or \"[2001:db8::53]:{usual}\""
        )),
    }
}

/// How an address without brackets or without a port is meant.
fn bracketed(text: &str, usual: u16) -> Option<String> {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>().ok()? {
        IpAddr::V4(v4) => Some(format!("{v4}:{usual}")),
        IpAddr::V6(v6) => {
            // Without brackets the last group reads as a part of the address; it was meant as the port where
            // the rest is an address too.
            let meant = bare.rsplit_once(':').and_then(|(host, port)| {
                let host = host.parse::<Ipv6Addr>().ok()?;
                let port = port.parse::<u16>().ok().filter(|port| *port == usual)?;
                Some(format!("[{host}]:{port}"))
            });
            Some(meant.unwrap_or_else(|| format!("[{v6}]:{usual}")))
        }
    }
}

/// A URL of this scheme with a host: the URL, and its host where that is an address.
///
/// # Errors
/// What is wrong, with the right spelling.
pub fn url(text: &str, scheme: &str) -> Result<(Uri, Option<IpAddr>), String> {
    let wanted = format!("must read {scheme}://HOST/PATH");
    if text.len() > URL_BYTES_MAX {
        return Err(format!("has {} bytes; at most {URL_BYTES_MAX} are taken", text.len()));
    }
    let Some(rest) = text.strip_prefix(scheme).and_then(|rest| rest.strip_prefix("://")) else {
        return Err(wanted);
    };
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    if authority.is_empty() {
        return Err(wanted);
    }
    if authority.contains('@') {
        return Err("must not hold a user name or a password".to_owned());
    }
    if let Some(right) = url_bracketed(authority) {
        return Err(format!("an IPv6 address in a URL stands in brackets: {scheme}://{right}{path}"));
    }
    if text.contains(['{', '}']) {
        // RFC 8484 writes templates; the question is added here anyhow.
        return Err("must be without the template: leave out what stands in braces".to_owned());
    }
    let uri: Uri = text.parse().map_err(|error| format!("url: {error}"))?;
    let host = uri.host().filter(|host| !host.is_empty()).ok_or(wanted)?;
    let address = host.trim_start_matches('[').trim_end_matches(']').parse().ok();
    if host.starts_with('[') && address.is_none() {
        return Err(format!("`{host}` is no IPv6 address"));
    }
    Ok((uri, address))
}

/// The right spelling of an authority that is an IPv6 address without brackets.
fn url_bracketed(authority: &str) -> Option<String> {
    let bare = !authority.contains('[') && authority.matches(':').count() > 1;
    bare.then(|| authority.parse::<Ipv6Addr>().ok().map(|v6| format!("[{v6}]"))).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b46_an_address_without_brackets_is_told_how_to_be_spelt() {
        for good in ["192.0.2.53:53", "[2001:db8::53]:853"] {
            assert_eq!(socket(good, 853).unwrap().to_string(), good);
        }
        for (wrong, right) in [
            ("2001:db8::53:853", "[2001:db8::53]:853"),
            ("2001:db8::53", "[2001:db8::53]:853"),
            ("[2001:db8::53]", "[2001:db8::53]:853"),
            ("tls://2001:db8::53", "[2001:db8::53]:853"),
            ("tls://192.0.2.1:853", "192.0.2.1:853"),
            ("192.0.2.1", "192.0.2.1:853"),
            ("dns.example.net", "[2001:db8::53]:853"),
            ("192.0.2.1:0", "port 0"),
        ] {
            let said = socket(wrong, 853).unwrap_err();
            assert!(said.contains(right), "{wrong}: {said}");
        }
    }

    #[test]
    fn b46_a_url_with_a_bare_ipv6_address_is_told_how_to_be_spelt() {
        let (_, address) = url("https://[2001:db8::53]/dns-query", "https").unwrap();
        assert_eq!(address, Some("2001:db8::53".parse().unwrap()));
        let (uri, address) = url("https://[2001:db8::53]:8443/dns-query", "https").unwrap();
        assert_eq!((uri.port_u16(), address), (Some(8443), Some("2001:db8::53".parse().unwrap())));
        assert_eq!(url("https://dns.example.net/dns-query", "https").unwrap().1, None);
        assert_eq!(url("https://192.0.2.1/", "https").unwrap().1, Some("192.0.2.1".parse().unwrap()));
        for (wrong, right) in [
            ("https://2001:db8::53/dns-query", "https://[2001:db8::53]/dns-query"),
            ("https://[2001:db8::zz]/", "is no IPv6 address"),
            ("https://", "must read https://HOST/PATH"),
            ("http://dns.example.net/", "must read https://HOST/PATH"),
            ("https://me:secret@dns.example.net/", "must not hold a user name"),
            ("https://dns.example.net/dns-query{?dns}", "leave out what stands in braces"),
        ] {
            let said = url(wrong, "https").unwrap_err();
            assert!(said.contains(right) && !said.contains("secret"), "{wrong}: {said}");
        }
    }
}
