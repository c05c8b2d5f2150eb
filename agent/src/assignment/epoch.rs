//! The highest epoch under which anything was obeyed, kept on disk.
//!
//! Of several coordinators one holds the lease, under an epoch that rises each time it changes hands and
//! with each restore of the database. One that was stopped for a while and goes on believes that it still
//! holds the lease; an agent that has heard its successor knows better.

use std::path::{Path, PathBuf};

use crate::spool::disk::{read_checked, write_checked};

/// Name of the file in the state folder.
const FILE: &str = "epoch";

/// Bytes of an epoch in the file; behind them lies its proof.
const EPOCH_BYTES: usize = 8;

/// The highest epoch obeyed.
#[derive(Debug)]
pub struct Epoch {
    path: PathBuf,
    highest: u64,
    /// The coordinator's signature of it; empty: there was none.
    proof: Vec<u8>,
}

/// Forgets what an earlier identity was told: a new one may be of another coordinator, whose epochs count from lower on.
pub fn forget(state: &Path) {
    match std::fs::remove_file(state.join(FILE)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            tracing::warn!(file = %state.join(FILE).display(), %error, "the epoch of an earlier identity cannot be removed; remove it, or orders of a lower one are not obeyed");
        }
        Ok(()) | Err(_) => {}
    }
}

impl Epoch {
    /// What the state folder holds. A file that cannot be read is left out with a warning: then the next
    /// order counts as the first.
    #[must_use]
    pub fn open(state: &Path) -> Self {
        let path = state.join(FILE);
        let read = read_checked(&path).map_err(|error| error.to_string()).and_then(|bytes| match bytes {
            None => Ok((0, Vec::new())),
            Some(bytes) => bytes
                .split_first_chunk::<EPOCH_BYTES>()
                .map(|(epoch, proof)| (u64::from_be_bytes(*epoch), proof.to_vec()))
                .ok_or_else(|| "it has not 8 bytes".to_owned()),
        });
        let (highest, proof) = read.unwrap_or_else(|error| {
            tracing::warn!(file = %path.display(), %error, "the highest epoch obeyed cannot be read; the next order counts as the first");
            (0, Vec::new())
        });
        Self { path, highest, proof }
    }

    /// The highest epoch obeyed; 0: none.
    #[must_use]
    pub fn highest(&self) -> u64 {
        self.highest
    }

    /// The proof that the coordinator told it; empty: there is none.
    #[must_use]
    pub fn proof(&self) -> &[u8] {
        &self.proof
    }

    /// Whether an order of this epoch is obeyed. A higher one is on the disk before it is, with what proves it (empty:
    /// nothing does).
    pub fn admits(&mut self, epoch: u64, proof: &[u8]) -> bool {
        let proven_now = epoch == self.highest && self.proof.is_empty() && !proof.is_empty();
        if epoch > self.highest || proven_now {
            self.highest = epoch;
            self.proof = proof.to_vec();
            if let Err(error) = write_checked(&self.path, &[&epoch.to_be_bytes(), proof].concat()) {
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
        assert_eq!([2, 2, 1, 3, 2].map(|one| epoch.admits(one, &[])), [true, true, false, true, false]);
        let mut again = Epoch::open(state.path());
        assert_eq!(again.highest(), 3);
        assert!(again.proof().is_empty() && !again.admits(2, b"two"));
        assert!(again.admits(3, b"three") && again.admits(3, b""));
        assert_eq!(Epoch::open(state.path()).proof(), b"three", "a proof that comes later is kept");
        assert!(again.admits(1 << 32, b""));
        assert!(Epoch::open(state.path()).proof().is_empty(), "that of a lower epoch proves nothing of this one");
        std::fs::write(state.path().join(FILE), "rubbish").unwrap();
        assert_eq!(Epoch::open(state.path()).highest(), 0);
        // As a version before wrote it.
        write_checked(&state.path().join(FILE), &7_u64.to_be_bytes()).unwrap();
        assert_eq!(Epoch::open(state.path()).highest(), 7);
        forget(state.path());
        forget(state.path());
        assert_eq!(Epoch::open(state.path()).highest(), 0);
    }
}
