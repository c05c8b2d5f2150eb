//! `parallax-lab`: the demo, and the lab's own tools.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand, ValueEnum};
use parallax_tests::bench;
use parallax_tests::demo::chaos::Blow;
use parallax_tests::demo::{self, Script};
use parallax_tests::detection::{self, DetectionOptions};
use parallax_tests::lab::coordinators::Setting;
use parallax_tests::lab::enter::{self, Decision};
use parallax_tests::lab::layout::Kind;
use parallax_tests::lab::look::{self, LookOptions};
use parallax_tests::lab::self_check;
use parallax_tests::lab::servers::web::{self, WebOptions};
use parallax_tests::lab::world::World;
use parallax_tests::outer::{self, INTERRUPTED};
use parallax_tests::page::Page;
use parallax_tests::zoo::play;

#[derive(Parser)]
#[command(name = "parallax-lab", version, about = "The demo of Parallax, and the lab it runs in")]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Play both field cases and show how they are found, explained, repaired and healed.
    Demo(DemoOptions),
    /// Start the lab's network and servers and check who reaches what.
    World(WorldOptions),
    /// Measure how long detection takes on real sockets (P11).
    Detection {
        /// What to measure.
        #[command(flatten)]
        options: DetectionOptions,
        /// The world that it is in, when already inside.
        #[arg(long, value_enum, requires = "inside", hide = true)]
        world: Option<Wanted>,
        /// Directory of the run, when already inside.
        #[arg(long, hide = true)]
        inside: Option<PathBuf>,
    },
    /// Everything that can go wrong in a lab, at once: each case must show its verdict.
    Zoo(ZooOptions),
    /// Measure what the agent costs.
    Bench {
        /// What to measure.
        #[command(subcommand)]
        what: bench::What,
        /// The network that it is in, when already inside.
        #[arg(long, value_enum, requires = "inside", global = true, hide = true)]
        world: Option<Wanted>,
        /// Directory of the run, when already inside.
        #[arg(long, global = true, hide = true)]
        inside: Option<PathBuf>,
    },
    /// A TLS web server of the lab.
    #[command(hide = true)]
    Web(WebOptions),
    /// What one place sees.
    #[command(hide = true)]
    Look(LookOptions),
    /// First process of the namespace world.
    #[command(hide = true)]
    Init {
        /// What to run.
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Wanted {
    /// Namespaces where the machine allows them.
    Auto,
    /// Namespaces or an error.
    Namespaces,
    /// 127.0.0.0/8.
    Loopback,
}

#[derive(clap::Args)]
struct WorldOptions {
    /// Which world.
    #[arg(long, value_enum, default_value = "auto")]
    world: Wanted,
    /// Keep the run's directory with its logs.
    #[arg(long)]
    keep: bool,
    /// Directory of the run, when already inside.
    #[arg(long, hide = true)]
    inside: Option<PathBuf>,
}

#[derive(clap::Args)]
struct ZooOptions {
    /// Which world; there is one of namespaces only.
    #[arg(long, value_enum, default_value = "namespaces")]
    world: Wanted,
    /// Keep the run's directory with logs and databases.
    #[arg(long)]
    keep: bool,
    /// Directory of the run, when already inside.
    #[arg(long, hide = true)]
    inside: Option<PathBuf>,
}

#[derive(clap::Args)]
struct DemoOptions {
    /// End after the story, with exit code 0 only if every step was seen in the database.
    #[arg(long)]
    once: bool,
    /// Print the timings as one JSON object (the timeline goes to standard error).
    #[arg(long)]
    json: bool,
    /// Which world.
    #[arg(long, value_enum, default_value = "auto")]
    world: Wanted,
    /// Keep the run's directory with logs and database.
    #[arg(long)]
    keep: bool,
    /// Port of the page on 127.0.0.1.
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// Strike a program in mid-story, `VICTIM@MOMENT`; for tests.
    #[arg(long = "blow", hide = true)]
    blows: Vec<String>,
    /// One coordinator, or two that share a database; for tests.
    #[arg(long, hide = true, value_enum, default_value = "one")]
    coordinators: Setting,
    /// Directory of the run, when already inside.
    #[arg(long, hide = true)]
    inside: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(Options::parse().command) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("parallax-lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<u8> {
    // Before any thread exists: the world is entered by a fresh process, and init must reap for everybody.
    if let Command::Init { command } = command {
        return enter::init(&command);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let code = runtime.block_on(run_async(command));
    // The thread that watches the lifeline never ends by itself.
    runtime.shutdown_background();
    code
}

async fn run_async(command: Command) -> Result<u8> {
    match command {
        Command::Demo(options) => demo(options).await,
        Command::World(options) => world(options).await,
        Command::Detection { options, world: _, inside } => detect(options, inside).await,
        Command::Zoo(options) => zoo(options).await,
        Command::Bench { what, world: _, inside } => measure(what, inside).await,
        Command::Web(options) => web::serve(options).await.map(|()| 0),
        Command::Look(options) => {
            println!("{}", serde_json::to_string(&look::here(options).await?)?);
            Ok(0)
        }
        Command::Init { .. } => bail!("init runs without a runtime"),
    }
}

/// Which world, as wanted and as possible.
fn decide(wanted: Wanted) -> Result<Decision> {
    match wanted {
        Wanted::Auto => Ok(enter::decide()),
        Wanted::Loopback => Ok(Decision { kind: Kind::Loopback, reason: "asked for".to_owned() }),
        Wanted::Namespaces => {
            let decision = enter::decide();
            if decision.kind == Kind::Loopback {
                bail!("the namespace world was asked for, but {}", decision.reason);
            }
            Ok(decision)
        }
    }
}

fn inside_kind(wanted: Wanted) -> Result<Kind> {
    match wanted {
        Wanted::Namespaces => Ok(Kind::Namespaces),
        Wanted::Loopback => Ok(Kind::Loopback),
        Wanted::Auto => bail!("--inside needs --world"),
    }
}

/// The bench is in a network of its own always, and does without a world.
async fn measure(what: bench::What, inside: Option<PathBuf>) -> Result<u8> {
    let Some(directory) = inside else {
        let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
        return outer::run(&bench::ground::decide()?, &arguments, None, false).await;
    };
    tokio::select! {
        () = outer::told_to_stop() => {
            outer::remove(&directory);
            Ok(INTERRUPTED)
        }
        ended = bench::run(what, &directory) => ended.map(|()| 0),
    }
}

/// In namespaces always: on loopback silence is made otherwise.
async fn detect(options: DetectionOptions, inside: Option<PathBuf>) -> Result<u8> {
    let Some(directory) = inside else {
        let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
        return outer::run(&decide(Wanted::Namespaces)?, &arguments, None, false).await;
    };
    let mut fleet = None;
    let told = tokio::select! {
        () = outer::told_to_stop() => None,
        measured = detection::run(&options, &directory, &mut fleet) => Some(measured),
    };
    // Postgres is stopped in order whatever was measured.
    if let Some(fleet) = &mut fleet {
        fleet.stop().await?;
    }
    match told {
        Some(measured) => measured.map(|()| 0),
        None => {
            outer::remove(&directory);
            Ok(INTERRUPTED)
        }
    }
}

async fn world(options: WorldOptions) -> Result<u8> {
    let Some(directory) = options.inside else {
        let decision = decide(options.world)?;
        let why = if decision.reason.is_empty() { String::new() } else { format!(" ({})", decision.reason) };
        println!("world: {}{why}", decision.kind.word());
        let arguments: Vec<OsString> =
            ["world"].into_iter().chain(options.keep.then_some("--keep")).map(OsString::from).collect();
        return outer::run(&decision, &arguments, None, options.keep).await;
    };
    let kind = inside_kind(options.world)?;
    tokio::select! {
        () = outer::told_to_stop() => {
            if !options.keep {
                outer::remove(&directory);
            }
            Ok(INTERRUPTED)
        }
        checked = check_world(kind, &directory) => checked,
    }
}

async fn check_world(kind: Kind, directory: &std::path::Path) -> Result<u8> {
    let start = parallax_tests::clock::now();
    let mut world = World::start(kind, directory).await.context("starting the world")?;
    println!("started in {:.2} s: {}", start.elapsed().as_secs_f64(), world.describe());
    let findings = self_check::run(&mut world).await?;
    findings.lines.iter().for_each(|line| println!("{line}"));
    let ended = world.ended();
    ended.iter().for_each(|e| println!("{e}"));
    world.stop().await?;
    println!("{} of the expectations did not hold", findings.failed);
    Ok(u8::from(findings.failed > 0 || !ended.is_empty()))
}

async fn zoo(options: ZooOptions) -> Result<u8> {
    let Some(directory) = options.inside else {
        let decision = decide(options.world)?;
        if decision.kind == Kind::Loopback {
            bail!("the zoo needs namespaces: {}", decision.reason);
        }
        let arguments = ["zoo"].into_iter().chain(options.keep.then_some("--keep")).map(OsString::from);
        return outer::run(&decision, &arguments.collect::<Vec<_>>(), None, options.keep).await;
    };
    let mut slot = None;
    let played = tokio::select! {
        () = outer::told_to_stop() => None,
        played = play::run(&directory, &mut slot) => Some(played),
    };
    if let Some(zoo) = &mut slot {
        zoo.stop().await?;
    }
    match played {
        Some(played) => played.map(|()| 0),
        None => {
            if !options.keep {
                outer::remove(&directory);
            }
            Ok(INTERRUPTED)
        }
    }
}

/// What the first line says about the world.
fn first_line(decision: &Decision) -> String {
    let world = match decision.kind {
        Kind::Namespaces if nix::unistd::geteuid().is_root() => {
            "world: namespaces, each vantage in a network of its own".to_owned()
        }
        Kind::Namespaces => "world: namespaces (of an ordinary user), each vantage in a network of its own".to_owned(),
        Kind::Loopback => format!("world: loopback, everything on 127.0.0.0/8 ({})", decision.reason),
    };
    format!("parallax demo - {world}; no packet leaves this machine; Ctrl-C removes everything")
}

async fn demo(options: DemoOptions) -> Result<u8> {
    let blows = options.blows.iter().map(|b| b.parse().map_err(|e| anyhow::anyhow!("--blow {b}: {e}")));
    let blows = blows.collect::<Result<Vec<Blow>>>()?;
    let Some(directory) = options.inside else {
        let decision = decide(options.world)?;
        let page = Page::bind(options.port).await?;
        let mut lines = vec![first_line(&decision)];
        lines.push("policy: fast (rounds of 5 s; nothing is accused on fewer than 3 failed probes over 3 s), TTL 5 s, dwell 20 s;".to_owned());
        lines.push("        a real deployment is more patient".to_owned());
        if page.moved {
            lines.push(format!("port {} is taken; the page is at {} instead", options.port, page.port));
        }
        for line in lines {
            if options.json { eprintln!("{line}") } else { println!("{line}") }
        }
        let mut arguments: Vec<OsString> = vec!["demo".into(), "--port".into(), page.port.to_string().into()];
        arguments.extend(
            [(options.once, "--once"), (options.json, "--json"), (options.keep, "--keep")]
                .iter()
                .filter(|(on, _)| *on)
                .map(|(_, a)| a.into()),
        );
        arguments.extend(options.blows.iter().flat_map(|b| ["--blow".into(), b.into()]));
        let setting = options.coordinators.to_possible_value().map(|value| value.get_name().to_owned());
        arguments.extend(["--coordinators".into(), setting.unwrap_or_default().into()]);
        return outer::run(&decision, &arguments, Some(page), options.keep).await;
    };
    let script = Script {
        kind: inside_kind(options.world)?,
        once: options.once,
        json: options.json,
        port: options.port,
        blows,
        coordinators: options.coordinators,
    };
    let mut fleet = None;
    let told = tokio::select! {
        () = outer::told_to_stop() => None,
        played = demo::run(&script, &directory, &mut fleet) => Some(played),
    };
    // Postgres is stopped in order whatever became of the story.
    if let Some(fleet) = &mut fleet {
        fleet.stop().await?;
    }
    match told {
        Some(played) => played.map(|()| 0),
        None => {
            if !options.keep {
                outer::remove(&directory);
            }
            Ok(INTERRUPTED)
        }
    }
}
