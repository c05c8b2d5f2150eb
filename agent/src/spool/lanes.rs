//! One of something for each lane.

use parallax_decide::observation::Lane;

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
