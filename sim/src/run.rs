//! One run: agents, coordinator, DNS and faults on one moved clock, from one seed.

use std::collections::BTreeMap;

use parallax_decide::names::NameError;
use parallax_decide::observation::{Outcome, Purpose, Says};
use parallax_decide::plan::PlanId;
use parallax_decide::time::Timestamp;

use crate::agent::{Agent, CONTROLS_PAUSE_MS, Measured, Subject};
use crate::auditor::{Auditor, Made, clock};
use crate::coordinator::{Coordinator, Order, Outside, TICK_MS};
use crate::dice::Dice;
use crate::fault::{self, Kind};
use crate::scenery::Scenery;
use crate::truth::Truth;

mod measuring;

/// How long one run lasts, in fleet-hours.
pub const HOURS: u32 = 10;

/// An hour, in ms.
const HOUR_MS: i64 = 3_600_000;

/// What the coordinator's clock shows at the true time 0, in ms since 1970.
const EPOCH_MS: i64 = 1_700_000_000_000;

/// Of so many seeds one runs with the policy `fast`.
const FAST_EVERY: u64 = 8;

/// Most events of one run: far more than any needs, so that a mistake here ends instead of hanging.
const EVENTS_MAX: u64 = 50_000_000;

/// What to run.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    /// Whence everything is drawn.
    pub seed: u64,
    /// For how long, in fleet-hours.
    pub hours: u32,
    /// Whether to judge at every tick, and not only when something can have changed: slow, for comparison.
    pub every_tick: bool,
}

impl Run {
    /// The run of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        Self { seed, hours: HOURS, every_tick: false }
    }
}

/// What came out of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// What was configured and drawn, for people.
    pub scenery: Vec<String>,
    /// What happened, faults included, in order: the true time in ms since the beginning, and what.
    pub timeline: Vec<(i64, String)>,
    /// What the auditor objects to: when and what.
    pub violations: Vec<(i64, String)>,
    /// Time from the death of a serving node that all could see to the changed record, in ms.
    pub detections: Vec<i64>,
    /// Changes away from a node that was dead.
    pub failovers: u32,
    /// Changes that a lie forced where nobody was left to contradict it.
    pub lied: u32,
    /// Changes of the record.
    pub changes: u32,
    /// Observations folded.
    pub observations: u64,
    /// How often was judged.
    pub ticks: u64,
}

/// Runs it.
///
/// # Errors
/// A name of the scenery that `decide` does not accept: a mistake in this crate.
pub fn run(what: Run) -> Result<Report, NameError> {
    let mut fleet = Fleet::new(what)?;
    fleet.run();
    Ok(fleet.report())
}

/// What an agent does by the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Grid {
    Nodes,
    Canaries,
    Controls,
}

/// What follows a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    /// It was scheduled: a failure may start a burst.
    Scheduled,
    /// It was part of a burst: the next step.
    Burst(usize),
    /// It was asked for: so many more, the next at that time or when this one has ended.
    Task { left: u32, gap_ms: i64, next_at: i64 },
    /// Nothing.
    Nothing,
}

#[derive(Debug, Clone)]
enum Event {
    Round { vantage: usize, grid: Grid },
    Probe { vantage: usize, life: u32, subject: Subject, purpose: Purpose, then: Then },
    Resolve { vantage: usize, life: u32, canary: bool },
    Prove { vantage: usize, life: u32 },
    Ended { vantage: usize, life: u32, measured: Measured, tried: Option<(Subject, Then)> },
    Controls { vantage: usize, life: u32, purpose: Purpose },
    ControlsOver { vantage: usize, life: u32 },
    Deliver { vantage: usize },
    Change { plan: PlanId, expects: usize, sets: usize },
    Boundary,
    Look,
}

struct Fleet {
    what: Run,
    scenery: Scenery,
    truth: Truth,
    agents: Vec<Agent>,
    coordinator: Coordinator,
    auditor: Auditor,
    network: Dice,
    events: BTreeMap<(i64, u64), Event>,
    numbered: u64,
    now: i64,
    end: i64,
    /// What the clock that judging goes by is off.
    clock_off: i64,
    record: usize,
    tick_at: Option<i64>,
    look_at: Option<i64>,
    judged: bool,
    changes: u32,
    observations: u64,
    notes: Vec<(i64, String)>,
}

impl Fleet {
    fn new(what: Run) -> Result<Self, NameError> {
        let seed = what.seed;
        let end = i64::from(what.hours) * HOUR_MS;
        let scenery = Scenery::draw(&mut Dice::new(seed, 1), seed % FAST_EVERY == FAST_EVERY - 1)?;
        // The first minutes are left alone: nothing has been measured yet.
        let faults = fault::draw(&mut Dice::new(seed, 2), &scenery, 5 * fault::MINUTE, end);
        let truth = Truth::new(seed, &scenery, faults, 0);
        let agents = (0..scenery.vantages.len()).zip(200..).map(|(v, purpose)| Agent::new(v, Dice::new(seed, purpose)));
        let mut fleet = Self {
            what,
            agents: agents.collect(),
            coordinator: Coordinator::new(Dice::new(seed, 3), Timestamp(EPOCH_MS)),
            auditor: Auditor::new(&scenery),
            scenery,
            truth,
            network: Dice::new(seed, 4),
            events: BTreeMap::new(),
            numbered: 0,
            now: 0,
            end,
            clock_off: 0,
            record: 0,
            tick_at: Some(0),
            look_at: None,
            judged: true,
            changes: 0,
            observations: 0,
            notes: Vec::new(),
        };
        for vantage in 0..fleet.agents.len() {
            for grid in [Grid::Controls, Grid::Nodes, Grid::Canaries] {
                let count = i64::try_from(fleet.agents.len()).unwrap_or(1).max(1);
                let offset = fleet.every(grid) * i64::try_from(vantage).unwrap_or(0) / count;
                fleet.at(offset, Event::Round { vantage, grid });
            }
        }
        let bounds: Vec<i64> = fleet.truth.faults.iter().flat_map(|fault| [fault.from, fault.to]).collect();
        for moment in bounds {
            fleet.at(moment, Event::Boundary);
        }
        Ok(fleet)
    }

    fn every(&self, grid: Grid) -> i64 {
        let policy = &self.scenery.topology.policy;
        let every = match grid {
            Grid::Nodes => policy.node_every,
            Grid::Canaries => policy.canary_every,
            Grid::Controls => policy.control_every,
        };
        i64::try_from(every.as_millis()).unwrap_or(i64::MAX / 4).max(1)
    }

    fn at(&mut self, moment: i64, event: Event) {
        self.numbered += 1;
        self.events.insert((moment.max(self.now), self.numbered), event);
    }

    /// The time that judging goes by.
    fn clock(&self) -> Timestamp {
        Timestamp(EPOCH_MS + self.now + self.clock_off)
    }

    fn run(&mut self) {
        while self.numbered < EVENTS_MAX {
            let event_at = self.events.first_key_value().map_or(i64::MAX, |((at, _), _)| *at);
            let tick_at = self.tick_at.unwrap_or(i64::MAX);
            // What happens in the moment of a tick happens before it.
            let next = event_at.min(tick_at);
            if next >= self.end {
                break;
            }
            self.now = next;
            self.truth.advance(self.now);
            if event_at <= tick_at {
                if let Some((_, event)) = self.events.pop_first() {
                    self.happen(event);
                }
            } else {
                self.tick();
            }
        }
    }

    /// Has the coordinator judge at the next point of its grid.
    fn wake(&mut self) {
        if self.judged {
            let next = on_grid(self.now);
            self.tick_at = Some(self.tick_at.map_or(next, |known| known.min(next)));
        }
    }

    fn tick(&mut self) {
        let lost = self
            .truth
            .faults
            .iter()
            .filter(|fault| fault.at(self.now) && fault.kind == Kind::Isolated { provider: true });
        let lost_at = lost.map(|fault| fault.from).min().unwrap_or(self.now);
        let outside = Outside {
            record: self.record,
            provider: self.truth.provider(self.now),
            read_at: Timestamp(EPOCH_MS + (lost_at - 1).div_euclid(TICK_MS) * TICK_MS + self.clock_off),
            linked: (0..self.agents.len()).map(|v| self.truth.linked(&self.scenery, v, self.now)).collect(),
        };
        let clock = self.clock();
        let orders = self.coordinator.tick(&self.scenery, clock, self.now, &outside);
        for order in orders {
            self.obey(order);
        }
        let due = if self.what.every_tick {
            self.now
        } else {
            self.coordinator.next_due(&self.scenery, clock).0 - EPOCH_MS - self.clock_off
        };
        self.tick_at = Some(on_grid(due.max(self.now + 1)));
    }

    fn obey(&mut self, order: Order) {
        let delay = self.network.between(10, 150);
        match order {
            Order::Try { vantage, subject, repeat, gap_ms } => {
                let Some(life) = self.life(vantage) else { return };
                let at = self.now + delay;
                let then = Then::Task { left: repeat.saturating_sub(1), gap_ms, next_at: at + gap_ms };
                self.at(at, Event::Probe { vantage, life, subject, purpose: Purpose::CrossCheck, then });
            }
            Order::Prove { vantage } => {
                let Some(life) = self.life(vantage) else { return };
                self.at(self.now + delay, Event::Prove { vantage, life });
            }
            Order::Change { plan, expects, sets, after_ms } => {
                self.at(self.now + after_ms, Event::Change { plan, expects, sets });
            }
        }
    }

    fn life(&self, vantage: usize) -> Option<u32> {
        self.agents.get(vantage).map(|agent| agent.life)
    }

    fn lives(&self, vantage: usize, life: u32) -> bool {
        self.life(vantage) == Some(life) && self.truth.runs(vantage, self.now)
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Round { vantage, grid } => self.round(vantage, grid),
            Event::Probe { vantage, life, subject, purpose, then } if self.lives(vantage, life) => {
                self.probe(vantage, subject, purpose, then);
            }
            Event::Resolve { vantage, life, canary } if self.lives(vantage, life) => self.resolve(vantage, canary),
            Event::Prove { vantage, life } if self.lives(vantage, life) => self.resolve_host(vantage, Purpose::Verify),
            Event::Ended { vantage, life, measured, tried } if self.lives(vantage, life) => {
                self.ended(vantage, measured, tried);
            }
            Event::Controls { vantage, life, purpose } if self.lives(vantage, life) => self.controls(vantage, purpose),
            Event::ControlsOver { vantage, life } if self.lives(vantage, life) => self.controls_over(vantage),
            Event::Probe { .. }
            | Event::Resolve { .. }
            | Event::Prove { .. }
            | Event::Ended { .. }
            | Event::Controls { .. }
            | Event::ControlsOver { .. } => {}
            Event::Deliver { vantage } => self.deliver(vantage),
            Event::Change { plan, expects, sets } => self.change(plan, expects, sets),
            Event::Boundary => self.boundary(),
            Event::Look => self.look(),
        }
    }

    fn change(&mut self, plan: PlanId, expects: usize, sets: usize) {
        let clock = self.clock();
        if !self.truth.provider(self.now) {
            return self.hear(plan, clock, false);
        }
        if self.record == expects {
            self.record = sets;
            self.changes += 1;
            let record = self.coordinator.plans.iter().find(|record| record.id == plan);
            if let Some(record) = record {
                let made = Made {
                    at: self.now,
                    purpose: record.plan.purpose,
                    incident: record.incident,
                    from: expects,
                    to: sets,
                };
                self.note(format!("the record points to node {sets} instead of {expects} (plan {})", plan.0));
                self.auditor.made(&self.scenery, &self.truth.faults, made);
            }
            self.look();
        }
        self.hear(plan, clock, true);
    }

    /// The coordinator hears how its change ended, unless it began anew meanwhile.
    fn hear(&mut self, plan: PlanId, clock: Timestamp, made: bool) {
        if self.judged {
            self.coordinator.changed(plan, clock, made);
            self.wake();
        }
    }

    fn boundary(&mut self) {
        let (began, ended): (Vec<_>, Vec<_>) = self
            .truth
            .faults
            .iter()
            .filter(|fault| fault.from == self.now || fault.to == self.now)
            .copied()
            .partition(|fault| fault.from == self.now);
        for fault in &began {
            self.note(format!("begins, until {}: {:?}", clock(fault.to), fault.kind));
            match fault.kind {
                Kind::AgentDead { vantage } => {
                    if let Some(agent) = self.agents.get_mut(vantage) {
                        agent.dies();
                    }
                }
                Kind::ClockStep { by } => self.clock_off += by,
                Kind::Restart => (self.judged, self.tick_at) = (false, None),
                Kind::NodeDead { .. }
                | Kind::PathLost { .. }
                | Kind::NodesLost { .. }
                | Kind::UplinkDown { .. }
                | Kind::UplinkDownReported { .. }
                | Kind::LinkDown { .. }
                | Kind::Liar { .. }
                | Kind::Isolated { .. } => {}
            }
        }
        for fault in &ended {
            self.note(format!("ends: {:?}", fault.kind));
        }
        if !self.judged && self.truth.judged(self.now) {
            self.judged = true;
            let clock = self.clock();
            self.coordinator.restart(&self.scenery, clock);
        }
        self.wake();
        self.look();
    }

    fn look(&mut self) {
        let policy = &self.scenery.topology.policy;
        let stuck = self.coordinator.spent(policy.changes_max);
        let again = self.auditor.look(&self.scenery, &self.truth.faults, self.record, stuck, self.now);
        if let Some(at) = again.filter(|at| self.look_at.is_none_or(|known| known <= self.now || *at < known)) {
            self.look_at = Some(at);
            self.at(at, Event::Look);
        }
    }

    fn note(&mut self, what: String) {
        self.notes.push((self.now, what));
    }

    fn report(self) -> Report {
        let policy = if self.scenery.fast { "fast" } else { "default" };
        let domains: Vec<String> = self.scenery.domain_of.iter().map(ToString::to_string).collect();
        let scenery = vec![
            format!("policy {policy}; uplink of each vantage: {}", domains.join(", ")),
            format!("loss of each uplink, 5 % in the mean: {}", self.truth.loss_text()),
        ];
        let mut timeline = self.notes;
        timeline.extend(self.coordinator.history);
        timeline.extend(self.auditor.violations.iter().map(|(at, what)| (*at, format!("VIOLATION {what}"))));
        timeline.sort_by_key(|(at, _)| *at);
        Report {
            seed: self.what.seed,
            scenery,
            timeline,
            violations: self.auditor.violations,
            detections: self.auditor.detections,
            failovers: self.auditor.failovers,
            lied: self.auditor.lied,
            changes: self.changes,
            observations: self.observations,
            ticks: self.coordinator.ticks,
        }
    }
}

/// The first point of the engine's grid that is not before.
fn on_grid(at: i64) -> i64 {
    (at + TICK_MS - 1).div_euclid(TICK_MS) * TICK_MS
}

fn works(outcome: Outcome) -> bool {
    outcome.says() == Says::Works
}
