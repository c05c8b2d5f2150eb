//! What is really so at a moment, which no decision can see.

use parallax_decide::observation::Outcome;

use crate::dice::Dice;
use crate::fault::{Fault, Kind, MINUTE};
use crate::loss::Loss;
use crate::scenery::Scenery;

/// Longer than any probe lasts, in ms.
const AHEAD_MS: i64 = 30_000;

/// The faults and the loss of one run.
#[derive(Debug)]
pub(crate) struct Truth {
    /// All faults, in order of their beginning.
    pub faults: Vec<Fault>,
    near: Vec<Fault>,
    near_until: i64,
    loss: Vec<Loss>,
}

/// Where a packet goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Goal {
    /// A node, by its number.
    Node(usize),
    /// Something of others, which is never down: a control, a resolver, an address of the canary.
    Others,
}

impl Truth {
    /// These faults, and loss of each uplink.
    pub(crate) fn new(seed: u64, scenery: &Scenery, faults: Vec<Fault>, begin: i64) -> Self {
        let loss = (0..scenery.domains()).zip(100..).map(|(_, purpose)| Loss::draw(Dice::new(seed, purpose), begin));
        Self { faults, near: Vec::new(), near_until: begin, loss: loss.collect() }
    }

    /// The loss of each uplink, for people.
    pub(crate) fn loss_text(&self) -> String {
        self.loss.iter().map(Loss::text).collect::<Vec<_>>().join("; ")
    }

    /// Gathers the faults that are on about now: questions about now and the next half minute look at these alone.
    pub(crate) fn advance(&mut self, now: i64) {
        if now >= self.near_until {
            self.near_until = now + MINUTE;
            let until = self.near_until + AHEAD_MS;
            self.near.clear();
            self.near.extend(self.faults.iter().filter(|fault| fault.between(now - MINUTE, until)));
        }
    }

    fn on(&self, at: i64) -> impl Iterator<Item = Kind> {
        self.near.iter().filter(move |fault| fault.at(at)).map(|fault| fault.kind)
    }

    /// Whether the agent runs.
    pub(crate) fn runs(&self, vantage: usize, at: i64) -> bool {
        !self.on(at).any(|kind| kind == Kind::AgentDead { vantage })
    }

    /// What the vantage claims of all nodes, if it lies.
    pub(crate) fn lie(&self, vantage: usize, at: i64) -> Option<bool> {
        self.on(at).find_map(|kind| match kind {
            Kind::Liar { vantage: liar, says_alive } if liar == vantage => Some(says_alive),
            Kind::Liar { .. }
            | Kind::NodeDead { .. }
            | Kind::PathLost { .. }
            | Kind::NodesLost { .. }
            | Kind::AgentDead { .. }
            | Kind::UplinkDown { .. }
            | Kind::UplinkDownReported { .. }
            | Kind::LinkDown { .. }
            | Kind::Restart
            | Kind::Isolated { .. }
            | Kind::ClockStep { .. } => None,
        })
    }

    /// Whether an agent and the coordinator reach each other.
    pub(crate) fn linked(&self, scenery: &Scenery, vantage: usize, at: i64) -> bool {
        let domain = scenery.domain(vantage);
        !self.on(at).any(|kind| match kind {
            Kind::AgentDead { vantage: v } | Kind::LinkDown { vantage: v } => v == vantage,
            Kind::UplinkDown { domain: d } => d == domain,
            Kind::Restart | Kind::Isolated { .. } => true,
            Kind::NodeDead { .. }
            | Kind::PathLost { .. }
            | Kind::NodesLost { .. }
            | Kind::UplinkDownReported { .. }
            | Kind::Liar { .. }
            | Kind::ClockStep { .. } => false,
        })
    }

    /// Whether the coordinator and the DNS provider reach each other.
    pub(crate) fn provider(&self, at: i64) -> bool {
        !self.on(at).any(|kind| kind == Kind::Isolated { provider: true })
    }

    /// Whether the coordinator runs.
    pub(crate) fn judged(&self, at: i64) -> bool {
        !self.on(at).any(|kind| kind == Kind::Restart)
    }

    /// How a dead node's connections end; `None`: it lives.
    pub(crate) fn dead(&self, node: usize, at: i64) -> Option<Outcome> {
        self.on(at).find_map(|kind| death(kind, node))
    }

    /// Whether packets of a vantage have a way there and back, loss aside. A dead node may be reached and not answer.
    pub(crate) fn way(&self, scenery: &Scenery, vantage: usize, goal: Goal, at: i64) -> bool {
        !self.on(at).any(|kind| blocks(kind, scenery, vantage, goal))
    }

    /// Whether a question to the goal is answered, loss included.
    pub(crate) fn exchange(&mut self, scenery: &Scenery, vantage: usize, goal: Goal, at: i64) -> bool {
        let way = self.near.is_empty() || self.way(scenery, vantage, goal, at);
        way && self.loss.get_mut(scenery.domain(vantage)).is_none_or(|loss| loss.passes(at))
    }
}

/// How a fault makes the connections of a node end.
pub(crate) fn death(kind: Kind, node: usize) -> Option<Outcome> {
    match kind {
        Kind::NodeDead { node: dead, how } => (dead == node).then_some(how),
        Kind::PathLost { .. }
        | Kind::NodesLost { .. }
        | Kind::AgentDead { .. }
        | Kind::UplinkDown { .. }
        | Kind::UplinkDownReported { .. }
        | Kind::LinkDown { .. }
        | Kind::Liar { .. }
        | Kind::Restart
        | Kind::Isolated { .. }
        | Kind::ClockStep { .. } => None,
    }
}

/// Whether a fault leaves a vantage without a way to the goal.
pub(crate) fn blocks(kind: Kind, scenery: &Scenery, vantage: usize, goal: Goal) -> bool {
    match kind {
        Kind::PathLost { vantage: v, node } => v == vantage && goal == Goal::Node(node),
        Kind::NodesLost { vantage: v } => v == vantage && goal != Goal::Others,
        Kind::UplinkDown { domain } | Kind::UplinkDownReported { domain } => domain == scenery.domain(vantage),
        Kind::NodeDead { .. }
        | Kind::AgentDead { .. }
        | Kind::LinkDown { .. }
        | Kind::Liar { .. }
        | Kind::Restart
        | Kind::Isolated { .. }
        | Kind::ClockStep { .. } => false,
    }
}
