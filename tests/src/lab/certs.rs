//! The lab's certificate authority and the certificates of its servers.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};

use super::atlas::{CANARIES, CONTROLS, NODES, PUBLIC_RESOLVERS, ZONE};
use super::run_dir::write_private;

/// Certificate and key files of one server.
#[derive(Debug, Clone)]
pub struct ServerFiles {
    /// Chain in PEM.
    pub certificate: PathBuf,
    /// Key in PEM.
    pub key: PathBuf,
}

/// All certificates of one run, on disk.
#[derive(Debug, Clone)]
pub struct Certificates {
    /// The authority's certificate, to be trusted by agents and live resolvers.
    pub authority: PathBuf,
    /// For the public resolvers.
    pub resolvers: ServerFiles,
    /// For the content network.
    pub cdn: ServerFiles,
    /// For the controls.
    pub controls: ServerFiles,
    directory: PathBuf,
}

impl Certificates {
    /// Makes the authority and every server certificate in `directory`.
    ///
    /// # Errors
    /// A certificate cannot be made or written.
    pub fn create(directory: &Path) -> Result<Self> {
        super::run_dir::private(directory)?;
        let authority = directory.join("lab-ca.pem");
        let issuer = found("Parallax lab authority", &authority)?;

        let resolver_names: Vec<String> = PUBLIC_RESOLVERS.iter().map(|r| r.server_name.to_owned()).collect();
        let resolver_addresses: Vec<Ipv4Addr> = PUBLIC_RESOLVERS.iter().map(|r| r.address).collect();
        let resolvers = issue(&issuer, directory, "resolvers", &resolver_names, &resolver_addresses)?;
        let canaries: Vec<String> = CANARIES.iter().map(|c| c.name.to_owned()).collect();
        let cdn = issue(&issuer, directory, "cdn", &canaries, &[])?;
        let control_names: Vec<String> = CONTROLS.iter().map(|(name, _)| control_name(name)).collect();
        let controls = issue(&issuer, directory, "controls", &control_names, &[])?;
        for node in NODES {
            // A node answers for every service name: it may have to stand in for any of them.
            let names: Vec<String> = NODES.iter().map(|n| host_name(n.name)).collect();
            issue(&issuer, directory, node.name, &names, &[])?;
        }
        Ok(Self { authority, resolvers, cdn, controls, directory: directory.to_owned() })
    }

    /// The files of a node's server.
    #[must_use]
    pub fn node(&self, name: &str) -> ServerFiles {
        files(&self.directory, name)
    }
}

/// Founds an authority and writes its certificate to a file.
///
/// # Errors
/// It cannot be made or written.
pub fn found(name: &str, certificate_file: &Path) -> Result<Issuer<'static, KeyPair>> {
    let key = KeyPair::generate()?;
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = parameters.self_signed(&key)?;
    write_private(certificate_file, &certificate.pem())?;
    Ok(Issuer::new(parameters, key))
}

/// A service's host name.
#[must_use]
pub fn host_name(node: &str) -> String {
    format!("{node}.{ZONE}")
}

/// TLS name of a control.
#[must_use]
pub fn control_name(control: &str) -> String {
    format!("{control}.example")
}

fn files(directory: &Path, name: &str) -> ServerFiles {
    ServerFiles { certificate: directory.join(format!("{name}.pem")), key: directory.join(format!("{name}.key")) }
}

/// Issues a server's certificate for these names and addresses, into a directory.
///
/// # Errors
/// It cannot be made or written.
pub fn issue(
    issuer: &Issuer<'_, KeyPair>,
    directory: &Path,
    name: &str,
    names: &[String],
    addresses: &[Ipv4Addr],
) -> Result<ServerFiles> {
    let parameters = CertificateParams::new(names.to_vec()).with_context(|| format!("names of {name}"))?;
    finish(issuer, directory, name, parameters, addresses)
}

/// As [`issue`], and its time was over years ago.
///
/// # Errors
/// It cannot be made or written.
pub fn issue_expired(
    issuer: &Issuer<'_, KeyPair>,
    directory: &Path,
    name: &str,
    names: &[String],
) -> Result<ServerFiles> {
    let mut parameters = CertificateParams::new(names.to_vec()).with_context(|| format!("names of {name}"))?;
    parameters.not_before = rcgen::date_time_ymd(2020, 1, 1);
    parameters.not_after = rcgen::date_time_ymd(2021, 1, 1);
    finish(issuer, directory, name, parameters, &[])
}

fn finish(
    issuer: &Issuer<'_, KeyPair>,
    directory: &Path,
    name: &str,
    mut parameters: CertificateParams,
    addresses: &[Ipv4Addr],
) -> Result<ServerFiles> {
    let key = KeyPair::generate()?;
    parameters.subject_alt_names.extend(addresses.iter().map(|a| SanType::IpAddress(IpAddr::V4(*a))));
    parameters.distinguished_name.push(DnType::CommonName, format!("Parallax lab {name}"));
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    parameters.use_authority_key_identifier_extension = true;
    let certificate = parameters.signed_by(&key, issuer)?;
    let files = files(directory, name);
    write_private(&files.certificate, &certificate.pem())?;
    write_private(&files.key, &key.serialize_pem())?;
    Ok(files)
}
