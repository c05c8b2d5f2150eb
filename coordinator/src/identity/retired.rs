//! `STATE/ca/retired.txt`: fingerprints of what is trusted no more, authorities and signers. A folder that is copied to
//! another coordinator carries it along, which a file that is missing would not.

use std::fs;
use std::path::Path;

use super::files::{self, cannot};
use crate::error::Failure;

/// Name of the file.
pub const FILE: &str = "retired.txt";

/// The fingerprints.
///
/// # Errors
/// When the file is there and cannot be read.
pub fn retired(folder: &Path) -> Result<Vec<String>, Failure> {
    let list = folder.join(FILE);
    if !list.exists() {
        return Ok(Vec::new());
    }
    let text = files::read(&list)?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(lines.map(str::to_owned).collect())
}

/// Adds one, and has it on disk: what it names is destroyed next.
///
/// # Errors
/// When it cannot be written.
pub fn add(folder: &Path, fingerprint: &str) -> Result<(), Failure> {
    let list = folder.join(FILE);
    let before = if list.exists() {
        files::read(&list)?
    } else {
        "# Authorities and signers that are trusted no more.\n".to_owned()
    };
    let new = folder.join(format!("{FILE}.new.{}", std::process::id()));
    if new.exists() {
        fs::remove_file(&new).map_err(|error| cannot("remove", &new, error))?;
    }
    files::write_new(&new, &format!("{before}{fingerprint}\n"), 0o644)?;
    fs::rename(&new, &list)
        .and_then(|()| fs::File::open(folder)?.sync_all())
        .map_err(|error| cannot("write", &list, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_read_and_words_for_people_are_not() {
        let folder = tempfile::tempdir().unwrap();
        assert!(retired(folder.path()).unwrap().is_empty());
        for one in ["aa", "bb"] {
            add(folder.path(), one).unwrap();
        }
        assert_eq!(retired(folder.path()).unwrap(), ["aa", "bb"]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    }
}
