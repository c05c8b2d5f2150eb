//! The assignment on disk: written whole beside the old one and renamed over it, with a checksum.

use std::path::PathBuf;
use std::sync::Arc;

use parallax_proto::v1;
use prost::Message as _;
use tokio::sync::watch;

use super::{Assignment, Invalid};
use crate::spool::disk::{read_checked, write_checked};

/// Name of the file in the state folder.
const FILE: &str = "assignment";

/// The assignment in force, and its copy on disk.
#[derive(Debug)]
pub struct Kept {
    path: PathBuf,
    current: watch::Sender<Option<Arc<Assignment>>>,
}

/// What became of a new assignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It is in force.
    Applied,
    /// It is not newer than the one in force, or the same.
    Ignored,
}

impl Kept {
    /// Opens what the last run kept. A copy that cannot be read is left out with a warning: the
    /// coordinator sends the assignment again.
    #[must_use]
    pub fn open(state: &std::path::Path) -> Self {
        let path = state.join(FILE);
        let kept = match read_checked(&path) {
            Ok(None) => None,
            Ok(Some(bytes)) => v1::Assignment::decode(bytes.as_slice())
                .map_err(|error| error.to_string())
                .and_then(|wire| Assignment::try_from(&wire).map_err(|error| error.to_string()))
                .map_err(|error| tracing::warn!(file = %path.display(), %error, "the kept assignment is left out"))
                .ok(),
            Err(error) => {
                tracing::warn!(file = %path.display(), %error, "the kept assignment cannot be read and is left out");
                None
            }
        };
        Self { path, current: watch::Sender::new(kept.map(Arc::new)) }
    }

    /// Follows the assignment in force.
    #[must_use]
    pub fn follow(&self) -> watch::Receiver<Option<Arc<Assignment>>> {
        self.current.subscribe()
    }

    /// Version in force; 0: none.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.current.borrow().as_ref().map_or(0, |assignment| assignment.version)
    }

    /// Takes a new assignment unless a newer one is in force. It is in force even when the disk
    /// does not take it; then it is lost with a restart and sent again.
    ///
    /// # Errors
    /// When it is not valid; the old one stays in force.
    pub fn take(&self, wire: &v1::Assignment) -> Result<Taken, Invalid> {
        let assignment = Assignment::try_from(wire)?;
        let ignored = self.current.borrow().as_ref().is_some_and(|held| {
            assignment.version < held.version || (assignment.version == held.version && assignment == **held)
        });
        if ignored {
            let held = self.version();
            if assignment.version < held {
                tracing::warn!(
                    given = assignment.version,
                    held,
                    "an assignment older than the one in force is ignored; was the coordinator's database restored?"
                );
            }
            return Ok(Taken::Ignored);
        }
        if let Err(error) = write_checked(&self.path, &wire.encode_to_vec()) {
            tracing::warn!(file = %self.path.display(), %error, "the assignment is in force but not kept on disk");
        }
        self.current.send_replace(Some(Arc::new(assignment)));
        Ok(Taken::Applied)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assignment::wire::tests::wire;

    #[test]
    fn it_survives_a_restart_and_a_lower_version_is_ignored() {
        let state = tempfile::tempdir().unwrap();
        let kept = Kept::open(state.path());
        assert_eq!(kept.version(), 0);
        assert_eq!(kept.take(&wire()), Ok(Taken::Applied));
        assert_eq!(kept.take(&wire()), Ok(Taken::Ignored), "the same again wakes nobody");

        let kept = Kept::open(state.path());
        assert_eq!(kept.version(), 3);
        assert_eq!(kept.take(&v1::Assignment { version: 2, ..wire() }), Ok(Taken::Ignored));
        assert_eq!(kept.version(), 3);
        assert_eq!(kept.take(&v1::Assignment { version: 4, ..wire() }), Ok(Taken::Applied));
        assert_eq!(Kept::open(state.path()).version(), 4);
    }

    #[test]
    fn an_invalid_one_leaves_the_old_in_force_and_a_broken_copy_is_left_out() {
        let state = tempfile::tempdir().unwrap();
        let kept = Kept::open(state.path());
        kept.take(&wire()).unwrap();
        assert!(kept.take(&v1::Assignment { version: 9, schedule: None, ..wire() }).is_err());
        assert_eq!(kept.version(), 3);

        let path = state.path().join(FILE);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[10] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(Kept::open(state.path()).version(), 0);
    }
}
