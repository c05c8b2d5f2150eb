//! The streams that stand here, and by which key: what a revocation, a removal or a renaming must find.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use parallax_decide::names::VantageName;
use tokio_util::sync::CancellationToken;

use crate::store::vantage::VantageId;

/// Why a stream is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// The vantage was revoked.
    Revoked,
    /// This key of it was.
    KeyRevoked,
    /// The vantage was removed.
    Removed,
    /// It has another name: the next stream goes by that.
    Renamed,
    /// The configuration lists it no more, and nobody approved it.
    NotListed,
    /// The database went back: its keys may mean other vantages by now, or none.
    WentBack,
}

/// A stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    /// Whose.
    pub vantage: VantageId,
    /// As it was named when the stream began.
    pub name: VantageName,
    /// SHA-256 of the key of its certificate.
    pub key_sha256: [u8; 32],
}

#[derive(Debug)]
struct Entry {
    stream: Stream,
    cut: CancellationToken,
    why: std::sync::Arc<OnceLock<Cut>>,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Standing {
    next: AtomicU64,
    streams: Mutex<BTreeMap<u64, Entry>>,
}

/// A stream's place; left by dropping it.
#[derive(Debug)]
pub struct Place<'a> {
    standing: &'a Standing,
    id: u64,
    /// Ends when the stream must, by [`Standing::cut`] or because the coordinator ends.
    pub cut: CancellationToken,
    why: std::sync::Arc<OnceLock<Cut>>,
}

impl Standing {
    /// Enters a stream, which ends with `coordinator` at the latest.
    pub fn enter(&self, stream: Stream, coordinator: &CancellationToken) -> Place<'_> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (cut, why) = (coordinator.child_token(), std::sync::Arc::default());
        let entry = Entry { stream, cut: cut.clone(), why: std::sync::Arc::clone(&why) };
        lock(&self.streams).insert(id, entry);
        Place { standing: self, id, cut, why }
    }

    /// Ends every stream that `judge` says must end; returns how many.
    pub fn cut(&self, judge: impl Fn(&Stream) -> Option<Cut>) -> usize {
        let mut cut = 0;
        for entry in lock(&self.streams).values() {
            if let Some(why) = judge(&entry.stream) {
                let first = entry.why.set(why).is_ok();
                entry.cut.cancel();
                cut += usize::from(first);
            }
        }
        cut
    }
}

impl Place<'_> {
    /// Why it was cut; none: it was not, and if it must end, then because the coordinator does.
    #[must_use]
    pub fn why(&self) -> Option<Cut> {
        self.why.get().copied()
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        lock(&self.standing.streams).remove(&self.id);
    }
}

/// The map stays consistent even if a holder panicked: each change of it is one call.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_found_by_its_key_while_it_stands_and_is_told_why() {
        let standing = Standing::default();
        let stream = |key: u8| Stream { vantage: VantageId(1), name: "de-fra".parse().unwrap(), key_sha256: [key; 32] };
        let coordinator = CancellationToken::new();
        let (one, other) = (standing.enter(stream(1), &coordinator), standing.enter(stream(2), &coordinator));
        let judge = |stream: &Stream| (stream.key_sha256 == [1; 32]).then_some(Cut::KeyRevoked);
        assert_eq!(standing.cut(judge), 1);
        assert_eq!(standing.cut(judge), 0, "once");
        assert!(one.cut.is_cancelled() && !other.cut.is_cancelled());
        assert_eq!((one.why(), other.why()), (Some(Cut::KeyRevoked), None));
        coordinator.cancel();
        assert!(other.cut.is_cancelled() && other.why().is_none(), "all end with the coordinator");
        drop((one, other));
        assert_eq!(standing.cut(|_| Some(Cut::Removed)), 0);
    }
}
