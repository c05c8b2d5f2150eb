//! The first results: the assignment, and one look at its first names, in the words of `probe`.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use futures_util::future::join_all;

use super::Join;
use crate::assignment::kept::Kept;
use crate::assignment::{Assignment, Resolver, Transport};
use crate::by_hand::{look, told};
use crate::clock::{self, Instant, now};
use crate::site::Site;
use crate::uplink::address::Coordinator;
use crate::uplink::connector::Connector;
use crate::uplink::credentials::Credentials;
use crate::uplink::glance::glance;
use crate::uplink::timing::Timing;

/// Longest wait for the assignment.
const ASSIGNMENT_MAX: Duration = Duration::from_secs(20);

/// How often a running agent's state folder is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// Names that are looked at: enough to show that it works.
const NAMES_MAX: usize = 4;

/// What was measured first.
#[derive(Debug)]
pub struct First {
    seen: Vec<look::Seen>,
    /// Why nothing was; empty when something was.
    why_not: String,
    took: Duration,
}

/// Waits for the assignment (the running agent's, or asked for here) and looks once.
pub async fn look(
    site: &Site,
    options: &Join,
    (held, connector, coordinator): (&Credentials, &mut Connector, &Coordinator),
    runs: bool,
) -> First {
    let begun = now();
    let kept = match runs {
        true => of_the_running_agent(&options.state, held, begun).await,
        false => {
            let kept = Kept::open(&options.state, &held.signers, &held.vantage);
            glance(connector, coordinator, held, &kept, &Timing::default()).await.map(|()| kept)
        }
    };
    let assignment = match kept {
        Ok(kept) => kept.follow().borrow().clone(),
        Err(why) => return First { seen: Vec::new(), why_not: why, took: clock::since(begun) },
    };
    let seen = match &assignment {
        Some(assignment) => of(site, assignment).await,
        None => Vec::new(),
    };
    let why_not = match seen.is_empty() {
        true => {
            "the coordinator has given this vantage no name to watch yet; see vantages: and canaries: in parallax.yaml"
                .to_owned()
        }
        false => String::new(),
    };
    First { seen, why_not, took: clock::since(begun) }
}

async fn of_the_running_agent(state: &Path, held: &Credentials, begun: Instant) -> Result<Kept, String> {
    while clock::since(begun) < ASSIGNMENT_MAX {
        let kept = Kept::open(state, &held.signers, &held.vantage);
        if kept.version() > 0 {
            return Ok(kept);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Err("the started agent has not got its assignment yet; see its log (journalctl -u parallax-agent) and parallax-agent status".to_owned())
}

async fn of(site: &Site, assignment: &Assignment) -> Vec<look::Seen> {
    let Ok(live) = "live".parse() else { return Vec::new() };
    let live = Resolver { name: live, transport: Transport::Live };
    let wanted: Vec<look::Wanted> = assignment
        .canaries
        .iter()
        .take(NAMES_MAX)
        .map(|canary| look::Wanted {
            name: canary.name.clone(),
            port: canary.port,
            tls: canary.tls,
            resolvers: vec![live.clone()],
        })
        .collect();
    join_all(wanted.iter().map(|wanted| look::look(site, wanted))).await
}

impl First {
    /// As lines for a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        if self.seen.is_empty() {
            return format!("No first results: {}\n", self.why_not);
        }
        let mut out = format!("First results in {} s:\n", self.took.as_secs());
        for seen in &self.seen {
            for (number, sentence) in told::sentences(seen).iter().enumerate() {
                let _ = writeln!(out, "{}{sentence}", if number == 0 { "  " } else { "    " });
            }
        }
        out
    }

    /// As part of a document.
    #[must_use]
    pub fn document(&self) -> serde_json::Value {
        let seen = self.seen.iter().map(|seen| {
            serde_json::json!({
                "name": seen.wanted.name.to_string(),
                "verdict": told::verdict(seen).word(),
                "says": told::sentences(seen),
            })
        });
        let why_not = Some(&self.why_not).filter(|why| !why.is_empty());
        serde_json::json!({ "seen": seen.collect::<Vec<_>>(), "why_not": why_not, "took_ms": clock::millis(self.took) })
    }
}
