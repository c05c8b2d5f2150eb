//! Trust, handshakes that tell what they saw, and the names of their failures.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parallax_decide::observation::Outcome;
use rustls::client::Resumption;
use rustls::{CertificateError, ClientConfig, ClientConnection, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::clock::CertificateTime;
use crate::measured::CertificateHash;
use crate::probe::remark::{date, harmless};
use crate::probe::trouble::{Trouble, trouble};
use judge::Judge;
use paced::Pace;

pub mod judge;
mod paced;

/// Most names of a foreign certificate that are told, and the longest of each in characters.
const NAMES_TOLD_MAX: usize = 3;
const NAME_TOLD_MAX: usize = 64;

/// One TLS configuration for each protocol that is offered inside it.
#[derive(Debug, Clone)]
pub struct Trust {
    /// For targets and controls: no ALPN, so that a peer of any protocol can finish.
    pub targets: Arc<ClientConfig>,
    /// For targets that are asked over HTTP/1.1 afterwards, and DoH over HTTP/1.1 alone.
    pub web: Arc<ClientConfig>,
    /// For DoT (RFC 7858).
    pub dot: Arc<ClientConfig>,
    /// For DoH: HTTP/2, else HTTP/1.1.
    pub doh: Arc<ClientConfig>,
    /// For DoH over HTTP/2 alone.
    pub doh_http2: Arc<ClientConfig>,
    /// Judges certificates in all of them.
    judge: Arc<Judge>,
    /// Keeps many handshakes at the same moment from delaying everything else.
    pace: Pace,
}

/// How a handshake ended, and what was seen of the peer.
#[derive(Debug)]
pub struct Shaken {
    /// The stream, or why there is none. In a box, because it is large and passed on.
    pub stream: Result<Box<TlsStream<TcpStream>>, Outcome>,
    /// The peer's own certificate, also one that was not accepted.
    pub certificate: Option<CertificateHash>,
    /// What is wrong with the certificate, for people; empty when nothing is.
    pub remark: String,
}

/// Why there is no trust to start with.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The file of `tls_roots` cannot be used.
    #[error("cannot use tls_roots {path} of the owner's file: {why}; it must be a PEM file of CA certificates")]
    Roots {
        /// The file.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// The TLS library refused its own configuration.
    #[error("TLS cannot be set up")]
    Setup(#[from] rustls::Error),
}

impl Trust {
    /// The platform's roots, and those of the owner's file.
    ///
    /// # Errors
    /// When the owner's file of roots cannot be used. Platform roots that cannot be read are
    /// logged: probes will then report unknown authorities.
    pub fn load(extra: Option<&Path>) -> Result<Self, TrustError> {
        let mut roots = RootCertStore::empty();
        let native = rustls_native_certs::load_native_certs();
        for error in &native.errors {
            tracing::warn!(%error, "cannot read some of the platform's certificate authorities");
        }
        let (added, _) = roots.add_parsable_certificates(native.certs);
        if let Some(path) = extra {
            let bad = |why: String| TrustError::Roots { path: path.display().to_string(), why };
            let pem = std::fs::read(path).map_err(|error| bad(error.to_string()))?;
            for certificate in certificates(&pem).map_err(bad)? {
                roots.add(certificate).map_err(|error| bad(error.to_string()))?;
            }
        }
        if roots.is_empty() {
            tracing::warn!(
                "no certificate authority is known, every TLS probe will say so; install ca-certificates or set tls_roots"
            );
        }
        tracing::debug!(platform = added, all = roots.len(), "certificate authorities loaded");
        Self::with_roots(roots)
    }

    /// Trust in exactly these roots.
    ///
    /// # Errors
    /// When the TLS library refuses its own configuration.
    pub fn with_roots(roots: RootCertStore) -> Result<Self, TrustError> {
        let judge = Arc::new(Judge::new(roots)?);
        let make = |protocols: &[&[u8]]| -> Result<Arc<ClientConfig>, rustls::Error> {
            // No danger: it is the library's own verifier that judges.
            let custom = builder()?.dangerous().with_custom_certificate_verifier(Arc::clone(&judge) as _);
            let mut config = custom.with_no_client_auth();
            config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
            // A resumed session skips the certificate check, and a cold handshake is what is measured.
            config.resumption = Resumption::disabled();
            Ok(Arc::new(config))
        };
        Ok(Self {
            targets: make(&[])?,
            web: make(&[b"http/1.1"])?,
            dot: make(&[b"dot"])?,
            doh: make(&[b"h2", b"http/1.1"])?,
            doh_http2: make(&[b"h2"])?,
            judge,
            pace: Pace::default(),
        })
    }

    /// Shakes hands with the peer of a stream by one of the configurations above, for at most `limit`.
    pub async fn shake(
        &self,
        config: &ClientConfig,
        name: ServerName<'static>,
        stream: TcpStream,
        limit: Duration,
    ) -> Shaken {
        let judge = Arc::new(self.judge.again());
        let shaken = timeout(limit, begun(&self.pace, judged(config, &judge), name, stream)).await;
        let seen = judge.take_seen();
        let (stream, remark) = match shaken {
            Ok(Ok(stream)) => (Ok(Box::new(stream)), String::new()),
            Ok(Err(error)) => {
                tracing::debug!(%error, "a TLS handshake failed");
                let issuer = seen.as_ref().and_then(|seen| seen.refused.as_ref()).map(|one| one.issuer.as_str());
                (Err(failure(&error)), remark(&error, issuer))
            }
            Err(_) => (Err(Outcome::TlsSilent), String::new()),
        };
        Shaken { stream, certificate: seen.map(|seen| seen.hash), remark }
    }
}

/// The configuration with a judge of one handshake.
fn judged(config: &ClientConfig, judge: &Arc<Judge>) -> Arc<ClientConfig> {
    let mut own = config.clone();
    own.dangerous().set_certificate_verifier(Arc::clone(judge) as _);
    Arc::new(own)
}

/// A handshake, which makes room for the peer's part only when that begins to come: the library would
/// hold 4 KiB ready for it all the time that a peer hangs.
async fn begun(
    pace: &Pace,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    stream: TcpStream,
) -> io::Result<TlsStream<TcpStream>> {
    pace.turn().await;
    let mut hello = Vec::new();
    let mut written = Ok(0);
    let begin = |session: &mut ClientConnection| written = session.write_tls(&mut hello);
    // In a box: it is large, and would be held here and in what waits for it.
    let mut shaking = Box::new(TlsConnector::from(config).connect_with(name, stream, begin));
    written?;
    // There is nothing to say when the library could not even begin: then it tells why at once.
    if !hello.is_empty()
        && let Some(stream) = shaking.get_mut()
    {
        stream.write_all(&hello).await?;
        drop(hello);
        stream.readable().await?;
        pace.turn().await;
    }
    shaking.await
}

/// A client configuration of ours: ring, the default protocol versions, our own clock.
///
/// # Errors
/// When the provider cannot do the default protocol versions.
pub fn builder() -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_details(provider, Arc::new(CertificateTime)).with_safe_default_protocol_versions()
}

/// The certificates of a PEM text; at least one.
///
/// # Errors
/// What is wrong with the text.
pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates: Vec<_> =
        CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    if certificates.is_empty() {
        return Err("it holds no certificate".into());
    }
    Ok(certificates)
}

/// SHA-256 of a certificate.
#[must_use]
pub fn certificate_hash(certificate: &CertificateDer<'_>) -> CertificateHash {
    let mut hash = CertificateHash::default();
    let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
    for (to, from) in hash.iter_mut().zip(digest.as_ref()) {
        *to = *from;
    }
    hash
}

/// How a TLS handshake failed.
#[must_use]
pub fn failure(error: &io::Error) -> Outcome {
    let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) else {
        return match trouble(error) {
            Trouble::Own => Outcome::OwnTrouble,
            Trouble::Silent
            | Trouble::HostUnreachable
            | Trouble::NetUnreachable
            | Trouble::AdminProhibited
            | Trouble::NoRoute
            | Trouble::FamilyUnavailable => Outcome::TlsSilent,
            Trouble::Refused | Trouble::Reset => Outcome::TlsReset,
        };
    };
    use rustls::Error as E;
    if let E::InvalidCertificate(certificate) = tls {
        return of_certificate(certificate);
    }
    if matches!(tls, E::FailedToGetCurrentTime | E::FailedToGetRandomBytes | E::EncryptError) {
        return Outcome::OwnTrouble;
    }
    // Also a peer that speaks TLS and no version or cipher of ours.
    if matches!(tls, E::AlertReceived(_) | E::PeerIncompatible(_) | E::PeerMisbehaved(_)) {
        return Outcome::TlsAlert;
    }
    // Everything else the library says is about bytes that did arrive.
    Outcome::TlsNotSpoken
}

fn of_certificate(error: &CertificateError) -> Outcome {
    use CertificateError as E;
    if matches!(error, E::NotValidForName | E::NotValidForNameContext { .. }) {
        Outcome::CertificateName
    } else if matches!(error, E::Expired | E::ExpiredContext { .. }) {
        Outcome::CertificateExpired
    } else if matches!(error, E::NotValidYet | E::NotValidYetContext { .. }) {
        Outcome::CertificateNotYetValid
    } else if matches!(error, E::UnknownIssuer) {
        Outcome::CertificateAuthority
    } else {
        Outcome::CertificateInvalid
    }
}

/// What is wrong with a certificate, in words for people; empty when the failure is another.
fn remark(error: &io::Error, issuer: Option<&str>) -> String {
    use CertificateError as E;
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let Some(rustls::Error::InvalidCertificate(certificate)) = tls else { return String::new() };
    if let E::NotValidForNameContext { expected, presented } = certificate {
        let told: Vec<String> = presented.iter().take(NAMES_TOLD_MAX).map(|name| presented_name(name)).collect();
        let names = match told.as_slice() {
            [] => "no names".to_owned(),
            _ => told.join(", "),
        };
        let more = match presented.len().saturating_sub(NAMES_TOLD_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        return format!("certificate name mismatch: wanted {}, certificate has {names}{more}", expected.to_str());
    }
    if let E::ExpiredContext { time, not_after } = certificate {
        let (ended, now) = (date(not_after.as_secs()), date(time.as_secs()));
        return format!("the certificate ended {ended}; our clock says {now}");
    }
    if let E::NotValidYetContext { time, not_before } = certificate {
        let (begins, now) = (date(not_before.as_secs()), date(time.as_secs()));
        return format!("the certificate begins {begins}; our clock says {now}");
    }
    match issuer {
        Some(issuer) if *certificate == E::UnknownIssuer => {
            format!("the certificate is issued by \"{issuer}\", who is not trusted here")
        }
        Some(_) | None => String::new(),
    }
}

/// A name as the verifier tells it, `DnsName("x")` or `IpAddress(x)`, without its wrapping.
fn presented_name(told: &str) -> String {
    let inner = told.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(told);
    harmless(inner.trim_matches('"'), NAME_TOLD_MAX)
}
