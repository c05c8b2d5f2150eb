//! Finding the address of an endpoint whose address is not pinned, at servers that know its name.
//!
//! A and AAAA are asked at once and the first answer that can be used here ends the search: a family
//! that stays silent costs nothing. What is kept lives as long as its TTL says, within bounds; a
//! failure is never kept, whatever the negative TTL: the next question searches again.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use parallax_decide::observation::{Family, Group, Outcome, Stage};
use tokio::sync::Mutex as Turn;
use tokio::time::{sleep, sleep_until};

use super::Limits;
use super::ask::{Trace, allowance, permitted};
use super::doh::DohEndpoint;
use super::message::{Question, Reply};
use super::plain::{Choice, Plain};
use crate::clock::{Instant, now, since};
use crate::policy::Role;
use crate::site::Site;

/// Shortest and longest life of an address: a TTL of zero must not make every question two, and an address
/// that moved must be noticed.
pub const LIFE_MIN: Duration = Duration::from_secs(30);
/// See [`LIFE_MIN`].
pub const LIFE_MAX: Duration = Duration::from_secs(3600);

/// Most hosts remembered: as many as an assignment has resolvers.
const HOSTS_MAX: usize = 64;

/// Head start of each server over the next one, as a part of the whole search.
const STAGGER_PARTS: u32 = 8;

/// An address that was found this recently is not searched again because a connection to it failed.
const SETTLED: Duration = Duration::from_secs(5);

/// What was found, by host.
#[derive(Debug, Default)]
pub struct Bootstrap {
    hosts: Mutex<BTreeMap<String, Arc<Host>>>,
}

/// One host. Questions that come while it is searched wait and take what was found, or how that failed.
#[derive(Debug, Default)]
struct Host {
    turn: Turn<()>,
    last: Mutex<Last>,
}

#[derive(Debug, Clone, Default)]
struct Last {
    found: Option<Found>,
    failed: Option<Failed>,
}

#[derive(Debug, Clone)]
struct Found {
    addresses: Vec<IpAddr>,
    at: Instant,
    until: Instant,
}

/// How a search failed, at which server.
#[derive(Debug, Clone, Copy)]
struct Failed {
    outcome: Outcome,
    server: IpAddr,
    at: Instant,
}

impl Bootstrap {
    /// The addresses of an endpoint: those that are pinned, else those found by its bootstrap servers.
    ///
    /// # Errors
    /// How finding one failed; `trace` is then at the stage of the bootstrap.
    pub async fn addresses(
        &self,
        site: &Site,
        limits: &Limits,
        endpoint: &DohEndpoint,
        trace: &mut Trace,
    ) -> Result<Vec<IpAddr>, Outcome> {
        if !endpoint.addresses.is_empty() {
            return Ok(endpoint.addresses.clone());
        }
        let begun = now();
        trace.enter(Stage::Bootstrap, IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let host = self.host(&endpoint.host);
        if let Some(addresses) = host.fresh() {
            return Ok(addresses);
        }
        let _turn = host.turn.lock().await;
        // Somebody else may have searched meanwhile.
        if let Some(addresses) = host.fresh() {
            trace.stages.bootstrap = since(begun);
            return Ok(addresses);
        }
        let last = host.last.lock().unwrap_or_else(PoisonError::into_inner).failed;
        let ended = match last.filter(|failed| failed.at >= begun) {
            Some(failed) => Err(failed),
            None => Box::pin(search(site, limits, endpoint)).await,
        };
        trace.stages.bootstrap = since(begun);
        match ended {
            Ok((addresses, life)) => {
                let at = now();
                let found = Found { addresses: addresses.clone(), at, until: at + life };
                host.set(Last { found: Some(found), failed: None });
                Ok(addresses)
            }
            Err(failed) => {
                host.set(Last { found: None, failed: Some(failed) });
                trace.enter(Stage::Bootstrap, failed.server);
                Err(failed.outcome)
            }
        }
    }

    /// Searches again for the next question: what was found may be wrong, since the endpoint does not work.
    pub fn doubt(&self, endpoint: &DohEndpoint) {
        if !endpoint.addresses.is_empty() {
            return;
        }
        let host = self.hosts.lock().unwrap_or_else(PoisonError::into_inner).get(&endpoint.host).cloned();
        let Some(host) = host else { return };
        let mut last = host.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.found.as_ref().is_some_and(|found| since(found.at) >= SETTLED) {
            last.found = None;
        }
    }

    fn host(&self, name: &str) -> Arc<Host> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if hosts.len() >= HOSTS_MAX && !hosts.contains_key(name) {
            // Those of an assignment that is no longer in force; the others are found again.
            hosts.clear();
        }
        Arc::clone(hosts.entry(name.to_owned()).or_default())
    }
}

impl Host {
    fn fresh(&self) -> Option<Vec<IpAddr>> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.found.as_ref().filter(|found| now() < found.until).map(|found| found.addresses.clone())
    }

    fn set(&self, last: Last) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = last;
    }
}

/// Asks the servers, each a little later than the one before, for both families; the addresses of the
/// first answer that can be used, and how long they may be kept.
async fn search(site: &Site, limits: &Limits, endpoint: &DohEndpoint) -> Result<(Vec<IpAddr>, Duration), Failed> {
    // The other half of the deadline is for the endpoint itself.
    let limit = limits.resolve / 2;
    let deadline = now() + limit;
    let stagger = limit / STAGGER_PARTS;
    let failed = |outcome, server| Failed { outcome, server, at: now() };
    let nobody = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    // An address as host needs no search.
    if let Ok(address) = endpoint.host.parse() {
        return usable(site, endpoint, &[address])
            .map(|addresses| (addresses, LIFE_MAX))
            .map_err(|outcome| failed(outcome, address));
    }
    let Ok(name) = endpoint.host.parse() else { return Err(failed(Outcome::OwnTrouble, nobody)) };
    let mut asking = FuturesUnordered::new();
    for (position, server) in endpoint.bootstrap.iter().enumerate() {
        for family in [Family::V4, Family::V6] {
            let question = Question { name: parallax_decide::names::DomainName::clone(&name), family };
            let wait = stagger * u32::try_from(position).unwrap_or(u32::MAX);
            asking.push(Box::pin(async move {
                sleep(wait).await;
                (server.ip(), ask(site, limits, *server, &question, limit).await)
            }));
        }
    }
    let mut worst: Option<Failed> = None;
    let mut note = |outcome, server| {
        let weight = |failed: &Failed| weight(failed.outcome);
        let one = failed(outcome, server);
        if worst.as_ref().is_none_or(|known| weight(&one) > weight(known)) {
            worst = Some(one);
        }
        worst
    };
    loop {
        tokio::select! {
            biased;
            Some((server, ended)) = asking.next(), if !asking.is_empty() => {
                let used = match ended {
                    Ok(reply) if reply.outcome == Outcome::Answered => {
                        let life = Duration::from_secs(u64::from(reply.ttl_s)).clamp(LIFE_MIN, LIFE_MAX);
                        usable(site, endpoint, &reply.addresses).map(|addresses| (addresses, life))
                    }
                    Ok(reply) => Err(reply.outcome),
                    Err(outcome) => Err(outcome),
                };
                match used {
                    Ok(found) => return Ok(found),
                    Err(outcome) => {
                        let worst = note(outcome, server);
                        if asking.is_empty() {
                            return Err(worst.unwrap_or_else(|| failed(outcome, server)));
                        }
                    }
                }
            }
            () = sleep_until(deadline) => {
                let first = endpoint.bootstrap.first().map_or(nobody, SocketAddr::ip);
                let worst = note(Outcome::DnsSilent, first);
                return Err(worst.unwrap_or_else(|| failed(Outcome::DnsSilent, first)));
            }
        }
    }
}

async fn ask(
    site: &Site,
    limits: &Limits,
    server: SocketAddr,
    question: &Question,
    limit: Duration,
) -> Result<Reply, Outcome> {
    let mut trace = Trace::default();
    // The live resolver is the owner's own choice, wherever it is.
    let choice = if site.live.servers().contains(&server) {
        allowance(site, server.ip())?;
        Choice::Own
    } else {
        permitted(site, server, &mut trace)?;
        Choice::Assigned
    };
    let plain = Plain { hold: Duration::ZERO, ..Plain::of(site, limits, server, choice) };
    plain.ask(question, limit, &mut trace).await
}

/// Those that may be contacted from here; the reason why none may.
fn usable(site: &Site, endpoint: &DohEndpoint, addresses: &[IpAddr]) -> Result<Vec<IpAddr>, Outcome> {
    let mut reason = Outcome::Empty;
    let mut usable = Vec::new();
    for address in addresses {
        match site.policy.permits(*address, endpoint.port, Role::Resolver) {
            Err(denial) => {
                tracing::debug!(host = endpoint.host, %address, %denial, "an endpoint's address is not used");
                reason = denial.outcome();
            }
            Ok(()) if !site.dialer.family_available(Family::of(*address)) => reason = Outcome::FamilyUnavailable,
            Ok(()) => usable.push(*address),
        }
    }
    if usable.is_empty() { Err(reason) } else { Ok(usable) }
}

/// Which of several failures is told: the one that says most of what is wrong with the name.
fn weight(outcome: Outcome) -> u8 {
    match outcome.group() {
        // An address that must not be used: somebody on the way answers in the server's place.
        Group::Refused => 4,
        // A name without an address of one family may have one of the other.
        Group::Reply if outcome == Outcome::Empty => 2,
        Group::Reply => 3,
        Group::Works | Group::Dns | Group::Network | Group::Tls | Group::Certificate | Group::Http => 1,
        Group::Own | Group::Record => 0,
    }
}

#[cfg(test)]
#[cfg(feature = "lab")]
mod tests;
