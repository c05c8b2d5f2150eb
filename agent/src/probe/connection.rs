//! One address: own TCP attempts from distinct source ports, then TLS, then perhaps a request.
//!
//! [`attempts`] has the TCP phase, [`super::http_check`] the request. Each stage says exactly what it
//! proved: [`Outcome::TcpOk`] is a finished TCP handshake and no more, [`Outcome::TlsOk`] one whose
//! certificate holds for the name, [`Outcome::HttpOk`] an expected status and as much of the body as
//! was asked for.
//!
//! | outcome | what produces it |
//! |---|---|
//! | `tcp_ok` | target without TLS: SYN-ACK, and no RST right after it |
//! | `tls_ok` | TLS finished, certificate verified for the name; no request configured |
//! | `http_ok` | expected status, and at least `read_bytes` of the body, or all of it when it is shorter |
//! | `connection_refused` | RST to every attempt (also made of ICMP port unreachable by the kernel) |
//! | `reset` | SYN-ACK and then RST before anything else: to every attempt, or to a target without TLS |
//! | `silent` | at least one attempt unanswered, no ICMP, none completed |
//! | `host_unreachable`, `net_unreachable` | ICMP to at least one attempt |
//! | `admin_prohibited` | ICMP: administratively prohibited, to at least one attempt; before Linux 6.2 over IPv6 alone |
//! | `no_route` | the kernel has no route to this address, but to others of its family |
//! | `family_unavailable` | the kernel has no route to the family at all |
//! | `own_trouble` | no descriptor, no source port, no memory; a name TLS cannot ask for |
//! | `rate_limited` | the owner's connections a minute are used up |
//! | `special_address`, `refused_by_policy` | never contacted: special-purpose address; port the owner does not allow |
//! | `tls_silent` | TCP completed, TLS had no end within its limit |
//! | `pmtu_blackhole` | the same, and TLS finished on a second connection with segments of 536 bytes |
//! | `tls_reset` | reset or closed during TLS |
//! | `tls_alert` | TLS alert, or TLS without a version or cipher of ours |
//! | `tls_not_spoken` | bytes that are no TLS |
//! | `certificate_*` | the certificate is not acceptable: name, authority, time, else `invalid` |
//! | `http_silent` | request sent, no status within the limit |
//! | `http_closed` | closed or reset before the status or the wanted part of the body |
//! | `http_malformed` | bytes that are no HTTP/1.1 |
//! | `http_redirect`, `http_throttled`, `http_status` | status that is not expected: 3xx; 429, or 503 with Retry-After; any other |
//! | `http_stalled` | expected status, then no byte of the body for as long as a status may take |

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use parallax_decide::observation::Outcome;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::http_check::{self, Heard, Patience};
use super::{Limits, trouble};
use crate::assignment::HttpCheck;
use crate::clock::{Instant, now, since};
use crate::dial::{Dialer, Segments};
use crate::measured::ConnectionParticulars;
use crate::policy::Role;
use crate::site::Site;
use crate::tls::Trust;

pub mod attempts;
#[cfg(test)]
mod tests;

/// How long a target without TLS is watched for an RST after its SYN-ACK: one more round trip, within
/// these bounds. A box that completes handshakes in a dead server's place resets then.
const RESET_WAIT: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(250));

/// What is tried.
#[derive(Debug, Clone)]
pub struct Attempted<'a> {
    /// The address.
    pub address: IpAddr,
    /// TCP port.
    pub port: u16,
    /// Finish TLS for this name; `None`: stop after TCP.
    pub server_name: Option<&'a str>,
    /// What to ask after TLS.
    pub http: Option<&'a HttpCheck>,
    /// What the address is contacted as.
    pub role: Role,
}

/// How far it got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reached {
    /// The one outcome.
    pub outcome: Outcome,
    /// Own attempts made.
    pub attempts: u16,
    /// How many of them completed TCP.
    pub attempts_connected: u16,
    /// What is kept besides.
    pub kept: ConnectionParticulars,
    /// Whole duration.
    pub duration: Duration,
}

impl Reached {
    fn without_dialling(outcome: Outcome) -> Self {
        let duration = Duration::ZERO;
        Self { outcome, attempts: 0, attempts_connected: 0, kept: ConnectionParticulars::default(), duration }
    }
}

/// Tries an address, if the owner's policy permits it.
pub async fn probe(site: &Site, limits: &Limits, tried: &Attempted<'_>) -> Reached {
    if let Err(denial) = site.policy.permits(tried.address, tried.port, tried.role) {
        tracing::debug!(address = %tried.address, port = tried.port, %denial, "not contacted");
        return Reached::without_dialling(denial.outcome());
    }
    if let Err(denial) = site.policy.take_connection(tried.address) {
        tracing::debug!(address = %tried.address, port = tried.port, %denial, "probe left out");
        return Reached::without_dialling(denial.outcome());
    }
    let further = match tried.server_name.map(|name| ServerName::try_from(name.to_owned())) {
        None if tried.role == Role::NegativeControl => Further::Nothing,
        None => Further::StaysOpen,
        Some(Ok(name)) => Further::Tls { name, http: tried.http },
        Some(Err(_)) => {
            tracing::warn!(
                name = tried.server_name,
                "not a name TLS can ask for; correct the coordinator's configuration"
            );
            return Reached::without_dialling(Outcome::OwnTrouble);
        }
    };
    dialled(&site.dialer, &site.trust, limits, SocketAddr::new(tried.address, tried.port), &further).await
}

/// What comes after TCP.
enum Further<'a> {
    /// A completed handshake is the finding, whatever follows.
    Nothing,
    /// A look whether it is reset at once.
    StaysOpen,
    /// TLS for the name, and a request where one is configured.
    Tls { name: ServerName<'static>, http: Option<&'a HttpCheck> },
}

/// Tries an address that may be contacted.
async fn dialled(dialer: &Dialer, trust: &Trust, limits: &Limits, to: SocketAddr, further: &Further<'_>) -> Reached {
    let start = now();
    let deadline = start + limits.connect + limits.tls + limits.http;
    let mut kept = ConnectionParticulars::default();
    let segments = match further {
        Further::Nothing | Further::StaysOpen => Segments::None,
        Further::Tls { .. } => Segments::Usual,
    };
    let mut tcp = attempts::connect(dialer, limits, segments, to).await;
    let mut outcome = match std::mem::replace(&mut tcp.outcome, Err(Outcome::Silent)) {
        Err(outcome) => outcome,
        Ok(stream) => {
            kept.tcp = since(start);
            let beyond = beyond_tcp(trust, limits, stream, to, further, deadline, &mut kept);
            tokio::join!(beyond, tcp.settle()).0
        }
    };
    if let (Outcome::TlsSilent, Further::Tls { name, .. }) = (outcome, further) {
        // Boxed: rare, and every other probe would carry its size.
        let second = Box::pin(in_small_segments(dialer, trust, limits, to, name.clone(), deadline)).await;
        kept.small_segments = Some(second);
        if second == Outcome::TlsOk {
            outcome = Outcome::PmtuBlackhole;
        }
    }
    kept.attempts = tcp.attempts();
    let count = |attempts: usize| u16::try_from(attempts).unwrap_or(u16::MAX);
    Reached {
        outcome,
        attempts: count(kept.attempts.len()),
        attempts_connected: count(kept.attempts.iter().filter(|attempt| attempt.outcome == Outcome::TcpOk).count()),
        kept,
        duration: since(start),
    }
}

async fn beyond_tcp(
    trust: &Trust,
    limits: &Limits,
    stream: TcpStream,
    to: SocketAddr,
    further: &Further<'_>,
    deadline: Instant,
    kept: &mut ConnectionParticulars,
) -> Outcome {
    let (name, http) = match further {
        Further::Nothing => return Outcome::TcpOk,
        Further::StaysOpen => return stays_open(&stream, kept.tcp).await,
        Further::Tls { name, http } => (name, *http),
    };
    let config = if http.is_some() { &trust.web } else { &trust.targets };
    let begun = now();
    let shaken = trust.shake(config, name.clone(), stream, limits.tls).await;
    kept.tls = since(begun);
    // Also one that was not accepted: whose it is tells an impostor from a server with an old certificate.
    kept.certificate = shaken.certificate;
    let stream = match shaken.stream {
        Ok(stream) => stream,
        Err(outcome) => return outcome,
    };
    let Some(check) = http else { return Outcome::TlsOk };
    let begun = now();
    let mut heard = Heard::default();
    let host = match to.port() {
        443 => bracketed(name),
        port => format!("{}:{port}", bracketed(name)),
    };
    let patience = Patience { wait: limits.http, deadline };
    // Boxed: rare, and every other probe would carry its size.
    let outcome = Box::pin(http_check::check(stream, &host, check, patience, &mut heard)).await;
    kept.http = since(begun);
    (kept.http_status, kept.body_bytes) = (heard.status, heard.body_bytes);
    outcome
}

/// The name as a URL has it (RFC 3986, 3.2.2).
fn bracketed(name: &ServerName<'_>) -> String {
    let text = name.to_str();
    if text.contains(':') { format!("[{text}]") } else { text.into_owned() }
}

/// Whether the connection is reset right after it came about. A close is no reset: many servers hang up
/// on who says nothing.
async fn stays_open(stream: &TcpStream, round_trip: Duration) -> Outcome {
    let mut byte = [0];
    match timeout(round_trip.clamp(RESET_WAIT.0, RESET_WAIT.1), stream.peek(&mut byte)).await {
        Ok(Err(error)) if trouble::trouble(&error) == trouble::Trouble::Reset => Outcome::Reset,
        Ok(Ok(_) | Err(_)) | Err(_) => Outcome::TcpOk,
    }
}

/// TCP and TLS once more, in segments that pass where large packets vanish without a word.
async fn in_small_segments(
    dialer: &Dialer,
    trust: &Trust,
    limits: &Limits,
    to: SocketAddr,
    name: ServerName<'static>,
    deadline: Instant,
) -> Outcome {
    let left = || deadline.saturating_duration_since(now());
    let limits = Limits { connect: limits.connect.min(left()), ..limits.clone() };
    let stream = match attempts::connect(dialer, &limits, Segments::Small, to).await.outcome {
        Ok(stream) => stream,
        Err(outcome) => return outcome,
    };
    let shaken = trust.shake(&trust.targets, name, stream, limits.tls.min(left())).await;
    shaken.stream.map_or_else(|outcome| outcome, |_| Outcome::TlsOk)
}
