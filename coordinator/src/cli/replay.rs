//! `parallax replay`: the stored log once more, beside what really happened; with a policy, a rehearsal of it.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::database::Database;
use super::progress::Progress;
use super::reading::{Shown, connect_to_read, failed};
use super::{Global, print, print_json, when};
use crate::config::rehearsal;
use crate::error::{Exit, Failure};
use crate::replay::{self, Asked, ReplayError, STEP};
use crate::report::replay as report;
use crate::store::database_now;

/// `parallax replay`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  parallax replay --from '2026-10-26 13:50' --to '2026-10-26 14:50'
  parallax replay --from 7d --policy careful.yaml       # a file with `policy:` and `policy_overrides:`
  parallax replay --from 30d --step 1s --csv > replay.csv

Nothing is written, to the database or to anybody's DNS. Exit codes: 3 no log of that time, 5 no database.")]
pub struct Replay {
    /// Begin: a time such as '2026-10-26 14:02', or so long ago, such as 7d.
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    pub from: String,
    /// End.
    #[arg(long, value_name = "T", default_value = "now", allow_hyphen_values = true)]
    pub to: String,
    /// Rehearse the policy of this file as well: a whole configuration, or `policy:` and `policy_overrides:` alone.
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// How often judging happens when nothing is new [default: 250ms, as live].
    #[arg(long, value_name = "SPAN", value_parser = step)]
    pub step: Option<Duration>,
    /// Answer as CSV: one row an incident and one a change.
    #[arg(long, conflicts_with_all = ["json", "output"])]
    pub csv: bool,
    /// Which database.
    #[command(flatten)]
    pub database: Database,
    /// How it is shown.
    #[command(flatten)]
    pub shown: Shown,
}

/// Longest step: what is due in between is seen late by as much.
const STEP_MAX: Duration = Duration::from_secs(3600);

fn step(text: &str) -> Result<Duration, String> {
    let ms = text.strip_suffix("ms").and_then(|number| number.parse().ok()).map(Duration::from_millis);
    let step = ms.map_or_else(|| crate::span::any(text), Ok)?;
    if step < Duration::from_millis(50) || step > STEP_MAX {
        return Err("a step is 50ms to 1h".to_owned());
    }
    Ok(step)
}

/// Runs it.
///
/// # Errors
/// Exit code 2 for a span or a policy that cannot be, 3 when there is no log of it, 5 when the database cannot be reached.
pub async fn run(command: Replay, global: &Global) -> Result<(), Failure> {
    let style = command.shown.style();
    let policy = command.policy.as_deref().map(rehearsal::load).transpose().map_err(Failure::from)?;
    let mut connection = connect_to_read(&command.database).await?;
    let now = database_now(&mut connection).await.map_err(failed)?;
    let (from, to) = when::between((&command.from, &command.to), &style.zone, now)?;
    let asked = Asked { from, to, policy, step: command.step.unwrap_or(STEP) };
    let mut progress = Progress::new(from, to);
    let outcome = replay::run(&mut connection, &asked, &mut |moment| progress.at(moment)).await;
    progress.end();
    let outcome = outcome.map_err(|error| refused(error, &style.zone))?;
    let file = command.policy.as_ref().map(|path| path.display().to_string());
    let replay = report::Replay::of(&asked, &outcome, file, &style.zone);
    if global.json {
        print_json(&json!(replay))
    } else if command.csv {
        print(&report::csv(&replay))
    } else {
        print(&report::text(&replay, &style))
    }
}

fn refused(error: ReplayError, zone: &crate::report::moment::Zone) -> Failure {
    let why = error.to_string();
    let failure = Failure::new(Exit::NotFound, "there is nothing to replay");
    match error {
        ReplayError::Store(error) => failed(error),
        ReplayError::Empty => failure.why(why).fix("start the coordinator (parallax serve) and let an agent join"),
        ReplayError::NoLog { begins } => failure
            .why(format!(
                "the log begins at {}; what was before is gone by retention or was never measured",
                zone.date_time(begins)
            ))
            .fix("give a later --from and --to; incidents and verdicts of before are still in parallax timeline"),
        ReplayError::NoConfiguration => failure.why(why).fix("start the coordinator once: it stores its configuration"),
    }
}
