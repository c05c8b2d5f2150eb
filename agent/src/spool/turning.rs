//! Begins a boot anew while nobody takes what is measured.
//!
//! A lane is sent in the order of its numbers, for its cursor is one number. After hours without a coordinator
//! what was seen in the last moments would so come last, and it alone can decide a verdict. Therefore a
//! long outage is numbered in parts, each a boot of its own with its own cursors: the part of the last moments
//! is sent first, then the others, newest first, each row exactly once as ever.

use std::time::Duration;

use super::boot::{Boot, BootId};
use super::lanes::Lanes;
use super::{Spool, Writer, writing};
use parallax_decide::observation::Lane;

/// Least length of a part: shorter outages are sent as they were measured.
const PART_MIN: Duration = Duration::from_secs(600);

/// Parts in the time for which observations are kept, at most.
const PARTS_OF_AGE: u32 = 144;

/// No further parts with so many boots left to be sent: some room is kept for the agent's own starts, since beyond
/// [`super::BOOTS_MAX`] the oldest is dropped.
const PARTS_MAX: usize = 192;

impl Spool {
    /// A session is about to be opened: what is measured from now on is of the boot that this gives, which the
    /// coordinator is told.
    pub fn hold(&mut self) -> BootId {
        self.held = true;
        self.running.id
    }

    /// The session is over, or there was none: a long outage may begin.
    pub fn release(&mut self) {
        self.held = false;
        self.waiting_since_ms.get_or_insert(self.now_ms);
    }

    /// Begins a boot anew when the last part of an outage is long enough. Where that cannot be, the numbers go on.
    pub(super) fn turn_when_due(&mut self) {
        let part = PART_MIN.max(self.limits.age_max / PARTS_OF_AGE);
        let part_ms = u64::try_from(part.as_millis()).unwrap_or(u64::MAX);
        let due = self.waiting_since_ms.is_some_and(|since| self.now_ms >= since.saturating_add(part_ms));
        // What is in memory belongs behind what is on disk, and a disk in trouble has other worries.
        let able = !self.held
            && self.attached
            && self.health.works()
            && self.memory.is_empty()
            && self.earlier.len() < PARTS_MAX;
        if !(due && able && self.has_unsent_running()) {
            return;
        }
        let Ok(id) = BootId::random() else { return };
        if let Err(error) = self.turn(id) {
            tracing::debug!(%error, "the spool goes on in the boot it has");
        }
        self.waiting_since_ms = Some(self.now_ms);
    }

    fn has_unsent_running(&self) -> bool {
        self.running.logs.each().iter().any(|(_, log)| log.last() > log.acked)
    }

    fn turn(&mut self, id: BootId) -> std::io::Result<()> {
        let counter = writing::folder_name(&self.running.folder).map_or(0, |(number, _)| number);
        let folder = self.root.join(format!("{:010}-{id}", counter.saturating_add(1)));
        std::fs::create_dir(&folder)?;
        self.folders.push(self.root.clone());
        for lane in Lane::ALL {
            if let Some(Writer { file, unsynced: true, .. }) = self.writers.of_mut(lane).take() {
                self.closed.push(file);
            }
        }
        let before = std::mem::replace(&mut self.running, Boot::new(id, folder));
        tracing::debug!(before = %before.id, now = %id, "nobody takes what is measured; the spool begins a boot anew");
        self.earlier.push(before);
        self.next = Lanes { urgent: 1, routine: 1 };
        Ok(())
    }
}
