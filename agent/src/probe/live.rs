//! The live resolver: what clients at this place use.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use resolv_conf::ScopedIp;

use crate::local::LIVE_SERVERS_MAX;

/// The port of DNS; resolv.conf(5) knows no other.
const DNS: u16 = 53;

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
    held: Mutex<Held>,
}

/// What the file held when last read.
#[derive(Debug, Default)]
struct Held {
    modified: Option<SystemTime>,
    servers: Vec<SocketAddr>,
    /// That it cannot be read was said: once, and not with each question.
    complained: bool,
}

impl LiveServers {
    /// The owner's servers, or the system's when there are none.
    #[must_use]
    pub fn new(fixed: Vec<SocketAddr>) -> Self {
        match fixed.is_empty() {
            false => Self::Fixed(fixed),
            true => Self::of_file(RESOLV_CONF.into()),
        }
    }

    /// The servers of a file in the form of resolv.conf(5).
    #[must_use]
    pub fn of_file(path: PathBuf) -> Self {
        Self::System(SystemFile { path, held: Mutex::default() })
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
        if modified.is_none() || held.modified != modified {
            let servers = self.read();
            if let Err(error) = &servers
                && !held.complained
            {
                tracing::warn!(file = %self.path.display(), %error, "cannot read the system's resolver; set live_resolver");
            }
            let complained = servers.is_err();
            *held = Held { modified, servers: servers.unwrap_or_default(), complained };
        }
        held.servers.clone()
    }

    fn read(&self) -> std::io::Result<Vec<SocketAddr>> {
        let text = std::fs::read(&self.path)?;
        // Lines it does not know are no reason to lose the servers.
        let (config, _) = resolv_conf::Config::parse_with_errors(&text);
        let servers = config.nameservers.iter().take(LIVE_SERVERS_MAX);
        Ok(servers.map(server).collect())
    }
}

/// A name server of the file. A link-local one, as router advertisements give it, names its interface.
fn server(server: &ScopedIp) -> SocketAddr {
    match server {
        ScopedIp::V6(address, Some(scope)) => SocketAddrV6::new(*address, DNS, 0, interface(scope)).into(),
        ScopedIp::V4(_) | ScopedIp::V6(_, None) => SocketAddr::new(IpAddr::from(server), DNS),
    }
}

/// Number of an interface; 0 when there is none of that name.
fn interface(name: &str) -> u32 {
    let kernels = || std::fs::read_to_string(Path::new("/sys/class/net").join(name).join("ifindex")).ok();
    name.parse().ok().or_else(|| kernels()?.trim().parse().ok()).unwrap_or(0)
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
        assert!(file.held.lock().unwrap().complained);
        std::fs::write(&path, "options edns0 what-is-this\nnameserver 10.0.0.1\nnameserver ::1\n").unwrap();
        assert_eq!(file.servers(), ["10.0.0.1:53".parse().unwrap(), "[::1]:53".parse().unwrap()]);
        assert!(!file.held.lock().unwrap().complained, "the next time it is said again");
        std::fs::write(&path, "nameserver 10.0.0.2\nnameserver fe80::1%lo\n").unwrap();
        let later = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_900_000_000);
        std::fs::File::open(&path).unwrap().set_modified(later).unwrap();
        let scoped = SocketAddrV6::new("fe80::1".parse().unwrap(), 53, 0, 1);
        assert_eq!(file.servers(), ["10.0.0.2:53".parse().unwrap(), scoped.into()]);
    }
}
