//! One open connection for each resolver over TLS, so that its next question needs no handshake.
//!
//! Only for resolutions: endpoint checks are cold on purpose. A connection may have died while it was
//! idle. When that is known it is not used; when it shows only now, by a close, a reset or by silence,
//! the question is put once more to a fresh connection within the same deadline, and the answer says
//! so. Silence is given a third of the deadline, so that two thirds are left for the fresh one: a
//! firewall that forgot the connection can make an answer late, and never missing.
//!
//! An idle connection takes about 10 KiB for DoT, 24 KiB for HTTP/1.1 and 30 KiB for HTTP/2, measured:
//! TLS and the HTTP library's own buffers (docs/bench.md). Those who shared one that fell silent share the
//! next one too, so that a resolver that hangs holds few of them, however many questions wait.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use parallax_decide::names::ResolverName;
use parallax_decide::observation::{Group, Outcome};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep_until, timeout};

use super::Limits;
use super::ask::{Trace, allowance};
use super::channel::Channel;
use super::doh::HttpVersion;
use super::message::{Question, Reply};
use crate::assignment::{Assignment, Resolver, Transport};
use crate::clock::{Instant, now};
use crate::site::Site;

/// Longest life of an idle connection: longer than a usual interval of rounds, so that the next round
/// finds it.
pub const IDLE_MAX: Duration = Duration::from_secs(90);

/// Part of the deadline that a pooled connection may stay silent.
const SILENCE_PARTS: u32 = 3;

/// Longest wait for a connection that another question is just opening and that both could use.
const OPENING_WAIT_MAX: Duration = Duration::from_millis(300);

/// Open connections, at most one for each resolver.
#[derive(Debug, Default)]
pub struct Pool {
    held: Arc<Mutex<Held>>,
}

#[derive(Debug, Default)]
struct Held {
    idle: BTreeMap<ResolverName, Idle>,
    /// Closed as soon as the opening of a resolver's connection has ended, well or not.
    opening: BTreeMap<ResolverName, Arc<Semaphore>>,
    /// Whether a task closes what has been idle for too long.
    swept: bool,
    last_number: u64,
}

#[derive(Debug)]
struct Idle {
    resolver: Resolver,
    channel: Channel,
    address: IpAddr,
    used: Instant,
    number: u64,
}

/// What the pool has for a resolver.
enum Taken {
    Nothing,
    /// It had one, which has died.
    Dead,
    Open(Channel, IpAddr, u64),
}

/// Asks a resolver over its pooled connection, or a fresh one.
///
/// # Errors
/// How the stage in `trace` failed.
pub async fn ask(
    site: &Site,
    limits: &Limits,
    resolver: &Resolver,
    question: &Question,
    trace: &mut Trace,
) -> Result<Reply, Outcome> {
    let mut reconnected = false;
    match site.pool.take_or_wait(resolver).await {
        Taken::Nothing => {}
        Taken::Dead => reconnected = true,
        Taken::Open(mut channel, address, number) => {
            allowance(site, address)?;
            trace.address = address;
            let limit = limits.resolve / SILENCE_PARTS;
            let asked = timeout(limit, Box::pin(channel.ask(site, limits, resolver, question, trace))).await;
            match asked {
                Ok(Ok(reply)) => {
                    site.pool.put(resolver, channel, address);
                    return Ok(reply);
                }
                Ok(Err(outcome)) if !is_death(outcome) => {
                    site.pool.forget(resolver, number);
                    return Err(outcome);
                }
                Ok(Err(_)) | Err(_) => {
                    site.pool.forget(resolver, number);
                    reconnected = true;
                }
            }
            *trace = Trace::default();
        }
    }
    // All who shared what died share the fresh one too, or each would hang in one of its own.
    if reconnected
        && is_shared(resolver)
        && let Taken::Open(mut channel, address, number) = site.pool.take_or_wait(resolver).await
    {
        allowance(site, address)?;
        trace.address = address;
        trace.reply.reconnected = true;
        let mut trial = Trial { pool: &site.pool, resolver, number: Some(number) };
        let reply = Box::pin(channel.ask(site, limits, resolver, question, trace)).await?;
        trial.number = None;
        return Ok(reply);
    }
    let opening = site.pool.opens(resolver);
    // Each stage in a box of its own: what hangs in one does not hold the room of the others.
    let mut channel = Box::pin(Channel::open(site, limits, resolver, trace)).await?;
    let address = trace.address;
    let shared = channel.share().and_then(|shared| site.pool.put(resolver, shared, address));
    drop(opening);
    trace.reply.reconnected = reconnected;
    // Until it has answered once it is on trial: whoever gives up on it, by an error or a deadline, takes
    // it from the others too.
    let mut trial = Trial { pool: &site.pool, resolver, number: shared };
    let reply = Box::pin(channel.ask(site, limits, resolver, question, trace)).await?;
    trial.number = None;
    site.pool.put(resolver, channel, address);
    Ok(reply)
}

/// A connection in the pool that has not answered yet: dropped with its number it is forgotten.
struct Trial<'a> {
    pool: &'a Pool,
    resolver: &'a Resolver,
    number: Option<u64>,
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.pool.forget(self.resolver, number);
        }
    }
}

/// Whether a failure can be that of a connection which died while it was idle.
fn is_death(outcome: Outcome) -> bool {
    outcome.group() == Group::Network
        || matches!(
            outcome,
            Outcome::HttpClosed
                | Outcome::HttpSilent
                | Outcome::HttpStalled
                | Outcome::DnsClosed
                | Outcome::DnsSilent
                | Outcome::TlsAlert
        )
}

/// Whether several questions can be on one connection to a resolver at once.
fn is_shared(resolver: &Resolver) -> bool {
    match &resolver.transport {
        Transport::Doh(endpoint) => endpoint.http != Some(HttpVersion::Http1),
        Transport::Live | Transport::Plain { .. } | Transport::Tcp { .. } | Transport::Dot { .. } => false,
    }
}

impl Pool {
    /// The resolver's connection; when another question is just opening one that both can use, that one.
    async fn take_or_wait(&self, resolver: &Resolver) -> Taken {
        let opening = match self.take(resolver) {
            Taken::Nothing => self.lock().opening.get(&resolver.name).cloned(),
            taken @ (Taken::Dead | Taken::Open(..)) => return taken,
        };
        let Some(opening) = opening else { return Taken::Nothing };
        // It is never released, only closed: then the opening has ended.
        let _ = timeout(OPENING_WAIT_MAX, opening.acquire()).await;
        self.take(resolver)
    }

    fn take(&self, resolver: &Resolver) -> Taken {
        let mut held = self.lock();
        let Some(mut idle) = held.idle.remove(&resolver.name) else { return Taken::Nothing };
        if idle.resolver != *resolver || now().saturating_duration_since(idle.used) >= IDLE_MAX {
            return Taken::Nothing;
        }
        if idle.channel.is_closed() {
            return Taken::Dead;
        }
        let (address, number) = (idle.address, idle.number);
        match idle.channel.share() {
            None => Taken::Open(idle.channel, address, number),
            Some(shared) => {
                idle.used = now();
                held.idle.insert(resolver.name.clone(), idle);
                Taken::Open(shared, address, number)
            }
        }
    }

    /// Keeps a connection for the next question, unless there is one already; the number it was given.
    fn put(&self, resolver: &Resolver, mut channel: Channel, address: IpAddr) -> Option<u64> {
        if channel.is_closed() {
            return None;
        }
        let mut held = self.lock();
        if let Some(idle) = held.idle.get_mut(&resolver.name) {
            idle.used = now();
            return None;
        }
        held.last_number += 1;
        let number = held.last_number;
        let idle = Idle { resolver: resolver.clone(), channel, address, used: now(), number };
        held.idle.insert(resolver.name.clone(), idle);
        if !std::mem::replace(&mut held.swept, true) {
            tokio::spawn(sweep(Arc::downgrade(&self.held)));
        }
        Some(number)
    }

    /// Takes a connection that did not work out of everybody's reach.
    fn forget(&self, resolver: &Resolver, number: u64) {
        let mut held = self.lock();
        if held.idle.get(&resolver.name).is_some_and(|idle| idle.number == number) {
            held.idle.remove(&resolver.name);
        }
    }

    /// Notes that a connection is being opened which others could use; `None`: they could not, or
    /// somebody is at it already.
    fn opens(&self, resolver: &Resolver) -> Option<Opening> {
        let mut held = self.lock();
        if !is_shared(resolver) || held.opening.contains_key(&resolver.name) {
            return None;
        }
        let ended = Arc::new(Semaphore::new(0));
        held.opening.insert(resolver.name.clone(), Arc::clone(&ended));
        Some(Opening { held: Arc::clone(&self.held), name: resolver.name.clone(), ended })
    }

    /// Closes what an assignment does not have, or has otherwise.
    pub fn keep(&self, resolvers: &[Resolver]) {
        self.lock().idle.retain(|_, idle| resolvers.contains(&idle.resolver));
    }

    /// Follows the assignments. Returns when there will be no more.
    pub async fn follow(&self, mut assignments: watch::Receiver<Option<Arc<Assignment>>>) {
        let mut before = assignments.borrow_and_update().clone();
        while assignments.changed().await.is_ok() {
            let after = assignments.borrow_and_update().clone();
            // A connection stays where it was opened from.
            let moved = before.as_ref().map(|one| &one.source) != after.as_ref().map(|one| &one.source);
            self.keep(match &after {
                Some(assignment) if !moved => &assignment.resolvers,
                Some(_) | None => &[],
            });
            before = after;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An opening under way; it ends when this is dropped.
struct Opening {
    held: Arc<Mutex<Held>>,
    name: ResolverName,
    ended: Arc<Semaphore>,
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).opening.remove(&self.name);
        self.ended.close();
    }
}

/// Closes what has been idle for too long; ends when nothing is left.
async fn sweep(held: Weak<Mutex<Held>>) {
    loop {
        let next = {
            let Some(held) = held.upgrade() else { return };
            let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
            let now = now();
            held.idle.retain(|_, idle| now.saturating_duration_since(idle.used) < IDLE_MAX);
            let Some(oldest) = held.idle.values().map(|idle| idle.used).min() else {
                held.swept = false;
                return;
            };
            oldest + IDLE_MAX
        };
        sleep_until(next).await;
    }
}

#[cfg(test)]
#[cfg(feature = "lab")]
mod tests;
