//! The changes that are in force in a course: those that were really made, each step at its time, or those that a
//! rehearsal would make, each taken as made and proven at once.

use std::collections::BTreeMap;
use std::time::Duration;

use parallax_decide::change::Change;
use parallax_decide::incident::IncidentId;
use parallax_decide::names::{Addresses, DomainName, ServiceName, VantageName};
use parallax_decide::plan::{Plan, PlanId, PlanPurpose, PlanRecord, PlanStatus, Record};
use parallax_decide::time::Timestamp;
use parallax_decide::topology::{Mode, Topology};

use crate::store::plan::StoredPlan;
use crate::store::read::replay::Really;

/// A plan with what became of it when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Key of its incident.
    pub key: String,
    /// The plan as it stands in the end.
    pub record: PlanRecord,
    /// When it left the statuses of a plan that is on its way or stands; none: it did not.
    pub ended_at: Option<Timestamp>,
}

impl Kept {
    /// The plan as it stood at a moment; none: it was not made yet.
    #[must_use]
    pub fn at(&self, moment: Timestamp) -> Option<PlanRecord> {
        let reached = |at: Option<Timestamp>| at.filter(|at| *at <= moment);
        if self.record.created_at > moment {
            return None;
        }
        let (applied_at, verified_at) = (reached(self.record.applied_at), reached(self.record.verified_at));
        let status = if reached(self.ended_at).is_some() {
            self.record.status
        } else if verified_at.is_some() {
            PlanStatus::Verified
        } else if applied_at.is_some() {
            PlanStatus::Applied
        } else if self.record.plan.mode == Mode::Act {
            PlanStatus::Approved
        } else {
            PlanStatus::Proposed
        };
        Some(PlanRecord { status, applied_at, verified_at, ..self.record.clone() })
    }
}

/// The stored plans, with when each of them ended.
#[must_use]
pub fn as_they_were(plans: Vec<StoredPlan>, really: &[Really], ended: &BTreeMap<PlanId, Timestamp>) -> Vec<Kept> {
    let records: Vec<PlanRecord> = plans.into_iter().map(|stored| stored.record).collect();
    let ended_at = |record: &PlanRecord| {
        let later = |purpose| {
            let same = records.iter().filter(move |other| {
                other.incident == record.incident && other.plan.item == record.plan.item && other.id > record.id
            });
            same.filter(move |other| other.plan.purpose == purpose)
        };
        let closed = really.iter().find(|one| one.id == record.incident).and_then(|one| one.closed_at);
        match record.status {
            PlanStatus::Undone => later(PlanPurpose::Return).filter_map(|back| back.verified_at).min(),
            PlanStatus::RolledBack => later(PlanPurpose::Rollback).filter_map(|back| back.applied_at).min(),
            PlanStatus::Failed | PlanStatus::Refused | PlanStatus::Yielded | PlanStatus::Expired => {
                // A proposal that nobody took up ends with its incident, without a line of its own.
                Some(ended.get(&record.id).copied().or(closed).unwrap_or(record.plan.expires_at))
            }
            PlanStatus::Proposed
            | PlanStatus::Approved
            | PlanStatus::Applying
            | PlanStatus::Applied
            | PlanStatus::Verified => None,
        }
    };
    let key = |record: &PlanRecord| really.iter().find(|one| one.id == record.incident).map(|one| one.key.clone());
    records
        .iter()
        .map(|record| Kept {
            // One of an incident that closed before: it matters to relapses alone, which go by the item as well.
            key: key(record).unwrap_or_default(),
            record: record.clone(),
            ended_at: ended_at(record),
        })
        .collect()
}

/// Changes of a course.
#[derive(Debug, Clone)]
pub struct Remedies {
    /// Whether the course makes its own.
    rehearsed: bool,
    plans: Vec<Kept>,
    records: BTreeMap<ServiceName, Record>,
    pins: BTreeMap<(VantageName, DomainName), Addresses>,
    /// Plans up to here are in the records.
    told: Timestamp,
}

impl Remedies {
    /// Those that were really made.
    #[must_use]
    pub fn as_stored(topology: &Topology, records: &BTreeMap<String, Change>, plans: &[Kept]) -> Self {
        Self {
            rehearsed: false,
            plans: plans.to_vec(),
            records: records_of(topology, records),
            pins: BTreeMap::new(),
            told: Timestamp(i64::MIN),
        }
    }

    /// Those of a rehearsal that begins with what stood at a moment.
    #[must_use]
    pub fn rehearsed(
        topology: &Topology,
        records: &BTreeMap<String, Change>,
        plans: &[Kept],
        begin: Timestamp,
    ) -> Self {
        let stood = plans.iter().filter_map(|kept| {
            let mut record = kept.at(begin)?;
            if record.status.in_flight() {
                // What is on its way is taken as made and proven, like every change of a rehearsal.
                record.applied_at = record.applied_at.or(Some(begin));
                record.verified_at = Some(begin);
                record.status = PlanStatus::Verified;
            }
            Some(Kept { key: kept.key.clone(), record, ended_at: kept.ended_at.filter(|at| *at <= begin) })
        });
        let plans: Vec<Kept> = stood.collect();
        let mut remedies = Self {
            rehearsed: true,
            plans: Vec::new(),
            records: records_of(topology, records),
            pins: BTreeMap::new(),
            told: begin,
        };
        for kept in plans {
            if kept.record.applied_at.is_some() {
                remedies.set(&kept.record.plan);
            }
            remedies.plans.push(kept);
        }
        remedies
    }

    /// What each service's record holds at a moment. Moments must not go back.
    pub fn records(&mut self, moment: Timestamp) -> &BTreeMap<ServiceName, Record> {
        if !self.rehearsed && moment > self.told {
            let applied = |kept: &&Kept| kept.record.applied_at.is_some_and(|at| at > self.told && at <= moment);
            let mut due: Vec<&Kept> = self.plans.iter().filter(applied).collect();
            due.sort_by_key(|kept| (kept.record.applied_at, kept.record.id));
            let due: Vec<Plan> = due.into_iter().map(|kept| kept.record.plan.clone()).collect();
            due.iter().for_each(|plan| self.set(plan));
            self.told = moment;
        }
        &self.records
    }

    /// Every plan of an incident as it stood at a moment, oldest first. `stored`: the incident's own number; `key` with
    /// it is what a course knows.
    #[must_use]
    pub fn of(&self, incident: IncidentId, moment: Timestamp) -> Vec<PlanRecord> {
        self.plans.iter().filter(|kept| kept.record.incident == incident).filter_map(|kept| kept.at(moment)).collect()
    }

    /// How often each item of an incident's key relapsed within a window before a moment, as the store counts it.
    #[must_use]
    pub fn relapses(&self, key: &str, window: Duration, moment: Timestamp) -> BTreeMap<String, u32> {
        let since = moment.minus(window);
        let mut relapses = BTreeMap::new();
        let applied = || {
            let made = self.plans.iter().filter_map(|kept| Some((kept, kept.record.applied_at?)));
            made.filter(|(_, at)| *at <= moment)
        };
        for (back, back_at) in
            applied().filter(|(back, at)| back.record.plan.purpose == PlanPurpose::Return && *at > since)
        {
            let again = applied().any(|(again, at)| {
                again.record.plan.purpose == PlanPurpose::Remedy
                    && again.record.plan.item == back.record.plan.item
                    && at > back_at
            });
            if again && (back.key == key || back.key.is_empty()) {
                *relapses.entry(back.record.plan.item.clone()).or_insert(0) += 1;
            }
        }
        relapses
    }

    /// What a driver would find for a plan; none: nothing.
    #[must_use]
    pub fn found(&self, plan: &Plan) -> Option<Record> {
        match &plan.vantage {
            None => Some(self.records.iter().find(|(name, _)| name.as_str() == plan.item)?.1.clone()),
            Some(vantage) => {
                let key = (vantage.clone(), plan.change.name().clone());
                self.pins.get(&key).cloned().map(Record::Found)
            }
        }
    }

    /// Whether the course makes its own changes.
    #[must_use]
    pub fn makes_changes(&self) -> bool {
        self.rehearsed
    }

    /// Makes a change of a rehearsal, or puts it before people who never answer.
    pub fn make(&mut self, key: &str, incident: IncidentId, plan: &Plan, moment: Timestamp) {
        let acts = plan.mode == Mode::Act;
        let id = PlanId(self.plans.iter().map(|kept| kept.record.id.0).max().unwrap_or(0).saturating_add(1));
        if acts {
            self.set(plan);
            if plan.purpose == PlanPurpose::Return {
                let undone = |kept: &&mut Kept| {
                    kept.record.incident == incident
                        && kept.record.plan.item == plan.item
                        && kept.record.plan.purpose != PlanPurpose::Return
                        && kept.ended_at.is_none()
                };
                for kept in self.plans.iter_mut().filter(undone) {
                    kept.record.status = PlanStatus::Undone;
                    kept.ended_at = Some(moment);
                }
            }
        }
        let record = PlanRecord {
            id,
            incident,
            epoch: 0,
            created_at: moment,
            status: if acts { PlanStatus::Verified } else { PlanStatus::Proposed },
            applied_at: acts.then_some(moment),
            verified_at: acts.then_some(moment),
            plan: plan.clone(),
        };
        self.plans.push(Kept { key: key.to_owned(), record, ended_at: None });
    }

    fn set(&mut self, plan: &Plan) {
        match (&plan.vantage, plan.change.sets()) {
            (None, Some(addresses)) => {
                if let Ok(service) = plan.item.parse() {
                    self.records.insert(service, Record::Found(addresses.clone()));
                }
            }
            // No change of ours leaves a service's record empty.
            (None, None) => {}
            (Some(vantage), sets) => {
                let key = (vantage.clone(), plan.change.name().clone());
                match sets {
                    Some(addresses) => self.pins.insert(key, addresses.clone()),
                    None => self.pins.remove(&key),
                };
            }
        }
    }
}

/// What each record held: what the last change left, else the native node.
fn records_of(topology: &Topology, last: &BTreeMap<String, Change>) -> BTreeMap<ServiceName, Record> {
    let records = topology.services.iter().map(|(name, service)| {
        let left = last.get(name.as_str()).and_then(Change::sets).cloned();
        let native = || {
            let node = topology.nodes.get(&service.native)?;
            Addresses::one(node.address).ok()
        };
        (name.clone(), left.or_else(native).map_or(Record::Unknown, Record::Found))
    });
    records.collect()
}
