//! The operator's tool and the coordinator itself.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use parallax_coordinator::cli::{self, Cli};
use parallax_coordinator::error::{Exit, Failure};

/// Thousands of streams each hold buffers of which they use a few hundred bytes (docs/bench.md, P6). This allocator begins
/// those on a page of their own, so that what is never touched is never resident, and gives back what a burst took; glibc's
/// does neither. How it is set is in `.cargo/config.toml`.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            if !error.use_stderr() {
                return ExitCode::SUCCESS;
            }
            if wants_json(std::env::args_os()) {
                let what = error.to_string();
                let what = what.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
                document(&Failure::new(Exit::Usage, what).fix("parallax --help"));
            }
            return Exit::Usage.into();
        }
    };
    let json = cli.global.wants_json();
    match cli::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if json && !failure.is_printed() {
                document(&failure);
            }
            if !failure.is_answered() {
                // Whoever read it may have gone: the exit code still says it.
                let _ = writeln!(std::io::stderr(), "{failure}");
            }
            failure.exit.into()
        }
    }
}

/// For programs: a failure is a document too. Whoever read it may have gone.
fn document(failure: &Failure) {
    let _ = cli::print_json(&failure.as_json());
}

/// Whether a program waits for the answer: the words themselves could not be understood.
fn wants_json(words: impl Iterator<Item = std::ffi::OsString>) -> bool {
    let words: Vec<_> = words.collect();
    let after = |option: &str| {
        words
            .windows(2)
            .any(|pair| pair.first().is_some_and(|one| one == option) && pair.last().is_some_and(|one| one == "json"))
    };
    words.iter().any(|one| ["--json", "-ojson", "--output=json"].iter().any(|form| one == form))
        || after("-o")
        || after("--output")
}
