//! Certificates for a whole fleet, signed with the coordinator's own authority, some thousands a second.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, SanType};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// Start of the URI that names a vantage in its certificate.
const VANTAGE_URI: &str = "parallax://vantage/";

/// What makes identities.
pub struct Identities {
    issuer: Issuer<'static, KeyPair>,
    verifier: Arc<WebPkiServerVerifier>,
}

impl Identities {
    /// Reads the authority of a coordinator's state directory.
    ///
    /// # Errors
    /// It is not there yet, or cannot be read.
    pub fn of(state: &Path) -> Result<Self> {
        let read = |file: &str| {
            let path = state.join("ca").join(file);
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
        };
        let (certificate, key) = (read("ca.pem")?, read("ca.key")?);
        let issuer = Issuer::from_ca_cert_pem(&certificate, KeyPair::from_pem(&key)?)?;
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(certificate.as_bytes())?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
        Ok(Self { issuer, verifier })
    }

    /// The TLS settings of one vantage's agent.
    ///
    /// # Errors
    /// The certificate cannot be made.
    pub fn client(&self, vantage: &str) -> Result<Arc<ClientConfig>> {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, vantage);
        parameters.subject_alt_names.push(SanType::URI(format!("{VANTAGE_URI}{vantage}").try_into()?));
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        parameters.use_authority_key_identifier_extension = true;
        // Its key says whose a certificate is.
        let key = KeyPair::generate()?;
        let certificate = parameters.signed_by(&key, &self.issuer)?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_webpki_verifier(Arc::clone(&self.verifier))
            .with_client_auth_cert(vec![certificate.der().clone()], key)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        // The coordinator resumes none; a cache for each of thousands is memory for nothing.
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    }
}
