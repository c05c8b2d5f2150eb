//! The only reader of clocks.
//!
//! Durations and deadlines come from the monotonic clock of the runtime (which a test can move).
//! The age of a stored fact comes from the boot-time clock, which also counts while the machine
//! sleeps: what was measured before a suspension cannot look fresh after it. The wall clock is
//! read for three things only: the phase of the schedule, the expiry of pins across restarts,
//! and the validity times of certificates and signatures.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use tokio::time::Instant;

/// The monotonic clock.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this file is the one that may read clocks")]
pub fn now() -> Instant {
    Instant::now()
}

/// Time since `start` by the monotonic clock.
#[must_use]
pub fn since(start: Instant) -> Duration {
    now().saturating_duration_since(start)
}

/// Milliseconds since the machine's boot, sleep included; 0 when the kernel has no such clock.
#[must_use]
pub fn boottime_ms() -> u64 {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).map_or(0, |t| millis(Duration::from(t)))
}

/// The wall clock: milliseconds since 1970-01-01T00:00:00Z; 0 when it stands before that.
#[must_use]
pub fn unix_ms() -> u64 {
    millis(unix())
}

/// A duration in whole milliseconds.
#[must_use]
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A duration in whole microseconds.
#[must_use]
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[expect(clippy::disallowed_methods, reason = "this file is the one that may read clocks")]
fn unix() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The time that certificates are checked against.
#[derive(Debug)]
pub struct CertificateTime;

impl rustls::time_provider::TimeProvider for CertificateTime {
    fn current_time(&self) -> Option<rustls_pki_types::UnixTime> {
        Some(rustls_pki_types::UnixTime::since_unix_epoch(unix()))
    }
}
