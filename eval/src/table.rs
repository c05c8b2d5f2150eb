//! What the program prints.

use std::fmt::Write as _;

use serde::Serialize;

use crate::baseline::{self, Baseline, Score};
use crate::case::Case;
use crate::grade::{Grade, SCHEMA, Total, total};

/// Parallax or a baseline, on the same cases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Line {
    /// Who.
    pub who: &'static str,
    /// What it came to.
    #[serde(flatten)]
    pub score: Score,
}

/// The last object of the JSON form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Of the JSON form.
    pub schema: u32,
    /// How many of all.
    pub total: Total,
    /// Beside what people use today.
    pub beside: Vec<Line>,
}

/// Everything in one: the sum, and the comparison.
#[must_use]
pub fn summary(cases: &[Case], grades: &[Grade]) -> Summary {
    let wrong: Vec<usize> = cases
        .iter()
        .zip(grades)
        .map(|(case, grade)| baseline::wrong(case, &grade.actions.iter().cloned().collect()))
        .collect();
    let missed = |(case, grade): &(&Case, &Grade)| {
        baseline::is_fault(case) && grade.finding.as_ref().is_some_and(|finding| finding.got == "none")
    };
    let ours = Score {
        wrong_actions: wrong.iter().sum(),
        wrong_cases: wrong.iter().filter(|wrong| **wrong > 0).count(),
        missed_faults: cases.iter().zip(grades).filter(missed).count(),
    };
    let others = Baseline::ALL
        .into_iter()
        .map(|baseline| Line { who: baseline.title(), score: baseline::score(baseline, cases) });
    let beside = std::iter::once(Line { who: "Parallax", score: ours }).chain(others).collect();
    Summary { schema: SCHEMA, total: total(grades), beside }
}

/// For people.
#[must_use]
pub fn text(cases: &[Case], grades: &[Grade]) -> String {
    let mut out = String::new();
    for (case, grade) in cases.iter().zip(grades) {
        one(&mut out, case, grade);
    }
    let summary = summary(cases, grades);
    let Total { cases, right, verdicts, findings, actions, forbidden } = summary.total;
    let _ = writeln!(
        out,
        "\n{right} of {cases} cases right: verdicts {verdicts}, findings {findings}, action sets {actions}; \
         forbidden actions taken: {forbidden}\n"
    );
    let _ = writeln!(out, "| on the same cases | wrong actions | in cases | missed faults |\n|---|---|---|---|");
    for Line { who, score } in &summary.beside {
        let Score { wrong_actions, wrong_cases, missed_faults } = score;
        let _ = writeln!(out, "| {who} | {wrong_actions} | {wrong_cases} | {missed_faults} |");
    }
    out
}

fn one(out: &mut String, case: &Case, grade: &Grade) {
    let word = if grade.ok { "right" } else { "WRONG" };
    let _ = writeln!(out, "{word}  {:<5} {}", case.id, case.title);
    for (vantage, wrong) in &grade.verdicts {
        let _ = writeln!(out, "       {vantage}: {} instead of {}", wrong.got, wrong.expected);
    }
    if let Some(wrong) = &grade.finding {
        let _ = writeln!(out, "       finding: {} instead of {}", wrong.got, wrong.expected);
    }
    for (what, actions) in [("missing", &grade.missing), ("not right", &grade.extra), ("FORBIDDEN", &grade.forbidden)] {
        if !actions.is_empty() {
            let list: Vec<&str> = actions.iter().map(crate::action::Action::as_str).collect();
            let _ = writeln!(out, "       {what}: {}", list.join(", "));
        }
    }
}
