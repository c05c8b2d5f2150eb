//! The UDP socket after the first reply: whoever injects answers is seldom the only one to answer.

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout_at;

use super::datagram::Exchange;
use crate::clock::Instant;
use crate::measured::OddReply;
use crate::probe::message::Reply;

/// Datagrams that are looked at after the first reply; a flood ends the hold.
const LATE_MAX: usize = 64;

/// A socket that goes on listening.
#[derive(Debug)]
pub struct Hold {
    pub(super) exchange: Exchange,
    /// The reply that decided.
    pub(super) accepted: Reply,
    /// Which of our questions it answered.
    pub(super) place: usize,
    /// When it ends.
    pub(super) until: Instant,
    /// Among the sockets that may be held.
    pub(super) _held: OwnedSemaphorePermit,
}

impl Hold {
    /// Waits to the end and hands each odd datagram to `note`.
    pub async fn listen(&self, mut note: impl FnMut(OddReply)) {
        for _ in 0..LATE_MAX {
            match timeout_at(self.until, self.exchange.arrival()).await {
                Ok(Ok(arrived)) => {
                    if let Some(odd) = self.exchange.late(arrived, &self.accepted, self.place) {
                        note(odd);
                    }
                }
                // An ICMP error that comes after the answer says nothing of it.
                Ok(Err(_)) => {}
                Err(_) => return,
            }
        }
    }
}
