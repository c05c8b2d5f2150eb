//! `database.retain:` how long what is kept. Spans are written as people say them: 30d, 12h, 2y.

use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_saphyr::Spanned;

use super::embedded::EmbeddedFile;
use super::error::{Found, nearest};
use crate::span::{self, Fault};

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;
/// A year of 365 days: what is kept "2y" is there for two calendar years less at most a day.
const YEAR: u64 = 365 * DAY;

/// Rows of the log are kept at least this long: what agents held back for a day must still find
/// yesterday's figures next to it.
const RESULTS_MIN: Duration = Duration::from_secs(2 * DAY);

/// `database:`
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DatabaseFile {
    /// How long what is kept.
    #[serde(default)]
    pub retain: RetainFile,
    /// The embedded database.
    #[serde(default)]
    pub embedded: EmbeddedFile,
}

/// `retain:` of `database:`
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RetainFile {
    /// Rows of the log.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub results: Option<Spanned<String>>,
    /// Hourly figures, epochs of answers and ended verdicts.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub hourly: Option<Spanned<String>>,
    /// Incidents with their evidence and plans.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub incidents: Option<Spanned<String>>,
}

/// How long what is kept. Incidents, what they rest on, and what was done are kept for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retain {
    /// Rows of the log, in whole days of receipt.
    pub results: Duration,
    /// Hourly figures, epochs of answers and ended verdicts; `None`: for ever.
    pub hourly: Option<Duration>,
}

impl Default for Retain {
    fn default() -> Self {
        Self { results: Duration::from_secs(30 * DAY), hourly: Some(Duration::from_secs(2 * YEAR)) }
    }
}

/// A span or for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span(Option<Duration>);

impl std::str::FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "forever" {
            return Ok(Self(None));
        }
        match span::read(text) {
            Ok((span, "h" | "d" | "w" | "y")) => Ok(Self(Some(span))),
            Ok((_, "m")) => Err(format!("`{text}`: months and minutes are not known; write days, as in 30d")),
            Err(Fault::NoUnit) => Err(format!("`{text}` has no unit; write {text}d for days")),
            Err(Fault::NoNumber(unit)) => Err(format!("`{text}` needs a number before `{unit}`")),
            Err(Fault::TooLong) => Err(format!("`{text}` is more than 100 years; write forever")),
            Ok(_) | Err(Fault::Unknown) => {
                let near = nearest(text, ["forever"]).map(|near| format!("; did you mean `{near}`?"));
                Err(format!(
                    "`{text}` is no span: write a number with h, d, w or y, as in 30d, or forever{}",
                    near.unwrap_or_default()
                ))
            }
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.map(|span| span.as_secs()) {
            None => f.write_str("forever"),
            Some(s) if s > 0 && s.is_multiple_of(YEAR) => write!(f, "{}y", s / YEAR),
            Some(s) if s > 0 && s.is_multiple_of(DAY) => write!(f, "{}d", s / DAY),
            Some(s) => write!(f, "{}h", s.div_ceil(HOUR)),
        }
    }
}

impl Retain {
    /// As it is written in the file.
    #[must_use]
    pub fn results_word(&self) -> String {
        Span(Some(self.results)).to_string()
    }

    /// As it is written in the file.
    #[must_use]
    pub fn hourly_word(&self) -> String {
        Span(self.hourly).to_string()
    }
}

/// Checks `database.retain`.
pub fn check(file: &RetainFile, found: &mut Found) -> Retain {
    let mut retain = Retain::default();
    let kept = |text: &Option<Spanned<String>>, found: &mut Found| {
        let text = text.as_ref()?;
        match text.value.parse::<Span>() {
            Ok(span) => Some(span.0),
            Err(why) => {
                found.at(text, why);
                None
            }
        }
    };
    if let Some(results) = kept(&file.results, found) {
        match (results, &file.results) {
            (Some(results), _) if results >= RESULTS_MIN => retain.results = results,
            (Some(_), Some(place)) => {
                found.at(place, "`results` must be at least 2d: agents hold back what they could not send for a day");
            }
            (None, Some(place)) => {
                found.at(
                    place,
                    "`results` cannot be forever: the log grows by every probe; keep `hourly` for ever instead",
                );
            }
            (_, None) => {}
        }
    }
    if let Some(hourly) = kept(&file.hourly, found) {
        match &file.hourly {
            Some(place) if hourly.is_some_and(|hourly| hourly < retain.results) => found.at(
                place,
                format!(
                    "`hourly` must be at least as long as `results` ({}): it stands in for it",
                    retain.results_word()
                ),
            ),
            _ => retain.hourly = hourly,
        }
    }
    if let (Some(Some(_)), Some(place)) = (kept(&file.incidents, found), &file.incidents) {
        found
            .at(place, "`incidents` can only be forever: what was changed, why, and what it rests on is never deleted");
    }
    retain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_read_and_write_as_people_say_them() {
        for text in ["30d", "2y", "12h", "forever", "730d"] {
            let span: Span = text.parse().unwrap();
            let shown = if text == "730d" { "2y" } else { text };
            assert_eq!(span.to_string(), shown);
        }
        assert_eq!("2w".parse::<Span>().unwrap().to_string(), "14d");
        for (text, part) in [
            ("30", "write 30d for days"),
            ("6m", "write days"),
            ("for ever", "did you mean `forever`?"),
            ("d", "needs a number"),
            ("", "is no span"),
            ("999999999999999999999y", "needs a number"),
            ("101y", "write forever"),
            ("3 days", "is no span"),
        ] {
            let error = text.parse::<Span>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
