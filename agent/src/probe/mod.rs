//! The measurements, one file a kind. Each returns facts with exactly one outcome, has a deadline
//! for every stage, and is cancelled by dropping its future.
//!
//! [`connection`] tries an address, [`tried`] one for a target; [`http_check`] asks over HTTP what
//! such a target is asked. [`control`] tries the vantage itself, with the question of [`captive`].
//! [`resolution`] asks a resolver a question by [`ask`], and [`validation`] may check what it said;
//! [`endpoint`] asks a resolver's endpoint cold and names the stage that failed; both put questions to a [`channel`] that speaks [`plain`],
//! [`dot`] or [`doh`]. [`throttle`] knows who wants to be left alone, [`worked`] who has ever worked
//! from here. [`message`] builds and reads DNS messages, [`live`] finds the live resolver's servers, [`trouble`] names kernel errors,
//! [`icmp`] what routers and hosts say; [`path`] finds the way to an address by them.
//!
//! Endpoint checks and the tries of addresses open a connection each, on purpose: handshakes are what
//! they measure. Resolutions over TLS use the [`pool`]. [`bootstrap`] finds endpoints that are not pinned.

pub mod ask;
pub mod bootstrap;
pub mod captive;
pub mod channel;
pub mod connection;
pub mod control;
pub mod doh;
pub mod dot;
pub mod endpoint;
pub mod http_check;
pub mod icmp;
pub mod life;
pub mod live;
pub mod message;
pub mod path;
pub mod plain;
pub mod pool;
pub mod remark;
pub mod resolution;
pub mod throttle;
pub mod tried;
pub mod trouble;
pub mod validation;
pub mod worked;

use std::time::Duration;

/// Limits of a probe's stages, from the assignment's schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Start of each own connection attempt, counted from the probe's start; the first is zero.
    pub attempt_at: Vec<Duration>,
    /// End of the TCP phase, counted from the probe's start.
    pub connect: Duration,
    /// Longest TLS handshake.
    pub tls: Duration,
    /// Longest wait for the HTTP answer.
    pub http: Duration,
    /// Longest whole exchange with a resolver.
    pub resolve: Duration,
    /// How long a UDP socket stays open after the first reply, for a second, different one.
    pub udp_hold: Duration,
}

impl Limits {
    /// Where no coordinator computes any, what it would by default; and a short wait for a second, forged
    /// reply.
    #[must_use]
    pub fn by_hand() -> Self {
        let ms = Duration::from_millis;
        Self {
            attempt_at: vec![ms(0), ms(500), ms(1000), ms(1500)],
            connect: ms(3000),
            tls: ms(4000),
            http: ms(3000),
            resolve: ms(5000),
            udp_hold: ms(500),
        }
    }
}

#[cfg(test)]
pub(crate) mod testing;
