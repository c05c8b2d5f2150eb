//! Redeems a token, once or until it is done.

use std::time::Duration;

use super::refusal::failure;
use super::token::Token;
use crate::certificate::harmless;
use crate::clock;
use crate::entropy;
use crate::failure::Failure;
use crate::identity::folder::Folder;
use crate::identity::trusted::Trusted;
use crate::uplink::address::Coordinator;
use crate::uplink::backoff::{Backoff, Pace};
use crate::uplink::connector::Connector;
use crate::uplink::credentials::Credentials;
use crate::uplink::enrolment::{By, Enrolled, NotEnrolled, ask};
use crate::uplink::timing::Timing;
use crate::uplink::trouble::Trouble;

/// So often a person's `join` asks when an answer is lost or late.
const TRIES: u32 = 3;

/// A person does not wait longer than this between two tries.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// What joining needs.
#[derive(Debug)]
pub struct Joining {
    /// What proves that we may.
    pub token: Token,
    /// Where the identity is to be.
    pub folder: Folder,
    /// Coordinators that the owner named: asked before those of the token.
    pub coordinators: Vec<Coordinator>,
    /// How they are reached.
    pub connector: Connector,
    /// How patient it is.
    pub timing: Timing,
}

/// What came of it.
#[derive(Debug)]
pub struct Joined {
    /// What was given, in the folder by now.
    pub enrolled: Enrolled,
    /// By whom.
    pub coordinator: Coordinator,
}

impl Joining {
    /// Asks each coordinator once.
    ///
    /// # Errors
    /// Of all that was tried, the one that says most.
    pub async fn once(&mut self) -> Result<Joined, NotEnrolled> {
        let key = self.folder.pending_key()?;
        let with = Credentials::pinned(self.token.authority_sha256);
        let with = with.map_err(|error| NotEnrolled::Trouble(Trouble::Own(error.to_string())))?;
        let mut worst = None;
        let named = self.coordinators.iter().filter(|one| !self.token.coordinators.contains(one));
        for to in named.chain(&self.token.coordinators) {
            let by = By::Token(self.token.secret());
            match ask(&mut self.connector, to, &with, (by, &key), &self.timing).await {
                Ok(mut enrolled) => {
                    if enrolled.trusted.coordinators.is_empty() {
                        let coordinators = self.token.coordinators.clone();
                        enrolled.trusted = Trusted { coordinators, ..enrolled.trusted };
                    }
                    enrolled.keep(&self.folder, &key)?;
                    return Ok(Joined { enrolled, coordinator: to.clone() });
                }
                Err(refused @ NotEnrolled::Refused { .. }) => return Err(refused),
                Err(not) => {
                    if worst.as_ref().is_none_or(|held| tells(held) < tells(&not)) {
                        worst = Some(not);
                    }
                }
            }
        }
        Err(worst.unwrap_or_else(|| NotEnrolled::Answer("the token names no coordinator".to_owned())))
    }

    /// As somebody who waits for it wants it: an answer that was lost is asked for again.
    ///
    /// # Errors
    /// What to tell them.
    pub async fn now(&mut self) -> Result<Joined, Failure> {
        for _ in 1..TRIES {
            match self.once().await {
                Err(NotEnrolled::Later { pace, .. }) => {
                    let asked = if let Pace::Asked(asked) = pace { asked } else { Duration::from_secs(1) };
                    tokio::time::sleep(asked.min(WAIT_MAX)).await;
                }
                ended => return ended.map_err(|not| self.failure(&not)),
            }
        }
        self.once().await.map_err(|not| self.failure(&not))
    }

    /// As an agent does that nobody watches: until it is joined, or refused. Keeps its key all the while,
    /// and waits longer where only a person can help.
    ///
    /// # Errors
    /// When the coordinator refuses for good.
    pub async fn patiently(&mut self) -> Result<Joined, Failure> {
        let mut backoff = Backoff::new(&self.timing);
        loop {
            let not = match self.once().await {
                Ok(joined) => return Ok(joined),
                Err(not) => not,
            };
            let failure = self.failure(&not);
            if matches!(not, NotEnrolled::Refused { .. }) {
                return Err(failure);
            }
            let wait = backoff.wait(pace(&not), Duration::ZERO, entropy::below);
            if backoff.failures().is_power_of_two() {
                tracing::warn!(
                    reason = failure.word,
                    failures = backoff.failures(),
                    retry_in_ms = clock::millis(wait),
                    "not joined yet: {failure:#}"
                );
            }
            tokio::time::sleep(wait).await;
        }
    }

    fn failure(&self, not: &NotEnrolled) -> Failure {
        failure(not, &harmless(self.token.vantage()))
    }
}

fn pace(not: &NotEnrolled) -> Pace {
    match not {
        NotEnrolled::Trouble(trouble) => trouble.pace(),
        NotEnrolled::Later { pace, .. } => *pace,
        NotEnrolled::Refused { .. } | NotEnrolled::Clock { .. } | NotEnrolled::NotOffered | NotEnrolled::Answer(_) => {
            Pace::Slow
        }
    }
}

/// Of several coordinators' answers the one that says most is told: who got further.
fn tells(not: &NotEnrolled) -> (u8, u8) {
    match not {
        NotEnrolled::Trouble(trouble) => (0, trouble.tells()),
        NotEnrolled::Later { .. } => (1, 0),
        NotEnrolled::NotOffered => (2, 0),
        NotEnrolled::Answer(_) => (3, 0),
        NotEnrolled::Clock { .. } => (4, 0),
        NotEnrolled::Refused { .. } => (5, 0),
    }
}
