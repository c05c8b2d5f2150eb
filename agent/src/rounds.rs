//! Starts the probes: a loop for each grid. What a round of one subject consists of is in `subjects`.
//!
//! Every probe has deadlines of its own and a place among a bounded number in flight, so a hung one
//! delays nobody. What does not run is recorded, never queued: a round whose last one is not over, one
//! that found no place, those that fell into a pause of the process, questions that a limit or a server's
//! wish keeps back. So is a round that did not come to its end.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use parallax_decide::observation::{Missed, MissedReason};
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::{sleep, sleep_until, timeout};

use crate::assignment::{Assignment, Transport};
use crate::burst::Bursts;
use crate::clock::{self, Instant};
use crate::entropy;
use crate::measured::{Measured, Reason, What};
use crate::recorder::Recorder;
use crate::schedule::{Grid, Kind, Timeline};
use crate::site::Site;

use self::controls::Controls;

mod controls;
mod subjects;
mod turn;

/// Longest a round of one subject may take, whatever its deadlines say: a guard against doubled rounds
/// must not become a ban on all later ones.
const ROUND_MAX: Duration = Duration::from_secs(180);

/// How long a probe of a large round may wait for its place before it is left out.
const PLACE_WAIT_MAX: Duration = Duration::from_secs(1);

/// Everything a round needs. Shared by all loops and tasks.
#[derive(Debug)]
pub struct Rounds {
    /// The place's means.
    pub site: Site,
    recorder: Recorder,
    timeline: Timeline,
    places: Semaphore,
    /// Probes left out because there was no place for them, since this was last recorded.
    left_out: AtomicU64,
    /// Rounds that broke down.
    broken: AtomicU64,
    running: Mutex<BTreeSet<Running>>,
    bursts: Mutex<Bursts>,
    controls: Controls,
}

/// A round of one subject that has not ended: it is not started a second time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Running(Kind, String);

/// Takes the mark away when the round ends, however it ends.
struct Mark(Arc<Rounds>, Running);

impl Drop for Mark {
    fn drop(&mut self) {
        self.0.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
    }
}

impl Rounds {
    /// Rounds at this place, recorded here, on grids of this timeline, with so many probes in flight.
    #[must_use]
    pub fn new(site: Site, recorder: Recorder, timeline: Timeline, places: usize) -> Arc<Self> {
        Arc::new(Self {
            site,
            recorder,
            timeline,
            places: Semaphore::new(places),
            left_out: AtomicU64::new(0),
            broken: AtomicU64::new(0),
            running: Mutex::default(),
            bursts: Mutex::default(),
            controls: Controls::default(),
        })
    }

    /// Starts a round at each point of one kind's grid, by the assignment in force. Returns when
    /// there will be no more assignments.
    pub async fn follow(self: Arc<Self>, kind: Kind, mut assignments: watch::Receiver<Option<Arc<Assignment>>>) {
        let mut stopwatch = Stopwatch::start();
        loop {
            let assignment = assignments.borrow_and_update().clone();
            let changed = match assignment {
                None => assignments.changed().await,
                Some(assignment) => {
                    self.site.dialer.come_from(&assignment.source);
                    let next = self.timeline.next(Grid::of(kind, &assignment.schedule), clock::now());
                    tokio::select! {
                        changed = assignments.changed() => changed,
                        () = sleep_until(next) => {
                            let paused = stopwatch.lap(next);
                            self.note_pause(kind, paused, kind.every(&assignment.schedule));
                            let skipped = self.start(kind, &assignment);
                            if skipped > 0 {
                                tracing::warn!(?kind, skipped, "the last rounds of some subjects are not over; these are skipped");
                            }
                            Ok(())
                        }
                    }
                }
            };
            if changed.is_err() {
                return;
            }
        }
    }

    /// Starts one round of every subject of a kind; how many were skipped because their last one runs.
    fn start(self: &Arc<Self>, kind: Kind, assignment: &Arc<Assignment>) -> usize {
        let left_out = self.left_out.swap(0, Ordering::Relaxed);
        if left_out > 0 {
            tracing::warn!(left_out, "too many probes in flight; some were left out");
            self.missed(MissedReason::Busy, "probes".to_owned(), left_out);
        }
        let mut skipped = 0;
        match kind {
            Kind::Canaries => {
                for canary in &assignment.canaries {
                    skipped += self.spawn(kind, canary.name.as_str(), Self::canary, assignment, canary.clone());
                }
            }
            Kind::Nodes => {
                for node in &assignment.nodes {
                    skipped += self.spawn(kind, node.name.as_str(), Self::node, assignment, node.clone());
                }
            }
            Kind::Controls => {
                if !assignment.controls.is_empty() {
                    skipped += self.spawn(kind, kind.word(), Self::scheduled_controls, assignment, ());
                }
            }
            Kind::Endpoints => {
                for resolver in &assignment.resolvers {
                    match resolver.transport {
                        Transport::Live => {}
                        Transport::Plain { .. } | Transport::Tcp { .. } | Transport::Dot { .. } | Transport::Doh(_) => {
                            skipped +=
                                self.spawn(kind, resolver.name.as_str(), Self::endpoint, assignment, resolver.clone());
                        }
                    }
                }
            }
        }
        skipped
    }

    /// Starts one round of one subject; 1 when it is skipped, because the last one is not over.
    fn spawn<T, F>(
        self: &Arc<Self>,
        kind: Kind,
        name: &str,
        round: impl FnOnce(Arc<Self>, Arc<Assignment>, T) -> F,
        assignment: &Arc<Assignment>,
        subject: T,
    ) -> usize
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let running = Running(kind, name.to_owned());
        if !self.running.lock().unwrap_or_else(PoisonError::into_inner).insert(running.clone()) {
            tracing::debug!(?kind, name, "the last round is not over; this one is skipped");
            self.missed(MissedReason::Overrun, name.to_owned(), 1);
            return 1;
        }
        let delay = entropy::below(kind.every(&assignment.schedule) * assignment.schedule.jitter_permille / 1000);
        let mark = Mark(Arc::clone(self), running);
        let round = round(Arc::clone(self), Arc::clone(assignment), subject);
        tokio::spawn(async move {
            if !delay.is_zero() {
                sleep(delay).await;
            }
            mark.0.run(&mark.1, round).await;
            drop(mark);
        });
        0
    }

    /// Runs one round to its end, its limit, or its breakdown.
    async fn run(&self, running: &Running, round: impl Future<Output = ()>) {
        let Running(kind, name) = running;
        // A fault of ours in one round must not end the others.
        match AssertUnwindSafe(timeout(ROUND_MAX, round)).catch_unwind().await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => {
                tracing::warn!(?kind, name, limit_s = ROUND_MAX.as_secs(), "a round was given up; the next one runs");
                self.missed(MissedReason::GivenUp, name.clone(), 1);
            }
            Err(_) => {
                let broken = self.broken.fetch_add(1, Ordering::Relaxed).saturating_add(1);
                tracing::error!(
                    ?kind,
                    name,
                    broken,
                    "a round broke down, which is a fault of the agent; please report it"
                );
                self.missed(MissedReason::Broken, name.clone(), 1);
            }
        }
    }

    /// Records rounds that did not run.
    fn missed(&self, reason: MissedReason, what: String, count: u64) {
        let what = What::Missed(Missed { reason, count }, what);
        self.recorder.record(Reason::SCHEDULED, &Measured { what, duration: Duration::ZERO });
    }

    /// A process that was stopped or slept runs one round, and says how many it did not.
    fn note_pause(&self, kind: Kind, paused: Duration, every: Duration) {
        let count = u64::try_from(paused.as_millis() / every.as_millis().max(1)).unwrap_or(u64::MAX);
        if count > 0 {
            tracing::warn!(
                grid = kind.word(),
                count,
                paused_s = paused.as_secs(),
                "the process did not run for a while; rounds were missed and are not made up for"
            );
            self.missed(MissedReason::Paused, kind.word().to_owned(), count);
        }
    }

    /// A place in flight; `None` when there is none in time, which costs this probe.
    async fn place(&self) -> Option<SemaphorePermit<'_>> {
        match timeout(PLACE_WAIT_MAX, self.places.acquire()).await {
            Ok(place) => place.ok(),
            Err(_) => {
                self.left_out.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }
}

/// Notices time in which the process did not run: by the boot-time clock, which also counts while the
/// machine sleeps.
#[derive(Debug)]
struct Stopwatch {
    monotonic: Instant,
    boottime_ms: u64,
}

impl Stopwatch {
    fn start() -> Self {
        Self { monotonic: clock::now(), boottime_ms: clock::boottime_ms() }
    }

    /// How much later than `due` it is, sleep of the machine since the last lap included.
    fn lap(&mut self, due: Instant) -> Duration {
        let last = std::mem::replace(self, Self::start());
        let ran = self.monotonic.saturating_duration_since(last.monotonic);
        let passed = Duration::from_millis(self.boottime_ms.saturating_sub(last.boottime_ms));
        // Both clocks are read to the millisecond.
        let slept = passed.saturating_sub(ran + Duration::from_millis(2));
        self.monotonic.saturating_duration_since(due) + slept
    }
}

#[cfg(test)]
#[cfg(feature = "lab")]
pub(crate) mod tests;

#[cfg(test)]
#[cfg(feature = "lab")]
mod overload;

#[cfg(test)]
#[cfg(feature = "lab")]
mod sizes;
