//! Who may begin the handshake, and when. A handshake is the only thing that costs a stranger nothing and us a signature,
//! and a fleet that comes back after an outage asks for thousands at once.
//!
//! - Accepted connections wait here, not in the kernel's queue: that refuses what it cannot hold.
//! - The newest goes first. Whoever has waited long is about to give up, and would be served for nothing; it is closed,
//!   comes back after its own jitter, and finds a shorter queue.
//! - So many handshakes and greetings at once, so many a second, and so many from one source. One that stalls ends at its deadline, and
//!   sooner when others need its place.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::source::{FromOne, Sources};
use crate::clock::monotonic;

/// Connections between their first byte and the end of their greeting.
const HANDSHAKES_MAX: usize = 256;

/// Handshakes begun in a second, on average: half a processor's work. Ten thousand agents are through in ten seconds.
const HANDSHAKES_PER_S: u32 = 1000;

/// How far ahead of that average a burst may be.
const BURST_MAX: u32 = 200;

/// Connections that wait for their handshake; a descriptor each.
const WAITING_MAX: usize = 8192;

/// How long one waits: an agent gives up after 8 s.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Connections of one source that wait or shake hands: agents behind one router are many, but not at the same moment.
const FROM_ONE_MAX: usize = 64;

/// A handshake that takes longer than this has stalled; it makes room when others wait.
const STALLED_AFTER: Duration = Duration::from_secs(2);

/// Longest handshake in any case.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// Connections before their handshake.
pub(super) struct Handshakes<T> {
    waiting: VecDeque<Waiting<T>>,
    places: Arc<Semaphore>,
    needed: Arc<Notify>,
    sources: Sources,
    bucket: Bucket,
    /// Closed without a handshake since the last time somebody asked.
    closed: u64,
}

struct Waiting<T> {
    connection: T,
    since: Instant,
    source: FromOne,
}

/// Leave to shake hands and to greet; given back when dropped.
pub(super) struct Leave {
    _place: OwnedSemaphorePermit,
    _source: FromOne,
    needed: Arc<Notify>,
}

impl Leave {
    /// Returns when the handshake has taken too long, for itself or for those that wait.
    pub(super) async fn overdue(&self) {
        tokio::time::sleep(STALLED_AFTER).await;
        tokio::select! {
            () = self.needed.notified() => {}
            () = tokio::time::sleep(HANDSHAKE_MAX.saturating_sub(STALLED_AFTER)) => {}
        }
    }
}

/// A connection on its way from the handshake to its greeting: its place is kept until then, so that no more are let in than
/// the database can greet. Clones are the same one.
#[derive(Clone)]
pub struct Arriving(Arc<Way>);

struct Way {
    /// Boxed: it is given up after a moment, and the way stays.
    leave: Mutex<Option<Box<Leave>>>,
    /// Streams that have greeted and not ended.
    settled: AtomicUsize,
}

/// A stream that has greeted; its connection may stay until this is dropped.
#[derive(Debug)]
pub struct Settled(Arriving);

impl Drop for Settled {
    fn drop(&mut self) {
        self.0.0.settled.fetch_sub(1, Ordering::AcqRel);
    }
}

impl std::fmt::Debug for Arriving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Arriving")
    }
}

impl Arriving {
    pub(super) fn new(leave: Leave) -> Self {
        Self(Arc::new(Way { leave: Mutex::new(Some(Box::new(leave))), settled: AtomicUsize::new(0) }))
    }

    /// Its stream has greeted: it may stay as long as that lasts, and another may come in.
    #[must_use]
    pub fn settled(self) -> Settled {
        self.0.settled.fetch_add(1, Ordering::AcqRel);
        self.give_way();
        Settled(self)
    }

    /// It has gone, or takes too long: another may come in.
    pub(super) fn give_way(&self) {
        self.0.leave.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Whether a stream of it has greeted and not ended.
    pub(super) fn is_settled(&self) -> bool {
        self.0.settled.load(Ordering::Acquire) > 0
    }
}

impl<T> Default for Handshakes<T> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            places: Arc::new(Semaphore::new(HANDSHAKES_MAX)),
            needed: Arc::default(),
            sources: Sources::new(FROM_ONE_MAX),
            bucket: Bucket { tokens: BURST_MAX.into(), at: monotonic() },
            closed: 0,
        }
    }
}

impl<T> Handshakes<T> {
    /// Takes in a connection that was accepted. One too many of its source is closed; so is the oldest when all is full.
    pub(super) fn push(&mut self, connection: T, source: IpAddr) {
        let Some(source) = self.sources.enter(source) else {
            self.closed += 1;
            return;
        };
        if self.waiting.len() >= WAITING_MAX {
            self.waiting.pop_front();
            self.closed += 1;
        }
        self.waiting.push_back(Waiting { connection, since: monotonic(), source });
    }

    /// The next connection that may shake hands. Waits for ever when none is there; may be dropped at any time.
    pub(super) async fn next(&mut self) -> (T, Leave) {
        loop {
            if self.waiting.is_empty() {
                std::future::pending::<()>().await;
            }
            let place = match Arc::clone(&self.places).try_acquire_owned() {
                Ok(place) => Some(place),
                Err(_) => {
                    self.needed.notify_one();
                    Arc::clone(&self.places).acquire_owned().await.ok()
                }
            };
            self.bucket.ready().await;
            self.close_old(monotonic());
            if let (Some(place), Some(one)) = (place, self.waiting.pop_back()) {
                if self.waiting.is_empty() {
                    // A burst of long ago must not be remembered in memory.
                    self.waiting = VecDeque::new();
                }
                self.bucket.tokens -= 1.0;
                let leave = Leave { _place: place, _source: one.source, needed: Arc::clone(&self.needed) };
                return (one.connection, leave);
            }
        }
    }

    /// How many were closed without a handshake since the last call.
    pub(super) fn closed(&mut self) -> u64 {
        std::mem::take(&mut self.closed)
    }

    fn close_old(&mut self, now: Instant) {
        while self.waiting.front().is_some_and(|one| now.saturating_duration_since(one.since) > WAIT_MAX) {
            self.waiting.pop_front();
            self.closed += 1;
        }
    }
}

/// Rate of handshakes.
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Bucket {
    /// Waits until there is a token; does not take it.
    async fn ready(&mut self) {
        loop {
            let now = monotonic();
            let earned = now.saturating_duration_since(self.at).as_secs_f64() * f64::from(HANDSHAKES_PER_S);
            self.tokens = (self.tokens + earned).min(BURST_MAX.into());
            self.at = now;
            if self.tokens >= 1.0 {
                return;
            }
            tokio::time::sleep(Duration::from_secs_f64((1.0 - self.tokens) / f64::from(HANDSHAKES_PER_S))).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[tokio::test]
    async fn the_newest_goes_first_and_one_source_has_its_limit() {
        let mut handshakes = Handshakes::default();
        for number in 0..FROM_ONE_MAX + 5 {
            handshakes.push(number, address(1));
        }
        assert_eq!(handshakes.closed(), 5);
        handshakes.push(1000, address(2));
        assert_eq!(handshakes.next().await.0, 1000);
        let (newest, leave) = handshakes.next().await;
        assert_eq!(newest, FROM_ONE_MAX - 1);
        handshakes.push(2000, address(1));
        assert_eq!(handshakes.closed(), 1, "one that shakes hands counts as well");
        drop(leave);
        handshakes.push(2000, address(1));
        assert_eq!(handshakes.next().await.0, 2000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_handshake_that_stalls_makes_room_when_others_wait() {
        let mut handshakes = Handshakes::default();
        let mut stalled = Vec::new();
        for number in 0..HANDSHAKES_MAX {
            handshakes.push(number, address(u8::try_from(number % 8).unwrap()));
            stalled.push(handshakes.next().await.1);
        }
        handshakes.push(1000, address(9));
        let overdue = async {
            let one = stalled.pop().unwrap();
            one.overdue().await;
            drop(one);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            (connection, _leave) = handshakes.next() => assert_eq!(connection, 1000),
            () = overdue => {}
            // By the moved clock: who is not asked to make room keeps its place to its deadline.
            () = tokio::time::sleep(HANDSHAKE_MAX / 2) => panic!("it was not asked to make room"),
        }
    }
}
