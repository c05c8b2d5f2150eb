//! Notices that another machine has the same identity: each takes the other's place in turns.

use std::time::Duration;

use crate::clock::{Instant, now};

/// One such event can be a quirk of the way; so many within [`WINDOW`] are none.
const EVENTS: usize = 2;

/// Events count for this long.
const WINDOW: Duration = Duration::from_secs(3600);

/// Streams of ours that another stream took the place of.
#[derive(Debug, Default)]
pub struct Clones {
    events: Vec<Instant>,
}

impl Clones {
    /// The coordinator ended our stream because another one of this identity began. Whether that
    /// shows another machine by now.
    pub fn replaced(&mut self) -> bool {
        let now = now();
        self.events.retain(|at| now.saturating_duration_since(*at) < WINDOW);
        // What is beyond the number that counts need not be kept.
        self.events.truncate(EVENTS);
        self.events.push(now);
        self.events.len() >= EVENTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_second_time_within_an_hour_is_no_accident() {
        let mut clones = Clones::default();
        assert!(!clones.replaced());
        tokio::time::advance(WINDOW).await;
        assert!(!clones.replaced());
        tokio::time::advance(WINDOW / 2).await;
        assert!(clones.replaced());
        assert!(clones.replaced());
    }
}
