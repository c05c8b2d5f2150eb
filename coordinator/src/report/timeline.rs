//! What happened, step by step: the incident's events, each step of its plans, each vantage's proof.

use std::time::Duration;

use parallax_decide::change::Change;
use parallax_decide::finding::Finding;
use parallax_decide::guard::Refusal;
use parallax_decide::plan::NoPlan;
use parallax_decide::time::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::moment::{At, Zone};
use crate::store::read::incident::StepRow;
use crate::store::read::plan::PlanRow;
use crate::words::{finding, plan as plan_words};

/// Letters of a particular that are shown.
const DETAIL_MAX: usize = 160;

/// One step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// When.
    pub at: At,
    /// Milliseconds since the incident opened; negative before.
    pub after_ms: i64,
    /// Who: incident, a vantage or a driver.
    pub lane: String,
    /// Plan it belongs to.
    pub plan: Option<i64>,
    /// Word for what happened.
    pub what: String,
    /// The same as a sentence.
    pub text: String,
}

impl Step {
    /// `+12.4 s` since the incident opened.
    #[must_use]
    pub fn after(&self) -> String {
        let sign = if self.after_ms < 0 { '-' } else { '+' };
        let ms = self.after_ms.unsigned_abs();
        if ms < 120_000 {
            format!("{sign}{}.{} s", ms / 1000, ms % 1000 / 100)
        } else {
            format!("{sign}{}", super::moment::span(Duration::from_millis(ms)))
        }
    }
}

/// The steps as people read them. What a plan's own step and a vantage's proof say is not said again
/// by the incident.
#[must_use]
pub fn steps(rows: &[StepRow], plans: &[PlanRow], opened_at: Timestamp, zone: &Zone) -> Vec<Step> {
    let said_elsewhere = |row: &&StepRow| match (row.source.as_str(), row.what.as_str()) {
        ("incident", "applied" | "proven" | "yielded" | "plan_failed" | "proof_failed") => {
            row.detail.get("plan").is_some_and(Value::is_number)
        }
        ("plan", "proof") => true,
        _ => false,
    };
    rows.iter()
        .filter(|row| !said_elsewhere(row))
        .map(|row| {
            let plan = row.plan.and_then(|id| plans.iter().find(|plan| plan.id == id));
            Step {
                at: At(row.at),
                after_ms: row.at.0.saturating_sub(opened_at.0),
                lane: lane(row, plan),
                plan: row.plan,
                what: row.what.clone(),
                text: text(row, plan, zone),
            }
        })
        .collect()
}

fn lane(row: &StepRow, plan: Option<&PlanRow>) -> String {
    match (row.source.as_str(), &row.vantage, plan) {
        ("incident", ..) => "incident".to_owned(),
        (_, Some(vantage), _) => vantage.clone(),
        (_, None, Some(plan)) => plan.driver.clone(),
        (_, None, None) => "coordinator".to_owned(),
    }
}

fn text(row: &StepRow, plan: Option<&PlanRow>, zone: &Zone) -> String {
    let sentence = match row.source.as_str() {
        "incident" => incident_text(row, zone),
        "plan" => plan_text(row, plan),
        "proof" => Some(proof_text(row)),
        _ => None,
    };
    sentence.unwrap_or_else(|| joined(&row.what.replace('_', " "), &particulars(&row.detail)))
}

fn incident_text(row: &StepRow, zone: &Zone) -> Option<String> {
    let found = || serde_json::from_value::<Finding>(row.detail.clone()).ok();
    match row.what.as_str() {
        "opened" => Some(format!("opened: {}", found().map(|f| finding::short(&f.subject, &f.reason))?)),
        "members_changed" => {
            Some(format!("finding changed: {}", found().map(|f| finding::short(&f.subject, &f.reason))?))
        }
        "no_plan" => {
            let why = hold(row.detail.get("why")?, zone)?;
            Some(joined(row.detail.get("item").and_then(Value::as_str).unwrap_or("nothing planned"), &why))
        }
        "planned" => {
            let change: Change = serde_json::from_value(row.detail.get("change")?.clone()).ok()?;
            let word = |key| row.detail.get(key).and_then(Value::as_str);
            let (purpose, mode) = (word("purpose").unwrap_or("plan"), word("mode").unwrap_or("unknown"));
            Some(format!("{purpose} planned, mode {mode}: {}", plan_words::change(&change)))
        }
        "closed" => {
            let since = row.detail.get("well_since").and_then(Value::as_i64)?;
            Some(format!("closed: well since {}", zone.clock_named(Timestamp(since))))
        }
        _ => None,
    }
}

fn plan_text(row: &StepRow, plan: Option<&PlanRow>) -> Option<String> {
    let order = || plan.and_then(|plan| plan.change.as_ref()).map(plan_words::change);
    let detail = particulars(&row.detail);
    let said = match row.what.as_str() {
        "intent" => return Some(format!("about to {}", order()?)),
        "read" => "read what is there",
        "applied" => "written and read back",
        "already" => "stood already: nothing was written",
        "conflict" => "somebody else's data is there: nothing was written",
        "refused" => {
            let reasons = refusals(&row.detail);
            return Some(joined("refused", if reasons.is_empty() { &detail } else { &reasons }));
        }
        "failed" => "the driver failed: nothing was changed",
        "uncertain" => "no answer in time: perhaps applied",
        "proof_failed" => "nobody could use it in time",
        "verified" => "proven from the client's side",
        "taken_over" => "another coordinator goes on with it",
        "renewed" => "the pin's life was extended",
        "expired" => "expired: not applied in time",
        _ => return None,
    };
    Some(joined(said, &detail))
}

/// Why nothing is planned, as the timeline holds it: the planner's reason, the guards', or that the
/// last plan came to nothing.
#[must_use]
pub fn hold(why: &Value, zone: &Zone) -> Option<String> {
    if let Ok(no_plan) = serde_json::from_value::<NoPlan>(why.clone()) {
        return Some(plan_words::no_plan(&no_plan, &|at| zone.clock_named(at)));
    }
    match why.get("because")?.as_str()? {
        "guard" => Some(format!("a guard refused the plan: {}", refusals(why))),
        "recent_failure" => {
            let until = Timestamp(why.get("until")?.as_i64()?);
            let plan = why.get("plan")?.as_i64()?;
            Some(format!("plan {plan} came to nothing; not tried again before {}", zone.clock_named(until)))
        }
        _ => None,
    }
}

fn proof_text(row: &StepRow) -> String {
    let after = row.detail.get("after_s").and_then(Value::as_f64);
    let mut text = "own resolver serves it".to_owned();
    if row.detail.get("connection").is_some_and(|connection| !connection.is_null()) {
        text.push_str(", and it works");
    }
    if let Some(after) = after {
        text.push_str(&format!(", {after:.1} s after the change"));
    }
    for key in ["resolution", "connection"] {
        if let Some(id) = row.detail.get(key).and_then(Value::as_i64) {
            text.push_str(&format!(" #{id}"));
        }
    }
    text
}

/// Refusals of a guard, wherever the detail holds a list of them.
fn refusals(detail: &Value) -> String {
    let lists = match detail {
        Value::Array(items) => vec![items],
        Value::Object(fields) => fields.values().filter_map(Value::as_array).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    };
    let said = lists.into_iter().flatten().filter_map(|one| serde_json::from_value::<Refusal>(one.clone()).ok());
    said.map(|one| plan_words::refusal(&one)).collect::<Vec<_>>().join("; ")
}

/// The scalars and short lists of a detail, for steps that have no sentence of their own.
fn particulars(detail: &Value) -> String {
    let Value::Object(fields) = detail else { return String::new() };
    let shown = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(yes) => Some(if *yes { "yes" } else { "no" }.to_owned()),
        Value::Array(items) if items.iter().all(Value::is_string) && !items.is_empty() => {
            Some(items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "))
        }
        Value::Array(_) | Value::Object(_) | Value::Null => None,
    };
    // Epochs matter to coordinators, not to readers; the rows keep them.
    let parts = fields.iter().filter(|(key, _)| !key.ends_with("epoch")).filter_map(|(key, value)| {
        let text = shown(value).filter(|text| !text.is_empty())?;
        Some(if key == "detail" || key == "why" { text } else { format!("{}: {text}", key.replace('_', " ")) })
    });
    parts.collect::<Vec<_>>().join("; ").chars().take(DETAIL_MAX).collect()
}

fn joined(what: &str, detail: &str) -> String {
    if detail.is_empty() { what.to_owned() } else { format!("{what}: {detail}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn step(source: &str, what: &str, detail: Value) -> StepRow {
        let vantage = (source == "proof").then(|| "wan-gw".to_owned());
        StepRow { at: Timestamp(12_400), source: source.to_owned(), plan: None, vantage, what: what.to_owned(), detail }
    }

    fn texts(rows: &[StepRow]) -> Vec<String> {
        steps(rows, &[], Timestamp(0), &Zone::utc()).into_iter().map(|step| step.text).collect()
    }

    #[test]
    fn steps_read_as_sentences() {
        let hold = json!({"item": "fi", "why": {"because": "standing", "until": {"what": "dwell", "until": 60_000}}});
        let rows = [
            step("incident", "no_plan", hold),
            step(
                "incident",
                "no_plan",
                json!({"item": "fi", "why": {"because": "guard", "refusals": [{"because": "frozen"}]}}),
            ),
            step(
                "incident",
                "no_plan",
                json!({"item": "fi", "why": {"because": "recent_failure", "plan": 4, "status": "failed", "until": 9_000}}),
            ),
            step("incident", "closed", json!({"well_since": 5_000})),
            step("plan", "refused", json!({"refusals": [{"because": "frozen"}, {"because": "stale_epoch"}]})),
            step("plan", "conflict", json!({"found": ["203.0.113.9"]})),
            step("proof", "seen", json!({"resolution": 7, "connection": 8, "after_s": 0.812})),
        ];
        assert_eq!(
            texts(&rows),
            [
                "fi: the remedy stands; the native one works again; back not before 00:01:00 UTC, so as not to flap",
                "fi: a guard refused the plan: an operator froze every write",
                "fi: plan 4 came to nothing; not tried again before 00:00:09 UTC",
                "closed: well since 00:00:05 UTC",
                "refused: an operator froze every write; it was made under an older lease",
                "somebody else's data is there: nothing was written: found: 203.0.113.9",
                "own resolver serves it, and it works, 0.8 s after the change #7 #8",
            ]
        );
        assert_eq!(steps(&rows, &[], Timestamp(0), &Zone::utc())[0].after(), "+12.4 s");
    }

    #[test]
    fn an_unknown_step_is_shown_and_a_strange_detail_does_no_harm() {
        let rows = [
            step("incident", "people_called", json!({"who": "anna", "nested": {"a": 1}})),
            step("incident", "no_plan", json!("text")),
            step("plan", "intent", json!(null)),
            step("new_source", "x", json!([1])),
        ];
        assert_eq!(texts(&rows), ["people called: who: anna", "no plan", "intent", "x"]);
    }

    #[test]
    fn the_same_thing_is_said_once() {
        let told = json!({ "plan": 3 });
        let rows =
            [step("incident", "proven", told), step("plan", "proof", json!({})), step("plan", "verified", json!({}))];
        assert_eq!(texts(&rows), ["proven from the client's side"]);
    }
}
