//! What the operator reads when a command fails: what happened, why, and how to fix it.

use std::fmt;
use std::process::ExitCode;

/// How a command ends when it does not succeed. The numbers are part of the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// 1: it failed.
    Failed,
    /// 2: wrong usage or configuration.
    Usage,
    /// 3: what was asked for does not exist.
    NotFound,
    /// 4: refused.
    Refused,
    /// 5: something it needs could not be reached.
    Unreachable,
    /// 7: nothing is wrong, and there is something to do: a plan with changes.
    Changes,
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
            Self::Changes => 7,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.code())
    }
}

/// A failed command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Exit code.
    pub exit: Exit,
    what: String,
    why: Option<String>,
    fix: Option<String>,
    printed: bool,
}

impl Failure {
    /// A failure, by what happened.
    #[must_use]
    pub fn new(exit: Exit, what: impl Into<String>) -> Self {
        Self { exit, what: what.into(), why: None, fix: None, printed: false }
    }

    /// An exit code of which the answer on stdout has said everything.
    #[must_use]
    pub fn answered(exit: Exit) -> Self {
        Self::new(exit, String::new()).printed()
    }

    /// A failure of which stdout has a document already.
    #[must_use]
    pub fn printed(mut self) -> Self {
        self.printed = true;
        self
    }

    /// Whether stdout has a document of it.
    #[must_use]
    pub fn is_printed(&self) -> bool {
        self.printed
    }

    /// For programs.
    #[must_use]
    pub fn as_json(&self) -> serde_json::Value {
        serde_json::json!({
            "schema": 1,
            "error": { "exit": self.exit.code(), "what": self.what, "why": self.why, "fix": self.fix },
        })
    }

    /// Whether there is nothing left to say.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.what.is_empty()
    }

    /// Adds the reason.
    #[must_use]
    pub fn why(mut self, why: impl fmt::Display) -> Self {
        self.why = Some(why.to_string());
        self
    }

    /// Adds what the reader can do about it.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.what)?;
        if let Some(why) = &self.why {
            // Further lines stand under the first.
            write!(f, "\n  why: {}", why.replace('\n', "\n       "))?;
        }
        if let Some(fix) = &self.fix {
            write!(f, "\n  fix: {}", fix.replace('\n', "\n       "))?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        match error.downcast::<Failure>() {
            Ok(failure) => failure,
            Err(error) => {
                let mut chain = error.chain().skip(1).map(ToString::to_string);
                let failure = Failure::new(Exit::Failed, error.to_string());
                match chain.next() {
                    Some(first) => failure.why(chain.fold(first, |text, next| format!("{text}: {next}"))),
                    None => failure,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_reads_what_why_fix() {
        let failure = Failure::new(Exit::NotFound, "no incident 7").why("the newest is 3").fix("parallax incidents");
        assert_eq!(failure.to_string(), "error: no incident 7\n  why: the newest is 3\n  fix: parallax incidents");
        assert_eq!(failure.exit.code(), 3);
        let two = Failure::new(Exit::Usage, "two faults").why("one\ntwo");
        assert_eq!(two.to_string(), "error: two faults\n  why: one\n       two");
    }

    #[test]
    fn a_chain_of_causes_becomes_the_why() {
        let error = anyhow::anyhow!("no such file").context("cannot read key").context("cannot start");
        let failure = Failure::from(error);
        assert_eq!(failure.to_string(), "error: cannot start\n  why: cannot read key: no such file");
        let kept = Failure::from(anyhow::Error::new(Failure::new(Exit::Refused, "no")));
        assert_eq!(kept.exit, Exit::Refused);
    }
}
