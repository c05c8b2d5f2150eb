//! The highest epoch under which anything was obeyed, kept on disk.
//!
//! Of several coordinators one holds the lease, under an epoch that rises each time it changes hands and
//! with each restore of the database. One that was stopped for a while and goes on believes that it still
//! holds the lease; an agent that has heard its successor knows better.

use std::path::{Path, PathBuf};

use crate::spool::disk::{read_checked, write_checked};

/// Name of the file in the state folder.
const FILE: &str = "epoch";

/// Bytes of an epoch in the file; behind them lies its proof, and behind that [`BOUND`] where it applies.
const EPOCH_BYTES: usize = 8;

/// Bytes of a proof (Ed25519, RFC 8032, 5.1.6).
const PROOF_BYTES: usize = 64;

/// At the end of the file: orders of this epoch are signed for one stream.
const BOUND: u8 = 1;

/// The highest epoch obeyed.
#[derive(Debug)]
pub struct Epoch {
    path: PathBuf,
    highest: u64,
    /// The coordinator's signature of it; empty: there was none.
    proof: Vec<u8>,
    /// An order of it was signed for one stream.
    bound: bool,
}

/// An order that would be obeyed, as far as its epoch matters.
#[derive(Debug, Clone, Copy)]
pub struct Under<'a> {
    /// Its epoch.
    pub epoch: u64,
    /// What proves that epoch; empty: nothing does.
    pub proof: &'a [u8],
    /// It was signed for one stream, and cannot be used on another.
    pub bound: bool,
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
            None => Ok((0, Vec::new(), false)),
            Some(bytes) => parse(&bytes).ok_or_else(|| "it holds no epoch".to_owned()),
        });
        let (highest, proof, bound) = read.unwrap_or_else(|error| {
            tracing::warn!(file = %path.display(), %error, "the highest epoch obeyed cannot be read; the next order counts as the first");
            (0, Vec::new(), false)
        });
        Self { path, highest, proof, bound }
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

    /// Whether orders of this epoch were signed for one stream: one that is not is of before, sent again. A coordinator
    /// that is older orders under a later epoch, for it was started later.
    #[must_use]
    pub fn is_bound(&self, epoch: u64) -> bool {
        self.bound && epoch == self.highest
    }

    /// Whether an order of this epoch is obeyed. What is new about it is on the disk before it is.
    pub fn admits(&mut self, under: Under<'_>) -> bool {
        let Under { epoch, proof, bound } = under;
        let higher = epoch > self.highest;
        let proven_now = epoch == self.highest && self.proof.is_empty() && !proof.is_empty();
        let bound_now = epoch == self.highest && bound && !self.bound;
        if higher || proven_now || bound_now {
            self.highest = epoch;
            self.bound = bound || (self.bound && !higher);
            if higher || proven_now {
                self.proof = proof.to_vec();
            }
            let mark: &[u8] = if self.bound { &[BOUND] } else { &[] };
            if let Err(error) = write_checked(&self.path, &[&epoch.to_be_bytes(), self.proof.as_slice(), mark].concat())
            {
                tracing::warn!(file = %self.path.display(), %error, epoch, "the epoch is not kept on disk; after a restart an older one would be obeyed");
            }
        }
        epoch == self.highest
    }
}

/// The epoch, its proof, and whether its orders are signed for one stream.
fn parse(bytes: &[u8]) -> Option<(u64, Vec<u8>, bool)> {
    let (epoch, rest) = bytes.split_first_chunk::<EPOCH_BYTES>()?;
    let (proof, bound) = match rest.split_last() {
        Some((&BOUND, proof)) if proof.is_empty() || proof.len() == PROOF_BYTES => (proof, true),
        Some(_) | None => (rest, false),
    };
    Some((u64::from_be_bytes(*epoch), proof.to_vec(), bound))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lower_epoch_is_not_admitted_after_a_restart_either() {
        let state = tempfile::tempdir().unwrap();
        let under = |epoch, proof| Under { epoch, proof, bound: false };
        let mut epoch = Epoch::open(state.path());
        assert_eq!([2, 2, 1, 3, 2].map(|one| epoch.admits(under(one, b""))), [true, true, false, true, false]);
        let mut again = Epoch::open(state.path());
        assert_eq!(again.highest(), 3);
        let (two, three) = (&[2; PROOF_BYTES], &[3; PROOF_BYTES]);
        assert!(again.proof().is_empty() && !again.admits(under(2, two)));
        assert!(again.admits(under(3, three)) && again.admits(under(3, b"")));
        assert_eq!(Epoch::open(state.path()).proof(), three, "a proof that comes later is kept");
        assert!(again.admits(under(1 << 32, b"")));
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

    #[test]
    fn an_epoch_whose_orders_are_for_one_stream_stays_so_and_the_next_begins_anew() {
        let state = tempfile::tempdir().unwrap();
        let again = || Epoch::open(state.path());
        // A proof may end as the mark does.
        for (epoch, proof) in [(1, &[][..]), (2, &[BOUND; PROOF_BYTES][..])] {
            let under = |bound, proof| Under { epoch, proof, bound };
            assert!(again().admits(under(false, proof)));
            assert!(!again().is_bound(epoch) && again().proof() == proof);
            assert!(again().admits(under(true, proof)));
            assert!(again().admits(under(false, b"")), "what is known of it stays");
            assert!(again().is_bound(epoch) && again().proof() == proof);
            assert!(!again().is_bound(epoch + 1));
        }
    }
}
