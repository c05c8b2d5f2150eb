//! What is probed: a name server, a TLS server, a listener that accepts and closes, and everything that hangs. All of it
//! on the loopback interface of the bench's [`ground`](super::ground); nothing leaves the machine.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use socket2::{Domain, Socket, Type};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::authority::Authority;
use super::ground::{HERE, NETWORK, address};
use crate::lab::process::Process;
use crate::lab::programs;
use crate::lab::run_dir::{private, write_private};

/// Where the name server listens.
const DNS: Ipv4Addr = address(0, 99);
/// What the canaries' names have as their address, and where the TCP and TLS targets listen.
pub const WEB: Ipv4Addr = address(0, 80);
/// Zone of the names whose address answers; every name below it exists.
pub const ZONE: &str = "canary.test";
/// Zone of the names that have all of [`HUNG`] as their addresses.
pub const HUNG_ZONE: &str = "hung.test";
/// Name in the DoT and DoH server's certificate.
pub const DNS_NAME: &str = "dns.canary.test";
/// Addresses where a SYN stays without an answer.
pub const HUNG: [Ipv4Addr; 8] = addresses(0);
/// Zone of the names that have all of [`WIDE`] as their addresses.
pub const WIDE_ZONE: &str = "wide.test";
/// Addresses that accept and close, as many as an answer may have.
pub const WIDE: [Ipv4Addr; 16] = addresses(1);
/// Starting the name server.
const START_MAX: Duration = Duration::from_secs(10);
/// Connections that an accepting and silent listener holds open at most.
const HELD_MAX: usize = 20_000;

/// Addresses in a row, from 198.18.THIRD.101 on.
const fn addresses<const N: usize>(third: u8) -> [Ipv4Addr; N] {
    let mut all = [HERE; N];
    let mut at = 0;
    let mut last = 101;
    while at < N {
        all[at] = address(third, last);
        at += 1;
        last += 1;
    }
    all
}

/// A listener, and the connections that fill its queue.
type Full = (Socket, Vec<Socket>);

/// The targets of one sitting.
#[derive(Debug)]
pub struct Targets {
    /// Plain DNS, UDP and TCP.
    pub dns: SocketAddrV4,
    /// Plain DNS at port 53, for a peer that knows no other; none where that port may not be had.
    pub dns_53: Option<SocketAddrV4>,
    /// DNS over TLS.
    pub dot: SocketAddrV4,
    /// DNS over HTTPS, at `/dns-query`.
    pub doh: SocketAddrV4,
    /// Accepts and closes.
    pub tcp: SocketAddrV4,
    /// Port of [`WIDE`], which accept and close.
    pub wide_port: u16,
    /// Speaks TLS for every name of [`ZONE`], then waits for the other side to close.
    pub tls: SocketAddrV4,
    /// Port of [`HUNG`], where nothing answers a SYN.
    pub hung_port: u16,
    /// Takes datagrams and says nothing.
    pub silent_udp: SocketAddrV4,
    /// Accepts and says nothing: whoever waits for TLS here waits for ever.
    pub silent_tcp: SocketAddrV4,
    tasks: JoinSet<()>,
    _full: Vec<Full>,
    _silent: UdpSocket,
    _unbound: Process,
}

impl Targets {
    /// Starts them all.
    ///
    /// # Errors
    /// Unbound is not installed or does not start, or a port cannot be had.
    pub async fn start(directory: &Path, authority: &Authority) -> Result<Self> {
        let unbound = Ports::choose()?;
        let process = start_unbound(directory, authority, &unbound).await?;
        let mut tasks = JoinSet::new();
        let closing = TcpListener::bind(SocketAddrV4::new(WEB, 0)).await?;
        let speaking = TcpListener::bind(SocketAddrV4::new(WEB, 0)).await?;
        let holding = TcpListener::bind(SocketAddrV4::new(WEB, 0)).await?;
        let (tcp, tls, silent_tcp) = (v4(&closing)?, v4(&speaking)?, v4(&holding)?);
        tasks.spawn(accept_and_close(closing));
        let mut wide_port = 0;
        for address in WIDE {
            let listener = TcpListener::bind(SocketAddrV4::new(address, wide_port)).await?;
            wide_port = v4(&listener)?.port();
            tasks.spawn(accept_and_close(listener));
        }
        tasks.spawn(speak_tls(speaking, acceptor(authority)?));
        tasks.spawn(accept_and_hold(holding));
        let silent = UdpSocket::bind(SocketAddrV4::new(WEB, 0)).await?;
        let silent_udp = match silent.local_addr()? {
            SocketAddr::V4(address) => address,
            SocketAddr::V6(_) => anyhow::bail!("an IPv4 socket has an IPv6 address"),
        };
        let (full, hung_port) = full_listeners(&HUNG)?;
        Ok(Self {
            dns: SocketAddrV4::new(DNS, unbound.dns),
            dns_53: unbound.well_known.then_some(SocketAddrV4::new(DNS, 53)),
            dot: SocketAddrV4::new(DNS, unbound.dot),
            doh: SocketAddrV4::new(DNS, unbound.doh),
            tcp,
            wide_port,
            tls,
            hung_port,
            silent_udp,
            silent_tcp,
            tasks,
            _full: full,
            _silent: silent,
            _unbound: process,
        })
    }

    /// Every port of the targets: what the agent's owner allows.
    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        let addresses = [self.dns, self.dot, self.doh, self.tcp, self.tls, self.silent_udp, self.silent_tcp];
        addresses.iter().map(SocketAddrV4::port).chain([self.hung_port, self.wide_port]).collect()
    }

    /// The URL of DNS over HTTPS.
    #[must_use]
    pub fn doh_url(&self) -> String {
        format!("https://{DNS_NAME}:{}/dns-query", self.doh.port())
    }

    /// Ends what runs in this process.
    pub fn stop(&mut self) {
        self.tasks.abort_all();
    }
}

struct Ports {
    dns: u16,
    dot: u16,
    doh: u16,
    /// Whether port 53 may be had too.
    well_known: bool,
}

impl Ports {
    /// Three that are free now, for UDP and TCP.
    fn choose() -> Result<Self> {
        let mut held = Vec::new();
        let mut next = || -> Result<u16> {
            for _ in 0..50 {
                let tcp = std::net::TcpListener::bind(SocketAddrV4::new(DNS, 0))?;
                let port = tcp.local_addr()?.port();
                if let Ok(udp) = std::net::UdpSocket::bind(SocketAddrV4::new(DNS, port)) {
                    held.push((tcp, udp));
                    return Ok(port);
                }
            }
            anyhow::bail!("no port of {DNS} is free for UDP and TCP")
        };
        let well_known = SocketAddrV4::new(DNS, 53);
        let well_known =
            std::net::TcpListener::bind(well_known).is_ok() && std::net::UdpSocket::bind(well_known).is_ok();
        Ok(Self { dns: next()?, dot: next()?, doh: next()?, well_known })
    }
}

async fn start_unbound(directory: &Path, authority: &Authority, ports: &Ports) -> Result<Process> {
    let unbound = programs::find("unbound").context("unbound is not installed: ./x install unbound")?;
    let directory = directory.join("unbound");
    private(&directory)?;
    let (certificate, key) = authority.issue_for(&[DNS_NAME.to_owned()], &[DNS])?.write(&directory, "dns")?;
    let hung = redirect(HUNG_ZONE, &HUNG);
    let wide = redirect(WIDE_ZONE, &WIDE);
    let (folder, certificate, key) = (directory.display(), certificate.display(), key.display());
    let Ports { dns, dot, doh, well_known } = ports;
    let well_known = if *well_known { format!("    interface: {DNS}@53\n") } else { String::new() };
    let text = format!(
        r#"server:
    directory: "{folder}"
    pidfile: "{folder}/unbound.pid"
    username: ""
    chroot: ""
    use-syslog: no
    interface: {DNS}@{dns}
    interface: {DNS}@{dot}
    interface: {DNS}@{doh}
{well_known}    port: {dns}
    tls-port: {dot}
    https-port: {doh}
    tls-service-pem: "{certificate}"
    tls-service-key: "{key}"
    do-ip6: no
    num-threads: 1
    incoming-num-tcp: 200
    so-rcvbuf: 4m
    access-control: {NETWORK} allow
    module-config: "iterator"
    minimal-responses: yes
    local-zone: "{ZONE}." redirect
    local-data: "{ZONE}. 3600 IN A {WEB}"
{hung}{wide}remote-control:
    control-enable: no
"#
    );
    let configuration = directory.join("unbound.conf");
    write_private(&configuration, &text)?;
    let mut command = Command::new(unbound);
    command.arg("-d").arg("-c").arg(&configuration);
    let mut process = Process::start("unbound", &directory.join("log"), command)?;
    let server = SocketAddrV4::new(DNS, *dot);
    process.until("listening", START_MAX, async || TcpStream::connect(server).await.is_ok()).await?;
    Ok(process)
}

/// Lines that give every name of a zone these addresses.
fn redirect(zone: &str, addresses: &[Ipv4Addr]) -> String {
    let data = addresses.iter().map(|address| format!("    local-data: \"{zone}. 3600 IN A {address}\"\n"));
    [format!("    local-zone: \"{zone}.\" redirect\n")].into_iter().chain(data).collect()
}

fn v4(listener: &TcpListener) -> Result<SocketAddrV4> {
    match listener.local_addr()? {
        SocketAddr::V4(address) => Ok(address),
        SocketAddr::V6(_) => anyhow::bail!("an IPv4 listener has an IPv6 address"),
    }
}

async fn accept_and_close(listener: TcpListener) {
    loop {
        if listener.accept().await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

async fn accept_and_hold(listener: TcpListener) {
    let mut held = std::collections::VecDeque::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => held.push_back(stream),
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
        if held.len() > HELD_MAX {
            held.pop_front();
        }
        // Whoever gave up is let go, or the bench itself would run out of descriptors.
        held.retain(|stream| {
            let mut byte = [0; 1];
            !matches!(stream.try_read(&mut byte), Ok(0))
                && !matches!(stream.try_read(&mut byte), Err(e) if e.kind() != std::io::ErrorKind::WouldBlock)
        });
    }
}

async fn speak_tls(listener: TcpListener, acceptor: TlsAcceptor) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let acceptor = acceptor.clone();
                tokio::spawn(tokio::time::timeout(Duration::from_secs(10), async move {
                    if let Ok(mut stream) = acceptor.accept(stream).await {
                        let mut sink = [0; 64];
                        while stream.read(&mut sink).await.is_ok_and(|length| length > 0) {}
                    }
                }));
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

fn acceptor(authority: &Authority) -> Result<TlsAcceptor> {
    let (chain, key) = authority.issue(&[format!("*.{ZONE}")])?.into_tls()?;
    let tls = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    Ok(TlsAcceptor::from(Arc::new(tls)))
}

/// Listeners at these addresses whose queue is full, so that the kernel drops every further SYN: the unroutable case, without
/// a packet leaving the machine.
fn full_listeners(addresses: &[Ipv4Addr]) -> Result<(Vec<Full>, u16)> {
    let mut port = 0;
    let mut all = Vec::new();
    for &address in addresses {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        listener.bind(&SocketAddr::V4(SocketAddrV4::new(address, port)).into())?;
        listener.listen(0)?;
        let at = listener.local_addr()?;
        port = at.as_socket().map_or(port, |socket| socket.port());
        let mut fillers = Vec::new();
        for _ in 0..4 {
            let filler = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            filler.set_nonblocking(true)?;
            // In progress, and so it stays.
            let _ = filler.connect(&at);
            fillers.push(filler);
        }
        all.push((listener, fillers));
    }
    Ok((all, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_listener_answers_no_syn() {
        // Outside the bench's network.
        let local = [101, 102].map(|last| Ipv4Addr::new(127, 0, 0, last));
        let (_full, port) = full_listeners(&local).unwrap();
        for address in local {
            let connecting = TcpStream::connect(SocketAddrV4::new(address, port));
            assert!(tokio::time::timeout(Duration::from_millis(300), connecting).await.is_err());
        }
    }
}
