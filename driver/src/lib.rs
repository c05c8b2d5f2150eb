//! Drivers: how one vendor's DNS is read and changed.
//!
//! In the order of use: [`Driver`] is what every vendor can do, [`Reading`] what it found,
//! [`Applied`] what a change did, [`DriverError`] why it did not. One vendor is one module:
#![cfg_attr(feature = "unbound", doc = "[`unbound`] pins names on a branch's own resolver,")]
#![cfg_attr(feature = "rfc2136", doc = "[`rfc2136`] repoints records at an authoritative server.")]
//!
//! The rules every driver keeps, and which `tests/contract.rs` runs against real servers:
//!
//! * A [`Change`] is complete; a driver chooses nothing. It is compared with what is there, written
//!   only when that is what the change expects, and read back. Applying it again changes nothing. Sets
//!   are compared by their addresses; a TTL is written, never compared.
//! * What is found but cannot be a set of ours is [`Reading::Foreign`]: never "nothing", never overwritten.
//! * A write without a verdict is read back once, and stays [`DriverError::Uncertain`] when that does
//!   not settle it. Nothing is ever retried in here: the caller knows whether it still wants the change.
//! * Every wait has a deadline and every reply a limit in bytes.
//!
//! A sixth driver is one file beside these: implement [`Driver`], add a feature, add a story to the
//! contract tests. Absent on purpose: policy, retries, logs and the wall clock (TSIG is given one).

use std::fmt;
use std::future::Future;

use parallax_decide::change::{Change, Standing};
use parallax_decide::names::{Addresses, DomainName};

pub use error::{DriverError, Refusal};

pub mod error;
#[cfg(feature = "rfc2136")]
pub mod rfc2136;
#[cfg(feature = "unbound")]
pub mod unbound;

/// Reads and changes the address records of names at one vendor.
///
/// Undo is `apply(&change.undo())`. Dropping a running `apply` is like losing its connection: the
/// change was perhaps made.
pub trait Driver {
    /// What the vendor holds for `name` now.
    ///
    /// # Errors
    /// When it cannot be learnt. An error never means "nothing is there".
    fn read(&self, name: &DomainName) -> impl Future<Output = Result<Reading, DriverError>> + Send;

    /// Makes `change` if what is there is what it expects, and proves it by reading back.
    ///
    /// # Errors
    /// [`DriverError::Uncertain`]: perhaps made. Every other error: not made by this call.
    fn apply(&self, change: &Change) -> impl Future<Output = Result<Applied, DriverError>> + Send;
}

/// What a driver found for a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// No address records and nothing in their way.
    Nothing,
    /// Exactly this address set.
    Set {
        /// The whole set.
        addresses: Addresses,
        /// TTL of its records in seconds; the longest when they differ.
        ttl_s: u32,
    },
    /// Something no change of ours could have left: a special-purpose address, another record type,
    /// too many addresses, an operator's local zone.
    Foreign {
        /// What it is, for people; at most a few hundred characters.
        what: String,
    },
}

impl Reading {
    /// How this compares with a change. Foreign content never passes for "nothing".
    #[must_use]
    pub fn standing(&self, change: &Change) -> Standing {
        match self {
            Self::Nothing => change.standing(None),
            Self::Set { addresses, .. } => change.standing(Some(addresses)),
            Self::Foreign { .. } => Standing::Foreign,
        }
    }
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::Set { addresses, ttl_s } => write!(f, "{addresses} (TTL {ttl_s} s)"),
            Self::Foreign { what } => f.write_str(what),
        }
    }
}

/// What applying a change did. Either way it was read back and stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// It was written.
    Written,
    /// It stood already: nothing was written.
    Already,
}
