//! What this machine's own routing table says of an address. Asking sends nothing.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd as _;

use nix::errno::Errno;
use nix::sys::socket::{SockType, SockaddrStorage, connect};
use parallax_decide::observation::{Family, Outcome};

use super::open;
use super::source::Origin;
use super::told::{Told, errno, told};

/// Well-known global addresses, used only to ask the kernel for a route to their family. Nothing
/// is sent to them.
const ROUTE_TEST_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(8, 8, 8, 8));
const ROUTE_TEST_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0x4860, 0x4860, 0, 0, 0, 0, 0x8888));

/// Whether this machine's routing table knows where to send packets to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// It does, or it could not be asked: nothing is proven.
    Open,
    /// It does not, while others of that family have a way.
    NoRoute,
    /// There is no way out for the whole family.
    FamilyUnavailable,
}

impl Way {
    /// The outcome of what was left out because there is no way.
    #[must_use]
    pub fn outcome(self) -> Option<Outcome> {
        match self {
            Self::Open => None,
            Self::NoRoute => Some(Outcome::NoRoute),
            Self::FamilyUnavailable => Some(Outcome::FamilyUnavailable),
        }
    }
}

/// The error of a connect that this machine's own kernel refused at once.
pub(super) fn refused_here(to: IpAddr, origin: &Origin, number: Errno) -> io::Error {
    match way(to, origin).outcome() {
        Some(outcome) => Told::new(outcome, "the routing table has no way", number).into(),
        None => number.into(),
    }
}

pub(super) fn way(to: IpAddr, origin: &Origin) -> Way {
    match has_a_way(to, origin) {
        true => Way::Open,
        false if family_has_a_way(Family::of(to), origin) => Way::NoRoute,
        false => Way::FamilyUnavailable,
    }
}

pub(super) fn family_has_a_way(family: Family, origin: &Origin) -> bool {
    match family {
        Family::V4 => has_a_way(ROUTE_TEST_V4, origin),
        Family::V6 => has_a_way(ROUTE_TEST_V6, origin),
    }
}

/// Whether the kernel lets a UDP socket be connected, which sends nothing.
fn has_a_way(to: IpAddr, origin: &Origin) -> bool {
    let asked = || -> io::Result<()> {
        let socket = open(Family::of(to), SockType::Datagram)?;
        origin.apply(&socket, Family::of(to))?;
        // Any port does; 53 is what the family's test addresses serve.
        connect(socket.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(to, 53)))?;
        Ok(())
    };
    // Only these say that there is no way; anything else is no proof of that.
    asked().err().filter(|error| told(error).is_none()).and_then(|error| errno(&error)).is_none_or(|number| {
        !matches!(
            number,
            Errno::ENETUNREACH
                | Errno::EADDRNOTAVAIL
                | Errno::EAFNOSUPPORT
                // The route is of type "unreachable", "prohibit" or "blackhole" (ip-route(8)).
                | Errno::EHOSTUNREACH
                | Errno::EACCES
                | Errno::EINVAL
        )
    })
}
