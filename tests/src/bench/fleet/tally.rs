//! What a fleet counts while it works: streams, rows, and how long rows took.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parallax_proto::v1::Lane;

/// Width of one step of a histogram.
const STEP_US: u64 = 250;

/// Steps: up to 30 s; longer ones count in the last.
const STEPS: usize = 120_000;

/// What all agents of a fleet count together.
#[derive(Debug)]
pub struct Tally {
    /// Streams that are open and have an assignment.
    pub live: AtomicU64,
    /// Streams opened, ever.
    pub opened: AtomicU64,
    /// Attempts that failed before a stream was open.
    pub failed: AtomicU64,
    /// Streams that ended.
    pub ended: AtomicU64,
    /// Rows acknowledged.
    pub acked: AtomicU64,
    /// Batches acknowledged.
    pub batches: AtomicU64,
    /// Rows that are numbered and not yet acknowledged.
    pub waiting: AtomicU64,
    /// Refusals that came.
    pub refused: AtomicU64,
    urgent: Histogram,
    routine: Histogram,
}

impl Default for Tally {
    fn default() -> Self {
        let zero = AtomicU64::default;
        Self {
            live: zero(),
            opened: zero(),
            failed: zero(),
            ended: zero(),
            acked: zero(),
            batches: zero(),
            waiting: zero(),
            refused: zero(),
            urgent: Histogram::new(),
            routine: Histogram::new(),
        }
    }
}

impl Tally {
    /// How long rows of a lane took from the end of the probe to the acknowledgement.
    #[must_use]
    pub fn latency(&self, lane: Lane) -> &Histogram {
        match lane {
            Lane::Urgent => &self.urgent,
            Lane::Routine | Lane::Unspecified => &self.routine,
        }
    }

    /// One of the counters.
    #[must_use]
    pub fn read(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }
}

/// Durations in steps of a quarter of a millisecond.
#[derive(Debug)]
pub struct Histogram(Vec<AtomicU64>);

impl Histogram {
    fn new() -> Self {
        Self((0..STEPS).map(|_| AtomicU64::new(0)).collect())
    }

    /// Counts one.
    pub fn add(&self, duration: Duration) {
        let step = usize::try_from(duration.as_micros() / u128::from(STEP_US)).unwrap_or(usize::MAX);
        if let Some(count) = self.0.get(step.min(STEPS - 1)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.0.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }

    /// How many were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.iter().map(Tally::read).sum()
    }

    /// The duration below which the given part (0 to 1) lies, milliseconds; none of nothing.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "counts and steps far below 2^52")]
    pub fn quantile_ms(&self, part: f64) -> Option<f64> {
        let all = self.count();
        let mut below = 0;
        for (step, count) in self.0.iter().enumerate() {
            below += Self::of(count);
            if below > 0 && below as f64 >= part * all as f64 {
                return Some((step as u64 + 1) as f64 * STEP_US as f64 / 1000.0);
            }
        }
        None
    }

    fn of(count: &AtomicU64) -> u64 {
        Tally::read(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_what_was_counted() {
        let tally = Tally::default();
        let histogram = tally.latency(Lane::Urgent);
        assert_eq!(histogram.quantile_ms(0.5), None);
        (1..=100).for_each(|ms| histogram.add(Duration::from_millis(ms)));
        histogram.add(Duration::from_secs(3600));
        assert_eq!(histogram.count(), 101);
        assert_eq!(histogram.quantile_ms(0.5), Some(51.25));
        assert_eq!(histogram.quantile_ms(1.0), Some(30_000.0));
        assert_eq!(tally.latency(Lane::Routine).count(), 0);
        histogram.clear();
        assert_eq!(histogram.count(), 0);
    }
}
