//! The exchange over UDP: one question, and whatever datagrams come back.
//!
//! The socket hears from everybody, on purpose: a right reply from a wrong port, a forged one before
//! the true one, an answer to nobody's question are findings. Only the server's own reply to our own
//! question decides.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parallax_decide::observation::{Outcome, Stage};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::time::sleep_until;

use super::{Hold, Plain};
use crate::clock::{Instant, now, since};
use crate::entropy::message_id;
use crate::measured::{Carrier, OddKind, OddReply, ReplyParticulars};
use crate::probe::ask::Trace;
use crate::probe::icmp;
use crate::probe::message::{Question, Reply, Unfit};
use crate::probe::trouble::trouble;

/// Room for one datagram, in bytes. We offer 1232; a server that sends more than this on UDP
/// against our word sends a malformed reply.
const DATAGRAM_BYTES_MAX: usize = 4096;

/// Errors of the socket in a row that nothing explains, before we stop blaming chance.
const ERRORS_MAX: u32 = 8;

/// One question to one server, in one socket.
#[derive(Debug)]
pub(super) struct Exchange {
    socket: UdpSocket,
    to: SocketAddr,
    question: Question,
    begun: Instant,
    sent: Vec<Sent>,
}

/// A question that went out.
#[derive(Debug, Clone, Copy)]
struct Sent {
    id: u16,
    edns: bool,
}

/// What a datagram is.
#[derive(Debug)]
pub(super) enum Arrived {
    /// The server's reply to the question at this place in the order of sending.
    Reply(Box<Reply>, usize),
    /// The server's, but it cannot be read. As the particulars of a reply.
    Unreadable(Box<ReplyParticulars>),
    /// Anything else.
    Odd(OddReply),
}

impl Exchange {
    pub(super) fn new(socket: UdpSocket, to: SocketAddr, question: Question) -> Self {
        Self { socket, to, question, begun: now(), sent: Vec::with_capacity(2) }
    }

    /// Asks and waits for the reply that decides. The socket then goes into `trace`, to hear what
    /// comes after it.
    pub(super) async fn ask(mut self, plain: &Plain<'_>, limit: Duration, trace: &mut Trace) -> Result<Reply, Outcome> {
        let edns = plain.servers.takes_edns(plain.server, now());
        let again_at = now() + limit / 2;
        self.send(plain, edns).await?;
        let (mut refused_edns, mut unreadable_until) = (false, None);
        loop {
            let arrived = tokio::select! {
                arrived = self.arrival() => arrived?,
                () = sleep_until(again_at), if self.sent.len() == 1 => {
                    self.send(plain, false).await?;
                    continue;
                }
                () = sleep_until(unreadable_until.unwrap_or(again_at)), if unreadable_until.is_some() => {
                    return Err(Outcome::Malformed);
                }
            };
            match arrived {
                Arrived::Odd(odd) => trace.odd(odd),
                Arrived::Unreadable(kept) => {
                    // It decides only when nothing better comes soon: it may be forged.
                    if unreadable_until.is_none() {
                        trace.reply = *kept;
                        trace.stages.dns = since(self.begun);
                        trace.decided = Some(now());
                        unreadable_until = Some(now() + plain.hold);
                    }
                }
                Arrived::Reply(reply, place) if reply.format_error && self.asked_with_edns(place) => {
                    // When the simpler question is out already, its answer is what counts.
                    refused_edns = true;
                    if self.sent.len() == 1 {
                        self.send(plain, false).await?;
                    }
                }
                Arrived::Reply(reply, place) => {
                    if let Some(decided) = trace.decided.take() {
                        let after = decided.saturating_duration_since(self.begun);
                        trace.odd(OddReply { kind: OddKind::Malformed, after, addresses: Vec::new() });
                    }
                    self.learn(plain, &reply, place, refused_edns, trace);
                    return self.settle(plain, *reply, place, trace);
                }
            }
        }
    }

    /// What the reply says of the server's EDNS, and of large datagrams on the way.
    fn learn(&self, plain: &Plain<'_>, reply: &Reply, place: usize, refused_edns: bool, trace: &mut Trace) {
        if self.asked_with_edns(place) {
            plain.servers.took_edns(plain.server);
        } else if refused_edns {
            plain.servers.refused_edns(plain.server, now());
        } else if place > 0 && self.asked_with_edns(0) {
            if reply.truncated {
                // A server that drops EDNS would not hide a large answer behind it as well.
                trace.remark = format!(
                    "nothing came with EDNS {}, and a cut answer without: large datagrams may be lost on the way",
                    crate::probe::message::UDP_PAYLOAD
                );
            } else {
                plain.servers.left_edns_unanswered(plain.server, now());
            }
        }
    }

    /// Makes this reply the one that decides.
    fn settle(self, plain: &Plain<'_>, mut reply: Reply, place: usize, trace: &mut Trace) -> Result<Reply, Outcome> {
        trace.stages.dns = since(self.begun);
        trace.reply = ReplyParticulars { without_edns: !self.asked_with_edns(place), ..ReplyParticulars::default() };
        // Compared later with what else comes; the particulars are of no use for that.
        let accepted = Reply { kept: ReplyParticulars::default(), ..reply.clone() };
        reply = trace.settle(Carrier::Udp, &[], Ok(reply))?;
        if !reply.truncated && !plain.hold.is_zero() {
            trace.hold = plain
                .servers
                .place()
                .map(|held| Arc::new(Hold { exchange: self, accepted, place, until: now() + plain.hold, _held: held }));
        }
        Ok(reply)
    }

    fn asked_with_edns(&self, place: usize) -> bool {
        self.sent.get(place).is_some_and(|sent| sent.edns)
    }

    /// Sends the question once.
    async fn send(&mut self, plain: &Plain<'_>, edns: bool) -> Result<(), Outcome> {
        let id = message_id().map_err(|_| Outcome::OwnTrouble)?;
        let bytes = self.question.message(id, edns).ok_or(Outcome::OwnTrouble)?;
        // An error of an earlier datagram is told at the next send: the queue knows what it was of.
        let error = match self.socket.send_to(&bytes, self.to).await {
            Ok(_) => None,
            Err(error) => match icmp::why(&self.socket) {
                Some(told) => return Err(told),
                None => Some(error),
            },
        };
        self.sent.push(Sent { id, edns });
        error.map_or(Ok(()), |error| Err(plain.unsent(&error)))
    }

    /// Waits for the next datagram.
    ///
    /// # Errors
    /// What a router or the server's host said instead, as an outcome.
    pub(super) async fn arrival(&self) -> Result<Arrived, Outcome> {
        let mut errors = 0;
        loop {
            // An ICMP message makes a socket ready for nothing but that.
            let ready = self.socket.ready(Interest::READABLE | Interest::ERROR).await;
            let ready = ready.map_err(|error| trouble(&error).at(Stage::Dns))?;
            let error = match self.take() {
                Ok(arrived) => return Ok(arrived),
                Err(error) => Some(error).filter(|error| error.kind() != io::ErrorKind::WouldBlock),
            };
            let told = match &error {
                Some(_) => icmp::why(&self.socket),
                None if ready.is_error() => self.told(),
                None => None,
            };
            match (told, error) {
                // What waits behind it says more.
                (Some(told), _) => return self.take().map_err(|_| told),
                (None, Some(error)) => {
                    errors += 1;
                    if errors >= ERRORS_MAX {
                        return Err(trouble(&error).at(Stage::Dns));
                    }
                }
                (None, None) => {}
            }
        }
    }

    /// What routers and hosts said; when there is nothing more, the socket is not ready for it any longer.
    fn told(&self) -> Option<Outcome> {
        let why = || icmp::why(&self.socket).ok_or_else(|| io::ErrorKind::WouldBlock.into());
        self.socket.try_io(Interest::ERROR, why).ok()
    }

    /// Takes one datagram out of the socket. The room for it is needed no longer than that.
    fn take(&self) -> io::Result<Arrived> {
        let mut buffer = [0; DATAGRAM_BYTES_MAX];
        let (length, from) = self.socket.try_recv_from(&mut buffer)?;
        Ok(self.judge(buffer.get(..length).unwrap_or_default(), from))
    }

    fn judge(&self, bytes: &[u8], from: SocketAddr) -> Arrived {
        let odd = |kind, addresses: &[IpAddr]| {
            let addresses = addresses.iter().copied().take(parallax_proto::ODD_REPLIES_MAX).collect();
            Arrived::Odd(OddReply { kind, after: since(self.begun), addresses })
        };
        // Not the whole socket address: an IPv6 one has a flow label, which is the sender's own.
        let elsewhere = (from.ip(), from.port()) != (self.to.ip(), self.to.port());
        if elsewhere {
            return odd(OddKind::FromElsewhere, &self.question.glimpse(bytes));
        }
        let mut unfit = Unfit::OtherId;
        for (place, sent) in self.sent.iter().enumerate() {
            match self.question.read(sent.id, bytes) {
                Ok(reply) => return Arrived::Reply(Box::new(reply), place),
                Err(Unfit::OtherId) => {}
                Err(other) => unfit = other,
            }
        }
        match unfit {
            Unfit::OtherId => odd(OddKind::OtherId, &self.question.glimpse(bytes)),
            Unfit::OtherQuestion => odd(OddKind::OtherQuestion, &self.question.glimpse(bytes)),
            Unfit::WithoutQuestion => odd(OddKind::WithoutQuestion, &self.question.glimpse(bytes)),
            Unfit::Malformed => Arrived::Unreadable(Box::new(ReplyParticulars {
                transport: Some(Carrier::Udp),
                size: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
                first_bytes: bytes.iter().copied().take(parallax_proto::FIRST_BYTES_MAX).collect(),
                ..ReplyParticulars::default()
            })),
        }
    }

    /// What a datagram after the reply that decided is; `None`: nothing odd.
    pub(super) fn late(&self, arrived: Arrived, accepted: &Reply, place: usize) -> Option<OddReply> {
        let after = since(self.begun);
        match arrived {
            Arrived::Odd(odd) => Some(odd),
            Arrived::Unreadable(_) => Some(OddReply { kind: OddKind::Malformed, after, addresses: Vec::new() }),
            // We asked twice: the other question has an answer of its own.
            Arrived::Reply(_, other) if other != place => None,
            Arrived::Reply(reply, _) => {
                let kind = if reply.same(accepted) { OddKind::Repeated } else { OddKind::Different };
                let addresses = reply.named().iter().copied().take(parallax_proto::ODD_REPLIES_MAX).collect();
                Some(OddReply { kind, after, addresses })
            }
        }
    }
}
