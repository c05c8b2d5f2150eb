//! What is remembered of plain DNS servers from one question to the next.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::clock::Instant;

/// How long a server is asked without EDNS after it refused it: one stray format error must not
/// switch EDNS off for good.
pub(super) const WITHOUT_EDNS: Duration = Duration::from_secs(600);

/// Questions with EDNS in a row that go unanswered while the ones without are answered, before the
/// server is taken to drop them: a single one is more likely a lost packet.
const UNANSWERED_MAX: u8 = 2;

/// Most servers that are remembered.
const SERVERS_MAX: usize = 64;

/// Most UDP sockets that are held open after their reply. More replies than that go without.
const HELD_MAX: usize = 128;

/// What is remembered of servers.
#[derive(Debug)]
pub struct Servers {
    edns: Mutex<BTreeMap<SocketAddr, Edns>>,
    held: Arc<Semaphore>,
}

/// What speaks against EDNS with one server.
#[derive(Debug, Clone, Copy)]
struct Edns {
    unanswered: u8,
    /// Asked without until then.
    until: Option<Instant>,
}

impl Default for Servers {
    fn default() -> Self {
        Self { edns: Mutex::default(), held: Arc::new(Semaphore::new(HELD_MAX)) }
    }
}

impl Servers {
    /// Whether a server is asked with EDNS.
    #[must_use]
    pub fn takes_edns(&self, server: SocketAddr, now: Instant) -> bool {
        let mut edns = self.edns.lock().unwrap_or_else(PoisonError::into_inner);
        match edns.get(&server).and_then(|known| known.until) {
            Some(until) if now < until => false,
            // The memory has expired: it is tried again, and one more failure is not enough.
            Some(_) => {
                edns.remove(&server);
                true
            }
            None => true,
        }
    }

    /// It answered a question with EDNS.
    pub fn took_edns(&self, server: SocketAddr) {
        self.edns.lock().unwrap_or_else(PoisonError::into_inner).remove(&server);
    }

    /// It called a question with EDNS malformed and answered the one without.
    pub fn refused_edns(&self, server: SocketAddr, now: Instant) {
        self.remember(server, Edns { unanswered: UNANSWERED_MAX, until: Some(now + WITHOUT_EDNS) });
    }

    /// It left a question with EDNS unanswered and answered the one without.
    pub fn left_edns_unanswered(&self, server: SocketAddr, now: Instant) {
        let known = self.edns.lock().unwrap_or_else(PoisonError::into_inner).get(&server).copied();
        let unanswered = known.map_or(0, |known| known.unanswered).saturating_add(1);
        let until = (unanswered >= UNANSWERED_MAX).then_some(now + WITHOUT_EDNS);
        self.remember(server, Edns { unanswered, until });
    }

    /// A place for a socket that is held open; `None`: there are too many.
    #[must_use]
    pub fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.held).try_acquire_owned().ok()
    }

    fn remember(&self, server: SocketAddr, edns: Edns) {
        let mut known = self.edns.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= SERVERS_MAX && !known.contains_key(&server) {
            known.pop_first();
        }
        known.insert(server, edns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[tokio::test]
    async fn a_lost_packet_is_no_refusal_and_a_refusal_is_forgotten() {
        let (servers, server, begin) = (Servers::default(), "192.0.2.53:53".parse().unwrap(), clock::now());
        servers.left_edns_unanswered(server, begin);
        assert!(servers.takes_edns(server, begin), "once is chance");
        servers.took_edns(server);
        servers.left_edns_unanswered(server, begin);
        assert!(servers.takes_edns(server, begin), "not twice in a row");
        servers.left_edns_unanswered(server, begin);
        assert!(!servers.takes_edns(server, begin));
        assert!(servers.takes_edns(server, begin + WITHOUT_EDNS));
        servers.left_edns_unanswered(server, begin + WITHOUT_EDNS);
        assert!(servers.takes_edns(server, begin + WITHOUT_EDNS), "it begins anew");
    }

    #[tokio::test]
    async fn no_more_servers_are_remembered_than_the_limit() {
        let (servers, begin) = (Servers::default(), clock::now());
        for port in 0..1000 {
            servers.refused_edns(SocketAddr::from(([192, 0, 2, 53], port)), begin);
        }
        assert_eq!(servers.edns.lock().unwrap().len(), SERVERS_MAX);
    }
}
