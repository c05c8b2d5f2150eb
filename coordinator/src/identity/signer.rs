//! The Ed25519 key that signs what agents are ordered to do. It lies beside the authority, so that
//! neither a proxy on the way nor a stolen server certificate can make an agent do anything.
//!
//! ```text
//! STATE/ca/signer.key   PKCS #8, mode 0600; made with the authority
//! ```

use std::path::Path;

use rcgen::{KeyPair, PKCS_ED25519, PublicKeyData, SigningKey};
use secrecy::ExposeSecret;

use super::bundle::Making;
use super::files::{GROUP_AND_OTHERS, read_secret, write_first};
use crate::error::{Exit, Failure};

/// Name of the key's file in STATE/ca.
pub const FILE: &str = "signer.key";

/// The key.
pub struct Signer(KeyPair);

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Signer(..)")
    }
}

impl Signer {
    /// Opens the key of STATE/ca; makes it the first time, where that is allowed.
    ///
    /// # Errors
    /// When there is none and none may be made, when it cannot be read or written, is readable by others, or is
    /// no Ed25519 key.
    pub fn open(folder: &Path, making: Making) -> Result<Self, Failure> {
        let file = folder.join(FILE);
        let unusable = |why: &str| {
            Failure::new(Exit::Failed, "the key that signs orders cannot be used")
                .why(format!("{}: {why}", file.display()))
                .fix("restore it from a backup; made anew, agents refuse what it signs until they were told of it")
        };
        if !file.exists() {
            if making == Making::Forbidden {
                return Err(Failure::new(Exit::Refused, format!("there is no {}", file.display()))
                    .why("the coordinator makes the key that signs orders at its first start; agents would obey no other")
                    .fix("give the coordinator's --state, start it once (parallax serve), or make it on purpose with --make-authority"));
            }
            let key = KeyPair::generate_for(&PKCS_ED25519).map_err(|error| unusable(&error.to_string()))?;
            write_first(&file, &key.serialize_pem(), 0o600)?;
        }
        // The error of a key must not quote the key.
        let key = KeyPair::from_pem(read_secret(&file, GROUP_AND_OTHERS)?.expose_secret())
            .map_err(|_| unusable("it holds no usable key"))?;
        if key.algorithm() != &PKCS_ED25519 {
            return Err(unusable("it is no Ed25519 key"));
        }
        Ok(Self(key))
    }

    /// The public key, 32 bytes.
    #[must_use]
    pub fn public(&self) -> &[u8] {
        self.0.der_bytes()
    }

    /// Ed25519 (RFC 8032) over the bytes; 64 bytes.
    ///
    /// # Errors
    /// When the library refuses, which it has no reason to.
    pub fn sign(&self, bytes: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        self.0.sign(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_key_stays_the_same_and_is_nobody_elses() {
        let folder = tempfile::tempdir().unwrap();
        let public = Signer::open(folder.path(), Making::Allowed).unwrap().public().to_vec();
        assert_eq!(public.len(), 32);
        assert_eq!(Signer::open(folder.path(), Making::Allowed).unwrap().public(), public);
        let file = folder.path().join(FILE);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let refused = Signer::open(folder.path(), Making::Allowed).unwrap_err().to_string();
        assert!(refused.contains("readable by others") && refused.contains("chmod 0600"), "{refused}");
    }

    #[test]
    fn a_command_makes_no_key_that_nobody_signs_with() {
        let folder = tempfile::tempdir().unwrap();
        let refused = Signer::open(folder.path(), Making::Forbidden).unwrap_err();
        assert_eq!(refused.exit, Exit::Refused);
    }

    #[test]
    fn another_kind_of_key_is_refused_without_quoting_it() {
        let folder = tempfile::tempdir().unwrap();
        let pem = KeyPair::generate().unwrap().serialize_pem();
        write_first(&folder.path().join(FILE), &pem, 0o600).unwrap();
        let refused = Signer::open(folder.path(), Making::Allowed).unwrap_err().to_string();
        assert!(refused.contains("no Ed25519 key") && !refused.contains(&pem[40..60]), "{refused}");
    }
}
