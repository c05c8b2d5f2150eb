//! Words for people beside an outcome: joined, bounded, and harmless to show.

use crate::date as calendar;

/// Adds a remark to those already made.
pub fn add(remarks: &mut String, remark: &str) {
    if remark.is_empty() {
        return;
    }
    if !remarks.is_empty() {
        remarks.push_str("; ");
    }
    remarks.push_str(remark);
}

/// A stranger's text, fit to be shown: at most `max` characters, white space as one space, and nothing
/// in it that acts on a terminal or hides (control characters, marks that turn the direction of
/// writing).
#[must_use]
pub fn harmless(text: &str, max: usize) -> String {
    let hides = |one: char| {
        one.is_control()
            || matches!(one, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    words.chars().take(max).map(|one| if hides(one) { '·' } else { one }).collect()
}

/// A moment in seconds since 1970, as text.
#[must_use]
pub fn date(unix_s: u64) -> String {
    calendar::text(i64::try_from(unix_s).unwrap_or(i64::MAX).min(YEAR_9999_S))
}

/// Last second of the year 9999: what certificates without an end say (RFC 5280, 4.1.2.5).
const YEAR_9999_S: i64 = 253_402_300_799;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strangers_text_does_nothing_to_a_terminal() {
        assert_eq!(harmless("  Log\n\n in \u{1b}[2J\u{202e}x ", 64), "Log in ·[2J·x");
        assert_eq!(harmless(&"я".repeat(500), 64).chars().count(), 64);
        assert_eq!(date(u64::MAX), "9999-12-31T23:59:59Z");
    }

    #[test]
    fn remarks_are_joined() {
        let mut remarks = String::new();
        for one in ["", "a", "", "b"] {
            add(&mut remarks, one);
        }
        assert_eq!(remarks, "a; b");
    }
}
