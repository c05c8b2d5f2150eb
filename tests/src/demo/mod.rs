//! The demo: both field cases, found, explained, repaired and healed, with real times.
//!
//! [`stage`] holds the world, our programs and the timeline, and waits for rows; [`rows`] is what it asks the database;
//! [`unroutable`] is story 1, [`dead_node`] story 2; [`checks`] looks at the whole log afterwards; [`report`] is what
//! `--json` prints; [`chaos`] strikes programs in mid-story and [`takeover`] the holder of the lease, for the end-to-end
//! tests.

pub mod chaos;
pub mod checks;
pub mod dead_node;
pub mod report;
pub mod rows;
pub mod stage;
pub mod takeover;
pub mod unroutable;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use self::chaos::Blow;
use self::report::Report;
use self::stage::Stage;
use crate::lab::configuration::Stance;
use crate::lab::coordinators::Setting;
use crate::lab::fleet::Fleet;
use crate::lab::layout::Kind;
use crate::lab::world::World;

/// How a run of the demo differs from the default.
#[derive(Debug, Clone)]
pub struct Script {
    /// How the places are separated.
    pub kind: Kind,
    /// End after the story, with success only if everything was seen.
    pub once: bool,
    /// Print the report as JSON on standard output; the timeline goes to standard error.
    pub json: bool,
    /// Port of the page on the host.
    pub port: u16,
    /// What is struck, and when.
    pub blows: Vec<Blow>,
    /// How many coordinators there are, and on what.
    pub coordinators: Setting,
}

/// Runs the stories in `directory`, inside the world; without `once` stays until it is dropped.
///
/// # Errors
/// The world does not start, something expected is not seen in time, or a check of the log fails.
pub async fn run(script: &Script, directory: &Path, fleet_slot: &mut Option<Fleet>) -> Result<()> {
    let timeline = stage::Timeline::start(script.json);
    let world = World::start(script.kind, directory).await.context("starting the lab")?;
    timeline.part("lab", "BIND, dnsdist, three Unbounds, six TLS web servers: answering");
    // The database's first start is part of what a newcomer waits for.
    let begun = crate::clock::now();
    let fleet =
        Fleet::start(&world, script.coordinators, Stance::ACTING, |part, what| timeline.part(part, &what)).await?;
    // A cluster's is not: it is there before.
    let started = if script.coordinators == Setting::One { begun } else { crate::clock::now() };
    timeline.part("page", &format!("http://127.0.0.1:{}", script.port));
    let fleet = fleet_slot.insert(fleet);
    let mut stage = Stage::new(world, fleet, timeline, script.blows.clone(), started).await?;

    let mut report = Report::new(script.kind);
    report.first_verdict_s = Some(stage.first_verdict().await?);
    stage.all_usable().await?;
    let unroutable = unroutable::play(&mut stage, &mut report).await?;
    let dead_node = dead_node::play(&mut stage, &mut report).await?;
    stage.quiet_end().await?;
    let failed = checks::run(&mut stage, [unroutable, dead_node]).await?;
    report.peaks(stage.fleet.peak_rss_kib());
    report.takeovers_s.clone_from(&stage.takeovers_s);
    if script.json {
        println!("{}", report.to_json()?);
    }
    stage.timeline.note(&report.summary());
    if failed > 0 {
        bail!("{failed} checks of the log failed");
    }
    if !script.once {
        let state = stage.fleet.state().to_owned();
        stage.timeline.note(&where_to_look(script.port, &state, [unroutable, dead_node])?);
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            stage.still_running()?;
        }
    }
    Ok(())
}

/// Where a reader goes on by himself.
fn where_to_look(port: u16, state: &Path, [first, second]: [i64; 2]) -> Result<String> {
    let parallax: PathBuf = crate::lab::programs::ours("parallax")?;
    let (parallax, state) = (parallax.display(), state.display());
    Ok(format!(
        "look around (Ctrl-C removes everything):\n  \
         http://127.0.0.1:{port}/        the matrix, live;  /i/{first} and /i/{second}: the incidents\n  \
         {parallax} explain incident {first} --state {state}\n  \
         {parallax} explain incident {second} --state {state}\n  \
         psql -h {state}/pg/socket -U parallax parallax"
    ))
}
