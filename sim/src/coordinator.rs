//! The coordinator's loop around the decisions, as `coordinator/src/tasks` has it: what agents said is folded and judged,
//! plans go on, proofs are looked for, incidents open and close, evidence is asked for, new plans are made and guarded.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use parallax_decide::change::Standing;
use parallax_decide::finding::{self, Finding, Subject};
use parallax_decide::fold::Fold;
use parallax_decide::guard::{self, Facts, Refusal};
use parallax_decide::incident::{Book, IncidentId, Open, Steady, Transition};
use parallax_decide::judge::{self, Judgement};
use parallax_decide::names::{Addresses, NodeName, ServiceName, VantageName};
use parallax_decide::observation::{Fact, Observation, ObservationId, Particulars, Says, Target};
use parallax_decide::plan::{
    self, Decision, Plan, PlanId, PlanPurpose, PlanReason, PlanRecord, PlanStatus, Record, Situation,
};
use parallax_decide::time::Timestamp;
use parallax_decide::topology::{Mode, Policy};
use parallax_decide::verify::{self, Proof};
use parallax_decide::wanted::{self, Asked};

use crate::agent::{Measured, Subject as Tried};
use crate::coordinator::due::Due;
use crate::dice::Dice;
use crate::scenery::Scenery;

mod due;
mod executing;

/// The engine ticks on this grid while something is new, in ms: its longest pause.
pub(crate) const TICK_MS: i64 = 250;

/// A reading of a record older than this tells nothing any more.
const READING_AGE_MAX: Duration = Duration::from_secs(15);

/// First pause before a plan is looked at again; doubled each time up to the longest.
const AGAIN_AFTER: Duration = Duration::from_millis(250);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(10);

/// The next plan after one that came to nothing waits so long, twice as long after each further one.
const RETRY_WAIT: Duration = Duration::from_secs(5);
const RETRY_WAIT_MAX: Duration = Duration::from_secs(3600);

/// A rollback may still be applied this long after it was planned.
const ROLLBACK_LIFE: Duration = Duration::from_secs(3600);

/// A vantage that does not see a change yet is asked again this soon, or after a tenth of the time since the change.
const PROVE_AGAIN: Duration = Duration::from_millis(500);

/// Added to what judging can look back to when the state is rebuilt.
const REBUILD_MARGIN: Duration = Duration::from_secs(60);

/// So long a log is kept for rebuilding.
const LOG_KEPT: Duration = Duration::from_secs(1500);

/// What the coordinator wants done outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// A vantage shall try an address so many times.
    Try { vantage: usize, subject: Tried, repeat: u32, gap_ms: i64 },
    /// A vantage shall ask its own resolver for the service and try what it says.
    Prove { vantage: usize },
    /// The record shall point to this node, if it points to the other one then; after so many ms.
    Change { plan: PlanId, expects: usize, sets: usize, after_ms: i64 },
}

/// What the coordinator can learn outside.
#[derive(Debug, Clone)]
pub(crate) struct Outside {
    /// The node that the record points to.
    pub record: usize,
    /// Whether the provider can be reached.
    pub provider: bool,
    /// When it could last be reached.
    pub read_at: Timestamp,
    /// Which agents can be reached.
    pub linked: Vec<bool>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    look_ready: Option<Timestamp>,
    sent: bool,
    tries: u32,
    until: Timestamp,
}

/// What is in memory and what is in the store.
#[derive(Debug)]
pub(crate) struct Coordinator {
    fold: Fold,
    listening_since: Timestamp,
    book: Book,
    asked: Asked,
    progress: BTreeMap<PlanId, Progress>,
    outcomes: Vec<(PlanId, Timestamp, bool)>,
    proofs_asked: BTreeMap<(PlanId, VantageName), Timestamp>,
    read_at: Option<Timestamp>,
    reading: usize,
    due: Due,
    /// No address fails and nothing is to be planned.
    calm: bool,
    /// And nothing is found either.
    quiet: bool,
    // What the store has.
    log: VecDeque<Observation>,
    last_id: i64,
    keys: BTreeMap<IncidentId, String>,
    /// Every plan, oldest first.
    pub plans: Vec<PlanRecord>,
    unproven: BTreeSet<PlanId>,
    last_incident: i64,
    dice: Dice,
    /// What happened, for people, by the true time.
    pub history: Vec<(i64, String)>,
    /// How often it judged.
    pub ticks: u64,
}

impl Coordinator {
    /// A coordinator that begins at `now`, with an empty store.
    pub(crate) fn new(dice: Dice, now: Timestamp) -> Self {
        Self {
            fold: Fold::listening_since(now),
            listening_since: now,
            book: Book::default(),
            asked: Asked::default(),
            progress: BTreeMap::new(),
            outcomes: Vec::new(),
            proofs_asked: BTreeMap::new(),
            read_at: None,
            reading: 0,
            due: Due::default(),
            calm: false,
            quiet: false,
            log: VecDeque::new(),
            last_id: 0,
            keys: BTreeMap::new(),
            plans: Vec::new(),
            unproven: BTreeSet::new(),
            last_incident: 0,
            dice,
            history: Vec::new(),
            ticks: 0,
        }
    }

    /// Begins anew: memory is rebuilt from what the store has.
    pub(crate) fn restart(&mut self, scenery: &Scenery, now: Timestamp) {
        let topology = &scenery.topology;
        let since = now.minus(topology.policy.looks_back() + REBUILD_MARGIN);
        self.fold = Fold::listening_since(now);
        for observation in self.log.iter().filter(|observation| observation.received_at >= since) {
            self.fold.apply(topology, observation);
        }
        let forgets = |open: &Open| Open {
            well_since: None,
            steady: Steady { naming: None, ..open.steady.clone() },
            ..open.clone()
        };
        let open: Vec<Open> = self.book.open().map(forgets).collect();
        self.book = Book::new(open).with_closed(self.book.closed_lately().cloned());
        (self.listening_since, self.asked, self.due) = (now, Asked::default(), Due::default());
        (self.progress, self.outcomes, self.proofs_asked) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        (self.read_at, self.calm, self.quiet) = (None, false, false);
    }

    /// Stores what an agent delivered and folds it. True: it may change what is judged.
    pub(crate) fn receive(
        &mut self,
        scenery: &Scenery,
        vantage: usize,
        measured: Measured,
        now: Timestamp,
        age_ms: i64,
    ) -> bool {
        let Some(name) = scenery.vantages.get(vantage) else { return false };
        self.last_id += 1;
        let observation = Observation {
            id: ObservationId(self.last_id),
            vantage: name.clone(),
            at: Timestamp(now.0 - age_ms),
            received_at: now,
            purpose: measured.purpose,
            late: false,
            fact: measured.fact,
            particulars: Particulars::default(),
        };
        let news = !(self.calm && self.as_before(&scenery.topology.policy, &observation));
        self.fold.apply(&scenery.topology, &observation);
        self.log.push_back(observation);
        while self.log.front().is_some_and(|first| now.since(first.received_at) > LOG_KEPT) {
            self.log.pop_front();
        }
        news
    }

    /// Whether an observation says what its subject said before, freshly: while no address fails and nothing is to be planned
    /// it changes no verdict, only for how long the verdict holds.
    fn as_before(&self, policy: &Policy, observation: &Observation) -> bool {
        let Some(state) = self.fold.vantage(&observation.vantage) else { return false };
        let fresh = |at: Timestamp, span| observation.received_at.since(at) <= span;
        match &observation.fact {
            Fact::Connection(connection) => {
                let run = state.reach.get(&(connection.target.clone(), connection.address));
                run.is_some_and(|run| {
                    run.successes > 0 && run.outcome == connection.outcome && fresh(run.at, policy.fresh_for)
                })
            }
            Fact::ControlCheck(check) => state
                .controls
                .get(&check.control)
                .is_some_and(|known| known.outcome == check.outcome && fresh(known.at, policy.control_every * 5 / 2)),
            Fact::Resolution(resolution) => {
                let key = (resolution.name.clone(), resolution.resolver.clone(), resolution.family);
                state.answers.get(&key).is_some_and(|known| {
                    known.outcome == resolution.outcome
                        && known.outcome.says() == Says::Works
                        && known.addresses.iter().eq(resolution.addresses.iter().collect::<BTreeSet<_>>())
                        && fresh(known.at, policy.fresh_for)
                })
            }
            Fact::EndpointCheck(_) | Fact::Path(_) | Fact::Loss(_) | Fact::Missed(_) => false,
        }
    }

    /// Notes how a change ended: made, or not sent.
    pub(crate) fn changed(&mut self, plan: PlanId, at: Timestamp, made: bool) {
        self.outcomes.push((plan, at, made));
    }

    /// When judging again can find something else than now, if nobody says anything new.
    pub(crate) fn next_due(&self, scenery: &Scenery, now: Timestamp) -> Timestamp {
        if self.of_open().any(|record| record.status.in_flight()) || !self.outcomes.is_empty() {
            return now;
        }
        let state = due::State {
            fold: &self.fold,
            listening_since: self.listening_since,
            book: &self.book,
            plans: &self.plans,
            read_at: self.read_at,
        };
        self.due.next(&scenery.topology.policy, &state, self.quiet, now)
    }

    /// By what time to judge: never before what it rests on.
    fn judged_at(&self, clock: Timestamp) -> Timestamp {
        self.fold
            .vantages()
            .filter_map(|(_, state)| state.last_report_at)
            .max()
            .map_or(clock, |newest| newest.max(clock))
    }

    /// One tick. `truly` is the true time, for the history.
    pub(crate) fn tick(&mut self, scenery: &Scenery, clock: Timestamp, truly: i64, outside: &Outside) -> Vec<Order> {
        self.ticks += 1;
        let now = self.judged_at(clock);
        let topology = &scenery.topology;
        let judgement = judge::judge(topology, &self.fold, now);
        let mut orders = Vec::new();
        let read_at = if outside.provider { now } else { outside.read_at };
        if read_at >= self.listening_since {
            (self.read_at, self.reading) = (Some(read_at), outside.record);
        }
        self.execute(scenery, &judgement, truly, outside, &mut orders);
        self.prove(scenery, &judgement, truly, outside, &mut orders);
        let record = self.record(scenery, now);
        let serving: BTreeMap<ServiceName, NodeName> = match &record {
            Record::Found(_) => scenery
                .nodes
                .get(self.reading)
                .map(|(name, _)| (scenery.service.clone(), name.clone()))
                .into_iter()
                .collect(),
            Record::Strange(_) | Record::Unknown => BTreeMap::new(),
        };
        let findings = finding::compare(topology, &judgement, &serving);
        self.keep_book(scenery, &judgement, &findings, &serving, truly);
        self.due.found(&findings, now);
        let asks = wanted::wanted(topology, &judgement);
        let wants = !asks.is_empty();
        self.ask(scenery, asks, now, outside, &mut orders);
        self.plan(scenery, &judgement, record, truly);
        let to_plan = |open: &Open| matches!(open.subject, Subject::Service { .. } | Subject::UnroutableAt { .. });
        self.calm = !wants
            && !self.book.open().any(to_plan)
            && self.outcomes.is_empty()
            && judgement.reach.values().all(|reach| reach.failures == 0);
        self.quiet = self.calm && findings.is_empty() && self.book.open().next().is_none();
        orders
    }

    fn of_open(&self) -> impl Iterator<Item = &PlanRecord> {
        let open: BTreeSet<IncidentId> = self.book.open().map(|open| open.id).collect();
        self.plans.iter().filter(move |record| open.contains(&record.incident))
    }

    fn record(&self, scenery: &Scenery, now: Timestamp) -> Record {
        let fresh = self.read_at.is_some_and(|at| now.since(at) <= READING_AGE_MAX);
        match scenery.nodes.get(self.reading).and_then(|(_, address)| Addresses::one(*address).ok()) {
            Some(addresses) if fresh => Record::Found(addresses),
            Some(_) | None => Record::Unknown,
        }
    }

    fn keep_book(
        &mut self,
        scenery: &Scenery,
        judgement: &Judgement,
        findings: &[Finding],
        serving: &BTreeMap<ServiceName, NodeName>,
        truly: i64,
    ) {
        let in_force = self.of_open().filter(|record| record.holds_open()).map(|record| record.incident).collect();
        for transition in self.book.step(&scenery.topology, judgement, findings, serving, &in_force) {
            match transition {
                Transition::Open { finding } => {
                    self.last_incident += 1;
                    let id = IncidentId(self.last_incident);
                    self.keys.insert(id, finding.subject.key());
                    self.note(truly, format!("incident {} opens: {} {}", id.0, finding.subject.key(), finding.kind));
                    self.book.opened(id, &finding, judgement.at);
                }
                Transition::Change { id, finding } => {
                    self.note(truly, format!("incident {} is now {}", id.0, finding.kind));
                    self.book.changed(&finding);
                }
                Transition::Close { id, .. } => {
                    self.note(truly, format!("incident {} closes", id.0));
                    self.book.closed(id, judgement.at);
                }
            }
        }
    }

    fn ask(
        &mut self,
        scenery: &Scenery,
        mut asks: BTreeSet<wanted::Ask>,
        now: Timestamp,
        outside: &Outside,
        orders: &mut Vec<Order>,
    ) {
        let linked = |name: &VantageName| scenery.vantage(name).filter(|v| outside.linked.get(*v) == Some(&true));
        asks.retain(|ask| linked(&ask.vantage).is_some());
        let (repeat, gap) = scenery.topology.policy.tries();
        for ask in self.asked.due(&scenery.topology, asks, now) {
            self.due.asked(now);
            let Some((vantage, subject)) = linked(&ask.vantage).zip(subject_of(scenery, &ask.target, ask.address))
            else {
                continue;
            };
            orders.push(Order::Try { vantage, subject, repeat, gap_ms: millis(gap) });
        }
    }

    fn plan(&mut self, scenery: &Scenery, judgement: &Judgement, record: Record, truly: i64) {
        let open: Vec<Open> = self.book.open().cloned().collect();
        let relapses = self.relapses(judgement.at.minus(scenery.topology.policy.relapse_window));
        let none = BTreeMap::new();
        let records = BTreeMap::from([(scenery.service.clone(), record)]);
        for incident in open {
            let plans: Vec<PlanRecord> =
                self.plans.iter().filter(|record| record.incident == incident.id).cloned().collect();
            let situation = Situation {
                topology: &scenery.topology,
                fold: &self.fold,
                judgement,
                incident: &incident,
                plans: &plans,
                records: &records,
                relapses: relapses.get(&incident.subject.key()).unwrap_or(&none),
            };
            for decision in plan::plan(situation) {
                let Decision::Plan(plan) = decision else { continue };
                if failed_lately(&plans, &plan.item).is_some_and(|until| judgement.at < until) {
                    continue;
                }
                let found = records.get(&scenery.service);
                let refusals = self.refusals(scenery, judgement, &plan, None, incident.id, found);
                if refusals.is_empty() {
                    self.insert(incident.id, *plan, judgement.at, truly);
                }
            }
        }
    }

    /// Whether an open incident has made all the changes that it may, or took one back that helped nobody.
    pub(crate) fn spent(&self, changes_max: u32) -> bool {
        let mut counts: BTreeMap<IncidentId, u32> = BTreeMap::new();
        for record in self.of_open().filter(|record| record.counts()) {
            *counts.entry(record.incident).or_default() += 1;
        }
        counts.values().any(|count| *count >= changes_max)
    }

    /// Returns that a later remedy of the same subject followed, by the incident's subject and the item.
    fn relapses(&self, since: Timestamp) -> BTreeMap<String, BTreeMap<String, u32>> {
        let key = |record: &PlanRecord| self.keys.get(&record.incident).cloned();
        let made = |purpose| self.plans.iter().filter(move |record| record.plan.purpose == purpose);
        let mut relapses: BTreeMap<String, BTreeMap<String, u32>> = BTreeMap::new();
        for back in made(PlanPurpose::Return).filter(|back| back.applied_at > Some(since)) {
            let again = made(PlanPurpose::Remedy).any(|again| {
                again.applied_at > back.applied_at && again.plan.item == back.plan.item && key(again) == key(back)
            });
            if let Some(key) = key(back).filter(|_| again) {
                *relapses.entry(key).or_default().entry(back.plan.item.clone()).or_default() += 1;
            }
        }
        relapses
    }

    fn note(&mut self, truly: i64, what: String) {
        self.history.push((truly, what));
    }
}

fn subject_of(scenery: &Scenery, target: &Target, address: IpAddr) -> Option<Tried> {
    match target {
        Target::Node(name) => scenery.nodes.iter().position(|(known, _)| known == name).map(Tried::Node),
        Target::Name(name) if *name == scenery.host => scenery.node_at(address).map(Tried::Host),
        Target::Name(_) => scenery.canary.1.iter().position(|known| *known == address).map(Tried::Canary),
    }
}

/// Whether a plan occupies its driver.
fn on_its_way(status: PlanStatus) -> bool {
    [PlanStatus::Approved, PlanStatus::Applying].contains(&status)
}

/// Until when the next plan waits because the last ones came to nothing.
fn failed_lately(plans: &[PlanRecord], item: &str) -> Option<Timestamp> {
    let about = plans.iter().rev().filter(|record| record.plan.item == item);
    let nothing = [PlanStatus::Failed, PlanStatus::Refused, PlanStatus::Yielded, PlanStatus::Expired];
    let failed: Vec<&PlanRecord> = about.take_while(|record| nothing.contains(&record.status)).collect();
    let doublings = u32::try_from(failed.len().saturating_sub(1)).unwrap_or(u32::MAX).min(16);
    failed.first().map(|newest| newest.created_at.plus(RETRY_WAIT.saturating_mul(1 << doublings).min(RETRY_WAIT_MAX)))
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}
