//! A case as data: what is there, what goes wrong, and what has to be seen of it in the database.

use std::fmt;

use super::fault::Fault;
use super::place::Place;
use super::public::host;

/// One case: of `scenarios/cases.yaml` by its id, or a row of a table that no case there has, by the table's number.
#[derive(Debug, Clone)]
pub struct Case {
    /// Its id.
    pub id: &'static str,
    /// Which installation watches it.
    pub by: Watch,
    /// What goes wrong. Empty: it is there from the start.
    pub faults: Vec<Fault>,
    /// What is wrong before anything else is: a failover must not find a fallback dead only after it was chosen.
    pub before: Vec<Fault>,
    /// Verdicts that must be current at the same moment.
    pub verdicts: Vec<Wanted>,
    /// The incident it is part of, if it is to have one.
    pub incident: Option<Incident>,
    /// Incidents that it brings with it elsewhere: their keys.
    pub also: Vec<String>,
}

/// A verdict that must come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// `answer`, `address`, `endpoint`, `node` or `vantage`.
    pub kind: &'static str,
    /// What is judged.
    pub subject: String,
    /// Whose answer (answers only).
    pub resolver: Option<&'static str>,
    /// Where; none: across vantages.
    pub vantage: Option<&'static str>,
    /// The verdict's word.
    pub verdict: &'static str,
}

/// Who watches: each is a coordinator with agents of its own, in the same world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Watch {
    /// Looks at names and nodes.
    Names,
    /// Looks at the endpoints of many resolvers.
    Endpoints,
    /// Has the vantages that have troubles of their own, and little to look at.
    Troubles,
}

/// An incident that must be open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incident {
    /// Its key.
    pub key: String,
    /// The finding's word.
    pub kind: &'static str,
    /// What must be among its members.
    pub member: String,
    /// What a plan for it is about: a name, a service, a vantage.
    pub item: String,
    /// What is planned for that.
    pub plan: Planned,
}

/// What must have been planned, and must not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planned {
    /// Not looked at.
    Any,
    /// Nothing may be.
    Nothing,
    /// A change that has this in it.
    To(&'static str),
    /// No change: a person is told to switch to this resolver.
    Offer(&'static str),
}

impl Case {
    /// A case without anything yet.
    #[must_use]
    pub fn new(by: Watch, id: &'static str) -> Self {
        Self { id, by, faults: Vec::new(), before: Vec::new(), verdicts: Vec::new(), incident: None, also: Vec::new() }
    }

    /// With this fault.
    #[must_use]
    pub fn fault(mut self, fault: Fault) -> Self {
        self.faults.push(fault);
        self
    }

    /// With this fault, from the start.
    #[must_use]
    pub fn before(mut self, fault: Fault) -> Self {
        self.before.push(fault);
        self
    }

    /// An answer's verdict.
    #[must_use]
    pub fn answer(self, place: Place, name: &str, resolver: &'static str, verdict: &'static str) -> Self {
        self.wanted("answer", name, Some(resolver), Some(place), verdict)
    }

    /// The verdict on a canary's or a node's address.
    #[must_use]
    pub fn address(self, place: Place, subject: &str, verdict: &'static str) -> Self {
        self.wanted("address", subject, None, Some(place), verdict)
    }

    /// A node's verdict.
    #[must_use]
    pub fn node(self, name: &str, verdict: &'static str) -> Self {
        self.wanted("node", name, None, None, verdict)
    }

    /// A vantage's verdict.
    #[must_use]
    pub fn vantage(self, place: Place, verdict: &'static str) -> Self {
        self.wanted("vantage", place.name, None, Some(place), verdict)
    }

    /// An endpoint's verdict at each of these places.
    #[must_use]
    pub fn endpoint(self, places: &[Place], resolver: &str, verdict: &'static str) -> Self {
        places.iter().fold(self, |case, place| case.wanted("endpoint", resolver, None, Some(*place), verdict))
    }

    /// An open incident.
    #[must_use]
    pub fn incident(mut self, key: impl Into<String>, kind: &'static str, member: &str, plan: Planned) -> Self {
        let (member, item) = (member.to_owned(), member.to_owned());
        self.incident = Some(Incident { key: key.into(), kind, member, item, plan });
        self
    }

    /// An open incident of a service: its member is the host name, and a plan is about the service.
    #[must_use]
    pub fn service(self, name: &str, kind: &'static str, plan: Planned) -> Self {
        let mut case = self.incident(format!("service/{name}"), kind, name, plan);
        if let Some(incident) = &mut case.incident {
            incident.member = host(name);
        }
        case
    }

    /// An incident more, that is not looked at.
    #[must_use]
    pub fn also(mut self, key: impl Into<String>) -> Self {
        self.also.push(key.into());
        self
    }

    /// One verdict more.
    #[must_use]
    pub fn wanted(
        mut self,
        kind: &'static str,
        subject: &str,
        resolver: Option<&'static str>,
        place: Option<Place>,
        verdict: &'static str,
    ) -> Self {
        let vantage = place.map(|place| place.name);
        self.verdicts.push(Wanted { kind, subject: subject.to_owned(), resolver, vantage, verdict });
        self
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.subject)?;
        if let Some(resolver) = self.resolver {
            write!(f, " by {resolver}")?;
        }
        if let Some(vantage) = self.vantage {
            write!(f, " at {vantage}")?;
        }
        Ok(())
    }
}
