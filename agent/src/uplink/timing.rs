//! How patient the uplink is. One place, so that what belongs together is seen together, and so
//! that a test need not wait as long as an agent does.

use std::time::Duration;

/// Waits and limits of the uplink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// HTTP/2 pings, also while nothing is said.
    pub keepalive_every: Duration,
    /// Longest wait for their answer: a dead connection is noticed within these two together.
    pub keepalive_wait: Duration,
    /// Questions over the stream itself.
    pub ask_every: Duration,
    /// Longest silence after one: a dead stream is noticed within these two together.
    pub silence_max: Duration,
    /// First limit of the random wait before the next try.
    pub wait_min: Duration,
    /// Highest limit. Even after hours a coordinator that returns has its agents back within this,
    /// spread over it; for a fleet that is too large for that it can ask for more.
    pub wait_max: Duration,
    /// Longest wait for TLS: two round trips, and a slow machine's signature.
    pub tls_max: Duration,
    /// Longest wait for the coordinator's first message.
    pub greeting_max: Duration,
    /// The identity's files are looked at so often while a stream stands.
    pub reload_every: Duration,
    /// A stream is opened anew with a renewed certificate within this: the fleet's certificates may
    /// be renewed all at once.
    pub renew_max: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            keepalive_every: Duration::from_secs(5),
            keepalive_wait: Duration::from_secs(5),
            ask_every: Duration::from_secs(5),
            silence_max: Duration::from_secs(10),
            wait_min: Duration::from_millis(500),
            wait_max: Duration::from_secs(5),
            tls_max: Duration::from_secs(8),
            greeting_max: Duration::from_secs(10),
            reload_every: Duration::from_secs(30),
            renew_max: Duration::from_secs(600),
        }
    }
}
