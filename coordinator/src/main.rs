//! The operator's tool and the coordinator itself.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use parallax_coordinator::cli::{self, Cli};
use parallax_coordinator::error::Exit;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage.into() } else { ExitCode::SUCCESS };
        }
    };
    match cli::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Whoever read it may have gone: the exit code still says it.
            let _ = writeln!(std::io::stderr(), "{failure}");
            failure.exit.into()
        }
    }
}
