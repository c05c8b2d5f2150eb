//! `parallax-agent doctor`: what at this machine would keep the agent from doing its work.
//!
//! Every line says what was looked at, what was found and, where something is wrong, how to put it
//! right. It looks and changes nothing; it can run beside a running agent.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use futures_util::future::join_all;

use crate::cli::STATE;
use crate::dial::Dialer;
use crate::identity::folder::FOLDER;
use crate::local::Local;
use crate::policy::Policy;
use crate::probe::live::LiveServers;
use crate::site::Site;
use crate::tls::{Trust, TrustError};
use crate::uplink::address::Coordinator;

mod link;
mod machine;
mod network;

#[cfg(test)]
mod tests;

/// Flags of `doctor`.
#[derive(Debug, Clone, Default, Args)]
pub struct Doctor {
    /// The coordinator's gRPC address, as for `run`.
    #[arg(long, value_name = "HOST:PORT", env = "PARALLAX_AGENT_COORDINATOR", value_delimiter = ',')]
    pub coordinator: Vec<Coordinator>,

    /// Folder of the identity, as for `run`. [default: identity in the state folder]
    #[arg(long, value_name = "DIR", env = "PARALLAX_AGENT_IDENTITY")]
    pub identity: Option<PathBuf>,

    /// Folder of the state, as for `run`. [default: /var/lib/parallax-agent when it exists]
    #[arg(long, value_name = "DIR", env = "PARALLAX_AGENT_STATE")]
    pub state: Option<PathBuf>,

    /// The owner's file. [default: /etc/parallax-agent/local.yaml when it exists]
    #[arg(long, value_name = "FILE", env = "PARALLAX_AGENT_LOCAL")]
    pub local: Option<PathBuf>,

    /// Proxy to the coordinator, as for `run`.
    #[arg(long, value_name = "PROXY", env = "PARALLAX_AGENT_PROXY")]
    pub proxy: Option<String>,

    /// One JSON document on standard output.
    #[arg(long)]
    pub json: bool,

    /// Laboratory only: as for `run`.
    #[cfg(feature = "lab")]
    #[arg(long, value_name = "FILE")]
    pub lab_map: Option<PathBuf>,
}

/// How one thing stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// As it should be.
    Ok,
    /// The agent works, and something is missing or will be.
    Warn,
    /// The agent cannot do its work.
    Fail,
}

impl Grade {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What: one word.
    pub what: &'static str,
    /// How it stands.
    pub grade: Grade,
    /// What was found.
    pub found: String,
    /// How to put it right; empty when nothing is wrong.
    pub fix: String,
}

impl Check {
    pub(crate) fn ok(what: &'static str, found: impl Into<String>) -> Self {
        Self { what, grade: Grade::Ok, found: found.into(), fix: String::new() }
    }

    pub(crate) fn warn(what: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what, grade: Grade::Warn, found: found.into(), fix: fix.into() }
    }

    pub(crate) fn fail(what: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what, grade: Grade::Fail, found: found.into(), fix: fix.into() }
    }
}

/// Looks at everything.
pub async fn examine(options: &Doctor) -> Vec<Check> {
    let mut checks = vec![machine::version()];
    let local = match Local::read(options.local.as_deref()) {
        Ok(local) => {
            checks.push(Check::ok("owner", "the owner's file can be read, or the defaults hold"));
            local
        }
        Err(error) => {
            checks.push(Check::fail(
                "owner",
                error.to_string(),
                "correct the owner's file; until then the defaults are looked at",
            ));
            Local::default()
        }
    };
    checks.push(machine::descriptors());
    let usual = || Some(PathBuf::from(STATE)).filter(|usual| usual.exists());
    let state = options.state.clone().or_else(usual);
    checks.extend(state.as_deref().map(machine::disk));
    let site = match site(&local, dialer(options)) {
        Ok(site) => site,
        Err(error) => {
            checks.push(Check::fail("roots", error.to_string(), "install ca-certificates, or correct tls_roots"));
            return checks;
        }
    };
    let (resolvers, way_out, (captive, clock)) =
        tokio::join!(network::dns(&site), network::way_out(&site), network::captive_and_clock(&site));
    checks.extend([resolvers]);
    checks.extend(way_out);
    checks.extend([captive, clock]);
    let folder = options.identity.clone().or_else(|| Some(state.as_ref()?.join(FOLDER)));
    if folder.is_none() {
        let found = format!("{STATE} does not exist: nobody has joined here");
        checks.push(Check::warn(
            "identity",
            found,
            "join with a token (parallax-agent join TOKEN), or name the folder with --state",
        ));
    }
    if let Some(folder) = folder {
        let (identity, credentials) = link::identity(&folder);
        let joined = credentials.is_some();
        checks.extend(link::token(joined));
        checks.push(identity);
        if let Some(credentials) = credentials {
            checks.push(link::signers(&credentials));
            let mut all = options.coordinator.clone();
            all.extend(credentials.coordinators.iter().filter(|one| !options.coordinator.contains(one)).cloned());
            let tried = all.iter().map(|one| link::coordinator(options, &local, one, &credentials));
            checks.extend(join_all(tried).await);
        }
    }
    checks
}

/// What is measured with here.
///
/// # Errors
/// When the roots of the owner's file cannot be used.
pub(crate) fn site(local: &Local, dialer: Dialer) -> Result<Site, TrustError> {
    let live = LiveServers::new(local.live_resolver.clone());
    Ok(Site::new(dialer, Policy::new(local.allow.clone()), Trust::load(local.tls_roots.as_deref())?, live))
}

/// The resolver and the way out, over each family.
pub(crate) async fn surroundings(site: &Site) -> Vec<Check> {
    let (resolvers, way_out) = tokio::join!(network::dns(site), network::way_out(site));
    std::iter::once(resolvers).chain(way_out).collect()
}

fn dialer(options: &Doctor) -> Dialer {
    #[cfg(feature = "lab")]
    if let Some(file) = &options.lab_map {
        return Dialer::mapped(file.clone());
    }
    let _ = options;
    Dialer::direct()
}

/// The worst of all.
#[must_use]
pub fn worst(checks: &[Check]) -> Grade {
    checks.iter().map(|check| check.grade).max().unwrap_or(Grade::Ok)
}

/// The checks as lines for a terminal.
#[must_use]
pub fn text(checks: &[Check]) -> String {
    let width = checks.iter().map(|check| check.what.len()).max().unwrap_or(0);
    let mut out = String::new();
    for check in checks {
        let _ = writeln!(out, "{:<4}  {:<width$}  {}", check.grade.word(), check.what, check.found);
        if !check.fix.is_empty() {
            let _ = writeln!(out, "{:<4}  {:<width$}  fix: {}", "", "", check.fix);
        }
    }
    out
}

/// The checks as one document. Fields are only ever added; `schema` rises when that is broken.
#[must_use]
pub fn document(checks: &[Check]) -> serde_json::Value {
    let lines = checks.iter().map(|check| {
        serde_json::json!({
            "what": check.what, "grade": check.grade.word(), "found": check.found, "fix": check.fix,
        })
    });
    serde_json::json!({ "schema": 1, "grade": worst(checks).word(), "checks": lines.collect::<Vec<_>>() })
}
