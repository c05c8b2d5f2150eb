//! What goes wrong, when and for how long: drawn before the run begins.

use parallax_decide::observation::Outcome;

use crate::dice::Dice;
use crate::scenery::Scenery;

/// A minute, in ms.
pub(crate) const MINUTE: i64 = 60_000;

/// One kind of fault, with whom it hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A node is dead for everybody; its connections end so.
    NodeDead { node: usize, how: Outcome },
    /// One vantage has no path to one node.
    PathLost { vantage: usize, node: usize },
    /// One vantage reaches none of the nodes, though its controls.
    NodesLost { vantage: usize },
    /// An agent does not run.
    AgentDead { vantage: usize },
    /// An uplink is down: whoever is behind it measures on and reaches nobody, the coordinator neither.
    UplinkDown { domain: usize },
    /// An uplink is down, and the agents behind it still report, by another way.
    UplinkDownReported { domain: usize },
    /// An agent does not reach the coordinator; it measures and keeps.
    LinkDown { vantage: usize },
    /// A vantage says that every node is alive, or dead, whatever it sees.
    Liar { vantage: usize, says_alive: bool },
    /// The coordinator is down and begins anew.
    Restart,
    /// The coordinator runs and is cut off from all agents; with the provider, too, or not.
    Isolated { provider: bool },
    /// The clock that judging goes by is set, by so many ms.
    ClockStep { by: i64 },
}

/// A fault and its time, in ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault {
    /// What.
    pub kind: Kind,
    /// From when.
    pub from: i64,
    /// Until when.
    pub to: i64,
}

impl Fault {
    /// Whether it is on.
    pub(crate) fn at(&self, moment: i64) -> bool {
        self.from <= moment && moment < self.to
    }

    /// Whether it is on at some moment between the two.
    pub(crate) fn between(&self, from: i64, to: i64) -> bool {
        self.from <= to && from < self.to
    }
}

/// Draws the faults of a run from `begin` to `end`, in order of their beginning. The means are for each ten hours.
pub(crate) fn draw(dice: &mut Dice, scenery: &Scenery, begin: i64, end: i64) -> Vec<Fault> {
    let vantages = scenery.vantages.len();
    let mut drawing = Drawing { dice, begin, end, faults: Vec::new() };
    drawing.times(4.0, (10_000, 60 * MINUTE), |dice| Kind::NodeDead { node: 0, how: death(dice) });
    drawing.times(2.0, (10_000, 60 * MINUTE), |dice| Kind::NodeDead { node: dice.pick(3), how: death(dice) });
    drawing.times(3.0, (5000, 60 * MINUTE), |dice| Kind::PathLost { vantage: dice.pick(vantages), node: dice.pick(3) });
    drawing.times(1.0, (5000, 60 * MINUTE), |dice| Kind::NodesLost { vantage: dice.pick(vantages) });
    drawing.times(1.5, (5000, 120 * MINUTE), |dice| Kind::AgentDead { vantage: dice.pick(vantages) });
    let domains = scenery.domains();
    drawing.times(1.0, (2000, 30 * MINUTE), |dice| Kind::UplinkDown { domain: dice.pick(domains) });
    drawing.times(1.0, (2000, 30 * MINUTE), |dice| Kind::UplinkDownReported { domain: dice.pick(domains) });
    drawing.times(2.0, (2000, 30 * MINUTE), |dice| Kind::LinkDown { vantage: dice.pick(vantages) });
    drawing.times(2.0, (1000, 5 * MINUTE), |_| Kind::Restart);
    drawing.times(0.7, (5000, 30 * MINUTE), |dice| Kind::Isolated { provider: dice.chance(0.5) });
    drawing.times(0.5, (1, 1), |dice| {
        let by = dice.spread(500, 10 * MINUTE);
        // Backward by more than a minute is a database that was restored, which freezes everything elsewhere.
        Kind::ClockStep { by: if dice.chance(0.5) { by } else { -by.min(MINUTE) } }
    });
    if drawing.dice.chance(0.15) {
        let says_alive = drawing.dice.chance(0.5);
        drawing.times(1.0, (10 * MINUTE, 300 * MINUTE), |dice| Kind::Liar { vantage: dice.pick(vantages), says_alive });
    }
    if drawing.dice.chance(0.05) {
        drawing.flaps();
    }
    let mut faults = drawing.faults;
    faults.sort_by_key(|fault| (fault.from, fault.to));
    // One lie at a time: nobody claims to withstand two.
    let mut lying_until = 0;
    faults.retain(|fault| match fault.kind {
        Kind::Liar { .. } if fault.from < lying_until => false,
        Kind::Liar { .. } => {
            lying_until = fault.to;
            true
        }
        Kind::NodeDead { .. }
        | Kind::PathLost { .. }
        | Kind::NodesLost { .. }
        | Kind::AgentDead { .. }
        | Kind::UplinkDown { .. }
        | Kind::UplinkDownReported { .. }
        | Kind::LinkDown { .. }
        | Kind::Restart
        | Kind::Isolated { .. }
        | Kind::ClockStep { .. } => true,
    });
    faults
}

/// How a dead node looks from outside.
fn death(dice: &mut Dice) -> Outcome {
    [Outcome::Silent, Outcome::Silent, Outcome::ConnectionRefused, Outcome::TlsSilent]
        .get(dice.pick(4))
        .copied()
        .unwrap_or(Outcome::Silent)
}

struct Drawing<'a> {
    dice: &'a mut Dice,
    begin: i64,
    end: i64,
    faults: Vec<Fault>,
}

impl Drawing<'_> {
    /// Faults that come by chance, so many in ten hours in the mean.
    fn times(&mut self, mean: f64, (shortest, longest): (i64, i64), kind: impl Fn(&mut Dice) -> Kind) {
        let gap = 600.0 * 60_000.0 / mean;
        let mut from = self.begin + self.dice.exponential(gap);
        while from < self.end {
            let lasts = self.dice.spread(shortest, longest);
            let kind = kind(self.dice);
            // A clock that was set back tells the old times again: so long is nothing new.
            let to = from + if let Kind::ClockStep { by } = kind { (-by).max(1) } else { lasts };
            self.faults.push(Fault { kind, from, to });
            from += self.dice.exponential(gap);
        }
    }

    /// An hour in which the native node dies and comes back all the time.
    fn flaps(&mut self) {
        let half = self.dice.spread(5000, 2 * MINUTE);
        let mut from = self.dice.between(self.begin, (self.end - 60 * MINUTE).max(self.begin));
        let stop = (from + 60 * MINUTE).min(self.end);
        let how = death(self.dice);
        while from < stop {
            self.faults.push(Fault { kind: Kind::NodeDead { node: 0, how }, from, to: from + half });
            from += 2 * half;
        }
    }
}
