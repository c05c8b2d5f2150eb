//! A simulated fleet: thousands of streams over real mutual TLS that speak the real protocol, in one process.
//!
//! - [`agent`]: the life of one. [`queue`]: what it keeps until it is acknowledged. [`facts`]: what it reports.
//! - [`wire`]: its stream. [`identities`]: its certificate.
//! - [`tally`]: what all of them count.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::agent::{Agent, Pace, Setup};
use self::identities::Identities;
use self::tally::Tally;
use crate::clock;

pub mod agent;
pub mod facts;
pub mod identities;
pub mod queue;
pub mod tally;
pub mod wire;

/// Agents that share a source address: places behind one router, and far fewer than an address has ports.
const SHARING: u32 = 50;

/// How often a wait looks again.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A running fleet. Dropping it ends its streams at once.
pub struct Fleet {
    /// What it counts.
    pub tally: Arc<Tally>,
    pace: watch::Sender<Pace>,
    agents: JoinSet<(u64, u64)>,
}

/// The name of the vantage at this place.
#[must_use]
pub fn vantage(index: u32) -> String {
    format!("v{index:05}")
}

/// Where the agent at this place connects from: 127.1.0.1 and on.
fn source(index: u32) -> IpAddr {
    let network = u32::from(Ipv4Addr::new(127, 1, 0, 1));
    Ipv4Addr::from(network + index / SHARING).into()
}

impl Fleet {
    /// Starts agents that open their streams within about `spread`.
    ///
    /// # Errors
    /// An identity cannot be made.
    pub fn start(identities: &Identities, coordinator: SocketAddr, count: u32, spread: Duration) -> Result<Self> {
        let tally = Arc::new(Tally::default());
        let (pace, paces) = watch::channel(Pace::Idle);
        let mut agents = JoinSet::new();
        for index in 0..count {
            let setup = Setup {
                index: index.into(),
                source: source(index),
                coordinator,
                tls: identities.client(&vantage(index))?,
                tally: Arc::clone(&tally),
                pace: paces.clone(),
                spread,
            };
            agents.spawn(Agent::new(setup).live());
        }
        Ok(Self { tally, pace, agents })
    }

    /// How much it says from now on.
    pub fn pace(&self, pace: Pace) {
        self.pace.send_replace(pace);
    }

    /// Waits until `ready`; how long that took.
    ///
    /// # Errors
    /// Not within `limit`.
    pub async fn until(&self, what: &str, limit: Duration, ready: impl Fn(&Tally) -> bool) -> Result<Duration> {
        let start = clock::now();
        while !ready(&self.tally) {
            if start.elapsed() > limit {
                let read = Tally::read;
                let tally = &self.tally;
                bail!(
                    "{what}: not within {limit:?}; {} streams live, {} opened, {} failed, {} ended, {} rows wait",
                    read(&tally.live),
                    read(&tally.opened),
                    read(&tally.failed),
                    read(&tally.ended),
                    read(&tally.waiting)
                );
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(start.elapsed())
    }

    /// Ends the fleet when everything is acknowledged; how many rows it numbered.
    ///
    /// # Errors
    /// Not within `limit`, or an agent broke off.
    pub async fn end(mut self, limit: Duration) -> Result<u64> {
        self.pace(Pace::Ending);
        let ending = async {
            let mut rows = 0;
            while let Some(last) = self.agents.join_next().await {
                let (urgent, routine) = last.context("an agent broke off")?;
                rows += urgent + routine;
            }
            Ok(rows)
        };
        tokio::time::timeout(limit, ending).await.context("the fleet's last rows were not acknowledged in time")?
    }
}
