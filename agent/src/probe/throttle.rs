//! Servers that asked to be left alone for a while (HTTP 429, or 503 with Retry-After): they get no
//! questions until then.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use parallax_decide::names::ResolverName;

use crate::clock::{self, Instant};

/// Shortest and longest pause, whatever the server asks for: it must not be able to blind us for a
/// day, nor be asked again at once.
pub const PAUSE_MIN: Duration = Duration::from_secs(1);
/// See [`PAUSE_MIN`].
pub const PAUSE_MAX: Duration = Duration::from_secs(3600);

/// Pause for a server that only says "too many": two intervals of endpoint checks, as they are by default.
const PAUSE: Duration = Duration::from_secs(60);

/// Resolvers that are left alone.
#[derive(Debug, Default)]
pub struct Throttle {
    until: Mutex<BTreeMap<ResolverName, Instant>>,
}

impl Throttle {
    /// Leaves a resolver alone for as long as it asked, within our bounds.
    pub fn obey(&self, resolver: &ResolverName, asked: Option<Duration>) {
        let pause = asked.unwrap_or(PAUSE).clamp(PAUSE_MIN, PAUSE_MAX);
        let now = clock::now();
        let mut held = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that are over; so there are never more than resolvers.
        held.retain(|_, until| *until > now);
        let until = held.entry(resolver.clone()).or_insert(now);
        *until = (*until).max(now + pause);
        tracing::info!(%resolver, pause_s = pause.as_secs(), "it asks for fewer questions; it gets none for a while");
    }

    /// Until when a resolver is left alone; `None`: it may be asked.
    #[must_use]
    pub fn until(&self, resolver: &ResolverName) -> Option<Instant> {
        let held = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        held.get(resolver).copied().filter(|until| *until > clock::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pause_is_obeyed_within_bounds_and_ends() {
        let (throttle, one, other) = (Throttle::default(), "one".parse().unwrap(), "other".parse().unwrap());
        for (asked, pause) in [
            (Some(Duration::from_secs(120)), Duration::from_secs(120)),
            (Some(Duration::ZERO), PAUSE_MIN),
            (Some(Duration::from_secs(1 << 40)), PAUSE_MAX),
            (None, PAUSE),
        ] {
            throttle.obey(&one, asked);
            assert_eq!(throttle.until(&one), Some(clock::now() + pause), "{asked:?}");
            assert_eq!(throttle.until(&other), None);
            tokio::time::advance(pause).await;
            assert_eq!(throttle.until(&one), None);
        }
        throttle.obey(&one, Some(Duration::from_secs(100)));
        throttle.obey(&one, Some(Duration::from_secs(10)));
        assert_eq!(throttle.until(&one), Some(clock::now() + Duration::from_secs(100)), "the longer one holds");
    }
}
