//! One agent's stream: its opening and the loop of its life. `greeting` is the first message, `batch` what comes up,
//! `down` what goes down, `renewing` a certificate on its way, `ending` why it ended.
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
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parallax_decide::names::VantageName;
use parallax_proto::v1;
use parallax_proto::v1::agent_message::Message as FromAgent;
use parallax_proto::v1::coordinator_message::Message as ToAgent;
use parallax_proto::v1::order::Order;
use prost::Message;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status, Streaming};
use uuid::Uuid;

use super::accept::Peer;
use super::admission::{admit, certificate};
use super::committer::Committer;
use super::convert;
use super::handshakes::{Arriving, Settled};
use super::in_hand::{Full, InHand, Share};
use super::life::Life;
use super::order::Orders;
use super::standing::{self, Stream};
use crate::clock;
use crate::config::Config;
use crate::hub::{self, Arrival, OUTBOUND_MAX, Outbound};
use crate::identity::keeper::{self, Keeper};
use crate::mailbox::{Receiver, Sender, mailbox};
use crate::state::App;
use crate::store::vantage::VantageId;
use batch::UnderWay;
use down::{DOWN_MAX, DownMessage};
use ending::{busy, cut_off, ending, not_stored, replaced};
use greeting::Hello;
use renewing::Renewals;

mod batch;
mod down;
mod ending;
mod greeting;
mod renewing;

pub use down::Down;

/// The greeting comes at once, or not at all.
const HELLO_WITHIN: Duration = Duration::from_secs(10);

/// Streams that ask the database about their greeting at the same time: a fleet that comes back must leave connections of
/// the pool to everybody else.
pub const GREETINGS_MAX: usize = 6;

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
        let peer = request.extensions().get::<Arc<Peer>>().cloned();
        let peer = peer.ok_or_else(|| Status::internal("a stream without an authenticated peer"))?;
        let presented = certificate(&peer)?;
        let vantage = admit(&self.app, &self.greetings, presented, peer.remote).await.inspect_err(|status| {
            tracing::warn!(vantage = %presented.name, remote = %peer.remote, reason = status.message(), "stream refused");
        })?;
        let (down, messages) = mailbox(DOWN_MAX);
        let mut session = Session {
            app: Arc::clone(&self.app),
            keeper: Arc::clone(&self.keeper),
            committer: self.committer.clone(),
            in_hand: self.in_hand.clone(),
            greetings: Arc::clone(&self.greetings),
            shutdown: self.shutdown.clone(),
            down,
            vantage: vantage.name,
            id: vantage.vantage,
            orders: Orders::new(presented.name.clone()),
            peer: Arc::clone(&peer),
            speaks: 0,
            renewals: Renewals::default(),
        };
        let mut inbound = request.into_inner();
        // Both are used where they lie: what is moved once more is kept room for, and the stream lives for weeks.
        self.streams.spawn(async move {
            let ended = session.run(&mut inbound).await;
            let (vantage, remote) = (&session.vantage, session.peer.remote);
            match ended {
                Ok(()) => tracing::info!(%vantage, %remote, "stream ended"),
                Err(status) => {
                    tracing::warn!(%vantage, %remote, reason = status.message(), "stream ended");
                    // The agent may be gone already.
                    let _ = session.down.try_send(Box::new(Err(status)));
                }
            }
        });
        Ok(Response::new(Down(messages)))
    }
}

type Room = Pin<Box<dyn Future<Output = Result<Share, Full>> + Send>>;

/// A message that was read and not handled yet, with its share of what may be in hand.
struct Held {
    message: v1::AgentMessage,
    share: Option<Share>,
}

/// A stream that has greeted.
struct Opened<'a> {
    boot: Uuid,
    trust: watch::Receiver<()>,
    stands: standing::Place<'a>,
    place: hub::Place<'a>,
    /// Keeps its connection.
    settled: Option<Settled>,
    /// For the agent.
    waiting: Receiver<Box<Outbound>>,
}

struct Session {
    app: Arc<App>,
    keeper: Arc<Keeper>,
    committer: Committer,
    in_hand: InHand,
    greetings: Arc<Semaphore>,
    shutdown: CancellationToken,
    down: Sender<DownMessage>,
    /// Its name now; the certificate may still carry a former one.
    vantage: VantageName,
    id: VantageId,
    /// With a certificate: without one there is no stream.
    peer: Arc<Peer>,
    orders: Orders,
    /// Version of the protocol that both know; 0 before the greeting.
    speaks: u32,
    renewals: Renewals,
}

impl Session {
    async fn run(&mut self, inbound: &mut Streaming<v1::AgentMessage>) -> Result<(), Status> {
        let app = Arc::clone(&self.app);
        // Boxed where it happens once: the state of a stream is kept for weeks, and there are thousands.
        let Opened { boot, mut trust, stands, place, settled: _settled, mut waiting } =
            Box::pin(self.open(&app, inbound)).await?;
        // What is there only now and then is boxed as well.
        let mut under_way: Option<Box<UnderWay>> = None;
        let mut queue: VecDeque<Held> = VecDeque::new();
        let mut arriving: Option<Box<(v1::AgentMessage, Room)>> = None;
        let mut open = true;
        loop {
            while under_way.is_none() {
                match queue.pop_front() {
                    Some(held) => under_way = self.take(held, boot).map(Box::new),
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
                    Some(arriving) => (&mut arriving.1).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // In this order: an end first, and what the agent waits for before what it sends.
                biased;
                () = place.closed.cancelled() => return Err(replaced()),
                () = stands.cut.cancelled() => {
                    return Err(stands.why().map_or_else(ending, |why| cut_off(why, &self.vantage)));
                }
                stored = storing => {
                    stored.map_err(|why| not_stored(why, &self.vantage))?;
                    if let Some(done) = under_way.take() {
                        Box::pin(self.answer(*done)).await?;
                    }
                }
                changed = trust.changed() => {
                    changed.map_err(|_| ending())?;
                    Box::pin(self.send_trust()).await?;
                }
                share = room => {
                    let share = Some(share.map_err(busy)?);
                    queue.extend(arriving.take().map(|arriving| Held { message: arriving.0, share }));
                }
                message = waiting.recv() => match message {
                    Some(message) => Box::pin(self.send_outbound(*message)).await?,
                    None => return Err(Status::aborted("closed")),
                },
                message = inbound.message(), if reads => match message? {
                    Some(message) => {
                        place.seen();
                        if let Some(message) = Box::pin(self.take_at_once(message)).await? {
                            match self.share(&message) {
                                Ok(share) => queue.push_back(Held { message, share }),
                                Err(room) => arriving = Some(Box::new((message, room))),
                            }
                        }
                    }
                    None => open = false,
                },
            }
        }
    }

    /// From the greeting to the first orders.
    async fn open<'a>(
        &mut self,
        app: &'a App,
        inbound: &mut Streaming<v1::AgentMessage>,
    ) -> Result<Opened<'a>, Status> {
        let hello = tokio::time::timeout(HELLO_WITHIN, inbound.message())
            .await
            .map_err(|_| Status::deadline_exceeded("no Hello"))??;
        let Some(v1::AgentMessage { message: Some(FromAgent::Hello(hello)) }) = hello else {
            return Err(Status::failed_precondition("the first message must be Hello"));
        };
        let Hello { boot, speaks } = Hello::of(&hello)?;
        self.speaks = speaks;
        let trust = self.keeper.changes();
        // Before the database is asked how the vantage stands: a later revocation finds the stream here.
        let key_sha256 = certificate(&self.peer)?.key_sha256;
        let stream = Stream { vantage: self.id, name: self.vantage.clone(), key_sha256 };
        let stands = app.standing.enter(stream, &self.shutdown);
        let config = app.config.load_full();
        let assignment = self.greet(&hello).await?;
        let (outbound, waiting) = mailbox(OUTBOUND_MAX);
        let arrival = Arrival { agent_version: hello.agent_version.clone(), boot, remote: self.peer.remote };
        let place = app.hub.enter(&self.vantage, arrival, outbound);
        tracing::info!(vantage = %self.vantage, %boot, agent_version = hello.agent_version, "vantage connected");
        self.send_order(Order::Assignment(assignment), None).await?;
        if !Arc::ptr_eq(&config, &app.config.load_full()) {
            // A reload in between found no stream here to send it to.
            self.send_assignment().await?;
        }
        let settled = self.peer.arriving.clone().map(Arriving::settled);
        self.send_first_trust().await?;
        Ok(Opened { boot, trust, stands, place, settled, waiting })
    }

    /// What proofs of life from this vantage are held against, now.
    fn life<'a>(&self, config: &'a Config, held: &'a keeper::Held) -> Life<'a> {
        Life { held, nodes: &config.node_proofs, vantage: self.id, now: self.app.clock.now() }
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
                let life = self.life(&self.app.config.load(), &self.keeper.held()).nonce();
                self.send(ToAgent::Pong(v1::Pong { nonce: ping.nonce, unix_ms, life })).await?;
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
                Box::pin(self.renew(renewal)).await?;
                Ok(None)
            }
            Some(FromAgent::Batch(_) | FromAgent::Hello(_)) | None => Ok(Some(message)),
        }
    }
}
