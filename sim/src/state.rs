//! What has been run so far of one version of the decisions: kept, so that a stopped soak goes on.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use parallax_sim::{HOURS, Report};

/// Sums over all runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Sums {
    /// The first seed that has not been run.
    pub(crate) next_seed: u64,
    /// Fleet-hours.
    pub(crate) hours: u64,
    /// Failovers away from dead nodes.
    pub(crate) failovers: u64,
    /// Changes of the record, returns included.
    pub(crate) changes: u64,
    /// Changes that a lie forced where nobody could contradict it.
    pub(crate) lied: u64,
    /// Observations folded.
    pub(crate) observations: u64,
    /// Seeds that the auditor objects to.
    pub(crate) bad: BTreeSet<u64>,
}

impl Sums {
    /// Adds one run, which was the next.
    pub(crate) fn add(&mut self, report: &Report) {
        self.next_seed = self.next_seed.max(report.seed + 1);
        self.hours += u64::from(HOURS);
        self.failovers += u64::from(report.failovers);
        self.changes += u64::from(report.changes);
        self.lied += u64::from(report.lied);
        self.observations += report.observations;
        if !report.violations.is_empty() {
            self.bad.insert(report.seed);
        }
    }
}

/// The file of one version.
#[derive(Debug)]
pub(crate) struct State {
    path: Option<PathBuf>,
    /// The sums in it.
    pub(crate) sums: Sums,
}

impl State {
    /// Reads it, or begins.
    ///
    /// # Errors
    /// The file cannot be read, or is none of ours.
    pub(crate) fn load(path: Option<&Path>) -> anyhow::Result<Self> {
        let mut sums = Sums::default();
        let Some(path) = path else { return Ok(Self { path: None, sums }) };
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        for line in text.lines() {
            let (word, value) = line.split_once(' ').unwrap_or((line, "0"));
            let number: u64 = value.parse().with_context(|| {
                format!("{} holds '{line}', which is no number: remove the file to begin anew", path.display())
            })?;
            match word {
                "next_seed" => sums.next_seed = number,
                "hours" => sums.hours = number,
                "failovers" => sums.failovers = number,
                "changes" => sums.changes = number,
                "lied" => sums.lied = number,
                "observations" => sums.observations = number,
                "bad" => drop(sums.bad.insert(number)),
                _ => {
                    anyhow::bail!("{} holds '{word}', which is unknown: remove the file to begin anew", path.display())
                }
            }
        }
        Ok(Self { path: Some(path.to_owned()), sums })
    }

    /// Writes it, whole or not at all.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn save(&self) -> anyhow::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let Sums { next_seed, hours, failovers, changes, lied, observations, bad } = &self.sums;
        let mut text = String::new();
        for (word, number) in [
            ("next_seed", next_seed),
            ("hours", hours),
            ("failovers", failovers),
            ("changes", changes),
            ("lied", lied),
            ("observations", observations),
        ] {
            writeln!(text, "{word} {number}")?;
        }
        for seed in bad {
            writeln!(text, "bad {seed}")?;
        }
        let new = path.with_extension("new");
        fs::write(&new, text)
            .and_then(|()| fs::rename(&new, path))
            .with_context(|| format!("cannot write {}: is there room, and may it be written?", path.display()))
    }
}
