//! The packets of a path on a socket: each on a port of its own, and its answers told from others'.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd as _;

use nix::sys::socket::{MsgFlags, SockaddrStorage, sendto, setsockopt, sockopt};
use parallax_decide::observation::Family;
use tokio::io::Interest;
use tokio::net::UdpSocket;

use super::super::icmp::{self, Report};
use super::walk::{Answer, Packet};

/// First port of the packets, as traceroute(8) has it: nobody listens there, so that the target says
/// "port unreachable", and whoever sees the packets knows what they are. Each packet has its own port,
/// because a router need quote no more than the ports of what it answers (RFC 792).
pub(super) const PORT: u16 = 33434;

/// A packet's content in bytes: what makes it ours, and its number.
const CONTENT_BYTES: usize = 16;

/// A send is tried so often: errors that routers caused are reported by the next send, one by one.
const SENDS_MAX: u32 = 8;

/// Answers taken at a time, so that a flood of them ends too.
const ANSWERS_MAX: usize = 64;

/// The packets of one path.
#[derive(Debug)]
pub(super) struct Wire {
    socket: UdpSocket,
    target: IpAddr,
    token: [u8; CONTENT_BYTES - 2],
}

impl Wire {
    pub(super) fn new(socket: UdpSocket, target: IpAddr, token: [u8; CONTENT_BYTES - 2]) -> Self {
        Self { socket, target, token }
    }

    /// Sends a packet.
    ///
    /// # Errors
    /// This machine's own trouble, or its routing table's: never what a router said of another packet.
    pub(super) fn send(&self, packet: Packet, heard: &mut Vec<(Packet, Answer)>) -> io::Result<()> {
        limit_hops(&self.socket, self.target, packet.ttl)?;
        let to = SocketAddr::new(self.target, PORT + packet.number());
        let content = self.content(packet);
        let mut tried = 0;
        loop {
            self.messages(heard, || self.next())?;
            tried += 1;
            // Not through the runtime, which would hold a datagram back until it has looked whether there is room.
            match sendto(self.socket.as_raw_fd(), &content, &SockaddrStorage::from(to), MsgFlags::MSG_DONTWAIT) {
                Ok(_) => return Ok(()),
                Err(_) if tried < SENDS_MAX => {}
                Err(number) => return Err(number.into()),
            }
        }
    }

    /// Waits until there may be answers.
    ///
    /// # Errors
    /// What the kernel said.
    pub(super) async fn readable(&self) -> io::Result<()> {
        self.socket.ready(Interest::READABLE | Interest::ERROR).await.map(drop)
    }

    /// The answers that are there.
    ///
    /// # Errors
    /// What the kernel said.
    pub(super) fn answers(&self, heard: &mut Vec<(Packet, Answer)>) -> io::Result<()> {
        // Through the runtime, which then knows that the queue is empty and wakes for the next one alone.
        self.messages(heard, || self.socket.try_io(Interest::ERROR, || self.next()))?;
        let mut room = [0; CONTENT_BYTES];
        for _ in 0..ANSWERS_MAX {
            match self.socket.try_recv_from(&mut room) {
                // Somebody does listen there. Not ours unless it comes from where we sent to.
                Ok((_, from)) => {
                    let packet = self.packet(from);
                    heard.extend(packet.map(|packet| (packet, Answer { from: from.ip().to_canonical(), cause: None })));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // What routers said, once more as an error number.
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn messages(&self, heard: &mut Vec<(Packet, Answer)>, next: impl Fn() -> io::Result<Report>) -> io::Result<()> {
        for _ in 0..ANSWERS_MAX {
            match next() {
                Ok(report) => heard.extend(self.answer(&report)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn next(&self) -> io::Result<Report> {
        icmp::next(&self.socket)?.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    /// Which packet a message is about; `None`: none of ours.
    fn answer(&self, report: &Report) -> Option<(Packet, Answer)> {
        let packet = self.packet(report.about)?;
        let ours = self.content(packet).iter().zip(&report.quoted).all(|(sent, quoted)| sent == quoted);
        if !ours {
            tracing::debug!(from = ?report.from, about = %report.about, "a message that quotes another's packet");
            return None;
        }
        Some((packet, Answer { from: report.from?, cause: Some(report.cause) }))
    }

    fn packet(&self, about: SocketAddr) -> Option<Packet> {
        if about.ip().to_canonical() != self.target {
            return None;
        }
        Packet::of(about.port().checked_sub(PORT)?)
    }

    fn content(&self, packet: Packet) -> [u8; CONTENT_BYTES] {
        let mut content = [0; CONTENT_BYTES];
        let bytes = self.token.into_iter().chain(packet.number().to_be_bytes());
        for (place, byte) in content.iter_mut().zip(bytes) {
            *place = byte;
        }
        content
    }
}

/// Sets how many hops a socket's packets may take.
///
/// # Errors
/// What the kernel said.
pub(super) fn limit_hops(socket: &UdpSocket, target: IpAddr, hops: u8) -> io::Result<()> {
    match Family::of(target) {
        Family::V4 => setsockopt(socket, sockopt::Ipv4Ttl, &i32::from(hops))?,
        Family::V6 => setsockopt(socket, sockopt::Ipv6Ttl, &i32::from(hops))?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::super::icmp::Cause;
    use super::*;

    #[tokio::test]
    async fn a_message_that_quotes_anothers_packet_is_not_taken_for_an_answer() {
        let target = "9.9.9.9".parse().unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let wire = Wire::new(socket, target, [7; CONTENT_BYTES - 2]);
        let packet = Packet { ttl: 2, count: 1 };
        let report = |about: &str, quoted: &[u8]| Report {
            cause: Cause::TimeExceeded,
            from: Some("10.0.0.2".parse().unwrap()),
            about: about.parse().unwrap(),
            quoted: quoted.to_vec(),
        };
        let ours = wire.content(packet);
        let padded = [ours.as_slice(), &[0; 40]].concat();
        for quoted in [&[], &ours[..4], &ours[..], &padded[..]] {
            let answer = wire.answer(&report("9.9.9.9:33438", quoted));
            assert_eq!(answer.map(|(packet, _)| packet), Some(packet), "{quoted:?}");
        }
        let next = wire.content(Packet { count: 2, ..packet });
        assert_eq!(wire.answer(&report("9.9.9.9:33438", &next)), None, "the number is another packet's");
        assert_eq!(wire.answer(&report("9.9.9.9:33438", &[8; 16])), None, "the content is not ours");
        assert_eq!(wire.answer(&report("9.9.9.8:33438", &ours)), None, "we sent nothing there");
        for port in [53, 33433, 33524] {
            assert_eq!(wire.answer(&report(&format!("9.9.9.9:{port}"), &ours)), None, "{port}");
        }
        let own = Report { from: None, ..report("9.9.9.9:33438", &ours) };
        assert_eq!(wire.answer(&own), None, "this machine's own word is no hop's");
    }

    #[tokio::test]
    async fn a_datagram_counts_as_an_answer_only_from_where_a_packet_went() {
        let target = "127.0.0.1".parse().unwrap();
        let wire = Wire::new(UdpSocket::bind("127.0.0.1:0").await.unwrap(), target, [7; CONTENT_BYTES - 2]);
        let to = wire.socket.local_addr().unwrap();
        let packet = Packet { ttl: 1, count: 2 };
        let Ok(service) = std::net::UdpSocket::bind((target, PORT + packet.number())) else {
            eprintln!("SKIPPED: somebody uses that port of this machine");
            return;
        };
        let stranger = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        stranger.send_to(b"hello", to).unwrap();
        service.send_to(b"hello", to).unwrap();
        let mut heard = Vec::new();
        while heard.is_empty() {
            wire.readable().await.unwrap();
            wire.answers(&mut heard).unwrap();
        }
        assert_eq!(heard, [(packet, Answer { from: target, cause: None })]);
    }
}
