//! An agent: what it measures and when, as the real one does it: rounds on grids of its own phase, a burst after a first
//! failure with the controls asked around it, questions on demand, and a spool with two lanes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use parallax_decide::observation::{
    Connection, ControlCheck, Fact, Family, Outcome, Purpose, Resolution, Says, Target,
};

use crate::dice::Dice;
use crate::scenery::Scenery;
use crate::truth::{Goal, Truth};

/// Most addresses' worth of observations kept while nobody takes them.
const SPOOL_MAX: usize = 20_000;

/// Least time between the beginnings of two rounds of the controls, in ms.
pub(crate) const CONTROLS_PAUSE_MS: i64 = 1000;

/// TLS asks again after these times while nothing comes back, in ms: the retransmissions of TCP.
const RETRANSMITS: [i64; 5] = [0, 200, 600, 1400, 3000];

/// A question to a resolver is repeated after these times, in ms.
const REPEATS: [i64; 3] = [0, 1000, 2000];

/// What is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    /// A node as such.
    Node(usize),
    /// An address of the canary.
    Canary(usize),
    /// A node's address for the service's host name.
    Host(usize),
}

impl Subject {
    fn goal(self) -> Goal {
        match self {
            Self::Node(node) | Self::Host(node) => Goal::Node(node),
            Self::Canary(_) => Goal::Others,
        }
    }
}

/// A finished measurement.
#[derive(Debug, Clone)]
pub(crate) struct Measured {
    /// When it ended, by the true time.
    pub at: i64,
    /// Why it was made.
    pub purpose: Purpose,
    /// What came out.
    pub fact: Fact,
}

/// One agent's memory.
#[derive(Debug)]
pub(crate) struct Agent {
    /// Its number.
    pub number: usize,
    /// How often it has died: what was under way before is gone.
    pub life: u32,
    /// Failing subjects; true while their burst runs.
    bursts: BTreeMap<Subject, bool>,
    failing: BTreeSet<Subject>,
    urgent: VecDeque<Measured>,
    routine: VecDeque<Measured>,
    /// Whether a delivery is under way.
    pub delivering: bool,
    /// The node in its resolver's cache, and until when.
    cache: Option<(usize, i64)>,
    /// When the controls' last round began.
    pub controls_at: i64,
    /// Whether it is not over.
    pub controls_running: bool,
    /// Whether another one is wanted after it.
    pub controls_wanted: bool,
    dice: Dice,
}

impl Agent {
    /// The agent of a vantage.
    pub(crate) fn new(number: usize, dice: Dice) -> Self {
        Self {
            number,
            life: 0,
            bursts: BTreeMap::new(),
            failing: BTreeSet::new(),
            urgent: VecDeque::new(),
            routine: VecDeque::new(),
            delivering: false,
            cache: None,
            controls_at: i64::MIN / 2,
            controls_running: false,
            controls_wanted: false,
            dice,
        }
    }

    /// It dies: its spool stays, its memory goes.
    pub(crate) fn dies(&mut self) {
        self.life += 1;
        self.bursts.clear();
        self.failing.clear();
        (self.controls_running, self.controls_wanted) = (false, false);
    }

    /// So many ms, both possible.
    pub(crate) fn between(&mut self, low: i64, high: i64) -> i64 {
        self.dice.between(low, high)
    }

    /// One probe of one address: how it ends, and when.
    pub(crate) fn connect(
        &mut self,
        truth: &mut Truth,
        scenery: &Scenery,
        subject: Subject,
        begin: i64,
    ) -> (Outcome, i64) {
        let (timing, goal) = (scenery.timing, subject.goal());
        let answers_in = self.dice.between(20, 120);
        if let (Some(alive), Subject::Node(_) | Subject::Host(_)) = (truth.lie(self.number, begin), subject) {
            return if alive {
                (Outcome::TlsOk, begin + 3 * answers_in)
            } else {
                (Outcome::Silent, begin + timing.connect_ms)
            };
        }
        let dead = |truth: &Truth, at| match goal {
            Goal::Node(node) => truth.dead(node, at),
            Goal::Others => None,
        };
        for at in timing.attempts.iter().map(|after| begin + after) {
            let how = dead(truth, at);
            if how == Some(Outcome::Silent) || !truth.exchange(scenery, self.number, goal, at) {
                continue;
            }
            if how == Some(Outcome::ConnectionRefused) {
                return (Outcome::ConnectionRefused, at + answers_in);
            }
            let connected = at + answers_in;
            for at in RETRANSMITS.iter().filter(|after| **after < timing.tls_ms).map(|after| connected + after) {
                if dead(truth, at).is_none() && truth.exchange(scenery, self.number, goal, at) {
                    return (Outcome::TlsOk, at + 2 * answers_in);
                }
            }
            return (Outcome::TlsSilent, connected + timing.tls_ms);
        }
        (Outcome::Silent, begin + timing.connect_ms)
    }

    /// The fact of such a probe.
    pub(crate) fn connection(scenery: &Scenery, subject: Subject, outcome: Outcome) -> Option<Fact> {
        let (target, address) = match subject {
            Subject::Node(node) => {
                scenery.nodes.get(node).map(|(name, address)| (Target::Node(name.clone()), *address))
            }
            Subject::Host(node) => {
                scenery.nodes.get(node).map(|(_, address)| (Target::Name(scenery.host.clone()), *address))
            }
            Subject::Canary(which) => {
                scenery.canary.1.get(which).map(|address| (Target::Name(scenery.canary.0.clone()), *address))
            }
        }?;
        let connected = u16::from(outcome.says() == Says::Works);
        Some(Fact::Connection(Connection {
            target,
            address,
            port: 443,
            outcome,
            attempts: 1,
            attempts_connected: connected,
        }))
    }

    /// A round of the controls: each with its end.
    pub(crate) fn controls(
        &mut self,
        truth: &mut Truth,
        scenery: &Scenery,
        begin: i64,
        purpose: Purpose,
    ) -> Vec<Measured> {
        let mut results = Vec::new();
        for control in &scenery.controls {
            let (outcome, at) = self.connect(truth, scenery, Subject::Canary(usize::MAX), begin);
            let fact = Fact::ControlCheck(ControlCheck { control: control.clone(), outcome });
            results.push(Measured { at, purpose, fact });
        }
        let negative = ControlCheck { control: scenery.negative.clone(), outcome: Outcome::Silent };
        let fact = Fact::ControlCheck(negative);
        results.push(Measured { at: begin + scenery.timing.connect_ms, purpose, fact });
        results
    }

    /// Whether a question to a resolver is answered, and when.
    fn asks(&mut self, truth: &mut Truth, scenery: &Scenery, begin: i64) -> Option<i64> {
        let answers_in = self.dice.between(5, 60);
        let mut times = REPEATS.iter().filter(|after| **after < scenery.timing.resolve_ms).map(|after| begin + after);
        times.find(|at| truth.exchange(scenery, self.number, Goal::Others, *at)).map(|at| at + answers_in)
    }

    /// Asks for the canary.
    pub(crate) fn resolve_canary(&mut self, truth: &mut Truth, scenery: &Scenery, live: bool, begin: i64) -> Measured {
        let answered = self.asks(truth, scenery, begin);
        let resolver = if live { &scenery.live } else { &scenery.doh };
        let resolution = Resolution {
            name: scenery.canary.0.clone(),
            resolver: resolver.clone(),
            family: Family::V4,
            outcome: if answered.is_some() { Outcome::Answered } else { Outcome::DnsSilent },
            addresses: if answered.is_some() { scenery.canary.1.clone() } else { Vec::new() },
            ttl_s: 300,
        };
        let at = answered.unwrap_or(begin + scenery.timing.resolve_ms);
        Measured { at, purpose: Purpose::Scheduled, fact: Fact::Resolution(resolution) }
    }

    /// Asks the live resolver for the service's name, which keeps what it was told for as long as the record's life.
    pub(crate) fn resolve_host(
        &mut self,
        truth: &mut Truth,
        scenery: &Scenery,
        record: usize,
        begin: i64,
        purpose: Purpose,
    ) -> (Measured, Option<usize>) {
        let cached = self.cache.filter(|(_, until)| begin < *until);
        let (node, at) = match cached {
            Some((node, _)) => (Some(node), begin + 2),
            None => match self.asks(truth, scenery, begin) {
                Some(at) => {
                    self.cache = Some((record, at + scenery.ttl_ms()));
                    (Some(record), at)
                }
                None => (None, begin + scenery.timing.resolve_ms),
            },
        };
        let address = node.and_then(|node| scenery.nodes.get(node)).map(|(_, address)| *address);
        let resolution = Resolution {
            name: scenery.host.clone(),
            resolver: scenery.live.clone(),
            family: Family::V4,
            outcome: if address.is_some() { Outcome::Answered } else { Outcome::DnsSilent },
            addresses: address.into_iter().collect(),
            ttl_s: 60,
        };
        (Measured { at, purpose, fact: Fact::Resolution(resolution) }, node)
    }

    /// Notes how a scheduled probe ended; whether a burst shall begin.
    pub(crate) fn starts_burst(&mut self, subject: Subject, works: bool) -> bool {
        if works {
            if self.bursts.get(&subject) == Some(&false) {
                self.bursts.remove(&subject);
            }
            return false;
        }
        if self.bursts.contains_key(&subject) {
            return false;
        }
        self.bursts.insert(subject, true);
        true
    }

    /// A burst is over.
    pub(crate) fn burst_ended(&mut self, subject: Subject, recovered: bool) {
        if recovered {
            self.bursts.remove(&subject);
        } else if let Some(running) = self.bursts.get_mut(&subject) {
            *running = false;
        }
    }

    /// Keeps an observation until it is delivered. Evidence goes first, the rest as soon as there is nothing else.
    pub(crate) fn keep(&mut self, measured: Measured, subject: Option<Subject>) {
        let works = measured.fact.outcome().says() == Says::Works;
        let news = match subject {
            Some(subject) if works => self.failing.remove(&subject),
            Some(subject) => {
                self.failing.insert(subject);
                true
            }
            None => !works || matches!(measured.fact, Fact::ControlCheck(_)),
        };
        let lane = if news || measured.purpose != Purpose::Scheduled { &mut self.urgent } else { &mut self.routine };
        if lane.len() < SPOOL_MAX {
            lane.push_back(measured);
        }
    }

    /// Takes out what one delivery carries.
    pub(crate) fn batch(&mut self) -> Vec<Measured> {
        self.urgent.drain(..).chain(self.routine.drain(..)).collect()
    }
}
