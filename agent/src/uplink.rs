//! The one conversation with the coordinator: reconnects for ever, sends from the spool, deletes
//! only what was acknowledged.
//!
//! [`identity`] is who we are, [`connector`] the mutual TLS below, [`session`] one stream from its
//! first message to its end; [`wire`] and [`orders`] translate. A stream counts as connected only
//! after the coordinator's first message: TLS 1.3 lets a client with a revoked certificate finish
//! its handshake, and learn of the refusal only when it reads.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use crate::assignment::kept::Kept;
use crate::clock::{now, since};
use crate::entropy;
use crate::pins::Report;
use crate::recorder::Recorder;
use crate::spool::BootId;
use crate::tasks::Task;
use connector::LastGood;
use identity::Identity;
use session::Ended;

pub mod connector;
pub mod date;
pub mod identity;
pub mod orders;
pub mod session;
pub mod wire;

/// Reconnecting waits a random time below a limit that starts here and doubles ("full jitter"), so
/// that a fleet does not return as one.
const BACKOFF_MIN: Duration = Duration::from_millis(200);

/// The limit grows no further.
const BACKOFF_MAX: Duration = Duration::from_secs(10);

/// A stream that held this long starts the backing off anew.
const STABLE_AFTER: Duration = Duration::from_secs(5);

/// A session that was told to stop is left after this, farewell or not.
const STOP_MAX: Duration = Duration::from_secs(2);

/// The way to the coordinator.
#[derive(Debug)]
pub struct Uplink {
    /// `HOST:PORT`.
    pub coordinator: String,
    /// Where it was found the last time.
    pub last_good: LastGood,
    /// Who we are.
    pub identity: Identity,
    /// Who numbered what is measured now.
    pub boot: BootId,
    /// The spool.
    pub recorder: Recorder,
    /// The assignment in force.
    pub kept: Arc<Kept>,
    /// Tasks go here.
    pub tasks: mpsc::Sender<Task>,
    /// What became of changes comes from here.
    pub reports: mpsc::Receiver<Report>,
}

/// The coordinator does not accept this identity. Trying again would not help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the coordinator refused this agent's identity: {0}; issue a new one with `parallax vantage issue NAME --out DIR` and give it with --identity"
)]
pub struct IdentityRefused(pub String);

impl Uplink {
    /// Keeps a stream to the coordinator until `shutdown` becomes true.
    ///
    /// # Errors
    /// When the coordinator refuses the identity.
    pub async fn run(mut self, mut shutdown: watch::Receiver<bool>) -> Result<(), IdentityRefused> {
        let mut failures: u32 = 0;
        loop {
            let begun = now();
            let ended = tokio::select! {
                ended = self.session(shutdown.clone()) => ended,
                // A session that is still connecting does not look; stopping takes no longer for it.
                () = stopped_and_waited(&mut shutdown) => Ended::ShutDown,
            };
            self.recorder.spool().rewind();
            match ended {
                Ended::ShutDown => return Ok(()),
                Ended::IdentityRefused(why) => return Err(IdentityRefused(why)),
                Ended::Lost { why, connected } => {
                    if connected && since(begun) >= STABLE_AFTER {
                        failures = 0;
                    }
                    failures = failures.saturating_add(1);
                    if connected || failures.is_power_of_two() {
                        tracing::warn!(coordinator = %self.coordinator, failures, %why, "no connection to the coordinator; measuring goes on");
                    }
                }
            }
            let limit =
                BACKOFF_MIN.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1).min(16))).min(BACKOFF_MAX);
            tokio::select! {
                () = tokio::time::sleep(entropy::below(limit)) => {}
                () = told_to_stop(&mut shutdown) => return Ok(()),
            }
        }
    }
}

/// Resolves when the agent shall stop.
pub async fn told_to_stop(shutdown: &mut watch::Receiver<bool>) {
    // A sender that is gone means the same.
    let _ = shutdown.wait_for(|stop| *stop).await;
}

async fn stopped_and_waited(shutdown: &mut watch::Receiver<bool>) {
    told_to_stop(shutdown).await;
    tokio::time::sleep(STOP_MAX).await;
}

/// An error with everything beneath it, in one line.
#[must_use]
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests;
