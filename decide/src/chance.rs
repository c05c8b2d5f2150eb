//! How likely a run of failures is without a fault, from what the vantage's controls lost lately.
//!
//! A run of k failures without a fault has the chance f0^k, where f0 is the exact 95 % upper bound of the controls' rate of
//! failure (Clopper and Pearson 1934, one-sided). It is a fault when that is at most [`FALSE_ALARM`]; with f1 near 1 Wald's
//! sequential test reduces to this run.

use crate::observation::Recent;
use crate::topology::Policy;

/// Chance of a false alarm for one run: with a probe every 20 s at most once in 23 days of nothing but runs.
pub const FALSE_ALARM: f64 = 1e-5;

/// One-sided confidence of the bound.
const DOUBT: f64 = 0.05;

/// Whether `run` failures in a row are enough for a fault where the controls did so lately. `None`: nothing is known of
/// them, and the policy's least number decides.
#[must_use]
pub fn enough(policy: &Policy, recent: Option<Recent>, run: u32) -> bool {
    if run < policy.k_min {
        return false;
    }
    match recent {
        Some(recent) if run < policy.k_max => {
            // f0^run is small enough exactly when the bound lies below this rate.
            let rate = (FALSE_ALARM.ln() / f64::from(run)).exp();
            at_most(recent, rate) <= DOUBT
        }
        Some(_) | None => true,
    }
}

/// Failures in a row that it takes.
#[must_use]
pub fn wanted(policy: &Policy, recent: Option<Recent>) -> u32 {
    (policy.k_min..policy.k_max).find(|run| enough(policy, recent, *run)).unwrap_or(policy.k_max.max(policy.k_min))
}

/// The exact upper bound of the rate, at 95 % one-sided.
#[must_use]
pub fn bound(recent: Recent) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    // Each step halves what is open: far beyond what any figure is read to.
    for _ in 0..40 {
        let middle = f64::midpoint(low, high);
        if at_most(recent, middle) > DOUBT { low = middle } else { high = middle }
    }
    high
}

/// Chance of at most so many failures of so many checks at this rate.
fn at_most(recent: Recent, rate: f64) -> f64 {
    let Recent { failures, checks } = recent;
    if failures >= checks {
        return 1.0;
    }
    let (hit, miss) = (rate.ln(), (-rate).ln_1p());
    // Logarithms: the first term alone may be smaller than any number.
    let mut term = f64::from(checks) * miss;
    let mut sum = term.exp();
    for i in 1..=failures {
        term += f64::from(checks - i + 1).ln() - f64::from(i).ln() + hit - miss;
        sum += term.exp();
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures of the specification: f0 and the k that follows.
    #[test]
    fn what_the_controls_lose_decides_how_many_failures_it_takes() {
        let policy = Policy::careful();
        for (failures, checks, k) in [(0, 180, 3), (0, 60, 4), (5, 60, 7), (0, 10_000, 3), (0, 0, 12), (90, 180, 12)] {
            assert_eq!(wanted(&policy, Some(Recent { failures, checks })), k, "{failures} of {checks}");
        }
        assert_eq!(wanted(&policy, None), policy.k_min, "nothing is known of its controls");
        assert_eq!(wanted(&Policy::fast(), Some(Recent { failures: 90, checks: 180 })), 3, "k_max stands");
    }

    #[test]
    fn the_bound_is_that_of_the_specification() {
        for (failures, checks, f0) in [(0, 180, 0.017), (0, 60, 0.049), (5, 60, 0.167)] {
            assert!((bound(Recent { failures, checks }) - f0).abs() < 0.001, "{failures} of {checks}");
        }
        assert!(bound(Recent { failures: 3, checks: 3 }) > 0.999 && bound(Recent { failures: 0, checks: 0 }) > 0.999);
    }

    #[test]
    fn more_failures_are_never_less_convincing() {
        let policy = Policy { k_max: 40, ..Policy::careful() };
        for recent in (0..200).step_by(7).map(|failures| Recent { failures, checks: 200 }) {
            let first = wanted(&policy, Some(recent));
            assert!((first..60).all(|run| enough(&policy, Some(recent), run)), "{recent:?}");
            assert!((0..first).all(|run| !enough(&policy, Some(recent), run)), "{recent:?}");
        }
    }
}
