//! What came of a case beside what is right.

use std::collections::BTreeMap;

use parallax_decide::names::{NameError, VantageName};
use serde::Serialize;

use crate::action::Action;
use crate::case::Case;
use crate::course::{self, Outcome};

/// Version of the JSON form.
pub const SCHEMA: u32 = 1;

/// The verdict of a vantage whose reports count in full.
const VANTAGE_OK: &str = "vantage_ok";

/// Something that came out otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Wrong {
    /// What was expected.
    pub expected: String,
    /// What came.
    pub got: String,
}

/// A case, graded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Grade {
    /// Of the JSON form.
    pub schema: u32,
    /// The case.
    pub id: String,
    /// All right.
    pub ok: bool,
    /// Vantages whose standing or verdict is wrong; empty when all are right.
    pub verdicts: BTreeMap<VantageName, Wrong>,
    /// The finding, if it is wrong.
    pub finding: Option<Wrong>,
    /// What was done.
    #[serde(rename = "do")]
    pub actions: Vec<Action>,
    /// Actions that are right and were not taken.
    pub missing: Vec<Action>,
    /// Actions that were taken and are not right.
    pub extra: Vec<Action>,
    /// Those of them that must never be taken here.
    pub forbidden: Vec<Action>,
}

impl Grade {
    /// Whether the set of actions is exactly the right one.
    #[must_use]
    pub fn actions_right(&self) -> bool {
        self.missing.is_empty() && self.extra.is_empty()
    }
}

/// Runs a case and grades it.
///
/// # Errors
/// When a name of the case cannot be one.
pub fn grade(case: &Case) -> Result<Grade, NameError> {
    Ok(compare(case, &course::run(case)?))
}

fn compare(case: &Case, outcome: &Outcome) -> Grade {
    let mut verdicts = BTreeMap::new();
    let mut expect = |vantage: &VantageName, expected: &str, got: &str| {
        if expected != got {
            verdicts.insert(vantage.clone(), Wrong { expected: expected.to_owned(), got: got.to_owned() });
        }
    };
    for vantage in case.observe.keys() {
        let of = |words: &'_ BTreeMap<VantageName, String>| words.get(vantage).cloned();
        if let (Some(expected), Some(got)) = (of(&case.expect.per_vantage), of(&outcome.verdicts)) {
            expect(vantage, &expected, &got);
        }
        let stands = |words| of(words).unwrap_or_else(|| VANTAGE_OK.to_owned());
        expect(vantage, &stands(&case.expect.vantage), &stands(&outcome.vantages));
    }
    let finding = (outcome.finding != case.expect.fused)
        .then(|| Wrong { expected: case.expect.fused.clone(), got: outcome.finding.clone() });
    let missing: Vec<Action> = case.expect.actions.difference(&outcome.actions).cloned().collect();
    let extra: Vec<Action> = outcome.actions.difference(&case.expect.actions).cloned().collect();
    let forbidden: Vec<Action> = outcome.actions.iter().filter(|a| a.is_among(&case.expect.never)).cloned().collect();
    let ok = verdicts.is_empty() && finding.is_none() && missing.is_empty() && extra.is_empty() && forbidden.is_empty();
    Grade {
        schema: SCHEMA,
        id: case.id.clone(),
        ok,
        verdicts,
        finding,
        actions: outcome.actions.iter().cloned().collect(),
        missing,
        extra,
        forbidden,
    }
}

/// How many of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Total {
    /// Cases.
    pub cases: usize,
    /// All of a case right.
    pub right: usize,
    /// Every verdict right.
    pub verdicts: usize,
    /// Finding right.
    pub findings: usize,
    /// Exactly the right actions.
    pub actions: usize,
    /// Forbidden actions taken.
    pub forbidden: usize,
}

/// Sums grades up.
#[must_use]
pub fn total(grades: &[Grade]) -> Total {
    let count = |right: fn(&Grade) -> bool| grades.iter().filter(|grade| right(grade)).count();
    Total {
        cases: grades.len(),
        right: count(|grade| grade.ok),
        verdicts: count(|grade| grade.verdicts.is_empty()),
        findings: count(|grade| grade.finding.is_none()),
        actions: count(Grade::actions_right),
        forbidden: grades.iter().map(|grade| grade.forbidden.len()).sum(),
    }
}
