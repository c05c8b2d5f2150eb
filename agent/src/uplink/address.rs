//! Where a coordinator is said to be: a host and a port.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Most coordinators one agent may be given: each is tried in turn, and the turn must come round.
pub const COORDINATORS_MAX: usize = 8;

/// Longest host: a DNS name is at most 253 characters as text (RFC 1035, 2.3.4).
const HOST_BYTES_MAX: usize = 253;

/// A coordinator's host and port, as the owner wrote them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Coordinator {
    /// Name or literal address; an IPv6 address without its brackets.
    pub host: String,
    /// TCP port, never 0.
    pub port: u16,
}

/// Why a text is no coordinator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write it as HOST:PORT, like 10.0.0.1:8443 or [2001:db8::1]:8443")]
pub struct NotHostAndPort;

impl Coordinator {
    /// The literal address, when the host is one.
    #[must_use]
    pub fn literal(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }
}

impl FromStr for Coordinator {
    type Err = NotHostAndPort;

    fn from_str(text: &str) -> Result<Self, NotHostAndPort> {
        let (host, port) = text.rsplit_once(':').ok_or(NotHostAndPort)?;
        let port = port.parse::<u16>().ok().filter(|port| *port != 0).ok_or(NotHostAndPort)?;
        let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let host = match bracketed {
            Some(inside) if inside.parse::<std::net::Ipv6Addr>().is_ok() => inside,
            // Without brackets the end of an IPv6 address cannot be told from a port.
            None if !host.contains(':') => host,
            Some(_) | None => return Err(NotHostAndPort),
        };
        let printable = host.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/' && byte != b'@');
        if host.is_empty() || host.len() > HOST_BYTES_MAX || !printable {
            return Err(NotHostAndPort);
        }
        Ok(Self { host: host.to_owned(), port })
    }
}

impl fmt::Display for Coordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_and_a_port_come_back_as_written() {
        for text in ["a:8443", "10.0.0.1:8443", "[2001:db8::1]:8443", "coordinator.example.com:1"] {
            assert_eq!(text.parse::<Coordinator>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_not_host_and_port_is_refused() {
        for bad in
            ["nothing", "host:", ":8443", "host:0", "host:99999", "2001:db8::1", "2001:db8::1:8443", "[a]:1", "a b:1"]
        {
            assert_eq!(bad.parse::<Coordinator>(), Err(NotHostAndPort), "{bad}");
        }
    }
}
