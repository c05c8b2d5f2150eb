//! The only door to the network.
//!
//! Addresses are literal and were passed by [`crate::policy`]; nothing is looked up here. Sockets come
//! from the source that the assignment asks for, except those to the name servers of the owner's own
//! choice, which are asked as clients at this place ask them.
//!
//! Why nobody was reached is told as exactly as the kernel allows: its own routing table ([`told()`]
//! gives "no route" or "no such family"), or what routers and hosts said ([`crate::probe::icmp`]).
//!
//! With the cargo feature `lab` a map from public address to local socket applies to every dial, so
//! that a whole world fits on the loopback interface while everything else sees the public addresses.

#[cfg(feature = "lab")]
mod lab;
mod source;
#[cfg(test)]
mod tests;
mod told;
mod way;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::{Arc, PoisonError, RwLock};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, connect, setsockopt, socket, sockopt};
use parallax_decide::observation::Family;
#[cfg(feature = "lab")]
use parallax_decide::observation::Outcome;
use tokio::net::{TcpStream, UdpSocket};

use self::source::Origin;
use self::told::Told;
pub use self::told::{errno, told};
pub use self::way::Way;
use self::way::{family_has_a_way, refused_here, way};
use crate::assignment::Source;
use crate::probe::icmp;

/// The segment size every host must take, in bytes (RFC 9293, 3.7.1; 536 since RFC 879): with it no packet
/// is larger than 576 bytes over IPv4 and 596 over IPv6.
pub const SMALL_SEGMENT_BYTES: u32 = 536;

/// Size of the segments of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segments {
    /// None: the handshake is what is looked at, and nothing will be sent. Spares the calls that prepare for it.
    None,
    /// What the kernel takes for the path.
    Usual,
    /// At most [`SMALL_SEGMENT_BYTES`] in both directions: passes where large packets vanish.
    Small,
}

/// Opens sockets.
#[derive(Debug, Default)]
pub struct Dialer {
    origin: RwLock<Arc<Origin>>,
    #[cfg(feature = "lab")]
    map: Option<lab::LabMap>,
}

impl Dialer {
    /// Dials every address as it is.
    #[must_use]
    pub fn direct() -> Self {
        Self::default()
    }

    /// Dials through a map (JSON object from public `address:port` to local `address:port`).
    #[cfg(feature = "lab")]
    #[must_use]
    pub fn mapped(file: std::path::PathBuf) -> Self {
        Self { map: Some(lab::LabMap::new(file)), ..Self::default() }
    }

    /// From now on sockets come from this source. Those that are open stay as they are.
    pub fn come_from(&self, source: &Source) {
        let mut origin = self.origin.write().unwrap_or_else(PoisonError::into_inner);
        if !origin.is(source) {
            *origin = Arc::new(Origin::new(source.clone()));
        }
    }

    fn origin(&self) -> Arc<Origin> {
        Arc::clone(&self.origin.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// One TCP connection from a new source port. It lasts until the kernel gives up; the caller
    /// sets the deadline, and dropping the future closes the socket.
    ///
    /// # Errors
    /// What [`told()`] or the kernel's number says; "connection refused" also when the kernel joined the
    /// socket to itself, which can happen between two local ephemeral ports.
    pub async fn tcp(&self, to: SocketAddr) -> io::Result<TcpStream> {
        self.tcp_in(Segments::Usual, to).await
    }

    /// As [`Self::tcp`], with segments of a chosen size in both directions.
    ///
    /// # Errors
    /// As [`Self::tcp`].
    pub async fn tcp_in(&self, segments: Segments, to: SocketAddr) -> io::Result<TcpStream> {
        self.stream(to, &self.origin(), segments).await
    }

    async fn stream(&self, to: SocketAddr, origin: &Origin, segments: Segments) -> io::Result<TcpStream> {
        let to = self.route(to)?;
        let family = Family::of(to.ip());
        let socket = open(family, SockType::Stream)?;
        origin.apply(&socket, family)?;
        match segments {
            Segments::None | Segments::Usual => {}
            Segments::Small => setsockopt(&socket, sockopt::TcpMaxSeg, &SMALL_SEGMENT_BYTES)?,
        }
        // Before Linux 6.2 the queue of a TCP socket stays empty; then the error number has to do.
        icmp::listen(&socket, family, true)?;
        match connect(socket.as_raw_fd(), &SockaddrStorage::from(to)) {
            Ok(()) | Err(Errno::EINPROGRESS) => {}
            Err(number) => return Err(refused_here(to.ip(), origin, number)),
        }
        let stream = TcpStream::from_std(socket.into())?;
        stream.writable().await?;
        if let Some(error) = stream.take_error()? {
            return Err(explained(&stream, error));
        }
        // The peer is checked again: a socket that talks to anybody else proves nothing.
        if stream.peer_addr()? != to || stream.local_addr()? == to {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        match segments {
            Segments::None => {}
            Segments::Usual | Segments::Small => {
                // A connection that is up does not end because of one router's word (RFC 5461).
                icmp::listen(&stream, family, false)?;
                stream.set_nodelay(true)?;
            }
        }
        Ok(stream)
    }

    /// A UDP socket on a source port chosen by the kernel, which takes datagrams from `to` alone
    /// and keeps what routers and hosts say: ask [`icmp::why`] when sending or receiving fails.
    ///
    /// # Errors
    /// What [`told()`] or the kernel's number says.
    pub fn udp(&self, to: SocketAddr) -> io::Result<UdpSocket> {
        self.connected(to, &self.origin())
    }

    fn connected(&self, to: SocketAddr, origin: &Origin) -> io::Result<UdpSocket> {
        let to = self.route(to)?;
        let family = Family::of(to.ip());
        let socket = open(family, SockType::Datagram)?;
        origin.apply(&socket, family)?;
        icmp::listen(&socket, family, true)?;
        connect(socket.as_raw_fd(), &SockaddrStorage::from(to))
            .map_err(|number| refused_here(to.ip(), origin, number))?;
        UdpSocket::from_std(socket.into())
    }

    /// A UDP socket that hears from everybody and keeps what routers and hosts say, and where to send. What
    /// comes from elsewhere must be told apart by the caller, and when sending fails, [`Self::way`] asked.
    ///
    /// # Errors
    /// What [`told()`] or the kernel's number says.
    pub fn datagrams(&self, to: SocketAddr) -> io::Result<(UdpSocket, SocketAddr)> {
        self.unconnected(to, &self.origin())
    }

    fn unconnected(&self, to: SocketAddr, origin: &Origin) -> io::Result<(UdpSocket, SocketAddr)> {
        let to = self.route(to)?;
        let family = Family::of(to.ip());
        let socket = open(family, SockType::Datagram)?;
        origin.apply(&socket, family)?;
        icmp::listen(&socket, family, true)?;
        Ok((UdpSocket::from_std(socket.into())?, to))
    }

    /// As [`Self::datagrams`], for a name server of the owner's own choice: in a lab such a server may be
    /// a local one that the map does not know.
    ///
    /// # Errors
    /// As [`Self::datagrams`].
    pub fn datagrams_own(&self, to: SocketAddr) -> io::Result<(UdpSocket, SocketAddr)> {
        match self.unconnected(to, &Origin::default()) {
            Err(error) if self.is_lab() && is_net_unreachable(&error) => {
                Self::direct().unconnected(to, &Origin::default())
            }
            outcome => outcome,
        }
    }

    /// As [`Self::tcp`], for a name server of the owner's own choice.
    ///
    /// # Errors
    /// As [`Self::tcp`].
    pub async fn tcp_own(&self, to: SocketAddr) -> io::Result<TcpStream> {
        match self.stream(to, &Origin::default(), Segments::Usual).await {
            Err(error) if self.is_lab() && is_net_unreachable(&error) => {
                Self::direct().stream(to, &Origin::default(), Segments::Usual).await
            }
            outcome => outcome,
        }
    }

    /// Whether this place has a route for the family at all. Asks the kernel; sends nothing.
    #[must_use]
    pub fn family_available(&self, family: Family) -> bool {
        #[cfg(feature = "lab")]
        if let Some(map) = &self.map {
            return map.holds(family);
        }
        family_has_a_way(family, &self.origin())
    }

    /// Whether this machine knows a way to the address. Asks the kernel; sends nothing.
    #[must_use]
    pub fn way(&self, to: IpAddr) -> Way {
        let origin = self.origin();
        match self.route(SocketAddr::new(to, 0)) {
            Ok(to) => way(to.ip(), &origin),
            // What a lab's map does not hold is unreachable behind a route.
            Err(_) if self.family_available(Family::of(to)) => Way::Open,
            Err(_) => Way::FamilyUnavailable,
        }
    }

    #[cfg(feature = "lab")]
    fn route(&self, to: SocketAddr) -> io::Result<SocketAddr> {
        match &self.map {
            None => Ok(to),
            Some(map) => map.find(to).ok_or_else(|| {
                let family = map.holds(Family::of(to.ip()));
                let outcome = if family { Outcome::NetUnreachable } else { Outcome::FamilyUnavailable };
                Told::new(outcome, "the lab's map has no such address", Errno::ENETUNREACH).into()
            }),
        }
    }

    #[cfg(not(feature = "lab"))]
    fn route(&self, to: SocketAddr) -> io::Result<SocketAddr> {
        Ok(to)
    }

    #[cfg(feature = "lab")]
    fn is_lab(&self) -> bool {
        self.map.is_some()
    }

    #[cfg(not(feature = "lab"))]
    fn is_lab(&self) -> bool {
        false
    }
}

fn open(family: Family, kind: SockType) -> io::Result<OwnedFd> {
    let family = match family {
        Family::V4 => AddressFamily::Inet,
        Family::V6 => AddressFamily::Inet6,
    };
    Ok(socket(family, kind, SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC, None)?)
}

/// An error with what a router or a host said about it, when one did.
fn explained(stream: &TcpStream, error: io::Error) -> io::Error {
    match (icmp::why(stream), errno(&error)) {
        (Some(outcome), Some(number)) => Told::new(outcome, "said on the way", number).into(),
        (None, _) | (_, None) => error,
    }
}

fn is_net_unreachable(error: &io::Error) -> bool {
    errno(error) == Some(Errno::ENETUNREACH)
}
