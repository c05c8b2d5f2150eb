//! The identity folder as its writer sees it.
//!
//! Each file is written whole beside its place, made durable and renamed. Key and certificate are two
//! files and one thing: both lie there as `*.new` before the first of them is renamed, so that whatever
//! ends the process in between, [`Folder::finish`] can tell at the next start what is missing.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustls_pki_types::CertificateDer;

use super::key::{Key, pem};
use super::signers;
use super::trusted::Trusted;
use crate::certificate::{Certificate, public_key};
use crate::entropy::NoEntropy;
use crate::spool::disk::sync_folder;
use crate::tls::certificates;

/// Name of the folder in the state folder.
pub const FOLDER: &str = "identity";

/// Files of the folder.
pub const CA: &str = "ca.pem";
/// Our certificate.
pub const CERTIFICATE: &str = "certificate.pem";
/// Our key.
pub const KEY: &str = "key.pem";
/// Signers of orders.
pub const SIGNERS: &str = "signers.txt";
/// Where coordinators are.
pub const COORDINATORS: &str = "coordinators.txt";
/// The next pair.
const CERTIFICATE_NEW: &str = "certificate.new";
const KEY_NEW: &str = "key.new";

/// Largest file of the folder, in bytes.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// Rights of the folder, of its files, and of the key.
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o644;
const KEY_MODE: u32 = 0o600;

/// The folder.
#[derive(Debug, Clone)]
pub struct Folder {
    path: PathBuf,
}

/// Why the folder could not be written.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The disk said no.
    #[error("cannot write {}: {error}; the identity folder must belong to the agent's user and have some space", .path.display())]
    Disk {
        /// Which file.
        path: PathBuf,
        /// What it said.
        error: io::Error,
    },
    /// No randomness for a key.
    #[error(transparent)]
    NoEntropy(#[from] NoEntropy),
    /// The certificate is not for the key that was sent.
    #[error("the coordinator's certificate is not for the key it was asked for; nothing was changed")]
    OtherKey,
    /// The certificate is none, or no authority is named.
    #[error("the coordinator's answer is no identity ({0}); nothing was changed")]
    NoIdentity(&'static str),
}

impl Folder {
    /// At this path, which need not exist yet.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether somebody joined here: there is a certificate or a key in force, whole or not. A folder that
    /// is just being replaced by hand is no reason to join anew.
    #[must_use]
    pub fn is_joined(&self) -> bool {
        self.path.join(CERTIFICATE).exists() || self.path.join(KEY).exists()
    }

    /// Whether its files can be replaced by this user.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        let rights = nix::unistd::AccessFlags::W_OK | nix::unistd::AccessFlags::X_OK;
        nix::unistd::access(&self.path, rights).is_ok()
    }

    /// The key with which to ask for a first certificate. It is on the disk before anybody is asked, and
    /// the same one comes until it is used: an answer that was lost is given again to the same key alone
    /// (field case B70).
    ///
    /// # Errors
    /// When it cannot be made or kept.
    pub fn pending_key(&self) -> Result<Key, FolderError> {
        if let Some(key) = self.read(KEY_NEW).and_then(|pem| Key::from_pem(&pem).ok()) {
            return Ok(key);
        }
        let key = Key::generate()?;
        self.make()?;
        self.write(KEY_NEW, key.to_pem().as_bytes(), KEY_MODE)?;
        Ok(key)
    }

    /// The key of the certificate in force, when it is one of ours.
    #[must_use]
    pub fn key(&self) -> Option<Key> {
        Key::from_pem(&self.read(KEY)?).ok()
    }

    /// Puts a new pair in place of the old one: our own certificate first, then those above it.
    ///
    /// # Errors
    /// When the pair does not fit, or the disk does not take it; the old pair is then still whole.
    pub fn put(&self, key: &Key, chain: &[Vec<u8>]) -> Result<Certificate, FolderError> {
        let own = chain.first().ok_or(FolderError::NoIdentity("it holds no certificate"))?;
        let read = Certificate::read(own).ok_or(FolderError::NoIdentity("its certificate cannot be read"))?;
        if public_key(own) != Some(&key.public()) {
            return Err(FolderError::OtherKey);
        }
        let text: String = chain.iter().map(|der| pem("CERTIFICATE", der)).collect();
        self.write(KEY_NEW, key.to_pem().as_bytes(), KEY_MODE)?;
        self.write(CERTIFICATE_NEW, text.as_bytes(), FILE_MODE)?;
        self.rename(KEY_NEW, KEY)?;
        self.rename(CERTIFICATE_NEW, CERTIFICATE)?;
        self.synced()?;
        Ok(read)
    }

    /// Writes whom to trust; files that say it already are left alone. Whether something changed.
    ///
    /// # Errors
    /// When the disk does not take it.
    pub fn trust(&self, trusted: &Trusted) -> Result<bool, FolderError> {
        let files = [
            (CA, trusted.authorities_pem()),
            (SIGNERS, signers::to_text(&trusted.signers)),
            (COORDINATORS, trusted.coordinators_text()),
        ];
        let mut changed = false;
        for (file, text) in files {
            if text.is_empty() || self.read(file).is_some_and(|held| held == text.as_bytes()) {
                continue;
            }
            let fresh = format!("{}.new", file.split('.').next().unwrap_or(file));
            self.write(&fresh, text.as_bytes(), FILE_MODE)?;
            self.rename(&fresh, file)?;
            changed = true;
        }
        if changed {
            self.synced()?;
        }
        Ok(changed)
    }

    /// Finishes what an earlier process began and did not end.
    ///
    /// # Errors
    /// When the disk does not let it.
    pub fn finish(&self) -> Result<(), FolderError> {
        let Some(fresh) = self.read(CERTIFICATE_NEW) else { return Ok(()) };
        let own = certificates(&fresh).ok().and_then(|chain| chain.into_iter().next());
        let fits = |file: &str| {
            let key = self.read(file).and_then(|pem| Key::from_pem(&pem).ok());
            key.zip(own.as_ref()).is_some_and(|(key, own): (Key, &CertificateDer<'_>)| {
                public_key(own).is_some_and(|public| public == key.public())
            })
        };
        if fits(KEY_NEW) {
            self.rename(KEY_NEW, KEY)?;
            self.rename(CERTIFICATE_NEW, CERTIFICATE)?;
        } else if fits(KEY) {
            self.rename(CERTIFICATE_NEW, CERTIFICATE)?;
        } else {
            // Half of it is missing: the old pair serves, and asks again.
            let path = self.path.join(CERTIFICATE_NEW);
            fs::remove_file(&path).map_err(|error| FolderError::Disk { path, error })?;
        }
        self.synced()
    }

    /// Removes everything that is ours in the folder, the key first.
    ///
    /// # Errors
    /// When the disk does not let it.
    pub fn wipe(&self) -> Result<(), FolderError> {
        for file in [KEY, KEY_NEW, CERTIFICATE, CERTIFICATE_NEW, CA, SIGNERS, COORDINATORS] {
            let path = self.path.join(file);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(FolderError::Disk { path, error }),
                Ok(()) | Err(_) => {}
            }
        }
        self.synced()
    }

    /// Makes the folder, for its owner alone.
    fn make(&self) -> Result<(), FolderError> {
        let made = fs::DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(&self.path);
        made.and_then(|()| sync_folder(self.path.parent().unwrap_or(&self.path)))
            .map_err(|error| FolderError::Disk { path: self.path.clone(), error })
    }

    fn read(&self, file: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(self.path.join(file)).ok()?.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// Writes a file of its own and makes it durable, its name too.
    fn write(&self, file: &str, bytes: &[u8], mode: u32) -> Result<(), FolderError> {
        let path = self.path.join(file);
        let written = || {
            // A file that is there keeps its rights: a key must not take over those of anything else.
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
            let mut to = OpenOptions::new().write(true).create_new(true).mode(mode).open(&path)?;
            to.write_all(bytes)?;
            to.sync_all()?;
            sync_folder(&self.path)
        };
        written().map_err(|error| FolderError::Disk { path: path.clone(), error })
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), FolderError> {
        let path = self.path.join(to);
        fs::rename(self.path.join(from), &path).map_err(|error| FolderError::Disk { path, error })
    }

    fn synced(&self) -> Result<(), FolderError> {
        sync_folder(&self.path).map_err(|error| FolderError::Disk { path: self.path.clone(), error })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::probe::testing::Authority;
    use crate::uplink::identity::Identity;

    fn folder(root: &tempfile::TempDir) -> Folder {
        Folder::new(root.path().join("state/identity"))
    }

    fn trusted(authority: &Authority) -> Trusted {
        Trusted { authorities: vec![authority.der().into()], ..Trusted::default() }
    }

    fn is_whole(folder: &Folder) -> bool {
        Identity::new(folder.path().to_owned()).credentials().is_ok()
    }

    #[test]
    fn b70_the_key_is_kept_before_anybody_is_asked_and_stays_until_it_is_used() {
        let (root, authority) = (tempfile::tempdir().unwrap(), Authority::new());
        let folder = folder(&root);
        let first = folder.pending_key().unwrap();
        assert_eq!(folder.pending_key().unwrap().public(), first.public());
        assert!(!folder.is_joined());
        let mode = |file: &str| fs::metadata(folder.path().join(file)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(""), mode(KEY_NEW)), (0o700, 0o600));
        folder.trust(&trusted(&authority)).unwrap();
        folder.put(&first, &[authority.certify(&first.request().unwrap(), "branch-kazan", 3600)]).unwrap();
        assert!(folder.is_joined() && is_whole(&folder));
        assert_eq!(mode(KEY), 0o600);
        assert_ne!(folder.pending_key().unwrap().public(), first.public(), "used up");
        // A key that was damaged before it was used is made anew.
        fs::write(folder.path().join(KEY_NEW), "half").unwrap();
        folder.pending_key().unwrap();
    }

    #[test]
    fn b68_whatever_ends_a_replacement_between_two_steps_a_pair_that_fits_is_there() {
        let authority = Authority::new();
        // The steps of `put`, of which the first so many are done.
        for steps in 0..=4 {
            let root = tempfile::tempdir().unwrap();
            let folder = folder(&root);
            let old = folder.pending_key().unwrap();
            folder.trust(&trusted(&authority)).unwrap();
            folder.put(&old, &[authority.certify(&old.request().unwrap(), "branch-kazan", 3600)]).unwrap();
            let new = Key::generate().unwrap();
            let certificate = authority.certify(&new.request().unwrap(), "branch-kazan", 7200);
            let text = pem("CERTIFICATE", &certificate);
            let todo: [&dyn Fn(); 4] = [
                &|| folder.write(KEY_NEW, new.to_pem().as_bytes(), KEY_MODE).unwrap(),
                &|| folder.write(CERTIFICATE_NEW, text.as_bytes(), FILE_MODE).unwrap(),
                &|| folder.rename(KEY_NEW, KEY).unwrap(),
                &|| folder.rename(CERTIFICATE_NEW, CERTIFICATE).unwrap(),
            ];
            for step in &todo[..steps] {
                step();
            }
            folder.finish().unwrap();
            assert!(is_whole(&folder), "after {steps} steps");
            let expected = if steps < 2 { old.public() } else { new.public() };
            assert_eq!(folder.key().unwrap().public(), expected, "after {steps} steps");
            assert!(!folder.path().join(CERTIFICATE_NEW).exists());
        }
    }

    #[test]
    fn b68_half_a_certificate_of_a_crash_is_left_out() {
        let (root, authority) = (tempfile::tempdir().unwrap(), Authority::new());
        let folder = folder(&root);
        let key = folder.pending_key().unwrap();
        let certificate = authority.certify(&key.request().unwrap(), "branch-kazan", 3600);
        let half = &pem("CERTIFICATE", &certificate)[..100];
        fs::write(folder.path().join(CERTIFICATE_NEW), half).unwrap();
        folder.finish().unwrap();
        assert!(!folder.is_joined());
        assert_eq!(folder.pending_key().unwrap().public(), key.public(), "and the key is asked for again");
    }

    #[test]
    fn what_does_not_fit_changes_nothing_and_a_wiped_folder_is_empty() {
        let (root, authority) = (tempfile::tempdir().unwrap(), Authority::new());
        let folder = folder(&root);
        let key = folder.pending_key().unwrap();
        let other = Key::generate().unwrap();
        let certificate = authority.certify(&other.request().unwrap(), "branch-kazan", 3600);
        assert!(matches!(folder.put(&key, &[certificate]), Err(FolderError::OtherKey)));
        assert!(matches!(folder.put(&key, &[]), Err(FolderError::NoIdentity(_))));
        assert!(matches!(folder.put(&key, &[vec![0x30, 0]]), Err(FolderError::NoIdentity(_))));
        assert!(!folder.is_joined());
        assert!(folder.trust(&trusted(&authority)).unwrap());
        assert!(!folder.trust(&trusted(&authority)).unwrap(), "the same again");
        assert!(!folder.trust(&Trusted::default()).unwrap(), "empty lists replace nothing");
        folder.wipe().unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
