//! What DNS held for the names we may change when it was last looked at. A server that hangs leaves
//! an old reading, which soon counts as unknown; it holds nobody up.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use parallax_decide::change::{Change, Standing};
use parallax_decide::names::{Addresses, DomainName, DriverName, ServiceName, VantageName};
use parallax_decide::plan::{Plan, Record};
use parallax_decide::time::Timestamp;
use parallax_decide::topology::Topology;
use serde_json::{Value, json};

use super::errands::Errands;

/// A record is read this often while nothing is going on.
const READ_EVERY: Duration = Duration::from_secs(5);

/// And this often while an incident about it is open or a change of it under way.
const READ_EVERY_HOT: Duration = Duration::from_secs(1);

/// A reading older than this tells nothing any more.
const READING_AGE_MAX: Duration = Duration::from_secs(15);

/// A name at the place where it can be changed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spot {
    /// Who reads and changes it.
    pub driver: DriverName,
    /// Whose agent has that driver; `None`: the coordinator itself.
    pub vantage: Option<VantageName>,
    /// The name.
    pub name: DomainName,
}

impl Spot {
    /// Where a plan's change is made.
    pub(crate) fn of(plan: &Plan) -> Self {
        Self { driver: plan.driver.clone(), vantage: plan.vantage.clone(), name: plan.change.name().clone() }
    }
}

/// What was found there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// No address and nothing in the way.
    Nothing,
    /// Exactly these addresses.
    Set(Addresses),
    /// Something no change of ours could have left.
    Foreign {
        /// For people.
        what: String,
        /// Addresses among it, where known.
        addresses: BTreeSet<IpAddr>,
    },
    /// It could not be learnt.
    Unknown {
        /// For people.
        why: String,
    },
}

impl Found {
    /// How it compares with a change; `None`: unknown.
    pub(crate) fn standing(&self, change: &Change) -> Option<Standing> {
        match self {
            Self::Nothing => Some(change.standing(None)),
            Self::Set(addresses) => Some(change.standing(Some(addresses))),
            Self::Foreign { .. } => Some(Standing::Foreign),
            Self::Unknown { .. } => None,
        }
    }

    /// As the guards want it: `None` where nothing is there.
    pub(crate) fn record(&self) -> Option<Record> {
        match self {
            Self::Nothing => None,
            Self::Set(addresses) => Some(Record::Found(addresses.clone())),
            Self::Foreign { addresses, .. } => Some(Record::Strange(addresses.clone())),
            Self::Unknown { .. } => Some(Record::Unknown),
        }
    }

    /// As journals want it.
    pub(crate) fn detail(&self) -> Value {
        match self {
            Self::Nothing => json!({ "found": [] }),
            Self::Set(addresses) => json!({ "found": addresses }),
            Self::Foreign { what, addresses } => json!({ "found": addresses, "foreign": what }),
            Self::Unknown { why } => json!({ "unknown": why }),
        }
    }
}

#[derive(Debug, Default)]
struct Last {
    found: Option<(Found, Timestamp)>,
    looked_at: Option<Timestamp>,
    failing: bool,
}

/// The newest reading of every spot.
#[derive(Debug, Default)]
pub(crate) struct Readings {
    last: BTreeMap<Spot, Last>,
}

impl Readings {
    /// Takes in the result of a look that began at `asked_at`.
    pub(crate) fn note(&mut self, spot: &Spot, found: Found, asked_at: Timestamp, at: Timestamp) {
        let last = self.last.entry(spot.clone()).or_default();
        // A look that began before our own write ended may show the old world.
        if last.found.as_ref().is_some_and(|(_, known_at)| *known_at > asked_at) {
            return;
        }
        match (&found, last.failing) {
            (Found::Unknown { why }, false) => {
                tracing::warn!(name = %spot.name, driver = %spot.driver, vantage = ?spot.vantage, %why, "cannot read the name's records; trying again");
                last.failing = true;
            }
            (Found::Nothing | Found::Set(_) | Found::Foreign { .. }, true) => {
                tracing::info!(name = %spot.name, driver = %spot.driver, vantage = ?spot.vantage, "the name's records can be read again");
                last.failing = false;
            }
            (Found::Unknown { .. }, true) | (Found::Nothing | Found::Set(_) | Found::Foreign { .. }, false) => {}
        }
        last.found = Some((found, at));
    }

    /// Takes in what a confirmed change left.
    pub(crate) fn set(&mut self, change: &Change, spot: &Spot, at: Timestamp) {
        let found = change.sets().map_or(Found::Nothing, |addresses| Found::Set(addresses.clone()));
        self.last.entry(spot.clone()).or_default().found = Some((found, at));
    }

    /// The newest reading, unless it is older than this.
    pub(crate) fn fresh(&self, spot: &Spot, now: Timestamp, age_max: Duration) -> Option<&Found> {
        let (found, at) = self.last.get(spot)?.found.as_ref()?;
        (now.since(*at) <= age_max).then_some(found)
    }

    /// Whether the first look at a service's record has just begun.
    pub(crate) fn awaits(&self, topology: &Topology, service: &str, now: Timestamp) -> bool {
        services(topology).find(|(name, _)| name.as_str() == service).is_some_and(|(_, spot)| {
            self.last
                .get(&spot)
                .is_none_or(|last| last.found.is_none() && last.looked_at.is_none_or(|at| now.since(at) < READ_EVERY))
        })
    }

    /// Has somebody look, no more often than `every`.
    pub(crate) fn want(&mut self, spot: &Spot, every: Duration, now: Timestamp, errands: &mut Errands) {
        let last = self.last.entry(spot.clone()).or_default();
        if last.looked_at.is_some_and(|at| now.since(at) < every) {
            return;
        }
        if errands.look(spot.clone(), None) {
            last.looked_at = Some(now);
        }
    }

    /// Keeps the services' records read; those in `hot` more often.
    pub(crate) fn poll(&mut self, topology: &Topology, hot: &BTreeSet<&str>, now: Timestamp, errands: &mut Errands) {
        for (name, spot) in services(topology) {
            let every = if hot.contains(name.as_str()) { READ_EVERY_HOT } else { READ_EVERY };
            self.want(&spot, every, now, errands);
        }
    }

    /// What each service's record holds.
    pub(crate) fn records(&self, topology: &Topology, now: Timestamp) -> BTreeMap<ServiceName, Record> {
        services(topology)
            .map(|(name, spot)| {
                let record = match self.fresh(&spot, now, READING_AGE_MAX) {
                    // A service's record is never absent by our doing.
                    Some(Found::Nothing) => Record::Strange(BTreeSet::new()),
                    Some(found) => found.record().unwrap_or(Record::Unknown),
                    None => Record::Unknown,
                };
                (name.clone(), record)
            })
            .collect()
    }
}

fn services(topology: &Topology) -> impl Iterator<Item = (&ServiceName, Spot)> {
    topology.services.iter().map(|(name, service)| {
        (name, Spot { driver: service.driver.clone(), vantage: None, name: service.hostname.clone() })
    })
}
