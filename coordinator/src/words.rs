//! Reasons as sentences. Decisions return data; here, and only here, data becomes English, so that
//! the page, the command line and the API say the same thing in the same words.
//!
//! - [`verdict`]: what was judged. [`outcome`]: what was measured. [`path`]: which way packets take.
//! - [`vantage`]: what a place says of itself.
//! - [`finding`]: what was concluded. [`counterfactual`]: whether another resolver would help.
//! - [`plan`]: what is done, why, and why not. [`row`]: which row of a table decided.

pub mod counterfactual;
pub mod finding;
pub mod outcome;
pub mod path;
pub mod plan;
pub mod row;
pub mod vantage;
pub mod verdict;

use std::fmt::Display;

use serde::Serialize;

/// What a cell looks like. Each has a shape, a word and a colour: none of the three alone carries
/// the meaning (WCAG 1.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// A client can use it.
    Usable,
    /// Some of it.
    Partial,
    /// It resolves, and nothing at the answer can be reached.
    Unroutable,
    /// No answer, or an empty one.
    NoAnswer,
    /// An answer that cannot be right.
    WrongContent,
    /// Nothing can be said.
    Unobserved,
}

impl State {
    /// Every state, in the order of the legend.
    pub const ALL: [Self; 6] =
        [Self::Usable, Self::Partial, Self::Unroutable, Self::NoAnswer, Self::WrongContent, Self::Unobserved];

    /// Its mark in text.
    #[must_use]
    pub fn mark(self) -> char {
        match self {
            Self::Usable => 'o',
            Self::Partial => '/',
            Self::Unroutable => '#',
            Self::NoAnswer => 'x',
            Self::WrongContent => '!',
            Self::Unobserved => '?',
        }
    }

    /// Its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Usable => "usable",
            Self::Partial => "partial",
            Self::Unroutable => "unroutable",
            Self::NoAnswer => "no answer",
            Self::WrongContent => "wrong content",
            Self::Unobserved => "unobserved",
        }
    }

    /// Its name in style sheets and shapes.
    #[must_use]
    pub fn class(self) -> &'static str {
        match self {
            Self::Usable => "usable",
            Self::Partial => "partial",
            Self::Unroutable => "unroutable",
            Self::NoAnswer => "noanswer",
            Self::WrongContent => "wrong",
            Self::Unobserved => "unobserved",
        }
    }
}

/// Names or addresses a sentence spells out before it says "and n more".
pub const SPELLED_MAX: usize = 4;

/// `a`, `a and b`, `a, b and c`; past `most`, `a, b and 3 more`.
pub fn list<T: Display>(items: impl IntoIterator<Item = T>, most: usize) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    let (shown, rest) = if items.len() > most {
        let shown = items.iter().take(most.saturating_sub(1)).cloned().collect::<Vec<_>>();
        let rest = items.len() - shown.len();
        (shown, Some(format!("{rest} more")))
    } else {
        (items, None)
    };
    let mut parts: Vec<String> = shown.into_iter().chain(rest).collect();
    match parts.pop() {
        None => "nothing".to_owned(),
        Some(last) if parts.is_empty() => last,
        Some(last) => format!("{} and {last}", parts.join(", ")),
    }
}

/// Who does it: `wan-gw reaches`, `wan-gw and de-fra reach`, `nobody reaches`.
#[must_use]
pub fn plural(who: &[String], one: &str, many: &str) -> String {
    match who.len() {
        0 => format!("nobody {one}"),
        1 => format!("{} {one}", list(who, SPELLED_MAX)),
        _ => format!("{} {many}", list(who, SPELLED_MAX)),
    }
}

/// Each as text.
pub fn texts<T: Display>(items: &[T]) -> Vec<String> {
    items.iter().map(ToString::to_string).collect()
}

/// `1 name`, `2 names`.
#[must_use]
pub fn count(n: usize, one: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {one}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_read_like_sentences() {
        assert_eq!(list(Vec::<String>::new(), 3), "nothing");
        assert_eq!(list(["a"], 3), "a");
        assert_eq!(list(["a", "b"], 3), "a and b");
        assert_eq!(list(["a", "b", "c"], 3), "a, b and c");
        assert_eq!(list(["a", "b", "c", "d", "e"], 3), "a, b and 3 more");
        assert_eq!(count(1, "name"), "1 name");
        assert_eq!(count(0, "name"), "0 names");
    }

    #[test]
    fn no_two_states_share_a_mark_a_word_or_a_class() {
        for (i, a) in State::ALL.iter().enumerate() {
            for b in &State::ALL[i + 1..] {
                assert!(a.mark() != b.mark() && a.word() != b.word() && a.class() != b.class(), "{a:?} {b:?}");
            }
        }
    }
}
