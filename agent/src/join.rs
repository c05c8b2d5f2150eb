//! `parallax-agent join`: an identity for a token, a look at this machine, and the first results.
//!
//! [`token`] finds the token, [`joining`] redeems it, [`refusal`] says why not. Then [`service`] starts what
//! shall go on measuring, and [`first`] measures once, to show that it can.

use std::path::PathBuf;

use clap::Args;
use parallax_proto::token::Fingerprint;

use crate::assignment::{epoch, kept};
use crate::cli::STATE;
use crate::date;
use crate::doctor::{self, Check};
use crate::failure::{Exit, Failure};
use crate::identity::folder::{FOLDER, Folder};
use crate::local::Local;
use crate::offset::{ClockOffset, SKEW_MS_MAX};
use crate::uplink::address::Coordinator;
use crate::uplink::connector::Connector;
use crate::uplink::credentials::Credentials;
use crate::uplink::identity::Identity;
use crate::uplink::known::Known;
use crate::uplink::proxy::ProxySetting;
use crate::uplink::timing::Timing;
use first::First;
use joining::{Joined, Joining};

pub mod first;
pub mod joining;
pub mod refusal;
pub mod service;
pub mod token;

/// Flags of `join`.
#[derive(Clone, Args)]
pub struct Join {
    /// The token that `parallax token create NAME` printed; works once. Others on this machine can see it
    /// while this runs: where that matters use --token-file.
    #[arg(value_name = "TOKEN", conflicts_with = "token_file")]
    pub token: Option<String>,

    /// File that holds the token. [else: PARALLAX_TOKEN, the file of PARALLAX_TOKEN_FILE, or the file
    /// token in CREDENTIALS_DIRECTORY]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// Folder of the state; the identity goes into `identity` in it.
    #[arg(long, value_name = "DIR", env = "PARALLAX_AGENT_STATE", default_value = STATE)]
    pub state: PathBuf,

    /// Folder of the identity, when it shall not be in the state folder.
    #[arg(long, value_name = "DIR", env = "PARALLAX_AGENT_IDENTITY")]
    pub identity: Option<PathBuf>,

    /// Asked before the coordinators of the token, as for `run`.
    #[arg(long, value_name = "HOST:PORT", env = "PARALLAX_AGENT_COORDINATOR", value_delimiter = ',', num_args = 1)]
    pub coordinator: Vec<Coordinator>,

    /// Proxy to the coordinator, as for `run`.
    #[arg(long, value_name = "URL", env = "PARALLAX_AGENT_PROXY", hide_env_values = true)]
    pub proxy: Option<String>,

    /// The owner's file, as for `run`.
    #[arg(long, value_name = "FILE", env = "PARALLAX_AGENT_LOCAL")]
    pub local: Option<PathBuf>,

    /// Join and look, but start nothing.
    #[arg(long)]
    pub no_service: bool,

    /// One JSON document on standard output.
    #[arg(long)]
    pub json: bool,

    /// Laboratory only: as for `run`.
    #[cfg(feature = "lab")]
    #[arg(long, value_name = "FILE")]
    pub lab_map: Option<PathBuf>,
}

impl std::fmt::Debug for Join {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Join").field("state", &self.state).finish_non_exhaustive()
    }
}

/// What came of it.
#[derive(Debug)]
pub enum Done {
    /// The identity was there already: the token is not looked at, and works for somebody else yet.
    Already {
        /// Of this vantage.
        vantage: String,
    },
    /// Joined.
    Joined {
        /// As this vantage.
        vantage: String,
        /// What was looked at.
        checks: Vec<Check>,
        /// What was measured.
        first: First,
    },
}

/// Joins.
///
/// # Errors
/// Why not, for whoever stands at this machine.
pub async fn run(options: &Join) -> Result<Done, Failure> {
    let path = options.identity.clone().unwrap_or_else(|| options.state.join(FOLDER));
    let folder = Folder::new(path.clone());
    let unkept = |error: std::io::Error| unwritable(&error.to_string());
    if path.exists() {
        let owner = service::owner(&options.state, &path).map_err(unkept)?;
        let _acting = owner.map(service::Owner::act).transpose().map_err(unkept)?;
        folder.finish().map_err(|error| unwritable(&error.to_string()))?;
    }
    if folder.is_joined() {
        let held = Identity::new(path).credentials();
        let vantage = held.map_or_else(|error| error.to_string(), |held| held.vantage.clone());
        return Ok(Done::Already { vantage });
    }
    let token = token::given(options.token.as_deref(), options.token_file.as_deref())?;
    let local = Local::read(options.local.as_deref()).map_err(|error| configured(&error.to_string()))?;
    let proxy = ProxySetting::of(options.proxy.as_deref(), &local).map_err(|error| configured(&error.to_string()))?;
    // What root alone may read is read by now; what is written from here on, its owner writes.
    let owner = service::owner(&options.state, &path).map_err(unkept)?;
    let act = || owner.map(service::Owner::act).transpose().map_err(unkept);
    let acting = act()?;
    // What an identity before this one was told.
    epoch::forget(&options.state);
    kept::forget(&options.state);
    let connector = Connector::new(proxy, Known::open(&options.state), ClockOffset::default());
    let coordinators = options.coordinator.clone();
    let mut joining = Joining { token, folder, coordinators, connector, timing: Timing::default() };
    let joined = joining.now().await?;
    let held = Identity::new(path.clone()).credentials().map_err(|error| unwritable(&error.to_string()))?;
    let site = doctor::site(&local, dialer(options)).map_err(|error| configured(&error.to_string()))?;
    let mut checks = vec![clock(&joined), coordinator(&joined, &joining.token)];
    checks.extend(doctor::surroundings(&site).await);
    checks.push(certificate(&held));
    // systemd obeys root.
    drop(acting);
    let started = match options.no_service {
        true => Check::ok("service", "not started (--no-service); start it with: parallax-agent run"),
        false => service::start().await,
    };
    let runs = service::runs(&started);
    checks.push(started);
    let _acting = act()?;
    let first = first::look(&site, options, (&held, &mut joining.connector, &joined.coordinator), runs).await;
    Ok(Done::Joined { vantage: joined.enrolled.vantage, checks, first })
}

fn clock(joined: &Joined) -> Check {
    let off_ms = joined.enrolled.clock_offset_ms;
    let found = format!("{} ms off", off_ms.unsigned_abs());
    match off_ms.abs() > SKEW_MS_MAX {
        true => {
            Check::warn("clock", found, "set the clock: install and start a time service (systemd-timesyncd, chrony)")
        }
        false => Check::ok("clock", found),
    }
}

fn coordinator(joined: &Joined, token: &token::Token) -> Check {
    let key = Fingerprint(&token.authority_sha256);
    Check::ok("coordinator", format!("{}, key matches the token ({key})", joined.coordinator))
}

fn certificate(held: &Credentials) -> Check {
    let until = date::text(held.validity.not_after_s);
    Check::ok("identity", format!("{}, certificate until {until}, renews itself", held.vantage))
}

fn unwritable(why: &str) -> Failure {
    Failure {
        exit: Exit::Failed,
        code: "E0431",
        word: "state_unwritable",
        what: "the identity cannot be kept".to_owned(),
        why: why.to_owned(),
        fix: "run it as root or as the agent's user, or name another folder with --state".to_owned(),
    }
}

fn configured(why: &str) -> Failure {
    Failure {
        exit: Exit::Usage,
        code: "E0432",
        word: "configuration",
        what: "the configuration of this place cannot be used".to_owned(),
        why: why.to_owned(),
        fix: "correct it and try again: the token was not used".to_owned(),
    }
}

fn dialer(options: &Join) -> crate::dial::Dialer {
    #[cfg(feature = "lab")]
    if let Some(file) = &options.lab_map {
        return crate::dial::Dialer::mapped(file.clone());
    }
    let _ = options;
    crate::dial::Dialer::direct()
}

/// What came of it, as lines for a terminal.
#[must_use]
pub fn text(done: &Done) -> String {
    match done {
        Done::Already { vantage } => {
            format!("already joined: {vantage}; the token was not used (parallax-agent leave forgets this identity)\n")
        }
        Done::Joined { checks, first, .. } => doctor::text(checks) + &first.text(),
    }
}

/// What came of it, as one document. Fields are only ever added; `schema` rises when that is broken.
#[must_use]
pub fn document(done: &Done) -> serde_json::Value {
    match done {
        Done::Already { vantage } => serde_json::json!({ "schema": 1, "joined": "already", "vantage": vantage }),
        Done::Joined { vantage, checks, first } => serde_json::json!({
            "schema": 1, "joined": "now", "vantage": vantage,
            "preflight": doctor::document(checks), "first": first.document(),
        }),
    }
}

#[cfg(test)]
mod tests;
