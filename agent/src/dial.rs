//! The only door to the network.
//!
//! Addresses are literal and were passed by [`crate::policy`]; nothing is looked up here. With the
//! cargo feature `lab` a map from public address to local socket applies to every dial, so that a
//! whole world fits on the loopback interface while everything else sees the public addresses.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use nix::errno::Errno;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::TcpMaxSeg;
use parallax_decide::observation::Family;
use tokio::net::{TcpSocket, TcpStream, UdpSocket};

/// Well-known global addresses, used only to ask the kernel for a route to their family. Nothing
/// is sent to them.
const ROUTE_TEST_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(8, 8, 8, 8));
const ROUTE_TEST_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0x4860, 0x4860, 0, 0, 0, 0, 0x8888));

/// The segment size every host must take (RFC 9293, 3.7.1; 536 bytes since RFC 879): with it no packet
/// is larger than 576 bytes over IPv4 and 596 over IPv6.
const SMALL_SEGMENT: u32 = 536;

/// Size of the segments of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segments {
    /// What the kernel takes for the path.
    Usual,
    /// At most [`SMALL_SEGMENT`] bytes in both directions: passes where large packets vanish.
    Small,
}

/// Opens sockets.
#[derive(Debug, Default)]
pub struct Dialer {
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
        Self { map: Some(lab::LabMap::new(file)) }
    }

    /// One TCP connection from a new source port. It lasts until the kernel gives up; the caller
    /// sets the deadline, and dropping the future closes the socket.
    ///
    /// # Errors
    /// What the kernel said; "connection refused" also when the kernel joined the socket to itself,
    /// which can happen between two local ephemeral ports.
    pub async fn tcp(&self, to: SocketAddr) -> io::Result<TcpStream> {
        self.tcp_in(Segments::Usual, to).await
    }

    /// As [`Self::tcp`], with segments of a chosen size in both directions.
    ///
    /// # Errors
    /// As [`Self::tcp`].
    pub async fn tcp_in(&self, segments: Segments, to: SocketAddr) -> io::Result<TcpStream> {
        let to = self.route(to)?;
        let socket = match to {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        match segments {
            Segments::Usual => {}
            Segments::Small => setsockopt(&socket, TcpMaxSeg, &SMALL_SEGMENT)?,
        }
        let stream = socket.connect(to).await?;
        // The peer is checked again: a socket that talks to anybody else proves nothing.
        if stream.peer_addr()? != to || stream.local_addr()? == to {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// A UDP socket on a source port chosen by the kernel, which takes datagrams from `to` alone
    /// and learns of ICMP errors.
    ///
    /// # Errors
    /// What the kernel said.
    pub async fn udp(&self, to: SocketAddr) -> io::Result<UdpSocket> {
        let to = self.route(to)?;
        let socket = UdpSocket::bind(unspecified(to)).await?;
        socket.connect(to).await?;
        Ok(socket)
    }

    /// As [`Self::udp`], for a name server of the owner's own choice: in a lab such a server may be
    /// a local one that the map does not know.
    ///
    /// # Errors
    /// What the kernel said.
    pub async fn udp_own(&self, to: SocketAddr) -> io::Result<UdpSocket> {
        match self.udp(to).await {
            Err(error) if self.is_lab() && is_net_unreachable(&error) => Self::direct().udp(to).await,
            outcome => outcome,
        }
    }

    /// As [`Self::tcp`], for a name server of the owner's own choice.
    ///
    /// # Errors
    /// What the kernel said.
    pub async fn tcp_own(&self, to: SocketAddr) -> io::Result<TcpStream> {
        match self.tcp(to).await {
            Err(error) if self.is_lab() && is_net_unreachable(&error) => Self::direct().tcp(to).await,
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
        self.has_route(match family {
            Family::V4 => ROUTE_TEST_V4,
            Family::V6 => ROUTE_TEST_V6,
        })
    }

    /// Whether the kernel has a route to the address. Asks the kernel; sends nothing.
    #[must_use]
    pub fn has_route(&self, to: IpAddr) -> bool {
        #[cfg(feature = "lab")]
        if let Some(map) = &self.map {
            // What a lab's map does not hold is unreachable behind a route.
            return map.holds(Family::of(to));
        }
        // Any port: a UDP socket that is connected only asks the routing table.
        let to = SocketAddr::new(to, 53);
        match std::net::UdpSocket::bind(unspecified(to)).and_then(|socket| socket.connect(to)) {
            Ok(()) => true,
            Err(error) => !says_no_route(&error),
        }
    }

    #[cfg(feature = "lab")]
    fn route(&self, to: SocketAddr) -> io::Result<SocketAddr> {
        match &self.map {
            None => Ok(to),
            Some(map) => map.find(to),
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

/// Whether the kernel says that it has no way to an address. Any other error is no proof of that.
fn says_no_route(error: &io::Error) -> bool {
    matches!(
        errno(error),
        Some(
            Errno::ENETUNREACH
                // No source address of the family, or the family is switched off.
                | Errno::EADDRNOTAVAIL
                | Errno::EAFNOSUPPORT
                // Routes of the types "unreachable", "prohibit" and "blackhole" (ip-route(8)).
                | Errno::EHOSTUNREACH
                | Errno::EACCES
                | Errno::EINVAL
        )
    )
}

fn unspecified(to: SocketAddr) -> SocketAddr {
    let address = match to {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    SocketAddr::new(address, 0)
}

/// The kernel's error number, when the error came from the kernel.
#[must_use]
pub fn errno(error: &io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw)
}

fn is_net_unreachable(error: &io::Error) -> bool {
    errno(error) == Some(Errno::ENETUNREACH)
}

#[cfg(feature = "lab")]
mod lab {
    use std::collections::BTreeMap;
    use std::io;
    use std::net::SocketAddr;
    use std::path::PathBuf;
    use std::sync::{Mutex, PoisonError};
    use std::time::SystemTime;

    use nix::errno::Errno;
    use parallax_decide::observation::Family;

    /// A file that maps public addresses to local sockets, read again when it changed.
    #[derive(Debug)]
    pub(super) struct LabMap {
        file: PathBuf,
        held: Mutex<Held>,
    }

    #[derive(Debug, Default)]
    struct Held {
        stamp: Option<(SystemTime, u64)>,
        map: BTreeMap<SocketAddr, SocketAddr>,
    }

    impl LabMap {
        pub(super) fn new(file: PathBuf) -> Self {
            Self { file, held: Mutex::default() }
        }

        /// The local socket of a public address; "network unreachable" for one not in the map.
        pub(super) fn find(&self, to: SocketAddr) -> io::Result<SocketAddr> {
            self.read(|map| map.get(&to).copied()).ok_or_else(|| Errno::ENETUNREACH.into())
        }

        /// A family exists in the lab when the map holds an address of it.
        pub(super) fn holds(&self, family: Family) -> bool {
            self.read(|map| map.keys().any(|key| Family::of(key.ip()) == family))
        }

        fn read<T>(&self, look: impl FnOnce(&BTreeMap<SocketAddr, SocketAddr>) -> T) -> T {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            if let Err(error) = self.refresh(&mut held) {
                tracing::error!(file = %self.file.display(), %error, "cannot read the lab map; the last one stays in use");
            }
            look(&held.map)
        }

        fn refresh(&self, held: &mut Held) -> io::Result<()> {
            let metadata = std::fs::metadata(&self.file)?;
            let stamp = (metadata.modified()?, metadata.len());
            if held.stamp != Some(stamp) {
                held.map = serde_json::from_slice(&std::fs::read(&self.file)?)?;
                held.stamp = Some(stamp);
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_nobody_listens_on_refuses() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert!(Dialer::direct().tcp(address).await.is_ok());
        drop(listener);
        let error = Dialer::direct().tcp(address).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[cfg(feature = "lab")]
    #[tokio::test]
    async fn the_lab_map_is_followed_and_read_again_and_its_absences_are_unreachable() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let local = listener.local_addr().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("map.json");
        std::fs::write(&file, "{}").unwrap();
        let dialer = Dialer::mapped(file.clone());
        let public = "8.8.8.8:443".parse().unwrap();
        let error = dialer.tcp(public).await.unwrap_err();
        assert_eq!(errno(&error), Some(Errno::ENETUNREACH));
        assert!(!dialer.family_available(Family::V4));

        std::fs::write(&file, format!("{{\"8.8.8.8:443\": \"{local}\"}}")).unwrap();
        assert!(dialer.tcp(public).await.is_ok());
        assert!(dialer.family_available(Family::V4));
        assert!(!dialer.family_available(Family::V6));

        std::fs::write(&file, "not json at all").unwrap();
        assert!(dialer.tcp(public).await.is_ok(), "the last good map stays in use");
    }
}
