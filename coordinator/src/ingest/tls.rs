//! TLS settings towards agents: 1.3 only, a certificate of our authority demanded, no resumption
//! (a resumed session would not look at the certificate again).

use std::sync::Arc;

use parallax_decide::names::VantageName;
use rustls::crypto::ring;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use x509_parser::extensions::GeneralName;

use crate::ca::{Authority, Identity, VANTAGE_URI};
use crate::error::{Exit, Failure};

/// The settings for this authority and this certificate of ours.
///
/// # Errors
/// When the certificates cannot be used.
pub fn server_config(authority: &Authority, identity: Identity) -> Result<Arc<ServerConfig>, Failure> {
    let failed = |why: String| Failure::new(Exit::Failed, "cannot set up TLS for agents").why(why);
    let provider = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate().clone()).map_err(|error| failed(error.to_string()))?;
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .build()
        .map_err(|error| failed(error.to_string()))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| failed(error.to_string()))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![identity.certificate], identity.key)
        .map_err(|error| failed(error.to_string()))?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Arc::new(config))
}

/// The vantage a client certificate was issued for.
///
/// # Errors
/// When it names none, or several.
pub fn vantage_of(certificate: &[u8]) -> Result<VantageName, String> {
    let (_, certificate) =
        x509_parser::parse_x509_certificate(certificate).map_err(|error| format!("not a certificate: {error}"))?;
    let names = certificate.subject_alternative_name().map_err(|error| error.to_string())?;
    let mut uris = names.iter().flat_map(|names| &names.value.general_names).filter_map(|name| {
        // Their enum, not ours: other kinds of name say nothing about the vantage.
        if let GeneralName::URI(uri) = name { uri.strip_prefix(VANTAGE_URI) } else { None }
    });
    match (uris.next(), uris.next()) {
        (Some(name), None) => name.parse().map_err(|error| format!("name of the vantage: {error}")),
        (None, _) => Err(format!("no {VANTAGE_URI}NAME in it; make one with: parallax vantage issue")),
        (Some(_), Some(_)) => Err("more than one vantage in it".to_owned()),
    }
}
