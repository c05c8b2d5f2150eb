//! Numbers each fact into the spool and wakes the uplink.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock;
use crate::measured::{Measured, Reason};
use crate::spool::Spool;
use crate::uplink::wire;

/// Facts are made durable together, at most this long after they were measured.
const SYNC_EVERY: Duration = Duration::from_millis(200);

/// The way into the spool.
#[derive(Debug, Clone)]
pub struct Recorder {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    spool: Mutex<Spool>,
    appended: Notify,
    /// Facts the disk did not take since the start.
    lost: AtomicU64,
}

impl Recorder {
    /// Records into this spool.
    #[must_use]
    pub fn new(spool: Spool) -> Self {
        let shared = Shared { spool: Mutex::new(spool), appended: Notify::new(), lost: AtomicU64::new(0) };
        Self { shared: Arc::new(shared) }
    }

    /// Records a fact that was measured just now. A disk that does not take it costs the fact, not
    /// the probing; the hole in the numbers tells the coordinator.
    pub fn record(&self, reason: Reason, measured: &Measured) {
        tracing::debug!(what = ?measured.what, duration_us = clock::micros(measured.duration), "measured");
        let observation = wire::observation(reason, measured);
        let appended = self.spool().append(clock::boottime_ms(), &observation);
        match appended {
            Ok(appended) => {
                if appended.dropped > 0 {
                    tracing::warn!(
                        dropped = appended.dropped,
                        "the spool is full; its oldest observations were dropped"
                    );
                }
                self.shared.appended.notify_one();
            }
            Err(error) => {
                let lost = self.shared.lost.fetch_add(1, Ordering::Relaxed).saturating_add(1);
                // Every power of two: a full disk must not fill the log as well.
                if lost.is_power_of_two() {
                    tracing::warn!(%error, lost, "the disk does not take observations; free space in the state folder");
                }
            }
        }
    }

    /// The spool itself.
    pub fn spool(&self) -> MutexGuard<'_, Spool> {
        self.shared.spool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves when something was recorded since the last time.
    pub async fn appended(&self) {
        self.shared.appended.notified().await;
    }

    /// Makes what was recorded durable, again and again.
    pub async fn keep_synced(&self) {
        loop {
            tokio::time::sleep(SYNC_EVERY).await;
            let work = self.spool().sync_work();
            let outcome = match work {
                Ok(None) => continue,
                // Flash can take long to sync; probes go on meanwhile.
                Ok(Some(work)) => tokio::task::spawn_blocking(move || work.run()).await.unwrap_or(Ok(())),
                Err(error) => Err(error),
            };
            if let Err(error) = outcome {
                tracing::warn!(%error, "the spool cannot be made durable; a power cut would lose the newest observations");
            }
        }
    }
}
