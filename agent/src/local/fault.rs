//! What is wrong with the owner's file, and where.

/// A place in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// Line, from 1.
    pub(super) line: usize,
    /// Column in characters, from 1.
    pub(super) column: usize,
}

/// One fault.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    at: Place,
    message: String,
}

/// Widest part of a line that is shown, in characters.
const SHOWN_CHARS_MAX: usize = 100;

/// Longest text of the file that a message quotes, in characters.
const QUOTED_CHARS_MAX: usize = 60;

/// How alike a known word must be to be offered, by Jaro's measure; clap's threshold for options.
const ALIKE_MIN: f64 = 0.7;

impl Fault {
    /// A fault at a place: what is wrong, and how to put it right.
    pub(super) fn new(at: Place, message: impl Into<String>) -> Self {
        Self { at, message: message.into() }
    }

    /// A word that is none of those that may stand there; `what` it is, like "key".
    pub(super) fn unknown(at: Place, what: &str, word: &str, known: &[&str]) -> Self {
        let alike = known.iter().map(|known| (strsim::jaro(word, known), known));
        let near = alike.filter(|(alike, _)| *alike > ALIKE_MIN).max_by(|a, b| a.0.total_cmp(&b.0));
        let known = match near {
            Some((_, near)) => format!(", did you mean '{near}'?"),
            None => format!("; known here: {}", known.join(", ")),
        };
        Self::new(at, format!("unknown {what} {}{known}", quoted(word)))
    }

    /// Line, column and message, and below them the line of the file with a mark under the place.
    pub(super) fn shown(&self, text: &str) -> String {
        let Self { at: Place { line, column }, message } = self;
        let told = format!("line {line}, column {column}: {message}");
        let Some(whole) = text.lines().nth(line.saturating_sub(1)) else { return told };
        let before = column.saturating_sub(1);
        // Of a long line the part around the place.
        let first = before.saturating_sub(SHOWN_CHARS_MAX / 2);
        let part: String = whole.chars().skip(first).take(SHOWN_CHARS_MAX).map(printable).collect();
        format!("{told}\n{line:>5} | {}\n      | {:>2$}", part.trim_end(), "^", before - first + 1)
    }
}

/// A text of the file, or its beginning, as a message quotes it.
pub(super) fn quoted(text: &str) -> String {
    let part: String = text.chars().take(QUOTED_CHARS_MAX).map(printable).collect();
    let more = if text.chars().nth(QUOTED_CHARS_MAX).is_some() { "…" } else { "" };
    format!("'{part}{more}'")
}

/// A terminal obeys control characters, and a tab would shift the mark.
fn printable(c: char) -> char {
    match c {
        '\t' => ' ',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}
