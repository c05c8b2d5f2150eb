//! How large a packet may be on a path.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd as _;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, getsockopt, setsockopt, sockopt};
use parallax_decide::observation::Family;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::time::{sleep, timeout_at};

use super::super::icmp::{self, Cause, Report};
use super::PACE;
use super::walk::{HOPS_MAX, PACKETS_MAX, WAIT};
use super::wire::{self, limit_hops};
use crate::clock::{Instant, now};
use crate::dial::Dialer;

/// Port of these packets: the one after those of the walk.
const PORT: u16 = wire::PORT + HOPS_MAX as u16 * PACKETS_MAX as u16;

/// Most packets.
const PACKETS: u32 = 8;

/// After so many packets of one size that nobody answered the search ends.
const SILENT_MAX: u32 = 2;

/// A send is tried so often: errors that routers caused are reported by the next send, one by one.
const SENDS_MAX: u32 = 4;

/// Header of IPv4 without options (RFC 791), of IPv6 (RFC 8200) and of UDP (RFC 768), in bytes.
const HEADER_V4: u32 = 20;
const HEADER_V6: u32 = 40;
const HEADER_UDP: u32 = 8;

/// Largest content of a datagram over IPv6, in bytes: no link of ours takes it, so that the kernel says
/// what it does take.
const CONTENT_BYTES_MAX: u32 = 65_527;

/// The largest packet, in bytes, that came as far as hop `ttl` and was answered there, or at least the
/// smallest limit that a router named; 0: not known.
pub(super) async fn find(dialer: &Dialer, target: IpAddr, ttl: u8, until: Instant) -> u32 {
    let found = async {
        let socket = dialer.udp(SocketAddr::new(target, PORT))?;
        limit_hops(&socket, target, ttl)?;
        search(&socket, Family::of(target), until).await
    };
    found.await.unwrap_or_else(|error: io::Error| {
        tracing::debug!(%target, %error, "the path's MTU was not found");
        0
    })
}

async fn search(socket: &UdpSocket, family: Family, until: Instant) -> io::Result<u32> {
    let (mut limit, header) = match family {
        Family::V4 if discovers() => (u32::try_from(getsockopt(socket, sockopt::IpMtu)?).unwrap_or(0), HEADER_V4),
        Family::V4 => return Ok(0),
        Family::V6 => (known_v6(socket)?, HEADER_V6),
    };
    let mut named = 0;
    let mut silent = 0;
    for _ in 0..PACKETS {
        send(socket, limit.saturating_sub(header + HEADER_UDP))?;
        match said(socket, until.min(now() + WAIT)).await? {
            Said::Arrived => return Ok(limit),
            Said::TooBig(size) if size > 0 && size < limit => {
                (limit, named, silent) = (size, size, 0);
            }
            // An old router that names no size, or one that makes no sense.
            Said::TooBig(_) => break,
            Said::Nothing => silent += 1,
        }
        if silent == SILENT_MAX || now() >= until {
            break;
        }
        sleep(PACE).await;
    }
    Ok(named)
}

/// What became of a packet.
enum Said {
    /// It came as far as it should, and somebody there said so.
    Arrived,
    /// It is too big for a link that takes so many bytes.
    TooBig(u32),
    /// Nobody said anything.
    Nothing,
}

async fn said(socket: &UdpSocket, until: Instant) -> io::Result<Said> {
    let next = || icmp::next(socket)?.ok_or_else(|| io::ErrorKind::WouldBlock.into());
    loop {
        // Through the runtime, which then knows that the queue is empty and wakes for the next one alone.
        match socket.try_io(Interest::ERROR, next) {
            Ok(Report { cause: Cause::TooBig(size), .. }) => return Ok(Said::TooBig(size)),
            Ok(_) => return Ok(Said::Arrived),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if socket.try_recv(&mut [0]).is_ok() {
            return Ok(Said::Arrived);
        }
        match timeout_at(until, socket.ready(Interest::READABLE | Interest::ERROR)).await {
            Ok(ready) => drop(ready?),
            Err(_) => return Ok(Said::Nothing),
        }
    }
}

/// Sends so many bytes of content, whatever routers said of earlier ones: that comes by the queue.
fn send(socket: &UdpSocket, length: u32) -> io::Result<()> {
    let content = vec![0; usize::try_from(length).unwrap_or(0)];
    for _ in 0..SENDS_MAX {
        match nix::sys::socket::send(socket.as_raw_fd(), &content, MsgFlags::MSG_DONTWAIT) {
            // The last: the kernel has learnt of a narrower link, and the queue says of which size.
            Ok(_) | Err(Errno::EMSGSIZE) => return Ok(()),
            Err(Errno::EPERM) => return Err(Errno::EPERM.into()),
            Err(_) => {}
        }
    }
    Ok(())
}

/// What the kernel takes for the path's MTU already: that of its link, or what a router said before. It
/// is asked by a packet that is too large for any, which is not sent.
fn known_v6(socket: &UdpSocket) -> io::Result<u32> {
    setsockopt(socket, sockopt::Ipv6DontFrag, &true)?;
    send(socket, CONTENT_BYTES_MAX)?;
    match icmp::next(socket)? {
        Some(Report { cause: Cause::TooBig(size), from: None, .. }) => Ok(size),
        _ => Err(Errno::EMSGSIZE.into()),
    }
}

/// Whether the system asks routers to send back what is too large for them (ip(7)): unless it is set up
/// otherwise, and so where its settings are hidden from us.
fn discovers() -> bool {
    std::fs::read_to_string("/proc/sys/net/ipv4/ip_no_pmtu_disc").map_or(true, |setting| setting.trim() == "0")
}
