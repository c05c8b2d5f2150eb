//! Why there is no connection to a coordinator: what is wrong, how it is told from the rest, and
//! what to do.

use std::net::SocketAddr;

use super::address::Coordinator;
use super::backoff::Pace;
use super::identity::IdentityError;
use super::proxy::ProxyTrouble;
use crate::certificate::Validity;
use crate::date;
use crate::offset::Doubt;

/// Why a connection did not come about.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// The identity's files are not usable and never were.
    #[error("{0}")]
    Identity(IdentityError),
    /// No address to try.
    #[error(
        "its name cannot be looked up ({0}) and no address of it is remembered; check this machine's DNS, or add an address with --coordinator"
    )]
    LookUp(String),
    /// No address took the connection.
    #[error("no address takes the connection ({0}); is it running, is its port open on the way?")]
    Unreachable(String),
    /// TCP came about, TLS did not answer (field case B38).
    #[error(
        "TCP to {0} comes about, then TLS hangs: small packets pass and large ones seem to be lost (path MTU); lower the MTU of this machine's interface, or have ICMP \"fragmentation needed\" let through on the way"
    )]
    TlsHangs(SocketAddr),
    /// The peer closed or reset during TLS.
    #[error("{address} ended the connection during TLS ({why}); something on the way may forbid it")]
    TlsEnded {
        /// Where.
        address: SocketAddr,
        /// How.
        why: String,
    },
    /// What answers speaks no TLS, or none that we do.
    #[error(
        "what answers at {address} does not speak TLS as a coordinator does ({why}); wrong port, or a portal or proxy in between?"
    )]
    NotTls {
        /// Where.
        address: SocketAddr,
        /// What the library said.
        why: String,
    },
    /// The certificate shown is of an authority we do not trust.
    #[error(
        "the certificate presented for the coordinator is issued by '{issuer}' for '{subject}' ({why}): something on the way inspects TLS (a proxy or firewall); exempt {coordinator} from inspection"
    )]
    Inspected {
        /// Whom it was tried for.
        coordinator: Coordinator,
        /// Who issued what was shown.
        issuer: String,
        /// For whom.
        subject: String,
        /// What the library said.
        why: String,
    },
    /// The certificate shown is of an authority that is called as ours, and is another.
    #[error(
        "the certificate presented by {coordinator} is issued by another authority of the name '{issuer}' ({why}): another coordinator than this identity is for, or its authority was made anew; join there with a token of `parallax token create NAME`"
    )]
    OtherAuthority {
        /// Whom it was tried for.
        coordinator: Coordinator,
        /// The authority's name.
        issuer: String,
        /// What the library said.
        why: String,
    },
    /// A certificate of our authority, and no coordinator's.
    #[error("the certificate at {address} is for '{subject}' and not for a coordinator; is this its address and port?")]
    NotACoordinator {
        /// Where.
        address: SocketAddr,
        /// For whom it is.
        subject: String,
    },
    /// The certificate shown does not hold at this time by our clock (field cases B64, B72).
    #[error("{}", clock_text(*now_s, *validity, doubt))]
    Clock {
        /// Our clock, in seconds since 1970.
        now_s: i64,
        /// When the certificate shown holds.
        validity: Option<Validity>,
        /// What else is known of the time.
        doubt: Doubt,
    },
    /// The coordinator's TLS does not take our certificate.
    #[error(
        "the coordinator's TLS does not accept this agent's certificate (alert {alert}; it holds {held}, this machine's clock says {}{}): revoked, expired or of another authority, or one of the two clocks is wrong; check the clocks, else join anew with a token of `parallax token create NAME`",
        date::text(*now_s), listed(doubt)
    )]
    CertificateRefused {
        /// Name of the alert (RFC 8446, 6.2).
        alert: String,
        /// When our certificate holds.
        held: Validity,
        /// Our clock, in seconds since 1970.
        now_s: i64,
        /// What else is known of the time.
        doubt: Doubt,
    },
    /// The proxy did not let us through.
    #[error("proxy {proxy}: {trouble}")]
    Proxy {
        /// Where it is.
        proxy: Coordinator,
        /// How.
        trouble: ProxyTrouble,
    },
    /// The proxy itself cannot be reached.
    #[error("proxy {proxy} cannot be reached: {why}")]
    NoProxy {
        /// Where it is.
        proxy: Coordinator,
        /// What happened.
        why: String,
    },
    /// The TLS library or the system has trouble of its own.
    #[error("this machine has trouble of its own: {0}")]
    Own(String),
}

impl Trouble {
    /// One word for programs that read the log.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Identity(_) => "identity_unusable",
            Self::LookUp(_) => "lookup_failed",
            Self::Unreachable(_) => "unreachable",
            Self::TlsHangs(_) => "tls_hangs",
            Self::TlsEnded { .. } => "tls_ended",
            Self::NotTls { .. } => "not_tls",
            Self::Inspected { .. } => "tls_inspected",
            Self::OtherAuthority { .. } => "other_authority",
            Self::NotACoordinator { .. } => "not_a_coordinator",
            Self::Clock { .. } => "clock_suspected",
            Self::CertificateRefused { .. } => "certificate_refused",
            Self::Proxy { .. } => "proxy_refused",
            Self::NoProxy { .. } => "proxy_unreachable",
            Self::Own(_) => "own_trouble",
        }
    }

    /// How soon another try makes sense.
    #[must_use]
    pub fn pace(&self) -> Pace {
        match self {
            Self::LookUp(_) | Self::TlsEnded { .. } | Self::NoProxy { .. } | Self::Own(_) => Pace::Usual,
            // A coordinator that is down refuses everybody at once.
            Self::Unreachable(_) => Pace::Spread,
            Self::Identity(_)
            | Self::TlsHangs(_)
            | Self::NotTls { .. }
            | Self::Inspected { .. }
            | Self::OtherAuthority { .. }
            | Self::NotACoordinator { .. }
            | Self::Clock { .. }
            | Self::CertificateRefused { .. } => Pace::Slow,
            Self::Proxy { trouble, .. } => match trouble {
                ProxyTrouble::Credentials(_)
                | ProxyTrouble::CredentialsWanted { .. }
                | ProxyTrouble::CredentialsRefused { .. }
                | ProxyTrouble::Forbidden(_)
                | ProxyTrouble::Rubbish(_) => Pace::Slow,
                ProxyTrouble::CannotReach(_)
                | ProxyTrouble::OtherStatus(_)
                | ProxyTrouble::NoReply
                | ProxyTrouble::Closed => Pace::Spread,
            },
        }
    }

    /// Of several addresses' troubles the one that says most is told: who got further.
    #[must_use]
    pub fn tells(&self) -> u8 {
        match self {
            Self::LookUp(_) => 0,
            Self::Unreachable(_) | Self::NoProxy { .. } => 1,
            Self::Own(_) | Self::Proxy { .. } => 2,
            Self::TlsEnded { .. } => 3,
            Self::TlsHangs(_) | Self::NotTls { .. } => 4,
            Self::NotACoordinator { .. } | Self::Inspected { .. } | Self::OtherAuthority { .. } => 5,
            Self::Clock { .. } | Self::CertificateRefused { .. } => 6,
            Self::Identity(_) => 7,
        }
    }
}

fn listed(doubt: &Doubt) -> String {
    doubt.evidence.iter().map(|one| format!("; {one}")).collect()
}

fn clock_text(now_s: i64, validity: Option<Validity>, doubt: &Doubt) -> String {
    let holds = validity.map_or_else(|| "does not hold now".to_owned(), |validity| format!("holds {validity}"));
    let now = date::text(now_s);
    let evidence = listed(doubt);
    if doubt.fine && !doubt.ours {
        return format!(
            "the coordinator's certificate {holds}, this machine's clock says {now}{evidence}: the coordinator's certificate seems to be out of date, or its clock was wrong when it was issued; look there"
        );
    }
    format!(
        "local clock suspected: the coordinator's certificate {holds}, this machine's clock says {now}{evidence}; set the clock (a machine without a battery clock needs a time service that works without TLS, as NTP does)"
    )
}
