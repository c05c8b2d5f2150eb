//! P11: how long detection takes on real sockets, beside what the run's own phases allow.
//!
//! `./x bench detection` makes the lab's world with the three agents and a coordinator that only observes, and lets
//! faults happen at moments that have nothing to do with the agents' grids. [`trial`] makes one and waits for its verdict;
//! [`theory`] says when it could have come at the earliest, from when the probes of that very fault began; [`report`] makes
//! figures of all.
//!
//! With policy `default` all three machines of the lab go dark and come back, each at a moment of its own; with `fast` the
//! branch is handed addresses that it has no path to.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use self::theory::Rule;
use self::trial::{Moments, Trial, black_hole, dark_nodes};
use crate::lab::configuration::Stance;
use crate::lab::coordinators::Setting;
use crate::lab::fleet::Fleet;
use crate::lab::layout::Kind;
use crate::lab::world::World;

pub mod report;
pub mod theory;
pub mod trial;

/// Which policy, and so which fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Patience {
    /// Policy `default`: machines that go dark.
    Default,
    /// Policy `fast`: addresses without a path from one vantage.
    Fast,
}

impl Patience {
    /// What the coordinator is told.
    #[must_use]
    pub fn stance(self) -> Stance {
        match self {
            // Agents that have just begun have too few controls to show how seldom they fail (verdicts.md 6): after 20 minutes
            // without a failure it is 3.
            Self::Default => Stance { policy: "policy: default\npolicy_overrides: { k_max: 3 }", mode: "observe" },
            Self::Fast => Stance { policy: "policy: fast", mode: "observe" },
        }
    }

    /// The policy's figures that theory needs.
    #[must_use]
    pub fn rule(self) -> Rule {
        let ms = Duration::from_millis;
        match self {
            Self::Default => Rule { limit: ms(3000), gaps: [ms(0), ms(2000)], tries: 3, apart: ms(3550) },
            Self::Fast => Rule { limit: ms(1000), gaps: [ms(250), ms(1000)], tries: 3, apart: ms(1550) },
        }
    }

    /// Between two beginnings of what finds the fault.
    #[must_use]
    pub fn round(self) -> Duration {
        match self {
            Self::Default => Duration::from_secs(20),
            Self::Fast => Duration::from_secs(5),
        }
    }
}

/// Options of `bench detection`.
#[derive(Debug, Clone, clap::Args)]
pub struct DetectionOptions {
    /// Which policy, and so which fault.
    #[arg(long, value_enum, default_value = "default")]
    pub policy: Patience,
    /// How often. With `default` three machines go dark each time, and it takes about a minute; with `fast` an address that is
    /// still known dead from the time before is not counted, so most of what counts is the first.
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub cycles: u32,
    /// One JSON object a line.
    #[arg(long)]
    pub json: bool,
}

/// Runs it in `directory`, inside the world of namespaces.
///
/// # Errors
/// The world does not start, or a verdict does not come.
pub async fn run(options: &DetectionOptions, directory: &Path, fleet_slot: &mut Option<Fleet>) -> Result<()> {
    let mut world = World::start(Kind::Namespaces, directory).await.context("starting the lab")?;
    let stance = options.policy.stance();
    let fleet = Fleet::start(&world, Setting::One, stance, |part, what| eprintln!("bench: {part}: {what}")).await?;
    let fleet = fleet_slot.insert(fleet);
    let database = fleet.database().await?;
    let (mut trials, mut moments) = (Vec::<Trial>::new(), Moments::default());
    for cycle in 1..=options.cycles {
        let made = match options.policy {
            Patience::Default => dark_nodes(&mut world, &database, options.policy, &mut moments).await,
            Patience::Fast => black_hole(&mut world, &database, options.policy, &mut moments).await,
        };
        let made = made.with_context(|| format!("cycle {cycle}\n{}", fleet.log_tails()))?;
        for trial in &made {
            eprintln!(
                "bench: cycle {cycle}: {} found after {:.2} s, {:.2} s at the earliest",
                trial.what, trial.took_s, trial.theory_s
            );
        }
        trials.extend(made);
    }
    database.close().await;
    report::figures(options.policy, &trials).iter().try_for_each(|figure| Ok(figure.print(options.json)?))
}
