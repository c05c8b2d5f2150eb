//! The highest epoch under which anything was obeyed, kept on disk.
//!
//! Of several coordinators one holds the lease, under an epoch that rises each time it changes hands and
//! with each restore of the database. One that was stopped for a while and goes on believes that it still
//! holds the lease; an agent that has heard its successor knows better.

use std::path::{Path, PathBuf};

use crate::spool::disk::{read_checked, write_checked};

/// Name of the file in the state folder.
const FILE: &str = "epoch";

/// The highest epoch obeyed.
#[derive(Debug)]
pub struct Epoch {
    path: PathBuf,
    highest: u64,
}

impl Epoch {
    /// What the state folder holds. A file that cannot be read is left out with a warning: then the next
    /// order counts as the first.
    #[must_use]
    pub fn open(state: &Path) -> Self {
        let path = state.join(FILE);
        let read = read_checked(&path).map_err(|error| error.to_string()).and_then(|bytes| match bytes {
            None => Ok(0),
            Some(bytes) => bytes.try_into().map(u64::from_be_bytes).map_err(|_| "it has not 8 bytes".to_owned()),
        });
        let highest = read.unwrap_or_else(|error| {
            tracing::warn!(file = %path.display(), %error, "the highest epoch obeyed cannot be read; the next order counts as the first");
            0
        });
        Self { path, highest }
    }

    /// The highest epoch obeyed; 0: none.
    #[must_use]
    pub fn highest(&self) -> u64 {
        self.highest
    }

    /// Whether an order of this epoch is obeyed. A higher one is on the disk before it is.
    pub fn admits(&mut self, epoch: u64) -> bool {
        if epoch > self.highest {
            self.highest = epoch;
            if let Err(error) = write_checked(&self.path, &epoch.to_be_bytes()) {
                tracing::warn!(file = %self.path.display(), %error, epoch, "the epoch is not kept on disk; after a restart an older one would be obeyed");
            }
        }
        epoch == self.highest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lower_epoch_is_not_admitted_after_a_restart_either() {
        let state = tempfile::tempdir().unwrap();
        let mut epoch = Epoch::open(state.path());
        assert_eq!([2, 2, 1, 3, 2].map(|one| epoch.admits(one)), [true, true, false, true, false]);
        let mut again = Epoch::open(state.path());
        assert_eq!(again.highest(), 3);
        assert!(!again.admits(2) && again.admits(1 << 32));
        std::fs::write(state.path().join(FILE), "rubbish").unwrap();
        assert_eq!(Epoch::open(state.path()).highest(), 0);
    }
}
