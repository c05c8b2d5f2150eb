//! The agent's process: flags in, exit code out.

use std::process::ExitCode;

use clap::Parser as _;
use parallax_agent::agent::{exit_code, run};
use parallax_agent::cli::{Cli, Command};
use tracing_subscriber::filter::LevelFilter;

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
    match runtime.block_on(run(options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::from(exit_code(&error))
        }
    }
}
