//! Runs seeds of the simulated fleet: one for its timeline, or many for the auditor.

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::Context as _;
use clap::Parser;
use parallax_sim::{HOURS, Report, Run, run};

use crate::clock::Stopwatch;
use crate::state::State;

mod clock;
mod state;

/// Seeds between two writes of the state and two lines of progress.
const CHUNK: usize = 32;

/// Violations of one seed that are printed.
const PRINTED_MAX: usize = 5;

/// A simulated fleet with faults, judged by Parallax and audited by what was really so.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Fleet-hours to run now, beside those that the state file has
    #[arg(long, default_value_t = 1000, conflicts_with = "seed")]
    hours: u64,
    /// Runs this one seed and prints its timeline
    #[arg(long)]
    seed: Option<u64>,
    /// File that keeps what was run so far; without it every call begins at seed 0
    #[arg(long)]
    state: Option<PathBuf>,
    /// Runs at the same time; 0: as many as there are processors
    #[arg(long, default_value_t = 0)]
    jobs: usize,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.seed {
        Some(seed) => replay(seed),
        None => soak(&arguments),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("parallax-sim: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the timeline of one seed. True: the auditor objects to nothing.
fn replay(seed: u64) -> anyhow::Result<bool> {
    let report = run(Run::of(seed))?;
    let mut out = std::io::stdout().lock();
    for line in &report.scenery {
        writeln!(out, "{line}")?;
    }
    for (at, what) in &report.timeline {
        writeln!(out, "{} {what}", parallax_sim::clock(*at))?;
    }
    writeln!(
        out,
        "{HOURS} h, {} changes, {} observations, judged {} times, {} violations",
        report.changes,
        report.observations,
        report.ticks,
        report.violations.len()
    )?;
    Ok(report.violations.is_empty())
}

/// Runs the next seeds. True: the auditor objects to none of this version's, also earlier ones.
fn soak(arguments: &Arguments) -> anyhow::Result<bool> {
    let mut state = State::load(arguments.state.as_deref())?;
    let jobs = match arguments.jobs {
        0 => thread::available_parallelism().map_or(1, usize::from),
        jobs => jobs,
    };
    let (begun, before) = (Stopwatch::start(), state.sums.hours);
    let mut detections: Vec<i64> = Vec::new();
    while state.sums.hours - before < arguments.hours {
        let left = (arguments.hours - (state.sums.hours - before)).div_ceil(u64::from(HOURS));
        let count = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
        let seeds: Vec<u64> = (state.sums.next_seed..).take(count).collect();
        for report in together(&seeds, jobs)? {
            state.sums.add(&report);
            detections.extend(&report.detections);
            for (at, what) in report.violations.iter().take(PRINTED_MAX) {
                println!("seed {} at {}: {what}", report.seed, parallax_sim::clock(*at));
            }
        }
        state.save()?;
        let done = state.sums.hours - before;
        progress(&format!(
            "{done} of {} h, {:.0} h/s; {} h in all, {} failovers, {} seeds objected to",
            arguments.hours,
            per_second(done, &begun),
            state.sums.hours,
            state.sums.failovers,
            state.sums.bad.len()
        ));
    }
    detections.sort_unstable();
    let part = |permille: usize| detections.get((detections.len().saturating_sub(1)) * permille / 1000).copied();
    let sums = &state.sums;
    println!(
        "{} fleet-hours of this version, {} now at {:.0} a second: {} failovers, {} changes, {} forced by a lie that nobody \
         could contradict, {} observations",
        sums.hours,
        sums.hours - before,
        per_second(sums.hours - before, &begun),
        sums.failovers,
        sums.changes,
        sums.lied,
        sums.observations
    );
    if let (Some(half), Some(most), Some(all)) = (part(500), part(950), part(1000)) {
        println!(
            "from death to changed record, seen by all, now: half within {half} ms, 95 % within {most} ms, all within {all} ms"
        );
    }
    if sums.bad.is_empty() {
        println!("the auditor objects to nothing");
    } else {
        let seeds: Vec<String> = sums.bad.iter().map(ToString::to_string).collect();
        println!("the auditor objects to the seeds {}; see each with --seed", seeds.join(", "));
    }
    Ok(sums.bad.is_empty())
}

/// Runs these seeds, so many at a time; the reports in their order.
fn together(seeds: &[u64], jobs: usize) -> anyhow::Result<Vec<Report>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut reports = Vec::new();
        while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
            reports.push(run(Run::of(*seed))?);
        }
        anyhow::Ok(reports)
    };
    let mut reports = thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(work)).collect();
        let mut all = Vec::new();
        for worker in workers {
            all.extend(worker.join().ok().context("a run broke down: a fault of the simulator or of the decisions")??);
        }
        anyhow::Ok(all)
    })?;
    reports.sort_by_key(|report| report.seed);
    Ok(reports)
}

/// One line that replaces the last one, where somebody watches.
fn progress(text: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r{text}\x1b[K");
    } else {
        eprintln!("{text}");
    }
}

#[allow(clippy::cast_precision_loss, reason = "a rate for people")]
fn per_second(hours: u64, begun: &Stopwatch) -> f64 {
    hours as f64 / begun.seconds().max(0.001)
}
