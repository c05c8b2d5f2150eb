//! The agent's process: flags in, exit code out.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;
use parallax_agent::agent::run;
use parallax_agent::beginning;
use parallax_agent::by_hand::{self, json, table, told};
use parallax_agent::cli::{Cli, Command};
use parallax_agent::doctor::{self, Doctor, Grade};
use parallax_agent::environment;
use parallax_agent::failure::{Exit, Failure};
use parallax_agent::join::{self, Join};
use parallax_agent::{leave, respond, standing};
use tracing_subscriber::filter::LevelFilter;

/// Longest wait for system calls in progress when everything else has ended.
const LEAVE_MAX: Duration = Duration::from_millis(500);

/// So many tasks may run before the one thread looks at sockets and timers, which it also does whenever nothing can run. More
/// than what can be due at one moment, so that all of it begins before any of it goes on (tokio's own number is 61, for work
/// that never ends).
const STEPS_MAX: u32 = 1024;

fn main() -> ExitCode {
    // Before anything can ask for it: more than one TLS provider may be linked.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let json = std::env::args_os().any(|one| one == "--json");
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(error) => return ExitCode::from(misused(&error, json)),
    };
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    if let Err(failure) = environment::check(names) {
        return ExitCode::from(told_failure(&failure, json));
    }
    let level = match &command {
        Command::Run(options) => LevelFilter::from(options.log),
        Command::Respond(_) => LevelFilter::INFO,
        Command::Probe(_) | Command::Doctor(_) | Command::Join(_) | Command::Status(_) | Command::Leave(_) => {
            LevelFilter::ERROR
        }
    };
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).with_max_level(level).init();
    let runtime = match tokio::runtime::Builder::new_current_thread().event_interval(STEPS_MAX).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "the runtime does not start");
            return ExitCode::FAILURE;
        }
    };
    let code = match command {
        Command::Run(options) => match runtime.block_on(run(options)) {
            Ok(()) => 0,
            Err(error) => {
                let failure = beginning::failure(&error);
                tracing::error!(reason = failure.word, code = failure.code, "{failure:#}");
                failure.exit.code()
            }
        },
        Command::Join(options) => joined(&runtime, &options),
        Command::Status(options) => {
            let mut document = standing::document(&options);
            let failure = standing::failure(&options, &document);
            if let Some(failure) = &failure {
                document["error"] = failure.document()["error"].clone();
            }
            print(&if options.json { format!("{document:#}\n") } else { standing::text(&document) });
            failure.map_or(0, |failure| told_failure(&failure, false))
        }
        Command::Leave(options) => match leave::run(&options) {
            Ok(told) => {
                print(&told);
                0
            }
            Err(failure) => told_failure(&failure, false),
        },
        Command::Respond(options) => match runtime.block_on(respond::run(&options)) {
            Ok(told) => {
                print(&told);
                0
            }
            Err(failure) => told_failure(&failure, false),
        },
        Command::Probe(options) => probe(&runtime, &options),
        Command::Doctor(options) => examine(&runtime, &options),
    };
    // A name look-up that hangs in a system call must not keep the process.
    runtime.shutdown_timeout(LEAVE_MAX);
    ExitCode::from(code)
}

fn probe(runtime: &tokio::runtime::Runtime, options: &by_hand::Probe) -> u8 {
    let seen = match runtime.block_on(by_hand::run(options)) {
        Ok(seen) => seen,
        Err(error) => return told_failure(&beginning::of_probe(&error), options.json),
    };
    let text = if options.json { format!("{:#}\n", json::document(&seen)) } else { table::text(&seen) };
    print(&text);
    match told::verdict(&seen) {
        told::Verdict::Usable => 0,
        told::Verdict::NoWayOut => 5,
        told::Verdict::NotUsable => 6,
    }
}

fn joined(runtime: &tokio::runtime::Runtime, options: &Join) -> u8 {
    match runtime.block_on(join::run(options)) {
        Ok(done) => {
            print(&if options.json { format!("{:#}\n", join::document(&done)) } else { join::text(&done) });
            0
        }
        Err(failure) => told_failure(&failure, options.json),
    }
}

/// What the parser says, with a code; a question for help or the version is no misuse.
fn misused(error: &clap::Error, json: bool) -> u8 {
    let text = error.render().to_string();
    if !error.use_stderr() {
        print(&text);
        return 0;
    }
    let failure = Failure {
        exit: Exit::Usage,
        code: "E0400",
        word: "usage",
        what: "the command line is not understood".to_owned(),
        why: text.trim().strip_prefix("error: ").unwrap_or(text.trim()).to_owned(),
        fix: "see parallax-agent --help".to_owned(),
    };
    if json {
        print(&format!("{:#}\n", failure.document()));
    }
    let _ = write!(std::io::stderr(), "error[{}]: {}", failure.code, text.strip_prefix("error: ").unwrap_or(&text));
    failure.exit.code()
}

fn told_failure(failure: &Failure, json: bool) -> u8 {
    if json {
        print(&format!("{:#}\n", failure.document()));
    }
    let _ = writeln!(std::io::stderr(), "{failure}");
    failure.exit.code()
}

fn examine(runtime: &tokio::runtime::Runtime, options: &Doctor) -> u8 {
    let checks = runtime.block_on(doctor::examine(options));
    print(&if options.json { format!("{:#}\n", doctor::document(&checks)) } else { doctor::text(&checks) });
    match doctor::worst(&checks) {
        Grade::Ok | Grade::Warn => 0,
        Grade::Fail => 1,
    }
}

/// A reader that went away (a pager, head) is no failure of the measurement.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}
