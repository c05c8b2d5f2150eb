//! The authorities of this installation: the one that issues, and those that are trusted besides it while
//! it takes their place.
//!
//! ```text
//! STATE/ca/                         mode 0700
//!   ca.pem  ca.key                  the first authority: certificate, and private key (mode 0600)
//!   authority-FINGERPRINT/ca.pem …  one that was made to take its place, and so on
//!   retired.txt                     fingerprints of those that are trusted no more
//!   signer.key …                    what signs orders, made with the first authority
//! ```
//!
//! The newest issues agents' certificates. The oldest one that is still trusted issues the coordinator's own:
//! an agent that was away while the authority was replaced knows that one alone, and is told of the new one
//! as soon as it is back. Several coordinators share one authority: the folder is copied to each.

use std::fs;
use std::path::{Path, PathBuf};

use parallax_proto::TRUSTED_MAX;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use secrecy::ExposeSecret;
use time::{Duration, OffsetDateTime};

use super::authority::{Authority, BACKDATED};
use super::files::{self, GROUP_AND_OTHERS, OTHERS, cannot};
use super::request::sha256;
use super::retired::{self, retired};
use super::signer::{self, Signer};
use crate::error::{Exit, Failure};
use crate::hex::hex;

/// Start of the name of the folder of a later authority.
const LATER: &str = "authority-";

/// Whether an authority is made where there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Making {
    /// As the coordinator does at its first start.
    Allowed,
    /// A command that would make one in the wrong place, which nobody trusts.
    Forbidden,
}

/// The authorities, newest first, at least one.
#[derive(Debug)]
pub struct Bundle {
    able: Vec<Authority>,
    /// Trusted without a key of theirs: of the operator's file.
    others: Vec<CertificateDer<'static>>,
}

impl Bundle {
    /// Opens those of a state directory.
    ///
    /// # Errors
    /// When there are none and none may be made, when files are missing, readable by others, or do not belong
    /// together.
    pub fn open(state: &Path, making: Making, now: OffsetDateTime) -> Result<Self, Failure> {
        let folder = state.join("ca");
        if !folder.join("ca.pem").exists() && !folder.join("ca.key").exists() {
            if making == Making::Forbidden {
                return Err(Failure::new(Exit::Refused, format!("there is no certificate authority in {}", folder.display()))
                    .why("the coordinator makes it at its first start; one made elsewhere is trusted by nobody")
                    .fix("give the coordinator's --state, start it once (parallax serve), or make one on purpose with --make-authority"));
            }
            make_first(&folder, now)?;
        }
        let retired = retired(&folder)?;
        let mut able = Vec::new();
        for place in places(&folder)? {
            if let Some(authority) = open_one(&place, &retired)? {
                able.push(authority);
            }
        }
        if able.is_empty() {
            return Err(Failure::new(Exit::Failed, "every certificate authority is retired")
                .why(format!("{} names them all", folder.join("retired.txt").display()))
                .fix("take the fingerprint of the newest one out of it, or restore the folder from a backup"));
        }
        able.sort_by_key(|one| std::cmp::Reverse(one.not_before));
        able.truncate(TRUSTED_MAX);
        Ok(Self { able, others: Vec::new() })
    }

    /// The operator's own: the first certificate of the file belongs to the key and issues; all are trusted.
    ///
    /// # Errors
    /// When the files cannot be read, do not belong together, or hold more than a bundle may.
    pub fn of_operator(certificates: &Path, key: &Path) -> Result<Self, Failure> {
        let names = (certificates.display().to_string(), key.display().to_string());
        let unusable = |why: String| {
            Failure::new(Exit::Failed, "the operator's certificate authority cannot be used")
                .why(why)
                .fix("see `identity` in the configuration: authority_file, its own certificate first, and authority_key_file")
        };
        let text = files::read(certificates)?;
        let secret = files::read_secret(key, OTHERS)?;
        let authority = Authority::from_pem((&names.0, &text), (&names.1, &secret)).map_err(unusable)?;
        let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
        let all = all.map_err(|error| unusable(format!("{}: {error}", names.0)))?;
        if all.len() > TRUSTED_MAX {
            return Err(unusable(format!(
                "{} holds {} certificates; at most {TRUSTED_MAX} are trusted",
                names.0,
                all.len()
            )));
        }
        let others = all.into_iter().skip(1).collect();
        Ok(Self { able: vec![authority], others })
    }

    /// The one that issues agents' certificates.
    ///
    /// # Errors
    /// Never: there is at least one.
    pub fn issuing(&self) -> Result<&Authority, Failure> {
        self.able.first().ok_or_else(none)
    }

    /// The one that every agent trusts, also one that was away for long: it issues the coordinator's own.
    ///
    /// # Errors
    /// Never: there is at least one.
    pub fn serving(&self) -> Result<&Authority, Failure> {
        self.able.last().ok_or_else(none)
    }

    /// All that can sign, newest first.
    #[must_use]
    pub fn able(&self) -> &[Authority] {
        &self.able
    }

    /// SHA-256 of the key of the authority that vouches for a client's certificates, the client's own first, which TLS has
    /// checked. `None`: it cannot be told.
    #[must_use]
    pub fn vouching(&self, chain: &[CertificateDer<'_>]) -> Option<[u8; 32]> {
        if let ([only], []) = (self.able.as_slice(), self.others.as_slice()) {
            return Some(only.key_sha256);
        }
        let (_, last) = x509_parser::parse_x509_certificate(chain.last()?).ok()?;
        self.trusted().find_map(|authority| {
            let (_, authority) = x509_parser::parse_x509_certificate(authority).ok()?;
            let key = authority.public_key();
            last.verify_signature(Some(key)).is_ok().then(|| sha256(key.raw))
        })
    }

    /// Every certificate to trust, the issuing one's first.
    pub fn trusted(&self) -> impl Iterator<Item = &CertificateDer<'static>> {
        self.able.iter().map(Authority::certificate).chain(&self.others)
    }
}

fn none() -> Failure {
    Failure::new(Exit::Failed, "there is no certificate authority")
}

/// Makes a new authority beside those of a state directory. It issues from now on; the others stay trusted.
///
/// # Errors
/// When there are too many already, or it cannot be written.
pub fn rotate(state: &Path, now: OffsetDateTime) -> Result<String, Failure> {
    let bundle = Bundle::open(state, Making::Forbidden, now)?;
    if bundle.able.len() >= TRUSTED_MAX {
        return Err(Failure::new(Exit::Refused, format!("{TRUSTED_MAX} authorities are trusted already"))
            .why("agents take no more than that")
            .fix("parallax authority retire FINGERPRINT"));
    }
    let newest = bundle.issuing()?.not_before;
    let not_before = (now - BACKDATED).max(newest + Duration::seconds(1));
    let new = Authority::make(not_before, now)?;
    let authority = Authority::from_pem(("ca.pem", &new.certificate), ("ca.key", &new.key))
        .map_err(|why| Failure::new(Exit::Failed, "cannot make a certificate authority").why(why))?;
    let fingerprint = hex(&authority.key_sha256);
    let short = fingerprint.get(..16).unwrap_or(&fingerprint);
    let files = [("ca.key", new.key.expose_secret(), 0o600), ("ca.pem", new.certificate.as_str(), 0o644)];
    files::write_folder(&state.join("ca").join(format!("{LATER}{short}")), &files)?;
    Ok(fingerprint)
}

/// Trusts an authority no more and destroys its key.
///
/// # Errors
/// When there is none of this fingerprint, when it is the one that issues, or when it cannot be written.
pub fn retire(state: &Path, fingerprint: &str, now: OffsetDateTime) -> Result<String, Failure> {
    let bundle = Bundle::open(state, Making::Forbidden, now)?;
    let wanted = fingerprint.replace(':', "").to_ascii_lowercase();
    let mut found = bundle.able.iter().enumerate().filter(|(_, one)| hex(&one.key_sha256).starts_with(&wanted));
    let (place, whole) = match (found.next(), found.next()) {
        (Some((place, one)), None) if wanted.len() >= 8 => (place, hex(&one.key_sha256)),
        (None, _) => {
            return Err(Failure::new(Exit::NotFound, "no trusted authority has this fingerprint")
                .fix("parallax authority list"));
        }
        (Some(_), _) => {
            return Err(Failure::new(
                Exit::Usage,
                "give at least 8 digits of the fingerprint, and enough to tell which",
            )
            .fix("parallax authority list"));
        }
    };
    if place == 0 {
        return Err(Failure::new(Exit::Refused, "this authority issues the certificates; it cannot be retired")
            .fix("parallax authority rotate  makes one that takes its place"));
    }
    let folder = state.join("ca");
    retired::add(&folder, &whole)?;
    for one in places(&folder)? {
        let is_it = certificate(&one).is_ok_and(|(_, key_sha256)| hex(&key_sha256) == whole);
        let key = one.join("ca.key");
        if is_it && key.exists() {
            fs::remove_file(&key)
                .and_then(|()| fs::File::open(&one)?.sync_all())
                .map_err(|error| cannot("remove", &key, error))?;
        }
    }
    Ok(whole)
}

fn make_first(folder: &Path, now: OffsetDateTime) -> Result<(), Failure> {
    let (new, signer) = (Authority::make(now - BACKDATED, now)?, Signer::make()?);
    let files = [
        ("ca.key", new.key.expose_secret(), 0o600),
        ("ca.pem", new.certificate.as_str(), 0o644),
        (signer::FILE, signer.expose_secret(), 0o600),
    ];
    // False: another process was faster, and its authority is the one.
    files::write_folder(folder, &files).map(|_| ())
}

/// Folders that hold an authority, the first one's first.
fn places(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut later = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| cannot("read", folder, error))? {
        let entry = entry.map_err(|error| cannot("read", folder, error))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(LATER) && !name.contains(".new.") {
            later.push(entry.path());
        }
    }
    later.sort();
    Ok(std::iter::once(folder.to_owned()).chain(later).collect())
}

fn certificate(place: &Path) -> Result<(String, [u8; 32]), Failure> {
    let file = place.join("ca.pem");
    let text = files::read(&file)?;
    let key_sha256 = CertificateDer::from_pem_slice(text.as_bytes())
        .map_err(|error| error.to_string())
        .and_then(|der| {
            let (_, parsed) = x509_parser::parse_x509_certificate(&der).map_err(|error| error.to_string())?;
            Ok(sha256(parsed.public_key().raw))
        })
        .map_err(|why| unusable(place, why))?;
    Ok((text, key_sha256))
}

/// None: it is retired.
fn open_one(place: &Path, retired: &[String]) -> Result<Option<Authority>, Failure> {
    for (file, other) in [("ca.pem", "ca.key"), ("ca.key", "ca.pem")] {
        if file == "ca.key" && certificate(place).is_ok_and(|(_, sha256)| retired.contains(&hex(&sha256))) {
            return Ok(None);
        }
        if !place.join(file).exists() {
            return Err(Failure::new(Exit::Failed, "half of the certificate authority is missing")
                .why(format!("{} is not there, {other} is", place.join(file).display()))
                .fix("restore it from a backup, or move STATE/ca away and enrol every agent anew"));
        }
    }
    let (text, _) = certificate(place)?;
    let key = files::read_secret(&place.join("ca.key"), GROUP_AND_OTHERS)?;
    Authority::from_pem(("ca.pem", &text), ("ca.key", &key)).map(Some).map_err(|why| unusable(place, why))
}

fn unusable(place: &Path, why: String) -> Failure {
    Failure::new(Exit::Failed, "the certificate authority cannot be used")
        .why(why)
        .fix(format!("restore ca.pem and ca.key of {} from a backup", place.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::clock;

    fn open(state: &Path) -> Result<Bundle, Failure> {
        Bundle::open(state, Making::Allowed, clock::wall())
    }

    #[test]
    fn a_first_start_that_was_killed_half_way_does_not_stop_the_next() {
        let state = tempfile::tempdir().unwrap();
        let half = state.path().join(format!("ca.new.{}", std::process::id()));
        fs::create_dir(&half).unwrap();
        fs::write(half.join("ca.key"), "").unwrap();
        let made = open(state.path()).unwrap();
        assert!(!half.exists());
        let mode = |name: &str| fs::metadata(state.path().join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("ca"), mode("ca/ca.key")), (0o700, 0o600));
        let again = open(state.path()).unwrap();
        assert_eq!(again.issuing().unwrap().certificate(), made.issuing().unwrap().certificate());
    }

    #[test]
    fn an_authority_that_lost_a_half_is_not_replaced() {
        let state = tempfile::tempdir().unwrap();
        open(state.path()).unwrap();
        for lost in ["ca.pem", "ca.key"] {
            let file = state.path().join("ca").join(lost);
            let kept = fs::read(&file).unwrap();
            fs::remove_file(&file).unwrap();
            let failure = open(state.path()).unwrap_err().to_string();
            assert!(failure.contains("half of the certificate authority is missing"), "{failure}");
            fs::write(&file, kept).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        }
        open(state.path()).unwrap();
    }

    #[test]
    fn two_first_starts_agree_on_one_authority() {
        let state = tempfile::tempdir().unwrap();
        let first = open(state.path()).unwrap();
        make_first(&state.path().join("ca"), clock::wall()).unwrap();
        let second = open(state.path()).unwrap();
        assert_eq!(first.issuing().unwrap().certificate(), second.issuing().unwrap().certificate());
        assert_eq!(fs::read_dir(state.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn a_key_that_others_can_read_stops_the_start_and_says_what_to_do() {
        let state = tempfile::tempdir().unwrap();
        open(state.path()).unwrap();
        let key = state.path().join("ca/ca.key");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
        let failure = open(state.path()).unwrap_err();
        assert_eq!(failure.exit, Exit::Refused);
        let text = failure.to_string();
        assert!(text.contains("readable by others") && text.contains("chmod 0600") && text.contains("0644"), "{text}");
    }

    #[test]
    fn a_command_makes_no_authority_that_nobody_trusts() {
        let state = tempfile::tempdir().unwrap();
        let failure = Bundle::open(state.path(), Making::Forbidden, clock::wall()).unwrap_err();
        assert!(failure.to_string().contains("--make-authority"), "{failure}");
        assert_eq!(fs::read_dir(state.path()).unwrap().count(), 0);
    }

    #[test]
    fn authorities_overlap_until_the_old_one_is_retired() {
        let state = tempfile::tempdir().unwrap();
        let first = open(state.path()).unwrap().issuing().unwrap().key_sha256;
        let second = rotate(state.path(), clock::wall()).unwrap();
        let third = rotate(state.path(), clock::wall()).unwrap();
        let bundle = open(state.path()).unwrap();
        let order: Vec<_> = bundle.able().iter().map(|one| hex(&one.key_sha256)).collect();
        assert_eq!(order, [third.clone(), second.clone(), hex(&first)]);
        assert_eq!(bundle.serving().unwrap().key_sha256, first);
        assert_eq!(bundle.trusted().count(), 3);
        assert_eq!(retire(state.path(), &third, clock::wall()).unwrap_err().exit, Exit::Refused);
        assert_eq!(retire(state.path(), "00000000", clock::wall()).unwrap_err().exit, Exit::NotFound);
        for gone in [hex(&first), second[..16].to_owned()] {
            retire(state.path(), &gone, clock::wall()).unwrap();
        }
        let bundle = open(state.path()).unwrap();
        assert_eq!((bundle.able().len(), hex(&bundle.serving().unwrap().key_sha256)), (1, third));
        assert!(!state.path().join("ca/ca.key").exists(), "a retired key is destroyed");
    }
}
