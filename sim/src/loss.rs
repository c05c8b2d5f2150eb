//! Bursty loss of one uplink, after Gilbert and Elliott: good times lose nothing, bad times most of it, and both last
//! exponentially long. All who stand behind the uplink share them.

use std::collections::VecDeque;

use crate::dice::Dice;

/// The mean loss of a packet, in all.
const MEAN: f64 = 0.05;

/// Bad times that ended so long ago are forgotten, in ms: longer than any probe lasts.
const REMEMBERED_MS: i64 = 30_000;

/// The loss of one uplink.
#[derive(Debug)]
pub(crate) struct Loss {
    dice: Dice,
    packet: f64,
    bad_ms: f64,
    good_ms: f64,
    bad: VecDeque<(i64, i64)>,
    drawn_to: i64,
}

impl Loss {
    /// A bad time loses half to all of what is sent and lasts 0.2 s to 10 s in the mean, as drawn.
    pub(crate) fn draw(mut dice: Dice, begin: i64) -> Self {
        let packet = [0.5, 0.7, 0.9, 1.0].get(dice.pick(4)).copied().unwrap_or(1.0);
        let bad_ms = [200.0, 1000.0, 3000.0, 10_000.0].get(dice.pick(4)).copied().unwrap_or(1000.0);
        let share = MEAN / packet;
        let good_ms = bad_ms * (1.0 - share) / share;
        Self { dice, packet, bad_ms, good_ms, bad: VecDeque::new(), drawn_to: begin }
    }

    /// What was drawn, for people.
    pub(crate) fn text(&self) -> String {
        format!("{:.0} % of the packets of bad times of {:.1} s in the mean", self.packet * 100.0, self.bad_ms / 1000.0)
    }

    /// Whether a question at this moment, and its answer, both arrive.
    pub(crate) fn passes(&mut self, at: i64) -> bool {
        while self.drawn_to <= at {
            let from = self.drawn_to + self.dice.exponential(self.good_ms);
            let to = from + self.dice.exponential(self.bad_ms);
            self.bad.push_back((from, to));
            self.drawn_to = to;
            while self.bad.front().is_some_and(|(_, to)| *to + REMEMBERED_MS < at) {
                self.bad.pop_front();
            }
        }
        let bad = self.bad.iter().any(|(from, to)| (*from..*to).contains(&at));
        !bad || (!self.dice.chance(self.packet) && !self.dice.chance(self.packet))
    }
}
