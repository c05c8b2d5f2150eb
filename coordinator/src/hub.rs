//! Connected vantages: who is there, tasks to them, reports from them, and news for the live page.
//!
//! A vantage whose stream another coordinator holds is tasked through it: the hub hands the task to
//! the relay ([`crate::relay`]), which knows the others ([`elsewhere`]). A vantage that no running
//! coordinator holds is `NotConnected`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use parallax_decide::names::VantageName;
use parallax_decide::time::Timestamp;
use tokio::sync::{broadcast, oneshot};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::clock::{Clock, monotonic};
use crate::mailbox::Sender;

pub mod elsewhere;
mod message;
pub mod stir;

use elsewhere::{Elsewhere, Sending};
use stir::Stirs;

pub use message::{ChangeOutcome, ChangeReport, ChangeTask, LocalChange, Task, TaskId, Work};

/// News that a slow reader of the live page may be behind by before it must reload.
const NEWS_MAX: usize = 256;

/// Tasks and assignments that may wait for one vantage. More means that it does not read: it then
/// counts as not connected.
pub const OUTBOUND_MAX: usize = 64;

/// The vantage has no live stream to this coordinator, or does not read from it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("vantage {0} is not connected to any running coordinator")]
pub struct NotConnected(pub VantageName);

/// Why no report of a change came.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChangeFailed {
    /// Nothing was sent.
    #[error("vantage {0} is not connected to any running coordinator")]
    NotConnected(VantageName),
    /// No report within the time-out, or the stream ended before it: perhaps applied.
    #[error("no report from {0} in time; perhaps applied")]
    Timeout(VantageName),
}

/// What has changed, for the live page: read it again from the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// A vantage came or went.
    Vantages,
    /// Observations were committed.
    Observations,
    /// Verdicts changed.
    Verdicts,
    /// An incident opened, changed or closed.
    Incidents,
    /// A plan moved.
    Plans,
}

/// What goes down one stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outbound {
    /// Evidence wanted.
    Task(TaskId, Task),
    /// A change wanted, with its time-out.
    Change(TaskId, ChangeTask, Duration),
    /// The configuration was changed: send the assignment again.
    Assignment,
}

/// A connected vantage, as the page shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connected {
    /// Which one.
    pub vantage: VantageName,
    /// Version its agent runs.
    pub agent_version: String,
    /// Since when.
    pub since: Timestamp,
    /// When its last message came.
    pub last_seen: Timestamp,
}

/// Who comes, and from where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// Version its agent says it runs.
    pub agent_version: String,
    /// Random identity of the agent's start.
    pub boot: Uuid,
    /// Where it connects from.
    pub remote: SocketAddr,
}

#[derive(Debug)]
struct Live {
    session: u64,
    outbound: Sender<Box<Outbound>>,
    closed: CancellationToken,
    shown: Connected,
    boot: Uuid,
    remote: SocketAddr,
    entered: Instant,
    /// The other coordinators know of it.
    noted: bool,
    /// A newer stream of the vantage is at another coordinator.
    moved: bool,
}

/// What comes back for a change.
#[derive(Debug)]
pub(crate) enum Back {
    /// From the agent.
    Report(ChangeReport),
    /// The coordinator that should have sent it on could not; nothing was sent.
    NotSent,
}

/// Where streams and tasks meet.
#[derive(Debug)]
pub struct Hub {
    clock: Clock,
    live: Mutex<BTreeMap<VantageName, Live>>,
    waiting: Mutex<BTreeMap<TaskId, (VantageName, oneshot::Sender<Back>)>>,
    next_task: AtomicU64,
    next_session: AtomicU64,
    news: broadcast::Sender<News>,
    elsewhere: Elsewhere,
    stirs: Stirs,
}

/// One stream's place in the hub; leaving it is done by dropping it.
#[derive(Debug)]
pub struct Place<'a> {
    hub: &'a Hub,
    vantage: VantageName,
    session: u64,
    /// Ends when a newer stream of the vantage replaced this one, here or at another coordinator.
    pub closed: CancellationToken,
}

impl Hub {
    /// An empty hub. Task numbers start from the clock, so that they differ across restarts:
    /// milliseconds since 1970 in the upper bits, a million numbers for each of them, of which a random
    /// one is the first: two coordinators may start in the same millisecond.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        let random = u64::try_from(Uuid::new_v4().as_u128() & 0xf_ffff).unwrap_or(0);
        let first = (u64::try_from(clock.now().0).unwrap_or(0) << 20) | random;
        Self {
            clock,
            live: Mutex::default(),
            waiting: Mutex::default(),
            next_task: AtomicU64::new(first),
            next_session: AtomicU64::new(1),
            news: broadcast::channel(NEWS_MAX).0,
            elsewhere: Elsewhere::new(),
            stirs: Stirs::default(),
        }
    }

    /// Asks a vantage for evidence, under the epoch of the lease.
    ///
    /// # Errors
    /// When no running coordinator holds its stream.
    pub fn send_task(&self, vantage: &VantageName, task: Task, epoch: i64) -> Result<TaskId, NotConnected> {
        let id = self.new_task();
        if self.holds(vantage) {
            self.send(vantage, Outbound::Task(id, task))?;
        } else {
            self.elsewhere.send(vantage, Sending::Task { id, task, epoch })?;
        }
        Ok(id)
    }

    /// Has a vantage change its local resolver, and waits for the report.
    ///
    /// # Errors
    /// When no running coordinator holds its stream, or it did not report in time: then it is perhaps applied.
    pub async fn change(
        &self,
        vantage: &VantageName,
        change: ChangeTask,
        timeout: Duration,
    ) -> Result<ChangeReport, ChangeFailed> {
        self.change_as(self.new_task(), vantage, change, timeout, Reach::Everywhere).await
    }

    /// The same for a task that another coordinator numbered, at a vantage that is connected here.
    ///
    /// # Errors
    /// As above; it is not handed on a second time.
    pub(crate) async fn change_here(
        &self,
        id: TaskId,
        vantage: &VantageName,
        change: ChangeTask,
        timeout: Duration,
    ) -> Result<ChangeReport, ChangeFailed> {
        self.change_as(id, vantage, change, timeout, Reach::Here).await
    }

    async fn change_as(
        &self,
        id: TaskId,
        vantage: &VantageName,
        change: ChangeTask,
        timeout: Duration,
        reach: Reach,
    ) -> Result<ChangeReport, ChangeFailed> {
        let (sender, receiver) = oneshot::channel();
        lock(&self.waiting).insert(id, (vantage.clone(), sender));
        let forget = Forget { hub: self, id };
        let here = self.holds(vantage);
        let sent = if here || reach == Reach::Here {
            self.send(vantage, Outbound::Change(id, change, timeout))
        } else {
            self.elsewhere.send(vantage, Sending::Change { id, change, timeout })
        };
        sent.map_err(|NotConnected(vantage)| ChangeFailed::NotConnected(vantage))?;
        let patience = if here { timeout } else { timeout + elsewhere::WAY_BACK };
        let back = tokio::time::timeout(patience, receiver).await;
        drop(forget);
        match back {
            Ok(Ok(Back::Report(report))) => Ok(report),
            Ok(Ok(Back::NotSent)) => Err(ChangeFailed::NotConnected(vantage.clone())),
            Ok(Err(_)) | Err(_) => Err(ChangeFailed::Timeout(vantage.clone())),
        }
    }

    /// Asks a vantage that is connected here for evidence, for another coordinator.
    pub(crate) fn forward(&self, vantage: &VantageName, id: TaskId, task: Task) -> Result<(), NotConnected> {
        self.send(vantage, Outbound::Task(id, task))
    }

    /// The vantages that can be tasked, here or through another coordinator.
    #[must_use]
    pub fn reachable(&self) -> std::collections::BTreeSet<VantageName> {
        let mut reachable = self.elsewhere.vantages();
        reachable.extend(lock(&self.live).keys().cloned());
        reachable
    }

    fn holds(&self, vantage: &VantageName) -> bool {
        lock(&self.live).get(vantage).is_some_and(|live| !live.moved)
    }

    /// The vantages connected here.
    #[must_use]
    pub fn connected(&self) -> Vec<Connected> {
        lock(&self.live).values().map(|live| live.shown.clone()).collect()
    }

    /// When the last message of a connected vantage came.
    #[must_use]
    pub fn last_seen(&self, vantage: &VantageName) -> Option<Timestamp> {
        lock(&self.live).get(vantage).map(|live| live.shown.last_seen)
    }

    /// News from now on. A reader that lags must reload everything.
    #[must_use]
    pub fn news(&self) -> broadcast::Receiver<News> {
        self.news.subscribe()
    }

    /// Tells the readers that something changed, also those of the other coordinators.
    pub fn announce(&self, news: News) {
        self.hear(news);
        self.stirs.news(news);
    }

    /// Tells the readers here.
    pub(crate) fn hear(&self, news: News) {
        // No reader is no fault.
        let _ = self.news.send(news);
    }

    /// Sends everyone the assignment again, after the configuration changed.
    pub fn reassign(&self) {
        for connected in self.connected() {
            if let Err(error) = self.send(&connected.vantage, Outbound::Assignment) {
                tracing::warn!(vantage = %connected.vantage, %error, "assignment not sent; it follows at the next connect");
            }
        }
    }

    /// Enters a stream. An older
    /// stream of the same vantage is closed: the agent has come back while its old connection lay dead.
    pub(crate) fn enter(&self, vantage: &VantageName, arrival: Arrival, outbound: Sender<Box<Outbound>>) -> Place<'_> {
        let Arrival { agent_version, boot, remote } = arrival;
        let session = self.next_session.fetch_add(1, Ordering::Relaxed);
        let closed = CancellationToken::new();
        let now = self.clock.now();
        let shown = Connected { vantage: vantage.clone(), agent_version, since: now, last_seen: now };
        let entered = monotonic();
        let closed_too = closed.clone();
        let live =
            Live { session, outbound, closed: closed_too, shown, boot, remote, entered, noted: false, moved: false };
        let older = lock(&self.live).insert(vantage.clone(), live);
        if let Some(older) = older {
            let (from, before) = (remote, older.remote);
            if older.boot == boot {
                tracing::info!(%vantage, %boot, %from, %before, "a new stream of the same agent replaces the old one");
            } else {
                tracing::warn!(%vantage, %boot, %from, %before, "a stream of another start of the agent replaces the first");
                self.stirs.ended(vantage.clone(), older.boot);
            }
            older.closed.cancel();
        }
        self.stirs.began(vantage.clone());
        self.announce(News::Vantages);
        Place { hub: self, vantage: vantage.clone(), session, closed }
    }

    /// Hands a report to the one who waits for it. Returns whether someone did: a report for a
    /// task of another vantage, or one that came too late, finds nobody.
    pub(crate) fn report(&self, vantage: &VantageName, id: TaskId, report: ChangeReport) -> bool {
        self.back(vantage, id, Back::Report(report))
    }

    /// The same, also for what could not be sent on.
    pub(crate) fn back(&self, vantage: &VantageName, id: TaskId, back: Back) -> bool {
        let mut waiting = lock(&self.waiting);
        if waiting.get(&id).is_none_or(|(owner, _)| owner != vantage) {
            return false;
        }
        waiting.remove(&id).is_some_and(|(_, sender)| sender.send(back).is_ok())
    }

    fn new_task(&self) -> TaskId {
        TaskId(self.next_task.fetch_add(1, Ordering::Relaxed))
    }

    fn send(&self, vantage: &VantageName, message: Outbound) -> Result<(), NotConnected> {
        match lock(&self.live).get(vantage) {
            Some(live) => live.outbound.try_send(Box::new(message)).map_err(|_| NotConnected(vantage.clone())),
            None => Err(NotConnected(vantage.clone())),
        }
    }
}

impl Place<'_> {
    /// Notes that a message came.
    pub(crate) fn seen(&self) {
        let now = self.hub.clock.now();
        if let Some(live) = lock(&self.hub.live).get_mut(&self.vantage)
            && live.session == self.session
        {
            live.shown.last_seen = now;
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut live = lock(&self.hub.live);
        let mine = live.get(&self.vantage).is_some_and(|live| live.session == self.session);
        let gone = if mine { live.remove(&self.vantage) } else { None };
        drop(live);
        if let Some(gone) = gone {
            self.hub.stirs.ended(self.vantage.clone(), gone.boot);
        }
        self.hub.announce(News::Vantages);
    }
}

/// How far a change may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    Here,
    Everywhere,
}

/// Forgets a waiting change also when its future is dropped.
struct Forget<'a> {
    hub: &'a Hub,
    id: TaskId,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        lock(&self.hub.waiting).remove(&self.id);
    }
}

/// The maps stay consistent even if a holder panicked: each change of them is one call.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
