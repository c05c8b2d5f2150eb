//! Pins on an Unbound through its control socket.
//!
//! **What a pin is.** `local_data NAME. TTL IN A ADDRESS` for each address. It beats the cache at once
//! in every thread. Unbound makes a `transparent` local zone of that name for it, on purpose left so:
//! names below are not affected, and **every other type of the name becomes NODATA**. That is wanted:
//! an AAAA or HTTPS answer let through would lead clients past the pin to the addresses that do not
//! work. The price is that MX and TXT of a pinned name are not seen at the branch either.
//!
//! **Whose data.** Before writing, both lists of the server are read. A name that holds other local
//! data, or that lies in a local zone of any type but `transparent`, is the operator's and is left
//! alone. A part of the change's own addresses with the change's own TTL is our own interrupted write
//! and is completed (pin) or removed (unpin).
//!
//! **Taking it away** removes the data, then the empty zone, then the name from the cache: else the
//! answer cached before the pin returns. The zone stays when others have data below the name in it, or
//! when a zone above it would then take the name over.
//!
//! **What it does not do.** Nothing survives a reload or restart of Unbound, and nothing expires: who
//! pins must read again and re-apply. Views are not listed by Unbound, so clients of a view without
//! `view-first` do not see a pin. Control over TCP with certificates is not spoken: a unix socket
//! (`control-use-cert: no`) is, by the same machine's agent.

use std::path::PathBuf;
use std::time::Duration;

use parallax_decide::change::{Change, Standing};
use parallax_decide::names::{Addresses, DomainName};
use tokio::sync::Mutex;

use crate::{Applied, Driver, DriverError, Reading, Refusal};
use control::{Control, Failure};
use local::Local;

mod control;
mod local;

/// Where an Unbound is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnboundConfig {
    /// Its control socket (`control-interface: "/path"`, `control-use-cert: no`).
    pub control: PathBuf,
    /// Longest wait for one control command, connecting included. One apply is at most four listings,
    /// one command an address and two more; the first command that waits in vain ends it.
    pub timeout: Duration,
}

/// An Unbound on this machine.
#[derive(Debug)]
pub struct Unbound {
    control: Control,
    /// One change at a time: compare and set are separate commands.
    turn: Mutex<()>,
}

impl Unbound {
    /// A driver; connects only when asked something.
    #[must_use]
    pub fn new(config: UnboundConfig) -> Self {
        Self { control: Control::new(config.control, config.timeout), turn: Mutex::new(()) }
    }
}

impl Driver for Unbound {
    async fn read(&self, name: &DomainName) -> Result<Reading, DriverError> {
        Ok(self.local(name).await?.reading())
    }

    async fn apply(&self, change: &Change) -> Result<Applied, DriverError> {
        let _turn = self.turn.lock().await;
        match change {
            Change::Pin { name, addresses, ttl_s } => self.pin(change, name, addresses, *ttl_s).await,
            Change::Unpin { name, expects, ttl_s } => self.unpin(change, name, expects, *ttl_s).await,
            Change::Repoint { .. } => Err(DriverError::Unsupported {
                driver: "unbound",
                why: "a resolver pins and unpins names; records are repointed at their authoritative server".to_owned(),
            }),
        }
    }
}

impl Unbound {
    async fn pin(
        &self,
        change: &Change,
        name: &DomainName,
        addresses: &Addresses,
        ttl_s: u32,
    ) -> Result<Applied, DriverError> {
        let before = self.local(name).await?;
        let missing = match before.standing(change, addresses, ttl_s) {
            Standing::AlreadySet => return Ok(Applied::Already),
            Standing::Foreign => return Err(DriverError::Conflict { found: before.reading() }),
            Standing::AsExpected => addresses.iter().filter(|address| !before.holds(*address)),
        };
        for (written, address) in missing.enumerate() {
            let rtype = if address.is_ipv4() { "A" } else { "AAAA" };
            let sent = self.control.command(&format!("local_data {name}. {ttl_s} IN {rtype} {address}")).await;
            if let Err(failure) = sent {
                if written == 0 && failure.nothing_done() {
                    return Err(self.without_write(failure));
                }
                return self.settle(change, name, &failure.to_string()).await;
            }
        }
        self.settle(change, name, "acknowledged").await
    }

    async fn unpin(
        &self,
        change: &Change,
        name: &DomainName,
        expects: &Addresses,
        ttl_s: u32,
    ) -> Result<Applied, DriverError> {
        let mut before = self.local(name).await?;
        let holds_pin = match before.standing(change, expects, ttl_s) {
            Standing::AlreadySet => false,
            Standing::Foreign => return Err(DriverError::Conflict { found: before.reading() }),
            Standing::AsExpected => true,
        };
        if holds_pin && let Err(failure) = self.control.command(&format!("local_data_remove {name}.")).await {
            if failure.nothing_done() {
                return Err(self.without_write(failure));
            }
            let why = failure.to_string();
            let found = self.local(name).await.map_err(|error| self.uncertain(&format!("{why}; then {error}")))?;
            if found.reading() != Reading::Nothing {
                return Err(self.uncertain(&format!("{why}; it holds {}", found.reading())));
            }
            before = found;
        }
        let empty_zone = before.zone_is_removable();
        if empty_zone {
            let removed = self.control.command(&format!("local_zone_remove {name}.")).await;
            removed.map_err(|failure| self.uncertain(&format!("unpinned, but its empty zone stays: {failure}")))?;
        }
        // Also when there was no pin: an earlier call may have been cut off just before its flush.
        let flushed = self.control.command(&format!("flush {name}.")).await;
        flushed.map_err(|failure| self.uncertain(&format!("unpinned, but the cache is not flushed: {failure}")))?;
        if !holds_pin && !empty_zone {
            return Ok(Applied::Already);
        }
        self.settle(change, name, "acknowledged").await
    }

    /// Decides a write by reading back: `so_far` is what is known without that.
    async fn settle(&self, change: &Change, name: &DomainName, so_far: &str) -> Result<Applied, DriverError> {
        let found = match self.local(name).await {
            Ok(local) => local.reading(),
            Err(error) => return Err(self.uncertain(&format!("{so_far}; reading back: {error}"))),
        };
        match found.standing(change) {
            Standing::AlreadySet => Ok(Applied::Written),
            // Some of our own commands may have worked: only the caller, reading again, can tell.
            Standing::AsExpected | Standing::Foreign => {
                Err(self.uncertain(&format!("{so_far}; reading back shows {found}")))
            }
        }
    }

    /// The local data and zones that concern `name`.
    async fn local(&self, name: &DomainName) -> Result<Local, DriverError> {
        let mut local = Local::new(name);
        // In this order: a server that dies during the long list is noticed by the second one, and a
        // cut list is not taken for the whole.
        let data = self.control.list("list_local_data", |line| local.data_line(line)).await;
        data.map_err(|failure| self.without_write(failure))?;
        let zones = self.control.list("list_local_zones", |line| local.zone_line(line)).await;
        zones.map_err(|failure| self.without_write(failure))?;
        Ok(local)
    }

    /// The error for a failure before anything was written.
    fn without_write(&self, failure: Failure) -> DriverError {
        let server = self.control.to_string();
        match failure {
            Failure::NotSent(why) | Failure::Lost(why) => DriverError::Unreachable { server, why },
            Failure::Denied(why) => DriverError::Refused { server, reason: Refusal::Permission { why } },
            Failure::Error(reply) => DriverError::Refused { server, reason: Refusal::Command { reply } },
            Failure::Garbage(what) => DriverError::Unexpected { server, what },
        }
    }

    fn uncertain(&self, why: &str) -> DriverError {
        DriverError::Uncertain { server: self.control.to_string(), why: why.to_owned() }
    }
}
