//! One address: own TCP attempts from distinct source ports, then TLS.
//!
//! The kernel repeats a lost SYN on a schedule that depends on its version, and always from the
//! same source port, which a load balancer may send into the same hole. So the probe makes its own
//! attempts at fixed times, each from a new port, and counts them. The first completed one wins.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use parallax_decide::observation::{Family, Outcome};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::{sleep_until, timeout};
use tokio_rustls::TlsConnector;

use super::Limits;
use super::trouble::{Trouble, trouble};
use crate::clock::{now, since};
use crate::dial::Dialer;
use crate::measured::ConnectionParticulars;
use crate::policy::Role;
use crate::site::Site;
use crate::tls::failure;

/// What is tried.
#[derive(Debug, Clone)]
pub struct Attempted<'a> {
    /// The address.
    pub address: IpAddr,
    /// TCP port.
    pub port: u16,
    /// Finish TLS for this name; `None`: stop after TCP.
    pub server_name: Option<&'a str>,
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
    let tls = match tried.server_name.map(|name| ServerName::try_from(name.to_owned())) {
        None => None,
        Some(Ok(name)) => Some((name, Arc::clone(&site.trust.targets))),
        Some(Err(_)) => {
            tracing::warn!(
                name = tried.server_name,
                "not a name TLS can ask for; correct the coordinator's configuration"
            );
            return Reached::without_dialling(Outcome::OwnTrouble);
        }
    };
    dialled(&site.dialer, limits, SocketAddr::new(tried.address, tried.port), tls).await
}

/// Tries an address that may be contacted.
async fn dialled(
    dialer: &Dialer,
    limits: &Limits,
    to: SocketAddr,
    tls: Option<(ServerName<'static>, Arc<ClientConfig>)>,
) -> Reached {
    let start = now();
    let tcp = connect(dialer, limits, to).await;
    let mut kept = ConnectionParticulars::default();
    let outcome = match tcp.outcome {
        Err(outcome) => outcome,
        Ok(stream) => {
            kept.tcp = since(start);
            match tls {
                None => Outcome::TcpOk,
                Some((name, config)) => {
                    let begun = now();
                    let shaken = timeout(limits.tls, TlsConnector::from(config).connect(name, stream)).await;
                    kept.tls = since(begun);
                    match shaken {
                        Ok(Ok(_)) => Outcome::TlsOk,
                        Ok(Err(error)) => failure(&error),
                        Err(_) => Outcome::TlsSilent,
                    }
                }
            }
        }
    };
    Reached {
        outcome,
        attempts: tcp.attempts,
        attempts_connected: tcp.attempts_connected,
        kept,
        duration: since(start),
    }
}

/// How the TCP phase ended.
pub(super) struct TcpPhase {
    /// The stream of the first completed attempt.
    pub(super) outcome: Result<TcpStream, Outcome>,
    attempts: u16,
    attempts_connected: u16,
}

/// The TCP phase: ends with the first completed attempt, when every attempt has failed, or at the limit.
pub(super) async fn connect(dialer: &Dialer, limits: &Limits, to: SocketAddr) -> TcpPhase {
    let start = now();
    let mut starts = VecDeque::new();
    for at in &limits.attempt_at {
        if *at < limits.connect {
            starts.push_back(start + *at);
        }
    }
    let mut open = FuturesUnordered::new();
    let mut failed: Vec<io::Error> = Vec::new();
    let mut attempts = 0;
    let has_family = || dialer.family_available(Family::of(to.ip()));
    let (outcome, attempts_connected) = loop {
        let next = starts.front().copied();
        if next.is_none() && open.is_empty() {
            break (Err(summary(has_family, to, &failed, 0)), 0);
        }
        tokio::select! {
            biased;
            Some(ended) = open.next(), if !open.is_empty() => match ended {
                Ok(stream) => break (Ok(stream), 1),
                Err(error) => failed.push(error),
            },
            () = sleep_until(next.unwrap_or(start)), if next.is_some() => {
                starts.pop_front();
                attempts += 1;
                open.push(dialer.tcp(to));
            }
            () = sleep_until(start + limits.connect) => break (Err(summary(has_family, to, &failed, open.len())), 0),
        }
    };
    TcpPhase { outcome, attempts, attempts_connected }
}

/// One outcome of several failed attempts. Own trouble comes first, because then nothing was
/// measured; "refused" needs an RST to every attempt; an ICMP answer beats silence.
fn summary(
    family_available: impl FnOnce() -> bool,
    to: SocketAddr,
    failed: &[io::Error],
    unanswered: usize,
) -> Outcome {
    let troubles: Vec<Trouble> = failed.iter().map(trouble).collect();
    let any = |wanted: Trouble| troubles.contains(&wanted);
    // Without a route the kernel may also say that it has no source address, or no such family; with
    // an "unreachable" route instead of none (a usual IPv6 default) it says what a router would.
    let local = any(Trouble::Own) || any(Trouble::NetUnreachable) || any(Trouble::HostUnreachable);
    if local && !family_available() {
        return Outcome::FamilyUnavailable;
    }
    if any(Trouble::Own) {
        for error in failed {
            tracing::debug!(%to, %error, "own trouble while connecting");
        }
        return Outcome::OwnTrouble;
    }
    if any(Trouble::NetUnreachable) {
        return Outcome::NetUnreachable;
    }
    if any(Trouble::HostUnreachable) {
        return Outcome::HostUnreachable;
    }
    let answered = troubles.iter().all(|trouble| matches!(trouble, Trouble::Refused | Trouble::Reset));
    if unanswered == 0 && answered && !troubles.is_empty() {
        return Outcome::ConnectionRefused;
    }
    Outcome::Silent
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;
    use tokio::io::AsyncWriteExt as _;

    use super::*;
    use crate::probe::testing::{Authority, limits, refused_port, serve, silent_port};

    async fn tls(to: SocketAddr, name: &str, authority: &Authority) -> Reached {
        let trust = authority.trust();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        dialled(&Dialer::direct(), &limits(), to, Some((name, trust.targets))).await
    }

    #[tokio::test]
    async fn tcp_only_stops_after_tcp() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let reached = dialled(&Dialer::direct(), &limits(), listener.local_addr().unwrap(), None).await;
        assert_eq!((reached.outcome, reached.attempts), (Outcome::TcpOk, 1));
        assert_eq!(reached.attempts_connected, 1);
        assert_eq!(reached.kept.tls, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn refused_means_a_reset_to_every_attempt() {
        let reached = dialled(&Dialer::direct(), &limits(), refused_port(), None).await;
        assert_eq!((reached.outcome, reached.attempts), (Outcome::ConnectionRefused, 4));
        assert_eq!(reached.attempts_connected, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn silence_lasts_until_the_limit_of_the_whole_phase() {
        let (to, _held) = silent_port().await;
        let reached = dialled(&Dialer::direct(), &limits(), to, None).await;
        assert_eq!((reached.outcome, reached.attempts), (Outcome::Silent, 4));
        assert_eq!(reached.duration.as_millis(), limits().connect.as_millis());
    }

    #[tokio::test]
    async fn a_verified_certificate_is_the_proof() {
        let authority = Authority::new();
        let to = serve(authority.server("example.com")).await;
        let reached = tls(to, "example.com", &authority).await;
        assert_eq!(reached.outcome, Outcome::TlsOk);
        assert!(reached.kept.tls > Duration::ZERO);
    }

    #[tokio::test]
    async fn certificates_fail_by_name_authority_and_time() {
        let authority = Authority::new();
        let good = serve(authority.server("example.com")).await;
        assert_eq!(tls(good, "other.example", &authority).await.outcome, Outcome::CertificateName);
        assert_eq!(tls(good, "example.com", &Authority::new()).await.outcome, Outcome::CertificateAuthority);
        let expired = serve(authority.expired_server("example.com")).await;
        assert_eq!(tls(expired, "example.com", &authority).await.outcome, Outcome::CertificateExpired);
    }

    #[tokio::test(start_paused = true)]
    async fn an_open_port_with_nobody_behind_it_is_tls_silent() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let reached = tls(listener.local_addr().unwrap(), "example.com", &Authority::new()).await;
        assert_eq!((reached.outcome, reached.attempts_connected), (Outcome::TlsSilent, 1));
    }

    #[tokio::test]
    async fn a_close_in_the_handshake_is_a_reset_and_other_words_an_alert() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = listener.local_addr().unwrap();
        tokio::spawn(async move {
            drop(listener.accept().await.unwrap());
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
            // Held open until the test is over: the bytes, not the close, must decide.
            std::future::pending::<()>().await;
        });
        assert_eq!(tls(to, "example.com", &Authority::new()).await.outcome, Outcome::TlsReset);
        assert_eq!(tls(to, "example.com", &Authority::new()).await.outcome, Outcome::TlsNotSpoken);
    }

    #[test]
    fn several_failures_have_one_summary() {
        let to = "127.0.0.1:443".parse().unwrap();
        let of = |numbers: &[Errno], unanswered| {
            let failed: Vec<io::Error> = numbers.iter().copied().map(io::Error::from).collect();
            summary(|| true, to, &failed, unanswered)
        };
        use Errno::{EADDRNOTAVAIL, EAFNOSUPPORT, ECONNREFUSED, EHOSTUNREACH, EMFILE, ENETUNREACH};
        assert_eq!(of(&[ECONNREFUSED, ECONNREFUSED], 0), Outcome::ConnectionRefused);
        assert_eq!(of(&[ECONNREFUSED], 1), Outcome::Silent);
        assert_eq!(of(&[], 4), Outcome::Silent);
        assert_eq!(of(&[EHOSTUNREACH, ECONNREFUSED], 2), Outcome::HostUnreachable);
        assert_eq!(of(&[ECONNREFUSED, EMFILE], 0), Outcome::OwnTrouble);
        assert_eq!(of(&[ENETUNREACH], 0), Outcome::NetUnreachable);
        for number in [ENETUNREACH, EAFNOSUPPORT, EADDRNOTAVAIL, EHOSTUNREACH] {
            let without_family = summary(|| false, to, &[number.into()], 0);
            assert_eq!(without_family, Outcome::FamilyUnavailable, "{number}");
        }
    }
}
