//! What one configuration would change against another, setting by setting, with every default filled in: a value
//! that is written out and one that is left at the same default are the same.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::Value;

/// Longest value that a line shows, in characters.
const VALUE_CHARS_MAX: usize = 80;

/// One setting that differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// Where, as in `services[fi].ttl_s`.
    pub path: String,
    /// Value before; none: it is new.
    pub before: Option<Value>,
    /// Value after; none: it is gone.
    pub after: Option<Value>,
}

/// Compares what [`super::show::as_json`] makes of two configurations, in the order of the paths. Of a thing that is
/// new or gone as a whole there is one line.
#[must_use]
pub fn between(before: &Value, after: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    compare(String::new(), Some(before), Some(after), &mut found);
    found
}

fn compare(path: String, before: Option<&Value>, after: Option<&Value>, found: &mut Vec<Difference>) {
    if before == after {
        return;
    }
    let (inner_before, inner_after) = (before.and_then(children), after.and_then(children));
    if let (Some(was), Some(is)) = (&inner_before, &inner_after) {
        let mut keys: Vec<&String> = was.keys().chain(is.keys()).collect();
        keys.sort();
        keys.dedup();
        for key in keys {
            let place = match path.as_str() {
                "" => key.trim_start_matches('.').to_owned(),
                path => format!("{path}{key}"),
            };
            compare(place, was.get(key).copied(), is.get(key).copied(), found);
        }
        // The same things in another order.
        if was.keys().eq(is.keys()) && was.iter().all(|(key, value)| is.get(key) == Some(value)) {
            found.push(Difference {
                path: format!("{path} (order)"),
                before: before.map(names),
                after: after.map(names),
            });
        }
        return;
    }
    found.push(Difference { path, before: before.cloned(), after: after.cloned() });
}

/// Parts of an object by key, and of a list of named things by name; none of anything else.
fn children(value: &Value) -> Option<BTreeMap<String, &Value>> {
    match value {
        Value::Object(object) => Some(object.iter().map(|(key, value)| (format!(".{key}"), value)).collect()),
        Value::Array(items) => items
            .iter()
            .map(|item| Some((format!("[{}]", item.get("name")?.as_str()?), item)))
            .collect::<Option<BTreeMap<_, _>>>(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn names(value: &Value) -> Value {
    value.as_array().map_or(Value::Null, |items| items.iter().filter_map(|item| item.get("name").cloned()).collect())
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => write!(f, "~ {}: {} -> {}", self.path, short(before), short(after)),
            (None, Some(after)) => write!(f, "+ {}: {}", self.path, short(after)),
            (Some(before), None) => write!(f, "- {}: {}", self.path, short(before)),
            (None, None) => write!(f, "  {}", self.path),
        }
    }
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(VALUE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, builtin, show};

    fn lines(before: &str, after: &str) -> Vec<String> {
        let shown = |text: &str| show::as_json(&Config::parse(text, "test").unwrap());
        between(&shown(before), &shown(after)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_change_is_named_by_its_place() {
        let example = builtin::EXAMPLE;
        assert_eq!(lines(example, example), Vec::<String>::new());
        let written_out = example.replace("policy: default", "policy: default # the same");
        assert_eq!(lines(example, &written_out), Vec::<String>::new());
        assert_eq!(lines(example, &example.replace("ttl_s: 60", "ttl_s: 30")), ["~ services[fi].ttl_s: 60 -> 30"]);
        assert_eq!(
            lines(example, &example.replace("dwell_s: 300", "dwell_s: 600")),
            ["~ policy.dwell_ms: 300000 -> 600000"]
        );
        let without = example.replace("  - { name: cdn.tailwindcss.com, port: 443, tls: true }\n", "");
        let gone = lines(example, &without);
        assert!(gone.len() == 1 && gone[0].starts_with("- canaries[cdn.tailwindcss.com]: {"), "{gone:?}");
        let new = lines(&without, example);
        assert!(new.len() == 1 && new[0].starts_with("+ canaries[cdn.tailwindcss.com]: {"), "{new:?}");
        assert_eq!(
            lines(example, &example.replace("fallbacks: [de, us]", "fallbacks: [us, de]")),
            ["~ services[fi].fallbacks: [\"de\",\"us\"] -> [\"us\",\"de\"]"]
        );
    }

    #[test]
    fn long_values_are_cut() {
        let long = Difference { path: "x".to_owned(), before: None, after: Some(Value::String("ü".repeat(200))) };
        assert!(long.to_string().chars().count() < 100);
    }
}
