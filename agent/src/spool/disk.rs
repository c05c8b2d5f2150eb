//! Small files that are written whole: a checksum before the bytes, a new file renamed over the old.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::Path;

/// Largest such file, in bytes.
const BYTES_MAX: u64 = 4 << 20;

/// Writes a file whole and durably.
///
/// # Errors
/// What the disk said; the old file is then still whole.
pub fn write_checked(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let fresh = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&fresh)?;
    file.write_all(&crc32c::crc32c(bytes).to_le_bytes())?;
    file.write_all(bytes)?;
    file.sync_data()?;
    std::fs::rename(&fresh, path)?;
    match path.parent() {
        Some(folder) => sync_folder(folder),
        None => Ok(()),
    }
}

/// Reads such a file; `None` when there is none.
///
/// # Errors
/// What the disk said, or that the checksum does not fit.
pub fn read_checked(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut all = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut all)?;
    match all.split_first_chunk::<4>() {
        Some((sum, bytes)) if u32::from_le_bytes(*sum) == crc32c::crc32c(bytes) => Ok(Some(bytes.to_vec())),
        Some(_) | None => Err(io::Error::new(io::ErrorKind::InvalidData, "its checksum does not fit")),
    }
}

/// Makes creations and renames in a folder durable.
///
/// # Errors
/// What the disk said.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
