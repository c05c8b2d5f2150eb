//! The disk: small files that are written whole (a checksum before the bytes, a new file renamed over
//! the old), and the few steps of the spool that a test lets fail.

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

/// Appends bytes.
///
/// # Errors
/// What the disk said; part of the bytes may be there.
pub(super) fn append(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    if let Err(error) = fault(Step::Append) {
        // A disk that fills up takes a part.
        file.write_all(bytes.get(..bytes.len() / 2).unwrap_or_default())?;
        return Err(error);
    }
    file.write_all(bytes)
}

/// Deletes a file; one that cannot be deleted is named, and found again at the next start.
pub(super) fn remove_file(path: &Path) {
    let removed = fault(Step::Remove).and_then(|()| std::fs::remove_file(path));
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(file = %path.display(), %error, "cannot delete a file of the spool that is done with");
        }
        Ok(()) | Err(_) => {}
    }
}

/// Steps that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Making a segment file.
    Create,
    /// Writing to one.
    Append,
    /// Making one durable.
    Sync,
    /// Reading one.
    Read,
    /// Writing a cursor.
    Cursor,
    /// Deleting a file.
    Remove,
}

/// Fails where a test wants it to.
///
/// # Errors
/// Only in tests.
#[cfg(not(test))]
#[inline]
pub(super) fn fault(_: Step) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
pub(super) use faults::fault;

#[cfg(test)]
pub(super) mod faults {
    use std::cell::RefCell;
    use std::io;

    use super::Step;

    type Fault = Box<dyn FnMut(Step) -> Option<i32>>;

    thread_local! {
        static FAULT: RefCell<Option<Fault>> = const { RefCell::new(None) };
    }

    /// From now on, on this thread, a step fails with the error number this returns.
    pub(in super::super) fn set(fault: impl FnMut(Step) -> Option<i32> + 'static) {
        FAULT.with(|cell| *cell.borrow_mut() = Some(Box::new(fault)));
    }

    /// The disk works again.
    pub(in super::super) fn clear() {
        FAULT.with(|cell| *cell.borrow_mut() = None);
    }

    pub(in super::super) fn fault(step: Step) -> io::Result<()> {
        let number = FAULT.with(|cell| cell.borrow_mut().as_mut().and_then(|fault| fault(step)));
        number.map_or(Ok(()), |number| Err(io::Error::from_raw_os_error(number)))
    }
}
