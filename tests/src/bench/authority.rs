//! The bench's own certificate authority: for the stream's two ends and for the TLS targets.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::RootCertStore;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::lab::run_dir::{private, write_private};

/// An authority with its key.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
#[derive(Debug, Clone)]
pub struct Issued {
    /// Certificate.
    pub certificate: String,
    /// Private key.
    pub key: String,
}

impl Authority {
    /// A new one.
    ///
    /// # Errors
    /// The certificate cannot be made.
    pub fn create() -> Result<Self> {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, "Parallax bench authority");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Ok(Self { issuer: CertifiedIssuer::self_signed(parameters, KeyPair::generate()?)? })
    }

    /// Its certificate in PEM.
    #[must_use]
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A store that trusts it alone.
    ///
    /// # Errors
    /// The certificate is not taken.
    pub fn roots(&self) -> Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone())?;
        Ok(roots)
    }

    /// A certificate for these names, good for servers and clients.
    ///
    /// # Errors
    /// A name is not one, or the certificate cannot be made.
    pub fn issue(&self, names: &[String]) -> Result<Issued> {
        self.issue_for(names, &[])
    }

    /// A certificate for these names and addresses, good for servers and clients.
    ///
    /// # Errors
    /// A name is not one, or the certificate cannot be made.
    pub fn issue_for(&self, names: &[String], addresses: &[Ipv4Addr]) -> Result<Issued> {
        let key = KeyPair::generate()?;
        let mut parameters = CertificateParams::new(names.to_vec()).context("names of a certificate")?;
        parameters.subject_alt_names.extend(addresses.iter().map(|a| SanType::IpAddress(IpAddr::V4(*a))));
        if let Some(name) = names.first() {
            parameters.distinguished_name.push(DnType::CommonName, name.as_str());
        }
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        parameters.use_authority_key_identifier_extension = true;
        let certificate = parameters.signed_by(&key, &self.issuer)?;
        Ok(Issued { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    /// Writes an agent's identity folder, as `parallax vantage issue` does.
    ///
    /// # Errors
    /// It cannot be made or written.
    pub fn identity(&self, folder: &Path, vantage: &str) -> Result<()> {
        let issued = self.issue(&[vantage.to_owned()])?;
        private(folder)?;
        write_private(&folder.join("ca.pem"), &self.pem())?;
        write_private(&folder.join("certificate.pem"), &issued.certificate)?;
        write_private(&folder.join("key.pem"), &issued.key)
    }
}

impl Issued {
    /// Writes both to `folder`; their paths.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn write(&self, folder: &Path, name: &str) -> Result<(PathBuf, PathBuf)> {
        let (certificate, key) = (folder.join(format!("{name}.pem")), folder.join(format!("{name}.key")));
        write_private(&certificate, &self.certificate)?;
        write_private(&key, &self.key)?;
        Ok((certificate, key))
    }

    /// As a TLS server takes them.
    ///
    /// # Errors
    /// They cannot be read back.
    pub fn into_tls(self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
        let chain = CertificateDer::pem_slice_iter(self.certificate.as_bytes()).collect::<Result<_, _>>()?;
        Ok((chain, PrivateKeyDer::from_pem_slice(self.key.as_bytes())?))
    }
}
