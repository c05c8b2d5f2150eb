//! The agent's process: flags in, exit code out.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;
use parallax_agent::agent::{exit_code, run};
use parallax_agent::cli::{Cli, Command};
use tracing_subscriber::filter::LevelFilter;

/// Longest wait for system calls in progress when everything else has ended.
const LEAVE_MAX: Duration = Duration::from_millis(500);

fn main() -> ExitCode {
    // Before anything can ask for it: more than one TLS provider may be linked.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let Command::Run(options) = Cli::parse().command;
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_max_level(LevelFilter::from(options.log))
        .init();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "the runtime does not start");
            return ExitCode::FAILURE;
        }
    };
    let ended = runtime.block_on(run(options));
    // A name look-up that hangs in a system call must not keep the process.
    runtime.shutdown_timeout(LEAVE_MAX);
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::from(exit_code(&error))
        }
    }
}
