//! What the coordinator asks for, and what became of it.

use std::net::IpAddr;
use std::time::Duration;

use parallax_decide::names::{Addresses, DomainName};

/// What the coordinator asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// The plan behind it.
    pub plan_id: u64,
    /// Lease epoch of the coordinator that made the plan.
    pub epoch: u64,
    /// What to do.
    pub what: What,
}

/// What to do with a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Serve these addresses for it.
    Pin {
        /// The name.
        name: DomainName,
        /// The addresses.
        addresses: Addresses,
        /// TTL to serve them with, in seconds.
        ttl_s: u32,
        /// How long without being renewed.
        life: Duration,
    },
    /// Let the native answer come back.
    Unpin {
        /// The name.
        name: DomainName,
        /// What the pin is expected to hold.
        expects: Addresses,
    },
    /// Say what is there.
    Read {
        /// The name.
        name: DomainName,
    },
}

/// What became of an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The task.
    pub task_id: u64,
    /// The plan.
    pub plan_id: u64,
    /// What became of it.
    pub outcome: Outcome,
    /// What the driver found for the name in the end.
    pub found: Vec<IpAddr>,
    /// For people.
    pub detail: String,
}

/// What became of an order, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Written.
    Applied,
    /// As wanted already.
    Already,
    /// Somebody else's data; nothing was written.
    Conflict,
    /// The owner or the epoch forbids it.
    Refused,
    /// Nothing was written.
    Failed,
    /// Perhaps written.
    Uncertain,
    /// It was read.
    Read,
}
