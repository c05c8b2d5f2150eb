//! Everything random, from one seed.

use rand::rngs::ChaCha8Rng;
use rand::{RngExt as _, SeedableRng as _};

/// A stream of random numbers: the same for the same seed and purpose.
#[derive(Debug)]
pub(crate) struct Dice(ChaCha8Rng);

impl Dice {
    /// Its own stream for each purpose, so that one more draw here changes nothing there.
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        let mut key = [0; 32];
        let (low, rest) = key.split_at_mut(8);
        low.copy_from_slice(&seed.to_le_bytes());
        rest.split_at_mut(8).0.copy_from_slice(&purpose.to_le_bytes());
        Self(ChaCha8Rng::from_seed(key))
    }

    /// From `low` to `high`, both possible.
    pub(crate) fn between(&mut self, low: i64, high: i64) -> i64 {
        if low >= high { low } else { self.0.random_range(low..=high) }
    }

    /// A place in a list of so many; 0 for none.
    pub(crate) fn pick(&mut self, count: usize) -> usize {
        if count < 2 { 0 } else { self.0.random_range(0..count) }
    }

    /// True with this probability.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        self.fraction() < probability
    }

    /// Exponential with this mean, in whole milliseconds, at least 1.
    pub(crate) fn exponential(&mut self, mean_ms: f64) -> i64 {
        let drawn = -(1.0 - self.fraction()).ln() * mean_ms;
        whole(drawn)
    }

    /// Between the two, each doubling as likely as any other.
    pub(crate) fn spread(&mut self, low: i64, high: i64) -> i64 {
        let (low, high) = (whole_to_float(low).ln(), whole_to_float(high).ln());
        whole((low + (high - low) * self.fraction()).exp())
    }

    fn fraction(&mut self) -> f64 {
        self.0.random::<f64>()
    }
}

#[allow(clippy::cast_possible_truncation, reason = "a time of some hours in milliseconds")]
fn whole(value: f64) -> i64 {
    (value as i64).max(1)
}

#[allow(clippy::cast_precision_loss, reason = "a time of some hours in milliseconds")]
fn whole_to_float(value: i64) -> f64 {
    value as f64
}
