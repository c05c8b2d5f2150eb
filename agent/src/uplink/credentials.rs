//! What a connection needs of the identity: mutual TLS, and who is trusted.

use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;

use super::address::Coordinator;
use crate::certificate::{Certificate, Validity};
use crate::identity::signers::Signer;
use crate::tls::builder;
use crate::tls::judge::Judge;

/// What a connection needs.
#[derive(Debug)]
pub struct Credentials {
    /// Mutual TLS.
    pub tls: Arc<ClientConfig>,
    /// When our certificate holds.
    pub validity: Validity,
    /// Names of the authorities we trust.
    pub authorities: Vec<String>,
    /// Their certificates.
    pub roots: Vec<CertificateDer<'static>>,
    /// The vantage our certificate is for; empty when the certificate names none.
    pub vantage: String,
    /// Keys that may sign orders; empty: a folder of before there were any.
    pub signers: Vec<Signer>,
    /// Where coordinators are, as they said themselves.
    pub coordinators: Vec<Coordinator>,
    /// Judges the coordinator's certificate in `tls`.
    pub(super) judge: Arc<Judge>,
}

impl Credentials {
    /// Of an agent that has nothing yet but the SHA-256 of an authority's public key, out of its token.
    ///
    /// # Errors
    /// When the TLS library refuses its own configuration.
    pub fn pinned(authority_sha256: [u8; 32]) -> Result<Self, rustls::Error> {
        let always = Validity { not_before_s: i64::MIN, not_after_s: i64::MAX };
        Self::showing_nothing(Judge::pinned(authority_sha256), always)
    }

    /// The same trust, without showing a certificate: to ask for a new one when ours has ended.
    ///
    /// # Errors
    /// When the TLS library refuses its own configuration.
    pub fn without_certificate(&self) -> Result<Self, rustls::Error> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(self.roots.iter().cloned());
        let bare = Self::showing_nothing(Judge::new(roots)?, self.validity)?;
        Ok(Self {
            authorities: self.authorities.clone(),
            roots: self.roots.clone(),
            signers: self.signers.clone(),
            ..bare
        })
    }

    fn showing_nothing(judge: Judge, validity: Validity) -> Result<Self, rustls::Error> {
        let judge = Arc::new(judge);
        let custom = builder()?.dangerous().with_custom_certificate_verifier(Arc::clone(&judge) as _);
        let mut config = custom.with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Self {
            tls: Arc::new(config),
            validity,
            authorities: Vec::new(),
            roots: Vec::new(),
            vantage: String::new(),
            signers: Vec::new(),
            coordinators: Vec::new(),
            judge,
        })
    }

    /// The certificate that was presented last, when it was not accepted. Taken: it is told once.
    #[must_use]
    pub fn take_presented(&self) -> Option<Certificate> {
        self.judge.take_seen()?.refused
    }
}
