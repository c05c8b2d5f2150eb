//! Holds what was done against what was really so. It knows the faults and the record, and nothing of the decisions.

use std::collections::{BTreeMap, BTreeSet};

use parallax_decide::incident::IncidentId;
use parallax_decide::plan::PlanPurpose;

use crate::fault::{Fault, Kind};
use crate::scenery::Scenery;
use crate::truth::{Goal, blocks, death};

/// The bounds that are held against a run, in ms.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// From the death of the serving node to the changed record, while every vantage can speak.
    pub failover: i64,
    /// The same while one cannot: its last success vetoes until it is stale.
    pub failover_veiled: i64,
    /// From a well native node to the returned record.
    pub back: i64,
    /// A fault that ended longer ago than this earns no change.
    pub memory: i64,
    /// What nobody proved for so long is no target.
    pub proof: i64,
    /// Without a word from anybody for so long everything is frozen.
    pub silence: i64,
    /// Most changes of the record in an hour.
    pub hourly: usize,
}

impl Bounds {
    /// The bounds of a policy.
    pub(crate) fn of(scenery: &Scenery) -> Self {
        let policy = &scenery.topology.policy;
        let ms = |span: std::time::Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX / 4);
        let failover = if scenery.fast { 30_000 } else { 90_000 };
        Self {
            failover,
            failover_veiled: failover + ms(policy.fresh_for),
            back: ms(policy.dwell_max) + 600_000,
            memory: 2 * ms(policy.node_every) + 15_000,
            proof: ms(policy.proof_age_max) + 10_000,
            silence: ms(policy.silent_after) + 5000,
            hourly: if scenery.fast { 60 } else { 12 },
        }
    }
}

/// A change of the record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Made {
    /// When, by the true time.
    pub at: i64,
    /// What for.
    pub purpose: PlanPurpose,
    /// For which incident.
    pub incident: IncidentId,
    /// The node it left.
    pub from: usize,
    /// The node it points to.
    pub to: usize,
}

/// Something that is owed since a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Owed {
    since: i64,
    veiled: bool,
    late: bool,
}

/// What was found in one run.
#[derive(Debug)]
pub(crate) struct Auditor {
    bounds: Bounds,
    failover: Option<Owed>,
    back: Option<Owed>,
    made: Vec<Made>,
    remedies: BTreeMap<IncidentId, u32>,
    /// Violations: when, and what.
    pub violations: Vec<(i64, String)>,
    /// From death to change, of deaths that all could see, in ms.
    pub detections: Vec<i64>,
    /// Failovers that were owed, and made.
    pub failovers: u32,
    /// Changes that a lie forced where nobody could contradict it.
    pub lied: u32,
}

impl Auditor {
    /// An auditor of a run.
    pub(crate) fn new(scenery: &Scenery) -> Self {
        Self {
            bounds: Bounds::of(scenery),
            failover: None,
            back: None,
            made: Vec::new(),
            remedies: BTreeMap::new(),
            violations: Vec::new(),
            detections: Vec::new(),
            failovers: 0,
            lied: 0,
        }
    }

    /// Looks at the state of the world as it is from `now` on. `stuck`: the budget of the open incident is spent. Returns
    /// when to look again even if nothing happens.
    pub(crate) fn look(
        &mut self,
        scenery: &Scenery,
        faults: &[Fault],
        record: usize,
        stuck: bool,
        now: i64,
    ) -> Option<i64> {
        let on: Vec<Kind> = faults.iter().filter(|fault| fault.at(now)).map(|fault| fault.kind).collect();
        let world = World { scenery, on: &on };
        let owed = !stuck && world.failover_owed(record);
        let veiled = world.speakers().count() < scenery.vantages.len();
        self.failover = owe(self.failover, owed, veiled, now);
        let owed = record != 0 && !veiled && world.well() && !world.dead(0);
        self.back = owe(self.back, owed, false, now);
        let failover = self.failover.map(|owed| {
            let bound = if owed.veiled { self.bounds.failover_veiled } else { self.bounds.failover };
            (owed, owed.since + bound)
        });
        let back = self.back.map(|owed| (owed, owed.since + self.bounds.back));
        if let Some((owed, _)) = failover.filter(|(owed, until)| !owed.late && *until <= now) {
            let name = scenery.nodes.get(record).map(|(name, _)| name.as_str()).unwrap_or_default();
            let text = format!(
                "missed hard fault: {name} serves and is dead since {}; the faults are {on:?}",
                clock(owed.since)
            );
            self.violations.push((now, text));
            self.failover = Some(Owed { late: true, ..owed });
        }
        if let Some((owed, _)) = back.filter(|(owed, until)| !owed.late && *until <= now) {
            self.violations.push((now, format!("not returned: all is well since {}", clock(owed.since))));
            self.back = Some(Owed { late: true, ..owed });
        }
        failover.into_iter().chain(back).map(|(_, until)| until).filter(|until| *until > now).min()
    }

    /// Looks at a change of the record.
    pub(crate) fn made(&mut self, scenery: &Scenery, faults: &[Fault], made: Made) {
        match made.purpose {
            PlanPurpose::Remedy => self.remedy(scenery, faults, made),
            PlanPurpose::Return | PlanPurpose::Rollback => {}
        }
        let dead = |node: usize, from: i64| {
            faults.iter().any(|fault| death(fault.kind, node).is_some() && fault.from <= from && made.at < fault.to)
        };
        if made.purpose != PlanPurpose::Rollback && dead(made.to, made.at - self.bounds.proof) {
            self.violations.push((made.at, format!("moved to node {}, which is dead: {made:?}", made.to)));
        }
        if made.purpose == PlanPurpose::Rollback && self.used(scenery, faults, made) {
            self.violations.push((made.at, format!("took back a change that works: {made:?}")));
        }
        let unheard = |vantage: usize| {
            let from = made.at - self.bounds.silence;
            faults
                .iter()
                .any(|fault| silences(fault.kind, scenery, vantage) && fault.from <= from && made.at < fault.to)
        };
        if (0..scenery.vantages.len()).all(unheard) {
            self.violations.push((made.at, format!("changed the record while nobody could be heard: {made:?}")));
        }
        self.made.push(made);
        let lately = self.made.iter().filter(|other| made.at - other.at < 3_600_000).count();
        if lately > self.bounds.hourly {
            self.violations.push((made.at, format!("the record flaps: {lately} changes in an hour")));
        }
        self.failover = None;
    }

    fn remedy(&mut self, scenery: &Scenery, faults: &[Fault], made: Made) {
        let policy = &scenery.topology.policy;
        let count = self.remedies.entry(made.incident).or_default();
        *count += 1;
        if *count > policy.changes_max {
            self.violations.push((made.at, format!("{count} changes of one incident: {made:?}")));
        }
        let from = made.at - self.bounds.memory;
        let lately: Vec<&Fault> = faults.iter().filter(|fault| fault.between(from, made.at)).collect();
        if lately.iter().any(|fault| death(fault.kind, made.from).is_some()) {
            self.failovers += 1;
            if let Some(owed) = self.failover.filter(|owed| !owed.veiled) {
                let onset =
                    faults.iter().any(|fault| death(fault.kind, made.from).is_some() && fault.from == owed.since);
                if onset {
                    self.detections.push(made.at - owed.since);
                }
            }
            return;
        }
        let cut = |vantage: usize| {
            lately.iter().any(|fault| match fault.kind {
                Kind::PathLost { .. } | Kind::NodesLost { .. } => {
                    blocks(fault.kind, scenery, vantage, Goal::Node(made.from))
                }
                Kind::NodeDead { .. }
                | Kind::AgentDead { .. }
                | Kind::UplinkDown { .. }
                | Kind::UplinkDownReported { .. }
                | Kind::LinkDown { .. }
                | Kind::Liar { .. }
                | Kind::Restart
                | Kind::Isolated { .. }
                | Kind::ClockStep { .. } => false,
            })
        };
        let vantages = || 0..scenery.vantages.len();
        let domains: BTreeSet<usize> = vantages().filter(|v| cut(*v)).map(|v| scenery.domain(v)).collect();
        if domains.len() >= 2 {
            // Two networks really do not reach it, and nobody who does could say so in time.
            return;
        }
        let lies = |vantage: usize| lately.iter().any(|fault| fault.kind == Kind::Liar { vantage, says_alive: false });
        let mute = |vantage: usize| lately.iter().any(|fault| silences(fault.kind, scenery, vantage));
        if vantages().any(lies) && vantages().all(|v| lies(v) || cut(v) || mute(v)) {
            self.lied += 1;
            return;
        }
        let text = format!(
            "false failover: node {} is reachable, {} domain(s) without a way to it: {made:?}; the faults lately are {lately:?}",
            made.from,
            domains.len()
        );
        self.violations.push((made.at, text));
    }

    /// Whether the node that a rollback leaves could be used by everybody for the last minute.
    fn used(&self, scenery: &Scenery, faults: &[Fault], made: Made) -> bool {
        let lately = || faults.iter().filter(|fault| fault.between(made.at - 60_000, made.at));
        let ill = |vantage: usize| {
            lately().any(|fault| {
                silences(fault.kind, scenery, vantage)
                    || blocks(fault.kind, scenery, vantage, Goal::Node(made.from))
                    || matches!(fault.kind, Kind::Liar { .. } | Kind::ClockStep { .. })
            })
        };
        !lately().any(|fault| death(fault.kind, made.from).is_some()) && !(0..scenery.vantages.len()).any(ill)
    }
}

fn owe(before: Option<Owed>, owed: bool, veiled: bool, now: i64) -> Option<Owed> {
    match before {
        _ if !owed => None,
        Some(before) => Some(Owed { veiled: before.veiled || veiled, ..before }),
        None => Some(Owed { since: now, veiled, late: false }),
    }
}

/// Whether a fault keeps the coordinator from hearing a vantage.
fn silences(kind: Kind, scenery: &Scenery, vantage: usize) -> bool {
    match kind {
        Kind::AgentDead { vantage: v } | Kind::LinkDown { vantage: v } => v == vantage,
        Kind::UplinkDown { domain } => domain == scenery.domain(vantage),
        Kind::Restart | Kind::Isolated { .. } => true,
        Kind::NodeDead { .. }
        | Kind::PathLost { .. }
        | Kind::NodesLost { .. }
        | Kind::UplinkDownReported { .. }
        | Kind::Liar { .. }
        | Kind::ClockStep { .. } => false,
    }
}

/// The world at a moment.
struct World<'a> {
    scenery: &'a Scenery,
    on: &'a [Kind],
}

impl World<'_> {
    fn dead(&self, node: usize) -> bool {
        self.on.iter().any(|kind| death(*kind, node).is_some())
    }

    /// Whether the coordinator can judge and act.
    fn well(&self) -> bool {
        !self.on.iter().any(|kind| matches!(kind, Kind::Restart | Kind::Isolated { .. } | Kind::ClockStep { .. }))
    }

    fn reaches(&self, vantage: usize, goal: Goal) -> bool {
        !self.on.iter().any(|kind| blocks(*kind, self.scenery, vantage, goal))
    }

    /// Vantages that measure rightly and are heard.
    fn speakers(&self) -> impl Iterator<Item = usize> {
        let honest = |vantage: usize| {
            let lies = |kind: &Kind| matches!(kind, Kind::Liar { vantage: liar, .. } if *liar == vantage);
            !self.on.iter().any(|kind| lies(kind) || silences(*kind, self.scenery, vantage))
                && self.reaches(vantage, Goal::Others)
        };
        (0..self.scenery.vantages.len()).filter(move |vantage| honest(*vantage))
    }

    /// Whether a dead serving node must be left: two networks can tell, nobody lies that it lives, and another node is
    /// proven from two.
    fn failover_owed(&self, record: usize) -> bool {
        let domains = |seen: &mut dyn Iterator<Item = usize>| {
            seen.map(|vantage| self.scenery.domain(vantage)).collect::<BTreeSet<_>>().len()
        };
        let live = |node: usize| {
            let mut provers = self.speakers().filter(|vantage| self.reaches(*vantage, Goal::Node(node)));
            node != record && !self.dead(node) && domains(&mut provers) >= 2
        };
        self.dead(record)
            && self.well()
            && !self.on.iter().any(|kind| matches!(kind, Kind::Liar { says_alive: true, .. }))
            && domains(&mut self.speakers()) >= 2
            && (0..self.scenery.nodes.len()).any(live)
    }
}

/// A moment of a run, for people.
#[must_use]
pub fn clock(at: i64) -> String {
    let (seconds, ms) = (at / 1000, at % 1000);
    format!("{}:{:02}:{:02}.{ms:03}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests;
