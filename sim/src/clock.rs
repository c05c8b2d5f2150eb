//! The only place of the program that reads a clock: how fast it is. No run depends on it.

use std::time::Instant;

/// Seconds since something began.
#[derive(Debug)]
pub(crate) struct Stopwatch(Instant);

#[expect(clippy::disallowed_methods, reason = "this file is the one that may read clocks")]
impl Stopwatch {
    /// Begins now.
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// So many seconds ago.
    pub(crate) fn seconds(&self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }
}
