//! The words of a case: what a vantage saw of an address or of an endpoint, and the observation each stands for.

use std::str::FromStr;

use parallax_decide::observation::{Outcome, Stage};
use serde::Deserialize;

/// A word that no case may use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{word}' is no {what} token; known are {known}")]
pub struct UnknownToken {
    word: String,
    what: &'static str,
    known: &'static str,
}

const ADDRESS_TOKENS: &str = "ok, tcp_only, partial, refused, silent, icmp_unreach, no_local_route, tls_stall, \
    tls_stall_mss_ok, tls_reset, bad_name, unknown_ca, cert_expired, cert_not_yet, http:NNN, not_run";

const ENDPOINT_TOKENS: &str = "ok, ok_rewrites, silent_tcp, icmp_unreach, no_local_route, refused, tls_stall, \
    tls_stall_mss_ok, tls_reset, tls_alert, bad_name, unknown_ca, cert_expired, cert_not_yet, http:NNN, \
    http:503_retry_after, no_reply, servfail, empty, refused_rcode, stale_only, bootstrap_failed, not_run";

/// What one vantage sees of one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum AddressToken {
    /// Some attempts complete and some do not, by source port.
    Partial,
    /// Every probe ends so.
    Ends(Outcome),
    /// Not probed.
    NotRun,
}

/// Own attempts of one probe, and how many of them complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempts {
    /// Made.
    pub made: u16,
    /// Completed.
    pub connected: u16,
}

impl AddressToken {
    /// What a probe of it comes to; none: it is not probed.
    #[must_use]
    pub fn probe(self) -> Option<(Outcome, Attempts)> {
        match self {
            Self::NotRun => None,
            Self::Partial => Some((Outcome::TlsOk, Attempts { made: 4, connected: 2 })),
            Self::Ends(outcome) if connects(outcome) => Some((outcome, Attempts { made: 1, connected: 1 })),
            Self::Ends(outcome) => Some((outcome, Attempts { made: 4, connected: 0 })),
        }
    }

    /// Whether TCP completes.
    #[must_use]
    pub fn connects(self) -> bool {
        self.probe().is_some_and(|(_, attempts)| attempts.connected > 0)
    }

    /// Whether TLS for the name completes with a good certificate, or TCP where nothing more is asked.
    #[must_use]
    pub fn works(self) -> bool {
        match self {
            Self::Partial => true,
            Self::Ends(outcome) => outcome == Outcome::TlsOk || outcome == Outcome::TcpOk,
            Self::NotRun => false,
        }
    }
}

/// Whether TCP had completed when a probe ended so.
fn connects(outcome: Outcome) -> bool {
    use parallax_decide::observation::Group;
    match outcome.group() {
        Group::Works | Group::Tls | Group::Certificate | Group::Http => true,
        Group::Reply | Group::Dns | Group::Network | Group::Own | Group::Refused | Group::Record => false,
    }
}

impl FromStr for AddressToken {
    type Err = UnknownToken;

    fn from_str(word: &str) -> Result<Self, UnknownToken> {
        let ends = match word {
            "ok" => Outcome::TlsOk,
            "tcp_only" => Outcome::TcpOk,
            "partial" => return Ok(Self::Partial),
            "not_run" => return Ok(Self::NotRun),
            "refused" => Outcome::ConnectionRefused,
            "silent" => Outcome::Silent,
            "icmp_unreach" => Outcome::HostUnreachable,
            "no_local_route" => Outcome::NoRoute,
            "tls_stall" => Outcome::TlsSilent,
            "tls_stall_mss_ok" => Outcome::PmtuBlackhole,
            "tls_reset" => Outcome::TlsReset,
            "bad_name" => Outcome::CertificateName,
            "unknown_ca" => Outcome::CertificateAuthority,
            "cert_expired" => Outcome::CertificateExpired,
            "cert_not_yet" => Outcome::CertificateNotYetValid,
            _ => match http_status(word) {
                Some(status) => of_status(status),
                None => {
                    return Err(UnknownToken { word: word.to_owned(), what: "address", known: ADDRESS_TOKENS });
                }
            },
        };
        Ok(Self::Ends(ends))
    }
}

impl TryFrom<String> for AddressToken {
    type Error = UnknownToken;

    fn try_from(word: String) -> Result<Self, UnknownToken> {
        word.parse()
    }
}

/// What one vantage sees of one endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum EndpointToken {
    /// Every check ends so.
    Ends(Check),
    /// Not checked.
    NotRun,
}

/// How a check of an endpoint ends: its three questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Check {
    /// Last stage that was tried.
    pub stage: Stage,
    /// The known name.
    pub known: Outcome,
    /// The fresh label.
    pub fresh: Option<Outcome>,
    /// The name that does not exist.
    pub missing: Option<Outcome>,
}

impl Check {
    fn failed(stage: Stage, known: Outcome) -> Self {
        Self { stage, known, fresh: None, missing: None }
    }

    fn replied(known: Outcome, fresh: Outcome, missing: Outcome) -> Self {
        Self { stage: Stage::Dns, known, fresh: Some(fresh), missing: Some(missing) }
    }
}

impl EndpointToken {
    /// Whether the known name is answered with an address.
    #[must_use]
    pub fn answers(self) -> bool {
        match self {
            Self::Ends(check) => check.known == Outcome::Answered,
            Self::NotRun => false,
        }
    }

    /// Whether TCP completes.
    #[must_use]
    pub fn connects(self) -> bool {
        match self {
            Self::Ends(check) => check.stage > Stage::Tcp,
            Self::NotRun => false,
        }
    }
}

impl FromStr for EndpointToken {
    type Err = UnknownToken;

    fn from_str(word: &str) -> Result<Self, UnknownToken> {
        use Outcome as O;
        let check = match word {
            "not_run" => return Ok(Self::NotRun),
            "ok" => Check::replied(O::Answered, O::Answered, O::Nxdomain),
            "ok_rewrites" => Check::replied(O::Answered, O::Answered, O::Answered),
            "stale_only" => Check::replied(O::Answered, O::Servfail, O::Servfail),
            "servfail" => Check::replied(O::Servfail, O::Servfail, O::Servfail),
            "empty" => Check::replied(O::Empty, O::Empty, O::Empty),
            "refused_rcode" => Check::replied(O::Refused, O::Refused, O::Refused),
            "bootstrap_failed" => Check::failed(Stage::Bootstrap, O::DnsSilent),
            "silent_tcp" => Check::failed(Stage::Tcp, O::Silent),
            "icmp_unreach" => Check::failed(Stage::Tcp, O::HostUnreachable),
            "no_local_route" => Check::failed(Stage::Tcp, O::NoRoute),
            "refused" => Check::failed(Stage::Tcp, O::ConnectionRefused),
            "tls_stall" => Check::failed(Stage::Tls, O::TlsSilent),
            "tls_stall_mss_ok" => Check::failed(Stage::Tls, O::PmtuBlackhole),
            "tls_reset" => Check::failed(Stage::Tls, O::TlsReset),
            "tls_alert" => Check::failed(Stage::Tls, O::TlsAlert),
            "bad_name" => Check::failed(Stage::Tls, O::CertificateName),
            "unknown_ca" => Check::failed(Stage::Tls, O::CertificateAuthority),
            "cert_expired" => Check::failed(Stage::Tls, O::CertificateExpired),
            "cert_not_yet" => Check::failed(Stage::Tls, O::CertificateNotYetValid),
            "no_reply" => Check::failed(Stage::Http, O::HttpSilent),
            "http:503_retry_after" => Check::failed(Stage::Http, O::HttpThrottled),
            _ => match http_status(word) {
                Some(status) => Check::failed(Stage::Http, of_status(status)),
                None => {
                    return Err(UnknownToken { word: word.to_owned(), what: "endpoint", known: ENDPOINT_TOKENS });
                }
            },
        };
        Ok(Self::Ends(check))
    }
}

impl TryFrom<String> for EndpointToken {
    type Error = UnknownToken;

    fn try_from(word: String) -> Result<Self, UnknownToken> {
        word.parse()
    }
}

/// The NNN of `http:NNN`.
fn http_status(word: &str) -> Option<u16> {
    let digits = word.strip_prefix("http:").filter(|digits| digits.len() == 3)?;
    digits.parse().ok().filter(|status| (100..600).contains(status))
}

/// The word that agents have for a status that is not the expected one.
fn of_status(status: u16) -> Outcome {
    match status {
        429 => Outcome::HttpThrottled,
        400 | 404 | 405 | 415 => Outcome::HttpUnsupported,
        300..=399 => Outcome::HttpRedirect,
        _ => Outcome::HttpStatus,
    }
}
