//! Vantages whose streams other coordinators hold, and what waits to be handed to those.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use parallax_decide::names::VantageName;
use parallax_decide::time::Timestamp;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::message::{ChangeTask, Task, TaskId};
use super::{Hub, Live, NotConnected, lock};

/// Tasks and changes that may wait for the relay. More means that the database is away: what is too
/// much counts as not connected, and is asked again.
const SENDINGS_MAX: usize = 1024;

/// Longest way of a report back to the coordinator that asked, beyond the change's own time.
pub(crate) const WAY_BACK: Duration = Duration::from_secs(1);

/// A row written a moment ago may be dated this much before the stream by this machine's reckoning.
const RECKONING: Duration = Duration::from_secs(1);

/// Something for an agent that another coordinator holds.
#[derive(Debug)]
pub(crate) enum Sending {
    /// Evidence wanted.
    Task { id: TaskId, task: Task, epoch: i64 },
    /// A change wanted, within a time.
    Change { id: TaskId, change: ChangeTask, timeout: Duration },
}

/// The stream of a vantage at another coordinator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seat {
    /// Which coordinator.
    pub(crate) instance: Uuid,
    /// Its name.
    pub(crate) coordinator: String,
    /// Start of the agent.
    pub(crate) boot: Uuid,
    /// From where.
    pub(crate) remote: String,
    /// Since when, database clock.
    pub(crate) since: Timestamp,
}

/// What waits: for which coordinator, whose agent, what.
pub(crate) type Waiting = (Uuid, VantageName, Sending);

/// The other coordinators, as the hub sees them.
#[derive(Debug)]
pub(super) struct Elsewhere {
    seats: Mutex<BTreeMap<VantageName, Seat>>,
    sender: mpsc::Sender<Waiting>,
    receiver: Mutex<Option<mpsc::Receiver<Waiting>>>,
}

impl Elsewhere {
    pub(super) fn new() -> Self {
        let (sender, receiver) = mpsc::channel(SENDINGS_MAX);
        Self { seats: Mutex::default(), sender, receiver: Mutex::new(Some(receiver)) }
    }

    pub(super) fn vantages(&self) -> BTreeSet<VantageName> {
        lock(&self.seats).keys().cloned().collect()
    }

    pub(super) fn send(&self, vantage: &VantageName, sending: Sending) -> Result<(), NotConnected> {
        let seat = lock(&self.seats).get(vantage).map(|seat| seat.instance);
        let instance = seat.ok_or_else(|| NotConnected(vantage.clone()))?;
        self.sender.try_send((instance, vantage.clone(), sending)).map_err(|_| NotConnected(vantage.clone()))
    }
}

impl Hub {
    /// What waits to be handed over; for the relay, once.
    pub(crate) fn sendings(&self) -> Option<mpsc::Receiver<Waiting>> {
        lock(&self.elsewhere.receiver).take()
    }

    /// Takes in who holds a vantage, if another coordinator does. A stream here that is older than the
    /// one there is cut: the newest counts.
    pub(crate) fn seat(&self, vantage: &VantageName, seat: Option<Seat>) {
        let Some(seat) = seat else {
            lock(&self.elsewhere.seats).remove(vantage);
            return;
        };
        let mut live = lock(&self.live);
        if let Some(here) = live.get_mut(vantage).filter(|here| here.is_older_than(&seat)) {
            here.moved = true;
            let (there, from, before) = (&seat.coordinator, &seat.remote, here.remote);
            if here.boot == seat.boot {
                tracing::info!(%vantage, %there, %from, %before, "the agent moved to another coordinator");
            } else {
                tracing::warn!(%vantage, %there, %from, %before, "another start of the agent is at another coordinator");
            }
            here.closed.cancel();
        }
        drop(live);
        lock(&self.elsewhere.seats).insert(vantage.clone(), seat);
    }

    /// Takes in all of them: who is not among them is held by nobody else.
    pub(crate) fn seats(&self, seats: BTreeMap<VantageName, Seat>) {
        lock(&self.elsewhere.seats).retain(|vantage, _| seats.contains_key(vantage));
        for (vantage, seat) in seats {
            self.seat(&vantage, Some(seat));
        }
    }
}

impl Live {
    fn is_older_than(&self, seat: &Seat) -> bool {
        self.noted && !self.moved && seat.since.plus(RECKONING) >= self.shown.since
    }
}
