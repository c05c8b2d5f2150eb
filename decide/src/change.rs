//! A change of DNS as a value: what it expects to find, what it sets, and its undo.

use serde::{Deserialize, Serialize};

use crate::names::{Addresses, DomainName};

/// One change. It is complete: a driver has nothing left to choose. It cannot express an empty
/// answer, the deletion of a record, or a downgrade.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Change {
    /// Serve `addresses` for `name` on a branch's own resolver. Expects no local data for the name.
    Pin {
        /// Pinned name.
        name: DomainName,
        /// What it shall resolve to.
        addresses: Addresses,
        /// TTL served, in seconds.
        ttl_s: u32,
    },
    /// Take a pin away so that the native answer comes back.
    Unpin {
        /// Pinned name.
        name: DomainName,
        /// What the pin is expected to hold.
        expects: Addresses,
        /// TTL it was served with, in seconds (for the undo).
        ttl_s: u32,
    },
    /// Replace the address records of a name of ours at its DNS provider.
    Repoint {
        /// Host name.
        name: DomainName,
        /// The whole record set it expects to find.
        expects: Addresses,
        /// The whole record set it leaves.
        sets: Addresses,
        /// TTL of the records, in seconds.
        ttl_s: u32,
    },
}

impl Change {
    /// The name it changes.
    #[must_use]
    pub fn name(&self) -> &DomainName {
        match self {
            Self::Pin { name, .. } | Self::Unpin { name, .. } | Self::Repoint { name, .. } => name,
        }
    }

    /// What must be there before; `None`: nothing.
    #[must_use]
    pub fn expects(&self) -> Option<&Addresses> {
        match self {
            Self::Pin { .. } => None,
            Self::Unpin { expects, .. } | Self::Repoint { expects, .. } => Some(expects),
        }
    }

    /// What is there after; `None`: nothing (the native answer).
    #[must_use]
    pub fn sets(&self) -> Option<&Addresses> {
        match self {
            Self::Pin { addresses, .. } => Some(addresses),
            Self::Unpin { .. } => None,
            Self::Repoint { sets, .. } => Some(sets),
        }
    }

    /// The change that takes this one back.
    #[must_use]
    pub fn undo(&self) -> Change {
        match self.clone() {
            Self::Pin { name, addresses, ttl_s } => Self::Unpin { name, expects: addresses, ttl_s },
            Self::Unpin { name, expects, ttl_s } => Self::Pin { name, addresses: expects, ttl_s },
            Self::Repoint { name, expects, sets, ttl_s } => Self::Repoint { name, expects: sets, sets: expects, ttl_s },
        }
    }
}

/// How what was found compares with a change: the compare of compare-and-set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// As the change expects: it may be applied.
    AsExpected,
    /// As the change would leave it: nothing to do (perhaps our own earlier, uncertain write).
    AlreadySet,
    /// Somebody else's: yield.
    Foreign,
}

impl Change {
    /// Compares what a driver found for the name (`None`: nothing) with this change.
    #[must_use]
    pub fn standing(&self, found: Option<&Addresses>) -> Standing {
        if found == self.sets() {
            Standing::AlreadySet
        } else if found == self.expects() {
            Standing::AsExpected
        } else {
            Standing::Foreign
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(texts: &[&str]) -> Addresses {
        Addresses::new(texts.iter().map(|t| t.parse().unwrap())).unwrap()
    }

    fn changes() -> Vec<Change> {
        let name: DomainName = "fi.example.net".parse().unwrap();
        vec![
            Change::Pin { name: name.clone(), addresses: set(&["104.26.4.10"]), ttl_s: 30 },
            Change::Unpin { name: name.clone(), expects: set(&["104.26.4.10"]), ttl_s: 30 },
            Change::Repoint { name, expects: set(&["95.216.10.10"]), sets: set(&["49.12.20.20"]), ttl_s: 5 },
        ]
    }

    #[test]
    fn undoing_an_undo_is_the_change_itself() {
        for change in changes() {
            assert_eq!(change.undo().undo(), change);
            assert_eq!(change.undo().expects(), change.sets());
            assert_eq!(change.undo().sets(), change.expects());
        }
    }

    #[test]
    fn what_is_found_decides_whether_to_write() {
        let foreign = set(&["1.2.3.4", "5.6.7.8"]);
        for change in changes() {
            assert_eq!(change.standing(change.expects()), Standing::AsExpected);
            assert_eq!(change.standing(change.sets()), Standing::AlreadySet);
            assert_eq!(change.standing(Some(&foreign)), Standing::Foreign);
        }
    }

    #[test]
    fn a_stored_change_reads_back_and_an_empty_one_is_refused() {
        for change in changes() {
            let json = serde_json::to_string(&change).unwrap();
            assert_eq!(serde_json::from_str::<Change>(&json).unwrap(), change);
        }
        let empty = r#"{"kind":"repoint","name":"fi.example.net","expects":["1.1.1.1"],"sets":[],"ttl_s":5}"#;
        assert!(serde_json::from_str::<Change>(empty).unwrap_err().to_string().contains("cannot be empty"));
    }
}
