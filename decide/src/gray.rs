//! Gray faults: a path that loses some source ports and not others, found by a cumulative sum over single attempts.
//!
//! One of four equal-cost links that is dead is invisible per probe, because a probe of four attempts passes nearly always. Each
//! attempt adds the logarithm of how much likelier its end is with a quarter of all flows dead than with this vantage's
//! usual loss (Page 1954). What is found so is reported and never acted on by itself.

use serde::{Deserialize, Serialize};

/// Share of the flows that a dead link takes: one of four.
const SHARE: f64 = 0.25;

/// A false alarm at most once in e^11.5, about 10^5, attempts; in hundredths.
const ALARM: i32 = 1150;

/// Loss that is assumed at the least where little is known: 1 % each way.
const LOSS_MIN: f64 = 0.02;

/// Beyond this loss nothing can be told apart any more.
const LOSS_MAX: f64 = 0.6;

/// Weight of the assumption, in attempts.
const PRIOR: f64 = 10.0;

/// Attempts after which what was counted is halved, so that the usual loss follows the times.
const COUNTED_MAX: u16 = 4096;

/// Attempts that were counted, and those that were lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Attempts {
    made: u16,
    lost: u16,
    /// How often it was halved, round and round.
    halved: u8,
}

impl Attempts {
    /// Adds those of one probe.
    pub fn add(&mut self, made: u16, lost: u16) {
        self.made = self.made.saturating_add(made);
        self.lost = self.lost.saturating_add(lost);
        if self.made >= COUNTED_MAX {
            self.halve();
        }
    }

    fn halve(&mut self) {
        (self.made, self.lost, self.halved) = (self.made / 2, self.lost / 2, self.halved.wrapping_add(1));
    }

    /// Those of a vantage that are not these of one address.
    fn without(self, own: Self) -> Self {
        Self { made: self.made.saturating_sub(own.made), lost: self.lost.saturating_sub(own.lost), ..self }
    }

    /// Share that is lost, with a little of what is assumed.
    fn loss(self) -> f64 {
        let assumed = LOSS_MIN * PRIOR;
        ((f64::from(self.lost) + assumed) / (f64::from(self.made) + PRIOR)).clamp(LOSS_MIN, LOSS_MAX)
    }
}

/// What the attempts at one address say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Gray {
    own: Attempts,
    /// Hundredths, from 0 to [`ALARM`].
    score: i32,
    /// Probes since the score was 0 that lost an attempt.
    lossy: u16,
    partial: bool,
}

impl Gray {
    /// Adds a probe that came through. `elsewhere`: every such attempt of this vantage, this address included.
    pub fn add(&mut self, elsewhere: Attempts, made: u16, connected: u16, probes_min: u32) {
        let lost = made.saturating_sub(connected);
        // A part of the whole is halved with the whole.
        while self.own.halved != elsewhere.halved {
            self.own.halve();
        }
        let usual = elsewhere.without(self.own).loss();
        let faulty = SHARE + (1.0 - SHARE) * usual;
        let (for_loss, for_success) = ((faulty / usual).ln(), ((1.0 - faulty) / (1.0 - usual)).ln());
        let gain = f64::from(lost) * for_loss + f64::from(connected) * for_success;
        // Bounded on both sides: at most 16 attempts a probe, each worth at most a few.
        self.score = (self.score + hundredths(gain)).clamp(0, ALARM);
        self.own.add(made, lost);
        self.lossy = if self.score == 0 { 0 } else { self.lossy.saturating_add(u16::from(lost > 0)) };
        if self.score == ALARM && u32::from(self.lossy) >= probes_min {
            self.partial = true;
        } else if self.score == 0 {
            self.partial = false;
        }
    }

    /// Whether some attempts get through and some do not, more than is usual here.
    #[must_use]
    pub fn partial(self) -> bool {
        self.partial
    }

    /// Attempts that were counted and those lost.
    #[must_use]
    pub fn counted(self) -> (u16, u16) {
        (self.own.made, self.own.lost)
    }
}

fn hundredths(gain: f64) -> i32 {
    let scaled = (gain * 100.0).round().clamp(-10_000.0, 10_000.0);
    // The nearest whole number within a bound that i32 holds.
    #[expect(clippy::cast_possible_truncation, reason = "clamped to ten thousand either way")]
    let whole = scaled as i32;
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Attempts until it is found, of which every `one_in`th is lost, where every `usual`th is lost elsewhere.
    fn found_after(one_in: u32, usual: u32) -> Option<u32> {
        let (mut all, mut gray) = (Attempts::default(), Gray::default());
        (1..20_000).find(|attempt| {
            // Two other addresses between, and a second attempt where the first is lost.
            for other in [attempt * 2, attempt * 2 + 1] {
                let lost = u16::from(other % usual == 0);
                all.add(1 + lost, lost);
            }
            let lost = u16::from(attempt % one_in == 0);
            gray.add(all, 1 + lost, 1, 3);
            all.add(1 + lost, lost);
            gray.partial()
        })
    }

    #[test]
    fn a_quarter_of_the_flows_dead_is_found_and_the_usual_loss_is_not() {
        assert!(found_after(4, 50).is_some_and(|attempts| attempts <= 60), "{:?}", found_after(4, 50));
        assert!(found_after(3, 10).is_some());
        assert_eq!(found_after(50, 50), None, "as everywhere else here");
        assert_eq!(found_after(4, 4), None, "as everywhere else here, however much that is");
    }

    #[test]
    fn it_ends_when_every_attempt_gets_through_again() {
        let mut gray = Gray::default();
        for _ in 0..3 {
            gray.add(Attempts::default(), 4, 2, 3);
        }
        assert!(gray.partial());
        let mut goods = 0;
        while gray.partial() && goods < 1000 {
            gray.add(Attempts { made: 1000, lost: 20, halved: 0 }, 1, 1, 3);
            goods += 1;
        }
        assert!((20..100).contains(&goods), "{goods}");
    }
}
