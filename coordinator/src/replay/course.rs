//! One run over the log: what is folded, which incidents open and close, and which changes would be made.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parallax_decide::change::Change;
use parallax_decide::finding::{Finding, Subject};
use parallax_decide::fold::Fold;
use parallax_decide::guard::{self, Facts, Refusal};
use parallax_decide::incident::{Book, Closed, IncidentId, Open, Steady, Transition, outline};
use parallax_decide::judge::judge;
use parallax_decide::names::VantageName;
use parallax_decide::observation::Observation;
use parallax_decide::plan::{self, Decision, Plan, PlanPurpose, PlanRecord, Situation};
use parallax_decide::time::Timestamp;
use parallax_decide::topology::{Mode, Policy, Topology};

use super::onset::onset;
use super::remedies::Remedies;
use crate::judging::{follow, serving};
use crate::store::read::replay::Really;

/// Shortest pause between two judgements: many small commits are folded together, as live.
const GAP: Duration = Duration::from_millis(50);

/// Changes a course keeps; more than these are counted only.
pub const CHANGES_MAX: usize = 10_000;

/// An incident of a course.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incident {
    /// What identifies it among open ones.
    pub key: String,
    /// What it is about.
    pub subject: Subject,
    /// Kind's word, the last one.
    pub kind: String,
    /// Everything it affected.
    pub members: BTreeSet<String>,
    /// The last finding.
    pub finding: Finding,
    /// When it opened.
    pub opened_at: Timestamp,
    /// When it closed; none: it was open at the end.
    pub closed_at: Option<Timestamp>,
    /// When the fault began, as far as the log shows it.
    pub onset: Option<Timestamp>,
    /// It was open when the replay began, and stands with its stored opening.
    pub carried: bool,
}

/// A change that would be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WouldBe {
    /// When it is decided.
    pub at: Timestamp,
    /// Key of its incident.
    pub key: String,
    /// Service or name.
    pub item: String,
    /// Vantage whose agent makes it; none: the coordinator.
    pub vantage: Option<VantageName>,
    /// What it is for.
    pub purpose: PlanPurpose,
    /// The change.
    pub change: Change,
    /// What automation may do with it.
    pub mode: Mode,
    /// Why guards refuse it; empty: they do not.
    pub refused: BTreeSet<Refusal>,
}

/// One run.
#[derive(Debug)]
pub struct Course {
    topology: Topology,
    policy: Option<Policy>,
    fold: Fold,
    book: Book,
    remedies: Remedies,
    really: Vec<Really>,
    incidents: BTreeMap<IncidentId, Incident>,
    changes: Vec<WouldBe>,
    decided: BTreeMap<(IncidentId, String), Change>,
    made: i64,
    judged: u64,
    last: Timestamp,
    before: Timestamp,
    pending: Option<Timestamp>,
}

impl Course {
    /// A run that has not begun, with the incidents that are open at `begin`.
    #[must_use]
    pub fn new(remedies: Remedies, policy: Option<Policy>, begin: Timestamp, really: &[Really]) -> Self {
        let open = really.iter().filter(|one| one.opened_at < begin && one.open_at(begin));
        let carried = open.filter_map(|one| Some((one.id, carried(one, begin)?)));
        Self {
            topology: Topology::default(),
            policy,
            fold: Fold::default(),
            book: Book::default(),
            remedies,
            really: really.to_vec(),
            incidents: carried.collect(),
            changes: Vec::new(),
            decided: BTreeMap::new(),
            made: 0,
            judged: 0,
            last: begin,
            before: begin,
            pending: None,
        }
    }

    /// Begins a span of judging, as a start does: the state is rebuilt from the log, the open incidents stay.
    pub fn start(&mut self, topology: &Topology, listening_since: Timestamp, start: Timestamp) {
        self.take(topology);
        self.fold = Fold::listening_since(listening_since);
        // As a start does: what the store has of hysteresis stays.
        let mut steady: BTreeMap<IncidentId, Steady> =
            self.book.open().map(|open| (open.id, Steady { naming: None, ..open.steady.clone() })).collect();
        let closed: Vec<Closed> = self.book.closed_lately().cloned().collect();
        let open = self.incidents.iter().filter(|(_, incident)| incident.closed_at.is_none());
        let book = Book::new(open.map(|(id, incident)| Open {
            id: *id,
            subject: incident.subject.clone(),
            kind: incident.kind.clone(),
            members: incident.members.clone(),
            opened_at: incident.opened_at,
            outline: Some(outline(&incident.finding)),
            well_since: None,
            steady: steady.remove(id).unwrap_or_default(),
        }));
        self.book = book.with_closed(closed);
        self.last = start.minus(GAP);
        self.pending = Some(start);
    }

    /// Goes on with another configuration, as after a reload.
    pub fn reload(&mut self, topology: &Topology, at: Timestamp, step: Duration) {
        self.advance(at, step);
        self.take(topology);
    }

    fn take(&mut self, topology: &Topology) {
        self.topology = topology.clone();
        if let Some(policy) = &self.policy {
            self.topology.policy = policy.clone();
        }
    }

    /// Takes in a row of the log, after everything that is to be judged before it.
    pub fn apply(&mut self, observation: &Observation, step: Duration) {
        self.advance(observation.received_at, step);
        self.fold.apply(&self.topology, observation);
        self.pending.get_or_insert(observation.received_at);
    }

    /// Judges to the end of a span.
    pub fn finish(&mut self, end: Timestamp, step: Duration) {
        self.advance(end.plus(Duration::from_millis(1)), step);
    }

    /// Judges what is due before a moment.
    fn advance(&mut self, moment: Timestamp, step: Duration) {
        loop {
            let due = match self.pending {
                Some(pending) => pending.max(self.last.plus(GAP)),
                None => self.last.plus(step.max(GAP)),
            };
            if due >= moment {
                return;
            }
            self.pending = None;
            self.before = self.last;
            self.last = due;
            self.judge(due);
        }
    }

    fn judge(&mut self, now: Timestamp) {
        self.judged += 1;
        let judgement = judge(&self.topology, &self.fold, now);
        // Planning comes last in a moment and knows nothing of what it leads to: a change that was really made between two
        // moments must not hide from the second one that it was wanted.
        let records = self.remedies.records(self.before).clone();
        let serving = serving(&self.topology, self.remedies.records(now));
        let plans: BTreeMap<IncidentId, Vec<PlanRecord>> =
            self.book.open().map(|open| (open.id, self.plans(open, now))).collect();
        let holds = |plans: &Vec<PlanRecord>| plans.iter().any(PlanRecord::holds_open);
        let in_force = plans.iter().filter(|(_, plans)| holds(plans)).map(|(id, _)| *id).collect();
        for transition in follow(&mut self.book, &self.topology, &judgement, &serving, &in_force) {
            match transition {
                Transition::Open { finding } => {
                    self.made += 1;
                    // Below zero: none of the stored ones.
                    let id = IncidentId(-self.made);
                    self.book.opened(id, &finding, now);
                    let incident = Incident {
                        key: finding.subject.key(),
                        subject: finding.subject.clone(),
                        kind: finding.kind.clone(),
                        members: finding.members.clone(),
                        onset: onset(&self.topology, &self.fold, &judgement, &finding),
                        finding,
                        opened_at: now,
                        closed_at: None,
                        carried: false,
                    };
                    self.incidents.insert(id, incident);
                }
                Transition::Change { id, finding } => {
                    self.book.changed(&finding);
                    if let Some(incident) = self.incidents.get_mut(&id) {
                        incident.kind.clone_from(&finding.kind);
                        incident.members.extend(finding.members.iter().cloned());
                        incident.finding = finding;
                    }
                }
                Transition::Close { id, .. } => {
                    self.book.closed(id, now);
                    if let Some(incident) = self.incidents.get_mut(&id) {
                        incident.closed_at = Some(now);
                    }
                }
            }
        }
        let open: Vec<Open> = self.book.open().cloned().collect();
        for incident in &open {
            let plans = self.plans(incident, self.before);
            let key = incident.subject.key();
            let relapses = self.remedies.relapses(&key, self.topology.policy.relapse_window, self.before);
            let decisions = plan::plan(Situation {
                topology: &self.topology,
                fold: &self.fold,
                judgement: &judgement,
                incident,
                plans: &plans,
                records: &records,
                relapses: &relapses,
            });
            for decision in decisions {
                match decision {
                    Decision::Hold { item, .. } => {
                        self.decided.remove(&(incident.id, item));
                    }
                    Decision::Plan(plan) => {
                        let found = self.remedies.found(&plan);
                        let about = plans.iter().filter(|record| record.plan.item == plan.item && record.counts());
                        let facts = Facts {
                            topology: &self.topology,
                            judgement: &judgement,
                            frozen: false,
                            epoch_current: true,
                            // Of what a branch's resolver really held nothing is known here.
                            found: found.as_ref(),
                            changes_made: u32::try_from(about.count()).unwrap_or(u32::MAX),
                            driver_busy: false,
                            approved_by_person: plan.mode != Mode::Act,
                        };
                        let refused = guard::refusals(&plan, facts);
                        self.decide(incident.id, &key, *plan, refused, now);
                    }
                }
            }
        }
    }

    /// Notes a change once, and makes it in a rehearsal.
    fn decide(&mut self, id: IncidentId, key: &str, plan: Plan, refused: BTreeSet<Refusal>, now: Timestamp) {
        let refused = if self.remedies.makes_changes() { refused } else { BTreeSet::new() };
        if self.remedies.makes_changes() && refused.is_empty() {
            self.remedies.make(key, id, &plan, now);
        }
        if self.decided.get(&(id, plan.item.clone())) == Some(&plan.change) {
            return;
        }
        self.decided.insert((id, plan.item.clone()), plan.change.clone());
        if self.changes.len() < CHANGES_MAX {
            let Plan { item, vantage, purpose, change, mode, .. } = plan;
            self.changes.push(WouldBe { at: now, key: key.to_owned(), item, vantage, purpose, change, mode, refused });
        }
    }

    /// The plans of an open incident as they stand at a moment.
    fn plans(&self, open: &Open, moment: Timestamp) -> Vec<PlanRecord> {
        if self.remedies.makes_changes() {
            return self.remedies.of(open.id, moment);
        }
        let key = open.subject.key();
        let stored = self.really.iter().rev().find(|one| one.key == key && one.open_at(moment));
        let plans = stored.map(|one| self.remedies.of(one.id, moment)).unwrap_or_default();
        plans.into_iter().map(|record| PlanRecord { incident: open.id, ..record }).collect()
    }

    /// Its incidents that were open between two times, in order of opening.
    #[must_use]
    pub fn incidents(&self, from: Timestamp, to: Timestamp) -> Vec<&Incident> {
        let open = |one: &&Incident| one.opened_at <= to && one.closed_at.is_none_or(|closed| closed >= from);
        let mut incidents: Vec<&Incident> = self.incidents.values().filter(open).collect();
        incidents.sort_by(|a, b| (a.opened_at, &a.key).cmp(&(b.opened_at, &b.key)));
        incidents
    }

    /// The changes it would make between two times, in order.
    #[must_use]
    pub fn changes(&self, from: Timestamp, to: Timestamp) -> Vec<&WouldBe> {
        self.changes.iter().filter(|change| change.at >= from && change.at <= to).collect()
    }

    /// The policy it was judged with, at the end.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.topology.policy
    }

    /// Whether it makes its own changes.
    #[must_use]
    pub fn makes_changes(&self) -> bool {
        self.remedies.makes_changes()
    }

    /// How many moments it judged.
    #[must_use]
    pub fn judged(&self) -> u64 {
        self.judged
    }
}

/// An incident that is open at a moment, as it was stored until then.
fn carried(one: &Really, moment: Timestamp) -> Option<Incident> {
    let finding = one.finding_at(moment)?.clone();
    let until = one.findings.iter().filter(|(at, _)| *at <= moment);
    Some(Incident {
        key: one.key.clone(),
        subject: finding.subject.clone(),
        kind: finding.kind.clone(),
        members: until.flat_map(|(_, finding)| finding.members.iter().cloned()).collect(),
        finding,
        opened_at: one.opened_at,
        closed_at: None,
        onset: None,
        carried: true,
    })
}
