//! Reads who this agent is: the folder that `parallax-agent join` or `parallax vantage issue` wrote.
//!
//! The files are read again at each connection and now and then in between, so that a renewed
//! certificate is used without a restart. They may be replaced one after another, half-written, by
//! exchanged links: what was whole serves until something whole takes its place.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::RootCertStore;
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject as _;

pub use super::credentials::Credentials;
use crate::certificate::{self, Certificate};
use crate::clock::now;
use crate::identity::folder::{CA, CERTIFICATE, COORDINATORS, FILE_BYTES_MAX, Folder, KEY, SIGNERS};
use crate::identity::{signers, trusted};
use crate::tls::judge::Judge;
use crate::tls::{builder, certificates};

/// At the start an identity that is not whole is waited for this long, and looked at so often.
const WHOLE_WITHIN: Duration = Duration::from_secs(15);
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// The identity folder.
#[derive(Debug)]
pub struct Identity {
    folder: Folder,
    /// What was in it when it was last whole.
    whole: Option<Held>,
    /// What was last warned of: a folder that stays broken is told of once.
    warned: Option<IdentityError>,
}

#[derive(Debug)]
struct Held {
    /// The files as they were: equal ones need no new configuration.
    files: Vec<Vec<u8>>,
    credentials: Arc<Credentials>,
}

/// Why the folder is not usable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot use {path} of the identity: {why}; join anew with a token of `parallax token create NAME`")]
pub struct IdentityError {
    path: String,
    why: String,
}

impl Identity {
    /// The identity in this folder.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        Self { folder: Folder::new(folder), whole: None, warned: None }
    }

    /// The folder, to write to.
    #[must_use]
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Mutual TLS with the files as they are now. While they are being replaced, one after another,
    /// the old ones serve. Trusts the coordinator's authority and nobody else. The same value as
    /// before means that nothing has changed.
    ///
    /// # Errors
    /// When the files were never whole: one cannot be read, or certificate and key do not belong
    /// together.
    pub fn credentials(&mut self) -> Result<Arc<Credentials>, IdentityError> {
        let files = self.files();
        if let (Ok(files), Some(held)) = (&files, &self.whole)
            && *files == held.files
        {
            self.warned = None;
            return Ok(Arc::clone(&held.credentials));
        }
        let fresh = files.and_then(|files| Ok((self.made(&files)?, files)));
        match (fresh, &self.whole) {
            (Ok((credentials, files)), old) => {
                if old.is_some() {
                    tracing::info!(holds = %credentials.validity, "the identity's files were replaced; the new ones are used from the next connection on");
                }
                self.warned = None;
                let credentials = Arc::new(credentials);
                self.whole = Some(Held { files, credentials: Arc::clone(&credentials) });
                Ok(credentials)
            }
            (Err(error), Some(old)) => {
                if self.warned.as_ref() != Some(&error) {
                    tracing::warn!(reason = "identity_not_whole", %error, "the identity is not whole now; the one read before is used until it is");
                    self.warned = Some(error);
                }
                Ok(Arc::clone(&old.credentials))
            }
            (Err(error), None) => Err(error),
        }
    }

    /// Waits a while for a folder that is just being written: whoever starts the agent while a
    /// certificate is replaced must not have to start it again.
    ///
    /// # Errors
    /// As [`Self::credentials`], when it was not whole in all that time.
    pub async fn whole(&mut self) -> Result<(), IdentityError> {
        let until = now() + WHOLE_WITHIN;
        loop {
            match self.credentials() {
                Ok(_) => return Ok(()),
                // Nothing there at all is no replacement.
                Err(error) if now() >= until || !self.folder.path().join(KEY).exists() => return Err(error),
                Err(error) => {
                    if self.warned.as_ref() != Some(&error) {
                        tracing::warn!(reason = "identity_not_whole", %error, "waiting for the identity's files to become whole");
                        self.warned = Some(error);
                    }
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
            }
        }
    }

    fn made(&self, files: &[Vec<u8>]) -> Result<Credentials, IdentityError> {
        let [ca, certificate, key, signers, coordinators] = files else { return Err(self.bad(CA, "it was not read")) };
        let mut roots = RootCertStore::empty();
        let mut authorities = Vec::new();
        let trusted = certificates(ca).map_err(|why| self.bad(CA, why))?;
        for certificate in &trusted {
            authorities.extend(Certificate::read(certificate).map(|read| read.subject));
            roots.add(certificate.clone()).map_err(|error| self.bad(CA, error))?;
        }
        let chain = certificates(certificate).map_err(|why| self.bad(CERTIFICATE, why))?;
        let own = chain.first().and_then(|own| Certificate::read(own));
        let own = own.ok_or_else(|| self.bad(CERTIFICATE, "its first certificate cannot be read"))?;
        let vantage = chain.first().and_then(|own| certificate::vantage(own)).unwrap_or_default();
        let key =
            PrivateKeyDer::from_pem_slice(key).map_err(|_| self.bad(KEY, "it holds no private key in PEM form"))?;
        let judge = Arc::new(Judge::new(roots).map_err(|error| self.bad(CA, error))?);
        let mut config = builder()
            .map_err(|error| self.bad(CA, error))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&judge) as _)
            .with_client_auth_cert(chain, key)
            .map_err(|error| self.bad(CERTIFICATE, error))?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Credentials {
            tls: Arc::new(config),
            validity: own.validity,
            authorities,
            roots: trusted,
            judge,
            vantage,
            signers: signers::from_text(signers).map_err(|why| self.bad(SIGNERS, why))?,
            coordinators: trusted::coordinators(coordinators).map_err(|why| self.bad(COORDINATORS, why))?,
        })
    }

    /// The files as they are; of those that an older folder lacks, nothing.
    fn files(&self) -> Result<Vec<Vec<u8>>, IdentityError> {
        let needed = [CA, CERTIFICATE, KEY].into_iter().map(|file| self.read(file));
        let optional = [SIGNERS, COORDINATORS].into_iter().map(|file| match self.folder.path().join(file).exists() {
            true => self.read(file),
            false => Ok(Vec::new()),
        });
        needed.chain(optional).collect()
    }

    fn read(&self, file: &str) -> Result<Vec<u8>, IdentityError> {
        let path = self.folder.path().join(file);
        let bytes = std::fs::metadata(&path).map_err(|error| self.bad(file, error))?.len();
        if bytes > FILE_BYTES_MAX {
            return Err(self.bad(file, format!("it has {bytes} bytes, at most {FILE_BYTES_MAX} are read")));
        }
        std::fs::read(path).map_err(|error| self.bad(file, error))
    }

    fn bad(&self, file: &str, why: impl ToString) -> IdentityError {
        IdentityError { path: path_of(self.folder.path(), file), why: why.to_string() }
    }
}

fn path_of(folder: &Path, file: &str) -> String {
    folder.join(file).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::testing::Authority;

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn write(&self, file: &str, text: &str) {
            std::fs::write(self.0.path().join(file), text).unwrap();
        }

        fn whole(authority: &Authority) -> Self {
            let folder = Self(tempfile::tempdir().unwrap());
            let (certificate, key) = authority.issue("branch-kazan");
            folder.write(CA, &authority.pem());
            folder.write(CERTIFICATE, &certificate);
            folder.write(KEY, &key);
            folder
        }

        fn identity(&self) -> Identity {
            Identity::new(self.0.path().to_owned())
        }
    }

    #[test]
    fn a_whole_folder_is_used_and_what_is_wrong_is_named() {
        let authority = Authority::new();
        let empty = Folder(tempfile::tempdir().unwrap());
        assert!(empty.identity().credentials().unwrap_err().to_string().contains("token create"));

        let folder = Folder::whole(&authority);
        let first = folder.identity().credentials().unwrap();
        assert_eq!(first.authorities.len(), 1);
        folder.write(KEY, &authority.issue("branch-kazan").1);
        let error = folder.identity().credentials().unwrap_err().to_string();
        assert!(error.contains(CERTIFICATE), "the pair does not match: {error}");
        folder.write(KEY, "half a file");
        let error = folder.identity().credentials().unwrap_err().to_string();
        assert!(error.contains(KEY) && !error.contains("half a file"), "{error}");
    }

    #[test]
    fn b68_while_the_pair_is_being_replaced_the_old_one_serves_and_then_the_new_one() {
        let authority = Authority::new();
        let folder = Folder::whole(&authority);
        let mut identity = folder.identity();
        let old = identity.credentials().unwrap();
        let (certificate, key) = authority.issue("branch-kazan");
        let half = &certificate[..certificate.len() / 2];
        for text in [certificate.as_str(), "", half] {
            folder.write(CERTIFICATE, text);
            assert!(Arc::ptr_eq(&old, &identity.credentials().unwrap()), "not whole: {text:?}");
        }
        // Unreadable: a folder where a file was (rights do not stop a test that runs as root).
        let path = folder.0.path().join(CERTIFICATE);
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(Arc::ptr_eq(&old, &identity.credentials().unwrap()), "unreadable");
        std::fs::remove_dir(&path).unwrap();
        assert!(Arc::ptr_eq(&old, &identity.credentials().unwrap()), "gone");
        assert!(identity.warned.is_some());
        folder.write(CERTIFICATE, &certificate);
        folder.write(KEY, &key);
        let new = identity.credentials().unwrap();
        assert!(!Arc::ptr_eq(&old, &new) && identity.warned.is_none());
        assert!(Arc::ptr_eq(&new, &identity.credentials().unwrap()), "nothing changed");
    }

    #[test]
    fn b68_a_folder_exchanged_by_its_link_is_read_anew() {
        let authority = Authority::new();
        let (first, second) = (Folder::whole(&authority), Folder::whole(&authority));
        let place = tempfile::tempdir().unwrap();
        let link = place.path().join("identity");
        std::os::unix::fs::symlink(first.0.path(), &link).unwrap();
        let mut identity = Identity::new(link.clone());
        let old = identity.credentials().unwrap();
        let fresh = place.path().join("fresh");
        std::os::unix::fs::symlink(second.0.path(), &fresh).unwrap();
        std::fs::rename(&fresh, &link).unwrap();
        assert!(!Arc::ptr_eq(&old, &identity.credentials().unwrap()));
    }

    #[test]
    fn b67_while_the_authority_changes_the_old_and_the_new_one_are_trusted() {
        let (old, new) = (Authority::new(), Authority::new());
        let folder = Folder::whole(&old);
        let mut identity = folder.identity();
        assert_eq!(identity.credentials().unwrap().authorities.len(), 1);
        folder.write(CA, &(old.pem() + &new.pem()));
        assert_eq!(identity.credentials().unwrap().authorities.len(), 2);
    }
}
