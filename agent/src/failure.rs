//! What a person reads when a command fails: what happened, why, how to put it right, and a code that
//! stays the same.

use std::fmt;

/// Exit codes. The numbers are part of the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// 1: it failed.
    Failed,
    /// 2: wrong usage or configuration.
    Usage,
    /// 3: what was asked for is not there.
    NotFound,
    /// 4: refused by the coordinator; trying again would not help.
    Refused,
    /// 5: the coordinator could not be reached.
    Unreachable,
}

impl Exit {
    /// The process's exit code.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::NotFound => 3,
            Self::Refused => 4,
            Self::Unreachable => 5,
        }
    }
}

/// A failed command. Shown in lines; `{:#}` is one line, for a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// How the process ends.
    pub exit: Exit,
    /// `E` and four digits.
    pub code: &'static str,
    /// In one word, for programs.
    pub word: &'static str,
    /// What happened.
    pub what: String,
    /// Why; may come from the coordinator, fit to be shown.
    pub why: String,
    /// How to put it right.
    pub fix: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, what, why, fix, .. } = self;
        match f.alternate() {
            true => write!(f, "{what} ({code}): {why}; {fix}"),
            false => write!(f, "error[{code}]: {what}\n  why: {why}\n  fix: {fix}"),
        }
    }
}

impl std::error::Error for Failure {}

impl Failure {
    /// The failure as one document. Fields are only ever added; `schema` rises when that is broken.
    #[must_use]
    pub fn document(&self) -> serde_json::Value {
        let Self { exit, code, word, what, why, fix } = self;
        serde_json::json!({
            "schema": 1, "exit": exit.code(),
            "error": { "code": code, "word": word, "what": what, "why": why, "fix": fix },
        })
    }

    /// Something of this place's configuration: exit 2.
    #[must_use]
    pub fn configuration(code: &'static str, word: &'static str, why: String, fix: &str) -> Self {
        let what = "the configuration of this place cannot be used".to_owned();
        Self { exit: Exit::Usage, code, word, what, why, fix: fix.to_owned() }
    }
}
