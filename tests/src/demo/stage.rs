//! The stage: world, programs and database of one run, the timeline that is printed, and waiting for things to happen.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use sqlx::PgPool;

use super::chaos::{Blow, Moment, Victim};
use super::{rows, takeover};
use crate::clock::now;
use crate::lab::atlas::{CANARIES, NODES, VANTAGES};
use crate::lab::fleet::Fleet;
use crate::lab::world::World;

/// How often the database is asked while waiting.
const POLL: Duration = Duration::from_millis(40);
/// A killed program stays dead this long before it is started again.
const DEAD_FOR: Duration = Duration::from_secs(1);
/// From the agents' start until every cell is usable.
const USABLE_WITHIN: Duration = Duration::from_secs(60);

/// Prints what happens, with the time since the start.
#[derive(Debug, Clone)]
pub struct Timeline {
    start: Instant,
    to_stderr: bool,
}

impl Timeline {
    /// Starts counting.
    #[must_use]
    pub fn start(to_stderr: bool) -> Self {
        Self { start: now(), to_stderr }
    }

    fn line(&self, text: &str) {
        // A reader who went away (`| head`) must not end the story before it has cleaned up.
        let _ =
            if self.to_stderr { writeln!(std::io::stderr(), "{text}") } else { writeln!(std::io::stdout(), "{text}") };
    }

    /// A part of the scenery is up.
    pub fn part(&self, part: &str, what: &str) {
        self.line(&format!("  ok  {part:<12} {what}"));
    }

    /// Something happened. `mark` is one letter wide in the margin.
    pub fn event(&self, mark: &str, text: &str) {
        let tenths = self.start.elapsed().as_millis() / 100;
        let (minutes, seconds, tenth) = (tenths / 600, tenths / 10 % 60, tenths % 10);
        self.line(&format!("{minutes:>2}:{seconds:02}.{tenth} {mark:<2} {text}"));
    }

    /// More about the last event.
    pub fn more(&self, text: &str) {
        self.line(&format!("           {text}"));
    }

    /// A paragraph.
    pub fn note(&self, text: &str) {
        self.line(&format!("\n{text}"));
    }
}

/// Everything a story acts on.
#[derive(Debug)]
pub struct Stage<'f> {
    /// The lab.
    pub world: World,
    /// Our programs.
    pub fleet: &'f mut Fleet,
    /// The coordinator's database.
    pub pool: PgPool,
    /// What is printed.
    pub timeline: Timeline,
    /// Seconds until another coordinator held the lease, for each stroke.
    pub takeovers_s: Vec<f64>,
    blows: Vec<Blow>,
    started: Instant,
}

impl<'f> Stage<'f> {
    /// Sets the stage; `started` is when the first of our programs was started.
    ///
    /// # Errors
    /// No server of the database takes writes.
    pub async fn new(
        world: World,
        fleet: &'f mut Fleet,
        timeline: Timeline,
        blows: Vec<Blow>,
        started: Instant,
    ) -> Result<Self> {
        let pool = fleet.database().await?;
        Ok(Self { world, fleet, pool, timeline, takeovers_s: Vec::new(), blows, started })
    }

    /// Waits until `look` finds something, and returns it with the seconds since `since`.
    ///
    /// # Errors
    /// Nothing is found within `limit`, or a program of the stage has ended. Errors of `look` count only when the time
    /// is up: a killed coordinator takes its connections with it.
    pub async fn until<T>(
        &mut self,
        what: &str,
        since: Instant,
        limit: Duration,
        mut look: impl AsyncFnMut(&mut Self) -> Result<Option<T>>,
    ) -> Result<(T, f64)> {
        loop {
            let looked = look(self).await;
            let elapsed = since.elapsed();
            let refused = match looked {
                Ok(Some(found)) => return Ok((found, elapsed.as_secs_f64())),
                Ok(None) => None,
                Err(error) => Some(error),
            };
            self.still_running()?;
            if elapsed > limit {
                let state = rows::describe(&self.pool).await.unwrap_or_else(|e| format!("  the database: {e:#}"));
                let last = refused.map_or_else(String::new, |e| format!("; the last look failed: {e:#}"));
                bail!("{what}: not seen within {limit:?}{last}\n{state}{}", self.fleet.log_tails());
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Nothing that should run has ended.
    ///
    /// # Errors
    /// Something has; the message carries its log's tail.
    pub fn still_running(&mut self) -> Result<()> {
        let ended = [self.world.ended(), self.fleet.ended()].concat();
        if ended.is_empty() { Ok(()) } else { Err(anyhow!("{}", ended.join("\n"))) }
    }

    /// A moment of the story has come: whoever is due is killed, and started again.
    ///
    /// # Errors
    /// A program does not come back.
    pub async fn moment(&mut self, moment: Moment) -> Result<()> {
        for blow in self.blows.clone().into_iter().filter(|b| b.moment == moment) {
            self.timeline.event("!", &format!("a blow to the {}", blow.victim));
            match blow.victim {
                Victim::Coordinator => {
                    self.fleet.coordinators().kill(0).await?;
                    tokio::time::sleep(DEAD_FOR).await;
                    self.fleet.coordinators().restart(&self.world.ground, 0).await?;
                }
                Victim::Primary => {
                    let seconds = takeover::fail_over(self).await?;
                    self.takeovers_s.push(seconds);
                }
                Victim::Holder(stroke) => {
                    let seconds = takeover::strike(self, stroke).await?;
                    self.takeovers_s.push(seconds);
                }
                Victim::Agent(place) => {
                    self.fleet.kill_agent(place).await?;
                    tokio::time::sleep(DEAD_FOR).await;
                    self.fleet.restart_agent(&self.world, place)?;
                }
            }
            self.timeline.event("!", &format!("the {} runs again", blow.victim));
        }
        Ok(())
    }

    /// Waits for the first verdict that compares vantages; seconds since our programs' start.
    ///
    /// # Errors
    /// It does not come.
    pub async fn first_verdict(&mut self) -> Result<f64> {
        let since = self.started;
        let look = async |stage: &mut Self| rows::first_comparison(&stage.pool).await;
        let (verdict, seconds) = self.until("a first verdict across vantages", since, USABLE_WITHIN, look).await?;
        self.timeline.event("o", &format!("first verdict across vantages: {verdict}"));
        Ok(seconds)
    }

    /// Waits until every canary is usable at every vantage and every node is well.
    ///
    /// # Errors
    /// They are not in time.
    pub async fn all_usable(&mut self) -> Result<()> {
        let since = self.started;
        let cells = CANARIES.len() * VANTAGES.len();
        let look = async |stage: &mut Self| {
            let (usable, well) = (rows::usable_cells(&stage.pool).await?, rows::nodes_ok(&stage.pool).await?);
            Ok((usable == cells && well == NODES.len()).then_some(()))
        };
        self.until("every canary usable everywhere and every node well", since, USABLE_WITHIN, look).await?;
        self.timeline.event("o", &format!("{cells}/{cells} cells usable, {0}/{0} nodes well", NODES.len()));
        Ok(())
    }

    /// Waits a little past the last step: a second change or a late incident would show now.
    ///
    /// # Errors
    /// Something ended.
    pub async fn quiet_end(&mut self) -> Result<()> {
        tokio::time::sleep(Duration::from_secs(2)).await;
        self.still_running()
    }
}
