//! Files that hold keys and certificates: read with a look at their mode, written whole or not at all.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use secrecy::SecretString;

use crate::error::{Exit, Failure};

/// Longest file that is read, in bytes: a bundle of eight certificates with their chains has about 32 KiB.
const FILE_BYTES_MAX: u64 = 256 * 1024;

/// Mode bits of group and others.
pub const GROUP_AND_OTHERS: u32 = 0o077;

/// Mode bits of others: a key that a service manager hands over may be its group's.
pub const OTHERS: u32 = 0o007;

/// Reads a text.
///
/// # Errors
/// When it cannot be read, or is longer than any certificate file.
pub fn read(path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let opened = fs::File::open(path).map_err(|error| cannot("read", path, error))?;
    let read = opened.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    if u64::try_from(read.map_err(|error| cannot("read", path, error))?).is_ok_and(|bytes| bytes > FILE_BYTES_MAX) {
        return Err(Failure::new(Exit::Failed, format!("{} is no file of keys or certificates", path.display()))
            .why(format!("it has more than {FILE_BYTES_MAX} bytes")));
    }
    Ok(text)
}

/// Reads a private key's file. `forbidden`: mode bits that must not be set.
///
/// # Errors
/// When it cannot be read, or somebody else may read it.
pub fn read_secret(path: &Path, forbidden: u32) -> Result<SecretString, Failure> {
    let mode = fs::metadata(path).map_err(|error| cannot("read", path, error))?.permissions().mode() & 0o777;
    if mode & forbidden != 0 {
        return Err(Failure::new(Exit::Refused, format!("the private key {} is readable by others", path.display()))
            .why(format!("its mode is {mode:04o}; whoever reads it can speak in this coordinator's name"))
            .fix(format!(
                "chmod {:04o} {}  and, if somebody may have read it, replace it",
                mode & !forbidden,
                path.display()
            )));
    }
    read(path).map(SecretString::from)
}

/// Writes a new file and has it on disk.
///
/// # Errors
/// When it is there already, or cannot be written.
pub fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)
        .map_err(|error| cannot("make", path, error))?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(|error| cannot("write", path, error))
}

/// Writes files into a new folder (mode 0700) as one: a process that is killed half-way leaves nothing
/// under the folder's name. Returns false when another process made the folder meanwhile.
///
/// # Errors
/// When something cannot be written.
pub fn write_folder(folder: &Path, files: &[(&str, &str, u32)]) -> Result<bool, Failure> {
    let parent = folder.parent().unwrap_or(folder);
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let new = parent.join(format!("{name}.new.{}", std::process::id()));
    if new.exists() {
        fs::remove_dir_all(&new).map_err(|error| cannot("remove", &new, error))?;
    }
    fs::create_dir_all(&new).map_err(|error| cannot("make", &new, error))?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o700))
        .map_err(|error| cannot("set the mode of", &new, error))?;
    for (file, text, mode) in files {
        write_new(&new.join(file), text, *mode)?;
    }
    match fs::rename(&new, folder).and_then(|()| fs::File::open(parent)?.sync_all()) {
        Err(_) if folder.exists() => {
            fs::remove_dir_all(&new).map_err(|error| cannot("remove", &new, error))?;
            Ok(false)
        }
        renamed => renamed.map(|()| true).map_err(|error| cannot("make", folder, error)),
    }
}

/// Makes a folder for keys (mode 0700), if it is not there.
///
/// # Errors
/// When it cannot be made.
pub fn make_private_folder(folder: &Path) -> Result<(), Failure> {
    if folder.exists() {
        return Ok(());
    }
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| cannot("make", folder, error))
}

/// Makes a file that several processes may make at once: the first one's stays.
///
/// # Errors
/// When it cannot be written.
pub fn write_first(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    let new = path.with_extension(format!("new.{}", std::process::id()));
    if new.exists() {
        fs::remove_file(&new).map_err(|error| cannot("remove", &new, error))?;
    }
    write_new(&new, text, mode)?;
    // A link, unlike a rename, never replaces what is there.
    let linked = fs::hard_link(&new, path);
    fs::remove_file(&new).map_err(|error| cannot("remove", &new, error))?;
    match linked {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(cannot("make", path, error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// A failure with a file.
#[must_use]
pub fn cannot(what: &str, path: &Path, why: std::io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("cannot {what} {}", path.display()))
        .why(why)
        .fix("look at the owner and the mode of it and of the folders above, or choose another folder")
}
