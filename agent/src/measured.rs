//! One measured fact on its way to the spool, with everything that is kept of it.

use std::net::IpAddr;
use std::time::Duration;

use parallax_decide::observation::{
    Connection, ControlCheck, EndpointCheck, Missed, Outcome, Path, Purpose, Resolution, Says,
};
use parallax_proto::ODD_REPLIES_MAX;

/// A fact with how long it took.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// What was measured.
    pub what: What,
    /// Whole duration of the probe.
    pub duration: Duration,
}

/// A fact, and what is stored besides it for people and for SQL.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// What a resolver answered.
    Resolution(Resolution, ResolutionParticulars),
    /// Whether an address could be used.
    Connection(Connection, ConnectionParticulars),
    /// How far a cold question to an endpoint got.
    EndpointCheck(EndpointCheck, EndpointParticulars),
    /// Whether the vantage itself has an uplink.
    ControlCheck(ControlCheck, ControlParticulars),
    /// Which way packets take.
    Path(Path, PathParticulars),
    /// Rounds that did not run, and of what: a grid's name, or a subject's.
    Missed(Missed, String),
}

impl What {
    /// Its one outcome.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Resolution(fact, _) => fact.outcome,
            Self::Connection(fact, _) => fact.outcome,
            Self::EndpointCheck(fact, _) => fact.outcome,
            Self::ControlCheck(fact, _) => fact.outcome,
            Self::Path(fact, _) => fact.outcome,
            Self::Missed(..) => Outcome::Missed,
        }
    }

    /// What it says of its subject.
    #[must_use]
    pub fn says(&self) -> Says {
        self.outcome().says()
    }
}

/// SHA-256 of a certificate in DER form.
pub type CertificateHash = [u8; 32];

/// What is kept of a resolution.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResolutionParticulars {
    /// The server that was asked last.
    pub server: Option<IpAddr>,
    /// Extended DNS error of the reply (RFC 8914).
    pub extended_error: Option<u16>,
    /// AD bit of the reply.
    pub authentic_data: bool,
    /// Addresses of a reply whose code says failure: evidence, never contacted, never compared.
    pub addresses_not_used: Vec<IpAddr>,
    /// Addresses beyond the limit: left out, not tried.
    pub addresses_skipped: u32,
    /// For people: what the server wrote beside its error, what large datagrams meet on the way.
    pub remark: String,
    /// The reply that decided; `None`: none was read.
    pub reply: Option<ReplyParticulars>,
    /// Other datagrams that came, at most [`parallax_proto::ODD_REPLIES_MAX`].
    pub odd_replies: Vec<OddReply>,
    /// Own validation; `None`: not asked for.
    pub validation: Option<Validation>,
}

/// What is kept of a DNS reply.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReplyParticulars {
    /// Names of the CNAME chain after the name asked for.
    pub chain: Vec<String>,
    /// TTL of each address, in the order of the addresses, in seconds.
    pub ttls_s: Vec<u32>,
    /// Response code with its extended bits (RFC 6891, 6.1.3).
    pub rcode: u16,
    /// Second 16-bit word of the header, without opcode and code.
    pub flags: u16,
    /// Name server identifier (RFC 5001).
    pub nsid: Vec<u8>,
    /// Size of the message in bytes.
    pub size: u32,
    /// Bytes after its end.
    pub trailing: u32,
    /// What carried it; `None`: unknown.
    pub transport: Option<Carrier>,
    /// The UDP reply was cut; what counts came over TCP.
    pub truncated: bool,
    /// The question was repeated without EDNS.
    pub without_edns: bool,
    /// The question was repeated on a fresh connection, because the pooled one was dead.
    pub reconnected: bool,
    /// How long a negative answer may be kept (RFC 2308), in seconds.
    pub negative_ttl_s: Option<u32>,
    /// First bytes of a reply that could not be read.
    pub first_bytes: Vec<u8>,
}

/// What carried a DNS message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// A datagram.
    Udp,
    /// A stream.
    Tcp,
    /// A TLS stream (RFC 7858).
    Tls,
    /// HTTP/1.1 (RFC 8484).
    Http1,
    /// HTTP/2 (RFC 8484).
    Http2,
}

/// A datagram that is not the reply that decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OddReply {
    /// What is odd.
    pub kind: OddKind,
    /// After the question was sent.
    pub after: Duration,
    /// Its addresses, a few.
    pub addresses: Vec<IpAddr>,
}

impl OddReply {
    /// Adds it to others, of which a few are kept. Another answer to our own question is kept before
    /// all other kinds: it is the one that accuses.
    pub fn note(self, others: &mut Vec<Self>) {
        if others.len() < ODD_REPLIES_MAX {
            others.push(self);
        } else if self.kind == OddKind::Different
            && let Some(other) = others.iter_mut().rfind(|other| other.kind != OddKind::Different)
        {
            *other = self;
        }
    }
}

/// What is odd about a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OddKind {
    /// The same answer again.
    Repeated,
    /// Another answer to the same question: somebody injects.
    Different,
    /// Without a question section.
    WithoutQuestion,
    /// For another question.
    OtherQuestion,
    /// With another id.
    OtherId,
    /// From another address or port than was asked.
    FromElsewhere,
    /// No DNS message.
    Malformed,
}

/// What own validation found (RFC 4035, 4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validation {
    /// A chain of signatures from the root's keys.
    Secure,
    /// Proven to be unsigned.
    Insecure,
    /// Signed, and the signatures do not hold.
    Bogus,
    /// Not enough could be fetched to tell.
    Indeterminate,
}

/// What is kept of a connection. Zero where it does not apply.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConnectionParticulars {
    /// Time to the first completed TCP handshake.
    pub tcp: Duration,
    /// Time TLS took after TCP.
    pub tls: Duration,
    /// Time from the HTTP request to the end of what was read.
    pub http: Duration,
    /// HTTP status where one was received, else 0.
    pub http_status: u16,
    /// Bytes of the body that were read.
    pub body_bytes: u64,
    /// Each own TCP attempt, in order of starting.
    pub attempts: Vec<Attempt>,
    /// The peer's own certificate.
    pub certificate: Option<CertificateHash>,
    /// What a second try with small segments came to, after TLS had hung.
    pub small_segments: Option<Outcome>,
    /// What a node that proves its life answered. Boxed: most connections have none.
    pub life: Option<Box<Life>>,
}

/// What a node answered when it was asked to prove that it lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Life {
    /// Its signature, which holds under the key of the assignment.
    Signed {
        /// When the coordinator made the nonce, by its clock, in ms since 1970.
        issued_ms: u64,
        /// With which of its keys.
        maker: Vec<u8>,
        /// The node's key, by its first bytes.
        key: Vec<u8>,
        /// Over the nonce.
        signature: Vec<u8>,
    },
    /// No signature, and why.
    Missing(LifeTrouble),
}

/// Why a node's proof of life is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LifeTrouble {
    /// The coordinator gave no nonce lately.
    NoNonce,
    /// The owner's policy or limits forbid to ask.
    NotAsked,
    /// No connection to its responder.
    NotReached,
    /// No signature in time.
    NoAnswer,
    /// The signature does not hold.
    Mismatch,
}

/// One own TCP attempt from its own source port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// When it started, after the probe began.
    pub started: Duration,
    /// How it ended; [`Outcome::Silent`] also when it was given up.
    pub outcome: Outcome,
    /// How long it took.
    pub duration: Duration,
}

/// What is kept of an endpoint check. Zero where it does not apply.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EndpointParticulars {
    /// Time of each stage.
    pub stages: StageTimes,
    /// HTTP status where one was received, else 0.
    pub http_status: u16,
    /// How long the server asks to be left alone (RFC 9110, 10.2.3).
    pub retry_after: Option<Duration>,
    /// The server's certificate.
    pub certificate: Option<CertificateHash>,
    /// For people: what the certificate has instead of the name wanted, what the page was.
    pub remark: String,
}

/// Time of each stage of a question; zero where it was not reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StageTimes {
    /// Finding the endpoint's own address.
    pub bootstrap: Duration,
    /// TCP handshake.
    pub tcp: Duration,
    /// TLS handshake.
    pub tls: Duration,
    /// From the HTTP request to the whole answer.
    pub http: Duration,
    /// From the question to the reply, over a transport without HTTP.
    pub dns: Duration,
}

/// What is kept of a control check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ControlParticulars {
    /// Address that was contacted.
    pub address: Option<IpAddr>,
    /// Positive checks of this family that failed in the last 20 minutes, this one included.
    pub failures: u32,
    /// All of them.
    pub checks: u32,
    /// This machine's wall clock less the coordinator's, in ms, as last measured.
    pub clock_offset_ms: Option<i64>,
    /// HTTP status of the captive-portal question, else 0.
    pub http_status: u16,
    /// Time to the first completed TCP handshake.
    pub tcp: Duration,
    /// Time TLS took after TCP.
    pub tls: Duration,
}

/// What is kept of a path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PathParticulars {
    /// Port the packets were for.
    pub port: u16,
    /// Hops in order.
    pub hops: Vec<Hop>,
    /// Smallest MTU reported or known for the path, in bytes; 0: not known.
    pub mtu: u32,
}

/// One hop of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hop {
    /// Time to live of the packets that ended there.
    pub ttl: u8,
    /// Who said so; `None`: nobody.
    pub address: Option<IpAddr>,
    /// When.
    pub rtt: Duration,
}

/// Why something is measured, and for which task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reason {
    /// Why.
    pub purpose: Purpose,
    /// The task that asked for it; 0: none.
    pub task_id: u64,
}

impl Reason {
    /// The vantage's own schedule.
    pub const SCHEDULED: Self = Self { purpose: Purpose::Scheduled, task_id: 0 };
    /// Burst after a first failure.
    pub const CONFIRM: Self = Self { purpose: Purpose::Confirm, task_id: 0 };
}
