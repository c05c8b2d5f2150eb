//! One agent's stream.
//!
//! ```text
//! agent                       coordinator
//! Hello  ------------------>  known and not revoked?
//!        <------------------  Assignment
//! Batch  ------------------>  checked, committed
//!        <------------------  Refusal for each part not taken, then Ack
//! Ping  ------------------->  the wall clock, at once
//!        <------------------  Pong
//!        <------------------  Task, new Assignment, whenever there is one
//! ChangeReport  ----------->  to whoever waits for it
//! ```

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parallax_decide::names::VantageName;
use parallax_decide::observation::Lane;
use parallax_proto::v1::agent_message::Message as FromAgent;
use parallax_proto::v1::coordinator_message::Message as ToAgent;
use parallax_proto::{TEXT_BYTES_MAX, v1};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Request, Response, Status, Streaming};
use uuid::Uuid;

use super::accept::Peer;
use super::committer::{Committer, Ending};
use super::validate::{self, Context};
use super::{assignment, convert};
use crate::clock::{self, monotonic};
use crate::hub::{OUTBOUND_MAX, Outbound, Place};
use crate::state::App;
use crate::store::commit::Delivery;
use crate::store::refusal::Refused;
use crate::store::vantage::{self, VantageId};
use crate::store::{self, StoreError};

/// The greeting comes at once, or not at all.
const HELLO_WITHIN: Duration = Duration::from_secs(10);

/// An agent that takes nothing for this long is gone.
const SEND_WITHIN: Duration = Duration::from_secs(30);

/// Messages on their way down one stream.
const DOWN_MAX: usize = 32;

/// Messages that wait while a batch is on its way to the database: one of each lane, and as many behind
/// them. They are read so that a Ping between them is answered at once; past that the stream is not
/// read, which is how a slow database slows the agent.
const WAITING_MAX: usize = 4;

/// The service of the `.proto` file.
#[derive(Debug, Clone)]
pub struct Service {
    /// What all share.
    pub app: Arc<App>,
    /// Where batches go.
    pub committer: Committer,
    /// Running streams, for an orderly end.
    pub streams: TaskTracker,
    /// Ends the streams.
    pub shutdown: CancellationToken,
}

#[tonic::async_trait]
impl v1::probe_server::Probe for Service {
    type SessionStream = ReceiverStream<Result<v1::CoordinatorMessage, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<v1::AgentMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let peer = request.extensions().get::<Peer>().cloned();
        let peer = peer.ok_or_else(|| Status::internal("a stream without an authenticated peer"))?;
        let id = admit(&self.app, &peer.vantage).await.inspect_err(|status| {
            tracing::warn!(vantage = %peer.vantage, remote = %peer.remote, reason = status.message(), "stream refused");
        })?;
        let (down, messages) = mpsc::channel(DOWN_MAX);
        let session = Session {
            app: Arc::clone(&self.app),
            committer: self.committer.clone(),
            shutdown: self.shutdown.clone(),
            down: down.clone(),
            vantage: peer.vantage.clone(),
            id,
        };
        self.streams.spawn(async move {
            match session.run(request.into_inner()).await {
                Ok(()) => tracing::info!(vantage = %peer.vantage, remote = %peer.remote, "stream ended"),
                Err(status) => {
                    tracing::warn!(vantage = %peer.vantage, remote = %peer.remote, reason = status.message(), "stream ended");
                    // The agent may be gone already.
                    let _ = down.try_send(Err(status));
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(messages)))
    }
}

/// Most characters of a boot id that are repeated to the agent: a valid one has 32.
const BOOT_ID_CHARS_MAX: usize = 32;

/// Whether a vantage may report here; its key if so.
async fn admit(app: &App, name: &VantageName) -> Result<VantageId, Status> {
    if !app.config.load().topology.vantages.contains_key(name) {
        // Not a refusal for good: a slip in the configuration must not end agents that nobody can visit.
        return Err(Status::failed_precondition(format!(
            "vantage {name} is not in the coordinator's configuration; add it under vantages:"
        )));
    }
    let row = async { vantage::find_or_make(&mut *app.pool.acquire().await.map_err(StoreError::from)?, name).await };
    let row = row.await.map_err(|error| unavailable(&error))?;
    match row.revoked_at {
        Some(_) => Err(Status::permission_denied(format!("vantage {name} was revoked"))),
        None => Ok(row.id),
    }
}

fn unavailable(error: &StoreError) -> Status {
    tracing::warn!(%error, "the database is away");
    Status::unavailable("the coordinator's database is away; try again")
}

fn ending() -> Status {
    Status::unavailable("the coordinator is ending")
}

type Storing = Pin<Box<dyn Future<Output = Result<(), Ending>> + Send>>;

struct Session {
    app: Arc<App>,
    committer: Committer,
    shutdown: CancellationToken,
    down: mpsc::Sender<Result<v1::CoordinatorMessage, Status>>,
    vantage: VantageName,
    id: VantageId,
}

/// A batch on its way to the database.
struct UnderWay {
    storing: Storing,
    refusals: Vec<v1::Refusal>,
    ack: Option<v1::Ack>,
}

impl Session {
    async fn run(self, mut inbound: Streaming<v1::AgentMessage>) -> Result<(), Status> {
        let hello = tokio::time::timeout(HELLO_WITHIN, inbound.message())
            .await
            .map_err(|_| Status::deadline_exceeded("no Hello"))??;
        let Some(v1::AgentMessage { message: Some(FromAgent::Hello(hello)) }) = hello else {
            return Err(Status::failed_precondition("the first message must be Hello"));
        };
        let boot = self.greet(&hello).await?;
        let (outbound, mut waiting) = mpsc::channel(OUTBOUND_MAX);
        let app = Arc::clone(&self.app);
        let place = app.hub.enter(&self.vantage, &hello.agent_version, boot, outbound);
        // Again, now that a revocation finds this stream: one between the first look and here did not.
        admit(&self.app, &self.vantage).await?;
        tracing::info!(vantage = %self.vantage, %boot, agent_version = hello.agent_version, "vantage connected");
        self.send_assignment().await?;
        let mut under_way: Option<UnderWay> = None;
        let mut queue: VecDeque<v1::AgentMessage> = VecDeque::with_capacity(WAITING_MAX);
        let mut open = true;
        loop {
            while under_way.is_none() {
                match queue.pop_front() {
                    Some(message) => under_way = self.take(message, boot),
                    None if open => break,
                    None => return Ok(()),
                }
            }
            let reads = open && queue.len() < WAITING_MAX;
            let storing = async {
                match &mut under_way {
                    Some(one) => (&mut one.storing).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // In this order: an end first, and what the agent waits for before what it sends.
                biased;
                () = place.closed.cancelled() => {
                    return Err(closed(&place));
                }
                () = self.shutdown.cancelled() => return Err(ending()),
                stored = storing => {
                    stored.map_err(|Ending| ending())?;
                    if let Some(done) = under_way.take() {
                        self.answer(done).await?;
                    }
                }
                message = waiting.recv() => match message {
                    Some(message) => self.send_outbound(message).await?,
                    None => return Err(Status::aborted("closed")),
                },
                message = inbound.message(), if reads => match message? {
                    Some(message) => {
                        place.seen();
                        queue.extend(self.take_at_once(message).await?);
                    }
                    None => open = false,
                },
            }
        }
    }

    /// Answers what needs no database; what does is handed back.
    async fn take_at_once(&self, message: v1::AgentMessage) -> Result<Option<v1::AgentMessage>, Status> {
        match &message.message {
            Some(FromAgent::Ping(ping)) => {
                let unix_ms = u64::try_from(clock::wall_ms()).unwrap_or(0);
                self.send(ToAgent::Pong(v1::Pong { nonce: ping.nonce, unix_ms })).await?;
                Ok(None)
            }
            Some(FromAgent::ChangeReport(report)) => match convert::report(report) {
                Ok((id, report)) => {
                    if !self.app.hub.report(&self.vantage, id, report) {
                        tracing::warn!(vantage = %self.vantage, task = id.0, "a change report that nobody waits for");
                    }
                    Ok(None)
                }
                Err(_) => Ok(Some(message)),
            },
            Some(FromAgent::Batch(_) | FromAgent::Hello(_) | FromAgent::Renewal(_)) | None => Ok(Some(message)),
        }
    }

    async fn greet(&self, hello: &v1::Hello) -> Result<Uuid, Status> {
        if hello.protocol != 1 {
            return Err(Status::failed_precondition(format!(
                "protocol {} is not spoken here; this coordinator speaks 1",
                hello.protocol
            )));
        }
        let boot = validate::boot_id(&hello.boot_id).map_err(|(_, why)| Status::invalid_argument(why))?;
        if hello.agent_version.len() > TEXT_BYTES_MAX || hello.agent_version.chars().any(char::is_control) {
            return Err(Status::invalid_argument("agent_version is too long or holds control characters"));
        }
        let greeted =
            async { vantage::greeted(&mut *self.app.pool.acquire().await?, self.id, &hello.agent_version).await };
        greeted.await.map_err(|error: StoreError| unavailable(&error))?;
        Ok(boot)
    }

    async fn send_assignment(&self) -> Result<(), Status> {
        let mut content = assignment::content(&self.app.config.load(), &self.vantage);
        let fingerprint = assignment::fingerprint(&content);
        let version =
            async { store::assignment::version(&mut *self.app.pool.acquire().await?, self.id, &fingerprint).await };
        content.version = version.await.map_err(|error: StoreError| unavailable(&error))?;
        self.send(ToAgent::Assignment(content)).await
    }

    async fn send_outbound(&self, message: Outbound) -> Result<(), Status> {
        match message {
            Outbound::Task(id, task) => self.send(ToAgent::Task(convert::task(id, &task))).await,
            Outbound::Change(id, change, deadline) => {
                self.send(ToAgent::Task(convert::change(id, &change, deadline))).await
            }
            Outbound::Assignment => self.send_assignment().await,
        }
    }

    async fn send(&self, message: ToAgent) -> Result<(), Status> {
        let message = v1::CoordinatorMessage { message: Some(message) };
        tokio::select! {
            biased;
            sent = self.down.send_timeout(Ok(message), SEND_WITHIN) => {
                sent.map_err(|_| Status::deadline_exceeded("the agent takes no messages"))
            }
            () = self.shutdown.cancelled() => Err(ending()),
        }
    }

    /// Handles one message that [`Self::take_at_once`] left; something is then under way.
    fn take(&self, message: v1::AgentMessage, boot: Uuid) -> Option<UnderWay> {
        let fault = match message.message {
            Some(FromAgent::Batch(batch)) => return Some(self.take_batch(&batch, boot)),
            Some(FromAgent::Ping(_)) => return None,
            Some(FromAgent::ChangeReport(report)) => convert::report(&report).err()?,
            Some(FromAgent::Hello(_)) => ("second_hello", "Hello comes once, first".to_owned()),
            Some(FromAgent::Renewal(_)) => {
                ("no_renewal", "certificates are not renewed over the stream yet".to_owned())
            }
            None => ("no_message", "a message of no known kind".to_owned()),
        };
        Some(self.refuse_whole(fault, boot, None))
    }

    fn take_batch(&self, batch: &v1::Batch, boot: Uuid) -> UnderWay {
        let config = self.app.config.load();
        let context = Context { vantage: self.id, boot, topology: &config.topology };
        let checked = match validate::batch(batch, context) {
            Ok(checked) => checked,
            Err(fault) => return self.refuse_whole(fault, boot, Some(batch)),
        };
        let numbered = checked.items.iter().filter_map(|item| {
            let refused = item.content.as_ref().err()?;
            Some((item.sequence.unsigned_abs(), refused))
        });
        let refusals: Vec<v1::Refusal> = numbered
            .chain(checked.stray.iter().map(|(sequence, refused)| (*sequence, refused)))
            .map(|(sequence, refused)| v1::Refusal {
                boot_id: batch.boot_id.clone(),
                sequence,
                reason: reason(refused.reason, &refused.detail),
                lane: batch.lane,
            })
            .collect();
        let ack = checked.items.last().map(|item| v1::Ack {
            boot_id: batch.boot_id.clone(),
            sequence: item.sequence.unsigned_abs(),
            lane: batch.lane,
        });
        let delivery = Delivery {
            vantage: self.id,
            boot: checked.boot,
            lane: checked.lane,
            received: monotonic(),
            items: checked.items,
            stray: checked.stray.into_iter().map(|(_, refused)| refused).collect(),
        };
        UnderWay { storing: Box::pin(self.committer.clone().store(delivery)), refusals, ack }
    }

    /// A message that cannot be taken at all is counted and answered, and the stream goes on.
    /// A refusal of a batch carries the batch's own boot id and lane as they were sent: the agent must not
    /// take another batch for the refused one.
    fn refuse_whole(&self, (word, detail): (&'static str, String), boot: Uuid, batch: Option<&v1::Batch>) -> UnderWay {
        let boot_id = batch.map(|batch| batch.boot_id.chars().take(BOOT_ID_CHARS_MAX).collect()).unwrap_or_default();
        let lane = batch.map(|batch| batch.lane).unwrap_or_default();
        let refusal = v1::Refusal { boot_id, sequence: 0, reason: reason(word, &detail), lane };
        let stray = vec![Refused { vantage: self.id, reason: word, detail }];
        // Without an observation the lane means nothing.
        let (lane, items) = (Lane::Urgent, Vec::new());
        let delivery = Delivery { vantage: self.id, boot, lane, received: monotonic(), items, stray };
        let storing: Storing = Box::pin(self.committer.clone().store(delivery));
        UnderWay { storing, refusals: vec![refusal], ack: None }
    }

    async fn answer(&self, done: UnderWay) -> Result<(), Status> {
        if let Some(first) = done.refusals.first() {
            let count = done.refusals.len();
            tracing::warn!(vantage = %self.vantage, count, sequence = first.sequence, reason = first.reason, "refused");
        }
        for refusal in done.refusals {
            self.send(ToAgent::Refusal(refusal)).await?;
        }
        match done.ack {
            Some(ack) => self.send(ToAgent::Ack(ack)).await,
            None => Ok(()),
        }
    }
}

/// Why a stream is ended from here. An agent that is replaced again and again learns so that another
/// machine uses its identity.
fn closed(place: &Place<'_>) -> Status {
    if !place.replaced() {
        return Status::aborted("closed: this vantage was revoked");
    }
    let mut metadata = MetadataMap::new();
    metadata.insert("reason", MetadataValue::from_static("replaced"));
    Status::with_metadata(Code::Aborted, "closed: replaced by a newer stream of this vantage", metadata)
}

/// Reason as the wire carries it, within its limit.
fn reason(word: &str, detail: &str) -> String {
    let mut text = format!("{word}: {detail}");
    while text.len() > TEXT_BYTES_MAX {
        text.pop();
    }
    text
}
