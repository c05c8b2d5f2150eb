//! Urgent work the coordinator asks for. It has its own limit in flight, so that a schedule full
//! of slow probes cannot delay it, and every task has a deadline.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use parallax_decide::names::{DomainName, ResolverName};
use parallax_decide::observation::{Family, Purpose, Says, Target};
use parallax_driver::Driver;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{sleep_until, timeout};

use crate::assignment::Assignment;
use crate::clock::now;
use crate::local::Changes;
use crate::measured::Reason;
use crate::pins::{Order, Outcome, Pins, Report, What as Change};
use crate::probe::message::Question;
use crate::probe::tried::Tried;
use crate::probe::{Limits, path, resolution};
use crate::proofs::PROOF_LIFE;
use crate::recorder::Recorder;
use crate::rounds::Rounds;

/// Longest a task may take, whatever it says.
pub const TASK_MAX: Duration = Duration::from_secs(120);

/// Most probes one connect task makes.
pub const REPEAT_MAX: u32 = 10;

/// Tasks in flight.
const IN_FLIGHT_MAX: usize = 16;

/// Probes of tasks in flight; their descriptors are left over by the schedule's.
pub const PROBES_MAX: usize = 64;

/// Tasks and reports that may wait.
pub const WAITING_MAX: usize = 64;

/// Measuring tasks remembered, so that one that is sent again is not measured again.
const REMEMBERED_MAX: usize = 256;

/// One task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Its number.
    pub id: u64,
    /// Give up this long after receipt.
    pub deadline: Duration,
    /// Why it is measured.
    pub purpose: Purpose,
    /// What to do.
    pub work: Work,
}

/// What a task asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// Try one address for one target of the assignment.
    Connect {
        /// The target.
        target: Target,
        /// The address.
        address: IpAddr,
        /// How many times.
        repeat: u32,
        /// From the beginning of one to that of the next, unless it takes longer.
        gap: Duration,
    },
    /// Ask one resolver for one name of the assignment (A).
    Resolve {
        /// The name.
        name: DomainName,
        /// The resolver.
        resolver: ResolverName,
        /// Then try each address it returns.
        connect: bool,
    },
    /// Find the path to one address of a target of the assignment.
    Path {
        /// The target.
        target: Target,
        /// The address.
        address: IpAddr,
    },
    /// Change what is pinned here.
    Change(Order),
}

/// Carries tasks out.
pub struct Tasks<D> {
    rounds: Arc<Rounds>,
    recorder: Recorder,
    assignment: watch::Receiver<Option<Arc<Assignment>>>,
    pins: Option<Arc<Pins<D>>>,
    changes: Changes,
    reports: mpsc::Sender<Report>,
    places: Arc<Semaphore>,
    probes: Semaphore,
    remembered: Mutex<VecDeque<u64>>,
}

impl<D: Driver + Send + Sync + 'static> Tasks<D> {
    /// Tasks at this place; without `pins` every change is refused.
    #[must_use]
    pub fn new(
        rounds: Arc<Rounds>,
        recorder: Recorder,
        assignment: watch::Receiver<Option<Arc<Assignment>>>,
        pins: Option<Arc<Pins<D>>>,
        changes: Changes,
        reports: mpsc::Sender<Report>,
    ) -> Arc<Self> {
        let places = Arc::new(Semaphore::new(IN_FLIGHT_MAX));
        let probes = Semaphore::new(PROBES_MAX);
        Arc::new(Self {
            rounds,
            recorder,
            assignment,
            pins,
            changes,
            reports,
            places,
            probes,
            remembered: Mutex::default(),
        })
    }

    /// Carries out what comes, until nothing can come any more.
    pub async fn run(self: Arc<Self>, mut incoming: mpsc::Receiver<Task>) {
        while let Some(task) = incoming.recv().await {
            let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
                tracing::warn!(
                    task_id = task.id,
                    in_flight = IN_FLIGHT_MAX,
                    "too many tasks at once; this one is left out"
                );
                if let Work::Change(order) = &task.work {
                    self.report(failed(task.id, order, "too many tasks at once; nothing was written"));
                }
                continue;
            };
            let tasks = Arc::clone(&self);
            tokio::spawn(async move {
                tasks.carry_out(task).await;
                drop(place);
            });
        }
    }

    async fn carry_out(&self, task: Task) {
        let Task { id, deadline, purpose, work } = task;
        let reason = Reason { purpose, task_id: id };
        let measuring = async {
            match work {
                Work::Change(order) => {
                    self.change(id, order, deadline).await;
                    return Ok(());
                }
                Work::Connect { .. } | Work::Resolve { .. } | Work::Path { .. } if !self.is_new(id) => {
                    tracing::debug!(task_id = id, "task known already");
                    return Ok(());
                }
                Work::Connect { target, address, repeat, gap } => {
                    timeout(deadline, self.connect(reason, &target, address, repeat, gap)).await
                }
                Work::Resolve { name, resolver, connect } => {
                    timeout(deadline, self.resolve(reason, name, &resolver, connect)).await
                }
                Work::Path { target, address } => {
                    timeout(deadline, self.path(reason, &target, address, deadline)).await
                }
            }
            .unwrap_or_else(|_| Err("its deadline passed".to_owned()))
        };
        if let Err(why) = measuring.await {
            tracing::warn!(task_id = id, %why, "a task was not carried out, or not to its end");
        }
    }

    async fn connect(
        &self,
        reason: Reason,
        target: &Target,
        address: IpAddr,
        repeat: u32,
        gap: Duration,
    ) -> Result<(), String> {
        let assignment = self.assignment()?;
        let tried = tried(&assignment, target, address)?;
        let mut due = now();
        for _ in 0..repeat {
            sleep_until(due).await;
            due = now() + gap;
            self.measure(reason, tried.clone(), assignment.schedule.limits.clone()).await;
        }
        Ok(())
    }

    async fn resolve(
        &self,
        reason: Reason,
        name: DomainName,
        resolver: &ResolverName,
        connect: bool,
    ) -> Result<(), String> {
        let assignment = self.assignment()?;
        let limits = &assignment.schedule.limits;
        let canary = assignment.canary(&name).ok_or(format!("'{name}' is no name of the assignment"))?;
        let resolver = assignment.resolver(resolver).ok_or(format!("'{resolver}' is no resolver of the assignment"))?;
        let question = Question { name, family: Family::V4 };
        let resolved = resolution::resolve(&self.rounds.site, limits, resolver, &question).await;
        let addresses = if connect { resolved.fact.addresses.clone() } else { Vec::new() };
        resolved.record(&self.recorder, reason);
        let mut connections = FuturesUnordered::new();
        for address in addresses {
            connections.push(self.measure(reason, Tried::canary(canary, address), limits.clone()));
        }
        while connections.next().await.is_some() {}
        Ok(())
    }

    async fn path(&self, reason: Reason, target: &Target, address: IpAddr, deadline: Duration) -> Result<(), String> {
        let port = tried(&*self.assignment()?, target, address)?.port;
        // What was found until shortly before the deadline is worth more than nothing at the deadline.
        let time = deadline.mul_f32(0.9);
        // Boxed: of all tasks in flight few are paths.
        let measured = Box::pin(path::find(&self.rounds.site, address, port, time)).await;
        self.recorder.record(reason, &measured);
        Ok(())
    }

    async fn measure(&self, reason: Reason, tried: Tried, limits: Limits) {
        // Never closed. Waiting is bounded by the task's deadline.
        let Ok(_place) = self.probes.acquire().await else { return };
        let measured = tried.measure(&self.rounds.site, &limits).await;
        self.recorder.record(reason, &measured);
        if measured.what.says() == Says::Fails
            && let Ok(assignment) = self.assignment()
        {
            self.rounds.close(&assignment, Family::of(tried.address));
        }
    }

    async fn change(&self, id: u64, order: Order, deadline: Duration) {
        let report = match &self.pins {
            Some(pins) => match self.permitted(&order) {
                Ok(()) => pins.change(id, order, now() + deadline).await,
                Err(why) => Report { outcome: Outcome::Refused, ..failed(id, &order, &why) },
            },
            None => Report {
                outcome: Outcome::Refused,
                ..failed(id, &order, "the owner's file of this agent configures no driver (drivers.pin)")
            },
        };
        tracing::info!(task_id = id, plan_id = report.plan_id, outcome = ?report.outcome, detail = %report.detail, "a change was asked for");
        self.report(report);
    }

    /// The owner's word comes first; then only a name of the assignment, and only addresses that this
    /// agent has itself seen usable. What is to be taken away or read needs none of it.
    fn permitted(&self, order: &Order) -> Result<(), String> {
        let (name, addresses) = match &order.what {
            Change::Pin { name, addresses, .. } => (name, addresses),
            Change::Unpin { .. } | Change::Read { .. } => return Ok(()),
        };
        if !self.changes.permits(name) {
            return Err(format!("the owner's file of this agent does not allow a change of '{name}' (changes)"));
        }
        if self.assignment()?.canary(name).is_none() {
            return Err(format!("'{name}' is no name of the assignment"));
        }
        match addresses.iter().find(|address| !self.rounds.site.proofs.holds(name, *address)) {
            Some(address) => Err(format!(
                "{address} was not seen usable for '{name}' from here in the last {} s; nothing was written",
                PROOF_LIFE.as_secs()
            )),
            None => Ok(()),
        }
    }

    fn report(&self, report: Report) {
        let task_id = report.task_id;
        if self.reports.try_send(report).is_err() {
            tracing::warn!(task_id, "too many reports wait; the coordinator will ask again");
        }
    }

    fn assignment(&self) -> Result<Arc<Assignment>, String> {
        self.assignment.borrow().clone().ok_or_else(|| "there is no assignment yet".to_owned())
    }

    fn is_new(&self, id: u64) -> bool {
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        if remembered.contains(&id) {
            return false;
        }
        if remembered.len() >= REMEMBERED_MAX {
            remembered.pop_front();
        }
        remembered.push_back(id);
        true
    }
}

/// An address for a target. The coordinator chooses among the assignment's targets, never a host or port
/// of its own.
fn tried(assignment: &Assignment, target: &Target, address: IpAddr) -> Result<Tried, String> {
    match target {
        Target::Name(name) => {
            let canary = assignment.canary(name).ok_or(format!("'{name}' is no name of the assignment"))?;
            Ok(Tried::canary(canary, address))
        }
        Target::Node(name) => {
            let node = assignment.node(name).ok_or(format!("'{name}' is no node of the assignment"))?;
            Ok(Tried { address, ..Tried::node(node) })
        }
    }
}

fn failed(task_id: u64, order: &Order, why: &str) -> Report {
    Report { task_id, plan_id: order.plan_id, outcome: Outcome::Failed, found: Vec::new(), detail: why.to_owned() }
}

#[cfg(test)]
#[cfg(feature = "lab")]
mod tests;
