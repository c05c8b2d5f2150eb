//! What all streams together may hold in memory of observations that are not stored yet.
//!
//! A stream reads on while its batches wait for the database, because the agent's signs of life come between them. What
//! one stream may hold is bounded by its agent; thousands of them after an outage are not. So every batch takes its share
//! of one budget before it is kept. When that is used up a stream waits, and is not read meanwhile; when even that takes
//! too long, or too many wait already, the stream is ended with a word on when to come back. Nothing is lost by it: what
//! was not acknowledged is in the agent's spool.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of batches, as they came encoded, that may be in hand at once. Decoded they take eight to twelve times that.
const IN_HAND_BYTES_MAX: usize = 6 << 20;

/// Streams that may wait for room, each with one batch outside of the budget.
const WAITING_MAX: usize = 256;

/// How long a stream waits for room: less than an agent waits for a sign of life.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// After which a stream that was ended may come back; agents draw their own moment around it.
const COME_BACK_AFTER: Duration = Duration::from_secs(5);

/// The budget of a running coordinator.
#[derive(Debug, Clone)]
pub struct InHand {
    bytes: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
}

/// A batch's share; given back when dropped.
#[derive(Debug)]
pub struct Share(#[expect(dead_code, reason = "held for its drop")] OwnedSemaphorePermit);

/// There is no room, and when to ask again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full {
    /// After this long.
    pub come_back_after: Duration,
}

impl Default for InHand {
    fn default() -> Self {
        Self::new(IN_HAND_BYTES_MAX)
    }
}

impl InHand {
    /// A budget of so many bytes.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self { bytes: Arc::new(Semaphore::new(bytes)), waiting: Arc::default() }
    }

    /// Takes a share for a message of so many bytes, if there is room now.
    #[must_use]
    pub fn take(&self, bytes: usize) -> Option<Share> {
        Arc::clone(&self.bytes).try_acquire_many_owned(units(bytes)).ok().map(Share)
    }

    /// The same, waiting for it.
    ///
    /// # Errors
    /// When there is none in time, or too many wait already.
    pub async fn wait_for(&self, bytes: usize) -> Result<Share, Full> {
        let full = Full { come_back_after: COME_BACK_AFTER };
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING_MAX {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(full);
        }
        let waiting = Waiting(&self.waiting);
        let share = tokio::time::timeout(WAIT_MAX, Arc::clone(&self.bytes).acquire_many_owned(units(bytes))).await;
        drop(waiting);
        match share {
            Ok(Ok(share)) => Ok(Share(share)),
            Ok(Err(_)) | Err(_) => Err(full),
        }
    }
}

/// What a message takes: one that is larger than all of the budget takes all of it.
fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.clamp(1, IN_HAND_BYTES_MAX)).unwrap_or(u32::MAX)
}

/// Counts one that waits, also when its future is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_has_no_room_waits_and_is_then_sent_away() {
        let in_hand = InHand::new(100);
        let first = in_hand.take(60).unwrap();
        assert!(in_hand.take(60).is_none());
        assert!(in_hand.wait_for(60).await.is_err());
        let waiting = in_hand.clone();
        let second = tokio::spawn(async move { waiting.wait_for(60).await.is_ok() });
        tokio::task::yield_now().await;
        drop(first);
        assert!(second.await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_wait() {
        let in_hand = InHand::new(1);
        let _all = in_hand.take(1).unwrap();
        let waiting: Vec<_> = (0..WAITING_MAX)
            .map(|_| {
                let in_hand = in_hand.clone();
                tokio::spawn(async move { in_hand.wait_for(1).await.is_err() })
            })
            .collect();
        while in_hand.waiting.load(Ordering::Relaxed) < WAITING_MAX {
            tokio::task::yield_now().await;
        }
        let at_once = tokio::time::timeout(Duration::from_millis(1), in_hand.wait_for(1)).await;
        assert!(at_once.expect("one too many is sent away at once").is_err());
        for one in waiting {
            assert!(one.await.unwrap());
        }
        assert_eq!(in_hand.waiting.load(Ordering::Relaxed), 0);
    }
}
