//! The two lanes observations travel in.

use std::fmt;

/// Where an observation stands in line on its way from an agent to the coordinator. Each lane has its
/// own sequence numbers and cursor per boot, so that a verdict's evidence never waits behind a backlog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Failures, the first success after one, everything a task or a burst asked for, controls, losses.
    Urgent,
    /// Successes like the ones before. Dropped first when there is no room.
    Routine,
}

impl Lane {
    /// Both, in the order they are sent.
    pub const ALL: [Self; 2] = [Self::Urgent, Self::Routine];

    /// Its word, in SQL and in names of files.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Urgent => "urgent",
            Self::Routine => "routine",
        }
    }

    /// The lane of a word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|lane| lane.word() == word)
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
