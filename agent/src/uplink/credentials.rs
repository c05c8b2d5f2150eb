//! What a connection needs of the identity: mutual TLS, and who is trusted.

use std::sync::Arc;

use rustls::ClientConfig;

use crate::certificate::{Certificate, Validity};
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
    /// Judges the coordinator's certificate in `tls`.
    pub(super) judge: Arc<Judge>,
}

impl Credentials {
    /// The certificate that was presented last, when it was not accepted. Taken: it is told once.
    #[must_use]
    pub fn take_presented(&self) -> Option<Certificate> {
        self.judge.take_seen()?.refused
    }
}
