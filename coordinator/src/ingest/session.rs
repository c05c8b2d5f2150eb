//! One agent's stream.
//!
//! ```text
//! agent                       coordinator
//! Hello  ------------------>  known and not revoked?
//!        <------------------  Assignment (signed, from protocol 2 on), Trust
//! Batch  ------------------>  checked, committed
//!        <------------------  Refusal for each part not taken, then Ack
//! Ping  ------------------->  the wall clock, at once
//!        <------------------  Pong
//!        <------------------  Task, new Assignment, whenever there is one
//! ChangeReport  ----------->  to whoever waits for it
//! Renewal  ---------------->  a new certificate, recorded
//!        <------------------  Renewed
//! ```

use std::collections::VecDeque;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use parallax_decide::names::VantageName;
use parallax_decide::observation::Lane;
use parallax_proto::v1::agent_message::Message as FromAgent;
use parallax_proto::v1::coordinator_message::Message as ToAgent;
use parallax_proto::v1::order::Order;
use parallax_proto::{PROTOCOL, PROTOCOL_MIN, TEXT_BYTES_MAX, v1};
use prost::Message;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Request, Response, Status, Streaming};
use uuid::Uuid;

use super::accept::Peer;
use super::admission::{admit, certificate, refusal, unavailable};
use super::committer::{Committer, Ending};
use super::enrolment::{self, For};
use super::handshakes::Arriving;
use super::in_hand::{Full, InHand, Share};
use super::order::{self, Orders};
use super::standing::{Cut, Stream};
use super::validate::{self, Checked, Context as Against};
use super::{assignment, convert};
use crate::clock::{self, monotonic};
use crate::hub::{Arrival, OUTBOUND_MAX, Outbound, Place};
use crate::identity::keeper::Keeper;
use crate::identity::request::AgentKey;
use crate::installation;
use crate::room::Level;
use crate::state::App;
use crate::store::certificate::{How, Presented};
use crate::store::commit::Delivery;
use crate::store::refusal::Refused;
use crate::store::vantage::{self, VantageId};
use crate::store::{self, StoreError};

/// The greeting comes at once, or not at all.
const HELLO_WITHIN: Duration = Duration::from_secs(10);

/// Streams that ask the database about their greeting at the same time: a fleet that comes back must leave connections of
/// the pool to everybody else.
pub const GREETINGS_MAX: usize = 6;

/// An agent that takes nothing for this long is gone.
const SEND_WITHIN: Duration = Duration::from_secs(30);

/// Version of the protocol from which on orders are signed, and trust is told.
const SIGNED_SINCE: u32 = 2;

/// Messages on their way down one stream.
const DOWN_MAX: usize = 32;

/// Messages that wait while a batch is on its way to the database: as many as an agent sends without an answer, so that
/// a Ping behind them is answered at once. Past that the stream is not read. All streams together are bounded by
/// [`super::in_hand`].
const WAITING_MAX: usize = 8;

/// The service of the `.proto` file.
#[derive(Debug, Clone)]
pub struct Service {
    /// What all share.
    pub app: Arc<App>,
    /// Keys and certificates.
    pub keeper: Arc<Keeper>,
    /// Where batches go.
    pub committer: Committer,
    /// What all streams may hold until then.
    pub in_hand: InHand,
    /// Whose greeting may ask the database.
    pub greetings: Arc<Semaphore>,
    /// Running streams, for an orderly end.
    pub streams: TaskTracker,
    /// Ends the streams.
    pub shutdown: CancellationToken,
}

#[tonic::async_trait]
impl v1::probe_server::Probe for Service {
    type SessionStream = Down;

    async fn session(
        &self,
        request: Request<Streaming<v1::AgentMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let peer = request.extensions().get::<Peer>().cloned();
        let peer = peer.ok_or_else(|| Status::internal("a stream without an authenticated peer"))?;
        let presented = certificate(&peer)?;
        let turn = self.greetings.acquire().await;
        let vantage = admit(&self.app, presented, peer.remote).await.inspect_err(|status| {
            tracing::warn!(vantage = %presented.name, remote = %peer.remote, reason = status.message(), "stream refused");
        })?;
        drop(turn);
        let (down, messages) = mpsc::channel(DOWN_MAX);
        let session = Session {
            app: Arc::clone(&self.app),
            keeper: Arc::clone(&self.keeper),
            committer: self.committer.clone(),
            in_hand: self.in_hand.clone(),
            greetings: Arc::clone(&self.greetings),
            shutdown: self.shutdown.clone(),
            down: down.clone(),
            vantage: vantage.name.clone(),
            id: vantage.id,
            orders: Orders::new(presented.name.clone()),
            presented: presented.clone(),
            remote: peer.remote,
            arriving: peer.arriving.clone(),
            speaks: AtomicU32::new(0),
            generation: AtomicU32::new(0),
            renewing: Arc::default(),
        };
        let (name, remote) = (vantage.name, peer.remote);
        self.streams.spawn(async move {
            match session.run(request.into_inner()).await {
                Ok(()) => tracing::info!(vantage = %name, %remote, "stream ended"),
                Err(status) => {
                    tracing::warn!(vantage = %name, %remote, reason = status.message(), "stream ended");
                    // The agent may be gone already.
                    let _ = down.try_send(Box::new(Err(status)));
                }
            }
        });
        Ok(Response::new(Down(messages)))
    }
}

/// One message on its way down. Boxed: a channel sets aside room for 32 of what it carries, for each stream.
type DownMessage = Box<Result<v1::CoordinatorMessage, Status>>;

/// What goes down one stream.
#[derive(Debug)]
pub struct Down(mpsc::Receiver<DownMessage>);

impl tokio_stream::Stream for Down {
    type Item = Result<v1::CoordinatorMessage, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|message| message.map(|message| *message))
    }
}

/// Most characters of a boot id that are repeated to the agent: a valid one has 32.
const BOOT_ID_CHARS_MAX: usize = 32;

fn ending() -> Status {
    Status::unavailable("the coordinator is ending")
}

fn busy(Full { come_back_after }: Full) -> Status {
    let mut status = Status::unavailable("more waits for the database than the coordinator can hold; come back later");
    if let Ok(pushback) = come_back_after.as_millis().to_string().parse() {
        status.metadata_mut().insert("grpc-retry-pushback-ms", pushback);
    }
    status
}

type Storing = Pin<Box<dyn Future<Output = Result<(), Ending>> + Send>>;

type Room = Pin<Box<dyn Future<Output = Result<Share, Full>> + Send>>;

/// A message that was read and not handled yet, with its share of what may be in hand.
struct Held {
    message: v1::AgentMessage,
    share: Option<Share>,
}

struct Session {
    app: Arc<App>,
    keeper: Arc<Keeper>,
    committer: Committer,
    in_hand: InHand,
    greetings: Arc<Semaphore>,
    shutdown: CancellationToken,
    down: mpsc::Sender<DownMessage>,
    /// Its name now; the certificate may still carry a former one.
    vantage: VantageName,
    id: VantageId,
    presented: Presented,
    remote: SocketAddr,
    arriving: Option<Arriving>,
    orders: Orders,
    /// Version of the protocol that both know; 0 before the greeting.
    speaks: AtomicU32,
    /// Of the database, as it was last read.
    generation: AtomicU32,
    /// A certificate is on its way to the agent.
    renewing: Arc<AtomicBool>,
}

/// A batch on its way to the database.
struct UnderWay {
    _share: Option<Share>,
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
        // Boxed where it happens once: the state of a stream is kept for weeks, and there are thousands.
        let boot = Box::pin(self.greet(&hello)).await?;
        let (outbound, mut waiting) = mpsc::channel(OUTBOUND_MAX);
        let app = Arc::clone(&self.app);
        let mut trust = self.keeper.changes();
        let arrival = Arrival { agent_version: hello.agent_version.clone(), boot, remote: self.remote };
        let place = app.hub.enter(&self.vantage, arrival, outbound);
        let stands = app.standing.enter(Stream {
            vantage: self.id,
            name: self.vantage.clone(),
            key_sha256: self.presented.key_sha256,
        });
        // Again, now that a revocation finds this stream: one between the first look and here did not.
        Box::pin(async {
            let _turn = self.greetings.acquire().await;
            admit(&self.app, &self.presented, self.remote).await
        })
        .await?;
        tracing::info!(vantage = %self.vantage, %boot, agent_version = hello.agent_version, "vantage connected");
        Box::pin(self.send_assignment()).await?;
        if let Some(arriving) = &self.arriving {
            arriving.settled();
        }
        if self.speaks.load(Ordering::Relaxed) >= SIGNED_SINCE {
            // For an agent that holds no signer's key yet, and no more than that: what is signed follows.
            let signers = order::trust(&self.keeper.held()).signers;
            self.send(ToAgent::Trust(v1::Trust { signers, ..v1::Trust::default() })).await?;
        }
        Box::pin(self.send_trust()).await?;
        let mut under_way: Option<UnderWay> = None;
        let mut queue: VecDeque<Held> = VecDeque::new();
        let mut arriving: Option<(v1::AgentMessage, Room)> = None;
        let mut open = true;
        loop {
            while under_way.is_none() {
                match queue.pop_front() {
                    Some(held) => under_way = self.take(held, boot),
                    None if open || arriving.is_some() => break,
                    None => return Ok(()),
                }
            }
            let reads = open && arriving.is_none() && queue.len() < WAITING_MAX;
            let storing = async {
                match &mut under_way {
                    Some(one) => (&mut one.storing).await,
                    None => std::future::pending().await,
                }
            };
            let room = async {
                match &mut arriving {
                    Some((_, room)) => room.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // In this order: an end first, and what the agent waits for before what it sends.
                biased;
                () = place.closed.cancelled() => {
                    return Err(closed(&place));
                }
                () = stands.cut.cancelled() => return Err(cut_off(stands.why(), &self.vantage)),
                () = self.shutdown.cancelled() => return Err(ending()),
                stored = storing => {
                    stored.map_err(|Ending| ending())?;
                    if let Some(done) = under_way.take() {
                        self.answer(done).await?;
                    }
                }
                changed = trust.changed() => {
                    changed.map_err(|_| ending())?;
                    Box::pin(self.send_trust()).await?;
                }
                share = room => {
                    let share = Some(share.map_err(busy)?);
                    queue.extend(arriving.take().map(|(message, _)| Held { message, share }));
                }
                message = waiting.recv() => match message {
                    Some(message) => Box::pin(self.send_outbound(*message)).await?,
                    None => return Err(Status::aborted("closed")),
                },
                message = inbound.message(), if reads => match message? {
                    Some(message) => {
                        place.seen();
                        if let Some(message) = self.take_at_once(message).await? {
                            match self.share(&message) {
                                Ok(share) => queue.push_back(Held { message, share }),
                                Err(room) => arriving = Some((message, room)),
                            }
                        }
                    }
                    None => open = false,
                },
            }
        }
    }

    /// A message's share of what may be in hand, or the wait for it.
    fn share(&self, message: &v1::AgentMessage) -> Result<Option<Share>, Room> {
        let Some(FromAgent::Batch(batch)) = &message.message else { return Ok(None) };
        let bytes = batch.encoded_len();
        let room = || -> Room {
            let in_hand = self.in_hand.clone();
            Box::pin(async move { in_hand.wait_for(bytes).await })
        };
        self.in_hand.take(bytes).map(Some).ok_or_else(room)
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
            Some(FromAgent::Renewal(renewal)) => {
                self.renew(renewal);
                Ok(None)
            }
            Some(FromAgent::Batch(_) | FromAgent::Hello(_)) | None => Ok(Some(message)),
        }
    }

    async fn greet(&self, hello: &v1::Hello) -> Result<Uuid, Status> {
        // The newest that both know; 0 stands for 1 in what the oldest agents do not send.
        let speaks = hello.protocol.min(PROTOCOL);
        if speaks < PROTOCOL_MIN || hello.protocol_min.max(1) > speaks {
            return Err(Status::failed_precondition(format!(
                "protocol {} is not spoken here; this coordinator speaks {PROTOCOL_MIN} to {PROTOCOL}",
                hello.protocol
            )));
        }
        self.speaks.store(speaks, Ordering::Relaxed);
        let boot = validate::boot_id(&hello.boot_id).map_err(|(_, why)| Status::invalid_argument(why))?;
        if hello.agent_version.len() > TEXT_BYTES_MAX || hello.agent_version.chars().any(char::is_control) {
            return Err(Status::invalid_argument("agent_version is too long or holds control characters"));
        }
        let greeted = async {
            let from = (self.remote.to_string(), self.app.instance);
            let _turn = self.greetings.acquire().await;
            let mut connection = self.app.pool.acquire().await?;
            vantage::greeted(&mut connection, self.id, &hello.agent_version, (&from.0, from.1)).await
        };
        greeted.await.map_err(|error: StoreError| unavailable(&error))?;
        // What it was told before may be more than this database knows.
        if hello.epoch > 0 {
            let told = installation::told_by_agent(&self.app, self.vantage.as_str(), hello.epoch);
            told.await.map_err(|error| unavailable(&error))?;
        }
        Ok(boot)
    }

    async fn send_assignment(&self) -> Result<(), Status> {
        let mut content = assignment::content(&self.app.config.load(), &self.vantage);
        let fingerprint = assignment::fingerprint(&content);
        let version = async {
            let _turn = self.greetings.acquire().await;
            let mut connection = self.app.pool.acquire().await?;
            let version = store::assignment::version(&mut connection, self.id, &fingerprint).await?;
            let generation = store::order::generation(&mut connection).await?;
            Ok((version, generation, store::order::epoch(&mut connection).await?))
        };
        let (version, generation, epoch) = version.await.map_err(|error: StoreError| unavailable(&error))?;
        content.version = version;
        self.generation.store(generation, Ordering::Relaxed);
        self.orders.raise(epoch);
        self.send_order(Order::Assignment(content), None).await
    }

    async fn send_outbound(&self, message: Outbound) -> Result<(), Status> {
        match message {
            Outbound::Task(id, task) => self.send_order(Order::Task(convert::task(id, &task)), None).await,
            Outbound::Change(id, change, deadline) => {
                // As new as the plan it belongs to: an agent that heard of a later holder refuses it.
                let epoch = store::order::joined(self.generation.load(Ordering::Relaxed), change.epoch);
                self.send_order(Order::Task(convert::change(id, &change, epoch, deadline)), Some(epoch)).await
            }
            Outbound::Assignment => self.send_assignment().await,
        }
    }

    /// Signed for whoever knows signatures.
    async fn send_order(&self, order: Order, epoch: Option<u64>) -> Result<(), Status> {
        if self.speaks.load(Ordering::Relaxed) >= SIGNED_SINCE {
            let signed = self.orders.sign(&self.keeper.held(), order, epoch)?;
            return self.send(ToAgent::Signed(signed)).await;
        }
        self.send(match order {
            Order::Assignment(assignment) => ToAgent::Assignment(assignment),
            Order::Task(task) => ToAgent::Task(task),
            // Agents that know no signatures know no trust either.
            Order::Trust(_) => return Ok(()),
        })
        .await
    }

    async fn send_trust(&self) -> Result<(), Status> {
        if self.speaks.load(Ordering::Relaxed) < SIGNED_SINCE {
            return Ok(());
        }
        self.send_order(Order::Trust(order::trust(&self.keeper.held())), None).await
    }

    /// Answers a request for a new certificate beside what else goes on: a slow database must hold up neither
    /// a Pong nor a batch for it. One at a time.
    fn renew(&self, renewal: &v1::Renewal) {
        let refused = |why: &str| v1::Renewed { answer: Some(v1::renewed::Answer::Refused(why.to_owned())) };
        let key = match AgentKey::of_request(&renewal.request) {
            Ok(key) if !self.renewing.swap(true, Ordering::AcqRel) => Ok(key),
            Ok(_) => Err("one is on its way already".to_owned()),
            Err(why) => Err(why),
        };
        let (app, keeper, down) = (Arc::clone(&self.app), Arc::clone(&self.keeper), self.down.clone());
        let (id, name, remote, renewing) = (self.id, self.vantage.clone(), self.remote, Arc::clone(&self.renewing));
        tokio::spawn(async move {
            let answer = match &key {
                Err(why) => {
                    tracing::warn!(vantage = %name, why, "a renewal is refused");
                    refused(why)
                }
                Ok(key) => {
                    let whom = For { vantage: id, name: &name, how: How::Renewal, token: None, remote: remote.ip() };
                    let issued = async {
                        let mut connection = app.pool.acquire().await?;
                        enrolment::issue(&mut connection, &app, &keeper.held(), key, whom).await
                    };
                    let answer = match issued.await {
                        Ok(identity) => {
                            tracing::info!(vantage = %name, "certificate renewed");
                            v1::Renewed { answer: Some(v1::renewed::Answer::Identity(identity)) }
                        }
                        Err(error) => refused(unavailable(&error).message()),
                    };
                    renewing.store(false, Ordering::Release);
                    answer
                }
            };
            let message = v1::CoordinatorMessage { message: Some(ToAgent::Renewed(answer)) };
            // A stream that has ended needs no answer.
            let _ = down.send_timeout(Box::new(Ok(message)), SEND_WITHIN).await;
        });
    }

    async fn send(&self, message: ToAgent) -> Result<(), Status> {
        let message = v1::CoordinatorMessage { message: Some(message) };
        tokio::select! {
            biased;
            sent = self.down.send_timeout(Box::new(Ok(message)), SEND_WITHIN) => {
                sent.map_err(|_| Status::deadline_exceeded("the agent takes no messages"))
            }
            () = self.shutdown.cancelled() => Err(ending()),
        }
    }

    /// Handles one message that [`Self::take_at_once`] left; something is then under way.
    fn take(&self, held: Held, boot: Uuid) -> Option<UnderWay> {
        let fault = match held.message.message {
            Some(FromAgent::Batch(batch)) => {
                let under_way = self.take_batch(&batch, boot);
                return Some(UnderWay { _share: held.share, ..under_way });
            }
            Some(FromAgent::Ping(_) | FromAgent::Renewal(_)) => return None,
            Some(FromAgent::ChangeReport(report)) => convert::report(&report).err()?,
            Some(FromAgent::Hello(_)) => ("second_hello", "Hello comes once, first".to_owned()),
            None => ("no_message", "a message of no known kind".to_owned()),
        };
        Some(self.refuse_whole(fault, boot, None))
    }

    fn take_batch(&self, batch: &v1::Batch, boot: Uuid) -> UnderWay {
        let config = self.app.config.load();
        let context = Against { vantage: self.id, boot, topology: &config.topology };
        let checked = match validate::batch(batch, context) {
            Ok(checked) => self.within_room(checked),
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
        UnderWay { _share: None, storing: Box::pin(self.committer.clone().store(delivery)), refusals, ack }
    }

    /// At the cap of the embedded database rows that say "as before" are refused, so that evidence still has room.
    fn within_room(&self, mut checked: Checked) -> Checked {
        if checked.lane == Lane::Routine && self.app.room.level() >= Level::Full {
            for item in &mut checked.items {
                let detail = "the embedded database is at its cap (database.embedded.disk_max)".to_owned();
                item.content = Err(Refused { vantage: self.id, reason: "no_room", detail });
            }
        }
        checked
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
        UnderWay { _share: None, storing, refusals: vec![refusal], ack: None }
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

/// What a person did to the vantage of a stream, as its agent is told.
fn cut_off(why: Cut, vantage: &VantageName) -> Status {
    match why {
        Cut::Revoked => {
            refusal(Code::PermissionDenied, "vantage_revoked", &format!("closed: vantage {vantage} was revoked"))
        }
        Cut::KeyRevoked => refusal(
            Code::PermissionDenied,
            "vantage_revoked",
            &format!("closed: this key of vantage {vantage} was revoked"),
        ),
        Cut::Removed => {
            refusal(Code::PermissionDenied, "vantage_unknown", &format!("closed: vantage {vantage} was removed"))
        }
        Cut::Renamed => Status::unavailable(format!("closed: vantage {vantage} has another name now; connect again")),
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
