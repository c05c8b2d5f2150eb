//! The coordinator's end of the stream: a real gRPC server with mutual TLS, which hands out an assignment, acknowledges
//! every batch and remembers what came. Its rows are what the figures are counted by.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as Turn, Poll};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use parallax_proto::MESSAGE_BYTES_MAX;
use parallax_proto::v1::probe_server::{Probe, ProbeServer};
use parallax_proto::v1::{self, agent_message, coordinator_message, observation};
use rustls::server::WebPkiClientVerifier;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;
use tonic::{Request, Response, Status, Streaming};

use super::authority::Authority;
use super::ground::HERE;
use crate::clock;

/// The name in the coordinator's certificate.
pub const COORDINATOR_NAME: &str = "parallax-coordinator";
/// As the coordinator has it.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// Messages that wait to be sent.
const WAITING_MAX: usize = 64;
/// Rows remembered at most; beyond, the run is too long for this tool and says so.
const ROWS_MAX: usize = 2_000_000;

/// One observation as it came.
#[derive(Debug, Clone)]
pub struct Row {
    /// When the probe ended, ms since 1970: when it came, less its age.
    pub ended_ms: f64,
    /// The observation.
    pub observation: v1::Observation,
    /// Its lane.
    pub lane: i32,
}

impl Row {
    /// When the probe began, ms since 1970.
    #[must_use]
    pub fn began_ms(&self) -> f64 {
        self.ended_ms - duration_ms(self.observation.duration_us)
    }

    /// The outcome's number, whatever kind the fact is of; 0 for a fact without one.
    #[must_use]
    pub fn outcome(&self) -> v1::Outcome {
        let number = match &self.observation.fact {
            Some(observation::Fact::Resolution(fact)) => fact.outcome,
            Some(observation::Fact::Connection(fact)) => fact.outcome,
            Some(observation::Fact::EndpointCheck(fact)) => fact.outcome,
            Some(observation::Fact::ControlCheck(fact)) => fact.outcome,
            Some(observation::Fact::Path(fact)) => fact.outcome,
            Some(observation::Fact::Loss(_) | observation::Fact::Missed(_)) | None => 0,
        };
        v1::Outcome::try_from(number).unwrap_or(v1::Outcome::Unspecified)
    }

    /// Whether the subject answered: with success, or, to a question for an address of the other family, with none.
    #[must_use]
    pub fn works(&self) -> bool {
        use v1::Outcome::{Answered, Empty, HttpOk, TcpOk, TlsOk};
        [Answered, Empty, HttpOk, TcpOk, TlsOk].contains(&self.outcome())
    }

    /// Whether it tells of the agent's own doings and not of a probe.
    #[must_use]
    pub fn is_about_the_agent(&self) -> bool {
        matches!(self.observation.fact, Some(observation::Fact::Loss(_) | observation::Fact::Missed(_)) | None)
    }

    /// How many rounds or probes it says were missed.
    #[must_use]
    pub fn missed(&self) -> u64 {
        match &self.observation.fact {
            Some(observation::Fact::Missed(missed)) => missed.count,
            Some(_) | None => 0,
        }
    }

    /// What was probed: the kind of fact and the subject's names.
    #[must_use]
    pub fn subject(&self) -> String {
        match &self.observation.fact {
            Some(observation::Fact::Resolution(fact)) => {
                format!("resolution {} {} {:?}", fact.name, fact.resolver, fact.family())
            }
            Some(observation::Fact::Connection(fact)) => format!("connection {:?} {:?}", fact.target, fact.address),
            Some(observation::Fact::EndpointCheck(fact)) => format!("endpoint {}", fact.resolver),
            Some(observation::Fact::ControlCheck(fact)) => format!("control {}", fact.control),
            Some(observation::Fact::Path(_)) => "path".to_owned(),
            Some(observation::Fact::Loss(_)) => "loss".to_owned(),
            Some(observation::Fact::Missed(_)) => "missed".to_owned(),
            None => "nothing".to_owned(),
        }
    }
}

/// Everything that came.
#[derive(Debug, Default)]
pub struct Seen {
    /// Rows in order of arrival.
    pub rows: Vec<Row>,
    /// Streams opened.
    pub streams: u32,
    /// Batches, application pings, change reports.
    pub batches: u64,
    /// Application pings that were answered.
    pub pings: u64,
    /// Rows beyond the limit, which were acknowledged and forgotten.
    pub forgotten: u64,
}

/// The running server.
#[derive(Debug)]
pub struct Coordinator {
    /// Where it listens.
    pub address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
    assign: watch::Sender<v1::Assignment>,
    away: watch::Sender<bool>,
    serving: Vec<JoinHandle<()>>,
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.serving.iter().for_each(JoinHandle::abort);
    }
}

impl Coordinator {
    /// Starts it on a free port of [`HERE`].
    ///
    /// # Errors
    /// Certificates cannot be made or no port is free.
    pub async fn start(authority: &Authority, assignment: v1::Assignment) -> Result<Self> {
        let (chain, key) = authority.issue(&[COORDINATOR_NAME.to_owned()])?.into_tls()?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(authority.roots()?), Arc::clone(&provider)).build()?;
        let mut tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)?;
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let listener = TcpListener::bind((HERE, 0)).await.context("a port for the coordinator")?;
        let address = listener.local_addr()?;
        let (accepted, incoming) = mpsc::channel(WAITING_MAX);
        let accepting = tokio::spawn(accept(listener, TlsAcceptor::from(Arc::new(tls)), accepted));
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (assign, assigned) = watch::channel(assignment);
        let (away, is_away) = watch::channel(false);
        let service = ProbeServer::new(Service { seen: Arc::clone(&seen), assigned, is_away })
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let server = tonic::transport::Server::builder()
            .http2_keepalive_interval(Some(KEEPALIVE))
            .http2_keepalive_timeout(Some(KEEPALIVE))
            .add_service(service)
            .serve_with_incoming(ReceiverStream::new(incoming));
        let serving = tokio::spawn(async move {
            let _ = server.await;
        });
        Ok(Self { address, seen, assign, away, serving: vec![accepting, serving] })
    }

    /// Everything that came so far.
    pub fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends another assignment down every stream; its version is set to one more than the last.
    pub fn assign(&self, assignment: v1::Assignment) {
        self.assign.send_modify(|held| {
            let version = held.version + 1;
            *held = v1::Assignment { version, ..assignment };
        });
    }

    /// Ends every stream and takes none, or takes them again.
    pub fn go_away(&self, away: bool) {
        self.away.send_replace(away);
    }

    /// Waits until `ready` is content with what came.
    ///
    /// # Errors
    /// It is not within `limit`.
    pub async fn until(&self, what: &str, limit: Duration, mut ready: impl FnMut(&Seen) -> bool) -> Result<()> {
        let start = clock::now();
        loop {
            {
                let seen = self.seen();
                if ready(&seen) {
                    return Ok(());
                }
                if start.elapsed() > limit {
                    bail!("{what}: not within {limit:?}; {} streams, {} rows came", seen.streams, seen.rows.len());
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Microseconds in milliseconds.
#[expect(clippy::cast_precision_loss, reason = "a probe lasts minutes at most")]
fn duration_ms(us: u64) -> f64 {
    us as f64 / 1000.0
}

struct Service {
    seen: Arc<Mutex<Seen>>,
    assigned: watch::Receiver<v1::Assignment>,
    is_away: watch::Receiver<bool>,
}

#[tonic::async_trait]
impl Probe for Service {
    type SessionStream = ReceiverStream<Result<v1::CoordinatorMessage, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<v1::AgentMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        if *self.is_away.borrow() {
            return Err(Status::unavailable("away for a while"));
        }
        let mut from_agent = request.into_inner();
        let first = from_agent.message().await?.and_then(|message| message.message);
        if !matches!(first, Some(agent_message::Message::Hello(_))) {
            return Err(Status::invalid_argument("hello comes first"));
        }
        let (to_agent, outgoing) = mpsc::channel(WAITING_MAX);
        let (seen, assigned) = (Arc::clone(&self.seen), self.assigned.clone());
        let mut is_away = self.is_away.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = converse(from_agent, to_agent, seen, assigned) => {}
                _ = is_away.wait_for(|away| *away) => {}
            }
        });
        Ok(Response::new(ReceiverStream::new(outgoing)))
    }
}

async fn converse(
    mut from_agent: Streaming<v1::AgentMessage>,
    to_agent: mpsc::Sender<Result<v1::CoordinatorMessage, Status>>,
    seen: Arc<Mutex<Seen>>,
    mut assigned: watch::Receiver<v1::Assignment>,
) {
    let lock = || seen.lock().unwrap_or_else(PoisonError::into_inner);
    lock().streams += 1;
    assigned.mark_changed();
    loop {
        let answer = tokio::select! {
            changed = assigned.changed() => {
                if changed.is_err() {
                    return;
                }
                coordinator_message::Message::Assignment(assigned.borrow_and_update().clone())
            }
            received = from_agent.message() => {
                let Ok(Some(message)) = received else { return };
                match message.message {
                    Some(agent_message::Message::Batch(batch)) => {
                        let Some(ack) = take(&mut lock(), batch) else { continue };
                        coordinator_message::Message::Ack(ack)
                    }
                    Some(agent_message::Message::Ping(ping)) => {
                        lock().pings += 1;
                        let unix_ms = whole_ms(clock::unix_ms());
                        coordinator_message::Message::Pong(v1::Pong { nonce: ping.nonce, unix_ms, life: None })
                    }
                    Some(agent_message::Message::Hello(_) | agent_message::Message::ChangeReport(_) | agent_message::Message::Renewal(_)) | None => continue,
                }
            }
        };
        if to_agent.send(Ok(v1::CoordinatorMessage { message: Some(answer) })).await.is_err() {
            return;
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a time after 1970 and before the year 10000"
)]
fn whole_ms(ms: f64) -> u64 {
    ms as u64
}

/// Remembers a batch; its acknowledgement.
fn take(seen: &mut Seen, batch: v1::Batch) -> Option<v1::Ack> {
    let now_ms = clock::unix_ms();
    let sequence = batch.observations.last()?.sequence;
    let (boot_id, lane) = (batch.boot_id, batch.lane);
    seen.batches += 1;
    for observation in batch.observations {
        if seen.rows.len() >= ROWS_MAX {
            seen.forgotten += 1;
            continue;
        }
        let age_ms = duration_ms(observation.age_ms.saturating_mul(1000));
        seen.rows.push(Row { ended_ms: now_ms - age_ms, observation, lane });
    }
    Some(v1::Ack { boot_id, sequence, lane })
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, accepted: mpsc::Sender<std::io::Result<Accepted>>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        if let Ok(stream) = acceptor.accept(stream).await
            && accepted.send(Ok(Accepted(stream))).await.is_err()
        {
            return;
        }
    }
}

/// A stream that passed TLS, in the form the gRPC server takes.
struct Accepted(TlsStream<TcpStream>);

impl Connected for Accepted {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Accepted {
    fn poll_read(mut self: Pin<&mut Self>, turn: &mut Turn<'_>, buffer: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(turn, buffer)
    }
}

impl AsyncWrite for Accepted {
    fn poll_write(mut self: Pin<&mut Self>, turn: &mut Turn<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(turn, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, turn: &mut Turn<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(turn)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, turn: &mut Turn<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(turn)
    }
}
