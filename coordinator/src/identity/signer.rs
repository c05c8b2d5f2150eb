//! The Ed25519 keys that sign what agents are ordered to do. They lie beside the authority, so that neither a proxy on
//! the way nor a stolen server certificate can make an agent do anything.
//!
//! ```text
//! STATE/ca/signer.key      PKCS #8, mode 0600; made with the authority
//!          signer-2.key …  one that was made to take its place, and so on
//!          retired.txt     fingerprints of those that are trusted no more, of authorities too
//! ```
//!
//! The oldest one that is still trusted signs: an agent that was away while the key was replaced knows that one alone,
//! and is told of the new one, signed by the old one, as soon as it is back. One that was lost is not made anew in
//! silence: agents would obey nothing.

use std::fs;
use std::path::{Path, PathBuf};

use parallax_proto::TRUSTED_MAX;
use rcgen::{KeyPair, PKCS_ED25519, PublicKeyData, SigningKey};
use secrecy::{ExposeSecret, SecretString};

use super::files::{self, GROUP_AND_OTHERS, cannot, read_secret, write_first};
use super::request::sha256;
use super::retired::{self, retired};
use crate::error::{Exit, Failure};
use crate::hex::hex;

/// Name of the first key's file in STATE/ca.
pub const FILE: &str = "signer.key";

/// Shortest beginning of a fingerprint that names a key, in digits.
const DIGITS_MIN: usize = 8;

/// A key.
pub struct Signer {
    pair: KeyPair,
    /// Its file.
    file: PathBuf,
    number: u32,
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Signer(..)")
    }
}

impl Signer {
    /// The text of a new one.
    ///
    /// # Errors
    /// When the library cannot.
    pub fn make() -> Result<SecretString, Failure> {
        let made = KeyPair::generate_for(&PKCS_ED25519);
        let made = made.map_err(|why| Failure::new(Exit::Failed, "cannot make a key that signs orders").why(why))?;
        Ok(SecretString::from(made.serialize_pem()))
    }

    /// The public key, 32 bytes.
    #[must_use]
    pub fn public(&self) -> &[u8] {
        self.pair.der_bytes()
    }

    /// SHA-256 of the public key in hexadecimal: how people name it.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        fingerprint(self.public())
    }

    /// Ed25519 (RFC 8032) over the bytes; 64 bytes.
    ///
    /// # Errors
    /// When the library refuses, which it has no reason to.
    pub fn sign(&self, bytes: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        self.pair.sign(bytes)
    }

    fn open(file: PathBuf, number: u32) -> Result<Self, Failure> {
        let unusable = |why: &str| {
            Failure::new(Exit::Failed, "the key that signs orders cannot be used")
                .why(format!("{}: {why}", file.display()))
                .fix("restore it from a backup; agents obey what a key signs that they know, and nothing else")
        };
        // The error of a key must not quote the key.
        let pair = KeyPair::from_pem(read_secret(&file, GROUP_AND_OTHERS)?.expose_secret())
            .map_err(|_| unusable("it holds no usable key"))?;
        if pair.algorithm() != &PKCS_ED25519 {
            return Err(unusable("it is no Ed25519 key"));
        }
        Ok(Self { pair, file, number })
    }
}

/// SHA-256 of a public key in hexadecimal.
#[must_use]
pub fn fingerprint(public: &[u8]) -> String {
    hex(&sha256(public))
}

/// Those of an installation, at least one.
#[derive(Debug)]
pub struct Signers {
    first: Signer,
    later: Vec<Signer>,
}

impl Signers {
    /// Opens the keys of STATE/ca.
    ///
    /// # Errors
    /// When there is none, or one cannot be read, is readable by others, or is no Ed25519 key.
    pub fn open(folder: &Path) -> Result<Self, Failure> {
        let retired = retired(folder)?;
        let mut all = Vec::new();
        for (number, file) in places(folder)? {
            let signer = Signer::open(file, number)?;
            if !retired.contains(&signer.fingerprint()) {
                all.push(signer);
            }
        }
        all.sort_by_key(|one| one.number);
        all.truncate(TRUSTED_MAX);
        let mut all = all.into_iter();
        let Some(first) = all.next() else {
            return Err(Failure::new(Exit::Refused, format!("there is no {}", folder.join(FILE).display()))
                .why("it signs what agents are told to do, and agents that know it obey no other key; one made anew in silence would lock them all out")
                .fix("restore it from a backup or from another coordinator of this installation; where it is lost for good: parallax authority reset-signer --reason …, and let every agent join again"));
        };
        Ok(Self { first, later: all.collect() })
    }

    /// The one that signs: every agent knows it, also one that was away for long.
    #[must_use]
    pub fn signing(&self) -> &Signer {
        &self.first
    }

    /// All of them, the signing one first.
    pub fn all(&self) -> impl Iterator<Item = &Signer> {
        std::iter::once(&self.first).chain(&self.later)
    }

    /// Their public keys, the signing one's first.
    #[must_use]
    pub fn public(&self) -> Vec<Vec<u8>> {
        self.all().map(|one| one.public().to_vec()).collect()
    }

    /// The one whose fingerprint begins so.
    ///
    /// # Errors
    /// When there is none, or the beginning is too short.
    pub fn find(&self, start: &str) -> Result<&Signer, Failure> {
        let wanted = start.replace(':', "").to_ascii_lowercase();
        let mut found = self.all().filter(|one| one.fingerprint().starts_with(&wanted));
        match (found.next(), found.next()) {
            (Some(one), None) if wanted.len() >= DIGITS_MIN => Ok(one),
            (None, _) => Err(Failure::new(Exit::NotFound, "no key that signs orders has this fingerprint")
                .fix("parallax authority list")),
            (Some(_), _) => Err(Failure::new(
                Exit::Usage,
                format!("give at least {DIGITS_MIN} digits of the fingerprint, and enough to tell which"),
            )
            .fix("parallax authority list")),
        }
    }
}

/// Makes the first key of an installation whose authority is the operator's: a built-in authority is made with it.
/// Where anything lies already, nothing is made.
///
/// # Errors
/// When it cannot be written.
pub fn make_first(folder: &Path) -> Result<(), Failure> {
    let is_new = match fs::read_dir(folder) {
        Ok(mut entries) => entries.next().is_none(),
        Err(_) => !folder.exists(),
    };
    if !is_new {
        return Ok(());
    }
    // False: another process was faster, and its key is the one.
    files::write_folder(folder, &[(FILE, Signer::make()?.expose_secret(), 0o600)]).map(|_| ())
}

/// Makes a key beside those of STATE/ca: agents are told of it, and the old one signs until it is retired. Returns its
/// public key.
///
/// # Errors
/// When there are too many already, or it cannot be written.
pub fn rotate(folder: &Path) -> Result<Vec<u8>, Failure> {
    let signers = Signers::open(folder)?;
    if signers.later.len() + 1 >= TRUSTED_MAX {
        return Err(Failure::new(Exit::Refused, format!("{TRUSTED_MAX} keys that sign orders are trusted already"))
            .why("agents take no more than that")
            .fix("parallax authority retire-signer FINGERPRINT --reason …"));
    }
    add(folder)
}

/// Makes a key where there is none that can be used, whatever agents know; one that is there stays. Returns the
/// signing one's public key.
///
/// # Errors
/// When it cannot be written, or what is there cannot be read.
pub fn reset(folder: &Path) -> Result<Vec<u8>, Failure> {
    files::make_private_folder(folder)?;
    match Signers::open(folder) {
        Ok(signers) => Ok(signers.signing().public().to_vec()),
        Err(failure) if failure.exit == Exit::Refused && left(folder)? == 0 => add(folder),
        Err(failure) => Err(failure),
    }
}

/// How many keys lie there that are not retired, readable or not.
fn left(folder: &Path) -> Result<usize, Failure> {
    let retired = retired(folder)?;
    let places = places(folder)?;
    let is_retired = |number: u32, file: &PathBuf| {
        Signer::open(file.clone(), number).is_ok_and(|one| retired.contains(&one.fingerprint()))
    };
    Ok(places.iter().filter(|(number, file)| !is_retired(*number, file)).count())
}

/// Trusts a key no more and destroys it. Returns its public key.
///
/// # Errors
/// When there is none of this fingerprint, when it is the only one, or when it cannot be written.
pub fn retire(folder: &Path, start: &str) -> Result<Vec<u8>, Failure> {
    let signers = Signers::open(folder)?;
    let one = signers.find(start)?;
    if signers.later.is_empty() {
        return Err(Failure::new(Exit::Refused, "this is the only key that signs orders; it cannot be retired")
            .fix("parallax authority rotate-signer  makes one that takes its place"));
    }
    retired::add(folder, &one.fingerprint())?;
    fs::remove_file(&one.file)
        .and_then(|()| fs::File::open(folder)?.sync_all())
        .map_err(|error| cannot("remove", &one.file, error))?;
    Ok(one.public().to_vec())
}

fn add(folder: &Path) -> Result<Vec<u8>, Failure> {
    let next = places(folder)?.iter().map(|(number, _)| *number).max().map_or(1, |last| last.saturating_add(1));
    let file = if next == 1 { folder.join(FILE) } else { folder.join(format!("signer-{next}.key")) };
    write_first(&file, Signer::make()?.expose_secret(), 0o600)?;
    Ok(Signer::open(file, next)?.public().to_vec())
}

/// Files that hold a key, with their numbers.
fn places(folder: &Path) -> Result<Vec<(u32, PathBuf)>, Failure> {
    let mut places = Vec::new();
    if !folder.exists() {
        return Ok(places);
    }
    for entry in fs::read_dir(folder).map_err(|error| cannot("read", folder, error))? {
        let entry = entry.map_err(|error| cannot("read", folder, error))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let number = match name.as_str() {
            FILE => Some(1),
            name => name.strip_prefix("signer-").and_then(|rest| rest.strip_suffix(".key")?.parse().ok()),
        };
        places.extend(number.map(|number| (number, entry.path())));
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A folder with a key, as it is made with the authority.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        write_first(&folder.path().join(FILE), Signer::make().unwrap().expose_secret(), 0o600).unwrap();
        folder
    }

    #[test]
    fn the_key_is_nobody_elses() {
        let folder = folder();
        assert_eq!(Signers::open(folder.path()).unwrap().signing().public().len(), 32);
        fs::set_permissions(folder.path().join(FILE), fs::Permissions::from_mode(0o640)).unwrap();
        let refused = Signers::open(folder.path()).unwrap_err().to_string();
        assert!(refused.contains("readable by others") && refused.contains("chmod 0600"), "{refused}");
    }

    #[test]
    fn a_lost_key_is_not_made_anew_in_silence() {
        let folder = folder();
        let before = Signers::open(folder.path()).unwrap().public();
        fs::remove_file(folder.path().join(FILE)).unwrap();
        let refused = Signers::open(folder.path()).unwrap_err();
        assert_eq!(refused.exit, Exit::Refused);
        let text = refused.to_string();
        assert!(text.contains("backup") && text.contains("reset-signer") && text.contains("join again"), "{text}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "and nothing is made");
        // On purpose, and once.
        let made = reset(folder.path()).unwrap();
        assert_ne!(made, before[0]);
        assert_eq!(reset(folder.path()).unwrap(), made);
    }

    #[test]
    fn another_kind_of_key_is_refused_without_quoting_it() {
        let folder = tempfile::tempdir().unwrap();
        let pem = KeyPair::generate().unwrap().serialize_pem();
        write_first(&folder.path().join(FILE), &pem, 0o600).unwrap();
        let refused = Signers::open(folder.path()).unwrap_err().to_string();
        assert!(refused.contains("no Ed25519 key") && !refused.contains(&pem[40..60]), "{refused}");
        assert!(reset(folder.path()).is_err(), "what is there is looked at by a person first");
    }

    #[test]
    fn keys_overlap_until_the_old_one_is_retired() {
        let folder = folder();
        let first = Signers::open(folder.path()).unwrap().public().remove(0);
        assert_eq!(retire(folder.path(), &fingerprint(&first)).unwrap_err().exit, Exit::Refused);
        let second = rotate(folder.path()).unwrap();
        let third = rotate(folder.path()).unwrap();
        let signers = Signers::open(folder.path()).unwrap();
        assert_eq!(signers.public(), [first.clone(), second.clone(), third.clone()], "the oldest signs");
        assert_eq!(retire(folder.path(), "00000000").unwrap_err().exit, Exit::NotFound);
        assert_eq!(retire(folder.path(), &fingerprint(&first)[..4]).unwrap_err().exit, Exit::Usage);
        assert_eq!(retire(folder.path(), &fingerprint(&first)[..12]).unwrap(), first);
        assert_eq!(Signers::open(folder.path()).unwrap().signing().public(), second);
        assert!(!folder.path().join(FILE).exists(), "a retired key is destroyed");
        retire(folder.path(), &fingerprint(&third)).unwrap();
        assert_eq!(Signers::open(folder.path()).unwrap().public(), [second]);
        for _ in 1..TRUSTED_MAX {
            rotate(folder.path()).unwrap();
        }
        assert_eq!(rotate(folder.path()).unwrap_err().exit, Exit::Refused);
    }
}
