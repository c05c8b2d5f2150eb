//! What goes through the hub, in our own words; `ingest` says it in the wire's.

use std::net::IpAddr;
use std::time::Duration;

use parallax_decide::names::{Addresses, DomainName, ResolverName};
use parallax_decide::observation::{Purpose, Target};
use serde::{Deserialize, Serialize};

/// Number of a task, unique across restarts; observations made for it carry it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u64);

/// A request for evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Why it is asked for.
    pub purpose: Purpose,
    /// The agent gives up this long after receipt.
    pub deadline: Duration,
    /// What to measure.
    pub work: Work,
}

/// What to measure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Work {
    /// Probe one address for one target, `repeat` times with `gap` between them.
    Connect {
        /// What the address is tried for.
        target: Target,
        /// The address.
        address: IpAddr,
        /// How many probes, at least one.
        repeat: u32,
        /// Pause between two.
        gap: Duration,
    },
    /// Ask one resolver for one name.
    Resolve {
        /// The name.
        name: DomainName,
        /// The resolver.
        resolver: ResolverName,
        /// Whether to connect to each address of the answer.
        connect: bool,
    },
    /// Find the path to one address of a target.
    Path {
        /// What the address is tried for.
        target: Target,
        /// The address.
        address: IpAddr,
    },
}

/// A change for the agent's local driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeTask {
    /// Plan it belongs to.
    pub plan_id: i64,
    /// Epoch of the lease under which the plan was journalled; agents are told it below the database's generation.
    pub epoch: i64,
    /// The change.
    pub change: LocalChange,
}

/// What the agent's local driver shall do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LocalChange {
    /// Serve these addresses for the name.
    Pin {
        /// Name.
        name: DomainName,
        /// What it shall resolve to.
        addresses: Addresses,
        /// TTL served, in seconds.
        ttl_s: u32,
        /// The agent removes the pin by itself after this long without renewal.
        expires_in: Duration,
    },
    /// Take a pin away.
    Unpin {
        /// Name.
        name: DomainName,
        /// What it is expected to hold.
        expects: Addresses,
    },
    /// Only read what is there.
    Read {
        /// Name.
        name: DomainName,
    },
}

/// What became of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeReport {
    /// How it ended.
    pub outcome: ChangeOutcome,
    /// What the driver found for the name in the end; empty: nothing.
    pub found: Vec<IpAddr>,
    /// For people.
    pub detail: String,
}

/// How a change at a vantage ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChangeOutcome {
    /// Done and read back.
    Applied,
    /// Was so already; nothing was written.
    Already,
    /// Somebody else's data is there; nothing was written.
    Conflict,
    /// The owner's local policy or the epoch forbids it.
    Refused,
    /// The driver failed before writing.
    Failed,
    /// The driver timed out: perhaps applied.
    Uncertain,
    /// Answer to a read.
    Read,
}
