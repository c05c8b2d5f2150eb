//! Spans of time as people write them: a whole number and its unit, as in 90s, 15m, 12h, 7d or 2y.

use std::time::Duration;

/// A year of 365 days.
const YEAR_S: u64 = 365 * 86_400;

/// Longest span: a hundred years is a slip.
pub const SPAN_MAX: Duration = Duration::from_secs(100 * YEAR_S);

/// Units with their length in seconds.
const UNITS: [(&str, u64); 7] =
    [("s", 1), ("m", 60), ("min", 60), ("h", 3600), ("d", 86_400), ("w", 604_800), ("y", YEAR_S)];

/// What is wrong with a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault<'a> {
    /// Nothing behind the number.
    NoUnit,
    /// Behind the number, if there is one, is no unit.
    Unknown,
    /// Nothing before this unit that is a number, or one that is far too large.
    NoNumber(&'a str),
    /// More than [`SPAN_MAX`].
    TooLong,
}

/// Reads a span and the unit in which it was written.
///
/// # Errors
/// What is wrong with it.
pub fn read(text: &str) -> Result<(Duration, &str), Fault<'_>> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    if unit.is_empty() && digits > 0 {
        return Err(Fault::NoUnit);
    }
    let unit_s = UNITS.iter().find(|(word, _)| *word == unit).map(|(_, seconds)| *seconds).ok_or(Fault::Unknown)?;
    let number: u64 = number.parse().map_err(|_| Fault::NoNumber(unit))?;
    let span = number.checked_mul(unit_s).map(Duration::from_secs).filter(|span| *span <= SPAN_MAX);
    Ok((span.ok_or(Fault::TooLong)?, unit))
}

/// Reads a span in any unit, with a message for people.
///
/// # Errors
/// What is wrong with it.
pub fn any(text: &str) -> Result<Duration, String> {
    read(text).map(|(span, _)| span).map_err(|fault| match fault {
        Fault::NoUnit | Fault::Unknown => format!("'{text}' is not a span; write for example 90s, 15m, 12h or 7d"),
        Fault::NoNumber(_) => format!("'{text}' does not begin with a whole number"),
        Fault::TooLong => format!("'{text}' is longer than a hundred years"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_with_their_unit_and_nothing_else() {
        for (text, seconds) in [("7d", 604_800), ("90s", 90), ("15m", 900), ("15min", 900), ("2y", 2 * YEAR_S)] {
            assert_eq!(any(text), Ok(Duration::from_secs(seconds)));
        }
        for wrong in ["", "7", "d", "-1d", "7 d", "1.5h", "9999999999999w", "ü", "7ü", "101y"] {
            assert!(any(wrong).is_err(), "{wrong}");
        }
    }
}
