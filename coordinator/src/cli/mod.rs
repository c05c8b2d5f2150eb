//! The operator's tool. Data goes to stdout, everything else to stderr.
//!
//! - [`serve`] runs the coordinator. [`config`] checks and shows the configuration.
//! - [`token`] makes tokens with which agents join; [`vantage`] says who may measure, [`authority`]
//!   who vouches for them; [`who`]: who did it.
//! - [`matrix`], [`incidents`], [`explain`], [`failover`] show what the page shows, [`timeline`] what happened; [`reading`]
//!   is what they share.
//! - [`replay`] runs the stored log once more, [`progress`] says how far it is; [`when`] reads moments.
//! - [`migrate`] brings the schema up to date, [`move_database`] leaves the embedded database.
//! - [`completions`] is for shells.
//! - [`database`] finds the database of a reading command, [`local`] asks the coordinator of this machine.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::error::nearest;
use crate::error::{Exit, Failure};

pub mod authority;
pub mod completions;
pub mod config;
pub mod database;
pub mod explain;
pub mod failover;
pub mod incidents;
pub mod local;
pub mod matrix;
pub mod migrate;
pub mod move_database;
pub mod progress;
pub mod reading;
pub mod replay;
pub mod serve;
#[cfg(test)]
pub(crate) mod testing;
pub mod timeline;
pub mod token;
pub mod vantage;
pub mod when;
pub mod who;

/// DNS and node failover with evidence: measures from many places, compares, and acts with care.
#[derive(Debug, Parser)]
#[command(name = "parallax", version)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// How it is done.
    #[command(flatten)]
    pub global: Global,
}

/// Options of every command.
#[derive(Debug, Clone, Args)]
pub struct Global {
    /// Answer as JSON on stdout: the same as -o json.
    #[arg(long, global = true, conflicts_with = "output")]
    pub json: bool,
    /// How the answer is written to stdout [default: table].
    #[arg(short, long, global = true, value_enum, value_name = "FORM")]
    pub output: Option<OutputForm>,
    /// What is logged to stderr: error, warn, info, debug or trace.
    #[arg(long, global = true, default_value = "info", env = "PARALLAX_LOG", value_name = "LEVEL")]
    pub log: tracing::Level,
}

/// How an answer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutputForm {
    /// For people.
    Table,
    /// One document, whose fields are stable and which carries `schema`.
    Json,
}

impl Global {
    /// Whether the answer is one JSON document, by whichever option.
    #[must_use]
    pub fn wants_json(&self) -> bool {
        self.json || self.output == Some(OutputForm::Json)
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the coordinator.
    Serve(serve::Serve),
    /// Check the configuration, print an example, or show what is in force.
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// One-use tokens with which agents join.
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Certificate authorities: list them, replace one, retire one.
    #[command(subcommand)]
    Authority(authority::AuthorityCommand),
    /// Bring the database's schema up to date, or say whether it is.
    Migrate(migrate::Migrate),
    /// Leave the embedded database for one of yours.
    #[command(subcommand)]
    Database(move_database::DatabaseCommand),
    /// Places that measure: list, show, approve, rename, replace, remove, revoke, issue.
    #[command(subcommand)]
    Vantage(vantage::VantageCommand),
    /// Every vantage against every name, now or at a moment.
    Matrix(matrix::Matrix),
    /// Open incidents, and those of the last days.
    Incidents(incidents::Incidents),
    /// Why something is so: the conclusion, its evidence, what was done, how to check by hand.
    #[command(subcommand)]
    Explain(explain::ExplainCommand),
    /// What happened, in order of time: verdicts, incidents, changes, other answers, what people did, and when nobody judged.
    Timeline(timeline::Timeline),
    /// Run the stored log once more, beside what really happened; or rehearse another policy on it. Writes nothing.
    Replay(replay::Replay),
    /// What services serve now; stop every write, or allow it again.
    #[command(subcommand)]
    Failover(failover::FailoverCommand),
    /// What a shell needs to complete these words, on stdout.
    Completions(completions::Completions),
}

/// Where certificates, secrets and the embedded database are kept.
#[derive(Debug, Clone, Args)]
pub struct StateDir {
    /// State directory [default: /var/lib/parallax as root, else ~/.local/state/parallax].
    #[arg(long = "state", env = "PARALLAX_STATE", value_name = "DIR")]
    pub given: Option<PathBuf>,
}

impl StateDir {
    /// The directory: as given, else the default for this user.
    ///
    /// # Errors
    /// When there is no default because there is no home.
    pub fn path(&self) -> Result<PathBuf, Failure> {
        if let Some(given) = &self.given {
            return Ok(given.clone());
        }
        if nix::unistd::geteuid().is_root() {
            return Ok(PathBuf::from("/var/lib/parallax"));
        }
        let not_empty = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        not_empty("XDG_STATE_HOME")
            .or_else(|| not_empty("HOME").map(|home| home.join(".local/state")))
            .map(|base| base.join("parallax"))
            .ok_or_else(|| {
                Failure::new(Exit::Usage, "no state directory").why("HOME is not set").fix("give --state DIR")
            })
    }
}

/// Runs a command.
///
/// # Errors
/// What happened, why, and how to fix it; its `exit` is the exit code.
pub fn run(mut cli: Cli) -> Result<(), Failure> {
    cli.global.json = cli.global.wants_json();
    // The pool tells of each try; who looks for the server that takes writes says once what it means.
    let told = Targets::new().with_default(cli.global.log).with_target("sqlx_core::pool", LevelFilter::OFF);
    // A log that cannot be written (its reader has gone) is no reason to panic.
    tracing_subscriber::fmt()
        .with_max_level(cli.global.log)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .log_internal_errors(false)
        .finish()
        .with(told)
        .init();
    check_environment(std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()))?;
    match cli.command {
        Command::Config(command) => runtime()?.block_on(config::run(&command, &cli.global)),
        Command::Serve(serve) => runtime()?.block_on(serve::run(serve)),
        Command::Authority(command) => runtime()?.block_on(authority::run(command, &cli.global)),
        Command::Token(command) => runtime()?.block_on(token::run(command, &cli.global)),
        Command::Database(command) => runtime()?.block_on(move_database::run(command, &cli.global)),
        Command::Migrate(command) => runtime()?.block_on(migrate::run(command, &cli.global)),
        Command::Vantage(command) => runtime()?.block_on(vantage::run(command, &cli.global)),
        Command::Matrix(command) => runtime()?.block_on(matrix::run(command, &cli.global)),
        Command::Incidents(command) => runtime()?.block_on(incidents::run(command, &cli.global)),
        Command::Explain(command) => runtime()?.block_on(explain::run(command, &cli.global)),
        Command::Timeline(command) => runtime()?.block_on(timeline::run(command, &cli.global)),
        Command::Replay(command) => runtime()?.block_on(replay::run(command, &cli.global)),
        Command::Completions(command) => completions::run(command, &cli.global),
        Command::Failover(command) => runtime()?.block_on(failover::run(command, &cli.global)),
    }
}

/// Refuses a variable that is a slip of the keyboard away from one of ours: what it says would be silently ignored.
/// Others that begin like ours belong to the agent, to scripts or to nobody.
fn check_environment(names: impl Iterator<Item = String>) -> Result<(), Failure> {
    let mut ours = Vec::new();
    variables(&Cli::command(), &mut ours);
    for name in names.filter(|name| name.starts_with("PARALLAX_") && !ours.contains(name)) {
        if let Some(near) = nearest(&name, ours.iter().map(String::as_str)) {
            return Err(Failure::new(Exit::Usage, format!("the environment has {name}, which nothing reads"))
                .why(format!("did you mean {near}?"))
                .fix(format!("rename it to {near}, or unset it")));
        }
    }
    Ok(())
}

/// The variables that a command and those below it read.
fn variables(command: &clap::Command, into: &mut Vec<String>) {
    into.extend(command.get_arguments().filter_map(|one| one.get_env()?.to_str().map(str::to_owned)));
    command.get_subcommands().for_each(|below| variables(below, into));
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Failed, "cannot start").why(error))
}

/// Prints to stdout. A reader that has gone (`| head`) is no failure.
///
/// # Errors
/// When stdout cannot be written otherwise.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Exit::Failed, "cannot write the answer").why(error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Prints JSON to stdout, as one document.
///
/// # Errors
/// When stdout cannot be written.
pub fn print_json(value: &serde_json::Value) -> Result<(), Failure> {
    print(&format!("{value:#}\n"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn no_command_has_two_flags_of_one_name() {
        super::Cli::command().debug_assert();
    }
}
