//! A private key on P-256 (SEC 2, 2.4.2), made on this machine, and the request for a certificate on it.
//!
//! A request (PKCS #10, RFC 2986) of ours has one form and four variable bytes of length: written here,
//! it needs no library that would have to be carried to every branch.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SecureRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject as _;

use crate::entropy::{self, NoEntropy};

/// Tags (X.680, 8.6).
const SEQUENCE: u8 = 0x30;
const BIT_STRING: u8 = 0x03;

/// `INTEGER 0`: version 1 of a request.
const VERSION: [u8; 3] = [0x02, 0x01, 0x00];
/// A name with the common name `agent`: nobody reads it, and some software wants one.
const SUBJECT: [u8; 18] =
    [0x30, 0x10, 0x31, 0x0e, 0x30, 0x0c, 0x06, 0x03, 0x55, 0x04, 0x03, 0x0c, 0x05, b'a', b'g', b'e', b'n', b't'];
/// A SubjectPublicKeyInfo on P-256 (RFC 5480, 2) up to the 65 bytes of the point.
const PUBLIC_KEY: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
/// No attributes.
const ATTRIBUTES: [u8; 2] = [0xa0, 0x00];
/// ecdsa-with-SHA256 (RFC 5758, 3.2).
const ALGORITHM: [u8; 12] = [0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];

/// Letters of base64 on a line of PEM (RFC 7468, 2).
const PEM_LINE: usize = 64;

/// A private key. Shows nothing of itself.
pub struct Key {
    pkcs8: Vec<u8>,
    pair: EcdsaKeyPair,
}

/// A key's file is not usable here. Never repeats the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it holds no private key on P-256 in PKCS #8 form")]
pub struct NotOurKind;

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

impl Key {
    /// Makes one.
    ///
    /// # Errors
    /// When the operating system gives no randomness.
    pub fn generate() -> Result<Self, NoEntropy> {
        let random = entropy::for_keys();
        let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).map_err(|_| NoEntropy)?;
        Self::of(made.as_ref(), &random).map_err(|NotOurKind| NoEntropy)
    }

    /// Reads one from a file's content.
    ///
    /// # Errors
    /// When it is none of ours.
    pub fn from_pem(pem: &[u8]) -> Result<Self, NotOurKind> {
        let PrivateKeyDer::Pkcs8(key) = PrivateKeyDer::from_pem_slice(pem).map_err(|_| NotOurKind)? else {
            return Err(NotOurKind);
        };
        Self::of(key.secret_pkcs8_der(), &entropy::for_keys())
    }

    fn of(pkcs8: &[u8], random: &dyn SecureRandom) -> Result<Self, NotOurKind> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8, random);
        Ok(Self { pkcs8: pkcs8.to_vec(), pair: pair.map_err(|_| NotOurKind)? })
    }

    /// As a file's content: a secret.
    #[must_use]
    pub fn to_pem(&self) -> String {
        pem("PRIVATE KEY", &self.pkcs8)
    }

    /// The public key, as certificates carry it (SubjectPublicKeyInfo in DER).
    #[must_use]
    pub fn public(&self) -> Vec<u8> {
        [&PUBLIC_KEY, self.pair.public_key().as_ref()].concat()
    }

    /// A request for a certificate on this key (PKCS #10 in DER), signed with it.
    ///
    /// # Errors
    /// When the operating system gives no randomness.
    pub fn request(&self) -> Result<Vec<u8>, NoEntropy> {
        let info = element(SEQUENCE, &[&VERSION, &SUBJECT, &self.public(), &ATTRIBUTES]);
        let signature = self.pair.sign(&entropy::for_keys(), &info).map_err(|_| NoEntropy)?;
        // No bits of its last byte are unused.
        let signature = element(BIT_STRING, &[&[0], signature.as_ref()]);
        Ok(element(SEQUENCE, &[&info, &ALGORITHM, &signature]))
    }
}

/// One element of DER; contents below 64 KiB, which a request's always are.
fn element(tag: u8, contents: &[&[u8]]) -> Vec<u8> {
    let contents = contents.concat();
    let [.., high, low] = contents.len().to_be_bytes();
    let mut der = vec![tag];
    match (high, low) {
        (0, 0..0x80) => der.push(low),
        (0, 0x80..) => der.extend([0x81, low]),
        (1.., _) => der.extend([0x82, high, low]),
    }
    der.extend(contents);
    der
}

/// Bytes in PEM form (RFC 7468).
#[must_use]
pub fn pem(label: &str, der: &[u8]) -> String {
    let mut text = format!("-----BEGIN {label}-----\n");
    let letters = STANDARD.encode(der);
    let mut rest = letters.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at_checked(PEM_LINE).unwrap_or((rest, ""));
        text.push_str(line);
        text.push('\n');
        rest = after;
    }
    text + &format!("-----END {label}-----\n")
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateSigningRequestParams, PublicKeyData as _};

    use super::*;

    #[test]
    fn a_request_is_read_and_its_signature_holds() {
        for _ in 0..20 {
            let key = Key::generate().unwrap();
            let der = key.request().unwrap();
            assert!(der.len() < parallax_proto::REQUEST_BYTES_MAX);
            // The library checks the signature too.
            let read = CertificateSigningRequestParams::from_der(&der.clone().into()).unwrap();
            assert_eq!(read.public_key.subject_public_key_info(), key.public());
            let mut spoilt = der;
            *spoilt.last_mut().unwrap() ^= 1;
            assert!(CertificateSigningRequestParams::from_der(&spoilt.into()).is_err());
        }
    }

    #[test]
    fn a_key_survives_its_file_and_the_library_takes_it() {
        let key = Key::generate().unwrap();
        let again = Key::from_pem(key.to_pem().as_bytes()).unwrap();
        assert_eq!(again.public(), key.public());
        let other = rcgen::KeyPair::from_pem(&key.to_pem()).unwrap();
        assert_eq!(other.subject_public_key_info(), key.public());
        let made_elsewhere = rcgen::KeyPair::generate().unwrap();
        let read = Key::from_pem(made_elsewhere.serialize_pem().as_bytes()).unwrap();
        assert_eq!(read.public(), made_elsewhere.subject_public_key_info());
        assert_eq!(format!("{key:?}"), "Key(..)");
    }

    #[test]
    fn rubbish_is_no_key() {
        let whole = Key::generate().unwrap().to_pem();
        for text in
            ["", "rubbish", &whole[..whole.len() / 2], &pem("PRIVATE KEY", &[0x30, 0]), &pem("CERTIFICATE", &[])]
        {
            assert_eq!(Key::from_pem(text.as_bytes()).unwrap_err(), NotOurKind);
        }
    }
}
