//! The built-in certificate authority: it vouches for agents towards the coordinator and for the
//! coordinator towards agents. P-256 throughout.
//!
//! ```text
//! STATE/ca/ca.pem   the authority's certificate; agents carry a copy
//! STATE/ca/ca.key   its private key, mode 0600
//! ```

use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use parallax_decide::names::VantageName;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use time::{Duration, OffsetDateTime};

use crate::error::{Exit, Failure};

/// Name that agents check, whatever address they dial.
pub const SERVER_NAME: &str = "parallax-coordinator";

/// Start of the URI that names a vantage in its certificate.
pub const VANTAGE_URI: &str = "parallax://vantage/";

/// The authority outlives many agents; replacing it means touching each of them.
const AUTHORITY_LIFE: Duration = Duration::days(3650);
/// Life of an agent's certificate.
const AGENT_LIFE: Duration = Duration::days(30);
/// Life of the coordinator's own certificate; a running coordinator renews it daily.
const SERVER_LIFE: Duration = Duration::days(30);
/// Clocks of agents may be slow by this much.
const BACKDATED: Duration = Duration::minutes(10);

/// The authority, able to sign.
pub struct Authority {
    certificate_pem: String,
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority(..)")
    }
}

/// A certificate with its key, ready for a TLS server.
#[derive(Debug)]
pub struct Identity {
    /// The certificate.
    pub certificate: CertificateDer<'static>,
    /// Its private key.
    pub key: PrivateKeyDer<'static>,
}

impl Authority {
    /// Opens the authority of a state directory, making it on the first run.
    ///
    /// # Errors
    /// When files are missing, not readable, or do not belong together.
    pub fn open(state: &Path, now: OffsetDateTime) -> Result<Self, Failure> {
        let (certificate_file, key_file) = (state.join("ca/ca.pem"), state.join("ca/ca.key"));
        match (certificate_file.exists(), key_file.exists()) {
            (false, false) => Self::make(state, now)?,
            (true, true) => {}
            (has_certificate, _) => {
                let missing = if has_certificate { &key_file } else { &certificate_file };
                return Err(Failure::new(Exit::Failed, "half of the certificate authority is missing")
                    .why(format!("{} is not there", missing.display()))
                    .fix("restore it from a backup, or move STATE/ca away and issue every agent anew"));
            }
        }
        let key_pem = secrecy::SecretString::from(read(&key_file)?);
        let certificate_pem = read(&certificate_file)?;
        Self::from_pem(certificate_pem, &key_pem).map_err(|why| {
            Failure::new(Exit::Failed, "the certificate authority cannot be used").why(why).fix(format!(
                "restore {} and {} from a backup",
                certificate_file.display(),
                key_file.display()
            ))
        })
    }

    fn from_pem(certificate_pem: String, key_pem: &secrecy::SecretString) -> Result<Self, String> {
        use rustls_pki_types::pem::PemObject;
        use secrecy::ExposeSecret;
        // The error of a key must not quote the key.
        let key = KeyPair::from_pem(key_pem.expose_secret()).map_err(|_| "ca.key holds no usable key".to_owned())?;
        let certificate = CertificateDer::from_pem_slice(certificate_pem.as_bytes())
            .map_err(|error| format!("ca.pem holds no certificate: {error}"))?;
        let (_, parsed) = x509_parser::parse_x509_certificate(&certificate)
            .map_err(|error| format!("ca.pem holds no certificate: {error}"))?;
        if *parsed.public_key().subject_public_key.data != *key.public_key_raw() {
            return Err("ca.key is not the key of ca.pem".to_owned());
        }
        let issuer = Issuer::from_ca_cert_pem(&certificate_pem, key).map_err(|error| format!("ca.pem: {error}"))?;
        Ok(Self { certificate_pem, certificate, issuer })
    }

    /// Makes both files beside their place and renames the folder: a process that is killed between
    /// the two leaves no half, which would have to be repaired by hand.
    fn make(state: &Path, now: OffsetDateTime) -> Result<(), Failure> {
        let failed = |why: rcgen::Error| Failure::new(Exit::Failed, "cannot make a certificate authority").why(why);
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = params("Parallax certificate authority", now, AUTHORITY_LIFE);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).map_err(failed)?;
        let (folder, new) = (state.join("ca"), state.join(format!("ca.new.{}", std::process::id())));
        if new.exists() {
            fs::remove_dir_all(&new).map_err(|error| cannot("remove", &new, error))?;
        }
        fs::create_dir_all(&new).map_err(|error| cannot("make", &new, error))?;
        fs::set_permissions(&new, fs::Permissions::from_mode(0o700))
            .map_err(|error| cannot("set the mode of", &new, error))?;
        write_new(&new.join("ca.key"), &key.serialize_pem(), 0o600)?;
        write_new(&new.join("ca.pem"), &certificate.pem(), 0o644)?;
        let renamed = fs::rename(&new, &folder).and_then(|()| fs::File::open(state)?.sync_all());
        match renamed {
            // Another process was faster: its authority is the one.
            Err(_) if folder.join("ca.pem").exists() => {
                fs::remove_dir_all(&new).map_err(|error| cannot("remove", &new, error))
            }
            renamed => renamed.map_err(|error| cannot("make", &folder, error)),
        }
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
    pub fn server_identity(&self, listen: IpAddr, now: OffsetDateTime) -> Result<Identity, Failure> {
        let failed = |why: rcgen::Error| Failure::new(Exit::Failed, "cannot make the server's certificate").why(why);
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = params(SERVER_NAME, now, SERVER_LIFE);
        params.subject_alt_names = vec![SanType::DnsName(SERVER_NAME.try_into().map_err(failed)?)];
        if !listen.is_unspecified() {
            params.subject_alt_names.push(SanType::IpAddress(listen));
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        let key = PrivateKeyDer::try_from(key.serialize_der())
            .map_err(|why| Failure::new(Exit::Failed, "cannot use the server's key").why(why))?;
        Ok(Identity { certificate: certificate.der().clone(), key })
    }

    /// Writes `ca.pem`, `certificate.pem` and `key.pem` (0600) of a vantage into a folder.
    ///
    /// # Errors
    /// When one of them is there already, or the folder cannot be written.
    pub fn issue(&self, vantage: &VantageName, folder: &Path, now: OffsetDateTime) -> Result<OffsetDateTime, Failure> {
        let failed = |why: rcgen::Error| Failure::new(Exit::Failed, "cannot issue the certificate").why(why);
        let files = ["ca.pem", "certificate.pem", "key.pem"].map(|name| folder.join(name));
        if let Some(there) = files.iter().find(|file| file.exists()) {
            return Err(Failure::new(Exit::Refused, format!("{} is there already", there.display()))
                .why("an identity is never overwritten: an agent may be using it")
                .fix("choose another folder with --out, or move the old identity away"));
        }
        fs::create_dir_all(folder).map_err(|error| cannot("make", folder, error))?;
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = params(vantage.as_str(), now, AGENT_LIFE);
        let uri = format!("{VANTAGE_URI}{vantage}");
        params.subject_alt_names = vec![SanType::URI(uri.try_into().map_err(failed)?)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let not_after = params.not_after;
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        let [ca_file, certificate_file, key_file] = files;
        write_new(&key_file, &key.serialize_pem(), 0o600)?;
        write_new(&certificate_file, &certificate.pem(), 0o644)?;
        write_new(&ca_file, &self.certificate_pem, 0o644)?;
        Ok(not_after)
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

fn read(path: &PathBuf) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| cannot("read", path, error))
}

fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)
        .map_err(|error| cannot("make", path, error))?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(|error| cannot("write", path, error))
}

fn cannot(what: &str, path: &Path, why: std::io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("cannot {what} {}", path.display()))
        .why(why)
        .fix("look at the owner and the mode of it and of the folders above, or choose another folder")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn a_first_start_that_was_killed_half_way_does_not_stop_the_next() {
        let state = tempfile::tempdir().unwrap();
        let half = state.path().join(format!("ca.new.{}", std::process::id()));
        fs::create_dir(&half).unwrap();
        fs::write(half.join("ca.key"), "").unwrap();
        let made = Authority::open(state.path(), clock::wall()).unwrap();
        assert!(!half.exists());
        let mode = |name: &str| fs::metadata(state.path().join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("ca"), mode("ca/ca.key")), (0o700, 0o600));
        let again = Authority::open(state.path(), clock::wall()).unwrap();
        assert_eq!(again.certificate(), made.certificate());
    }

    #[test]
    fn an_authority_that_lost_a_half_is_not_replaced() {
        let state = tempfile::tempdir().unwrap();
        Authority::open(state.path(), clock::wall()).unwrap();
        fs::remove_file(state.path().join("ca/ca.pem")).unwrap();
        let failure = Authority::open(state.path(), clock::wall()).unwrap_err().to_string();
        assert!(failure.contains("half of the certificate authority is missing"), "{failure}");
        Authority::make(state.path(), clock::wall()).unwrap_err();
        fs::remove_file(state.path().join("ca/ca.key")).unwrap();
        Authority::open(state.path(), clock::wall()).unwrap();
    }

    #[test]
    fn two_first_starts_agree_on_one_authority() {
        let state = tempfile::tempdir().unwrap();
        let first = Authority::open(state.path(), clock::wall()).unwrap();
        Authority::make(state.path(), clock::wall()).unwrap();
        let second = Authority::open(state.path(), clock::wall()).unwrap();
        assert_eq!(first.certificate(), second.certificate());
        assert_eq!(fs::read_dir(state.path()).unwrap().count(), 1, "nothing is left beside it");
    }
}
