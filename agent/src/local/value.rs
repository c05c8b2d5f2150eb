//! What a node of the owner's file means: a section, a list, a text, a number, a yes or no, a time.

use std::collections::BTreeSet;
use std::time::Duration;

use super::fault::{Fault, Place, quoted};
use super::tree::{Node, Value};

/// More than a year is a slip, and far beyond what a clock can be asked.
const SECONDS_MAX: u64 = 366 * 86_400;

/// The key whose value's keys are taken for those of its section.
const MERGE: &str = "<<";

/// A key of a section with its value.
pub(super) struct Entry<'n> {
    pub(super) key: &'n str,
    pub(super) at: Place,
    pub(super) value: &'n Node<'n>,
}

impl Node<'_> {
    /// A fault of this node.
    pub(super) fn fault(&self, message: impl Into<String>) -> Fault {
        Fault::new(self.at, message)
    }

    /// A fault of this node: something else should stand here.
    pub(super) fn expected(&self, what: &str) -> Fault {
        let found = match &self.value {
            Value::Nothing => "nothing".to_owned(),
            Value::Text(text) => quoted(text),
            Value::List(_) => "a list".to_owned(),
            Value::Section(_) => "a section".to_owned(),
        };
        self.fault(format!("expected {what}, found {found}"))
    }

    /// The keys of a section with their values, in the file's order. No key stands there twice: of two limits
    /// the wrong one could hold. What is merged (`<<`) comes last, unless the section or an earlier one has the key.
    pub(super) fn section(&self) -> Result<Vec<Entry<'_>>, Fault> {
        let Value::Section(pairs) = &self.value else {
            return Err(self.expected("a section: keys with their values, indented below or between { and }"));
        };
        let (mut seen, mut entries, mut merged) = (BTreeSet::new(), Vec::new(), Vec::new());
        for (name, value) in pairs {
            let key = name.text("a key")?;
            if !seen.insert(key) {
                return Err(name.fault(format!("the key {} stands here twice; take one out", quoted(key))));
            }
            match key {
                MERGE => merged.extend(value.merged()?),
                _ => entries.push(Entry { key, at: name.at, value }),
            }
        }
        entries.extend(merged.into_iter().filter(|entry| seen.insert(entry.key)));
        Ok(entries)
    }

    /// What a merge key names: a section, a list of sections, or nothing.
    fn merged(&self) -> Result<Vec<Entry<'_>>, Fault> {
        let mut merged = Vec::new();
        match &self.value {
            Value::Nothing => {}
            Value::Text(_) | Value::Section(_) => merged = self.section()?,
            Value::List(list) => {
                for one in list {
                    merged.extend(one.merged()?);
                }
            }
        }
        Ok(merged)
    }

    /// Each value of a list, as `read` understands it.
    pub(super) fn list<T>(&self, what: &str, read: fn(&Node<'_>) -> Result<T, Fault>) -> Result<Vec<T>, Fault> {
        match &self.value {
            Value::List(list) => list.iter().map(read).collect(),
            Value::Nothing | Value::Text(_) | Value::Section(_) => Err(self.expected(what)),
        }
    }

    /// A text; `what` it is, for the fault.
    pub(super) fn text(&self, what: &str) -> Result<&str, Fault> {
        match &self.value {
            Value::Text(text) => Ok(text),
            Value::Nothing | Value::List(_) | Value::Section(_) => Err(self.expected(what)),
        }
    }

    /// Whether there is no value.
    pub(super) fn is_nothing(&self) -> bool {
        matches!(self.value, Value::Nothing)
    }

    /// Whether it is one text and no list or section.
    pub(super) fn is_text(&self) -> bool {
        matches!(self.value, Value::Text(_))
    }

    /// A text, or nothing.
    pub(super) fn optional<'n, T: From<&'n str>>(&'n self, what: &str) -> Result<Option<T>, Fault> {
        match self.is_nothing() {
            true => Ok(None),
            false => self.text(what).map(|text| Some(text.into())),
        }
    }

    /// A whole number that its type can hold; `what` it is, with the largest one, for the fault.
    pub(super) fn number<T: TryFrom<u64>>(&self, what: &str) -> Result<T, Fault> {
        let number = whole(self.text(what)?).and_then(|number| number.try_into().ok());
        number.ok_or_else(|| self.expected(what))
    }

    /// A yes or no, in all of YAML 1.1's spellings.
    pub(super) fn flag(&self) -> Result<bool, Fault> {
        let expected = "true or false";
        match trimmed(self.text(expected)?).to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "y" => Ok(true),
            "false" | "no" | "off" | "n" => Ok(false),
            _ => Err(self.expected(expected)),
        }
    }

    /// A whole number and its unit: "90s", "30m", "24h", "7d".
    pub(super) fn time(&self) -> Result<Duration, Fault> {
        let expected = "a time: a whole number and s, m, h or d, at most a year, like \"24h\"";
        let text = self.text(expected)?;
        let (digits, unit) = text.split_at(text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len());
        let unit_s = match unit {
            "s" => Some(1),
            "m" => Some(60),
            "h" => Some(3600),
            "d" => Some(86_400),
            _ => None,
        };
        let seconds = unit_s.zip(digits.parse::<u64>().ok()).and_then(|(unit, number)| number.checked_mul(unit));
        let seconds = seconds.filter(|&seconds| seconds <= SECONDS_MAX);
        seconds.map(Duration::from_secs).ok_or_else(|| self.expected(expected))
    }
}

/// YAML's white space around a quoted number.
fn trimmed(text: &str) -> &str {
    text.trim_matches([' ', '\t', '\r', '\n'])
}

/// A whole number as YAML writes it: 600, +600, 1_000, 0x1f, 0o17, 0b11. No leading zero, which YAML 1.1 takes
/// for octal.
fn whole(text: &str) -> Option<u64> {
    let text = trimmed(text);
    let text = text.strip_prefix('+').unwrap_or(text);
    let (radix, digits) = match text.split_at_checked(2) {
        Some(("0x" | "0X", digits)) => (16, digits),
        Some(("0o" | "0O", digits)) => (8, digits),
        Some(("0b" | "0B", digits)) => (2, digits),
        Some(_) if text.starts_with('0') => return None,
        Some(_) | None => (10, text),
    };
    // An underscore stands between digits, and a sign nowhere among them.
    let parts_fine = digits.split('_').all(|part| !part.is_empty()) && !digits.starts_with(['+', '-']);
    u64::from_str_radix(&digits.replace('_', ""), radix).ok().filter(|_| parts_fine)
}
