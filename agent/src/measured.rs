//! One measured fact on its way to the spool.

use std::time::Duration;

use parallax_decide::observation::{Fact, Purpose};

/// A fact with its timings.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// What was measured, with exactly one outcome.
    pub fact: Fact,
    /// What is stored besides, for people and for SQL.
    pub details: Details,
    /// Whole duration of the probe.
    pub duration: Duration,
}

/// Timings and remarks of a probe. Zero or none where they do not apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Details {
    /// Time to the first completed TCP handshake.
    pub tcp: Duration,
    /// Time TLS took after TCP.
    pub tls: Duration,
    /// Time from the HTTP request to the whole reply.
    pub http: Duration,
    /// HTTP status where one was received, else 0.
    pub http_status: u16,
    /// Extended DNS error of the reply (RFC 8914).
    pub extended_error: Option<u16>,
    /// AD bit of the reply.
    pub authentic_data: bool,
}

/// What a probe says of its subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// It works.
    Works,
    /// It fails.
    Fails,
    /// Nothing: the agent's own trouble or the owner's policy. Neither a success nor a failure.
    Nothing,
}

/// Why something is measured, and for which task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reason {
    /// Why.
    pub purpose: Purpose,
    /// The task that asked for it; 0: none.
    pub task_id: u64,
}

impl Reason {
    /// The vantage's own schedule.
    pub const SCHEDULED: Self = Self { purpose: Purpose::Scheduled, task_id: 0 };
    /// Burst after a first failure.
    pub const CONFIRM: Self = Self { purpose: Purpose::Confirm, task_id: 0 };
}
