//! What routers and hosts say about our datagrams: the error queue of a socket.
//!
//! The kernel folds ICMP into few error numbers: "administratively prohibited" of IPv4 arrives as
//! "host unreachable" (code 13) or "network unreachable" (code 9). The error queue (ip(7),
//! `IP_RECVERR`) keeps the message's own type and code, and who sent it, and needs no privilege.
//!
//! To use it: when sending or receiving on a socket of [`crate::dial::Dialer`] fails, ask [`why`]; a
//! socket of another origin must [`listen`] first. [`next`] gives the messages one by one. The kernel matches each message to the socket
//! by the quoted addresses and ports, so on a connected socket it is about what that socket sent.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd as _};

use nix::errno::Errno;
use nix::libc::{self, sock_extended_err};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt};
use parallax_decide::observation::{Family, Outcome};

/// Most bytes of our own datagram that are kept from a message which quotes it.
pub const QUOTED_BYTES_MAX: usize = 64;

/// One message of the error queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// What it says.
    pub cause: Cause,
    /// The router or host that says so; `None`: this machine's own kernel.
    pub from: Option<IpAddr>,
    /// Where the datagram was going that the message quotes.
    pub about: SocketAddr,
    /// The beginning of that datagram, at most [`QUOTED_BYTES_MAX`] bytes: a router may quote no more
    /// than the ports (RFC 792), so that nothing is left here.
    pub quoted: Vec<u8>,
}

/// What a message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The datagram's hop limit ran out on the way.
    TimeExceeded,
    /// The host is there; nobody listens on that port, or the host speaks no UDP.
    PortUnreachable,
    /// The host cannot be reached.
    HostUnreachable,
    /// The network cannot be reached.
    NetUnreachable,
    /// Forbidden on the way or by the host.
    AdminProhibited,
    /// Too big for a link that takes at most so many bytes; 0: an old router that does not say.
    TooBig(u32),
    /// Anything else; what was lost because of it is not known.
    Other,
}

impl Cause {
    /// What an ICMP message says. Codes of RFC 792, RFC 1122 section 3.2.2.1 and RFC 1812 section 5.2.7.1.
    #[must_use]
    pub fn of_v4(kind: u8, code: u8, info: u32) -> Self {
        match (kind, code) {
            (3, 0 | 5 | 6 | 11) => Self::NetUnreachable,
            (3, 1 | 7 | 8 | 12) => Self::HostUnreachable,
            (3, 2 | 3) => Self::PortUnreachable,
            (3, 4) => Self::TooBig(info),
            // 14 and 15: the precedence is not allowed there.
            (3, 9 | 10 | 13 | 14 | 15) => Self::AdminProhibited,
            (11, 0) => Self::TimeExceeded,
            _ => Self::Other,
        }
    }

    /// What an ICMPv6 message says. Codes of RFC 4443 sections 3.1 to 3.3, which calls 5 and 6 "more
    /// informative subsets of code 1".
    #[must_use]
    pub fn of_v6(kind: u8, code: u8, info: u32) -> Self {
        match (kind, code) {
            // 2: beyond the scope of the source address.
            (1, 0 | 2) => Self::NetUnreachable,
            (1, 1 | 5 | 6) => Self::AdminProhibited,
            (1, 3) => Self::HostUnreachable,
            (1, 4) => Self::PortUnreachable,
            (2, _) => Self::TooBig(info),
            (3, 0) => Self::TimeExceeded,
            _ => Self::Other,
        }
    }

    /// The outcome of the exchange it ended; `None`: it ended none, the wait goes on. A hop limit that
    /// runs out on the usual one of the system is a loop: the host cannot be reached.
    #[must_use]
    pub fn outcome(self) -> Option<Outcome> {
        match self {
            Self::PortUnreachable => Some(Outcome::ConnectionRefused),
            Self::HostUnreachable | Self::TimeExceeded => Some(Outcome::HostUnreachable),
            Self::NetUnreachable => Some(Outcome::NetUnreachable),
            Self::AdminProhibited => Some(Outcome::AdminProhibited),
            Self::TooBig(_) | Self::Other => None,
        }
    }
}

/// Whether the kernel keeps the messages about what this socket sends.
///
/// # Errors
/// What the kernel said.
pub fn listen(socket: &impl AsFd, family: Family, on: bool) -> io::Result<()> {
    match family {
        Family::V4 => setsockopt(socket, sockopt::Ipv4RecvErr, &on)?,
        Family::V6 => setsockopt(socket, sockopt::Ipv6RecvErr, &on)?,
    }
    Ok(())
}

/// Why sending or receiving failed, in the words of the network; `None`: no router and no host said
/// anything, the error number is all there is. Takes the messages from the queue.
#[must_use]
pub fn why(socket: &impl AsFd) -> Option<Outcome> {
    // An error of reading the queue explains nothing, as an empty queue does.
    while let Ok(Some(report)) = next(socket) {
        let outcome = report.from.and_then(|_| report.cause.outcome());
        if outcome.is_some() {
            return outcome;
        }
    }
    None
}

/// Takes the next message from the queue; never waits. `None`: there is none.
///
/// # Errors
/// What the kernel said.
pub fn next(socket: &impl AsFd) -> io::Result<Option<Report>> {
    loop {
        match take(socket) {
            Ok(Taken::Report(report)) => return Ok(Some(report)),
            // Neither from the network nor about the size of a datagram, such as a time stamp.
            Ok(Taken::Foreign) => {}
            Err(Errno::EAGAIN) => return Ok(None),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

enum Taken {
    Report(Report),
    Foreign,
}

fn take(socket: &impl AsFd) -> nix::Result<Taken> {
    let mut quoted = [0; QUOTED_BYTES_MAX];
    let mut space = nix::cmsg_space!(sock_extended_err, libc::sockaddr_in6);
    let mut slices = [IoSliceMut::new(&mut quoted)];
    let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
    let received = recvmsg::<SockaddrStorage>(socket.as_fd().as_raw_fd(), &mut slices, Some(&mut space), flags)?;
    let about = received.address.as_ref().and_then(socket_address);
    let mut told = None;
    for message in received.cmsgs()? {
        if let ControlMessageOwned::Ipv4RecvErr(error, from) = message {
            told = read(&error, from.map(|from| IpAddr::V4(Ipv4Addr::from(u32::from_be(from.sin_addr.s_addr)))));
        } else if let ControlMessageOwned::Ipv6RecvErr(error, from) = message {
            told = read(&error, from.map(|from| IpAddr::V6(Ipv6Addr::from(from.sin6_addr.s6_addr))));
        }
    }
    let length = received.bytes.min(QUOTED_BYTES_MAX);
    let (Some((cause, from)), Some(about)) = (told, about) else { return Ok(Taken::Foreign) };
    let quoted = quoted.get(..length).unwrap_or_default().to_vec();
    Ok(Taken::Report(Report { cause, from, about, quoted }))
}

fn read(error: &sock_extended_err, from: Option<IpAddr>) -> Option<(Cause, Option<IpAddr>)> {
    match error.ee_origin {
        libc::SO_EE_ORIGIN_ICMP => Some((Cause::of_v4(error.ee_type, error.ee_code, error.ee_info), from)),
        libc::SO_EE_ORIGIN_ICMP6 => Some((Cause::of_v6(error.ee_type, error.ee_code, error.ee_info), from)),
        libc::SO_EE_ORIGIN_LOCAL if error.ee_errno == libc::EMSGSIZE.unsigned_abs() => {
            Some((Cause::TooBig(error.ee_info), None))
        }
        _ => None,
    }
}

fn socket_address(address: &SockaddrStorage) -> Option<SocketAddr> {
    if let Some(v4) = address.as_sockaddr_in() {
        return Some(SocketAddr::new(IpAddr::V4(v4.ip()), v4.port()));
    }
    let v6 = address.as_sockaddr_in6()?;
    Some(SocketAddr::new(IpAddr::V6(v6.ip()), v6.port()))
}

#[cfg(test)]
mod tests {
    use tokio::net::UdpSocket;

    use super::*;

    #[test]
    fn kinds_of_unreachable_stay_apart() {
        let v4 = |code| Cause::of_v4(3, code, 0).outcome();
        let v6 = |code| Cause::of_v6(1, code, 0).outcome();
        for code in [9, 10, 13] {
            assert_eq!(v4(code), Some(Outcome::AdminProhibited), "{code}");
        }
        for code in [1, 5, 6] {
            assert_eq!(v6(code), Some(Outcome::AdminProhibited), "{code}");
        }
        assert_eq!((v4(0), v6(0)), (Some(Outcome::NetUnreachable), Some(Outcome::NetUnreachable)));
        assert_eq!((v4(1), v6(3)), (Some(Outcome::HostUnreachable), Some(Outcome::HostUnreachable)));
        assert_eq!((v4(3), v6(4)), (Some(Outcome::ConnectionRefused), Some(Outcome::ConnectionRefused)));
        assert_eq!((Cause::of_v4(3, 4, 1400), Cause::of_v6(2, 0, 1280)), (Cause::TooBig(1400), Cause::TooBig(1280)));
        assert_eq!((Cause::of_v4(11, 0, 0), Cause::of_v6(3, 0, 0)), (Cause::TimeExceeded, Cause::TimeExceeded));
        assert_eq!((v4(16), v6(7)), (None, None));
        // The time for putting fragments together ran out: the datagram did arrive in part.
        assert_eq!((Cause::of_v4(11, 1, 0), Cause::of_v6(3, 1, 0)), (Cause::Other, Cause::Other));
    }

    #[tokio::test]
    async fn a_closed_port_says_so_and_quotes_what_was_sent() {
        for local in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(closed) = std::net::UdpSocket::bind(local) else {
                eprintln!("SKIPPED: no {local} on this machine");
                continue;
            };
            let to = closed.local_addr().unwrap();
            drop(closed);
            let socket = UdpSocket::bind(local).await.unwrap();
            listen(&socket, Family::of(to.ip()), true).unwrap();
            socket.connect(to).await.unwrap();
            assert_eq!(next(&socket).unwrap(), None);
            socket.send(b"to whom it may concern").await.unwrap();
            let error = socket.recv(&mut [0; 16]).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
            let report = next(&socket).unwrap().unwrap();
            assert_eq!((report.cause, report.from, report.about), (Cause::PortUnreachable, Some(to.ip()), to));
            assert_eq!(report.quoted, b"to whom it may concern");
            assert_eq!(why(&socket), None, "the message was taken");
            socket.send(b"again").await.unwrap();
            socket.recv(&mut [0; 16]).await.unwrap_err();
            assert_eq!(why(&socket), Some(Outcome::ConnectionRefused));
        }
    }

    #[tokio::test]
    async fn a_datagram_that_fits_no_link_is_sent_back_by_this_machine_itself() {
        let Ok(receiver) = std::net::UdpSocket::bind("[::1]:0") else {
            eprintln!("SKIPPED: no ::1 on this machine");
            return;
        };
        let to = receiver.local_addr().unwrap();
        let socket = UdpSocket::bind("[::1]:0").await.unwrap();
        listen(&socket, Family::V6, true).unwrap();
        setsockopt(&socket, sockopt::Ipv6DontFrag, &true).unwrap();
        socket.connect(to).await.unwrap();
        // The largest datagram of all is larger than the loopback's 65536 bytes.
        let error = socket.send(&[0; 65_527]).await.unwrap_err();
        assert_eq!(crate::dial::errno(&error), Some(Errno::EMSGSIZE));
        let report = next(&socket).unwrap().unwrap();
        assert_eq!((report.cause, report.from, report.about), (Cause::TooBig(65_536), None, to));
        assert_eq!(why(&socket), None);
    }
}
