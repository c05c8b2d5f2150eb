//! The assignment on disk, as it came and with its signature: written whole beside the old one and
//! renamed over it, with a checksum.
//!
//! The signature is checked again at each start: whoever can write one file of the state folder shall not
//! be able to order anything.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parallax_proto::v1::coordinator_message::Message;
use parallax_proto::v1::{self, order};
use prost::Message as _;
use tokio::sync::watch;

use super::{Assignment, Invalid, operators};
use crate::identity::signers::{self, NotObeyed, Signer};
use crate::spool::disk::{read_checked, write_checked};

/// Name of the file in the state folder.
const FILE: &str = "assignment";

/// The assignment in force, and its copy on disk.
#[derive(Debug)]
pub struct Kept {
    path: PathBuf,
    current: watch::Sender<Option<Arc<Assignment>>>,
    /// Epoch of the order it came in; 0: unsigned.
    epoch: AtomicU64,
}

/// What became of a new assignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It is in force.
    Applied,
    /// It is not newer than the one in force, or the same.
    Ignored,
}

/// Why the kept assignment is left out.
#[derive(Debug, thiserror::Error)]
enum LeftOut {
    #[error(transparent)]
    Disk(#[from] std::io::Error),
    #[error("it cannot be read; was it written by another version? ({0})")]
    Content(#[from] prost::DecodeError),
    #[error(transparent)]
    NotObeyed(#[from] NotObeyed),
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

/// Forgets the assignment of an earlier identity.
pub fn forget(state: &Path) {
    // One that stays is not obeyed: it is signed for another vantage or by another key.
    let _ = std::fs::remove_file(state.join(FILE));
}

impl Kept {
    /// Opens what the last run kept, if one of these signers signed it for this vantage (or if no signer
    /// is known). A copy that is not to be obeyed or cannot be read is left out with a warning: the
    /// coordinator sends the assignment again.
    #[must_use]
    pub fn open(state: &Path, signers: &[Signer], vantage: &str) -> Self {
        let path = state.join(FILE);
        let read = read(&path, signers, vantage).unwrap_or_else(|error| {
            tracing::warn!(file = %path.display(), %error, "the kept assignment is left out");
            None
        });
        let (kept, epoch) = read.map_or((None, 0), |(kept, epoch)| (Some(Arc::new(kept)), epoch));
        Self { path, current: watch::Sender::new(kept), epoch: AtomicU64::new(epoch) }
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

    /// Takes a new assignment unless a newer one is in force: of a later epoch, or of the same and a
    /// higher version. (After a restore of the database versions begin again lower, under a later epoch.)
    /// `sent` is the message it came in. It is in force even when the disk does not take it; then it is
    /// lost with a restart and sent again.
    ///
    /// # Errors
    /// When it is not valid; the old one stays in force.
    pub fn take(&self, wire: &v1::Assignment, epoch: u64, sent: Message) -> Result<Taken, Invalid> {
        let assignment = Assignment::try_from(wire)?;
        let held = self.current.borrow().clone();
        let held_epoch = self.epoch.load(Ordering::Relaxed);
        let mut taken = Taken::Applied;
        if let Some(held) = held {
            if (epoch, assignment.version) < (held_epoch, held.version) {
                tracing::warn!(
                    given = assignment.version,
                    held = held.version,
                    epoch,
                    "an assignment older than the one in force is ignored; was the coordinator's database restored without a new generation?"
                );
                return Ok(Taken::Ignored);
            }
            if assignment == *held {
                // The same under a later epoch wakes nobody, and is what must be on the disk.
                taken = Taken::Ignored;
                if epoch == held_epoch {
                    return Ok(taken);
                }
            }
        }
        let sent = v1::CoordinatorMessage { message: Some(sent) };
        if let Err(error) = write_checked(&self.path, &sent.encode_to_vec()) {
            tracing::warn!(file = %self.path.display(), %error, "the assignment is in force but not kept on disk");
        }
        self.epoch.store(epoch, Ordering::Relaxed);
        if taken == Taken::Applied {
            if operators::is_one(&assignment.controls) {
                tracing::warn!(
                    reason = "controls_of_one_operator",
                    version = assignment.version,
                    "all positive controls of this vantage seem to be of one operator: when that one fails, this place looks as if it had no way out; put some of others under controls: in parallax.yaml"
                );
            }
            self.current.send_replace(Some(Arc::new(assignment)));
        }
        Ok(taken)
    }
}

/// The kept assignment and its epoch; `None` when there is none.
fn read(path: &Path, signers: &[Signer], vantage: &str) -> Result<Option<(Assignment, u64)>, LeftOut> {
    let Some(bytes) = read_checked(path)? else { return Ok(None) };
    match v1::CoordinatorMessage::decode(bytes.as_slice())?.message {
        Some(Message::Assignment(wire)) if signers.is_empty() => Ok(Some((Assignment::try_from(&wire)?, 0))),
        Some(Message::Assignment(_)) => Err(NotObeyed::Unsigned.into()),
        Some(Message::Signed(signed)) => {
            let order = signers::open(&signed, signers, vantage)?;
            match order.order {
                Some(order::Order::Assignment(wire)) => Ok(Some((Assignment::try_from(&wire)?, order.epoch))),
                Some(order::Order::Task(_) | order::Order::Trust(_)) | None => Err(NotObeyed::Content.into()),
            }
        }
        Some(
            Message::Ack(_)
            | Message::Refusal(_)
            | Message::Task(_)
            | Message::Pong(_)
            | Message::Renewed(_)
            | Message::Trust(_),
        )
        | None => Err(NotObeyed::Content.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assignment::wire::tests::wire;
    use crate::identity::signers::tests::Hand;

    const HERE: &str = "branch-kazan";

    fn open(state: &Path, signers: &[Signer]) -> Kept {
        Kept::open(state, signers, HERE)
    }

    fn unsigned(kept: &Kept, wire: &v1::Assignment) -> Result<Taken, Invalid> {
        kept.take(wire, 0, Message::Assignment(wire.clone()))
    }

    fn signed(kept: &Kept, hand: &Hand, epoch: u64, version: u64) -> Taken {
        let wire = v1::Assignment { version, ..wire() };
        let sent = hand.sign(HERE, epoch, order::Order::Assignment(wire.clone()));
        kept.take(&wire, epoch, Message::Signed(sent)).unwrap()
    }

    #[test]
    fn it_survives_a_restart_and_a_lower_version_is_ignored() {
        let state = tempfile::tempdir().unwrap();
        let kept = open(state.path(), &[]);
        assert_eq!(kept.version(), 0);
        assert_eq!(unsigned(&kept, &wire()), Ok(Taken::Applied));
        assert_eq!(unsigned(&kept, &wire()), Ok(Taken::Ignored), "the same again wakes nobody");

        let kept = open(state.path(), &[]);
        assert_eq!(kept.version(), 3);
        assert_eq!(unsigned(&kept, &v1::Assignment { version: 2, ..wire() }), Ok(Taken::Ignored));
        assert_eq!(kept.version(), 3);
        assert_eq!(unsigned(&kept, &v1::Assignment { version: 4, ..wire() }), Ok(Taken::Applied));
        assert_eq!(open(state.path(), &[]).version(), 4);
    }

    #[test]
    fn of_a_later_epoch_a_lower_version_is_taken_and_of_an_earlier_one_nothing() {
        let (state, hand) = (tempfile::tempdir().unwrap(), Hand::new());
        let kept = open(state.path(), &[hand.signer()]);
        assert_eq!(signed(&kept, &hand, 5, 9), Taken::Applied);
        assert_eq!(signed(&kept, &hand, 4, 10), Taken::Ignored);
        assert_eq!(signed(&kept, &hand, 1 << 32, 2), Taken::Applied, "restored from a backup");
        let mut woken = kept.follow();
        woken.mark_unchanged();
        assert_eq!(signed(&kept, &hand, (1 << 32) + 1, 2), Taken::Ignored, "the same, of another holder of the lease");
        assert!(!woken.has_changed().unwrap());
        let again = open(state.path(), &[hand.signer()]);
        assert_eq!((again.version(), again.epoch.load(Ordering::Relaxed)), (2, (1 << 32) + 1));
    }

    #[test]
    fn what_lies_on_the_disk_is_obeyed_only_when_it_is_signed_for_us() {
        let (state, hand, other) = (tempfile::tempdir().unwrap(), Hand::new(), Hand::new());
        signed(&open(state.path(), &[hand.signer()]), &hand, 1, 3);
        assert_eq!(open(state.path(), &[hand.signer()]).version(), 3);
        assert_eq!(open(state.path(), &[other.signer()]).version(), 0);
        assert_eq!(open(state.path(), &[]).version(), 3, "nobody to check it by");
        assert_eq!(Kept::open(state.path(), &[hand.signer()], "branch-ufa").version(), 0);
        // An unsigned one that somebody put there.
        let planted = tempfile::tempdir().unwrap();
        unsigned(&open(planted.path(), &[]), &wire()).unwrap();
        assert_eq!(open(planted.path(), &[hand.signer()]).version(), 0);
    }

    #[test]
    fn an_invalid_one_leaves_the_old_in_force_and_a_broken_copy_is_left_out() {
        let state = tempfile::tempdir().unwrap();
        let kept = open(state.path(), &[]);
        unsigned(&kept, &wire()).unwrap();
        assert!(unsigned(&kept, &v1::Assignment { version: 9, schedule: None, ..wire() }).is_err());
        assert_eq!(kept.version(), 3);

        let path = state.path().join(FILE);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[10] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(open(state.path(), &[]).version(), 0);
        // As the version before this one kept it.
        write_checked(&path, &wire().encode_to_vec()).unwrap();
        assert_eq!(open(state.path(), &[]).version(), 0);
    }
}
