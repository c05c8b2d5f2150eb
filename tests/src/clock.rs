//! The one place of this crate that reads clocks. The demo takes wall-clock times from the database's rows.

use std::time::Instant;

/// Now, by the monotonic clock.
#[expect(clippy::disallowed_methods, reason = "this is the file that may; everybody else asks here")]
#[must_use]
pub fn now() -> Instant {
    Instant::now()
}

/// Milliseconds since 1970 by the wall clock: only to compare with times that another process of this machine reports.
#[expect(clippy::disallowed_methods, reason = "as above")]
#[must_use]
pub fn unix_ms() -> f64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs_f64() * 1000.0
}
