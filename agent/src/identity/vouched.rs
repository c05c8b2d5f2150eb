//! Whether a certificate that somebody gave us is one: an authority we trust vouches for it, it holds now,
//! and it is for our vantage. One that is not would lock the agent out, which a stolen server certificate
//! alone must not be able to do.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::CertificateDer;

use crate::certificate;
use crate::clock::CertificateTime;

/// Whether one of these authorities vouches for this chain (our own certificate first), for this vantage;
/// an empty one: for any.
///
/// # Errors
/// Why not.
pub fn vouched(chain: &[Vec<u8>], authorities: &[CertificateDer<'static>], vantage: &str) -> Result<(), String> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority.clone()).map_err(|error| error.to_string())?;
    }
    let mut chain = chain.iter().map(|der| CertificateDer::from(der.as_slice()));
    let own = chain.next().ok_or("it is empty")?;
    let above: Vec<CertificateDer<'_>> = chain.collect();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    let verifier = verifier.map_err(|error| error.to_string())?;
    let now = rustls::time_provider::TimeProvider::current_time(&CertificateTime).ok_or("the clock cannot be read")?;
    verifier.verify_client_cert(&own, &above, now).map_err(|error| error.to_string())?;
    let named = certificate::vantage(&own).ok_or("it names no vantage, or several")?;
    match vantage.is_empty() || named == vantage {
        true => Ok(()),
        false => Err(format!("it is for {named} and not for {vantage}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::key::Key;
    use crate::probe::testing::Authority;

    #[test]
    fn only_our_authority_vouches_and_only_for_us_and_now() {
        let (ours, other) = (Authority::new(), Authority::new());
        let request = Key::generate().unwrap().request().unwrap();
        let roots = [CertificateDer::from(ours.der())];
        let good = ours.certify(&request, "branch-kazan", 60);
        assert_eq!(vouched(std::slice::from_ref(&good), &roots, "branch-kazan"), Ok(()));
        assert_eq!(vouched(std::slice::from_ref(&good), &roots, ""), Ok(()));
        assert!(vouched(std::slice::from_ref(&good), &roots, "branch-ufa").unwrap_err().contains("branch-kazan"));
        assert!(vouched(&[other.certify(&request, "branch-kazan", 60)], &roots, "branch-kazan").is_err());
        assert!(vouched(&[ours.certify(&request, "branch-kazan", -60)], &roots, "branch-kazan").is_err());
        assert!(vouched(&[good], &[], "branch-kazan").is_err());
        assert!(vouched(&[], &roots, "branch-kazan").is_err());
    }
}
