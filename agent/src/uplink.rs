//! The one conversation with the coordinator: reconnects for ever, sends from the spool, deletes
//! only what was acknowledged.
//!
//! * [`address`], [`lookup`], [`known`], [`dialling`], [`proxy`]: where it is and how to get there;
//!   [`connector`] puts them together and adds the mutual TLS of [`identity`]. [`trouble`] says why
//!   it did not come about, [`backoff`] when to try again.
//! * [`session`] opens one stream, [`stream`] is its life, [`heartbeat`] notices its death and
//!   [`reply`] reads its end. [`wire`] and [`orders`] translate.
//! * [`expiry`] and [`clones`] watch our certificate and our identity; [`status`] shows them.
//!
//! A stream counts as connected only after the coordinator's first message: TLS 1.3 lets a client
//! with a revoked certificate finish its handshake, and learn of the refusal only when it reads.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use crate::assignment::epoch::Epoch;
use crate::assignment::kept::Kept;
use crate::clock::{self, now};
use crate::entropy;
use crate::pins::Report;
use crate::recorder::Recorder;
use crate::tasks::Task;
use address::Coordinator;
use backoff::{Backoff, Pace};
use clones::Clones;
use connector::Connector;
use expiry::Expiry;
use flight::Cut;
use identity::Identity;
use renewal::Renewal;
use session::{Ended, Lost};
use status::Status;
use stream::Disobeyed;
use timing::Timing;

pub mod address;
pub mod backoff;
pub mod clones;
pub mod connector;
pub mod credentials;
pub mod dialling;
pub mod enrolment;
pub mod expiry;
pub mod flight;
pub mod glance;
pub mod heartbeat;
pub mod identity;
pub mod known;
pub mod late;
pub mod lookup;
pub mod orders;
pub mod proxy;
pub mod renewal;
pub mod reply;
pub mod session;
pub mod status;
pub mod stream;
pub mod timing;
pub mod trouble;
pub mod watched;
pub mod wire;

/// Between one coordinator that did not answer and the next of the list.
const NEXT_MAX: Duration = Duration::from_millis(500);

/// A session that was told to stop is left after this, farewell or not.
const STOP_MAX: Duration = Duration::from_secs(2);

/// While trouble with the time is waited out: how often the clock is looked at.
const STEP_LOOK_EVERY: Duration = Duration::from_secs(2);

/// A wall clock that moved against the monotonic one by so much was set, in ms.
const STEP_MS_MIN: u64 = 5_000;

/// The way to the coordinator.
#[derive(Debug)]
pub struct Uplink {
    /// Coordinators that the owner named, tried in turn and before those that the identity folder names.
    pub coordinators: Vec<Coordinator>,
    /// How they are reached.
    pub connector: Connector,
    /// Who we are.
    pub identity: Identity,
    /// The spool.
    pub recorder: Recorder,
    /// The assignment in force.
    pub kept: Arc<Kept>,
    /// The highest epoch obeyed.
    pub epoch: Epoch,
    /// What was not obeyed.
    pub disobeyed: Disobeyed,
    /// The next certificate.
    pub renewal: Renewal,
    /// Tasks go here.
    pub tasks: mpsc::Sender<Task>,
    /// What became of changes comes from here.
    pub reports: mpsc::Receiver<Report>,
    /// What there is to say about it.
    pub status: Status,
    /// Warns before the certificate ends.
    pub expiry: Expiry,
    /// How much goes into one batch.
    pub cut: Cut,
    /// How patient it is.
    pub timing: Timing,
}

/// The coordinator does not accept this identity. Trying again would not help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the coordinator refused this agent's identity: {0}; join anew with a token of `parallax token create NAME` after `parallax-agent leave`"
)]
pub struct IdentityRefused(pub String);

impl Uplink {
    /// Keeps a stream to a coordinator until `shutdown` becomes true.
    ///
    /// # Errors
    /// When the coordinator refuses the identity.
    pub async fn run(mut self, mut shutdown: watch::Receiver<bool>) -> Result<(), IdentityRefused> {
        let mut tries = Tries::new(&self.timing);
        let (mut clones, mut told) = (Clones::default(), Told::default());
        self.recorder.spool().release();
        loop {
            let coordinators = self.all();
            let Some(coordinator) = tries.of(&coordinators) else {
                told_to_stop(&mut shutdown).await;
                return Ok(());
            };
            let ended = tokio::select! {
                // Large, and only one of its kind.
                ended = Box::pin(self.session(&coordinator, shutdown.clone())) => ended,
                // A session that is still connecting does not look; stopping takes no longer for it.
                () = stopped_and_waited(&mut shutdown) => Ended::ShutDown,
            };
            {
                let mut spool = self.recorder.spool();
                spool.release();
                spool.rewind();
            }
            let mut lost = match ended {
                Ended::ShutDown => return Ok(()),
                Ended::IdentityRefused(why) => return Err(IdentityRefused(why)),
                Ended::Renewed => continue,
                Ended::Lost(lost) => lost,
            };
            if lost.replaced && clones.replaced() {
                lost.pace = Pace::Slow;
                lost.word = "identity_cloned";
                lost.why = "another machine uses this identity: each takes the other's place in turns; stop one of them and let it join as a vantage of its own (`parallax-agent leave`, `parallax token create NAME`)".to_owned();
            }
            self.status.lost(lost.word);
            let wait = tries.after(&lost, coordinators.len());
            told.tell(&coordinator, &lost, tries.failures(), wait);
            tokio::select! {
                () = waited(wait, lost.about_time) => {}
                () = told_to_stop(&mut shutdown) => return Ok(()),
            }
        }
    }

    /// All coordinators, in the order in which they are tried.
    fn all(&mut self) -> Vec<Coordinator> {
        let mut all = self.coordinators.clone();
        if let Ok(credentials) = self.identity.credentials() {
            for one in &credentials.coordinators {
                if !all.contains(one) {
                    all.push(one.clone());
                }
            }
        }
        all
    }
}

/// Whose turn it is, and how long the next one waits.
#[derive(Debug)]
struct Tries {
    turn: usize,
    /// Failures to connect since the last pause.
    in_round: usize,
    /// The most hopeful of them.
    pace: Option<Pace>,
    backoff: Backoff,
    /// Whether there was a stream since the start.
    connected: bool,
}

impl Tries {
    fn new(timing: &Timing) -> Self {
        Self { turn: 0, in_round: 0, pace: None, backoff: Backoff::new(timing), connected: false }
    }

    fn of(&self, coordinators: &[Coordinator]) -> Option<Coordinator> {
        coordinators.get(self.turn.checked_rem(coordinators.len())?).cloned()
    }

    fn failures(&self) -> u32 {
        self.backoff.failures()
    }

    /// A stream that held is sought where it was; else it is the next one's turn. Only when all of
    /// the list failed there is a real pause.
    fn after(&mut self, lost: &Lost, coordinators: usize) -> Duration {
        if lost.held < backoff::STABLE_AFTER {
            self.turn = self.turn.wrapping_add(1);
        }
        if lost.connected {
            self.connected = true;
            (self.in_round, self.pace) = (0, None);
            return self.backoff.wait(lost.pace, lost.held, entropy::below);
        }
        self.in_round += 1;
        let pace = self.pace.map_or(lost.pace, |held| held.sooner(lost.pace));
        if self.in_round < coordinators {
            self.pace = Some(pace);
            return entropy::below(NEXT_MAX);
        }
        (self.in_round, self.pace) = (0, None);
        // Who has just been started comes alone.
        let alone = pace == Pace::Spread && !self.connected;
        self.backoff.wait(if alone { Pace::Usual } else { pace }, lost.held, entropy::below)
    }
}

/// What was logged last: trouble that stays the same is told ever more seldom.
#[derive(Debug, Default)]
struct Told {
    word: &'static str,
    times: u32,
}

impl Told {
    fn tell(&mut self, coordinator: &Coordinator, lost: &Lost, failures: u32, wait: Duration) {
        if self.word != lost.word || lost.connected {
            (self.word, self.times) = (lost.word, 0);
        }
        self.times = self.times.saturating_add(1);
        if self.times.is_power_of_two() {
            tracing::warn!(
                %coordinator,
                reason = lost.word,
                failures,
                retry_in_ms = clock::millis(wait),
                why = %lost.why,
                "no connection to the coordinator; measuring goes on"
            );
        }
    }
}

/// Waits. When the trouble was about the time, a clock that is set meanwhile ends it early.
async fn waited(wait: Duration, about_time: bool) {
    let until = now() + wait;
    if !about_time {
        return tokio::time::sleep_until(until).await;
    }
    let apart = || clock::unix_ms().wrapping_sub(clock::boottime_ms());
    let before = apart();
    while now() < until {
        tokio::time::sleep_until(until.min(now() + STEP_LOOK_EVERY)).await;
        if apart().abs_diff(before) >= STEP_MS_MIN {
            tracing::info!("the clock was set; trying the coordinator again");
            return;
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
pub(crate) mod tests;
