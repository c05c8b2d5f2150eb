//! The coordinator's configuration: one strict YAML file, or the built-in default.
//!
//! - [`mod@file`]: what may be written. [`policy`]: the two policies and single settings.
//! - [`check`], [`resolvers`] with [`doh`], [`canaries`], [`controls`], [`services`] and [`identity`]: from written to meant;
//!   [`spelling`]: addresses and URLs; [`retain`], [`embedded`]: how long what is kept, and in how much room; [`error`]: faults with line and column.
//! - [`builtin`]: the default and the example. [`show`]: what is in force; [`diff`]: what another one would change.
//! - [`schema`]: the format for editors. [`rehearsal`]: the policy of a rehearsal.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use parallax_decide::names::{ControlName, DomainName, DriverName, NodeName, ResolverName, VantageName};
use parallax_decide::topology::{Mode, Topology};
use parallax_proto::LIFE_KEY_BYTES;

use crate::secret;
use error::Faults;
use file::{DohFormatName, DohMethodName, HttpVersionName};
use retain::Retain;

pub mod builtin;
pub mod canaries;
pub mod check;
pub mod controls;
pub mod diff;
pub mod doh;
pub mod embedded;
pub mod error;
pub mod file;
pub mod identity;
pub mod policy;
pub mod rehearsal;
pub mod resolvers;
pub mod retain;
pub mod schema;
pub mod services;
pub mod show;
pub mod spelling;
#[cfg(test)]
mod tests;

/// Largest configuration file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A configuration that passed every check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// What judging needs.
    pub topology: Topology,
    /// Where to listen.
    pub listen: Listen,
    /// Who vouches for agents and for the coordinator, and where agents reach it.
    pub identity: identity::Identity,
    /// How long what is kept.
    pub retain: Retain,
    /// Most that the embedded database may use of the disk, in bytes.
    pub disk_max: u64,
    /// Vantages that the file does not list and a person approved (`crate::admitted`).
    pub admitted: BTreeSet<VantageName>,
    /// Labels of each vantage, for people and selectors.
    pub labels: BTreeMap<VantageName, BTreeMap<String, String>>,
    /// Drivers the coordinator itself uses.
    pub drivers: BTreeMap<DriverName, Driver>,
    /// How each resolver is spoken to.
    pub endpoints: BTreeMap<ResolverName, Endpoint>,
    /// Where each control is.
    pub controls: BTreeMap<ControlName, ControlTarget>,
    /// TLS server names of the nodes that have one.
    pub node_server_names: BTreeMap<NodeName, DomainName>,
    /// Requests after TLS, of the nodes that have one.
    pub node_http: BTreeMap<NodeName, HttpCheck>,
    /// What proves the life of the nodes that prove it.
    pub node_proofs: BTreeMap<NodeName, NodeProof>,
    /// Particulars of the canaries that have any.
    pub canary_extras: BTreeMap<DomainName, CanaryExtra>,
    /// What endpoint checks ask.
    pub questions: Questions,
    /// Where a vantage's probes come from, of those for which that is said.
    pub sources: BTreeMap<VantageName, Source>,
    /// When agents probe, and how long they wait.
    pub schedule: Schedule,
    /// What is allowed in the file and hardly meant.
    pub warnings: Option<Faults>,
}

/// What proves a node's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeProof {
    /// Its Ed25519 public key.
    pub key: [u8; LIFE_KEY_BYTES],
    /// TCP port of its responder (`parallax-agent respond`).
    pub port: u16,
}

impl Config {
    /// Reads a file, or takes the built-in default.
    ///
    /// # Errors
    /// Every fault of the file with its place.
    pub fn load(path: Option<&Path>) -> Result<Self, Faults> {
        let Some(path) = path else { return Self::parse(builtin::DEFAULT, "built-in default") };
        Self::parse(&read_file(path)?, &path.display().to_string())
    }

    /// Reads a text; `file` is its name in messages.
    ///
    /// # Errors
    /// Every fault with its place.
    pub fn parse(text: &str, file: &str) -> Result<Self, Faults> {
        let faults = |faults| Faults { file: file.to_owned(), faults, text: text.to_owned() };
        let written: file::File =
            serde_saphyr::from_str(text).map_err(|error| faults(vec![error::of_reader(&error, text)]))?;
        let (mut config, doubts) = check::check(&written).map_err(faults)?;
        config.warnings = (!doubts.is_empty()).then(|| faults(doubts));
        Ok(config)
    }
}

/// The text of a file, if it is one of at most [`FILE_BYTES_MAX`].
fn read_file(path: &Path) -> Result<String, Faults> {
    let whole = |message: String| Faults {
        file: path.display().to_string(),
        faults: vec![error::Fault { line: 0, column: 0, message }],
        text: String::new(),
    };
    let unreadable = |error: std::io::Error| whole(format!("cannot be read: {error}"));
    let mut text = String::new();
    // Not by its size beforehand: a device or a pipe has none.
    let opened = std::fs::File::open(path).map_err(unreadable)?;
    let read = opened.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if u64::try_from(read).is_ok_and(|read| read > FILE_BYTES_MAX) {
        return Err(whole(format!("has more than {FILE_BYTES_MAX} bytes, the most that are read")));
    }
    Ok(text)
}

/// Where the coordinator listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// Page and API.
    pub web: WebListen,
    /// Agents.
    pub grpc: SocketAddr,
}

/// Where the page and the API are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WebListen {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A Unix socket, mode 0660.
    Unix(PathBuf),
}

impl WebListen {
    /// Reads `ADDRESS:PORT` or `unix:/PATH`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn named(text: &str) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            Some(path) if path.starts_with('/') => Ok(Self::Unix(path.into())),
            Some(path) => Err(format!("`{path}` must be an absolute path, as in unix:/run/parallax/web.sock")),
            None => text.parse().map(Self::Tcp).map_err(|error| format!("address and port, or unix:/path: {error}")),
        }
    }
}

/// A driver that the coordinator uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Driver {
    /// Dynamic update with TSIG.
    Rfc2136(Rfc2136),
}

/// RFC 2136 with TSIG. The secret itself is read at each use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rfc2136 {
    /// Primary server of the zone.
    pub server: SocketAddr,
    /// Zone whose records may be changed.
    pub zone: DomainName,
    /// Name of the key.
    pub tsig_name: DomainName,
    /// Algorithm of the key.
    pub tsig_algorithm: TsigAlgorithm,
    /// Where the key's secret is, in base64.
    pub tsig_secret: secret::Source,
    /// The most it may do by itself, whatever a service says.
    pub mode: Mode,
}

/// TSIG algorithms that are offered (RFC 8945, 6: the ones to implement, without the weak ones).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TsigAlgorithm {
    /// hmac-sha256
    HmacSha256,
    /// hmac-sha384
    HmacSha384,
    /// hmac-sha512
    HmacSha512,
}

/// How a resolver is spoken to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// What clients at the vantage use.
    Live,
    /// Plain DNS over UDP, then TCP when truncated.
    Udp(SocketAddr),
    /// Plain DNS over TCP alone.
    Tcp(SocketAddr),
    /// DNS over HTTPS.
    Doh(Doh),
    /// DNS over TLS.
    Dot {
        /// Where it listens.
        address: SocketAddr,
        /// Name its certificate must carry.
        server_name: DomainName,
    },
}

/// A DoH endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doh {
    /// Its https URL.
    pub url: String,
    /// Addresses to connect to; empty: the URL's host is looked up.
    pub bootstrap: Vec<IpAddr>,
    /// Where it is looked up then.
    pub bootstrap_resolvers: Vec<SocketAddr>,
    /// Form of the question.
    pub format: DohFormatName,
    /// How it is sent.
    pub method: DohMethodName,
    /// Version of HTTP.
    pub http: HttpVersionName,
}

/// Where a control is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlTarget {
    /// Its address; none: the captive URL's host is looked up at the live resolver.
    pub address: Option<IpAddr>,
    /// TCP port.
    pub port: u16,
    /// TLS server name; none: TCP is enough.
    pub server_name: Option<DomainName>,
    /// Plain HTTP URL that must give status 204.
    pub captive_url: Option<String>,
}

/// A request after TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpCheck {
    /// Path and query.
    pub path: String,
    /// Statuses that are right; empty: any from 200 to 399.
    pub statuses: Vec<u16>,
    /// Read at least this much of the body, in bytes; 0: the status is enough.
    pub read_bytes: u32,
}

/// What a canary may have besides port and TLS.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CanaryExtra {
    /// Request after TLS.
    pub http: Option<HttpCheck>,
    /// Whether agents validate the answer themselves.
    pub validate: bool,
}

/// The three questions of an endpoint check.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Questions {
    /// A name that exists; none: nothing is watched that could be asked.
    pub known: Option<DomainName>,
    /// Unsigned wildcard zone of the operator's; none: no fresh name is asked.
    pub freshness_zone: Option<DomainName>,
    /// Random labels below it do not exist; none: no missing name is asked.
    pub missing_zone: Option<DomainName>,
}

/// Where probes come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Own addresses, at most one of each family.
    pub addresses: Vec<IpAddr>,
    /// Network interface.
    pub interface: Option<String>,
}

/// When agents probe, and how long they wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// Interval of endpoint checks; the other intervals are the policy's.
    pub endpoint_every: Duration,
    /// Start of each own connection attempt, after the first.
    pub attempt_at: Vec<Duration>,
    /// End of the TCP phase, counted from the probe's start.
    pub connect_timeout: Duration,
    /// Limit of one TLS handshake.
    pub tls_timeout: Duration,
    /// Longest wait for the HTTP answer.
    pub http_timeout: Duration,
    /// Limit of one question.
    pub resolve_timeout: Duration,
    /// How long a UDP socket stays open after the first reply, for a second, different one.
    pub udp_hold: Duration,
    /// Random delay of each start, in thousandths of the interval.
    pub jitter_permille: u32,
    /// The most a probe may take, in thousandths of its interval.
    pub probe_budget_permille: u32,
    /// Pause before each confirming probe after a first failure.
    pub burst_gaps: Vec<Duration>,
}
