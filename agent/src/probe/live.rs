//! The live resolver: what clients at this place use.

mod line;

use std::collections::BTreeSet;
use std::fs::Metadata;
use std::io::Read as _;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use self::line::Line;
use crate::local::LIVE_SERVERS_MAX;

/// Where the system keeps its resolver.
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Most bytes of it that are read.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Most lines with a name server that are looked at.
const LINES_MAX: usize = 16;

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
    stamp: Option<Stamp>,
    lines: Vec<Line>,
    /// That it cannot be read was said: once, and not with each question.
    complained: bool,
    /// Lines that were said to give no server, by their place.
    quoted: BTreeSet<usize>,
}

/// What tells one state of a file from the next: time of the last change in seconds and nanoseconds, which
/// no tool sets back, and because two changes may share it, size and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    changed: (i64, i64),
    bytes: u64,
    inode: u64,
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
        Self::System(SystemFile::new(path))
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
    fn new(path: PathBuf) -> Self {
        Self { path, held: Mutex::default() }
    }

    fn servers(&self) -> Vec<SocketAddr> {
        let stamp = std::fs::metadata(&self.path).map(|metadata| Stamp::of(&metadata)).ok();
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if stamp.is_none() || held.stamp != stamp {
            held.stamp = stamp;
            held.quoted.clear();
            match self.read() {
                Ok(lines) => (held.lines, held.complained) = (lines, false),
                Err(error) => {
                    held.lines.clear();
                    if !std::mem::replace(&mut held.complained, true) {
                        tracing::warn!(file = %self.path.display(), %error, "cannot read the system's resolver; set live_resolver");
                    }
                }
            }
        }
        let Held { lines, quoted, .. } = &mut *held;
        let mut servers = Vec::new();
        // Interfaces come and go while the file stays.
        for (number, line) in lines.iter().enumerate() {
            match line.server() {
                Ok(server) => {
                    quoted.remove(&number);
                    servers.push(server);
                }
                Err(skipped) if quoted.insert(number) => {
                    tracing::warn!(file = %self.path.display(), "{skipped}; the other lines stay in use");
                }
                Err(_) => {}
            }
        }
        servers.truncate(LIVE_SERVERS_MAX);
        servers
    }

    fn read(&self) -> std::io::Result<Vec<Line>> {
        let mut text = Vec::new();
        std::fs::File::open(&self.path)?.take(FILE_BYTES_MAX).read_to_end(&mut text)?;
        // Lines it does not know, and such as are no text, are no reason to lose the servers.
        Ok(String::from_utf8_lossy(&text).lines().filter_map(Line::read).take(LINES_MAX).collect())
    }
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self { changed: (metadata.ctime(), metadata.ctime_nsec()), bytes: metadata.len(), inode: metadata.ino() }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::dial::Dialer;
    use crate::netns::{at, inside, sh};

    fn given(path: &Path, text: &str) -> Vec<String> {
        std::fs::write(path, text).unwrap();
        SystemFile::new(path.to_owned()).servers().iter().map(SocketAddr::to_string).collect()
    }

    #[test]
    fn b44_a_name_server_with_a_scope_does_not_cost_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("resolv.conf");
        let others = |middle: &str| format!("nameserver 203.0.113.53\nnameserver {middle}\nnameserver 2001:db8::53\n");
        let three = ["203.0.113.53:53", "[fe80::1%1]:53", "[2001:db8::53]:53"];
        assert_eq!(given(&path, &others("fe80::1%lo")), three);
        assert_eq!(given(&path, &others("fe80::1%1")), three);
        for skipped in ["fe80::1%no-such-if0", "fe80::1%999999", "fe80::1", "foo", "", "\u{fffd}"] {
            assert_eq!(given(&path, &others(skipped)), [three[0], three[2]], "{skipped}");
        }
        assert_eq!(given(&path, "options edns0 what-is-this\nsearch x\nnameserver 10.0.0.1"), ["10.0.0.1:53"]);
        assert!(given(&path, "").is_empty());
        let mut junk = b"\xff\xfe\0nameserver\n".to_vec();
        junk.extend(b"nameserver 203.0.113.53\n");
        std::fs::write(&path, junk).unwrap();
        assert_eq!(SystemFile::new(path).servers(), [three[0].parse().unwrap()]);
    }

    #[test]
    fn b44_the_skipped_lines_are_said_once_and_take_no_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("resolv.conf");
        std::fs::write(
            &path,
            "nameserver foo\nnameserver bar\nnameserver ::1\nnameserver ::2\nnameserver ::3\nnameserver ::4\n",
        )
        .unwrap();
        let file = SystemFile::new(path);
        assert_eq!(file.servers().len(), LIVE_SERVERS_MAX);
        assert_eq!(file.held.lock().unwrap().quoted, BTreeSet::from([0, 1]));
        assert_eq!(file.servers().len(), LIVE_SERVERS_MAX);
    }

    #[test]
    fn the_systems_servers_are_read_again_when_the_file_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("resolv.conf");
        let file = SystemFile::new(path.clone());
        assert_eq!(file.servers(), []);
        assert!(file.held.lock().unwrap().complained);
        std::fs::write(&path, "nameserver 10.0.0.1\nnameserver ::1\n").unwrap();
        assert_eq!(file.servers(), ["10.0.0.1:53".parse().unwrap(), "[::1]:53".parse().unwrap()]);
        assert!(!file.held.lock().unwrap().complained, "the next time it is said again");
        // As DHCP clients do it: another file of the same size takes its place, and its old time with it.
        let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
        let other = folder.path().join("other");
        std::fs::write(&other, "nameserver 10.0.0.2\nnameserver ::2\n").unwrap();
        std::fs::File::open(&other).unwrap().set_modified(modified).unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert_eq!(file.servers(), ["10.0.0.2:53".parse().unwrap(), "[::2]:53".parse().unwrap()]);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(file.servers(), []);
    }

    #[test]
    fn b44_a_link_local_server_is_asked_through_its_interface_as_soon_as_that_is_there() {
        if !inside(module_path!(), "b44_a_link_local_server_is_asked_through_its_interface_as_soon_as_that_is_there") {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("resolv.conf");
        std::fs::write(&path, "nameserver fe80::53%uplink\n").unwrap();
        let file = SystemFile::new(path);
        assert_eq!(file.servers(), []);
        // The other interface has a neighbour of that address too, who does not answer.
        sh("for one in other uplink; do
                ip netns add $one
                ip link add $one type veth peer name eth0 netns $one
                ip addr add fe80::2/64 dev $one nodad; ip link set $one up
                ip -n $one addr add fe80::53/64 dev eth0 nodad; ip -n $one link set eth0 up
            done");
        let server = at("uplink", || {
            let index = nix::net::if_::if_nametoindex("eth0").unwrap();
            let address = std::net::SocketAddrV6::new("fe80::53".parse().unwrap(), 53, 0, index);
            std::net::UdpSocket::bind(address).unwrap()
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let servers = file.servers();
            let [live] = servers.as_slice() else { panic!("{servers:?}") };
            let (socket, to) = Dialer::direct().datagrams_own(*live).unwrap();
            socket.send_to(b"question", to).await.unwrap();
            let mut room = [0; 16];
            let (length, from) = server.recv_from(&mut room).unwrap();
            server.send_to(&room[..length], from).unwrap();
            assert_eq!(socket.recv_from(&mut room).await.unwrap(), (length, *live));
        });
    }
}
