//! Up to where each lane of a boot is done with, on disk.
//!
//! The file is small and overwritten in place: that works on a full disk too, and costs flash one
//! block. A cursor that is torn or rubbish means that some rows are sent again, which changes nothing.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use super::disk;
use super::lanes::Lanes;

const NAME: &str = "cursor";

/// Two numbers and their checksum.
const BYTES: usize = 20;

/// A cursor on its way to the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cursor {
    pub(super) folder: PathBuf,
    pub(super) acked: Lanes<u64>,
}

impl Cursor {
    /// Writes it; durably when asked. A folder that is gone meanwhile has no need of it any more.
    ///
    /// # Errors
    /// What the disk said.
    pub(super) fn write(&self, durably: bool) -> io::Result<()> {
        disk::fault(disk::Step::Cursor)?;
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.extend(self.acked.urgent.to_le_bytes());
        bytes.extend(self.acked.routine.to_le_bytes());
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        let opened = File::options().write(true).create(true).truncate(false).open(self.folder.join(NAME));
        let mut file = match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened?,
        };
        file.write_all(&bytes)?;
        if durably { file.sync_data() } else { Ok(()) }
    }
}

/// Reads it; `None` when there is none that makes sense.
pub(super) fn read(folder: &Path) -> Option<Lanes<u64>> {
    let mut bytes = Vec::with_capacity(BYTES);
    File::open(folder.join(NAME)).ok()?.take(BYTES as u64).read_to_end(&mut bytes).ok()?;
    let (urgent, rest) = bytes.split_first_chunk::<8>()?;
    let (routine, rest) = rest.split_first_chunk::<8>()?;
    let sum = rest.first_chunk::<4>()?;
    (crc32c::crc32c(bytes.get(..16)?) == u32::from_le_bytes(*sum))
        .then(|| Lanes { urgent: u64::from_le_bytes(*urgent), routine: u64::from_le_bytes(*routine) })
}
