//! How often the positive controls failed in the last 20 minutes, for each address family.
//!
//! That rate is this place's own false-failure rate; how many failures it takes to accuse a target
//! follows from it. Counted in slots, so that the memory does not depend on how often is checked.

use std::time::Duration;

use parallax_decide::observation::{Family, Group, Outcome, Says};

use crate::clock::{self, Instant};

/// Slots of this length, and so many: 20 minutes.
const SLOT: Duration = Duration::from_secs(10);
const SLOTS: usize = 120;

/// The window of both families.
#[derive(Debug)]
pub(super) struct Window {
    /// Slots are counted from here by the monotonic clock.
    begun: Instant,
    v4: Vec<Slot>,
    v6: Vec<Slot>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    /// Its number plus one; 0: never used.
    number: u64,
    failures: u32,
    checks: u32,
}

impl Default for Window {
    fn default() -> Self {
        Self { begun: clock::now(), v4: vec![Slot::default(); SLOTS], v6: vec![Slot::default(); SLOTS] }
    }
}

impl Window {
    /// Notes what a positive control came to. Own trouble is no check, and a control that showed a
    /// certificate was reached, whatever is wrong with it.
    pub(super) fn note(&mut self, family: Family, outcome: Outcome) {
        if outcome.says() == Says::Nothing {
            return;
        }
        let failed = outcome.says() == Says::Fails && outcome.group() != Group::Certificate;
        let number = self.number();
        let place = usize::try_from(number).unwrap_or(0) % SLOTS;
        let slots = match family {
            Family::V4 => &mut self.v4,
            Family::V6 => &mut self.v6,
        };
        let Some(slot) = slots.get_mut(place) else { return };
        if slot.number != number {
            *slot = Slot { number, failures: 0, checks: 0 };
        }
        slot.checks = slot.checks.saturating_add(1);
        slot.failures = slot.failures.saturating_add(u32::from(failed));
    }

    /// Failures and checks of a family in the last 20 minutes.
    pub(super) fn of(&self, family: Family) -> (u32, u32) {
        let oldest = self.number().saturating_sub(SLOTS as u64 - 1).max(1);
        let slots = match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        };
        slots.iter().filter(|slot| slot.number >= oldest).fold((0, 0), |(failures, checks), slot| {
            (failures.saturating_add(slot.failures), checks.saturating_add(slot.checks))
        })
    }

    fn number(&self) -> u64 {
        clock::since(self.begun).as_secs() / SLOT.as_secs() + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_last_twenty_minutes_count_for_each_family() {
        let mut window = Window::default();
        assert_eq!(window.of(Family::V4), (0, 0));
        window.note(Family::V4, Outcome::Silent);
        window.note(Family::V4, Outcome::TlsOk);
        window.note(Family::V6, Outcome::TlsSilent);
        assert_eq!((window.of(Family::V4), window.of(Family::V6)), ((1, 2), (1, 1)));
        tokio::time::advance(Duration::from_secs(600)).await;
        window.note(Family::V4, Outcome::TcpOk);
        assert_eq!(window.of(Family::V4), (1, 3));
        tokio::time::advance(Duration::from_secs(601)).await;
        assert_eq!((window.of(Family::V4), window.of(Family::V6)), ((0, 1), (0, 0)));
        window.note(Family::V4, Outcome::Silent);
        assert_eq!(window.of(Family::V4), (1, 2), "a slot is used again");
        tokio::time::advance(Duration::from_secs(100_000)).await;
        assert_eq!(window.of(Family::V4), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn own_trouble_is_no_check_and_a_bad_certificate_no_failure() {
        let mut window = Window::default();
        for outcome in [
            Outcome::OwnTrouble,
            Outcome::RateLimited,
            Outcome::FamilyUnavailable,
            Outcome::RefusedByPolicy,
            Outcome::SpecialAddress,
        ] {
            window.note(Family::V4, outcome);
        }
        assert_eq!(window.of(Family::V4), (0, 0));
        window.note(Family::V4, Outcome::CertificateExpired);
        window.note(Family::V4, Outcome::NoRoute);
        assert_eq!(window.of(Family::V4), (1, 2));
    }
}
