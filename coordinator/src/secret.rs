//! Secrets: from a file or the environment to a text that can be used, and never into a message.
//!
//! A file is read at each use, so that a rotated secret works without a restart and none lies in memory between two
//! uses. The environment of a process cannot change: a secret from there is as old as the process.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret, SecretString};

/// Largest secret, in bytes: a key in PEM with its chain is smaller.
const SECRET_BYTES_MAX: u64 = 64 << 10;

/// Where a secret is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A file that holds it and nothing else.
    File(PathBuf),
    /// A variable of the environment, by name.
    Variable(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Variable(name) => write!(f, "variable {name}"),
        }
    }
}

/// Why there is no usable secret. None of it is ever shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(String),
    /// The variable is not set.
    #[error("is not set")]
    Unset,
    /// Nothing is in it but blanks.
    #[error("is empty")]
    Empty,
    /// It is no text.
    #[error("is no UTF-8 text")]
    NotText,
    /// It is too long.
    #[error("has more than {SECRET_BYTES_MAX} bytes")]
    TooLong,
    /// It stands in quotes.
    #[error("stands in quotes, which would be part of the secret: remove them")]
    Quoted,
    /// It begins with a word of HTTP.
    #[error("begins with `Bearer` or `Basic`, which is no part of the secret: leave only what follows")]
    Scheme,
    /// It has characters that no secret of this kind can have.
    #[error(
        "has illegal characters (blanks, line breaks or control characters inside): it must be one word on one line"
    )]
    Illegal,
}

/// A secret that cannot be used, and where it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{source_of} {fault}")]
pub struct Unusable {
    /// Where.
    pub source_of: String,
    /// Why.
    pub fault: Fault,
}

impl Source {
    /// Reads it.
    ///
    /// # Errors
    /// Where it is and what is wrong with it, without any of it.
    pub fn read(&self) -> Result<SecretString, Unusable> {
        let raw = match self {
            Self::File(path) => bytes(path),
            Self::Variable(name) => match std::env::var_os(name) {
                None => Err(Fault::Unset),
                Some(value) => Ok(std::os::unix::ffi::OsStringExt::into_vec(value)),
            },
        };
        raw.and_then(cleaned).map_err(|fault| Unusable { source_of: self.to_string(), fault })
    }
}

fn bytes(path: &Path) -> Result<Vec<u8>, Fault> {
    let unreadable = |error: std::io::Error| Fault::Unreadable(error.to_string());
    let mut read = Vec::new();
    std::fs::File::open(path)
        .map_err(unreadable)?
        .take(SECRET_BYTES_MAX + 1)
        .read_to_end(&mut read)
        .map_err(unreadable)?;
    if u64::try_from(read.len()).is_ok_and(|length| length <= SECRET_BYTES_MAX) {
        Ok(read)
    } else {
        Err(Fault::TooLong)
    }
}

/// What is meant: without the byte-order mark, blanks and line end that editors and `echo` leave around it.
fn cleaned(raw: Vec<u8>) -> Result<SecretString, Fault> {
    // Wiped when it goes out of scope, also on the ways out that refuse it.
    let whole = SecretString::from(String::from_utf8(raw).map_err(|_| Fault::NotText)?);
    let text = whole.expose_secret().trim_start_matches('\u{feff}').trim();
    if text.is_empty() {
        return Err(Fault::Empty);
    }
    let quoted = |quote: char| text.starts_with(quote) || text.ends_with(quote);
    if quoted('"') || quoted('\'') {
        return Err(Fault::Quoted);
    }
    let first = text.split_whitespace().next().unwrap_or_default();
    if first != text && ["bearer", "basic"].contains(&first.to_ascii_lowercase().as_str()) {
        return Err(Fault::Scheme);
    }
    if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(Fault::Illegal);
    }
    Ok(SecretString::from(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b141_what_editors_leave_is_trimmed_and_anything_else_is_refused_without_being_shown() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let source = Source::File(file.clone());
        for good in ["abc123", "abc123\n", "abc123\r\n", "\u{feff}abc123\n", "  abc123 \n\n", "\tabc123"] {
            std::fs::write(&file, good).unwrap();
            assert_eq!(source.read().unwrap().expose_secret(), "abc123", "{good:?}");
        }
        for (bad, fault) in [
            (&b""[..], Fault::Empty),
            (b" \r\n", Fault::Empty),
            (b"\xef\xbb\xbf\n", Fault::Empty),
            (b"\"abc123\"\n", Fault::Quoted),
            (b"'abc123'", Fault::Quoted),
            (b"Bearer abc123", Fault::Scheme),
            (b"bearer abc123\n", Fault::Scheme),
            (b"abc 123", Fault::Illegal),
            (b"abc123\nsecond", Fault::Illegal),
            (b"abc\x00123", Fault::Illegal),
            (b"abc\xff123", Fault::NotText),
        ] {
            std::fs::write(&file, bad).unwrap();
            let refused = source.read().unwrap_err();
            assert_eq!(refused.fault, fault, "{bad:?}");
            for said in [refused.to_string(), format!("{refused:?}")] {
                assert!(said.contains("token") && !said.contains("123"), "{said}");
            }
        }
        std::fs::write(&file, "x".repeat(70_000)).unwrap();
        assert_eq!(source.read().unwrap_err().fault, Fault::TooLong);
        std::fs::remove_file(&file).unwrap();
        assert!(source.read().unwrap_err().to_string().contains("cannot be read"));
        let unset = Source::Variable("PARALLAX_TEST_NO_SUCH_SECRET".to_owned()).read().unwrap_err();
        assert_eq!(unset.to_string(), "variable PARALLAX_TEST_NO_SUCH_SECRET is not set");
    }

    #[test]
    fn b141_a_secret_shows_nothing_of_itself() {
        let secret = cleaned(b"hunter2\n".to_vec()).unwrap();
        assert!(!format!("{secret:?}").contains("hunter2"));
    }
}
