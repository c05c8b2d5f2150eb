//! The library's own judgement of a certificate, with a note of what it was asked about: the error
//! alone does not say whose certificate it was.

use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::{CertificateError, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::certificate_hash;
use crate::certificate::{Certificate, public_key};
use crate::measured::CertificateHash;

/// Judges certificates as the library's own verifier does, and takes down the last one.
#[derive(Debug)]
pub struct Judge {
    trusts: Trusts,
    algorithms: WebPkiSupportedAlgorithms,
    seen: Mutex<Option<Seen>>,
}

/// Who may vouch for a certificate.
#[derive(Debug, Clone)]
enum Trusts {
    /// No authority is known, so none is trusted; the library makes no verifier for that.
    Nobody,
    /// These roots.
    Roots(Arc<WebPkiServerVerifier>),
    /// The authority with this SHA-256 of its public key, which the peer sends along.
    Pinned([u8; 32]),
}

/// What was seen of a certificate.
#[derive(Debug)]
pub struct Seen {
    /// SHA-256 of it.
    pub hash: CertificateHash,
    /// Its particulars, when it was not accepted and could be read.
    pub refused: Option<Certificate>,
}

impl Judge {
    /// A judge who trusts exactly these roots.
    ///
    /// # Errors
    /// When the TLS library refuses its own configuration.
    pub fn new(roots: RootCertStore) -> Result<Self, rustls::Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let algorithms = provider.signature_verification_algorithms;
        let trusts = match roots.is_empty() {
            true => Trusts::Nobody,
            false => Trusts::Roots(verifier(roots)?),
        };
        Ok(Self { trusts, algorithms, seen: Mutex::default() })
    }

    /// A judge who trusts the one authority of whose public key this is the SHA-256 (of its
    /// SubjectPublicKeyInfo), when the peer sends its certificate along with its own.
    #[must_use]
    pub fn pinned(authority_sha256: [u8; 32]) -> Self {
        let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms;
        Self { trusts: Trusts::Pinned(authority_sha256), algorithms, seen: Mutex::default() }
    }

    /// The same judge, who has seen nothing yet.
    #[must_use]
    pub fn again(&self) -> Self {
        Self { trusts: self.trusts.clone(), algorithms: self.algorithms, seen: Mutex::default() }
    }

    /// What was seen last. Taken: it is told once.
    #[must_use]
    pub fn take_seen(&self) -> Option<Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

fn verifier(roots: RootCertStore) -> Result<Arc<WebPkiServerVerifier>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let built = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
    built.map_err(|error| rustls::Error::General(error.to_string()))
}

/// Trust in the one certificate among these whose public key has this hash.
fn authority(sent: &[CertificateDer<'_>], pin: &[u8; 32]) -> Result<Arc<WebPkiServerVerifier>, rustls::Error> {
    let pinned = |der: &&CertificateDer<'_>| {
        public_key(der).is_some_and(|key| ring::digest::digest(&ring::digest::SHA256, key).as_ref() == pin)
    };
    let found = sent.iter().find(pinned).ok_or(CertificateError::UnknownIssuer)?;
    let mut roots = RootCertStore::empty();
    roots.add(found.clone().into_owned())?;
    verifier(roots)
}

impl ServerCertVerifier for Judge {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = match &self.trusts {
            Trusts::Nobody => Err(CertificateError::UnknownIssuer.into()),
            Trusts::Roots(verifier) => {
                verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            }
            Trusts::Pinned(pin) => authority(intermediates, pin).and_then(|verifier| {
                verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            }),
        };
        let refused = verified.is_err().then(|| Certificate::read(end_entity)).flatten();
        let seen = Seen { hash: certificate_hash(end_entity), refused };
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(seen);
        verified
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
