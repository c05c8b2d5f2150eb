//! Looks up a coordinator's name, at each connection anew.
//!
//! The system's own look-up blocks a thread and can hang for longer than a connection may take. It
//! is then left to itself and its outcome used the next time: one at a time for each name, however
//! often we reconnect.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Longest wait for the name look-up. A place whose DNS is broken is just the one we want to hear from.
const LOOKUP_MAX: Duration = Duration::from_secs(3);

/// Most addresses of one name that are tried.
pub const ADDRESSES_MAX: usize = 8;

/// A host's look-ups.
#[derive(Debug, Default)]
pub struct Lookup {
    /// One that did not end in time.
    hanging: Option<(String, JoinHandle<io::Result<Vec<SocketAddr>>>)>,
}

impl Lookup {
    /// Addresses of a host, families taking turns (RFC 8305, 4), without those that can be nobody's.
    ///
    /// # Errors
    /// What the system said; "timed out" when it said nothing; "not found" when nothing usable is left.
    pub async fn addresses(&mut self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(literal) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(literal, port)]);
        }
        let (asked, mut running) = match self.hanging.take() {
            Some((asked, running)) if asked == host => (asked, running),
            // Another host's that still hangs ends by itself.
            Some(_) | None => {
                let name = host.to_owned();
                let running = tokio::spawn(async move { Ok(tokio::net::lookup_host((name, port)).await?.collect()) });
                (host.to_owned(), running)
            }
        };
        let found = match timeout(LOOKUP_MAX, &mut running).await {
            Ok(Ok(found)) => found?,
            Ok(Err(broken)) => return Err(io::Error::other(broken)),
            Err(_) => {
                self.hanging = Some((asked, running));
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the look-up did not end in time"));
            }
        };
        let usable = interleaved(found.into_iter().filter(|address| is_usable(address.ip())).collect());
        match usable.is_empty() {
            true => Err(io::Error::new(io::ErrorKind::NotFound, "the look-up gave no usable address")),
            false => Ok(usable),
        }
    }
}

/// Whether a coordinator can be there at all. Private and loopback addresses can be right.
fn is_usable(address: IpAddr) -> bool {
    let broadcast = match address {
        IpAddr::V4(v4) => v4.is_broadcast() || v4.octets().first() == Some(&0),
        IpAddr::V6(_) => false,
    };
    !(address.is_unspecified() || address.is_multicast() || broadcast)
}

/// The families in turns, beginning with the system's first choice; otherwise in the system's order.
fn interleaved(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (mut ours, mut others): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| address.is_ipv6() == first_is_v6);
    ours.reverse();
    others.reverse();
    let mut turns = Vec::new();
    while turns.len() < ADDRESSES_MAX && !(ours.is_empty() && others.is_empty()) {
        turns.extend(ours.pop());
        turns.extend(others.pop());
    }
    turns.truncate(ADDRESSES_MAX);
    turns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| SocketAddr::new(text.parse().unwrap(), 1)).collect()
    }

    #[test]
    fn families_take_turns_and_many_addresses_are_cut() {
        let mixed = addresses(&["::1", "::2", "::3", "127.0.0.1"]);
        assert_eq!(interleaved(mixed), addresses(&["::1", "127.0.0.1", "::2", "::3"]));
        let many: Vec<String> = (1..50).map(|last| format!("10.0.0.{last}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(interleaved(addresses(&many)), addresses(&many[..ADDRESSES_MAX]));
    }

    #[tokio::test]
    async fn a_literal_is_not_looked_up_and_a_name_without_a_use_is_an_error() {
        let mut lookup = Lookup::default();
        assert_eq!(lookup.addresses("::1", 7).await.unwrap(), ["[::1]:7".parse().unwrap()]);
        assert!(lookup.addresses("no.such.name.invalid", 7).await.is_err());
        for nobodys in ["0.0.0.0", "0.1.2.3", "255.255.255.255", "224.0.0.1", "::", "ff02::1"] {
            assert!(!is_usable(nobodys.parse().unwrap()), "{nobodys}");
        }
        assert!(is_usable("10.0.0.1".parse().unwrap()));
    }
}
