//! When a fault can be known at the earliest, from when the probes that met it began.

use std::time::Duration;

/// The figures of a policy that decide it (`verdicts.md` 6; `coordinator/src/config/policy.rs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// How long a probe of something silent takes.
    pub limit: Duration,
    /// Pauses before the two further probes of a burst.
    pub gaps: [Duration; 2],
    /// How often one who is asked tries.
    pub tries: u32,
    /// From the beginning of one try to that of the next.
    pub apart: Duration,
}

impl Rule {
    /// From the beginning of the first failing probe to the end of its burst, in seconds.
    #[must_use]
    pub fn burst_s(&self) -> f64 {
        (self.limit * 3 + self.gaps[0] + self.gaps[1]).as_secs_f64()
    }

    /// From the beginning of the first failing probe until one who is asked when it has failed has tried often enough, in
    /// seconds.
    #[must_use]
    pub fn asked_s(&self) -> f64 {
        let apart = self.apart.max(self.limit);
        (self.limit + apart * self.tries.saturating_sub(1) + self.limit).as_secs_f64()
    }

    /// For something that two must accuse: given the seconds after the fault at which the scheduled probes of each vantage
    /// began; none of nobody. The first one's burst must be over, and somebody else's as well, unless he was asked and had it
    /// sooner.
    #[must_use]
    pub fn two_accusers_s(&self, begun_s: &[f64]) -> Option<f64> {
        let mut sorted = begun_s.to_vec();
        sorted.sort_by(f64::total_cmp);
        let first = *sorted.first()?;
        let asked = first + self.asked_s();
        let second = sorted.get(1).map_or(asked, |second| asked.min(second + self.burst_s()));
        Some(second.max(first + self.burst_s()))
    }
}

#[cfg(test)]
mod tests {
    use crate::detection::Patience;

    /// `verdicts.md` 6: three vantages, 20 s, staggered, with bursts: mean 17.6 s, at most 21.
    #[test]
    fn the_table_of_the_specification_comes_out() {
        let rule = Patience::Default.rule();
        let staggered: Vec<f64> = (0..2000)
            .filter_map(|n| {
                let phase = f64::from(n) / 100.0;
                let begun: Vec<f64> = (0..3).map(|v| (phase + f64::from(v) * 20.0 / 3.0) % 20.0).collect();
                rule.two_accusers_s(&begun)
            })
            .collect();
        let mean = staggered.iter().sum::<f64>() / 2000.0;
        let most = staggered.iter().copied().fold(0.0, f64::max);
        assert!((16.0..17.6).contains(&mean), "{mean}");
        assert!(most < 21.0, "{most}");
    }

    #[test]
    fn nobody_finds_nothing_and_one_waits_for_whom_he_asks() {
        let rule = Patience::Default.rule();
        assert_eq!(rule.two_accusers_s(&[]), None);
        assert_eq!(rule.two_accusers_s(&[2.0]), Some(2.0 + rule.asked_s()));
        // The other one was about to try anyway.
        assert_eq!(rule.two_accusers_s(&[3.0, 2.0]), Some(3.0 + rule.burst_s()));
    }
}
