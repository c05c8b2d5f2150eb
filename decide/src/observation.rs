//! Facts, as agents measured them. Exactly one outcome each; no judgement here.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::names::{ControlName, DomainName, NodeName, ResolverName, VantageName};
use crate::time::Timestamp;

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
    /// What was measured.
    pub fact: Fact,
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

/// The four kinds of fact.
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
    pub outcome: ResolutionOutcome,
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

word_enum! {
    /// How a resolution ended.
    ResolutionOutcome {
        /// NOERROR with at least one address of the family.
        Answered = "answered",
        /// NOERROR without an address (NODATA).
        Empty = "empty",
        /// NXDOMAIN.
        Nxdomain = "nxdomain",
        /// SERVFAIL.
        Servfail = "servfail",
        /// REFUSED.
        Refused = "refused",
        /// Any other response code.
        OtherRcode = "other_rcode",
        /// No reply before the deadline.
        Timeout = "timeout",
        /// Connection refused or ICMP.
        Unreachable = "unreachable",
        /// TLS to the endpoint failed.
        TlsFailed = "tls_failed",
        /// HTTP status other than 2xx.
        HttpFailed = "http_failed",
        /// A reply that is no DNS message, or to another question.
        Malformed = "malformed",
        /// The agent's own trouble: no socket, no route, no resolver configured.
        OwnTrouble = "own_trouble",
        /// The owner's local policy forbids contacting the resolver.
        RefusedByPolicy = "refused_by_policy",
    }
}

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
    pub outcome: ConnectionOutcome,
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

word_enum! {
    /// How a connection ended.
    ConnectionOutcome {
        /// TLS for the name completed with a verified certificate.
        TlsOk = "tls_ok",
        /// TCP completed; the target is TCP-only by configuration.
        TcpOk = "tcp_ok",
        /// RST to every attempt.
        Refused = "refused",
        /// Nothing came back to any attempt.
        Silent = "silent",
        /// ICMP or local: host unreachable.
        HostUnreachable = "host_unreachable",
        /// ICMP or local: network unreachable, for this prefix only.
        NetUnreachable = "net_unreachable",
        /// TCP completed, the TLS handshake got no answer.
        TlsSilent = "tls_silent",
        /// Reset or closed during TLS.
        TlsReset = "tls_reset",
        /// TLS alert, or no TLS spoken.
        TlsAlert = "tls_alert",
        /// Certificate for another name.
        CertificateName = "certificate_name",
        /// Certificate of an unknown authority.
        CertificateAuthority = "certificate_authority",
        /// Certificate expired or not yet valid.
        CertificateTime = "certificate_time",
        /// No route for the whole family at this vantage.
        FamilyUnavailable = "family_unavailable",
        /// No descriptor or source port: the agent's own trouble.
        OwnTrouble = "own_trouble",
        /// Special-purpose address, or forbidden by the owner; never contacted.
        RefusedByPolicy = "refused_by_policy",
    }
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
    /// How that stage ended.
    pub outcome: StageOutcome,
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

word_enum! {
    /// How a stage ended.
    StageOutcome {
        /// Worked; with stage dns: the endpoint works.
        Ok = "ok",
        /// RST.
        Refused = "refused",
        /// Reset in mid-exchange.
        Reset = "reset",
        /// Nothing before the deadline.
        Timeout = "timeout",
        /// ICMP or no route.
        Unreachable = "unreachable",
        /// Certificate not acceptable.
        Certificate = "certificate",
        /// TLS alert or no TLS.
        Alert = "alert",
        /// HTTP status other than 2xx.
        Status = "status",
        /// Not a DNS message, or for another question.
        Malformed = "malformed",
        /// SERVFAIL.
        Servfail = "servfail",
        /// REFUSED.
        RefusedRcode = "refused_rcode",
        /// No address for the known name.
        Empty = "empty",
        /// The agent's own trouble.
        OwnTrouble = "own_trouble",
        /// Forbidden by the owner's local policy.
        RefusedByPolicy = "refused_by_policy",
    }
}

/// One check of the vantage itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlCheck {
    /// Control tried.
    pub control: ControlName,
    /// How it ended. A negative control is right when nothing answers.
    pub outcome: ConnectionOutcome,
}
