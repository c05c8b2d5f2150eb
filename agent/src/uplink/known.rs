//! Where the coordinators were found, kept on disk.
//!
//! A place whose DNS is broken is just the one we want to hear from, also after a restart. So the
//! last addresses at which a coordinator proved itself are tried when its name gives nothing that
//! works. The certificate is checked there as everywhere.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::spool::disk::{read_checked, write_checked};

/// Name of the file in the state folder.
const FILE: &str = "coordinators";

/// Addresses kept of one coordinator, the latest first.
const ADDRESSES_MAX: usize = 4;

/// Coordinators kept: what an owner's list held before it was changed falls out some day.
const NAMES_MAX: usize = 16;

/// The addresses; shared between sessions.
#[derive(Debug, Clone, Default)]
pub struct Known {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    path: Option<PathBuf>,
    good: BTreeMap<String, Vec<SocketAddr>>,
}

impl Known {
    /// What the state folder holds. A file that cannot be read is left out with a warning.
    #[must_use]
    pub fn open(state: &std::path::Path) -> Self {
        let path = state.join(FILE);
        let read = read_checked(&path).map_err(|error| error.to_string());
        let good = read.and_then(|bytes| match bytes {
            None => Ok(BTreeMap::new()),
            Some(bytes) => serde_json::from_slice(&bytes).map_err(|error| error.to_string()),
        });
        let good = good.unwrap_or_else(|error| {
            tracing::warn!(file = %path.display(), %error, "the coordinators' last addresses cannot be read and are left out");
            BTreeMap::new()
        });
        Self { inner: Arc::new(Mutex::new(Inner { path: Some(path), good })) }
    }

    /// Last good addresses of a coordinator (as `HOST:PORT`), the latest first.
    #[must_use]
    pub fn of(&self, coordinator: &str) -> Vec<SocketAddr> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.good.get(coordinator).cloned().unwrap_or_default()
    }

    /// The coordinator proved itself at this address. Written only when that is news.
    pub fn proved(&self, coordinator: &str, address: SocketAddr) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.good.get(coordinator).and_then(|addresses| addresses.first()) == Some(&address) {
            return;
        }
        if !inner.good.contains_key(coordinator) {
            while inner.good.len() >= NAMES_MAX {
                inner.good.pop_first();
            }
        }
        let addresses = inner.good.entry(coordinator.to_owned()).or_default();
        addresses.retain(|known| *known != address);
        addresses.insert(0, address);
        addresses.truncate(ADDRESSES_MAX);
        let Some(path) = &inner.path else { return };
        let written = serde_json::to_vec(&inner.good)
            .map_err(std::io::Error::other)
            .and_then(|bytes| write_checked(path, &bytes));
        if let Err(error) = written {
            tracing::warn!(file = %path.display(), %error, "the coordinator's address is not kept on disk; after a restart without DNS it would be missing");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_address_comes_first_and_survives_a_restart() {
        let state = tempfile::tempdir().unwrap();
        let known = Known::open(state.path());
        let address = |last: u8| SocketAddr::from(([203, 0, 113, last], 8443));
        for last in [1, 2, 3, 4, 5, 2] {
            known.proved("c:8443", address(last));
        }
        let again = Known::open(state.path());
        assert_eq!(again.of("c:8443"), [2, 5, 4, 3].map(address));
        assert!(again.of("other:8443").is_empty());
    }

    #[test]
    fn a_broken_file_is_left_out() {
        let state = tempfile::tempdir().unwrap();
        std::fs::write(state.path().join(FILE), "rubbish").unwrap();
        assert!(Known::open(state.path()).of("c:8443").is_empty());
    }
}
