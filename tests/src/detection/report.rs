//! Figures of all trials.

use super::Patience;
use super::trial::Trial;
use crate::bench::figure::{Figure, p95};

/// Goals for a machine of ours that is dead, with policy `default` and three vantages, s (`decisions.md`).
const NODE_MEAN_S: f64 = 18.0;
const NODE_MAX_S: f64 = 22.0;
/// Goal for a black hole at one vantage, with policy `fast`, s.
const BLACK_HOLE_MAX_S: f64 = 10.0;
/// What detection may take beyond theory: this part of it, and this long, s.
const BEYOND_PART: f64 = 0.05;
const BEYOND_S: f64 = 0.1;

/// The figures.
#[must_use]
pub fn figures(patience: Patience, trials: &[Trial]) -> Vec<Figure> {
    let took: Vec<f64> = trials.iter().map(|trial| trial.took_s).collect();
    let most = took.iter().copied().reduce(f64::max);
    let beyond: Vec<f64> = trials.iter().map(|trial| trial.took_s - trial.theory_s).collect();
    let of_allowed: Vec<f64> = trials
        .iter()
        .map(|trial| (trial.took_s - trial.theory_s) / (BEYOND_PART * trial.theory_s + BEYOND_S))
        .collect();
    let mut figures = match patience {
        Patience::Default => vec![
            Figure { runs: took.clone(), ..Figure::new("P11.dead_node", "s", mean(&took), Some(NODE_MEAN_S)) }
                .note("mean, from the machine's last packet to the verdict node_dead_everywhere; policy default, three vantages"),
            Figure::new("P11.dead_node_max", "s", most, Some(NODE_MAX_S)).note("the longest of them"),
        ],
        Patience::Fast => vec![
            Figure { runs: took.clone(), ..Figure::new("P11.black_hole_max", "s", most, Some(BLACK_HOLE_MAX_S)) }
                .note("the longest, from the first answer without a path to the verdict answer_unroutable_here; policy fast"),
        ],
    };
    figures.push(
        Figure { runs: beyond.clone(), ..Figure::new("P11.beyond_theory", "s", p95(&beyond), None) }
            .note("p95 of what each took longer than its own probes' beginnings allow"),
    );
    figures.push(
        Figure::new("P11.of_allowance", "ratio", p95(&of_allowed), Some(1.0))
            .note("p95 of the same, divided by 5 % of theory and 100 ms"),
    );
    figures
}

#[expect(clippy::cast_precision_loss, reason = "a handful of trials")]
fn mean(all: &[f64]) -> Option<f64> {
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_longer_than_allowed_is_short() {
        let trial = |took_s| Trial { what: "fi".to_owned(), took_s, theory_s: 16.0 };
        let ok = |took| figures(Patience::Default, &[trial(took)]).iter().filter_map(|f| f.ok).collect::<Vec<_>>();
        assert_eq!(ok(16.5), [true, true, true]);
        assert_eq!(ok(17.5), [true, true, false]);
        assert_eq!(ok(23.0), [false, false, false]);
    }
}
