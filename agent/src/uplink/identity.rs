//! Who this agent is: the folder that `parallax vantage issue` wrote.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject as _;

use crate::tls::{builder, certificates};

/// Files of the folder.
const CA: &str = "ca.pem";
const CERTIFICATE: &str = "certificate.pem";
const KEY: &str = "key.pem";

/// The identity folder.
#[derive(Debug)]
pub struct Identity {
    folder: PathBuf,
    /// What was in it when it was last whole.
    whole: Option<Arc<ClientConfig>>,
}

/// Why the folder is not usable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot use {path} of the identity: {why}; make one with `parallax vantage issue NAME --out DIR`")]
pub struct IdentityError {
    path: String,
    why: String,
}

impl Identity {
    /// The identity in this folder.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, whole: None }
    }

    /// Mutual TLS with the files as they are now, so that a renewed certificate is used from the
    /// next connection on. While they are being replaced, one after another, the old ones serve.
    /// Trusts the coordinator's authority and nobody else.
    ///
    /// # Errors
    /// When the files were never whole: one cannot be read, or certificate and key do not belong
    /// together.
    pub fn tls(&mut self) -> Result<Arc<ClientConfig>, IdentityError> {
        match (self.load(), &self.whole) {
            (Ok(tls), _) => Ok(Arc::clone(self.whole.insert(tls))),
            (Err(error), Some(old)) => {
                tracing::warn!(%error, "the identity is not whole now; the one read before is used");
                Ok(Arc::clone(old))
            }
            (Err(error), None) => Err(error),
        }
    }

    fn load(&self) -> Result<Arc<ClientConfig>, IdentityError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.read(CA)?).map_err(|why| self.bad(CA, why))? {
            roots.add(certificate).map_err(|error| self.bad(CA, error))?;
        }
        let chain = certificates(&self.read(CERTIFICATE)?).map_err(|why| self.bad(CERTIFICATE, why))?;
        let key = PrivateKeyDer::from_pem_slice(&self.read(KEY)?)
            .map_err(|_| self.bad(KEY, "it holds no private key in PEM form"))?;
        let mut config = builder()
            .map_err(|error| self.bad(CA, error))?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .map_err(|error| self.bad(CERTIFICATE, error))?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Arc::new(config))
    }

    fn read(&self, file: &str) -> Result<Vec<u8>, IdentityError> {
        std::fs::read(self.folder.join(file)).map_err(|error| self.bad(file, error))
    }

    fn bad(&self, file: &str, why: impl ToString) -> IdentityError {
        IdentityError { path: path_of(&self.folder, file), why: why.to_string() }
    }
}

fn path_of(folder: &Path, file: &str) -> String {
    folder.join(file).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::testing::Authority;

    #[test]
    fn a_whole_folder_is_used_and_what_is_wrong_is_named() {
        let authority = Authority::new();
        let (certificate, key) = authority.issue("branch-kazan");
        let folder = tempfile::tempdir().unwrap();
        let mut identity = Identity::new(folder.path().to_owned());
        let mut kept = Identity::new(folder.path().to_owned());
        let write = |file: &str, text: &str| std::fs::write(folder.path().join(file), text).unwrap();

        assert!(identity.tls().unwrap_err().to_string().contains("vantage issue"));
        write(CA, &authority.pem());
        write(CERTIFICATE, &certificate);
        write(KEY, &key);
        assert!(kept.tls().is_ok());

        write(KEY, &authority.issue("branch-kazan").1);
        assert!(identity.tls().unwrap_err().to_string().contains(CERTIFICATE), "the pair does not match");
        write(KEY, "half a file");
        let error = identity.tls().unwrap_err().to_string();
        assert!(error.contains(KEY) && !error.contains("half a file"), "{error}");
        assert!(kept.tls().is_ok(), "the pair that was whole serves until there is a new one");
    }
}
