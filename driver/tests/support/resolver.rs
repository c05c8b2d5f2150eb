//! An Unbound with a control socket, as a branch has it, and a client's question to it.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use domain::base::iana::{Class, Rcode};
use domain::base::{Message, MessageBuilder, Name, Rtype};
use domain::rdata::{A, Aaaa};
use parallax_driver::unbound::{Unbound, UnboundConfig};
use tempfile::TempDir;
use tokio::net::UdpSocket;
use tokio::time::timeout;

use super::{PATIENT, Process, free_port, program, wait_until};

/// A running resolver. It ends with this value.
pub(crate) struct Resolver {
    _process: Process,
    folder: TempDir,
    address: SocketAddr,
}

impl Resolver {
    /// Starts one that asks `upstream` for example.net, or says loudly why not.
    pub(crate) async fn start(upstream: Option<SocketAddr>) -> Option<Self> {
        let binary = program("unbound", "unbound")?;
        let mut log = String::new();
        for _ in 0..3 {
            let folder = TempDir::new().unwrap();
            let port = free_port();
            configure(folder.path(), port, upstream);
            let messages = fs::File::create(folder.path().join("log")).unwrap();
            let child = Command::new(&binary)
                .args(["-d", "-c"])
                .arg(folder.path().join("unbound.conf"))
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(messages)
                .spawn();
            let mut process = Process(child.unwrap());
            let socket = folder.path().join("control");
            // The socket exists a moment before anybody serves it: ask.
            if wait_until(&mut process, async || BlockingStream::connect(&socket).is_ok()).await {
                return Some(Self { _process: process, folder, address: SocketAddr::from(([127, 0, 0, 1], port)) });
            }
            log = fs::read_to_string(folder.path().join("log")).unwrap_or_default();
        }
        panic!("unbound does not start; its last log:\n{log}");
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("control")
    }

    /// A driver for it.
    pub(crate) fn driver(&self) -> Unbound {
        driver(&self.socket())
    }

    /// What somebody else does with unbound-control.
    pub(crate) fn control(&self, command: &str) -> String {
        let mut stream = BlockingStream::connect(self.socket()).unwrap();
        stream.set_read_timeout(Some(PATIENT)).unwrap();
        stream.write_all(format!("UBCT1 {command}\n").as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    }

    /// All local data and zones, in order.
    pub(crate) fn state(&self) -> Vec<String> {
        let both = self.control("list_local_data") + &self.control("list_local_zones");
        let mut lines: Vec<String> = both.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
        lines.sort();
        lines
    }

    /// What a client of this resolver is answered.
    pub(crate) async fn ask(&self, host: &str, rtype: Rtype) -> (Rcode, Vec<IpAddr>) {
        let mut question = MessageBuilder::new_vec().question();
        question.header_mut().set_random_id();
        question.header_mut().set_rd(true);
        question.push((Name::vec_from_str(host).unwrap(), rtype, Class::IN)).unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.send_to(&question.finish(), self.address).await.unwrap();
        let mut buffer = vec![0; 4096];
        let length = timeout(PATIENT, socket.recv(&mut buffer)).await.unwrap().unwrap();
        buffer.truncate(length);
        let reply = Message::from_octets(buffer).unwrap();
        let records = reply.answer().unwrap().map(|record| record.unwrap());
        let mut addresses: Vec<IpAddr> = records
            .filter_map(|record| {
                let v4 = record.to_record::<A>().unwrap().map(|a| a.data().addr().into());
                v4.or_else(|| record.to_record::<Aaaa>().unwrap().map(|aaaa| aaaa.data().addr().into()))
            })
            .collect();
        addresses.sort();
        (reply.header().rcode(), addresses)
    }
}

pub(crate) fn driver(socket: &Path) -> Unbound {
    Unbound::new(UnboundConfig { control: socket.to_owned(), timeout: PATIENT })
}

fn configure(folder: &Path, port: u16, upstream: Option<SocketAddr>) {
    let here = folder.display();
    let stub = upstream.map_or(String::new(), |upstream| {
        format!("stub-zone:\n  name: example.net\n  stub-addr: {}@{}\n", upstream.ip(), upstream.port())
    });
    let conf = format!(
        "server:
  username: \"\"
  chroot: \"\"
  directory: \"{here}\"
  pidfile: \"{here}/pid\"
  use-syslog: no
  do-ip6: no
  do-not-query-localhost: no
  module-config: \"iterator\"
  num-threads: 2
  interface: 127.0.0.1@{port}
  local-zone: \"operators.example.\" static
  local-data: \"known.operators.example. A 95.216.30.1\"
  local-data: \"text.example. TXT 'a note'\"
  local-data: \"private.example. A 10.0.0.1\"
  local-zone: \"leaky.example.\" typetransparent
remote-control:
  control-enable: yes
  control-interface: \"{here}/control\"
  control-use-cert: no
{stub}"
    );
    fs::write(folder.join("unbound.conf"), conf).unwrap();
}
