//! Reading and changing DNS takes time and may hang: each such errand runs in a task of its own, and
//! its result is picked up at the next tick. Errands end with the engine: a change that was cut off
//! counts as perhaps made, and its plan says so in the store.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parallax_decide::change::Change;
use parallax_decide::names::{Addresses, VantageName};
use parallax_decide::plan::{PlanId, PlanRecord};
use parallax_decide::time::Timestamp;
use parallax_driver::{Applied, DriverError, Reading};
use tokio::task::{Id, JoinSet};
use tokio::time::timeout;

use super::Term;
use super::drivers::Drivers;
use super::readings::{Found, Spot};
use crate::hub::{ChangeFailed, ChangeOutcome, ChangeReport, ChangeTask, LocalChange};
use crate::state::App;

/// Longest look at a name.
const LOOK_WITHIN: Duration = Duration::from_secs(5);

/// Longest wait for a change. Above the sum of a driver's own deadlines, so that it can still say
/// how it ended.
const CHANGE_WITHIN: Duration = Duration::from_secs(12);

/// How a change ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Written and read back.
    Applied,
    /// It stood already.
    Already,
    /// Somebody else's data is there.
    Conflict(String),
    /// The server, the owner or the epoch said no; nothing was written.
    Refused(String),
    /// It failed before anything was written.
    Failed(String),
    /// Perhaps made.
    Uncertain(String),
    /// It could not be sent; may be tried again.
    NotSent(String),
}

/// A finished errand.
#[derive(Debug)]
pub(crate) enum Done {
    /// Somebody looked at a name.
    Looked {
        /// Where.
        spot: Spot,
        /// For which plan, if for one.
        plan: Option<PlanId>,
        /// What was found.
        found: Found,
        /// When it began.
        asked_at: Timestamp,
        /// When it ended.
        at: Timestamp,
    },
    /// A plan was sent to its driver.
    Changed {
        /// Which.
        plan: PlanId,
        /// How it ended.
        outcome: Outcome,
        /// When.
        at: Timestamp,
    },
    /// A standing pin was sent again.
    Renewed {
        /// Of which plan.
        plan: PlanId,
        /// How it ended.
        outcome: Outcome,
        /// When.
        at: Timestamp,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum About {
    Spot(Spot),
    Plan(PlanId),
}

/// What is under way.
pub(crate) struct Errands {
    app: Arc<App>,
    drivers: Drivers,
    epoch: i64,
    term: Term,
    tasks: JoinSet<Done>,
    about: BTreeMap<Id, About>,
    done: Vec<Done>,
}

impl Errands {
    /// None under way.
    pub(crate) fn new(app: Arc<App>, drivers: Drivers, epoch: i64, term: Term) -> Self {
        Self { app, drivers, epoch, term, tasks: JoinSet::new(), about: BTreeMap::new(), done: Vec::new() }
    }

    /// Whether one for this plan is under way.
    pub(crate) fn busy(&self, plan: PlanId) -> bool {
        self.is_about(&About::Plan(plan))
    }

    /// Looks at a name, for a plan or for everybody. False: that is under way already.
    pub(crate) fn look(&mut self, spot: Spot, plan: Option<PlanId>) -> bool {
        let about = plan.map_or_else(|| About::Spot(spot.clone()), About::Plan);
        if self.is_about(&about) {
            return false;
        }
        let (app, drivers, epoch) = (Arc::clone(&self.app), Arc::clone(&self.drivers), self.epoch);
        self.start(about, async move {
            let asked_at = app.clock.now();
            let found = look(&app, &drivers, epoch, &spot, plan).await;
            Done::Looked { spot, plan, found, asked_at, at: app.clock.now() }
        });
        true
    }

    /// Sends a plan to its driver.
    pub(crate) fn change(&mut self, record: &PlanRecord) {
        let (app, drivers, epoch, record) =
            (Arc::clone(&self.app), Arc::clone(&self.drivers), self.epoch, record.clone());
        let term = self.term.clone();
        self.start(About::Plan(record.id), async move {
            let outcome = change(&app, &drivers, epoch, &term, &record).await;
            Done::Changed { plan: record.id, outcome, at: app.clock.now() }
        });
    }

    /// Sends a standing pin again, so that its agent keeps it.
    pub(crate) fn renew(&mut self, record: &PlanRecord) {
        let (app, drivers, epoch, record) =
            (Arc::clone(&self.app), Arc::clone(&self.drivers), self.epoch, record.clone());
        let term = self.term.clone();
        self.start(About::Plan(record.id), async move {
            let outcome = change(&app, &drivers, epoch, &term, &record).await;
            Done::Renewed { plan: record.id, outcome, at: app.clock.now() }
        });
    }

    /// What has finished since the last call.
    pub(crate) fn collect(&mut self) -> Vec<Done> {
        while let Some(finished) = self.tasks.try_join_next_with_id() {
            self.finish(finished);
        }
        std::mem::take(&mut self.done)
    }

    /// Waits until one has finished; for ever when none is under way. May be dropped at any time.
    pub(crate) async fn next(&mut self) {
        if !self.done.is_empty() {
            return;
        }
        match self.tasks.join_next_with_id().await {
            Some(finished) => self.finish(finished),
            None => std::future::pending().await,
        }
    }

    /// Lets what is under way come to an end, unless it hangs.
    #[cfg(test)]
    pub(crate) async fn settle(&mut self, patience: Duration) {
        while let Ok(Some(finished)) = timeout(patience, self.tasks.join_next_with_id()).await {
            self.finish(finished);
        }
    }

    /// Whether something has finished since the last collection.
    #[cfg(test)]
    pub(crate) fn has_news(&self) -> bool {
        !self.done.is_empty()
    }

    fn finish(&mut self, finished: Result<(Id, Done), tokio::task::JoinError>) {
        match finished {
            Ok((id, done)) => {
                self.about.remove(&id);
                self.done.push(done);
            }
            // Its plan is taken up again: what it did counts as unknown.
            Err(error) => {
                self.about.remove(&error.id());
                tracing::error!(%error, "reading or changing DNS broke off");
            }
        }
    }

    fn is_about(&self, about: &About) -> bool {
        self.about.values().any(|known| known == about)
    }

    fn start(&mut self, about: About, errand: impl Future<Output = Done> + Send + 'static) {
        let id = self.tasks.spawn(errand).id();
        self.about.insert(id, about);
    }
}

async fn look(app: &App, drivers: &Drivers, epoch: i64, spot: &Spot, plan: Option<PlanId>) -> Found {
    let unknown = |why: String| Found::Unknown { why };
    let Some(vantage) = &spot.vantage else {
        let Some(driver) = drivers(&spot.driver) else {
            return unknown(format!("driver {} is not configured", spot.driver));
        };
        return match timeout(LOOK_WITHIN, driver.read(&spot.name)).await {
            Ok(Ok(reading)) => found(reading),
            Ok(Err(error)) => unknown(error.to_string()),
            Err(_) => unknown(format!("driver {} gave no answer within {LOOK_WITHIN:?}", spot.driver)),
        };
    };
    let change = LocalChange::Read { name: spot.name.clone() };
    let task = ChangeTask { plan_id: plan.map_or(0, |id| id.0), epoch, change };
    match app.hub.change(vantage, task, LOOK_WITHIN).await {
        Ok(report) => reported(report),
        Err(error) => unknown(error.to_string()),
    }
}

fn found(reading: Reading) -> Found {
    match reading {
        Reading::Nothing => Found::Nothing,
        Reading::Set { addresses, .. } => Found::Set(addresses),
        Reading::Foreign { what } => Found::Foreign { what, addresses: std::collections::BTreeSet::new() },
    }
}

fn reported(report: ChangeReport) -> Found {
    let ChangeReport { outcome, found, detail } = report;
    match outcome {
        ChangeOutcome::Read if found.is_empty() => Found::Nothing,
        ChangeOutcome::Read => set(found, detail),
        ChangeOutcome::Conflict => Found::Foreign { what: detail, addresses: found.into_iter().collect() },
        ChangeOutcome::Applied
        | ChangeOutcome::Already
        | ChangeOutcome::Refused
        | ChangeOutcome::Failed
        | ChangeOutcome::Uncertain => Found::Unknown { why: detail },
    }
}

fn set(found: Vec<IpAddr>, detail: String) -> Found {
    match Addresses::new(found.iter().copied()) {
        Ok(addresses) => Found::Set(addresses),
        Err(error) => Found::Foreign { what: format!("{detail}: {error}"), addresses: found.into_iter().collect() },
    }
}

async fn change(app: &App, drivers: &Drivers, epoch: i64, term: &Term, record: &PlanRecord) -> Outcome {
    let plan = &record.plan;
    if term.is_over() {
        return Outcome::NotSent(format!("the lease of epoch {epoch} was not renewed in time"));
    }
    match &plan.vantage {
        Some(vantage) => at_vantage(app, epoch, record, vantage).await,
        None => {
            let Some(driver) = drivers(&plan.driver) else {
                return Outcome::Refused(format!("driver {} is not configured", plan.driver));
            };
            match timeout(CHANGE_WITHIN, driver.apply(&plan.change)).await {
                Ok(Ok(Applied::Written)) => Outcome::Applied,
                Ok(Ok(Applied::Already)) => Outcome::Already,
                Ok(Err(error)) => failed(&error),
                Err(_) => Outcome::Uncertain(format!("driver {} gave no answer within {CHANGE_WITHIN:?}", plan.driver)),
            }
        }
    }
}

fn failed(error: &DriverError) -> Outcome {
    let why = error.to_string();
    match error {
        DriverError::Unreachable { .. } => Outcome::NotSent(why),
        DriverError::Uncertain { .. } => Outcome::Uncertain(why),
        DriverError::Refused { .. } | DriverError::Unsupported { .. } => Outcome::Refused(why),
        DriverError::Conflict { .. } => Outcome::Conflict(why),
        DriverError::Unexpected { .. } => Outcome::Failed(why),
    }
}

async fn at_vantage(app: &App, epoch: i64, record: &PlanRecord, vantage: &VantageName) -> Outcome {
    let change = match record.plan.change.clone() {
        Change::Pin { name, addresses, ttl_s } => {
            let expires_in = app.config.load().topology.policy.pin_life;
            LocalChange::Pin { name, addresses, ttl_s, expires_in }
        }
        Change::Unpin { name, expects, .. } => LocalChange::Unpin { name, expects },
        Change::Repoint { .. } => return Outcome::Refused("records are not changed by agents".to_owned()),
    };
    let task = ChangeTask { plan_id: record.id.0, epoch, change };
    match app.hub.change(vantage, task, CHANGE_WITHIN).await {
        Ok(ChangeReport { outcome, detail, .. }) => match outcome {
            ChangeOutcome::Applied => Outcome::Applied,
            ChangeOutcome::Already => Outcome::Already,
            ChangeOutcome::Conflict => Outcome::Conflict(detail),
            ChangeOutcome::Refused => Outcome::Refused(detail),
            ChangeOutcome::Failed => Outcome::Failed(detail),
            ChangeOutcome::Uncertain => Outcome::Uncertain(detail),
            ChangeOutcome::Read => Outcome::Uncertain(format!("the agent answered a change with a reading: {detail}")),
        },
        Err(error @ ChangeFailed::NotConnected(_)) => Outcome::NotSent(error.to_string()),
        Err(error @ ChangeFailed::Timeout(_)) => Outcome::Uncertain(error.to_string()),
    }
}
