//! The way to a coordinator, below the HTTP/2 library: its addresses, a proxy, mutual TLS.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parallax_decide::observation::Outcome;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::address::Coordinator;
use super::dialling::{Dialling, tcp};
use super::identity::Credentials;
use super::known::Known;
use super::lookup::Lookup;
use super::proxy::{Proxy, ProxySetting};
use super::timing::Timing;
use super::trouble::Trouble;
use super::watched::{Verdict, Watched};
use crate::clock;
use crate::dial::Segments;
use crate::offset::ClockOffset;
use crate::tls;

/// The name in the coordinator's certificate, whatever its address is.
pub const COORDINATOR_NAME: &str = "parallax-coordinator";

/// Longest wait for name look-up, TCP, proxy and TLS together, over all addresses of one coordinator.
const CONNECT_MAX: Duration = Duration::from_secs(25);

/// Most addresses that are remembered for small segments.
const NARROW_MAX: usize = 16;

/// Finds coordinators and connects to them.
#[derive(Debug)]
pub struct Connector {
    proxy: ProxySetting,
    known: Known,
    lookup: Lookup,
    offset: ClockOffset,
    /// Addresses to which large packets are lost on the way, as was found out: a handful.
    narrow: BTreeSet<SocketAddr>,
}

/// A connection on which the coordinator proved itself. Whether it takes our certificate is only
/// known once it is read from (TLS 1.3).
#[derive(Debug)]
pub struct Connection {
    /// The stream.
    pub stream: Watched,
    /// What the coordinator's TLS says about our certificate, once it does.
    pub verdict: Verdict,
    /// Where it leads: the coordinator's, or the proxy's.
    pub address: SocketAddr,
}

impl Connector {
    /// With the owner's word on proxies and the addresses that were good before.
    #[must_use]
    pub fn new(proxy: ProxySetting, known: Known, offset: ClockOffset) -> Self {
        Self { proxy, known, lookup: Lookup::default(), offset, narrow: BTreeSet::new() }
    }

    /// Connects to one coordinator.
    ///
    /// # Errors
    /// Of all that was tried, the trouble that says most.
    pub async fn connect(
        &mut self,
        to: &Coordinator,
        with: &Credentials,
        timing: &Timing,
    ) -> Result<Connection, Trouble> {
        let mut worst = None;
        // The future is large and lives for a moment only.
        let reached = timeout(CONNECT_MAX, Box::pin(self.reach(to, (with, timing.tls_max), &mut worst))).await;
        match reached {
            Ok(Some(connection)) => Ok(connection),
            Ok(None) | Err(_) => {
                Err(worst.unwrap_or_else(|| Trouble::Unreachable("nothing came of it in time".to_owned())))
            }
        }
    }

    async fn reach(
        &mut self,
        to: &Coordinator,
        (with, tls_max): (&Credentials, Duration),
        worst: &mut Option<Trouble>,
    ) -> Option<Connection> {
        let proxy = self.proxy.to(to).cloned();
        let target = proxy.as_ref().map_or(to, |proxy| &proxy.at);
        let (key, addresses) = (target.to_string(), self.addresses(target, worst).await);
        let mut dialling = Dialling::new(addresses, self.narrow.clone());
        while let Some((address, outcome)) = dialling.next().await {
            let secured = match outcome {
                Ok(stream) => {
                    let secured = self.secured(stream, address, (to, proxy.as_ref()), with, tls_max).await;
                    match secured {
                        Err(Trouble::TlsHangs(_)) if !self.narrow.contains(&address) => {
                            self.narrowly(address, (to, proxy.as_ref()), with, tls_max).await
                        }
                        secured => secured,
                    }
                }
                Err(error) => Err(unreachable(address, &error, proxy.as_ref())),
            };
            match secured {
                Ok(connection) => {
                    self.known.proved(&key, address);
                    return Some(connection);
                }
                Err(trouble) => keep_the_telling(worst, trouble),
            }
        }
        None
    }

    /// Where the coordinator (or the proxy) may be: what its name gives now, then where it was good
    /// before. Also a name that does give something may give the wrong thing.
    async fn addresses(&mut self, of: &Coordinator, worst: &mut Option<Trouble>) -> Vec<SocketAddr> {
        let known = self.known.of(&of.to_string());
        let mut addresses = match self.lookup.addresses(&of.host, of.port).await {
            Ok(addresses) => addresses,
            Err(error) => {
                if known.is_empty() {
                    keep_the_telling(worst, Trouble::LookUp(error.to_string()));
                } else {
                    tracing::info!(coordinator = %of, %error, addresses = ?known, "its name cannot be looked up; trying where it was before");
                }
                Vec::new()
            }
        };
        for address in known {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        addresses
    }

    /// Once more with small segments: where that works, large packets are lost on the way.
    async fn narrowly(
        &mut self,
        address: SocketAddr,
        to: (&Coordinator, Option<&Proxy>),
        with: &Credentials,
        tls_max: Duration,
    ) -> Result<Connection, Trouble> {
        let stream = tcp(address, Segments::Small).await.map_err(|_| Trouble::TlsHangs(address))?;
        let secured = self.secured(stream, address, to, with, tls_max).await;
        if secured.is_ok() {
            self.lost_large_packets(address);
        }
        secured
    }

    /// Large packets seem to be lost on the way to this address: from now on small segments are used.
    pub fn lost_large_packets(&mut self, address: SocketAddr) {
        if self.narrow.len() < NARROW_MAX && self.narrow.insert(address) {
            tracing::warn!(
                reason = "small_segments",
                %address,
                "large packets seem to be lost on the way to the coordinator (path MTU); small segments are used there from now on, which costs a little; lower the MTU of this machine's interface, or have ICMP \"fragmentation needed\" let through"
            );
        }
    }

    async fn secured(
        &self,
        mut stream: TcpStream,
        address: SocketAddr,
        (to, proxy): (&Coordinator, Option<&Proxy>),
        with: &Credentials,
        tls_max: Duration,
    ) -> Result<Connection, Trouble> {
        if let Some(proxy) = proxy {
            let opened = proxy.connect(&mut stream, to).await;
            let date = opened.map_err(|trouble| Trouble::Proxy { proxy: proxy.at.clone(), trouble })?;
            if let Some(unix_s) = date {
                self.offset.heard_http(unix_s);
            }
        }
        let name = ServerName::try_from(COORDINATOR_NAME).map_err(|error| Trouble::Own(error.to_string()))?;
        let _ = with.take_presented();
        let shaking = TlsConnector::from(Arc::clone(&with.tls)).connect(name, stream);
        let stream = match timeout(tls_max, shaking).await {
            Err(_) => return Err(Trouble::TlsHangs(address)),
            Ok(Err(error)) => return Err(self.tls_trouble(&error, address, to, with)),
            Ok(Ok(stream)) => stream,
        };
        let verdict = Verdict::default();
        Ok(Connection { stream: Watched::new(stream, verdict.clone()), verdict, address })
    }

    fn tls_trouble(&self, error: &io::Error, address: SocketAddr, to: &Coordinator, with: &Credentials) -> Trouble {
        let verdict = Verdict::default();
        verdict.note(error);
        if let Some(alert) = verdict.take() {
            return self.refused(alert, with);
        }
        let presented = with.take_presented();
        let why = short(&error.to_string());
        match about(error) {
            About::Name => Trouble::NotACoordinator {
                address,
                subject: presented.map_or_else(|| "unnamed".to_owned(), |one| one.subject),
            },
            About::Time => Trouble::Clock {
                now_s: now_s(),
                validity: presented.map(|one| one.validity),
                doubt: self.offset.doubt(Some(with.validity)),
            },
            About::Authority => {
                let (issuer, subject) = presented
                    .map_or_else(|| ("unnamed".to_owned(), "unnamed".to_owned()), |one| (one.issuer, one.subject));
                match with.authorities.contains(&issuer) {
                    true => Trouble::OtherAuthority { coordinator: to.clone(), issuer, why },
                    false => Trouble::Inspected { coordinator: to.clone(), issuer, subject, why },
                }
            }
            About::Bytes => Trouble::NotTls { address, why },
            About::End => Trouble::TlsEnded { address, why },
            About::Own => Trouble::Own(why),
        }
    }

    /// Our certificate was refused with this alert.
    #[must_use]
    pub fn refused(&self, alert: String, with: &Credentials) -> Trouble {
        let doubt = self.offset.doubt(Some(with.validity));
        Trouble::CertificateRefused { alert, held: with.validity, now_s: now_s(), doubt }
    }
}

/// What a failed handshake is about.
enum About {
    Name,
    Time,
    Authority,
    /// What arrived is no TLS that we speak.
    Bytes,
    /// The connection ended.
    End,
    Own,
}

fn about(error: &io::Error) -> About {
    let outcome = tls::failure(error);
    if outcome == Outcome::CertificateName {
        About::Name
    } else if matches!(outcome, Outcome::CertificateExpired | Outcome::CertificateNotYetValid) {
        About::Time
    } else if matches!(outcome, Outcome::CertificateAuthority | Outcome::CertificateInvalid) {
        About::Authority
    } else if matches!(outcome, Outcome::TlsSilent | Outcome::TlsReset) {
        About::End
    } else if outcome == Outcome::OwnTrouble {
        About::Own
    } else {
        About::Bytes
    }
}

fn unreachable(address: SocketAddr, error: &io::Error, proxy: Option<&Proxy>) -> Trouble {
    let why = match error.kind() == io::ErrorKind::TimedOut {
        true => format!("{address}: no answer"),
        false => format!("{address}: {error}"),
    };
    match proxy {
        Some(proxy) => Trouble::NoProxy { proxy: proxy.at.clone(), why },
        None => Trouble::Unreachable(why),
    }
}

/// Keeps the trouble that says more, the earlier one of equals.
fn keep_the_telling(worst: &mut Option<Trouble>, trouble: Trouble) {
    tracing::debug!(reason = trouble.word(), why = %trouble, "one way to the coordinator failed");
    if worst.as_ref().is_none_or(|held| held.tells() < trouble.tells()) {
        *worst = Some(trouble);
    }
}

fn now_s() -> i64 {
    i64::try_from(clock::unix_ms() / 1000).unwrap_or(i64::MAX)
}

/// Errors of the TLS library can repeat what the peer sent at length.
fn short(text: &str) -> String {
    text.chars().take(120).collect()
}
