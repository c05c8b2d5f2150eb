//! The map of a loopback lab: which local socket stands for which public address.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use parallax_decide::observation::Family;

/// A file that maps public addresses to local sockets, read again when it changed.
#[derive(Debug)]
pub(super) struct LabMap {
    file: PathBuf,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    stamp: Option<(SystemTime, u64)>,
    map: BTreeMap<SocketAddr, SocketAddr>,
}

impl LabMap {
    pub(super) fn new(file: PathBuf) -> Self {
        Self { file, held: Mutex::default() }
    }

    /// The local socket of a public address; `None` for one not in the map.
    pub(super) fn find(&self, to: SocketAddr) -> Option<SocketAddr> {
        self.read(|map| map.get(&to).copied())
    }

    /// A family exists in the lab when the map holds an address of it.
    pub(super) fn holds(&self, family: Family) -> bool {
        self.read(|map| map.keys().any(|key| Family::of(key.ip()) == family))
    }

    fn read<T>(&self, look: impl FnOnce(&BTreeMap<SocketAddr, SocketAddr>) -> T) -> T {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = self.refresh(&mut held) {
            tracing::error!(file = %self.file.display(), %error, "cannot read the lab map; the last one stays in use");
        }
        look(&held.map)
    }

    fn refresh(&self, held: &mut Held) -> io::Result<()> {
        let metadata = std::fs::metadata(&self.file)?;
        let stamp = (metadata.modified()?, metadata.len());
        if held.stamp != Some(stamp) {
            held.map = serde_json::from_slice(&std::fs::read(&self.file)?)?;
            held.stamp = Some(stamp);
        }
        Ok(())
    }
}
