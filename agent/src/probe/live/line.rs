//! One name server of a resolv.conf(5), as the C library reads it.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use nix::net::if_::{if_indextoname, if_nametoindex};

/// The port of DNS; resolv.conf(5) knows no other.
const DNS: u16 = 53;

/// Longest part of a line that is quoted, in characters.
const QUOTED_MAX: usize = 100;

/// A line that names a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    text: String,
    what: Result<Named, &'static str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Named {
    address: IpAddr,
    scope: Option<String>,
}

/// Why a line gives no server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the line '{line}' gives no name server: {why}")]
pub(super) struct Skipped {
    line: String,
    why: &'static str,
}

impl Line {
    /// Reads a line; `None`: it is about something else.
    pub(super) fn read(text: &str) -> Option<Self> {
        // The keyword begins the line (resolv.conf(5)).
        let value = text.strip_prefix("nameserver")?;
        if !value.is_empty() && !value.starts_with([' ', '\t']) {
            return None;
        }
        let value = value.split([';', '#']).next().unwrap_or_default();
        let what = match value.split_whitespace().next() {
            None => Err("it holds no address"),
            Some(value) => named(value),
        };
        Some(Self { text: text.trim_end().chars().take(QUOTED_MAX).collect(), what })
    }

    /// The server, by the interfaces as they are now.
    pub(super) fn server(&self) -> Result<SocketAddr, Skipped> {
        let skipped = |why| Skipped { line: self.text.clone(), why };
        let named = self.what.as_ref().map_err(|why| skipped(why))?;
        match (named.address, &named.scope) {
            (IpAddr::V6(address), Some(scope)) => {
                let scope = interface(scope).ok_or_else(|| skipped("this machine has no such interface"))?;
                Ok(SocketAddrV6::new(address, DNS, 0, scope).into())
            }
            (IpAddr::V6(address), None) if address.is_unicast_link_local() => {
                Err(skipped("a link-local address needs its interface, as in fe80::1%eth0"))
            }
            (address, _) => Ok(SocketAddr::new(address, DNS)),
        }
    }
}

fn named(value: &str) -> Result<Named, &'static str> {
    let (address, scope) = match value.split_once('%') {
        None => (value, None),
        Some((address, scope)) => (address, Some(scope.to_owned())),
    };
    let address = address.parse().map_err(|_| "what stands there is no address")?;
    match (address, scope) {
        (IpAddr::V4(_), Some(_)) => Err("an IPv4 address has no interface"),
        (address, scope) => Ok(Named { address, scope }),
    }
}

/// Number of an interface that is given by name or by number; `None`: there is none.
fn interface(scope: &str) -> Option<u32> {
    match scope.parse::<u32>() {
        // For a number that no interface has the name is empty, and no error.
        Ok(number) => if_indextoname(number).is_ok_and(|name| !name.is_empty()).then_some(number),
        Err(_) => if_nametoindex(scope).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(text: &str) -> Option<Result<String, String>> {
        let read = Line::read(text)?.server();
        Some(read.map(|server| server.to_string()).map_err(|skipped| skipped.to_string()))
    }

    #[test]
    fn lines_are_read_as_the_c_library_reads_them() {
        for (text, expected) in [
            ("nameserver 203.0.113.53", "203.0.113.53:53"),
            ("nameserver\t203.0.113.53 \r", "203.0.113.53:53"),
            ("nameserver 203.0.113.53 # ours", "203.0.113.53:53"),
            ("nameserver 2001:db8::53;x", "[2001:db8::53]:53"),
            ("nameserver fe80::1%lo", "[fe80::1%1]:53"),
            ("nameserver fe80::1%1", "[fe80::1%1]:53"),
        ] {
            assert_eq!(server(text), Some(Ok(expected.to_owned())), "{text}");
        }
        for other in ["", "# nameserver 9.9.9.9", " nameserver 9.9.9.9", "nameservers 9.9.9.9", "search example.com"] {
            assert_eq!(server(other), None, "{other}");
        }
    }

    #[test]
    fn a_line_that_gives_none_is_quoted_with_the_reason() {
        for (text, why) in [
            ("nameserver", "no address"),
            ("nameserver foo", "no address"),
            ("nameserver 203.0.113.300", "no address"),
            ("nameserver 203.0.113.53%eth0", "IPv4"),
            ("nameserver fe80::1", "needs its interface"),
            ("nameserver fe80::1%", "no such interface"),
            ("nameserver fe80::1%no-such-if0", "no such interface"),
            ("nameserver fe80::1%4294967295", "no such interface"),
            ("nameserver fe80::1%99999999999", "no such interface"),
        ] {
            let said = server(text).unwrap().unwrap_err();
            assert!(said.contains(why) && said.contains(&format!("'{text}'")), "{said}");
        }
        let long = server(&format!("nameserver {}", "x".repeat(1000))).unwrap().unwrap_err();
        assert!(long.len() < 200, "{long}");
    }
}
