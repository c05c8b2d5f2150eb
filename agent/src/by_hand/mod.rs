//! `parallax-agent probe NAME`: what a vantage sees of one name, now, without a coordinator.
//!
//! The same measurements as the schedule's, under the same owner's policy; [`spec`] reads what
//! resolvers are asked, [`look`] measures, [`told`] says it in words, [`table`] and [`json`] print it.

use std::path::PathBuf;

use clap::Args;
use parallax_decide::names::DomainName;

use crate::assignment::Resolver;
use crate::dial::Dialer;
use crate::local::{Local, LocalError};
use crate::policy::Policy;
use crate::probe::live::LiveServers;
use crate::site::Site;
use crate::tls::{Trust, TrustError};

pub mod json;
pub mod look;
pub mod spec;
pub mod table;
pub mod told;

#[cfg(test)]
mod tests;

/// Most resolvers one call asks.
pub const RESOLVERS_MAX: usize = 16;

/// Flags of `probe`.
#[derive(Debug, Clone, Args)]
pub struct Probe {
    /// Name to resolve, and whose addresses are tried.
    #[arg(value_name = "NAME")]
    pub name: DomainName,

    /// A resolver to ask: `live`, `1.1.1.1`, `tcp://1.1.1.1`, `tls://one.one.one.one@1.1.1.1`,
    /// `https://dns.quad9.net/dns-query@9.9.9.9` (without an address behind @ the host is looked up at the
    /// live resolver), and with `get+` or `json+` before https. May be repeated.
    /// [default: live, two public ones over HTTPS and two over plain DNS]
    #[arg(long = "resolver", value_name = "RESOLVER", value_parser = spec::resolver)]
    pub resolvers: Vec<Resolver>,

    /// TCP port to try the addresses on.
    #[arg(long, value_name = "N", default_value_t = 443, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,

    /// Stop after TCP: the port speaks no TLS.
    #[arg(long)]
    pub tcp_only: bool,

    /// One JSON document on standard output.
    #[arg(long)]
    pub json: bool,

    /// The owner's file. [default: /etc/parallax-agent/local.yaml when it exists]
    #[arg(long, value_name = "FILE", env = "PARALLAX_AGENT_LOCAL")]
    pub local: Option<PathBuf>,

    /// Laboratory only: as for `run`.
    #[cfg(feature = "lab")]
    #[arg(long, value_name = "FILE")]
    pub lab_map: Option<PathBuf>,
}

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The owner's file.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// The roots.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// Too many resolvers.
    #[error("{0} resolvers are too many for one call; name at most {RESOLVERS_MAX}")]
    Resolvers(usize),
}

/// Measures and says what was seen.
///
/// # Errors
/// When nothing could be measured for a reason of configuration.
pub async fn run(options: &Probe) -> Result<look::Seen, ProbeError> {
    let local = Local::read(options.local.as_deref())?;
    let resolvers = if options.resolvers.is_empty() { spec::usual() } else { options.resolvers.clone() };
    if resolvers.len() > RESOLVERS_MAX {
        return Err(ProbeError::Resolvers(resolvers.len()));
    }
    // The port was named by whoever sits at this machine.
    let mut allow = local.allow.clone();
    allow.ports.push(options.port);
    let live = LiveServers::new(local.live_resolver.clone());
    let resolvers = spec::with_bootstrap(resolvers, &live.servers());
    let trust = Trust::load(local.tls_roots.as_deref())?;
    let site = Site::new(dialer(options), Policy::new(allow), trust, live);
    let wanted = look::Wanted { name: options.name.clone(), port: options.port, tls: !options.tcp_only, resolvers };
    Ok(look::look(&site, &wanted).await)
}

fn dialer(options: &Probe) -> Dialer {
    #[cfg(feature = "lab")]
    if let Some(file) = &options.lab_map {
        return Dialer::mapped(file.clone());
    }
    let _ = options;
    Dialer::direct()
}
