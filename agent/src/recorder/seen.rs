//! Which lane a fact belongs to: whether it says the same as the last one about its subject.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher as _};

use parallax_decide::observation::{Family, Lane, Outcome, Purpose, Says};

use crate::measured::What;

/// Most subjects remembered: the largest assignment with some addresses each. Beyond, all are
/// forgotten, which costs a few rows in the urgent lane.
const SUBJECTS_MAX: usize = 4096;

/// The subjects whose last result was a success, and what that looked like; both as hashes. A clash
/// of two of them costs one row its place in line, never the row.
#[derive(Debug, Default)]
pub(super) struct Seen {
    good: HashMap<u64, u64>,
}

impl Seen {
    /// Lane of a fact, and whether it says that something works.
    pub(super) fn lane(&mut self, purpose: Purpose, what: &What) -> (Lane, bool) {
        let works = what.says() == Says::Works;
        let Some(subject) = subject(what) else { return (Lane::Urgent, works) };
        let Some(looks) = looks(what).filter(|_| works || without_ipv6(what)) else {
            self.good.remove(&subject);
            return (Lane::Urgent, works);
        };
        if self.good.len() >= SUBJECTS_MAX && !self.good.contains_key(&subject) {
            self.good.clear();
        }
        let like_before = self.good.insert(subject, looks) == Some(looks);
        let routine = purpose == Purpose::Scheduled && like_before;
        (if routine { Lane::Routine } else { Lane::Urgent }, works)
    }
}

/// A name without IPv6 addresses, as most are: no success, and no news either while it stays so. It would
/// else fill the urgent lane with half of all resolutions.
fn without_ipv6(what: &What) -> bool {
    match what {
        What::Resolution(fact, _) => fact.family == Family::V6 && fact.outcome == Outcome::Empty,
        What::Connection(..) | What::EndpointCheck(..) | What::ControlCheck(..) | What::Path(..) | What::Missed(..) => {
            false
        }
    }
}

/// What a fact is about; `None`: facts of its kind are never routine.
fn subject(what: &What) -> Option<u64> {
    match what {
        What::Resolution(fact, _) => Some(hash((0, &fact.name, &fact.resolver, fact.family == Family::V6))),
        What::Connection(fact, _) => Some(hash((1, &fact.target, fact.address, fact.port))),
        What::EndpointCheck(fact, _) => Some(hash((2, &fact.resolver, fact.address))),
        What::ControlCheck(..) | What::Path(..) | What::Missed(..) => None,
    }
}

/// What a success looks like; `None`: not like one after all.
fn looks(what: &What) -> Option<u64> {
    match what {
        What::EndpointCheck(fact, _) => {
            let others = [fact.fresh, fact.missing];
            others
                .into_iter()
                .flatten()
                .all(|other| other.is_reply())
                .then(|| hash((fact.outcome.word(), others.map(|other| other.map(|other| other.word())))))
        }
        What::Resolution(..) | What::Connection(..) | What::ControlCheck(..) | What::Path(..) | What::Missed(..) => {
            Some(hash(what.outcome().word()))
        }
    }
}

fn hash(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use parallax_decide::observation::{Connection, EndpointCheck, Missed, MissedReason, Resolution, Stage, Target};

    use super::*;
    use crate::measured::{ConnectionParticulars, EndpointParticulars, ResolutionParticulars};

    const ADDRESS: &str = "8.6.112.0";

    fn connection(outcome: Outcome) -> What {
        let fact = Connection {
            target: Target::Name("example.com".parse().unwrap()),
            address: ADDRESS.parse::<IpAddr>().unwrap(),
            port: 443,
            outcome,
            attempts: 1,
            attempts_connected: 1,
        };
        What::Connection(fact, ConnectionParticulars::default())
    }

    fn endpoint(missing: Outcome) -> What {
        let fact = EndpointCheck {
            resolver: "a".parse().unwrap(),
            address: ADDRESS.parse::<IpAddr>().unwrap(),
            stage: Stage::Dns,
            outcome: Outcome::Answered,
            fresh: None,
            missing: Some(missing),
            worked_before: true,
        };
        What::EndpointCheck(fact, EndpointParticulars::default())
    }

    #[test]
    fn a_name_that_has_no_ipv6_is_news_once() {
        let resolution = |outcome, family| {
            let fact = Resolution {
                name: "example.com".parse().unwrap(),
                resolver: "live".parse().unwrap(),
                family,
                outcome,
                addresses: Vec::new(),
                ttl_s: 0,
            };
            What::Resolution(fact, ResolutionParticulars::default())
        };
        let mut seen = Seen::default();
        let mut lane = |outcome, family| seen.lane(Purpose::Scheduled, &resolution(outcome, family));
        assert_eq!(lane(Outcome::Empty, Family::V6), (Lane::Urgent, false));
        assert_eq!(lane(Outcome::Empty, Family::V6), (Lane::Routine, false));
        assert_eq!(lane(Outcome::Answered, Family::V6), (Lane::Urgent, true));
        assert_eq!(lane(Outcome::Empty, Family::V6), (Lane::Urgent, false), "it was lost");
        assert_eq!(lane(Outcome::Empty, Family::V4), (Lane::Urgent, false));
        assert_eq!(lane(Outcome::Empty, Family::V4), (Lane::Urgent, false), "evidence never waits");
    }

    #[test]
    fn a_success_like_the_one_before_is_routine_and_everything_else_urgent() {
        let mut seen = Seen::default();
        let mut lane = |purpose, what| seen.lane(purpose, &what);
        let (urgent, routine) = (Lane::Urgent, Lane::Routine);
        let scheduled = Purpose::Scheduled;
        assert_eq!(lane(scheduled, connection(Outcome::TlsOk)), (urgent, true), "the first");
        assert_eq!(lane(scheduled, connection(Outcome::TlsOk)), (routine, true));
        assert_eq!(lane(Purpose::CrossCheck, connection(Outcome::TlsOk)), (urgent, true));
        assert_eq!(lane(scheduled, connection(Outcome::HttpOk)), (urgent, true), "another word");
        assert_eq!(lane(scheduled, connection(Outcome::Silent)), (urgent, false));
        assert_eq!(lane(scheduled, connection(Outcome::Silent)), (urgent, false));
        assert_eq!(lane(scheduled, connection(Outcome::HttpOk)), (urgent, true), "after a failure");
        assert_eq!(lane(scheduled, connection(Outcome::HttpOk)), (routine, true));
        assert_eq!(lane(scheduled, connection(Outcome::RateLimited)), (urgent, false), "own trouble says nothing");
        let missed = What::Missed(Missed { reason: MissedReason::Busy, count: 1 }, "nodes".into());
        assert_eq!(lane(scheduled, missed.clone()), (urgent, false));
        assert_eq!(lane(scheduled, missed), (urgent, false));
    }

    #[test]
    fn an_endpoint_that_answers_its_other_questions_otherwise_is_no_routine() {
        let mut seen = Seen::default();
        let mut lane = |missing| seen.lane(Purpose::Scheduled, &endpoint(missing)).0;
        assert_eq!(lane(Outcome::Nxdomain), Lane::Urgent);
        assert_eq!(lane(Outcome::Nxdomain), Lane::Routine);
        assert_eq!(lane(Outcome::Answered), Lane::Urgent, "made up");
        assert_eq!(lane(Outcome::DnsSilent), Lane::Urgent);
        assert_eq!(lane(Outcome::DnsSilent), Lane::Urgent);
        assert_eq!(lane(Outcome::Nxdomain), Lane::Urgent);
    }

    #[test]
    fn subjects_without_end_cost_no_memory_without_end() {
        let mut seen = Seen::default();
        for last in 0..=u16::MAX {
            let [high, low] = last.to_be_bytes();
            let What::Connection(mut fact, kept) = connection(Outcome::TlsOk) else { unreachable!() };
            fact.address = [8, 8, high, low].into();
            seen.lane(Purpose::Scheduled, &What::Connection(fact, kept));
            assert!(seen.good.len() <= SUBJECTS_MAX);
        }
    }
}
