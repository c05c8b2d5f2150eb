//! Stores the waiting batches of many agents in one transaction, and answers only then.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::Postgres;
use sqlx::pool::PoolConnection;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::standing::Cut;
use crate::hub::News;
use crate::room::Level;
use crate::state::App;
use crate::store::commit::{self, Committed, Delivery, Item};
use crate::store::refusal::Refused;
use crate::store::vantage::{self, VantageId};
use crate::store::{self, StoreError, partition};
use parallax_decide::observation::Lane;

/// Most observations of one transaction: a fraction of a second's work, and some megabytes in flight to the server.
const GROUP_ROWS_MAX: usize = 4096;

/// Most batches of one transaction, however small: each locks and moves a cursor.
const GROUP_BATCHES_MAX: usize = 2048;

/// Batches that wait for the next transaction; more wait in their streams, which are bounded together by
/// [`super::in_hand`].
const WAITING_MAX: usize = 2048;

/// How long a batch waits for others, so that thousands of small ones share a commit. What a verdict may rest on waits
/// hardly at all.
const LINGER_ROUTINE: Duration = Duration::from_millis(25);
/// The same for the urgent lane.
const LINGER_URGENT: Duration = Duration::from_millis(4);

/// Pauses between attempts while the database is away.
const RETRY_FIRST: Duration = Duration::from_millis(100);
/// The longest of them.
const RETRY_MAX: Duration = Duration::from_secs(2);

/// Longest a transaction may take before its connection counts as dead. The next one waits for the
/// locks of the first if that goes on after all, and then finds its numbers taken. Far more than a full transaction
/// takes on a slow disk, and far less than agents wait for an answer.
const COMMIT_WITHIN: Duration = Duration::from_secs(15);

struct Submission {
    delivery: Delivery,
    stored: Answer,
}

/// Takes deliveries.
#[derive(Debug, Clone)]
pub struct Committer(mpsc::Sender<Submission>);

/// Why a delivery was not stored, or not surely. The agent sends it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotStored {
    /// The coordinator is ending; perhaps it was stored.
    Ending,
    /// The database has no vantage under this key: it went back to before there was one. The agent connects again, and
    /// is then known by what there is now.
    Unknown,
}

impl Committer {
    /// Returns when the delivery is durable. While the database is away it waits.
    ///
    /// # Errors
    /// When the coordinator ends before, or the database does not know the vantage.
    pub async fn store(self, delivery: Delivery) -> Result<(), NotStored> {
        let (stored, done) = oneshot::channel();
        self.0.send(Submission { delivery, stored }).await.map_err(|_| NotStored::Ending)?;
        done.await.unwrap_or(Err(NotStored::Ending))
    }
}

/// Starts the one task that commits. It ends when every [`Committer`] is gone; after `shutdown` it
/// no longer waits for a database that is away.
pub fn start(app: Arc<App>, shutdown: CancellationToken) -> (Committer, JoinHandle<()>) {
    let (sender, mut waiting) = mpsc::channel::<Submission>(WAITING_MAX);
    let task = tokio::spawn(async move {
        let mut group = Group::default();
        let mut session = None;
        while group.gather(&mut waiting).await {
            let (mut deliveries, mut answers) = group.take();
            match store(&app, &mut session, (&mut deliveries, &mut answers), &shutdown).await {
                Ok(committed) => {
                    if committed.missing > 0 {
                        tracing::warn!(missing = committed.missing, "observations never arrived; the gap is recorded");
                    }
                    // A stream that has ended meanwhile takes no answer; the agent asks again.
                    for answer in answers {
                        let _ = answer.send(Ok(()));
                    }
                    app.hub.announce(News::Observations);
                }
                Err(error) => tracing::error!(%error, "ending with batches that are not stored; agents keep them"),
            }
        }
    });
    (Committer(sender), task)
}

/// To the stream that waits for a delivery.
type Answer = oneshot::Sender<Result<(), NotStored>>;

/// What the next transaction will hold.
#[derive(Default)]
struct Group {
    deliveries: Vec<Delivery>,
    answers: Vec<Answer>,
    rows: usize,
    /// When the first of them has lingered enough.
    until: Option<Instant>,
}

impl Group {
    /// Gathers batches until there are enough or the first one must go. False: no more will come.
    async fn gather(&mut self, waiting: &mut mpsc::Receiver<Submission>) -> bool {
        let Some(first) = waiting.recv().await else { return false };
        self.add(first);
        while self.rows < GROUP_ROWS_MAX && self.deliveries.len() < GROUP_BATCHES_MAX {
            let next = match waiting.try_recv() {
                Ok(next) => next,
                Err(_) => match self.until {
                    Some(until) => match tokio::time::timeout_at(until.into(), waiting.recv()).await {
                        Ok(Some(next)) => next,
                        Ok(None) | Err(_) => break,
                    },
                    None => break,
                },
            };
            self.add(next);
        }
        true
    }

    fn add(&mut self, one: Submission) {
        let linger = match one.delivery.lane {
            Lane::Urgent => LINGER_URGENT,
            Lane::Routine => LINGER_ROUTINE,
        };
        // From its arrival: while the last transaction ran it has waited already.
        let until = one.delivery.received + linger;
        self.until = Some(self.until.map_or(until, |earlier| earlier.min(until)));
        self.rows += one.delivery.items.len();
        self.deliveries.push(one.delivery);
        self.answers.push(one.stored);
    }

    fn take(&mut self) -> (Vec<Delivery>, Vec<Answer>) {
        let Self { deliveries, answers, .. } = std::mem::take(self);
        (deliveries, answers)
    }
}

/// Stores deliveries, however long the database takes to come back. Those of a vantage that the database does not know
/// are taken out and answered.
async fn store(
    app: &App,
    session: &mut Session,
    (deliveries, answers): (&mut Vec<Delivery>, &mut Vec<Answer>),
    shutdown: &CancellationToken,
) -> Result<Committed, StoreError> {
    let mut pause = RETRY_FIRST;
    let mut strays_counted = false;
    loop {
        // Not one row more than there is room for: what is not acknowledged stays with the agents.
        while app.room.level() == Level::Over && !shutdown.is_cancelled() {
            tokio::select! {
                () = tokio::time::sleep(RETRY_MAX) => {}
                () = shutdown.cancelled() => {}
            }
        }
        let mut error = match attempt(app, session, deliveries).await {
            Ok(committed) => return Ok(committed),
            Err(error) => error,
        };
        if error.is_missing_reference() {
            match take_unknown_out(app, session, (&mut *deliveries, &mut *answers)).await {
                // Something else is missing: found row by row, like every fault of the data.
                Ok(0) => {}
                Ok(_) => continue,
                Err(why) => error = why,
            }
        }
        if error.is_about_the_data() && !is_missing_partition(&error) {
            tracing::error!(%error, "the database refuses a batch that passed every check; storing row by row");
            // What stops this half-way passes like any other trouble; the rows that were stored are known then.
            error = match one_by_one(app, session, deliveries, &mut strays_counted).await {
                Ok(committed) => return Ok(committed),
                Err(error) => error,
            };
        }
        if is_missing_partition(&error) {
            make_partitions(app).await;
        }
        if shutdown.is_cancelled() {
            return Err(error);
        }
        tracing::warn!(%error, retry_in_ms = pause.as_millis(), "cannot store observations; agents wait");
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = shutdown.cancelled() => {}
        }
        pause = (pause * 2).min(RETRY_MAX);
    }
}

/// The committer's own connection while all is well: thousands of streams that greet must not come before it.
type Session = Option<PoolConnection<Postgres>>;

async fn attempt(app: &App, session: &mut Session, deliveries: &[Delivery]) -> Result<Committed, StoreError> {
    let mut connection = match session.take() {
        Some(connection) => connection,
        None => app.pool.acquire().await?,
    };
    let result = store::within(COMMIT_WITHIN, commit::commit(&mut connection, deliveries)).await;
    match &result {
        Err(error) if !error.is_about_the_data() => {
            // The server may have become read-only, or be another one by now: never reuse the connection.
            connection.close_on_drop();
        }
        Ok(_) | Err(_) => *session = Some(connection),
    }
    result
}

/// Takes the deliveries of vantages out that the database does not know, answers them and ends the streams: the others
/// must not wait for what can never be stored. Returns how many deliveries that were.
async fn take_unknown_out(
    app: &App,
    session: &mut Session,
    (deliveries, answers): (&mut Vec<Delivery>, &mut Vec<Answer>),
) -> Result<usize, StoreError> {
    let vantages: BTreeSet<VantageId> = deliveries.iter().map(|delivery| delivery.vantage).collect();
    let mut connection = match session.take() {
        Some(connection) => connection,
        None => app.pool.acquire().await?,
    };
    let asked = store::within(COMMIT_WITHIN, vantage::unknown(&mut connection, &vantages)).await;
    let unknown = asked.inspect_err(|_| connection.close_on_drop())?;
    *session = Some(connection);
    let (mut kept, mut kept_answers, mut taken) = (Vec::new(), Vec::new(), 0);
    for (delivery, answer) in deliveries.drain(..).zip(answers.drain(..)) {
        if unknown.contains(&delivery.vantage) {
            let _ = answer.send(Err(NotStored::Unknown));
            taken += 1;
        } else {
            kept.push(delivery);
            kept_answers.push(answer);
        }
    }
    (*deliveries, *answers) = (kept, kept_answers);
    if taken > 0 {
        let streams = app.standing.cut(|stream| unknown.contains(&stream.vantage).then_some(Cut::WentBack));
        let vantages = unknown.len();
        tracing::error!(
            vantages,
            streams,
            "the database does not know vantages that report: it went back; they connect again"
        );
    }
    Ok(taken)
}

/// Stores each row alone, and counts as refused what the database does not take.
/// Observations without a usable number have no cursor to tell that they were counted: `strays_counted` does.
async fn one_by_one(
    app: &App,
    session: &mut Session,
    deliveries: &[Delivery],
    strays_counted: &mut bool,
) -> Result<Committed, StoreError> {
    let mut sum = Committed::default();
    if !*strays_counted {
        let alone = |delivery: &Delivery| Delivery { items: Vec::new(), ..delivery.clone() };
        let strays: Vec<Delivery> = deliveries.iter().filter(|one| !one.stray.is_empty()).map(alone).collect();
        if !strays.is_empty() {
            attempt(app, session, &strays).await?;
        }
        *strays_counted = true;
    }
    for delivery in deliveries {
        for item in &delivery.items {
            let mut alone = Delivery { items: vec![item.clone()], stray: Vec::new(), ..delivery.clone() };
            let committed = match attempt(app, session, std::slice::from_ref(&alone)).await {
                // Not for want of a partition: that is made, and the batch tried again.
                Err(error) if error.is_about_the_data() && !is_missing_partition(&error) => {
                    let refused =
                        Refused { vantage: delivery.vantage, reason: "not_storable", detail: error.to_string() };
                    alone.items = vec![Item { sequence: item.sequence, content: Err(refused) }];
                    attempt(app, session, std::slice::from_ref(&alone)).await?
                }
                other => other?,
            };
            sum.stored += committed.stored;
            sum.known += committed.known;
            sum.missing += committed.missing;
        }
    }
    Ok(sum)
}

/// A check violation that names no constraint: no partition takes the row.
fn is_missing_partition(error: &StoreError) -> bool {
    match error {
        StoreError::Database(sqlx::Error::Database(error)) => {
            error.code().as_deref() == Some("23514") && error.constraint().is_none()
        }
        StoreError::Database(_) | StoreError::Content { .. } | StoreError::StaleEpoch { .. } => false,
    }
}

async fn make_partitions(app: &App) {
    let made = store::within(COMMIT_WITHIN, async { partition::ensure(&mut *app.pool.acquire().await?).await });
    match made.await {
        Ok(made) => tracing::warn!(made, "a day's partition was missing"),
        Err(error) => tracing::error!(%error, "cannot make the day's partition"),
    }
}
