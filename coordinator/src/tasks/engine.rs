//! One tick turns what agents said since the last one into verdicts, incidents, plans, changes and
//! proofs.
//!
//! Everything it knows is in the store: after any error, and after a restart, what it holds in
//! memory is thrown away and rebuilt from there. Every transaction is fenced by the lease's epoch.

use std::collections::BTreeSet;
use std::sync::Arc;

use parallax_decide::finding::Subject;
use parallax_decide::incident::Open;
use parallax_decide::judge::judge;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

use super::Term;
use super::asker::Asker;
use super::detector::Detector;
use super::drivers::Drivers;
use super::errands::{Done, Errands};
use super::executor::Executor;
use super::moment::Moment;
use super::planner::Planner;
use super::reader::Reader;
use super::readings::Readings;
use super::renewer::Renewer;
use super::steward::Steward;
use super::verifier::Verifier;
use super::watcher::Watcher;
use crate::config::Config;
use crate::hub::News;
use crate::judging::serving;
use crate::state::App;
use crate::store::plan::StoredPlan;
use crate::store::{StoreError, forget_statements, freeze, plan};

/// What decides, while its lease lasts.
pub(crate) struct Engine {
    app: Arc<App>,
    epoch: i64,
    errands: Errands,
    readings: Readings,
    memory: Option<Memory>,
}

/// What is rebuilt from the store.
struct Memory {
    reader: Reader,
    detector: Detector,
    watcher: Watcher,
    steward: Steward,
    planner: Planner,
    executor: Executor,
    verifier: Verifier,
    renewer: Renewer,
    asker: Asker,
}

impl Engine {
    /// An engine under the lease's epoch.
    pub(crate) fn new(app: Arc<App>, drivers: Drivers, epoch: i64, term: Term) -> Self {
        let errands = Errands::new(Arc::clone(&app), drivers, epoch, term);
        Self { app, epoch, errands, readings: Readings::default(), memory: None }
    }

    /// Does everything that is to do now. True: there is more to do at once.
    ///
    /// # Errors
    /// [`StoreError::StaleEpoch`]: this engine must end. Else the database's; the next tick rebuilds.
    pub(crate) async fn tick(&mut self) -> Result<bool, StoreError> {
        match self.attempt().await {
            // Once more with fresh statements: the schema was changed under sessions that knew the old one.
            Err(error) if error.is_stale_statement() => {
                tracing::warn!(%error, "the database's schema was changed meanwhile; trying again");
                forget_statements(&self.app.pool).await;
                self.attempt().await
            }
            other => other,
        }
    }

    async fn attempt(&mut self) -> Result<bool, StoreError> {
        let config = self.app.config.load_full();
        // Taken, so that an error throws it away.
        let mut memory = match self.memory.take() {
            Some(memory) => memory,
            None => Memory::load(&self.app, &config).await?,
        };
        let again = self.advance(&config, &mut memory).await?;
        self.memory = Some(memory);
        Ok(again)
    }

    /// Waits until an errand has finished. May be dropped at any time.
    pub(crate) async fn errand(&mut self) {
        self.errands.next().await;
    }

    /// Lets errands come to an end, unless they hang.
    #[cfg(test)]
    pub(crate) async fn settle(&mut self) {
        self.errands.settle(std::time::Duration::from_millis(40)).await;
    }

    /// Whether errands have come back that no tick has seen.
    #[cfg(test)]
    pub(crate) fn heard(&self) -> bool {
        self.errands.has_news()
    }

    async fn advance(&mut self, config: &Config, memory: &mut Memory) -> Result<bool, StoreError> {
        let Self { app, epoch, errands, readings, .. } = self;
        let topology = &config.topology;
        let mut connection = app.pool.acquire().await?;
        if !memory.reader.read(&mut connection, topology).await? {
            return Ok(true);
        }
        for done in errands.collect() {
            memory.take_in(done, readings);
        }
        let frozen = freeze::current(&mut connection).await?.is_some();
        let before = plan::of_open_incidents(&mut connection).await?;
        // Never before what it rests on: the rows carry the database's own reading.
        let newest = memory.reader.fold().vantages().filter_map(|(_, state)| state.last_report_at).max();
        let now = newest.map_or(app.clock.now(), |newest| newest.max(app.clock.now()));
        let Memory { reader, detector, watcher, steward, planner, executor, verifier, renewer, asker } = memory;
        let judgement = aside(|| judge(topology, reader.fold(), now));
        let moment = Moment {
            app,
            topology,
            fold: reader.fold(),
            judgement: &judgement,
            plans: &before,
            frozen,
            epoch: *epoch,
            now,
        };
        let verdicts = detector.step(&moment).await?;
        watcher.step(&moment).await?;
        let mut moved = executor.step(&moment, readings, errands).await?;
        moved |= verifier.step(&moment).await?;
        moved |= renewer.step(&moment, errands).await?;
        let after = if moved { Some(plan::of_open_incidents(&mut connection).await?) } else { None };
        drop(connection);
        let moment = Moment { plans: after.as_deref().unwrap_or(&before), ..moment };
        readings.poll(topology, &hot(steward.open(), moment.plans), now, errands);
        let records = readings.records(topology, now);
        let serving = serving(topology, &records);
        let incidents = steward.step(&moment, &serving).await?;
        asker.step(&moment, &config.schedule);
        let open: Vec<&Open> = steward.open().collect();
        moved |= planner.step(&moment, &open, &records, readings, errands).await?;
        for (happened, news) in [(verdicts, News::Verdicts), (incidents, News::Incidents), (moved, News::Plans)] {
            if happened {
                app.hub.announce(news);
            }
        }
        Ok(moved || incidents)
    }
}

/// Work that takes tens of milliseconds where there are thousands of vantages: what else waits for this thread of the
/// runtime goes on meanwhile on another one.
pub(super) fn aside<T>(work: impl FnOnce() -> T) -> T {
    // A test's runtime may have no other thread.
    if Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread { block_in_place(work) } else { work() }
}

impl Memory {
    async fn load(app: &App, config: &Config) -> Result<Self, StoreError> {
        let mut connection = app.pool.acquire().await?;
        Ok(Self {
            reader: Reader::new(&config.topology.policy, app.clock.now()),
            detector: Detector::load(&mut connection).await?,
            watcher: Watcher::default(),
            steward: Steward::load(&mut connection, &config.topology.policy, app.clock.now()).await?,
            planner: Planner::load(&mut connection).await?,
            executor: Executor::default(),
            verifier: Verifier::default(),
            renewer: Renewer::default(),
            asker: Asker::default(),
        })
    }

    fn take_in(&mut self, done: Done, readings: &mut Readings) {
        match done {
            Done::Looked { spot, plan, found, asked_at, at } => {
                if let Some(plan) = plan {
                    self.executor.looked(plan, found.clone());
                }
                readings.note(&spot, found, asked_at, at);
            }
            Done::Changed { plan, outcome, at } => self.executor.changed(plan, outcome, at),
            Done::Renewed { plan, outcome, at } => self.renewer.renewed(plan, outcome, at),
        }
    }
}

/// Services whose record is looked at more often.
fn hot<'a>(open: impl Iterator<Item = &'a Open>, plans: &'a [StoredPlan]) -> BTreeSet<&'a str> {
    let of_incidents = open.filter_map(|incident| match &incident.subject {
        Subject::Service { service } => Some(service.as_str()),
        Subject::Fleet
        | Subject::Vantage { .. }
        | Subject::UnroutableAt { .. }
        | Subject::Name { .. }
        | Subject::NameAt { .. }
        | Subject::Endpoint { .. }
        | Subject::Node { .. } => None,
    });
    let of_plans = plans.iter().filter(|p| p.record.status.in_flight()).map(|p| p.record.plan.item.as_str());
    of_incidents.chain(of_plans).collect()
}
