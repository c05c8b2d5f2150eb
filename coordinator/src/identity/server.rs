//! TLS towards agents: 1.3 only, a client certificate looked at when there is one, no resumption (a resumed
//! session would not look at it again). An agent without a certificate may only enrol.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::ring;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use secrecy::ExposeSecret;
use time::OffsetDateTime;

use super::SERVER_NAME;
use super::authority::ServerIdentity;
use super::bundle::Bundle;
use super::files::{self, OTHERS};
use super::request::sha256;
use crate::error::{Exit, Failure};

/// The settings for these authorities and this certificate of ours.
///
/// # Errors
/// When the certificates cannot be used, or the key is not the certificate's.
pub fn config(bundle: &Bundle, identity: ServerIdentity) -> Result<Arc<ServerConfig>, Failure> {
    let failed = |why: rustls::Error| Failure::new(Exit::Failed, "cannot set up TLS for agents").why(why);
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots(bundle)?, Arc::clone(&provider))
        .allow_unauthenticated()
        .build()
        .map_err(|error| Failure::new(Exit::Failed, "cannot set up TLS for agents").why(error))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(failed)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(identity.chain, identity.key)
        .map_err(failed)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Arc::new(config))
}

fn roots(bundle: &Bundle) -> Result<Arc<RootCertStore>, Failure> {
    let mut roots = RootCertStore::empty();
    for certificate in bundle.trusted() {
        roots
            .add(certificate.clone())
            .map_err(|error| Failure::new(Exit::Failed, "a certificate authority cannot be used").why(error))?;
    }
    Ok(Arc::new(roots))
}

/// A certificate of the operator's for this coordinator, with its key; and until when it is valid.
///
/// # Errors
/// When the files cannot be read, do not belong together, or agents would not accept the certificate.
pub fn of_operator(
    bundle: &Bundle,
    (certificates, key): (&Path, &Path),
    now: OffsetDateTime,
) -> Result<(ServerIdentity, OffsetDateTime), Failure> {
    let unusable = |why: String| {
        Failure::new(Exit::Failed, "the operator's server certificate cannot be used").why(why).fix(format!(
            "{} must hold a certificate for the name {SERVER_NAME} by an authority that agents trust, and {} its key; both are read again by themselves",
            certificates.display(),
            key.display()
        ))
    };
    let text = files::read(certificates)?;
    let secret = files::read_secret(key, OTHERS)?;
    let mut chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(text.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| unusable(format!("{}: {error}", certificates.display())))?;
    let key_der = PrivateKeyDer::from_pem_slice(secret.expose_secret().as_bytes())
        .map_err(|_| unusable(format!("{} holds no usable key", key.display())))?;
    let (leaf, further) =
        chain.split_first().ok_or_else(|| unusable(format!("{} holds no certificate", certificates.display())))?;
    let (_, parsed) = x509_parser::parse_x509_certificate(leaf).map_err(|error| unusable(error.to_string()))?;
    let not_after = parsed.validity().not_after.to_datetime();
    let authority = authority_of(bundle, leaf, further, now).map_err(unusable)?;
    if chain.last() != Some(&authority) {
        chain.push(authority);
    }
    let signing = ring::sign::any_supported_type(&key_der)
        .map_err(|_| unusable(format!("{} holds no usable key", key.display())))?;
    rustls::sign::CertifiedKey::new(chain.clone(), signing)
        .keys_match()
        .map_err(|_| unusable(format!("{} is not the key of {}", key.display(), certificates.display())))?;
    Ok((ServerIdentity { chain, key: key_der }, not_after))
}

/// The trusted authority that vouches for a server certificate, as an agent checks it.
fn authority_of(
    bundle: &Bundle,
    leaf: &CertificateDer<'static>,
    further: &[CertificateDer<'static>],
    now: OffsetDateTime,
) -> Result<CertificateDer<'static>, String> {
    let seconds = u64::try_from(now.unix_timestamp()).unwrap_or_default();
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
    let name = ServerName::try_from(SERVER_NAME).map_err(|error| error.to_string())?;
    let mut why = "no authority is trusted".to_owned();
    for certificate in bundle.trusted() {
        let mut root = RootCertStore::empty();
        root.add(certificate.clone()).map_err(|error| error.to_string())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(root), Arc::new(ring::default_provider()))
            .build()
            .map_err(|error| error.to_string())?;
        match verifier.verify_server_cert(leaf, further, &name, &[], now) {
            Ok(_) => return Ok(certificate.clone()),
            Err(error) => why = format!("agents would not accept it: {error}"),
        }
    }
    Err(why)
}

/// SHA-256 of the key of the authority that a chain ends with: what a token pins.
///
/// # Errors
/// When the chain is empty or cannot be read.
pub fn pin(chain: &[CertificateDer<'static>]) -> Result<[u8; 32], Failure> {
    let unusable = || Failure::new(Exit::Failed, "the server's certificate cannot be read");
    let last = chain.last().ok_or_else(unusable)?;
    let (_, parsed) = x509_parser::parse_x509_certificate(last).map_err(|_| unusable())?;
    Ok(sha256(parsed.public_key().raw))
}
