//! The live resolver: what clients at this place use.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use crate::local::LIVE_SERVERS_MAX;

/// Where the system keeps its resolver.
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// The servers of the live resolver, in the order clients try them.
#[derive(Debug)]
pub enum LiveServers {
    /// Given in the owner's file.
    Fixed(Vec<SocketAddr>),
    /// Those of the system, read again when the file changed: DHCP and VPNs rewrite it.
    System(SystemFile),
}

/// A resolv.conf and what it held when last read.
#[derive(Debug)]
pub struct SystemFile {
    path: PathBuf,
    held: Mutex<(Option<SystemTime>, Vec<SocketAddr>)>,
}

impl LiveServers {
    /// The owner's servers, or the system's when there are none.
    #[must_use]
    pub fn new(fixed: Vec<SocketAddr>) -> Self {
        match fixed.is_empty() {
            false => Self::Fixed(fixed),
            true => Self::System(SystemFile { path: RESOLV_CONF.into(), held: Mutex::default() }),
        }
    }

    /// The servers now; empty when none is configured.
    #[must_use]
    pub fn servers(&self) -> Vec<SocketAddr> {
        match self {
            Self::Fixed(servers) => servers.clone(),
            Self::System(file) => file.servers(),
        }
    }
}

impl SystemFile {
    fn servers(&self) -> Vec<SocketAddr> {
        let modified = std::fs::metadata(&self.path).and_then(|metadata| metadata.modified()).ok();
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if modified.is_none() || held.0 != modified {
            *held = (modified, self.read());
        }
        held.1.clone()
    }

    fn read(&self) -> Vec<SocketAddr> {
        let text = match std::fs::read(&self.path) {
            Ok(text) => text,
            Err(error) => {
                tracing::warn!(file = %self.path.display(), %error, "cannot read the system's resolver; set live_resolver");
                return Vec::new();
            }
        };
        // Lines it does not know are no reason to lose the servers.
        let (config, _) = resolv_conf::Config::parse_with_errors(&text);
        config
            .nameservers
            .iter()
            .take(LIVE_SERVERS_MAX)
            .map(|server| SocketAddr::new(IpAddr::from(server), 53))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_servers_are_read_again_when_the_file_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("resolv.conf");
        let file = SystemFile { path: path.clone(), held: Mutex::default() };
        assert_eq!(file.servers(), []);
        std::fs::write(&path, "options edns0 what-is-this\nnameserver 10.0.0.1\nnameserver ::1\n").unwrap();
        assert_eq!(file.servers(), ["10.0.0.1:53".parse().unwrap(), "[::1]:53".parse().unwrap()]);
        std::fs::write(&path, "nameserver 10.0.0.2\n").unwrap();
        let later = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_900_000_000);
        std::fs::File::open(&path).unwrap().set_modified(later).unwrap();
        assert_eq!(file.servers(), ["10.0.0.2:53".parse().unwrap()]);
    }
}
