//! Facts, as agents measured them. Exactly one outcome each; no judgement here.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::names::{ControlName, DomainName, NodeName, ResolverName, VantageName};
use crate::time::Timestamp;

mod lane;
mod meaning;
mod outcome;
mod particulars;

pub use lane::Lane;
pub use outcome::{Group, Outcome, Says};
pub use particulars::{Particulars, Proof, Recent, Validation};

/// Key of a stored observation; rises in commit order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ObservationId(pub i64);

/// One measured fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// Its key in the log.
    pub id: ObservationId,
    /// Where it was measured.
    pub vantage: VantageName,
    /// When the probe ended: received minus age.
    pub at: Timestamp,
    /// When the coordinator received it.
    pub received_at: Timestamp,
    /// Why it was measured.
    pub purpose: Purpose,
    /// Older than two rounds, or of an earlier start of the agent: history, which never votes.
    pub late: bool,
    /// What was measured.
    pub fact: Fact,
    /// What came beside it.
    pub particulars: Particulars,
}

/// Why something was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// The vantage's own schedule.
    Scheduled,
    /// Burst after a first failure.
    Confirm,
    /// Asked for to compare vantages.
    CrossCheck,
    /// Asked for to prove a change.
    Verify,
}

/// What was measured, or what the agent says of its own work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    /// What a resolver answered.
    Resolution(Resolution),
    /// Whether an address could be used.
    Connection(Connection),
    /// How far a cold question to an endpoint got.
    EndpointCheck(EndpointCheck),
    /// Whether the vantage itself has an uplink.
    ControlCheck(ControlCheck),
    /// Which way packets take to an address: evidence for people, never for a verdict.
    Path(Path),
    /// Observations that were measured and then dropped.
    Loss(Loss),
    /// Scheduled rounds that did not run.
    Missed(Missed),
}

impl Fact {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Resolution(_) => Kind::Resolution,
            Self::Connection(_) => Kind::Connection,
            Self::EndpointCheck(_) => Kind::EndpointCheck,
            Self::ControlCheck(_) => Kind::ControlCheck,
            Self::Path(_) => Kind::Path,
            Self::Loss(_) => Kind::Loss,
            Self::Missed(_) => Kind::Missed,
        }
    }

    /// Its one outcome.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Resolution(fact) => fact.outcome,
            Self::Connection(fact) => fact.outcome,
            Self::EndpointCheck(fact) => fact.outcome,
            Self::ControlCheck(fact) => fact.outcome,
            Self::Path(fact) => fact.outcome,
            Self::Loss(_) => Outcome::Lost,
            Self::Missed(_) => Outcome::Missed,
        }
    }
}

word_enum! {
    /// The kinds of fact.
    Kind {
        /// What a resolver answered.
        Resolution = "resolution",
        /// Whether an address could be used.
        Connection = "connection",
        /// How far a cold question to an endpoint got.
        EndpointCheck = "endpoint_check",
        /// Whether the vantage itself has an uplink.
        ControlCheck = "control_check",
        /// Which way packets take.
        Path = "path",
        /// Observations that were dropped.
        Loss = "loss",
        /// Rounds that did not run.
        Missed = "missed",
    }
}

/// What one resolver answered to one question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolution {
    /// Name asked for: a canary, or a service's host name.
    pub name: DomainName,
    /// Resolver asked.
    pub resolver: ResolverName,
    /// Address family asked for.
    pub family: Family,
    /// How it ended.
    pub outcome: Outcome,
    /// Addresses in answer order; empty unless answered. May hold special-purpose ones.
    pub addresses: Vec<IpAddr>,
    /// Smallest TTL of the addresses, in seconds.
    pub ttl_s: u32,
}

/// Address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// IPv4, question type A.
    V4,
    /// IPv6, question type AAAA.
    V6,
}

impl Family {
    /// The family of an address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
}

macro_rules! word_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $word)] $variant),*
        }

        impl $name {
            /// Every value, in declaration order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The word for it in SQL, API and pages.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),*
                }
            }

            /// The value of a word.
            #[must_use]
            pub fn from_word(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.word() == word)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.word())
            }
        }
    };
}
pub(crate) use word_enum;

/// One probe of one address: up to four own attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// What the address was tried for.
    pub target: Target,
    /// The address.
    pub address: IpAddr,
    /// TCP port.
    pub port: u16,
    /// How it ended.
    pub outcome: Outcome,
    /// Own attempts made, each from another source port.
    pub attempts: u16,
    /// How many of them completed TCP.
    pub attempts_connected: u16,
}

/// What an address is tried for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// A canary or a service's host name.
    Name(DomainName),
    /// A node of ours.
    Node(NodeName),
}

/// One cold question to one resolver endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointCheck {
    /// Resolver asked.
    pub resolver: ResolverName,
    /// Address contacted.
    pub address: IpAddr,
    /// Last stage that was tried.
    pub stage: Stage,
    /// How the known name's question ended.
    pub outcome: Outcome,
    /// How the question for a random label of the freshness zone ended; `None`: not asked.
    pub fresh: Option<Outcome>,
    /// How the question for a name that does not exist ended; `None`: not asked.
    pub missing: Option<Outcome>,
    /// Whether this endpoint has ever worked from here in this format and method.
    pub worked_before: bool,
}

word_enum! {
    /// Stages of an endpoint check, in order.
    Stage {
        /// Finding the endpoint's own address.
        Bootstrap = "bootstrap",
        /// TCP handshake.
        Tcp = "tcp",
        /// TLS handshake.
        Tls = "tls",
        /// HTTP exchange.
        Http = "http",
        /// The DNS message itself.
        Dns = "dns",
    }
}

/// One check of the vantage itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlCheck {
    /// Control tried.
    pub control: ControlName,
    /// How it ended. A negative control is right when nothing answers; the captive-portal question
    /// with [`Outcome::HttpOk`] alone.
    pub outcome: Outcome,
}

/// Which way packets take to an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    /// The address.
    pub address: IpAddr,
    /// Whether packets reached it.
    pub outcome: Outcome,
    /// The last hop that answered.
    pub last_hop: Option<IpAddr>,
}

/// Observations that were measured and then dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// Why.
    pub reason: LossReason,
    /// How many.
    pub count: u64,
}

word_enum! {
    /// Why observations were dropped.
    LossReason {
        /// The spool was at its cap.
        Full = "full",
        /// Older than the spool keeps.
        Old = "old",
        /// The disk took nothing and memory was full.
        Disk = "disk",
        /// What was on disk could not be read.
        Damaged = "damaged",
    }
}

/// Scheduled rounds that did not run. Not a failure of their subjects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missed {
    /// Why.
    pub reason: MissedReason,
    /// How many.
    pub count: u64,
}

word_enum! {
    /// Why rounds did not run.
    MissedReason {
        /// The last round of the same subject was not over.
        Overrun = "overrun",
        /// The process did not run: stopped, suspended.
        Paused = "paused",
        /// Too many probes in flight.
        Busy = "busy",
        /// The owner's limits were used up.
        Limited = "limited",
        /// The server asked to be left alone for a while.
        Throttled = "throttled",
        /// The round began and did not end within its limit.
        GivenUp = "given_up",
        /// The round began and broke down: a fault of the agent.
        Broken = "broken",
    }
}
