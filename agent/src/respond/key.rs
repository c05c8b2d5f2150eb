//! The key that a node proves its life with: Ed25519 in PKCS #8 form, readable by its owner alone.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use ring::signature::Ed25519KeyPair;

use crate::entropy;

/// Largest file that is read, in bytes: a key has 83.
const FILE_MAX: u64 = 1024;

/// Reads the key, or makes it.
///
/// # Errors
/// When it cannot be read or written, others may read it, or it is no such key. Never repeats the content.
pub(super) fn read_or_make(path: &Path) -> io::Result<Ed25519KeyPair> {
    match read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => make(path),
        read => read,
    }
}

fn read(path: &Path) -> io::Result<Ed25519KeyPair> {
    let file = fs::File::open(path)?;
    let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        return Err(invalid("others may read it: chmod 600, and make a new key if somebody may have"));
    }
    let mut pkcs8 = Vec::new();
    file.take(FILE_MAX).read_to_end(&mut pkcs8)?;
    Ed25519KeyPair::from_pkcs8(&pkcs8).map_err(|_| invalid("it holds no Ed25519 key in PKCS #8 form"))
}

/// Under another name first: a key that was cut short would never be read again.
fn make(path: &Path) -> io::Result<Ed25519KeyPair> {
    let none = || io::Error::other("the operating system gave no random bytes");
    let made = Ed25519KeyPair::generate_pkcs8(&entropy::for_keys()).map_err(|_| none())?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let unfinished = path.with_file_name(name);
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
    file.write_all(made.as_ref())?;
    file.sync_all()?;
    // One that somebody else made meanwhile stays.
    fs::hard_link(&unfinished, path)?;
    fs::remove_file(&unfinished)?;
    read(path)
}

#[cfg(test)]
mod tests {
    use ring::signature::KeyPair as _;

    use super::*;

    #[test]
    fn a_key_is_made_once_and_kept_to_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("life.key");
        let made = read_or_make(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let again = read_or_make(&path).unwrap();
        assert_eq!(made.public_key().as_ref(), again.public_key().as_ref());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(read_or_make(&path).unwrap_err().to_string().contains("chmod 600"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, b"rubbish").unwrap();
        assert!(read_or_make(&path).unwrap_err().to_string().contains("no Ed25519 key"));
    }
}
