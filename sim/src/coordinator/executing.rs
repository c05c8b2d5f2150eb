//! Plans on their way: guarded, applied, proven or taken back.

use super::*;

impl Coordinator {
    pub(super) fn refusals(
        &self,
        scenery: &Scenery,
        judgement: &Judgement,
        plan: &Plan,
        own: Option<PlanId>,
        incident: IncidentId,
        found: Option<&Record>,
    ) -> BTreeSet<Refusal> {
        let about = self.plans.iter().filter(|record| record.incident == incident && record.plan.item == plan.item);
        let changes_made = u32::try_from(about.filter(|record| record.counts()).count()).unwrap_or(u32::MAX);
        let facts = Facts {
            topology: &scenery.topology,
            judgement,
            frozen: false,
            epoch_current: true,
            found,
            changes_made,
            driver_busy: self.of_open().any(|other| Some(other.id) != own && on_its_way(other.status)),
            approved_by_person: false,
        };
        guard::refusals(plan, facts)
    }

    pub(super) fn insert(&mut self, incident: IncidentId, plan: Plan, now: Timestamp, truly: i64) -> Option<PlanId> {
        if self.of_open().any(|record| on_its_way(record.status)) {
            return None;
        }
        let id = PlanId(i64::try_from(self.plans.len()).unwrap_or(i64::MAX - 1) + 1);
        self.note(truly, format!("plan {} ({}): {:?}", id.0, plan.purpose, plan.reason));
        self.plans.push(PlanRecord {
            id,
            incident,
            epoch: 1,
            created_at: now,
            status: PlanStatus::Approved,
            applied_at: None,
            verified_at: None,
            plan,
        });
        Some(id)
    }

    /// Goes one step on with every plan that is on its way.
    pub(super) fn execute(
        &mut self,
        scenery: &Scenery,
        judgement: &Judgement,
        truly: i64,
        outside: &Outside,
        orders: &mut Vec<Order>,
    ) {
        for (id, at, made) in std::mem::take(&mut self.outcomes) {
            if made {
                self.settle(id, at, truly);
            } else {
                self.wait(id, judgement.at);
            }
        }
        let under_way: Vec<PlanRecord> = self.of_open().filter(|record| on_its_way(record.status)).cloned().collect();
        for record in under_way {
            self.proceed(scenery, judgement, &record, truly, outside, orders);
        }
    }

    pub(super) fn proceed(
        &mut self,
        scenery: &Scenery,
        judgement: &Judgement,
        record: &PlanRecord,
        truly: i64,
        outside: &Outside,
        orders: &mut Vec<Order>,
    ) {
        let (now, id) = (judgement.at, record.id);
        let late = now > record.plan.expires_at;
        if late && record.status == PlanStatus::Approved {
            return self.set(id, PlanStatus::Expired, truly);
        }
        let progress = self.progress.entry(id).or_default();
        if progress.sent || now < progress.until {
            return;
        }
        let Some(ready) = progress.look_ready else {
            let takes = self.dice.between(20, 300);
            progress.look_ready = Some(Timestamp(now.0 + takes));
            return;
        };
        if now < ready {
            return;
        }
        progress.look_ready = None;
        let address = scenery.nodes.get(outside.record).map(|(_, address)| *address).filter(|_| outside.provider);
        let Some(found) = address.and_then(|address| Addresses::one(address).ok()) else {
            return self.wait(id, now);
        };
        let sent_before = record.status == PlanStatus::Applying;
        match record.plan.change.standing(Some(&found)) {
            Standing::Foreign => self.set(id, PlanStatus::Yielded, truly),
            Standing::AlreadySet if sent_before => self.settle(id, now, truly),
            Standing::AsExpected if sent_before && late => self.set(id, PlanStatus::Expired, truly),
            Standing::AsExpected | Standing::AlreadySet => {
                let found = Record::Found(found);
                let refusals = self.refusals(scenery, judgement, &record.plan, Some(id), record.incident, Some(&found));
                if refusals.is_empty() {
                    let node = |addresses: Option<&Addresses>| {
                        addresses.and_then(|set| set.iter().next()).and_then(|address| scenery.node_at(address))
                    };
                    let change = &record.plan.change;
                    let Some((expects, sets)) = node(change.expects()).zip(node(change.sets())) else { return };
                    let after_ms = self.dice.between(20, 500);
                    orders.push(Order::Change { plan: id, expects, sets, after_ms });
                    self.progress.entry(id).or_default().sent = true;
                    self.set(id, PlanStatus::Applying, truly);
                } else if sent_before || record.plan.purpose == PlanPurpose::Rollback {
                    self.wait(id, now);
                } else {
                    self.note(truly, format!("plan {} refused: {refusals:?}", id.0));
                    self.set(id, PlanStatus::Refused, truly);
                }
            }
        }
    }

    pub(super) fn wait(&mut self, id: PlanId, now: Timestamp) {
        let progress = self.progress.entry(id).or_default();
        let pause = AGAIN_AFTER.saturating_mul(1 << progress.tries.min(16)).min(AGAIN_AFTER_MAX);
        (progress.sent, progress.look_ready, progress.until) = (false, None, now.plus(pause));
        progress.tries = progress.tries.saturating_add(1);
    }

    /// Stores that a change was made.
    pub(super) fn settle(&mut self, id: PlanId, at: Timestamp, truly: i64) {
        self.progress.remove(&id);
        let Some(record) = self.plans.iter_mut().find(|record| record.id == id) else { return };
        if !on_its_way(record.status) {
            return;
        }
        (record.status, record.applied_at) = (PlanStatus::Applied, Some(at));
        let undone = record.plan.undoes.filter(|_| record.plan.purpose == PlanPurpose::Rollback);
        if let Some(undone) = undone {
            self.set(undone, PlanStatus::RolledBack, truly);
        }
    }

    pub(super) fn set(&mut self, id: PlanId, status: PlanStatus, truly: i64) {
        if let Some(record) = self.plans.iter_mut().find(|record| record.id == id) {
            record.status = status;
        }
        self.note(truly, format!("plan {} {status}", id.0));
    }

    /// Looks for the proof of every applied plan.
    pub(super) fn prove(
        &mut self,
        scenery: &Scenery,
        judgement: &Judgement,
        truly: i64,
        outside: &Outside,
        orders: &mut Vec<Order>,
    ) {
        let applied: Vec<PlanRecord> =
            self.of_open().filter(|record| record.status == PlanStatus::Applied).cloned().collect();
        self.proofs_asked.retain(|(id, _), _| applied.iter().any(|record| record.id == *id));
        for record in applied {
            let Some(verification) = verify::verify(&scenery.topology, &self.fold, judgement, &record) else {
                continue;
            };
            match verification.proof {
                Proof::Proven => self.proven(&record, judgement.at, truly),
                Proof::Wait { missing } => {
                    self.ask_for_proof(scenery, &record, &missing, judgement.at, outside, orders)
                }
                Proof::Undo { .. } if self.unproven.contains(&record.id) => {}
                Proof::Undo { missing } => match record.plan.purpose {
                    PlanPurpose::Remedy | PlanPurpose::Return => self.undo(&record, &missing, judgement.at, truly),
                    PlanPurpose::Rollback => {
                        self.unproven.insert(record.id);
                        self.note(
                            truly,
                            format!("plan {} takes back what cannot be proven: people must look", record.id.0),
                        );
                    }
                },
            }
        }
    }

    pub(super) fn proven(&mut self, record: &PlanRecord, now: Timestamp, truly: i64) {
        self.set(record.id, PlanStatus::Verified, truly);
        for other in &mut self.plans {
            if other.id == record.id {
                other.verified_at = Some(now);
            }
            let same = other.incident == record.incident && other.plan.item == record.plan.item;
            let stood = other.plan.purpose == PlanPurpose::Remedy && other.status == PlanStatus::Verified;
            if record.plan.purpose == PlanPurpose::Return && same && stood {
                other.status = PlanStatus::Undone;
            }
        }
    }

    pub(super) fn ask_for_proof(
        &mut self,
        scenery: &Scenery,
        record: &PlanRecord,
        missing: &[VantageName],
        now: Timestamp,
        outside: &Outside,
        orders: &mut Vec<Order>,
    ) {
        let Some(applied_at) = record.applied_at else { return };
        let elapsed = now.since(applied_at);
        if elapsed > scenery.topology.policy.verify_within {
            return;
        }
        let gap = PROVE_AGAIN.max(elapsed / 10);
        for name in missing {
            let Some(vantage) = scenery.vantage(name).filter(|v| outside.linked.get(*v) == Some(&true)) else {
                continue;
            };
            let key = (record.id, name.clone());
            if self.proofs_asked.get(&key).is_none_or(|at| now.since(*at) >= gap) {
                orders.push(Order::Prove { vantage });
                self.proofs_asked.insert(key, now);
            }
        }
    }

    pub(super) fn undo(&mut self, record: &PlanRecord, missing: &[VantageName], now: Timestamp, truly: i64) {
        let missing: Vec<&str> = missing.iter().map(VantageName::as_str).collect();
        let rollback = Plan {
            purpose: PlanPurpose::Rollback,
            undoes: Some(record.id),
            change: record.plan.change.undo(),
            reason: PlanReason::ProofFailed { why: format!("not usable at {}", missing.join(", ")) },
            expires_at: now.plus(ROLLBACK_LIFE),
            mode: Mode::Act,
            ..record.plan.clone()
        };
        if self.insert(record.incident, rollback, now, truly).is_some() {
            self.unproven.insert(record.id);
        }
    }
}
