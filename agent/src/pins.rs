//! Remedies held at this place: names pinned on its own resolver.
//!
//! A pin is journalled on disk before it is written, so that nothing we put there can be forgotten.
//! From then on it is ours to keep and to remove: it is read back every few seconds, written again
//! when the resolver lost it (a restart), and taken away when it expires. When somebody else's data
//! is found in its place we yield: it leaves the journal and is never fought over.
//!
//! ```text
//!            journalled            read back: missing -> written again
//!  (nothing) ----------> held ---------------------------------------> held
//!                          |  expired, or told to unpin      foreign data found
//!                          v                                        |
//!                       leaving --- taken away ---> (nothing) <-----+ yielded
//! ```
//!
//! The coordinator's epoch fences: the highest one seen is kept in the same file, and a lower one
//! is refused. Expiry counts on the monotonic clock; across restarts the wall clock bridges the
//! gap, and can never make a pin live longer than its whole life from the restart on.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parallax_decide::change::Change;
use parallax_decide::names::{Addresses, DomainName};
use parallax_driver::{Applied, Driver, DriverError, Reading};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio::time::timeout_at;

use crate::clock::{self, Instant, now};
use crate::spool::disk::{read_checked, write_checked};

pub use order::{Order, Outcome, Report, What};

mod keeping;
pub mod order;

/// Name of the journal in the state folder.
const FILE: &str = "pins";

/// Most pins held at once: more is no remedy but a takeover.
pub const PINS_MAX: usize = 64;

/// Longest life of a pin that is not renewed.
pub const LIFE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// The pins held here.
#[derive(Debug)]
pub struct Pins<D> {
    driver: D,
    path: PathBuf,
    journal: Mutex<Journal>,
}

/// What is on disk.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Journal {
    /// Highest epoch seen.
    epoch: u64,
    pins: BTreeMap<DomainName, Held>,
}

/// How many pins an earlier run left standing: without a driver nobody renews them or takes them away.
#[must_use]
pub fn left_standing(state: &Path) -> usize {
    read_journal(&state.join(FILE)).pins.len()
}

/// The journal of the last run. One that cannot be read ends nothing: measuring goes on, the file is set aside as it
/// is, and the log says what to look at. What was pinned then counts as the owner's own data and is left alone.
fn read_journal(path: &Path) -> Journal {
    let read = read_checked(path).and_then(|bytes| match bytes {
        None => Ok(Journal::default()),
        Some(bytes) => serde_json::from_slice(&bytes).map_err(std::io::Error::from),
    });
    read.unwrap_or_else(|error| {
        let aside = path.with_file_name(format!("{FILE}.damaged-{}", clock::unix_ms()));
        let kept = std::fs::rename(path, &aside);
        let file = if kept.is_ok() { aside.as_path() } else { path };
        tracing::error!(
            file = %file.display(), %error, set_aside = kept.is_ok(),
            "the journal of pins cannot be read and a new one is begun; what was pinned here may still stand and nobody takes it away: look at the resolver's local data, remove what was pinned, then delete the file"
        );
        Journal::default()
    })
}

/// One pin of ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Held {
    addresses: Addresses,
    ttl_s: u32,
    plan_id: u64,
    /// End of its life by the wall clock, for after a restart.
    expires_unix_ms: u64,
    /// Its whole life.
    life_ms: u64,
    /// To be taken away at the next occasion.
    leaving: bool,
    /// End of its life by the monotonic clock of this run.
    #[serde(skip, default = "clock::now")]
    expires: Instant,
}

impl Held {
    fn pin(&self, name: &DomainName) -> Change {
        Change::Pin { name: name.clone(), addresses: self.addresses.clone(), ttl_s: self.ttl_s }
    }
}

impl<D: Driver> Pins<D> {
    /// Opens the journal of the last run; one that cannot be read is set aside.
    pub fn open(state: &Path, driver: D) -> Self {
        let path = state.join(FILE);
        let mut journal = read_journal(&path);
        let unix_ms = clock::unix_ms();
        for held in journal.pins.values_mut() {
            let life_ms = held.life_ms.min(clock::millis(LIFE_MAX));
            let left_ms = held.expires_unix_ms.saturating_sub(unix_ms).min(life_ms);
            held.expires = now() + Duration::from_millis(left_ms);
        }
        Self { driver, path, journal: Mutex::new(journal) }
    }

    /// Carries out an order before the deadline.
    pub async fn change(&self, task_id: u64, order: Order, deadline: Instant) -> Report {
        let plan_id = order.plan_id;
        let done = match timeout_at(deadline, self.journal.lock()).await {
            Ok(mut journal) => self.ordered(&mut journal, order, deadline).await,
            Err(_) => {
                Done::new(Outcome::Failed, "its deadline passed while another change was made; nothing was written")
            }
        };
        Report { task_id, plan_id, outcome: done.outcome, found: done.found, detail: done.detail }
    }

    async fn ordered(&self, journal: &mut Journal, order: Order, deadline: Instant) -> Done {
        if order.epoch < journal.epoch {
            let (given, seen) = (order.epoch, journal.epoch);
            let why =
                format!("epoch {given} is older than {seen}, which this agent has seen; another coordinator leads now");
            return Done::new(Outcome::Refused, why);
        }
        if order.epoch > journal.epoch {
            let before = std::mem::replace(&mut journal.epoch, order.epoch);
            if let Err(done) = self.save(journal) {
                journal.epoch = before;
                return done;
            }
        }
        match order.what {
            What::Read { name } => match self.read(&name, deadline).await {
                // What is no set of ours must not look like nothing.
                Ok(reading @ Reading::Foreign { .. }) => Done::new(Outcome::Conflict, reading.to_string()),
                Ok(reading) => Done { found: addresses(&reading), ..Done::new(Outcome::Read, reading.to_string()) },
                Err(done) => done,
            },
            What::Pin { name, addresses, ttl_s, life } => {
                let life = life.min(LIFE_MAX);
                let life_ms = clock::millis(life);
                let held = Held {
                    addresses,
                    ttl_s,
                    plan_id: order.plan_id,
                    expires_unix_ms: clock::unix_ms().saturating_add(life_ms),
                    life_ms,
                    leaving: false,
                    expires: now() + life,
                };
                self.pin(journal, name, held, deadline).await
            }
            What::Unpin { name, expects } => self.unpin(journal, name, expects, deadline).await,
        }
    }

    async fn pin(&self, journal: &mut Journal, name: DomainName, held: Held, deadline: Instant) -> Done {
        let reading = match self.read(&name, deadline).await {
            Ok(reading) => reading,
            Err(done) => return done,
        };
        let ours = journal.pins.get(&name).is_some_and(|earlier| earlier.addresses == held.addresses);
        let stands = matches!(&reading, Reading::Set { addresses, .. } if *addresses == held.addresses);
        if stands && !ours {
            // Not written by us, so it is not ours to expire or to take away later.
            let detail = "the resolver's own local data says the same already; it is left to its owner";
            return Done { found: addresses(&reading), ..Done::new(Outcome::Already, detail) };
        }
        if !ours && reading != Reading::Nothing {
            let detail = match journal.pins.get(&name) {
                Some(earlier) => {
                    format!("plan {} pinned it to {}; take that away first", earlier.plan_id, earlier.addresses)
                }
                None => format!("the name holds {reading}, which is not ours"),
            };
            return Done { found: addresses(&reading), ..Done::new(Outcome::Conflict, detail) };
        }
        if !ours && journal.pins.len() >= PINS_MAX {
            return Done::new(Outcome::Refused, format!("{PINS_MAX} names are pinned here already"));
        }
        // On disk before on the resolver. A renewal is kept by the same step.
        let change = held.pin(&name);
        let before = journal.pins.insert(name.clone(), held);
        if let Err(done) = self.save(journal) {
            restore(journal, &name, before);
            return done;
        }
        if stands {
            return Done {
                found: addresses(&reading),
                ..Done::new(Outcome::Already, "it stands; its expiry was renewed")
            };
        }
        let done = self.apply(&change, deadline).await;
        match done.outcome {
            // Perhaps written: the journal keeps it, and reading back settles it.
            Outcome::Applied | Outcome::Already | Outcome::Uncertain => {}
            Outcome::Conflict | Outcome::Refused | Outcome::Failed | Outcome::Read => {
                restore(journal, &name, before);
                self.save_or_log(journal);
            }
        }
        done
    }

    async fn unpin(&self, journal: &mut Journal, name: DomainName, expects: Addresses, deadline: Instant) -> Done {
        let ttl_s = match journal.pins.get_mut(&name).filter(|held| held.addresses == expects) {
            Some(held) => {
                // From here on it is no longer written again, whatever happens to this call.
                held.leaving = true;
                held.ttl_s
            }
            None => return self.not_ours(&name, deadline).await,
        };
        if let Err(done) = self.save(journal) {
            return done;
        }
        let done = self.apply(&Change::Unpin { name: name.clone(), expects, ttl_s }, deadline).await;
        match done.outcome {
            Outcome::Applied | Outcome::Already | Outcome::Conflict => {
                if journal.pins.remove(&name).is_some() {
                    self.save_or_log(journal);
                }
            }
            Outcome::Uncertain | Outcome::Failed | Outcome::Refused | Outcome::Read => {}
        }
        done
    }

    /// What to say of an unpin for a name that the journal does not hold: the owner's own data is
    /// never taken away, whatever it says.
    async fn not_ours(&self, name: &DomainName, deadline: Instant) -> Done {
        match self.read(name, deadline).await {
            Ok(Reading::Nothing) => Done::new(Outcome::Already, "nothing is pinned"),
            Ok(reading) => {
                let detail = format!("the name holds {reading}, which this agent did not put there; it is left alone");
                Done { found: addresses(&reading), ..Done::new(Outcome::Conflict, detail) }
            }
            Err(done) => done,
        }
    }

    async fn read(&self, name: &DomainName, deadline: Instant) -> Result<Reading, Done> {
        match timeout_at(deadline, self.driver.read(name)).await {
            Ok(Ok(reading)) => Ok(reading),
            Ok(Err(error)) => Err(Done::new(Outcome::Failed, error.to_string())),
            Err(_) => Err(Done::new(Outcome::Failed, "its deadline passed while reading; nothing was written")),
        }
    }

    async fn apply(&self, change: &Change, deadline: Instant) -> Done {
        let done = match timeout_at(deadline, self.driver.apply(change)).await {
            Ok(Ok(Applied::Written)) => Done::new(Outcome::Applied, "written and read back"),
            Ok(Ok(Applied::Already)) => Done::new(Outcome::Already, "it stood already"),
            Ok(Err(error)) => Done::of(&error),
            Err(_) => Done::new(Outcome::Uncertain, "its deadline passed while writing"),
        };
        // The driver has read the result back itself; another look is only for an outcome it left open.
        let found = match done.outcome {
            Outcome::Applied | Outcome::Already => change.sets().map(|set| set.iter().collect()).unwrap_or_default(),
            Outcome::Conflict | Outcome::Refused | Outcome::Failed | Outcome::Uncertain | Outcome::Read => done.found,
        };
        Done { found, ..done }
    }

    fn save(&self, journal: &Journal) -> Result<(), Done> {
        let written = serde_json::to_vec(journal)
            .map_err(std::io::Error::other)
            .and_then(|bytes| write_checked(&self.path, &bytes));
        written.map_err(|error| {
            let why = format!("the journal {} cannot be written ({error}); nothing was changed", self.path.display());
            Done::new(Outcome::Failed, why)
        })
    }

    fn save_or_log(&self, journal: &Journal) {
        if let Err(done) = self.save(journal) {
            // The entry is found again at the next start, and settled then.
            tracing::warn!(why = %done.detail, "the journal of pins is behind");
        }
    }
}

fn restore(journal: &mut Journal, name: &DomainName, before: Option<Held>) {
    match before {
        Some(held) => journal.pins.insert(name.clone(), held),
        None => journal.pins.remove(name),
    };
}

fn addresses(reading: &Reading) -> Vec<IpAddr> {
    match reading {
        Reading::Set { addresses, .. } => addresses.iter().collect(),
        Reading::Nothing | Reading::Foreign { .. } => Vec::new(),
    }
}

/// How an order ended.
struct Done {
    outcome: Outcome,
    found: Vec<IpAddr>,
    detail: String,
}

impl Done {
    fn new(outcome: Outcome, detail: impl Into<String>) -> Self {
        Self { outcome, found: Vec::new(), detail: detail.into() }
    }

    fn of(error: &DriverError) -> Self {
        let (outcome, found) = match error {
            DriverError::Uncertain { .. } => (Outcome::Uncertain, Vec::new()),
            DriverError::Conflict { found } => (Outcome::Conflict, addresses(found)),
            DriverError::Unreachable { .. }
            | DriverError::Refused { .. }
            | DriverError::Unsupported { .. }
            | DriverError::Unexpected { .. } => (Outcome::Failed, Vec::new()),
        };
        Self { outcome, found, detail: error.to_string() }
    }
}

#[cfg(test)]
mod tests;
