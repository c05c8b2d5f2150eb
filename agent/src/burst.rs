//! A first failure is confirmed at once instead of at the next tick.
//!
//! One burst a subject: the first failing probe starts it, a success ends it, and it does not start
//! again before the subject has succeeded. A subject that stays down is then probed by the grid alone.

use std::collections::BTreeMap;
use std::net::IpAddr;

use parallax_decide::names::ResolverName;
use parallax_decide::observation::{Says, Target};

/// Most subjects remembered as failing; beyond this the memory is cleared, which costs a few
/// more probes and no finding.
const FAILING_MAX: usize = 4096;

/// What is confirmed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// An address tried for a target.
    Connection(Target, IpAddr),
    /// A resolver's endpoint.
    Endpoint(ResolverName),
}

/// Which subjects fail, and which of them have a burst running.
#[derive(Debug, Default)]
pub struct Bursts {
    failing: BTreeMap<Subject, Burst>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Burst {
    Running,
    Done,
}

impl Bursts {
    /// Notes a scheduled outcome; whether a burst shall start now.
    #[must_use]
    pub fn starts(&mut self, subject: &Subject, said: Says) -> bool {
        match said {
            Says::Nothing => return false,
            Says::Works => {
                // A running burst sees its own success soon; until then the subject stays noted.
                if self.failing.get(subject) == Some(&Burst::Done) {
                    self.failing.remove(subject);
                }
                return false;
            }
            Says::Fails => {}
        }
        if self.failing.contains_key(subject) {
            return false;
        }
        if self.failing.len() >= FAILING_MAX {
            self.failing.retain(|_, burst| *burst == Burst::Running);
        }
        self.failing.insert(subject.clone(), Burst::Running);
        true
    }

    /// Notes that a burst is over; `recovered` when its last probe succeeded.
    pub fn ended(&mut self, subject: &Subject, recovered: bool) {
        if recovered {
            self.failing.remove(subject);
        } else if let Some(burst) = self.failing.get_mut(subject) {
            *burst = Burst::Done;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(last: u8) -> Subject {
        Subject::Connection(Target::Name("example.com".parse().unwrap()), IpAddr::from([8, 6, 112, last]))
    }

    #[test]
    fn a_burst_starts_with_the_first_failure_alone() {
        let mut bursts = Bursts::default();
        assert!(!bursts.starts(&subject(0), Says::Works));
        assert!(bursts.starts(&subject(0), Says::Fails));
        assert!(!bursts.starts(&subject(0), Says::Fails), "it runs");
        assert!(bursts.starts(&subject(5), Says::Fails), "another address has its own");
        bursts.ended(&subject(0), false);
        assert!(!bursts.starts(&subject(0), Says::Fails), "it stays down");
        assert!(!bursts.starts(&subject(0), Says::Nothing));
        assert!(!bursts.starts(&subject(0), Says::Fails), "own trouble in between was no success");
        assert!(!bursts.starts(&subject(0), Says::Works));
        assert!(bursts.starts(&subject(0), Says::Fails), "it was up in between");
    }

    #[test]
    fn a_burst_that_saw_a_success_may_start_again() {
        let mut bursts = Bursts::default();
        assert!(bursts.starts(&subject(0), Says::Fails));
        bursts.ended(&subject(0), true);
        assert!(bursts.starts(&subject(0), Says::Fails));
    }

    #[test]
    fn memory_is_bounded() {
        let mut bursts = Bursts::default();
        for number in 0..FAILING_MAX as u32 + 10 {
            let subject =
                Subject::Connection(Target::Name("a.example".parse().unwrap()), IpAddr::from(number.to_be_bytes()));
            let _ = bursts.starts(&subject, Says::Fails);
            bursts.ended(&subject, false);
        }
        assert!(bursts.failing.len() <= FAILING_MAX);
    }
}
