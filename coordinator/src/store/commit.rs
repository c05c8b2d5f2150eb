//! One transaction that stores what many agents sent: exactly once, gaps noted, refusals counted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use parallax_decide::observation::Lane;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::StoreError;
use super::condition::{self, Condition};
use super::cursor::{self, Gap, Numbering};
use super::log::{self, NewObservation, Stored};
use super::refusal::{self, Refused};
use super::vantage::VantageId;

/// Serialises writers of the log, so that ids rise in commit order: a reader that has seen an id
/// never finds a lower one later.
const LOCK_KEY: i64 = 0x7061_7261_0003;

/// How long a writer waits for the others: less than the committer gives a whole transaction.
const WRITERS_LOCK_WITHIN: &str = "10s";

/// Channel on which a commit is told, with the highest id as payload.
pub const OBSERVATIONS_CHANNEL: &str = "observations";

/// What one agent sent in one batch, after validation.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// Who sent it.
    pub vantage: VantageId,
    /// The start of the agent that numbered it.
    pub boot: Uuid,
    /// Which of its numberings.
    pub lane: Lane,
    /// When it arrived here, monotonic: the wait until the commit is added to each age.
    pub received: Instant,
    /// The batch, by rising sequence number.
    pub items: Vec<Item>,
    /// Refusals without a number, or of whole messages; counted each time they come.
    pub stray: Vec<Refused>,
}

impl Delivery {
    fn numbering(&self) -> Numbering {
        (self.vantage, self.boot, self.lane)
    }
}

/// One number of a batch.
#[derive(Debug, Clone)]
pub struct Item {
    /// Its number.
    pub sequence: i64,
    /// The observation, or why it is not taken.
    pub content: Result<NewObservation, Refused>,
}

/// What a commit did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Committed {
    /// Observations stored.
    pub stored: usize,
    /// Numbers that were known already.
    pub known: usize,
    /// Numbers that never arrived.
    pub missing: u64,
}

/// Stores deliveries in one transaction. When it returns without error, all of them are durable.
///
/// # Errors
/// When the database refuses; then nothing of them is stored.
pub async fn commit(connection: &mut PgConnection, deliveries: &[Delivery]) -> Result<Committed, StoreError> {
    let mut transaction = connection.begin().await?;
    // Together, in one word with the server. Nobody writes for longer than a moment: past that, whoever holds the lock
    // hangs, and the wait must end before the caller takes this session for dead.
    sqlx::query!(
        "select set_config('lock_timeout', $2, true), pg_advisory_xact_lock($1)",
        LOCK_KEY,
        WRITERS_LOCK_WITHIN
    )
    .fetch_one(&mut *transaction)
    .await?;
    let numbered = deliveries.iter().filter(|delivery| !delivery.items.is_empty());
    let mut numberings: Vec<Numbering> = numbered.map(Delivery::numbering).collect();
    numberings.sort_unstable();
    numberings.dedup();
    let cursors = cursor::lock(&mut transaction, &numberings).await?;
    let mut sorted = sort_out(deliveries, cursors);
    let receipt = log::receipt(&mut transaction, sorted.new.len()).await?;
    sorted.wait_until_now();
    let newest = log::insert(&mut transaction, &receipt, &sorted.new).await?;
    cursor::record_gaps(&mut transaction, &sorted.gaps).await?;
    refusal::count(&mut transaction, &sorted.refused).await?;
    cursor::advance(&mut transaction, &sorted.cursors).await?;
    condition::record(&mut transaction, &sorted.conditions).await?;
    let vantages: BTreeSet<i16> = deliveries.iter().map(|delivery| delivery.vantage.0).collect();
    let vantages: Vec<i16> = vantages.into_iter().collect();
    sqlx::query!(
        "update vantage set last_seen_at = clock_timestamp()
         where id = any($1) and (last_seen_at is null or last_seen_at < clock_timestamp() - interval '5 seconds')",
        &vantages
    )
    .execute(&mut *transaction)
    .await?;
    if let Some(newest) = newest {
        sqlx::query!("select pg_notify($1, $2)", OBSERVATIONS_CHANNEL, newest.0.to_string())
            .execute(&mut *transaction)
            .await?;
    }
    transaction.commit().await?;
    Ok(Committed { stored: sorted.new.len(), known: sorted.known, missing: sorted.missing })
}

struct Sorted<'a> {
    new: Vec<Stored<'a>>,
    /// When each of them arrived here.
    received: Vec<Instant>,
    refused: Vec<Refused>,
    gaps: Vec<Gap>,
    cursors: BTreeMap<Numbering, i64>,
    conditions: BTreeMap<VantageId, Condition>,
    known: usize,
    missing: u64,
}

impl Sorted<'_> {
    /// Adds the time that each waited here: it is older by that now, and perhaps history.
    fn wait_until_now(&mut self) {
        for (stored, received) in self.new.iter_mut().zip(&self.received) {
            stored.waited = received.elapsed();
        }
        for stored in self.new.iter().filter(|stored| !stored.is_late()) {
            self.conditions.entry(stored.numbering.0).or_default().take(stored.observation);
        }
    }
}

/// Which of the numbers are new, which are known, and which are missing.
fn sort_out(deliveries: &[Delivery], cursors: BTreeMap<Numbering, i64>) -> Sorted<'_> {
    let conditions = BTreeMap::new();
    let (new, refused, gaps) = (Vec::new(), Vec::new(), Vec::new());
    let received = Vec::new();
    let mut sorted = Sorted { new, received, refused, gaps, cursors, conditions, known: 0, missing: 0 };
    for delivery in deliveries {
        let numbering = delivery.numbering();
        sorted.refused.extend(delivery.stray.iter().cloned());
        if delivery.items.is_empty() {
            continue;
        }
        let cursor = sorted.cursors.entry(numbering).or_insert(0);
        for item in &delivery.items {
            if item.sequence <= *cursor {
                sorted.known += 1;
                continue;
            }
            if item.sequence > *cursor + 1 {
                sorted.gaps.push(Gap { numbering, first: *cursor + 1, last: item.sequence - 1 });
                sorted.missing = sorted.missing.saturating_add(item.sequence.abs_diff(*cursor + 1));
            }
            *cursor = item.sequence;
            match &item.content {
                Ok(observation) => {
                    let waited = Duration::ZERO;
                    sorted.received.push(delivery.received);
                    sorted.new.push(Stored { numbering, sequence: item.sequence, waited, observation });
                }
                Err(refused) => sorted.refused.push(refused.clone()),
            }
        }
    }
    sorted
}
