//! One certificate authority: it vouches for agents towards the coordinator and for the coordinator
//! towards agents. The built-in one has a P-256 key.

use parallax_decide::names::VantageName;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PublicKeyData, SanType, SerialNumber,
};
use ring::rand::{SecureRandom, SystemRandom};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use secrecy::{ExposeSecret, SecretString};
use time::{Duration, OffsetDateTime};

use super::request::sha256;
use super::{SERVER_NAME, VANTAGE_URI};
use crate::error::{Exit, Failure};

/// An authority outlives many agents; it is replaced with `parallax authority rotate`.
const AUTHORITY_LIFE: Duration = Duration::days(3650);
/// Life of the coordinator's own certificate; a running coordinator renews it daily.
const SERVER_LIFE: Duration = Duration::days(30);
/// Clocks of agents may be slow by this much.
pub const BACKDATED: Duration = Duration::minutes(10);
/// Length of a serial number, in bytes: at most 20 (RFC 5280, 4.1.2.2), unique by chance alone.
const SERIAL_BYTES: usize = 16;

/// An authority, able to sign.
pub struct Authority {
    certificate: CertificateDer<'static>,
    /// SHA-256 of its SubjectPublicKeyInfo: how tokens and rows know it.
    pub key_sha256: [u8; 32],
    /// Since when it is valid: the newest authority issues.
    pub not_before: OffsetDateTime,
    /// Nothing it issues is valid for longer.
    pub not_after: OffsetDateTime,
    issuer: Issuer<'static, KeyPair>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority(..)")
    }
}

/// The PEM texts of a new authority.
pub struct NewAuthority {
    /// Its certificate.
    pub certificate: String,
    /// Its key, a secret.
    pub key: SecretString,
}

/// A certificate with its key, ready for a TLS server.
#[derive(Debug)]
pub struct ServerIdentity {
    /// The certificate, and those up to and including the authority's: an agent that joins pins that one.
    pub chain: Vec<CertificateDer<'static>>,
    /// Its private key.
    pub key: PrivateKeyDer<'static>,
}

/// An agent's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    /// In DER.
    pub certificate: CertificateDer<'static>,
    /// In PEM.
    pub pem: String,
    /// Random.
    pub serial: Vec<u8>,
    /// Valid from.
    pub not_before: OffsetDateTime,
    /// Valid until.
    pub not_after: OffsetDateTime,
    /// Who issued it.
    pub authority_sha256: [u8; 32],
}

impl Authority {
    /// Makes the texts of a new one. `not_before` tells the newest of several.
    ///
    /// # Errors
    /// When the library cannot.
    pub fn make(not_before: OffsetDateTime, now: OffsetDateTime) -> Result<NewAuthority, Failure> {
        let failed = |why: rcgen::Error| Failure::new(Exit::Failed, "cannot make a certificate authority").why(why);
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = params("Parallax certificate authority", now, AUTHORITY_LIFE);
        params.not_before = not_before;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).map_err(failed)?;
        Ok(NewAuthority { certificate: certificate.pem(), key: SecretString::from(key.serialize_pem()) })
    }

    /// An authority out of its two texts; the names are for messages.
    ///
    /// # Errors
    /// What is wrong with them, for people.
    pub fn from_pem(
        (certificate_name, certificate_pem): (&str, &str),
        (key_name, key_pem): (&str, &SecretString),
    ) -> Result<Self, String> {
        // The error of a key must not quote the key.
        let key = KeyPair::from_pem(key_pem.expose_secret()).map_err(|_| format!("{key_name} holds no usable key"))?;
        let certificate = CertificateDer::from_pem_slice(certificate_pem.as_bytes())
            .map_err(|error| format!("{certificate_name} holds no certificate: {error}"))?;
        let (_, parsed) = x509_parser::parse_x509_certificate(&certificate)
            .map_err(|error| format!("{certificate_name} holds no certificate: {error}"))?;
        if *parsed.public_key().subject_public_key.data != *key.public_key_raw() {
            return Err(format!("{key_name} is not the key of {certificate_name}"));
        }
        if !parsed.is_ca() {
            return Err(format!("{certificate_name} is no authority's certificate (basicConstraints CA is not set)"));
        }
        let (not_before, not_after) = (parsed.validity().not_before, parsed.validity().not_after);
        let key_sha256 = sha256(parsed.public_key().raw);
        let issuer =
            Issuer::from_ca_cert_der(&certificate, key).map_err(|error| format!("{certificate_name}: {error}"))?;
        let (not_before, not_after) = (not_before.to_datetime(), not_after.to_datetime());
        Ok(Self { certificate, key_sha256, not_before, not_after, issuer })
    }

    /// The authority's own certificate, to trust.
    #[must_use]
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// A certificate for the coordinator: [`SERVER_NAME`], and the address it listens on.
    ///
    /// # Errors
    /// When signing fails.
    pub fn server_identity(&self, listen: std::net::IpAddr, now: OffsetDateTime) -> Result<ServerIdentity, Failure> {
        let failed = |why: rcgen::Error| Failure::new(Exit::Failed, "cannot make the server's certificate").why(why);
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = self.within(params(SERVER_NAME, now, SERVER_LIFE));
        params.subject_alt_names = vec![SanType::DnsName(SERVER_NAME.try_into().map_err(failed)?)];
        if !listen.is_unspecified() {
            params.subject_alt_names.push(SanType::IpAddress(listen));
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        let key = PrivateKeyDer::try_from(key.serialize_der())
            .map_err(|why| Failure::new(Exit::Failed, "cannot use the server's key").why(why))?;
        Ok(ServerIdentity { chain: vec![certificate.der().clone(), self.certificate.clone()], key })
    }

    /// A certificate for an agent's key, in the name of its vantage.
    ///
    /// # Errors
    /// When signing fails.
    pub fn issue(
        &self,
        vantage: &VantageName,
        key: &impl PublicKeyData,
        life: std::time::Duration,
        now: OffsetDateTime,
    ) -> Result<Issued, rcgen::Error> {
        let mut serial = [0; SERIAL_BYTES];
        SystemRandom::new().fill(&mut serial).map_err(|_| rcgen::Error::RingUnspecified)?;
        // Positive, and no leading zero that the encoding would drop.
        serial[0] = serial[0] & 0x7f | 0x40;
        let life = Duration::try_from(life).unwrap_or(SERVER_LIFE);
        let mut params = self.within(params(vantage.as_str(), now, life));
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        params.subject_alt_names = vec![SanType::URI(format!("{VANTAGE_URI}{vantage}").try_into()?)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let (not_before, not_after) = (params.not_before, params.not_after);
        let certificate = params.signed_by(key, &self.issuer)?;
        Ok(Issued {
            certificate: certificate.der().clone(),
            pem: certificate.pem(),
            serial: serial.to_vec(),
            not_before,
            not_after,
            authority_sha256: self.key_sha256,
        })
    }

    fn within(&self, mut params: CertificateParams) -> CertificateParams {
        params.not_after = params.not_after.min(self.not_after);
        params
    }
}

fn params(name: &str, now: OffsetDateTime, life: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = now - BACKDATED;
    params.not_after = now + life;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    params
}
