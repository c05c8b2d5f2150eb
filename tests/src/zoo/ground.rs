//! What every server of the zoo is started with: directory, programs, keys and certificates.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::answers::canaries;
use super::machines::machines;
use super::public::{CF, CONTROLS, ENDPOINTS, GOOGLE, endpoint_at, host};
use crate::lab::certs::{ServerFiles, found, issue, issue_expired};
use crate::lab::programs::Programs;
use crate::lab::run_dir::{private, random_key};

/// The ground.
#[derive(Debug)]
pub struct Ground {
    /// The run's private directory.
    pub directory: PathBuf,
    /// The servers' programs.
    pub programs: Programs,
    /// Secret of the services' key, base64.
    pub tsig_secret: String,
    /// Certificate of the authority that everybody trusts.
    pub authority: PathBuf,
    /// The public resolvers' certificate.
    pub resolvers: ServerFiles,
    /// One for every name and machine.
    pub servers: ServerFiles,
    /// One for a name that nobody asks for.
    pub stranger: ServerFiles,
    /// As `servers`, and over.
    pub expired: ServerFiles,
    /// As `servers`, of an authority that nobody trusts.
    pub unknown: ServerFiles,
}

impl Ground {
    /// Prepares it.
    ///
    /// # Errors
    /// A program is missing, or a file cannot be written.
    pub fn prepare(directory: &Path) -> Result<Self> {
        private(&directory.join("log"))?;
        let tls = directory.join("tls");
        private(&tls)?;
        let authority = tls.join("zoo-ca.pem");
        let issuer = found("Parallax zoo authority", &authority)?;
        let nobody = found("An authority that nobody trusts", &tls.join("nobody-ca.pem"))?;
        let resolver_names: Vec<String> = ["cf", "google"].into_iter().chain(ENDPOINTS).map(resolver_host).collect();
        let resolver_addresses: Vec<Ipv4Addr> =
            [CF, GOOGLE].into_iter().chain((0..ENDPOINTS.len()).map(endpoint_at)).collect();
        let names: Vec<String> = canaries()
            .into_iter()
            .map(|canary| host(canary.label))
            .chain(machines().map(|machine| host(machine.name)))
            .chain(CONTROLS.map(|(name, _)| host(name)))
            .collect();
        let all = [names.clone(), resolver_names.clone()].concat();
        Ok(Self {
            directory: directory.to_owned(),
            programs: Programs::locate(&directory.join("bin"))?,
            tsig_secret: random_key()?,
            resolvers: issue(&issuer, &tls, "resolvers", &resolver_names, &resolver_addresses)?,
            servers: issue(&issuer, &tls, "servers", &names, &[])?,
            stranger: issue(&issuer, &tls, "stranger", &["parking.invalid.quest".to_owned()], &[])?,
            expired: issue_expired(&issuer, &tls, "expired", &all)?,
            unknown: issue(&nobody, &tls, "unknown", &all, &[])?,
            authority,
        })
    }

    /// A log file.
    #[must_use]
    pub fn log(&self, name: &str) -> PathBuf {
        self.directory.join("log").join(format!("{name}.log"))
    }
}

/// TLS name of a public resolver.
#[must_use]
pub fn resolver_host(name: &str) -> String {
    host(&format!("{name}.dns"))
}
