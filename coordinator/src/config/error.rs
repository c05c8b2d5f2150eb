//! What is wrong with a configuration file: every fault with its line and column.

use std::fmt;

use serde_saphyr::{Location, Spanned};

use crate::error::{Exit, Failure};

/// One fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Line, from 1; 0 when the fault is about the whole.
    pub line: u64,
    /// Column, from 1.
    pub column: u64,
    /// What is wrong, and where it helps what to do.
    pub message: String,
}

impl Fault {
    fn at(location: Location, message: impl Into<String>) -> Self {
        Self { line: location.line(), column: location.column(), message: message.into() }
    }
}

/// The faults of one file, in the order of its lines; or what is allowed in it and hardly meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults {
    /// Path as it was given.
    pub file: String,
    /// At least one.
    pub faults: Vec<Fault>,
    /// The file as it was read, for the lines that are shown.
    pub text: String,
}

/// Widest part of a line that is shown, in characters.
const SHOWN_CHARS_MAX: usize = 100;

impl Faults {
    /// The line of a fault with a mark under its place; nothing when it has none.
    fn shown(&self, fault: &Fault) -> Option<String> {
        let index = |n: u64| usize::try_from(n.checked_sub(1)?).ok();
        let (line, column) = (self.text.lines().nth(index(fault.line)?)?, index(fault.column)?);
        // Of a long line the part around the place.
        let first = column.saturating_sub(SHOWN_CHARS_MAX / 2);
        let part: String = line
            .chars()
            .skip(first)
            .take(SHOWN_CHARS_MAX)
            .map(|c| {
                if c == '\t' {
                    ' '
                } else if c.is_control() {
                    '\u{fffd}'
                } else {
                    c
                }
            })
            .collect();
        let mark = format!("{}^", " ".repeat(column - first));
        Some(format!("{:>5} | {}\n      | {mark}", fault.line, part.trim_end()))
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, fault) in self.faults.iter().enumerate() {
            let Fault { line, column, message } = fault;
            if i > 0 {
                f.write_str("\n")?;
            }
            match line {
                0 => write!(f, "{}: {message}", self.file)?,
                _ => write!(f, "{}:{line}:{column}: {message}", self.file)?,
            }
            if let Some(shown) = self.shown(fault) {
                write!(f, "\n{shown}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

impl From<Faults> for Failure {
    fn from(faults: Faults) -> Self {
        let count = match faults.faults.len() {
            1 => "one fault".to_owned(),
            n => format!("{n} faults"),
        };
        Failure::new(Exit::Usage, format!("the configuration has {count}"))
            .why(faults)
            .fix("parallax config example prints a complete file, parallax config schema completes it in an editor")
    }
}

/// Faults and doubts as they are found.
#[derive(Debug, Default)]
pub struct Found {
    faults: Vec<Fault>,
    doubts: Vec<Fault>,
}

impl Found {
    /// Adds one at a place of the file.
    pub fn at<T>(&mut self, place: &Spanned<T>, message: impl Into<String>) {
        self.place(place.referenced, message);
    }

    /// Adds one about the whole file.
    pub fn whole(&mut self, message: impl Into<String>) {
        self.place(Location::UNKNOWN, message);
    }

    /// Adds what is allowed and hardly meant.
    pub fn doubt<T>(&mut self, place: &Spanned<T>, message: impl Into<String>) {
        self.doubts.push(Fault::at(place.referenced, message));
    }

    fn place(&mut self, location: Location, message: impl Into<String>) {
        self.faults.push(Fault::at(location, message));
    }

    /// Parses a text of the file, or notes why it cannot be.
    pub fn parse<T: std::str::FromStr<Err: fmt::Display>>(&mut self, what: &str, text: &Spanned<String>) -> Option<T> {
        match text.value.parse() {
            Ok(value) => Some(value),
            Err(error) => {
                self.at(text, format!("{what}: {error}"));
                None
            }
        }
    }

    /// The faults, or, where there are none, the doubts; both in the order of the lines.
    ///
    /// # Errors
    /// The faults.
    pub fn into_sorted(self) -> Result<Vec<Fault>, Vec<Fault>> {
        let sorted = |mut all: Vec<Fault>| {
            all.sort_by_key(|one| (one.line, one.column));
            all
        };
        if self.faults.is_empty() { Ok(sorted(self.doubts)) } else { Err(sorted(self.faults)) }
    }
}

/// A fault of the reader (syntax, a wrong type, an unknown key) as ours.
#[must_use]
pub fn of_reader(error: &serde_saphyr::Error, text: &str) -> Fault {
    let (line, column) = error.location().map_or((0, 0), |location| (location.line(), location.column()));
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "their enum: all other faults are told in the reader's own words"
    )]
    let message = match error.without_snippet() {
        serde_saphyr::Error::SerdeUnknownField { field, expected, .. } => {
            format!("unknown key `{field}`{}{}", hint(field, expected), belongs(field, expected))
        }
        serde_saphyr::Error::SerdeUnknownVariant { variant, expected, .. } => {
            format!("unknown value `{variant}`{}", hint(variant, expected))
        }
        serde_saphyr::Error::SerdeMissingField { field, .. } => format!("the key `{field}` is missing"),
        serde_saphyr::Error::DuplicateMappingKey { key: Some(key), .. } => format!("duplicate key `{key}`"),
        other => match token(text, line, column) {
            "" => strip_location(&other.to_string()),
            token => format!("{} at `{token}`", strip_location(&other.to_string())),
        },
    };
    Fault { line, column, message }
}

/// Longest word that a message quotes, in characters.
const TOKEN_MAX: usize = 60;

/// The word of the file that the reader stopped at, or its beginning.
fn token(text: &str, line: u64, column: u64) -> &str {
    let index = |n: u64| usize::try_from(n.saturating_sub(1)).unwrap_or(usize::MAX);
    let line = text.lines().nth(index(line)).unwrap_or_default();
    let start = line.char_indices().nth(index(column)).map_or(line.len(), |(at, _)| at);
    let rest = &line[start..];
    let word = rest.split(|c: char| c.is_whitespace() || ",]}".contains(c)).next().unwrap_or_default();
    word.char_indices().nth(TOKEN_MAX).map_or(word, |(end, _)| &word[..end])
}

fn hint(given: &str, expected: &[&str]) -> String {
    match nearest(given, expected.iter().copied()) {
        Some(near) => format!(", did you mean `{near}`?"),
        None => format!("; expected one of {}", expected.join(", ")),
    }
}

/// Where a key is known that stands in the wrong section.
fn belongs(key: &str, expected: &[&str]) -> String {
    if nearest(key, expected.iter().copied()).is_some() {
        return String::new();
    }
    let schema = super::schema::schema();
    let has = |object: &serde_json::Value| object.pointer(&format!("/properties/{key}")).is_some();
    let mut places: Vec<String> = Vec::new();
    if has(&schema) {
        places.push("the top".to_owned());
    }
    for (name, definition) in schema.get("$defs").and_then(|defs| defs.as_object()).into_iter().flatten() {
        if has(definition) {
            // Types are called by what they are for.
            places.push(
                format!("a {}", name.trim_end_matches("File").to_lowercase())
                    .replace("a overrides", "policy_overrides"),
            );
        }
    }
    match places.as_slice() {
        [] => String::new(),
        places => format!(" (`{key}` belongs to {})", places.join(" or ")),
    }
}

/// The reader appends its own place; ours stands in front.
fn strip_location(message: &str) -> String {
    let end = message.find(" at line ").or_else(|| message.find(" (line ")).unwrap_or(message.len());
    message[..end].trim().to_owned()
}

/// The known word that is one or two slips of the keyboard away.
#[must_use]
pub fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|word| (distance(given, word), word))
        .filter(|(distance, word)| *distance <= 2 && *distance * 2 <= word.len())
        .min()
        .map(|(_, word)| word)
}

/// Levenshtein distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_word() {
        let known = ["threshold", "canaries", "controls", "nodes"];
        assert_eq!(nearest("thresold", known), Some("threshold"));
        assert_eq!(nearest("cannaries", known), Some("canaries"));
        assert_eq!(nearest("something", known), None);
        assert_eq!(nearest("x", ["y"]), None);
    }
}
