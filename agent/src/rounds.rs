//! Starts the probes: a loop for each grid. What a round of one subject consists of is in `subjects`.
//!
//! Every probe has deadlines of its own and a place among a bounded number in flight, so a hung one
//! delays nobody and a round that overruns is skipped the next time, not queued.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::{sleep_until, timeout};

use crate::assignment::{Assignment, Transport};
use crate::burst::Bursts;
use crate::clock;
use crate::recorder::Recorder;
use crate::schedule::{Grid, Kind, Timeline};
use crate::site::Site;

mod subjects;

/// Most scheduled probes in flight. At four sockets each this stays far below the usual limit of
/// 1024 descriptors.
pub const SCHEDULED_MAX: usize = 64;

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
    /// Probes left out because there was no place for them.
    left_out: AtomicU64,
    running: Mutex<BTreeSet<Running>>,
    bursts: Mutex<Bursts>,
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
    /// Rounds at this place, recorded here, on grids of this timeline.
    #[must_use]
    pub fn new(site: Site, recorder: Recorder, timeline: Timeline) -> Arc<Self> {
        Arc::new(Self {
            site,
            recorder,
            timeline,
            places: Semaphore::new(SCHEDULED_MAX),
            left_out: AtomicU64::new(0),
            running: Mutex::default(),
            bursts: Mutex::default(),
        })
    }

    /// Starts a round at each point of one kind's grid, by the assignment in force. Returns when
    /// there will be no more assignments.
    pub async fn follow(self: Arc<Self>, kind: Kind, mut assignments: watch::Receiver<Option<Arc<Assignment>>>) {
        loop {
            let assignment = assignments.borrow_and_update().clone();
            let changed = match assignment {
                None => assignments.changed().await,
                Some(assignment) => {
                    let next = self.timeline.next(Grid::of(kind, &assignment.schedule), clock::now());
                    tokio::select! {
                        changed = assignments.changed() => changed,
                        () = sleep_until(next) => {
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
                for control in &assignment.controls {
                    skipped += self.spawn(kind, control.name.as_str(), Self::control, assignment, control.clone());
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
            return 1;
        }
        let mark = Mark(Arc::clone(self), running);
        let round = round(Arc::clone(self), Arc::clone(assignment), subject);
        tokio::spawn(async move {
            round.await;
            drop(mark);
        });
        0
    }

    /// A place in flight; `None` when there is none in time, which costs this probe.
    async fn place(&self) -> Option<SemaphorePermit<'_>> {
        match timeout(PLACE_WAIT_MAX, self.places.acquire()).await {
            Ok(place) => place.ok(),
            Err(_) => {
                let left_out = self.left_out.fetch_add(1, Ordering::Relaxed).saturating_add(1);
                if left_out.is_power_of_two() {
                    tracing::warn!(in_flight = SCHEDULED_MAX, left_out, "too many probes in flight; some are left out");
                }
                None
            }
        }
    }
}

#[cfg(test)]
#[cfg(feature = "lab")]
pub(crate) mod tests;
