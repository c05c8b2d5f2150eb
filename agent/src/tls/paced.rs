//! A handshake's two costly steps, few at a time.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::yield_now;

/// So many steps between two looks at sockets and timers. A step is the making of key shares for the hello, or the
/// check of what the peer sent: 0.1 to 1 ms of the agent's one thread each, and every endpoint may be due for one at the same
/// moment.
const STEPS_AT_ONCE: usize = 4;

/// Shared by all handshakes with targets.
#[derive(Debug, Clone)]
pub(super) struct Pace(Arc<Semaphore>);

impl Default for Pace {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(STEPS_AT_ONCE)))
    }
}

impl Pace {
    /// Ends when the next step may be taken at once.
    pub(super) async fn turn(&self) {
        // It is never closed; if it were, steps would be taken as they come.
        let _place = self.0.acquire().await;
        yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::UnixStream;
    use tokio::task::JoinSet;

    use super::*;

    #[tokio::test]
    async fn what_came_over_a_socket_goes_on_after_a_few_steps_of_many() {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let (pace, taken) = (Pace::default(), Arc::new(AtomicUsize::new(0)));
        let mut steps = JoinSet::new();
        let seen = Arc::clone(&taken);
        let reads = tokio::spawn(async move {
            theirs.read_u8().await.unwrap();
            seen.load(Ordering::Relaxed)
        });
        yield_now().await;
        for _ in 0..50 {
            let (pace, taken) = (pace.clone(), Arc::clone(&taken));
            steps.spawn(async move {
                pace.turn().await;
                taken.fetch_add(1, Ordering::Relaxed);
            });
        }
        ours.write_u8(1).await.unwrap();
        assert!(reads.await.unwrap() <= 2 * STEPS_AT_ONCE);
        steps.join_all().await;
        assert_eq!(taken.load(Ordering::Relaxed), 50);
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_that_is_given_up_leaves_its_place() {
        let pace = Pace::default();
        for _ in 0..2 * STEPS_AT_ONCE {
            drop(tokio::time::timeout(Duration::ZERO, pace.turn()).await);
        }
        assert_eq!(pace.0.available_permits(), STEPS_AT_ONCE);
    }
}
