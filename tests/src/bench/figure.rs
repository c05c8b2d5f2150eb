//! One measured figure, and the line it is printed as.

use std::fmt;

use serde::Serialize;

/// One measured figure. `value` is none where it could not be measured: the note says why.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// Its name, like `P3.tcp`.
    pub figure: String,
    /// The value, in `unit`.
    pub value: Option<f64>,
    /// What it must not exceed, or, with `at_least`, not fall below; none where it is told for information.
    pub goal: Option<f64>,
    /// Whether more is better.
    pub at_least: bool,
    /// Whether value and goal are both there and the value keeps to the goal.
    pub ok: Option<bool>,
    /// Unit of value, goal and runs.
    pub unit: &'static str,
    /// Every run that the value was made of.
    pub runs: Vec<f64>,
    /// What it was compared with, with that one's own figure; `missing` where it is not installed.
    pub peer: Option<String>,
    /// How it was measured, where the name alone could mislead.
    pub note: String,
}

impl Figure {
    /// A figure that must not exceed `goal`.
    #[must_use]
    pub fn new(name: &str, unit: &'static str, value: Option<f64>, goal: Option<f64>) -> Self {
        let ok = goal.map(|goal| value.is_some_and(|value| value <= goal));
        let (figure, note) = (name.to_owned(), String::new());
        Self { figure, value, goal, at_least: false, ok, unit, runs: Vec::new(), peer: None, note }
    }

    /// A figure that must not fall below `goal`.
    #[must_use]
    pub fn at_least(name: &str, unit: &'static str, value: Option<f64>, goal: f64) -> Self {
        let ok = Some(value.is_some_and(|value| value >= goal));
        Self { at_least: true, ok, ..Self::new(name, unit, value, Some(goal)) }
    }

    /// Median of runs, against a goal.
    #[must_use]
    pub fn of_runs(name: &str, unit: &'static str, runs: Vec<f64>, goal: Option<f64>) -> Self {
        Self { runs: runs.clone(), ..Self::new(name, unit, median(&runs), goal) }
    }

    /// Ours divided by a peer's, run by run of ours against the peer's median.
    #[must_use]
    pub fn ratio(name: &str, ours: &[f64], peer: &str, theirs: Option<&[f64]>, unit: &str, goal: Option<f64>) -> Self {
        let Some(base) = theirs.and_then(median).filter(|base| *base > 0.0) else {
            let figure = Self::new(name, "ratio", None, goal);
            return Self { ok: None, ..figure }.peer("missing").note(&format!("{peer} is not there to compare with"));
        };
        let figure = Self::of_runs(name, "ratio", ours.iter().map(|run| run / base).collect(), goal);
        figure.peer(&format!("{peer} {} {unit}", short(base)))
    }

    /// With what it was compared.
    #[must_use]
    pub fn peer(self, peer: &str) -> Self {
        Self { peer: Some(peer.to_owned()), ..self }
    }

    /// With a word on how it was measured.
    #[must_use]
    pub fn note(self, note: &str) -> Self {
        Self { note: note.to_owned(), ..self }
    }

    /// Prints it, as one line or as one JSON object a line.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub fn print(&self, json: bool) -> serde_json::Result<()> {
        if json {
            println!("{}", serde_json::to_string(self)?);
        } else {
            println!("{self}");
        }
        Ok(())
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} value={}", self.figure, self.value.map_or_else(|| "none".to_owned(), short))?;
        if let Some(goal) = self.goal {
            write!(f, " goal{}{}", if self.at_least { ">=" } else { "<=" }, short(goal))?;
        }
        let verdict = match (self.goal, self.ok) {
            (None, _) => "info",
            (Some(_), Some(true)) => "ok",
            (Some(_), Some(false)) => "short",
            (Some(_), None) => "unmeasured",
        };
        write!(f, " {verdict} unit={}", self.unit)?;
        if !self.runs.is_empty() {
            write!(f, " runs=[{}]", self.runs.iter().map(|run| short(*run)).collect::<Vec<_>>().join(","))?;
        }
        if let Some(peer) = &self.peer {
            write!(f, " peer={peer}")?;
        }
        if !self.note.is_empty() {
            write!(f, " ({})", self.note)?;
        }
        Ok(())
    }
}

/// What 95 of 100 do not exceed; none of nothing.
#[must_use]
pub fn p95(all: &[f64]) -> Option<f64> {
    let mut sorted = all.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get((sorted.len() * 95).div_ceil(100).checked_sub(1)?).copied()
}

/// The median; none of nothing.
#[must_use]
pub fn median(runs: &[f64]) -> Option<f64> {
    let mut sorted = runs.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = sorted.get(middle).copied()?;
    match sorted.len() % 2 {
        0 => Some((sorted.get(middle.wrapping_sub(1)).copied()? + upper) / 2.0),
        _ => Some(upper),
    }
}

/// The value below which the given part (0 to 1) of all values lies; none of nothing.
#[must_use]
pub fn quantile(values: &[f64], part: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a place among some thousand values"
    )]
    let place = (last as f64 * part.clamp(0.0, 1.0)).ceil() as usize;
    sorted.get(place).copied()
}

/// Three digits that matter, without zeros at the end.
fn short(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        v if v >= 0.01 => 3,
        _ => 4,
    };
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p95_is_a_value_that_was_measured() {
        assert_eq!(p95(&[]), None);
        assert_eq!(p95(&[7.0]), Some(7.0));
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(p95(&hundred), Some(95.0));
    }

    #[test]
    fn a_line_says_value_goal_verdict_runs_and_peer() {
        let figure = Figure::ratio(
            "P3.tcp",
            &[0.09, 0.08, 0.1],
            "blackbox",
            Some(&[0.7, 0.72, 0.71]),
            "s/1000",
            Some(1.0 / 6.0),
        );
        assert_eq!(
            figure.to_string(),
            "P3.tcp value=0.127 goal<=0.167 ok unit=ratio runs=[0.127,0.113,0.141] peer=blackbox 0.71 s/1000"
        );
        let short = Figure::new("P4.size", "MB", Some(7.25), Some(6.0));
        assert_eq!(short.to_string(), "P4.size value=7.25 goal<=6 short unit=MB");
        let rate = Figure::at_least("P7.rate", "rows/s", Some(16_000.0), 15_000.0);
        assert_eq!(rate.to_string(), "P7.rate value=16000 goal>=15000 ok unit=rows/s");
    }

    #[test]
    fn a_missing_peer_is_said_and_nothing_is_claimed() {
        let figure = Figure::ratio("P1.ratio", &[4.0], "blackbox", None, "MiB", Some(0.33));
        assert_eq!((figure.value, figure.ok), (None, None));
        assert!(figure.to_string().starts_with("P1.ratio value=none goal<=0.33 unmeasured unit=ratio peer=missing"));
        let json: serde_json::Value = serde_json::to_value(&figure).unwrap();
        assert_eq!(json["figure"], "P1.ratio");
        assert_eq!(json["peer"], "missing");
        assert!(json["value"].is_null());
    }

    #[test]
    fn medians_and_quantiles() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        let hundred: Vec<f64> = (0..=100).map(f64::from).collect();
        assert_eq!(quantile(&hundred, 0.99), Some(99.0));
        assert_eq!(quantile(&hundred, 1.0), Some(100.0));
        assert_eq!(quantile(&[], 0.5), None);
    }
}
