//! What nodes sign next to prove their life: the coordinator's newest nonce.
//!
//! It comes with the answer to each heartbeat, so that this agent knows by its own clock how old it is at most: it was
//! made after the question was sent. An old one is not used: what a node signed then says nothing of now, and the
//! coordinator takes who shows it for a liar.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use parallax_proto::LIFE_NONCE_BYTES;

use crate::clock;

/// How old a nonce may be when a node is asked to sign it: two heartbeats. The coordinator counts a proof for longer
/// (its `AGE_MAX`), so that the way up does not make an honest one look old.
const AGE_MAX: Duration = Duration::from_secs(10);

/// What a node shall sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LifeNonce {
    /// When the coordinator made it, by its clock, in ms since 1970.
    pub issued_ms: u64,
    /// With which of its keys.
    pub maker: Vec<u8>,
    /// The bytes.
    pub nonce: [u8; LIFE_NONCE_BYTES],
}

/// The newest one, shared between the uplink and the probes. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct LifeNonces {
    newest: Arc<Mutex<Option<(LifeNonce, u64)>>>,
}

impl LifeNonces {
    /// It came in answer to what was sent at `sent_ms` by the boot-time clock.
    pub fn heard(&self, nonce: LifeNonce, sent_ms: u64) {
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = Some((nonce, sent_ms));
    }

    /// The newest, unless it is too old.
    #[must_use]
    pub fn fresh(&self) -> Option<LifeNonce> {
        self.fresh_at(clock::boottime_ms())
    }

    fn fresh_at(&self, now_ms: u64) -> Option<LifeNonce> {
        let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let (nonce, sent_ms) = newest.as_ref()?;
        (now_ms.saturating_sub(*sent_ms) <= clock::millis(AGE_MAX)).then(|| nonce.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_nonce_is_not_used() {
        let nonces = LifeNonces::default();
        assert_eq!(nonces.fresh_at(1000), None);
        let nonce = LifeNonce { issued_ms: 7, maker: vec![1; 8], nonce: [2; LIFE_NONCE_BYTES] };
        nonces.clone().heard(nonce.clone(), 1000);
        assert_eq!(nonces.fresh_at(11_000), Some(nonce));
        assert_eq!(nonces.fresh_at(11_001), None);
    }
}
