//! For tests: the world's DNS and its agents, with the troubles they can have.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use parallax_decide::change::{Change, Standing};
use parallax_decide::names::{Addresses, DomainName, VantageName};
use parallax_decide::observation::Target;
use parallax_driver::{Applied, DriverError, Reading, Refusal};
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::world::{BRANCH, CANARY, FI, SERVICE, ip, probe};
use crate::hub::{Arrival, ChangeOutcome, ChangeReport, LocalChange, OUTBOUND_MAX, Outbound, Work};
use crate::mailbox::mailbox;
use crate::state::App;
use crate::tasks::drivers::{AnyDriver, Drivers};

/// How those who change DNS behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mood {
    /// Well.
    Works,
    /// Makes the change and cannot say so.
    MadeButUncertain,
    /// Does not make it and cannot say so.
    LostAndUncertain,
    /// Makes the change and never answers.
    MadeThenHangs,
    /// Never answers, not even a question.
    Hangs,
    /// Answers questions, but no change gets through.
    Unreachable,
    /// Says no.
    Refuses,
}

/// The state of the world.
pub(super) struct Played {
    /// The service's record.
    pub(super) record: BTreeSet<IpAddr>,
    /// Pins by vantage and name.
    pub(super) pins: BTreeMap<(String, String), Addresses>,
    /// Native answers for the canary where they are not the usual one.
    pub(super) given: BTreeMap<String, Vec<IpAddr>>,
    /// Addresses that do not work, at a vantage or (empty) anywhere, for nodes and names alike.
    pub(super) dead: BTreeSet<(String, IpAddr)>,
    /// Addresses that do not work for the service's name, though the node itself answers.
    pub(super) unserved: BTreeSet<IpAddr>,
    /// Vantages that say nothing.
    pub(super) silent: BTreeSet<&'static str>,
    /// Vantages without an uplink.
    pub(super) uplink_down: BTreeSet<&'static str>,
    /// What agents were asked to try, and how often still.
    pub(super) probes: BTreeMap<(VantageName, (Target, IpAddr)), u32>,
    /// Paths that agents were asked to find, in order.
    pub(super) paths: Vec<(VantageName, IpAddr)>,
    /// Every change that really happened.
    pub(super) writes: Vec<Change>,
    /// Every order to pin that an agent got, renewals as well.
    pub(super) pin_orders: u32,
    /// The trouble of the day.
    pub(super) mood: Mood,
}

impl Played {
    pub(super) fn well() -> Self {
        Self {
            record: BTreeSet::from([ip(FI)]),
            pins: BTreeMap::new(),
            given: BTreeMap::new(),
            dead: BTreeSet::new(),
            unserved: BTreeSet::new(),
            silent: BTreeSet::new(),
            uplink_down: BTreeSet::new(),
            probes: BTreeMap::new(),
            paths: Vec::new(),
            writes: Vec::new(),
            pin_orders: 0,
            mood: Mood::Works,
        }
    }

    /// The field case: the branch is handed a pair that has no path from there.
    pub(super) fn steer_branch(&mut self) {
        let pair = ["8.6.112.0", "8.47.69.0"].map(ip);
        self.given.insert(BRANCH.to_owned(), pair.to_vec());
        self.dead.extend(pair.map(|address| (BRANCH.to_owned(), address)));
    }

    /// And over.
    pub(super) fn heal_branch(&mut self) {
        self.given.clear();
        self.dead.clear();
    }

    pub(super) fn kill_node(&mut self, address: &str) {
        self.dead.insert((String::new(), ip(address)));
    }

    pub(super) fn answer(&self, vantage: &str, name: &str, resolver: &str) -> Vec<IpAddr> {
        if name == SERVICE {
            return self.record.iter().copied().collect();
        }
        if resolver == "live"
            && let Some(pin) = self.pins.get(&(vantage.to_owned(), name.to_owned()))
        {
            return pin.iter().collect();
        }
        self.given.get(vantage).filter(|_| name == CANARY).cloned().unwrap_or_else(|| vec![ip("104.26.4.10")])
    }

    pub(super) fn works(&self, vantage: &str, target: &Target, address: IpAddr) -> bool {
        let dead = |place: &str| self.dead.contains(&(place.to_owned(), address));
        let unserved = matches!(target, Target::Name(_)) && self.unserved.contains(&address);
        !dead("") && !dead(vantage) && !unserved && !self.uplink_down.contains(vantage)
    }

    fn record_reading(&self) -> Reading {
        match Addresses::new(self.record.iter().copied()) {
            Ok(addresses) => Reading::Set { addresses, ttl_s: 5 },
            Err(error) => Reading::Foreign { what: error.to_string() },
        }
    }

    /// Compare and set.
    fn write(&mut self, found: &Reading, change: &Change, vantage: Option<&str>) -> Standing {
        let standing = found.standing(change);
        if standing == Standing::AsExpected {
            self.writes.push(change.clone());
            match (change, vantage) {
                (Change::Repoint { sets, .. }, _) => self.record = sets.as_set().clone(),
                (Change::Pin { name, addresses, .. }, Some(vantage)) => {
                    self.pins.insert((vantage.to_owned(), name.to_string()), addresses.clone());
                }
                (Change::Unpin { name, .. }, Some(vantage)) => {
                    self.pins.remove(&(vantage.to_owned(), name.to_string()));
                }
                (Change::Pin { .. } | Change::Unpin { .. }, None) => panic!("a pin without a place"),
            }
        }
        standing
    }

    fn pin_reading(&self, vantage: &str, name: &DomainName) -> Reading {
        match self.pins.get(&(vantage.to_owned(), name.to_string())) {
            Some(addresses) => Reading::Set { addresses: addresses.clone(), ttl_s: 5 },
            None => Reading::Nothing,
        }
    }
}

struct Provider(Arc<Mutex<Played>>);

/// The driver `auth`.
pub(super) fn provider(played: &Arc<Mutex<Played>>) -> Drivers {
    let played = Arc::clone(played);
    Arc::new(move |name| {
        let driver: Arc<dyn AnyDriver> = Arc::new(Provider(Arc::clone(&played)));
        (name.as_str() == "auth").then_some(driver)
    })
}

fn server() -> String {
    "provider".to_owned()
}

impl AnyDriver for Provider {
    fn read<'a>(&'a self, _name: &'a DomainName) -> BoxFuture<'a, Result<Reading, DriverError>> {
        Box::pin(async {
            let (reading, mood) = {
                let played = self.0.lock().unwrap();
                (played.record_reading(), played.mood)
            };
            if mood == Mood::Hangs { std::future::pending().await } else { Ok(reading) }
        })
    }

    fn apply<'a>(&'a self, change: &'a Change) -> BoxFuture<'a, Result<Applied, DriverError>> {
        Box::pin(async {
            let (standing, found, mood) = {
                let mut played = self.0.lock().unwrap();
                let (found, mood) = (played.record_reading(), played.mood);
                let writes = matches!(mood, Mood::Works | Mood::MadeButUncertain | Mood::MadeThenHangs);
                let standing = if writes { played.write(&found, change, None) } else { found.standing(change) };
                (standing, found, mood)
            };
            let uncertain = || DriverError::Uncertain { server: server(), why: "no reply".to_owned() };
            match mood {
                Mood::MadeThenHangs | Mood::Hangs => std::future::pending().await,
                Mood::MadeButUncertain | Mood::LostAndUncertain => Err(uncertain()),
                Mood::Unreachable => Err(DriverError::Unreachable { server: server(), why: "no route".to_owned() }),
                Mood::Refuses => {
                    let reason = Refusal::ServerFailed { rcode: "SERVFAIL".to_owned() };
                    Err(DriverError::Refused { server: server(), reason })
                }
                Mood::Works => match standing {
                    Standing::AsExpected => Ok(Applied::Written),
                    Standing::AlreadySet => Ok(Applied::Already),
                    Standing::Foreign => Err(DriverError::Conflict { found }),
                },
            }
        })
    }
}

/// An agent that is connected for as long as the task lives.
pub(super) fn agent(app: Arc<App>, played: Arc<Mutex<Played>>, vantage: VantageName) -> JoinHandle<()> {
    let (outbound, mut orders) = mailbox(OUTBOUND_MAX);
    tokio::spawn(async move {
        let remote = "192.0.2.1:1".parse().unwrap();
        let arrival = Arrival { agent_version: "played".to_owned(), boot: Uuid::nil(), remote };
        let _place = app.hub.enter(&vantage, arrival, outbound);
        while let Some(order) = orders.recv().await {
            match *order {
                Outbound::Task(_, task) => {
                    if let Work::Path { address, .. } = &task.work {
                        played.lock().unwrap().paths.push((vantage.clone(), *address));
                    }
                    if let Some((what, times)) = probe(&task.work) {
                        played.lock().unwrap().probes.insert((vantage.clone(), what), times);
                    }
                }
                Outbound::Change(id, change, _) => {
                    let report = changed(&mut played.lock().unwrap(), &vantage, change.change);
                    if let Some(report) = report {
                        app.hub.report(&vantage, id, report);
                    }
                }
                Outbound::Assignment => {}
            }
        }
    })
}

fn changed(played: &mut Played, vantage: &VantageName, order: LocalChange) -> Option<ChangeReport> {
    let place = vantage.as_str();
    let report = |outcome, reading: &Reading| {
        let found = match reading {
            Reading::Set { addresses, .. } => addresses.iter().collect(),
            Reading::Nothing | Reading::Foreign { .. } => Vec::new(),
        };
        Some(ChangeReport { outcome, found, detail: "played".to_owned() })
    };
    let (name, change) = match order {
        LocalChange::Read { name } => {
            let reading = played.pin_reading(place, &name);
            return if played.mood == Mood::Hangs { None } else { report(ChangeOutcome::Read, &reading) };
        }
        LocalChange::Pin { name, addresses, ttl_s, .. } => {
            played.pin_orders += 1;
            (name.clone(), Change::Pin { name, addresses, ttl_s })
        }
        LocalChange::Unpin { name, expects } => (name.clone(), Change::Unpin { name, expects, ttl_s: 5 }),
    };
    let found = played.pin_reading(place, &name);
    match played.mood {
        Mood::Hangs => return None,
        Mood::LostAndUncertain => return report(ChangeOutcome::Uncertain, &found),
        Mood::Unreachable | Mood::Refuses => return report(ChangeOutcome::Refused, &found),
        Mood::Works | Mood::MadeButUncertain | Mood::MadeThenHangs => {}
    }
    let standing = played.write(&found, &change, Some(place));
    let found = played.pin_reading(place, &name);
    match (played.mood, standing) {
        (Mood::MadeThenHangs, _) => None,
        (Mood::MadeButUncertain, _) => report(ChangeOutcome::Uncertain, &found),
        (_, Standing::AsExpected) => report(ChangeOutcome::Applied, &found),
        (_, Standing::AlreadySet) => report(ChangeOutcome::Already, &found),
        (_, Standing::Foreign) => report(ChangeOutcome::Conflict, &found),
    }
}
