//! The run: all is well, everything breaks at once, every case is seen in the rows, everything heals.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::case::{Case, Wanted, Watch};
use super::fault::{self, Fault};
use super::ground::Ground;
use super::installation::Installation;
use super::place::DARK;
use super::rows::Rows;
use super::{answers, doors, machines, network, servers, troubles};
use crate::clock::now;
use crate::lab::process::Process;

/// How often the databases are asked.
const POLL: Duration = Duration::from_millis(500);
// As long as a loaded machine may take; an idle one needs a sixth of it.
/// From the agents' start until everything is well.
const WELL_WITHIN: Duration = Duration::from_secs(180);
/// From the faults until every case is seen.
const SEEN_WITHIN: Duration = Duration::from_secs(180);
/// From the healing until everything is well again and every incident closed.
const HEALED_WITHIN: Duration = Duration::from_secs(180);

/// Every case that is staged.
#[must_use]
pub fn cases() -> Vec<Case> {
    [answers::cases(), machines::cases(), doors::cases(), troubles::cases()].concat()
}

/// The running zoo. Dropping it kills everything.
#[derive(Debug)]
pub struct Zoo {
    ground: Ground,
    servers: Vec<Process>,
    installations: BTreeMap<Watch, Installation>,
    cases: Vec<Case>,
}

/// Plays it in `directory`, inside the world.
///
/// # Errors
/// A program does not start, something is not well in time, or a case is not seen; the message names each.
pub async fn run(directory: &Path, slot: &mut Option<Zoo>) -> Result<()> {
    let start = now();
    let say = |what: String| println!("{:>6.1} s  {what}", start.elapsed().as_secs_f64());
    let zoo = slot.insert(Zoo::start(directory).await?);
    say(format!("{} servers and {} installations run", zoo.servers.len(), zoo.installations.len()));
    let problems = async |zoo: &Zoo, rows: &BTreeMap<Watch, Rows>| zoo.unwell(rows);
    zoo.until("everything well at first", WELL_WITHIN, None, problems).await?;
    say("everything is well".to_owned());

    zoo.break_everything().await?;
    say(format!("{} cases begin", zoo.cases.len()));
    let problems = async |zoo: &Zoo, rows: &BTreeMap<Watch, Rows>| zoo.unseen(rows);
    zoo.until("every case seen", SEEN_WITHIN, Some(DARK), problems).await?;
    for case in &zoo.cases {
        say(format!("{:<7} {}", case.id, shown(case)));
    }
    say(format!("all {} cases are seen at the same time", zoo.cases.len()));
    let surprises = zoo.surprises(&zoo.read().await?);
    if !surprises.is_empty() {
        bail!("what must not be:\n  {}", surprises.join("\n  "));
    }

    zoo.heal_everything().await?;
    say("everything heals".to_owned());
    let slow = |problem: &String| !SLOW.iter().any(|word| problem.contains(word));
    let problems = async |zoo: &Zoo, rows: &BTreeMap<Watch, Rows>| {
        [zoo.unwell(rows), open(rows)].concat().into_iter().filter(slow).collect()
    };
    zoo.until("everything well again", HEALED_WITHIN, None, problems).await?;
    say("everything is well again, every incident is closed but those of partial paths".to_owned());
    Ok(())
}

fn shown(case: &Case) -> String {
    let mut verdicts: Vec<String> = case.verdicts.iter().map(|w| format!("{w}: {}", w.verdict)).collect();
    verdicts.extend(case.incident.as_ref().map(|i| format!("incident {}: {}", i.key, i.kind)));
    verdicts.join("; ")
}

fn open(rows: &BTreeMap<Watch, Rows>) -> Vec<String> {
    let all = rows.values().flat_map(Rows::incidents).filter(|incident| incident.open);
    all.map(|incident| format!("incident {} ({}) is open", incident.key, incident.kind)).collect()
}

impl Zoo {
    async fn start(directory: &Path) -> Result<Self> {
        let ground = Ground::prepare(directory)?;
        network::build(&servers::addresses()).await.context("building the network")?;
        let servers = servers::start(&ground).await.context("starting the servers")?;
        let cases = cases();
        let before: Vec<Fault> = cases.iter().flat_map(|case| case.before.clone()).collect();
        network::break_ways(&ground, &before).await?;
        let starts = Watch::ALL.map(|watch| Installation::start(&ground, watch));
        let started = futures_util::future::try_join_all(starts).await?;
        let installations = Watch::ALL.into_iter().zip(started).collect();
        Ok(Self { ground, servers, installations, cases })
    }

    fn faults(&self) -> Vec<Fault> {
        self.cases.iter().flat_map(|case| case.faults.clone()).collect()
    }

    async fn break_everything(&mut self) -> Result<()> {
        let faults = self.faults();
        for watch in Watch::ALL.into_iter().filter(|watch| watch.places().contains(&DARK)) {
            self.installation(watch)?.kill_agent(DARK).await?;
        }
        network::break_ways(&self.ground, &faults).await?;
        servers::console(&self.ground, &fault::resolvers(&faults)).await
    }

    async fn heal_everything(&mut self) -> Result<()> {
        network::heal_ways().await?;
        servers::console(&self.ground, &["clearRules()".to_owned()]).await?;
        for watch in Watch::ALL.into_iter().filter(|watch| watch.places().contains(&DARK)) {
            let installation = self.installations.get_mut(&watch).context("there is no such installation")?;
            installation.restart_agent(&self.ground, DARK)?;
        }
        Ok(())
    }

    fn installation(&mut self, watch: Watch) -> Result<&mut Installation> {
        self.installations.get_mut(&watch).context("there is no such installation")
    }

    async fn read(&self) -> Result<BTreeMap<Watch, Rows>> {
        let mut all = BTreeMap::new();
        for (watch, installation) in &self.installations {
            all.insert(*watch, Rows::read(&installation.pool).await?);
        }
        Ok(all)
    }

    /// Waits until there are no problems any more.
    async fn until(
        &mut self,
        what: &str,
        limit: Duration,
        dark: Option<super::place::Place>,
        problems: impl AsyncFn(&Self, &BTreeMap<Watch, Rows>) -> Vec<String>,
    ) -> Result<()> {
        let since = now();
        loop {
            let left = problems(self, &self.read().await?).await;
            if left.is_empty() {
                return Ok(());
            }
            let mut ended: Vec<String> = self.servers.iter_mut().filter_map(Process::ended).collect();
            ended.extend(self.installations.values_mut().flat_map(|one| one.ended(dark)));
            if !ended.is_empty() {
                bail!("{what}: a program has ended\n{}", ended.join("\n"));
            }
            if since.elapsed() > limit {
                let surprises = self.surprises(&self.read().await?);
                let logs: String = self.installations.values().map(Installation::log_tail).collect();
                bail!(
                    "{what}: not within {limit:?}; {} left:\n  {}\nwhat must not be:\n  {}\n{logs}",
                    left.len(),
                    left.join("\n  "),
                    surprises.join("\n  ")
                );
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// What is not well, of everything that a case looks at.
    fn unwell(&self, rows: &BTreeMap<Watch, Rows>) -> Vec<String> {
        let each = || self.cases.iter().flat_map(|case| case.verdicts.iter().map(move |wanted| (case, wanted)));
        let problem = |(case, wanted): (&Case, &Wanted)| {
            let seen = rows.get(&case.by).and_then(|rows| rows.verdict(wanted));
            let as_ever =
                case.faults.is_empty() && FROM_THE_START.contains(&wanted.verdict) && seen == Some(wanted.verdict);
            let well = as_ever || seen.is_some_and(|word| WELL.contains(&word));
            (!well).then(|| format!("{}: {wanted}: {}", case.id, seen.unwrap_or("nothing")))
        };
        each().filter_map(problem).collect()
    }

    /// What is not yet as its case says.
    fn unseen(&self, rows: &BTreeMap<Watch, Rows>) -> Vec<String> {
        let mut left = Vec::new();
        for case in &self.cases {
            for wanted in &case.verdicts {
                let seen = rows.get(&case.by).and_then(|rows| rows.verdict(wanted));
                if seen != Some(wanted.verdict) {
                    let (id, verdict) = (case.id, wanted.verdict);
                    left.push(format!("{id}: {wanted}: {verdict} is wanted, {} came", seen.unwrap_or("nothing")));
                }
            }
            let incident = case.incident.as_ref();
            let lacks = incident.and_then(|wanted| rows.get(&case.by).and_then(|rows| rows.lacks(wanted)));
            left.extend(lacks.map(|what| format!("{}: {what}", case.id)));
        }
        left
    }

    /// Changes, and incidents that belong to no case.
    fn surprises(&self, rows: &BTreeMap<Watch, Rows>) -> Vec<String> {
        let mut surprises = Vec::new();
        for (watch, rows) in rows {
            let of_watch = || self.cases.iter().filter(|case| case.by == *watch);
            let known: BTreeSet<(&str, &str)> =
                of_watch().filter_map(|case| case.incident.as_ref()).map(|i| (i.key.as_str(), i.kind)).collect();
            let also: BTreeSet<&str> = of_watch().flat_map(|case| &case.also).map(String::as_str).collect();
            for incident in rows.incidents() {
                let (key, kind) = (incident.key.as_str(), incident.kind.as_str());
                if !known.contains(&(key, kind)) && !also.contains(key) {
                    surprises.push(format!("{}: incident {key} {kind}", watch.word()));
                }
            }
            surprises.extend(rows.changed().map(|plan| format!("{}: a change was made: {plan:?}", watch.word())));
        }
        surprises
    }

    /// Stops everything.
    ///
    /// # Errors
    /// The system refuses to kill a program.
    pub async fn stop(&mut self) -> Result<()> {
        for installation in self.installations.values_mut() {
            installation.stop().await?;
        }
        servers::stop(&mut self.servers).await
    }
}

/// Words of what is well.
const WELL: [&str; 6] = ["answer_ok", "answer_steered_by_vantage", "addr_ok", "endpoint_ok", "node_ok", "vantage_ok"];

/// Words of cases that are there from the start.
const FROM_THE_START: [&str; 2] = ["answer_family_unusable", "probe_misconfigured"];

/// Words of what heals by some forty good attempts, one a round: too long to be waited for. (A node that comes back while
/// several probes of it are under way may look like that too.)
const SLOW: [&str; 2] = ["node_path_partial", "addr_partial_path"];
