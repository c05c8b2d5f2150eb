//! Plain DNS: UDP, then TCP when the reply is truncated; and the framing of DNS over a stream.
//!
//! `datagram` is the exchange over UDP, `hold` what comes after its first reply, `stream` the
//! exchange over TCP or TLS, and `servers` what is remembered from one question to the next.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use parallax_decide::observation::{Group, Outcome, Stage};

use self::datagram::Exchange;
use super::Limits;
use super::ask::Trace;
use super::message::{Question, Reply};
use super::trouble::trouble;
use crate::clock::{now, since};
use crate::dial::Dialer;
use crate::measured::Carrier;
use crate::site::Site;

mod datagram;
mod hold;
mod servers;
mod stream;

pub use hold::Hold;
pub use servers::Servers;
pub use stream::framed;

/// Whose choice the server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// A resolver of the assignment.
    Assigned,
    /// The owner's own.
    Own,
}

/// A plain DNS server, and what it takes to ask it.
#[derive(Debug, Clone, Copy)]
pub struct Plain<'a> {
    /// Opens the sockets.
    pub dialer: &'a Dialer,
    /// What is remembered of servers.
    pub servers: &'a Servers,
    /// The server.
    pub server: SocketAddr,
    /// Whose choice it is.
    pub choice: Choice,
    /// How long the UDP socket stays open after the first reply.
    pub hold: Duration,
}

impl<'a> Plain<'a> {
    /// A server, with the means of this place.
    #[must_use]
    pub fn of(site: &'a Site, limits: &Limits, server: SocketAddr, choice: Choice) -> Self {
        Self { dialer: &site.dialer, servers: &site.servers, server, choice, hold: limits.udp_hold }
    }

    /// Asks over UDP, and over TCP when the server says that its reply was cut. `limit` is when the
    /// caller will give up: at half of it the question goes out once more without EDNS, which serves
    /// against a lost packet as well as against a server that drops what it does not know.
    ///
    /// # Errors
    /// How the stage in `trace` failed.
    pub async fn ask(&self, question: &Question, limit: Duration, trace: &mut Trace) -> Result<Reply, Outcome> {
        trace.enter(Stage::Dns, self.server.ip());
        trace.hold = None;
        let (socket, to) = match self.choice {
            Choice::Assigned => self.dialer.datagrams(self.server),
            Choice::Own => self.dialer.datagrams_own(self.server),
        }
        .map_err(|error| self.unsent(&error))?;
        let reply = Exchange::new(socket, to, question.clone()).ask(self, limit, trace).await?;
        if !reply.truncated {
            return Ok(reply);
        }
        trace.reply.truncated = true;
        self.ask_stream(question, trace).await.map_err(after_truncation)
    }

    /// Asks over TCP alone.
    ///
    /// # Errors
    /// How the stage in `trace` failed.
    pub async fn ask_stream(&self, question: &Question, trace: &mut Trace) -> Result<Reply, Outcome> {
        trace.enter(Stage::Tcp, self.server.ip());
        let start = now();
        let stream = match self.choice {
            Choice::Assigned => self.dialer.tcp(self.server).await,
            Choice::Own => self.dialer.tcp_own(self.server).await,
        };
        trace.stages.tcp = since(start);
        let mut stream = stream.map_err(|error| trouble(&error).at(Stage::Tcp))?;
        trace.enter(Stage::Dns, self.server.ip());
        let edns = self.servers.takes_edns(self.server, now());
        framed(&mut stream, Carrier::Tcp, edns, question, trace).await
    }

    /// Why this machine did not send, when nobody else said anything: not having a route accuses no
    /// resolver, and any other error of our own neither.
    fn unsent(&self, error: &io::Error) -> Outcome {
        self.dialer.way(self.server.ip()).outcome().unwrap_or_else(|| trouble(error).at(Stage::Dns))
    }
}

/// How the question over TCP ended, after a cut reply over UDP. What the vantage itself lacks, and
/// a reply that came but cannot be read, keep their words.
fn after_truncation(outcome: Outcome) -> Outcome {
    if outcome == Outcome::Malformed || matches!(outcome.group(), Group::Own | Group::Refused) {
        outcome
    } else if matches!(outcome, Outcome::Silent | Outcome::DnsSilent) {
        Outcome::TruncatedTcpTimeout
    } else {
        Outcome::TruncatedTcpFailed
    }
}

#[cfg(test)]
mod tests;
