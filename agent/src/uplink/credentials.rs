//! What a connection needs of the identity: mutual TLS, and who is trusted.

use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use crate::certificate::{Certificate, Validity};

/// What a connection needs.
#[derive(Debug)]
pub struct Credentials {
    /// Mutual TLS.
    pub tls: Arc<ClientConfig>,
    /// When our certificate holds.
    pub validity: Validity,
    /// Names of the authorities we trust.
    pub authorities: Vec<String>,
    /// The certificate that was presented last and not accepted.
    pub(super) presented: Presented,
}

/// A note of the certificate that was presented last and not accepted.
pub(super) type Presented = Arc<Mutex<Option<Certificate>>>;

impl Credentials {
    /// The certificate that was presented last and not accepted. Taken: it is told once.
    #[must_use]
    pub fn take_presented(&self) -> Option<Certificate> {
        self.presented.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Verifies as the library does, and notes the certificate that it did not accept: the error alone
/// does not say whose it was.
#[derive(Debug)]
pub(super) struct Noting {
    pub(super) verifier: Arc<WebPkiServerVerifier>,
    pub(super) presented: Presented,
}

impl ServerCertVerifier for Noting {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = self.verifier.verify_server_cert(end_entity, intermediates, name, ocsp, now);
        if verified.is_err() {
            let read = Certificate::read(end_entity);
            *self.presented.lock().unwrap_or_else(PoisonError::into_inner) = read;
        }
        verified
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}
