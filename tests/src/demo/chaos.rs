//! Killing our programs in mid-story: power cuts at named moments, for the end-to-end tests.

use std::fmt;
use std::str::FromStr;

use crate::lab::atlas::{Place, VANTAGES};

/// Named moments of the stories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Right after the branch was handed the pair.
    PairHanded,
    /// The verdict is there, the pin perhaps not yet.
    Unroutable,
    /// All names are pinned and proven.
    Pinned,
    /// The native answers are back.
    NativeBack,
    /// Right after the node went dark.
    NodeDark,
    /// The verdict is there, the record perhaps not yet changed.
    NodeDead,
    /// The record has moved.
    Repointed,
    /// The node is back.
    NodeBack,
}

const MOMENTS: [(&str, Moment); 8] = [
    ("pair-handed", Moment::PairHanded),
    ("unroutable", Moment::Unroutable),
    ("pinned", Moment::Pinned),
    ("native-back", Moment::NativeBack),
    ("node-dark", Moment::NodeDark),
    ("node-dead", Moment::NodeDead),
    ("repointed", Moment::Repointed),
    ("node-back", Moment::NodeBack),
];

/// Who is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Victim {
    /// The coordinator.
    Coordinator,
    /// Of two coordinators the one that holds the lease.
    Holder(Stroke),
    /// The primary of the database; its standby becomes the primary.
    Primary,
    /// The agent of a vantage.
    Agent(Place),
}

/// How the holder of the lease is struck. Another takes over; then it comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stroke {
    /// kill -9, and started again.
    Killed,
    /// SIGSTOP, and SIGCONT: it wakes in the belief that nothing happened.
    Frozen,
    /// Its way to the database falls silent, and is there again.
    Cut,
}

const STROKES: [(&str, Stroke); 3] =
    [("holder", Stroke::Killed), ("holder-frozen", Stroke::Frozen), ("holder-cut", Stroke::Cut)];

impl fmt::Display for Victim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Coordinator => f.write_str("coordinator"),
            Self::Primary => f.write_str("database's primary"),
            Self::Holder(Stroke::Killed) => f.write_str("holder of the lease"),
            Self::Holder(Stroke::Frozen) => f.write_str("holder of the lease (frozen)"),
            Self::Holder(Stroke::Cut) => f.write_str("holder of the lease (cut off from the database)"),
            Self::Agent(place) => write!(f, "agent {}", place.name()),
        }
    }
}

/// One kill -9 with the restart that follows. Written `VICTIM@MOMENT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blow {
    /// When.
    pub moment: Moment,
    /// Who.
    pub victim: Victim,
}

impl FromStr for Blow {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (victim, moment) = text.split_once('@').ok_or("write it VICTIM@MOMENT")?;
        let known = || MOMENTS.map(|(word, _)| word).join(", ");
        let moment = MOMENTS.iter().find(|(word, _)| *word == moment).map(|(_, m)| *m);
        let moment = moment.ok_or_else(|| format!("the moments are {}", known()))?;
        let place = VANTAGES.into_iter().find(|p| p.name() == victim);
        let stroke = STROKES.iter().find(|(word, _)| *word == victim).map(|(_, stroke)| *stroke);
        let victim = match (victim, stroke, place) {
            ("coordinator", ..) => Victim::Coordinator,
            ("primary", ..) => Victim::Primary,
            (_, Some(stroke), _) => Victim::Holder(stroke),
            (_, None, Some(place)) => Victim::Agent(place),
            (_, None, None) => {
                let strokes = STROKES.map(|(word, _)| word).join(", ");
                return Err(format!("the victim is `coordinator`, `primary`, {strokes} or a vantage"));
            }
        };
        Ok(Self { moment, victim })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blows_are_written_victim_at_moment() {
        let blow: Blow = "wan-gw@node-dark".parse().unwrap();
        assert_eq!(blow, Blow { moment: Moment::NodeDark, victim: Victim::Agent(Place::Wan) });
        let blow: Blow = "holder-frozen@pinned".parse().unwrap();
        assert_eq!(blow, Blow { moment: Moment::Pinned, victim: Victim::Holder(Stroke::Frozen) });
        assert!("hq@node-dark".parse::<Blow>().is_err());
        assert!("coordinator@teatime".parse::<Blow>().unwrap_err().contains("node-dead"));
    }
}
