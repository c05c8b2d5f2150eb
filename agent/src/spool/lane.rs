//! The two lanes observations travel in.

use std::fmt;

/// Where an observation stands in line. Each lane has its own sequence numbers and cursor per boot,
/// so that a verdict's evidence never waits behind a backlog.
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

    /// Its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Urgent => "urgent",
            Self::Routine => "routine",
        }
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// One of something for each lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Lanes<T> {
    pub(super) urgent: T,
    pub(super) routine: T,
}

impl<T> Lanes<T> {
    pub(super) fn of(&self, lane: Lane) -> &T {
        match lane {
            Lane::Urgent => &self.urgent,
            Lane::Routine => &self.routine,
        }
    }

    pub(super) fn of_mut(&mut self, lane: Lane) -> &mut T {
        match lane {
            Lane::Urgent => &mut self.urgent,
            Lane::Routine => &mut self.routine,
        }
    }

    pub(super) fn each(&self) -> [(Lane, &T); 2] {
        [(Lane::Urgent, &self.urgent), (Lane::Routine, &self.routine)]
    }
}
