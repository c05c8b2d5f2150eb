//! The programs the agent is compared with, as Debian ships them, and the least the kernel itself charges.
//!
//! Each is started with a configuration of ours on a port of [`HERE`], driven at a concurrency of sixteen over connections
//! that stay open where its protocol allows it, and only its own CPU time counts.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::time::{ClockId, clock_gettime};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::task::JoinSet;

use super::ground::HERE;
use super::proc;
use super::targets::{Targets, WEB, ZONE};
use crate::lab::process::Process;
use crate::lab::programs;
use crate::lab::run_dir::{private, write_private};

/// Probes of one run.
pub const PROBES: usize = 3000;
/// Probes before the first run.
const WARM_UP: usize = 300;
/// Probes at once.
const AT_ONCE: usize = 16;
/// Starting a peer.
const START_MAX: Duration = Duration::from_secs(10);
/// Longest answer of a peer, bytes.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// blackbox_exporter.
#[derive(Debug)]
pub struct Blackbox {
    process: Process,
    address: SocketAddrV4,
}

/// What blackbox_exporter probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Module {
    /// TCP connect.
    Tcp,
    /// TCP, then TLS.
    Tls,
    /// A over UDP.
    Dns,
    /// AAAA over UDP.
    DnsV6,
    /// A over TCP.
    DnsTcp,
    /// A over TLS.
    DnsTls,
    /// HTTPS GET.
    Https,
    /// TCP connect with ten seconds of patience.
    Hung,
}

impl Module {
    fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Dns => "dns",
            Self::DnsV6 => "dns6",
            Self::DnsTcp => "dnstcp",
            Self::DnsTls => "dnstls",
            Self::Https => "https",
            Self::Hung => "hung",
        }
    }
}

fn modules() -> String {
    let dns = |transport: &str, kind: &str, more: &str| {
        format!(
            "{{prober: dns, timeout: 2s, dns: {{preferred_ip_protocol: ip4, transport_protocol: {transport}, query_name: a.{ZONE}, query_type: {kind}, valid_rcodes: [NOERROR]{more}}}}}"
        )
    };
    let answer = format!(", validate_answer_rrs: {{fail_if_not_matches_regexp: [\"{WEB}\"]}}");
    let secure = format!("{answer}, dns_over_tls: true, tls_config: {{insecure_skip_verify: true}}");
    format!(
        r#"modules:
  tcp: {{prober: tcp, timeout: 2s, tcp: {{preferred_ip_protocol: ip4}}}}
  hung: {{prober: tcp, timeout: 10s, tcp: {{preferred_ip_protocol: ip4}}}}
  tls: {{prober: tcp, timeout: 2s, tcp: {{preferred_ip_protocol: ip4, tls: true, tls_config: {{insecure_skip_verify: true}}}}}}
  dns: {}
  dns6: {}
  dnstcp: {}
  dnstls: {}
  https: {{prober: http, timeout: 2s, http: {{preferred_ip_protocol: ip4, valid_status_codes: [200], tls_config: {{insecure_skip_verify: true}}}}}}
"#,
        dns("udp", "A", &answer),
        dns("udp", "AAAA", ""),
        dns("tcp", "A", &answer),
        dns("tcp", "A", &secure),
    )
}

impl Blackbox {
    /// Starts it; none where it is not installed.
    ///
    /// # Errors
    /// It is installed and does not start.
    pub async fn start(directory: &Path) -> Result<Option<Self>> {
        let Some(program) = programs::find("prometheus-blackbox-exporter") else { return Ok(None) };
        let directory = directory.join("blackbox");
        private(&directory)?;
        let configuration = directory.join("blackbox.yml");
        write_private(&configuration, &modules())?;
        let address = free_port()?;
        let mut command = Command::new(program);
        command.arg(format!("--config.file={}", configuration.display()));
        command.arg(format!("--web.listen-address={address}")).arg("--log.level=error");
        let mut process = Process::start("blackbox_exporter", &directory.join("log"), command)?;
        process.until("listening", START_MAX, async || TcpStream::connect(address).await.is_ok()).await?;
        Ok(Some(Self { process, address }))
    }

    /// Its process id.
    ///
    /// # Errors
    /// It has ended.
    pub fn pid(&self) -> Result<u32> {
        self.process.pid().context("blackbox_exporter has ended")
    }

    /// A path that asks for one probe.
    #[must_use]
    pub fn path(module: Module, target: &str) -> String {
        format!("/probe?module={}&target={target}", module.name())
    }

    /// The path for a TCP or DNS probe of these targets.
    #[must_use]
    pub fn path_at(module: Module, at: SocketAddrV4) -> String {
        Self::path(module, &at.to_string())
    }

    /// A connection to ask over.
    ///
    /// # Errors
    /// It cannot be reached.
    pub async fn client(&self) -> Result<Client> {
        Ok(Client { stream: BufReader::new(TcpStream::connect(self.address).await?) })
    }

    /// Runs of [`PROBES`] probes: CPU seconds per 1,000, one entry a run.
    ///
    /// # Errors
    /// A probe fails.
    pub async fn runs(&self, path: &str, runs: usize) -> Result<Vec<f64>> {
        self.load(path, WARM_UP).await?;
        let mut all = Vec::new();
        for _ in 0..runs {
            let before = proc::cpu_s(self.pid()?)?;
            self.load(path, PROBES).await?;
            all.push(per_thousand(proc::cpu_s(self.pid()?)? - before, PROBES));
        }
        Ok(all)
    }

    async fn load(&self, path: &str, count: usize) -> Result<()> {
        let left = Arc::new(AtomicUsize::new(count));
        let mut workers = JoinSet::new();
        for _ in 0..AT_ONCE {
            let (mut client, left, path) = (self.client().await?, Arc::clone(&left), path.to_owned());
            workers.spawn(async move {
                while take_one(&left) {
                    ensure!(client.probe(&path).await?, "blackbox_exporter says that {path} failed");
                }
                Ok(())
            });
        }
        join(workers).await
    }

    /// Ends it.
    ///
    /// # Errors
    /// The system refuses.
    pub async fn stop(mut self) -> Result<()> {
        self.process.stop(Duration::from_secs(5)).await.map(|_| ())
    }
}

/// An open HTTP/1.1 connection to blackbox_exporter.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    /// Asks for one probe; whether it succeeded.
    ///
    /// # Errors
    /// It does not answer as HTTP says.
    pub async fn probe(&mut self, path: &str) -> Result<bool> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n");
        self.stream.get_mut().write_all(request.as_bytes()).await?;
        let (mut length, mut chunked) = (0_usize, false);
        loop {
            let line = self.line().await?;
            if line.is_empty() {
                break;
            }
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
            chunked |= lower.starts_with("transfer-encoding:") && lower.contains("chunked");
        }
        let mut body = Vec::new();
        if chunked {
            loop {
                let size = usize::from_str_radix(self.line().await?.trim(), 16)?;
                ensure!(body.len() + size <= ANSWER_BYTES_MAX, "an answer of more than a megabyte");
                self.take(size, &mut body).await?;
                self.line().await?;
                if size == 0 {
                    break;
                }
            }
        } else {
            ensure!(length <= ANSWER_BYTES_MAX, "an answer of more than a megabyte");
            self.take(length, &mut body).await?;
        }
        Ok(String::from_utf8_lossy(&body).contains("\nprobe_success 1"))
    }

    async fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        ensure!(self.stream.read_line(&mut line).await? > 0, "blackbox_exporter closed the connection");
        Ok(line.trim_end().to_owned())
    }

    async fn take(&mut self, size: usize, body: &mut Vec<u8>) -> Result<()> {
        let from = body.len();
        body.resize(from + size, 0);
        let rest = body.get_mut(from..).context("the place for a body")?;
        self.stream.read_exact(rest).await?;
        Ok(())
    }
}

/// zabbix_agent2, asked as a Zabbix server asks: one TCP session an item.
#[derive(Debug)]
pub struct Zabbix {
    process: Process,
    address: SocketAddrV4,
}

impl Zabbix {
    /// Starts it; none where it is not installed.
    ///
    /// # Errors
    /// It is installed and does not start.
    pub async fn start(directory: &Path) -> Result<Option<Self>> {
        let Some(program) = programs::find("zabbix_agent2") else { return Ok(None) };
        let directory = directory.join("zabbix");
        private(&directory)?;
        let address = low_port()?;
        let (folder, port) = (directory.display(), address.port());
        let text = format!(
            "PidFile={folder}/pid\nLogType=console\nLogFileSize=0\nDebugLevel=1\nServer={HERE}\nListenIP={HERE}\nListenPort={port}\nHostname=bench\nControlSocket={folder}/control\nPluginSocket={folder}/plugin\n"
        );
        let configuration = directory.join("zabbix.conf");
        write_private(&configuration, &text)?;
        let mut command = Command::new(program);
        command.arg("-f").arg("-c").arg(&configuration);
        let mut process = Process::start("zabbix_agent2", &directory.join("log"), command)?;
        process.until("listening", START_MAX, async || TcpStream::connect(address).await.is_ok()).await?;
        Ok(Some(Self { process, address }))
    }

    /// Runs of [`PROBES`] items that must all give `wanted`: CPU seconds per 1,000, one entry a run.
    ///
    /// # Errors
    /// An item fails.
    pub async fn runs(&self, key: &str, runs: usize) -> Result<Vec<f64>> {
        let pid = self.process.pid().context("zabbix_agent2 has ended")?;
        self.load(key, WARM_UP).await?;
        let mut all = Vec::new();
        for _ in 0..runs {
            let before = proc::cpu_s(pid)?;
            self.load(key, PROBES).await?;
            all.push(per_thousand(proc::cpu_s(pid)? - before, PROBES));
        }
        Ok(all)
    }

    /// The key of a TCP check.
    #[must_use]
    pub fn tcp_key(at: SocketAddrV4) -> String {
        format!("net.tcp.service[tcp,{},{}]", at.ip(), at.port())
    }

    /// The key of a DNS check; it knows no other port than 53.
    #[must_use]
    pub fn dns_key(at: SocketAddrV4) -> String {
        format!("net.dns[{},a.{ZONE},A,1,1]", at.ip())
    }

    async fn load(&self, key: &str, count: usize) -> Result<()> {
        let left = Arc::new(AtomicUsize::new(count));
        let mut workers = JoinSet::new();
        for _ in 0..AT_ONCE {
            let (address, left, key) = (self.address, Arc::clone(&left), key.to_owned());
            workers.spawn(async move {
                while take_one(&left) {
                    let answer = ask_zabbix(address, &key).await?;
                    ensure!(answer == b"1", "zabbix_agent2 says of {key}: {}", String::from_utf8_lossy(&answer));
                }
                Ok(())
            });
        }
        join(workers).await
    }

    /// Ends it.
    ///
    /// # Errors
    /// The system refuses.
    pub async fn stop(mut self) -> Result<()> {
        self.process.stop(Duration::from_secs(5)).await.map(|_| ())
    }
}

/// One passive check: `ZBXD`, flags, two little-endian lengths, then the key; the answer has the same header.
async fn ask_zabbix(address: SocketAddrV4, key: &str) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address).await?;
    let length = u32::try_from(key.len())?;
    let message = [b"ZBXD\x01".as_slice(), &length.to_le_bytes(), &[0; 4], key.as_bytes()].concat();
    stream.write_all(&message).await?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX as u64).read_to_end(&mut answer).await?;
    Ok(answer.get(13..).context("an answer shorter than its header")?.to_vec())
}

/// The floor: what the kernel charges one thread for the same system calls and nothing else. CPU seconds per 1,000.
///
/// # Errors
/// A connection or an exchange fails.
pub fn floor_tcp(targets: &Targets, runs: usize) -> Result<Vec<f64>> {
    let to = SocketAddr::V4(targets.tcp);
    let once = || std::net::TcpStream::connect_timeout(&to, Duration::from_secs(2)).map(drop);
    floor(runs, || Ok(once()?))
}

/// As [`floor_tcp`], for a question from a fresh UDP socket.
///
/// # Errors
/// A connection or an exchange fails.
pub fn floor_dns(targets: &Targets, runs: usize) -> Result<Vec<f64>> {
    let to = targets.dns;
    let mut question = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a".to_vec();
    for label in ZONE.split('.') {
        question.push(u8::try_from(label.len())?);
        question.extend_from_slice(label.as_bytes());
    }
    question.extend_from_slice(b"\x00\x00\x01\x00\x01");
    floor(runs, || {
        let socket = std::net::UdpSocket::bind(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))?;
        socket.set_read_timeout(Some(Duration::from_secs(2)))?;
        socket.connect(to)?;
        socket.send(&question)?;
        let mut answer = [0; 512];
        ensure!(socket.recv(&mut answer)? > 12, "an answer without a record");
        Ok(())
    })
}

fn floor(runs: usize, once: impl Fn() -> Result<()>) -> Result<Vec<f64>> {
    let cpu = || -> Result<f64> { Ok(Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?).as_secs_f64()) };
    let mut all = Vec::new();
    for run in 0..=runs {
        let before = cpu()?;
        (0..PROBES).try_for_each(|_| once())?;
        let spent = per_thousand(cpu()? - before, PROBES);
        // The first is the warm-up.
        if run > 0 {
            all.push(spent);
        }
    }
    Ok(all)
}

/// Seconds for so many, as seconds for a thousand.
#[expect(clippy::cast_precision_loss, reason = "some thousand")]
#[must_use]
pub fn per_thousand(seconds: f64, count: usize) -> f64 {
    seconds / count as f64 * 1000.0
}

fn take_one(left: &AtomicUsize) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}

async fn join(mut workers: JoinSet<Result<()>>) -> Result<()> {
    while let Some(ended) = workers.join_next().await {
        ended.context("a worker broke down")??;
    }
    Ok(())
}

/// A free port that zabbix_agent2 takes: 1024 to 32767.
fn low_port() -> Result<SocketAddrV4> {
    let mut all = (20_000..32_768).map(|port| SocketAddrV4::new(HERE, port));
    all.find(|address| std::net::TcpListener::bind(address).is_ok()).context("no port from 20000 to 32767 is free")
}

fn free_port() -> Result<SocketAddrV4> {
    let listener = std::net::TcpListener::bind((HERE, 0))?;
    match listener.local_addr()? {
        SocketAddr::V4(address) => Ok(address),
        SocketAddr::V6(_) => bail!("an IPv4 listener has an IPv6 address"),
    }
}
