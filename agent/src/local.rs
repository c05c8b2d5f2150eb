//! The owner's file: what this agent may contact, and the local drivers it may use.
//!
//! It belongs to whoever owns the place, not to the coordinator, and nothing the coordinator sends
//! can widen it. Unknown and duplicate keys are refused with line and column, because a misspelt
//! limit would silently be no limit.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use parallax_decide::names::{DomainName, NameError};

mod fault;
mod sections;
mod tree;
mod value;

/// Where the file is looked for when `--local` is not given.
pub const LOCAL_PATH: &str = "/etc/parallax-agent/local.yaml";

/// Most name servers the live resolver may consist of; glibc itself uses three (resolv.conf(5)).
pub const LIVE_SERVERS_MAX: usize = 3;

/// Largest owner's file, in bytes.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// The owner's file, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Local {
    /// Version of the file's format: 1.
    pub version: u32,
    /// What clients at this place use as resolver. Empty: the name servers of `/etc/resolv.conf`.
    pub live_resolver: Vec<SocketAddr>,
    /// PEM file with certificate authorities to trust besides the platform's.
    pub tls_roots: Option<PathBuf>,
    /// HTTP proxy to the coordinator, as `http://HOST:PORT`, or `environment` for HTTPS_PROXY and
    /// NO_PROXY. Unset: directly.
    pub proxy: Option<String>,
    /// File with one line, `user:password`, for the proxy. Read again at each connection.
    pub proxy_credentials_file: Option<PathBuf>,
    /// What may be contacted.
    pub allow: Allow,
    /// Local drivers.
    pub drivers: Drivers,
    /// What they may change.
    pub changes: Changes,
    /// Most bytes of unsent observations kept on disk; the oldest good ones are dropped first beyond.
    pub spool_bytes_max: u64,
    /// How long unsent observations are kept, like "24h".
    pub spool_age_max: Duration,
}

impl Default for Local {
    fn default() -> Self {
        Self {
            version: 1,
            live_resolver: Vec::new(),
            tls_roots: None,
            proxy: None,
            proxy_credentials_file: None,
            allow: Allow::default(),
            drivers: Drivers::default(),
            changes: Changes::default(),
            spool_bytes_max: crate::spool::SPOOL_BYTES_MAX,
            spool_age_max: crate::spool::SPOOL_AGE_MAX,
        }
    }
}

/// What may be contacted, whatever the coordinator says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allow {
    /// TCP ports of targets and controls. Resolvers may besides use 53, 443 and 853.
    pub ports: Vec<u16>,
    /// Special-purpose networks, and those that this machine is in, that may be contacted after all, as CIDRs.
    /// What [`crate::policy::never`] lists stays shut.
    pub private: Vec<ipnet::IpNet>,
    /// Whether the path to a target may be looked for: at most 100 small UDP packets to its ports from
    /// 33434 on, and few large ones.
    pub paths: bool,
    /// Most probes of addresses a minute (a probe's own few attempts count as one).
    pub connections_per_minute: u32,
    /// Most probes of one address a minute.
    pub connections_per_minute_to_one: u32,
    /// Most probes into one /24 or /48 a minute.
    pub connections_per_minute_to_network: u32,
    /// Most questions to resolvers a minute.
    pub questions_per_minute: u32,
    /// Most questions to one resolver's address a minute.
    pub questions_per_minute_to_one: u32,
    /// Most addresses an hour that were not contacted in the hour before.
    pub new_addresses_per_hour: u32,
}

impl Default for Allow {
    fn default() -> Self {
        Self {
            ports: vec![443],
            private: Vec::new(),
            paths: true,
            connections_per_minute: 600,
            connections_per_minute_to_one: 60,
            connections_per_minute_to_network: 240,
            questions_per_minute: 1200,
            questions_per_minute_to_one: 480,
            new_addresses_per_hour: 600,
        }
    }
}

/// The drivers this agent may use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Drivers {
    /// Pins names on the place's own resolver.
    pub pin: Option<PinDriver>,
}

/// What the coordinator may have changed here, with the drivers that are configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// Whether anything may be changed at all.
    pub allowed: bool,
    /// Names that may be changed: a name, or `*.` and a name for everything below it. Empty: every name
    /// of the assignment.
    pub names: Vec<NamePattern>,
}

impl Default for Changes {
    fn default() -> Self {
        Self { allowed: true, names: Vec::new() }
    }
}

impl Changes {
    /// Whether this name may be changed.
    #[must_use]
    pub fn permits(&self, name: &DomainName) -> bool {
        self.allowed && (self.names.is_empty() || self.names.iter().any(|pattern| pattern.holds(name)))
    }
}

/// A name, or everything below one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamePattern {
    name: DomainName,
    below: bool,
}

impl FromStr for NamePattern {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let (below, rest) = text.strip_prefix("*.").map_or((false, text), |rest| (true, rest));
        Ok(Self { name: rest.parse()?, below })
    }
}

impl NamePattern {
    fn holds(&self, name: &DomainName) -> bool {
        match self.below {
            false => *name == self.name,
            true => name.as_str().strip_suffix(self.name.as_str()).is_some_and(|rest| rest.ends_with('.')),
        }
    }
}

/// A driver that pins names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PinDriver {
    /// Unbound, through its control socket.
    Unbound {
        /// Path of the socket (`control-interface: /path` in unbound.conf).
        control: PathBuf,
    },
}

/// Why the owner's file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// It cannot be read.
    #[error("cannot read the owner's file {path}: {source}; check the path given with --local and its permissions")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is not what is expected.
    #[error("the owner's file {path} is not valid: {message}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// What is wrong, where, and how to put it right.
        message: String,
    },
}

impl Local {
    /// Reads the file. Without a path the default one, and when that does not exist the defaults.
    ///
    /// # Errors
    /// When the file cannot be read, or is not valid. A default file that may exist but cannot be looked
    /// at is an error too: the defaults could allow what its owner forbids.
    pub fn read(path: Option<&Path>) -> Result<Self, LocalError> {
        Self::read_or(path, Path::new(LOCAL_PATH))
    }

    fn read_or(path: Option<&Path>, default: &Path) -> Result<Self, LocalError> {
        let unreadable = |source| LocalError::Read { path: default.to_owned(), source };
        if path.is_none() && !default.try_exists().map_err(unreadable)? {
            return Ok(Self::default());
        }
        let path = path.unwrap_or(default);
        let text = read_bounded(path).map_err(|source| LocalError::Read { path: path.to_owned(), source })?;
        Self::parse(&text).map_err(|message| LocalError::Parse { path: path.to_owned(), message })
    }

    fn parse(text: &str) -> Result<Self, String> {
        tree::read(text).and_then(|root| sections::local(&root)).map_err(|fault| fault.shown(text))
    }
}

fn read_bounded(path: &Path) -> std::io::Result<String> {
    let bytes = std::fs::metadata(path)?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(std::io::Error::other(format!("it has {bytes} bytes, at most {FILE_BYTES_MAX} are read")));
    }
    std::fs::read_to_string(path)
}

#[cfg(test)]
mod tests;
