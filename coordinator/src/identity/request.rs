//! What an agent asks a certificate for: a PKCS #10 request (RFC 2986), signed with the key it is for.
//! Names in it are not read: whom a certificate is for, the coordinator knows from the token or the stream.

use parallax_proto::REQUEST_BYTES_MAX;
use rcgen::PublicKeyData;
use ring::digest::{SHA256, digest};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::oid_registry::{OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY, OID_SIG_ED25519};
use x509_parser::prelude::FromDer;
use x509_parser::x509::SubjectPublicKeyInfo;

/// A public key that an agent proved to hold: P-256 or Ed25519.
#[derive(Debug, Clone)]
pub struct AgentKey {
    /// For the issuing library.
    pub public: rcgen::SubjectPublicKeyInfo,
    /// SHA-256 of the SubjectPublicKeyInfo, as it stands in certificates.
    pub sha256: [u8; 32],
}

impl AgentKey {
    /// Reads a request and checks its own signature.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn of_request(request: &[u8]) -> Result<Self, String> {
        if request.len() > REQUEST_BYTES_MAX {
            return Err(format!("the request has {} bytes; at most {REQUEST_BYTES_MAX} are read", request.len()));
        }
        let (rest, parsed) =
            X509CertificationRequest::from_der(request).map_err(|_| "not a PKCS #10 request in DER".to_owned())?;
        if !rest.is_empty() {
            return Err("something follows the request".to_owned());
        }
        let info = &parsed.certification_request_info.subject_pki;
        if !is_allowed(info) {
            return Err("its key is neither P-256 nor Ed25519".to_owned());
        }
        parsed.verify_signature().map_err(|_| "it is not signed with the key it is for".to_owned())?;
        let public = rcgen::SubjectPublicKeyInfo::from_der(info.raw)
            .map_err(|_| "its key is neither P-256 nor Ed25519".to_owned())?;
        // As it will stand in the certificate, by which it is known: written otherwise, one key would have two hashes.
        let canonical = public.subject_public_key_info();
        if canonical != info.raw {
            return Err("its key is not written as in a certificate (DER)".to_owned());
        }
        Ok(Self { public, sha256: sha256(&canonical) })
    }
}

fn is_allowed(info: &SubjectPublicKeyInfo<'_>) -> bool {
    let algorithm = &info.algorithm;
    if algorithm.algorithm == OID_SIG_ED25519 {
        return true;
    }
    algorithm.algorithm == OID_KEY_TYPE_EC_PUBLIC_KEY
        && algorithm.parameters.as_ref().and_then(|curve| curve.as_oid().ok()).is_some_and(|curve| curve == OID_EC_P256)
}

/// SHA-256, as keys, certificates and secrets are known by.
#[must_use]
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    let hash = digest(&SHA256, bytes);
    let mut whole = [0; 32];
    for (to, from) in whole.iter_mut().zip(hash.as_ref()) {
        *to = *from;
    }
    whole
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P384_SHA384, PKCS_ED25519};

    use super::*;

    fn request(key: &KeyPair) -> Vec<u8> {
        CertificateParams::new(vec!["anything.example".to_owned()])
            .unwrap()
            .serialize_request(key)
            .unwrap()
            .der()
            .to_vec()
    }

    #[test]
    fn the_two_kinds_of_key_are_taken_and_known_by_their_hash() {
        for key in [KeyPair::generate().unwrap(), KeyPair::generate_for(&PKCS_ED25519).unwrap()] {
            let read = AgentKey::of_request(&request(&key)).unwrap();
            assert_eq!(read.sha256, sha256(&key.subject_public_key_info()));
        }
    }

    /// The same key in other bytes: signed by its holder, and known by another hash.
    #[test]
    fn a_key_written_in_another_way_is_refused() {
        use rcgen::SigningKey as _;
        let long = |length: usize| [0x30, 0x81, u8::try_from(length).unwrap()];
        let sequence = |parts: &[&[u8]]| {
            let whole = parts.concat();
            let length = long(whole.len());
            if whole.len() < 128 { [&[0x30, length[2]], &whole[..]].concat() } else { [&length, &whole[..]].concat() }
        };
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let ed25519 = sequence(&[&[0x06, 0x03, 0x2b, 0x65, 0x70]]);
        let of = |unused_bits: u8| [&ed25519, &[0x03, 0x21, unused_bits][..], key.der_bytes()].concat();
        let request = |info: &[u8]| {
            let info = sequence(&[&[0x02, 1, 0], &[0x30, 0], info, &[0xa0, 0]]);
            let signature = key.sign(&info).unwrap();
            sequence(&[&info, &ed25519, &[0x03, 0x41, 0], &signature])
        };
        let read = AgentKey::of_request(&request(&sequence(&[&of(0)]))).unwrap();
        assert_eq!(read.sha256, sha256(&key.subject_public_key_info()));
        let parameters = sequence(&[&[0x06, 0x03, 0x2b, 0x65, 0x70], &[0x05, 0]]);
        let longer = [&long(of(0).len()), &of(0)[..]].concat();
        let with_parameters = sequence(&[&parameters, &[0x03, 0x21, 0], key.der_bytes()]);
        let variants = [longer, sequence(&[&of(1)]), with_parameters];
        let refused = variants.map(|info| AgentKey::of_request(&request(&info)).unwrap_err());
        assert!(refused.iter().any(|why| why.contains("not written as in a certificate")), "{refused:?}");
    }

    #[test]
    fn other_keys_changed_bytes_and_noise_are_refused() {
        let other = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap();
        assert!(AgentKey::of_request(&request(&other)).unwrap_err().contains("neither P-256 nor Ed25519"));
        let whole = request(&KeyPair::generate().unwrap());
        let key = AgentKey::of_request(&whole).unwrap();
        for place in 0..whole.len() {
            let mut changed = whole.clone();
            changed[place] ^= 1;
            // What is outside the signature may change; the key that it is for may not.
            assert!(
                AgentKey::of_request(&changed).is_ok_and(|read| read.sha256 == key.sha256)
                    || AgentKey::of_request(&changed).is_err(),
                "byte {place}"
            );
            assert!(AgentKey::of_request(&whole[..place]).is_err(), "cut at {place}");
        }
        let mut longer = whole.clone();
        longer.push(0);
        assert!(AgentKey::of_request(&longer).is_err());
        longer.resize(REQUEST_BYTES_MAX + 1, 0);
        assert!(AgentKey::of_request(&longer).unwrap_err().contains("at most 4096"));
        assert!(AgentKey::of_request(&[]).is_err());
    }
}
