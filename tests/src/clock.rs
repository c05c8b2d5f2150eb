//! The one place of this crate that reads a clock: the monotonic one. Wall-clock times come from the database's rows.

use std::time::Instant;

/// Now, by the monotonic clock.
#[expect(clippy::disallowed_methods, reason = "this is the file that may; everybody else asks here")]
#[must_use]
pub fn now() -> Instant {
    Instant::now()
}
