//! One stream, from connecting to its end.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use parallax_proto::v1::probe_client::ProbeClient;
use parallax_proto::v1::{self, agent_message, coordinator_message};
use parallax_proto::{BATCH_OBSERVATIONS_MAX, MESSAGE_BYTES_MAX};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep_until, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;
use tonic::{Code, Status, Streaming};

use super::connector::Connector;
use super::{Uplink, chain, orders, told_to_stop, wire};
use crate::assignment::kept::Taken;
use crate::clock::{self, Instant, now};
use crate::pins::Report;
use crate::spool::{Batch, BootId, Lane};

/// Protocol version we speak.
const PROTOCOL: u32 = 1;

/// HTTP/2 pings, also while nothing is said: a dead path is noticed within these two together.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(5);
const KEEPALIVE_WAIT: Duration = Duration::from_secs(5);

/// Longest wait for the coordinator's first message.
const GREETING_MAX: Duration = Duration::from_secs(10);

/// Longest wait for an acknowledgement. A coordinator whose database is away acknowledges late; one
/// that never does is better left and found again.
const ACK_MAX: Duration = Duration::from_secs(60);

/// Batches on their way at once.
const IN_FLIGHT_MAX: usize = 4;

/// Encoded observations of one batch, in bytes: far below [`MESSAGE_BYTES_MAX`].
const BATCH_BYTES_MAX: usize = MESSAGE_BYTES_MAX / 2;

/// Facts of one moment travel together: a round gives dozens.
const LINGER: Duration = Duration::from_millis(50);

/// Longest wait for the last acknowledgements when the agent stops.
const FAREWELL_MAX: Duration = Duration::from_secs(1);

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The agent was told to stop.
    ShutDown,
    /// The connection did not come about, or was lost.
    Lost {
        /// What happened.
        why: String,
        /// Whether the coordinator had said anything.
        connected: bool,
    },
    /// The coordinator does not accept who we are.
    IdentityRefused(String),
}

/// A batch that was sent and not yet acknowledged.
#[derive(Debug)]
struct InFlight {
    boot: BootId,
    lane: Lane,
    last: u64,
    sent_at: Instant,
}

/// What a running stream keeps track of.
struct Stream<'a> {
    uplink: &'a mut Uplink,
    send: mpsc::Sender<v1::AgentMessage>,
    in_flight: VecDeque<InFlight>,
    /// When to look into the spool again.
    pump_at: Option<Instant>,
}

impl Uplink {
    /// Runs one session. The caller rewinds the spool afterwards.
    pub(super) async fn session(&mut self, shutdown: watch::Receiver<bool>) -> Ended {
        let tls = match self.identity.tls() {
            Ok(tls) => tls,
            Err(error) => return Ended::Lost { why: error.to_string(), connected: false },
        };
        let connector = Connector::new(self.coordinator.clone(), tls, Arc::clone(&self.last_good));
        let verdict = connector.verdict();
        let ended = match self.converse(connector, shutdown).await {
            Ok(ended) => ended,
            Err(Broken { status: Some(status), .. })
                if matches!(status.code(), Code::PermissionDenied | Code::Unauthenticated) =>
            {
                Ended::IdentityRefused(status.message().to_owned())
            }
            Err(Broken { why, connected, .. }) => Ended::Lost { why, connected },
        };
        match (ended, verdict.lock().unwrap_or_else(PoisonError::into_inner).take()) {
            (Ended::Lost { connected, .. }, Some(alert)) => {
                let why = format!(
                    "the coordinator's TLS does not accept this agent's certificate (alert {alert}): revoked, expired or of another authority, or one of the two clocks is wrong; check the clocks, else issue a new one with `parallax vantage issue NAME --out DIR`"
                );
                Ended::Lost { why, connected }
            }
            (ended, _) => ended,
        }
    }

    async fn converse(&mut self, connector: Connector, shutdown: watch::Receiver<bool>) -> Result<Ended, Broken> {
        // The scheme is http because TLS is ours, beneath; the name only fills the authority.
        let channel = Endpoint::from_static("http://parallax-coordinator")
            .http2_keep_alive_interval(KEEPALIVE_EVERY)
            .keep_alive_timeout(KEEPALIVE_WAIT)
            .keep_alive_while_idle(true)
            .connect_with_connector(connector)
            .await
            .map_err(|error| Broken::new(chain(&error)))?;
        let mut client = ProbeClient::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let (send, outgoing) = mpsc::channel(IN_FLIGHT_MAX * 2);
        let hello = v1::Hello {
            protocol: PROTOCOL,
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            boot_id: self.boot.to_string(),
            assignment_version: self.kept.version(),
        };
        let hello = message(agent_message::Message::Hello(hello));
        send.try_send(hello).map_err(|_| Broken::new("the stream was closed before it began".into()))?;
        let late = |_| Broken::new("the coordinator did not greet in time".into());
        let opened = timeout(GREETING_MAX, client.session(ReceiverStream::new(outgoing))).await.map_err(late)?;
        let mut incoming = opened.map_err(|status| Broken::of(status, false))?.into_inner();
        let first = timeout(GREETING_MAX, incoming.message()).await.map_err(late)?;
        let first = first.map_err(|status| Broken::of(status, false))?;
        let first = first.ok_or_else(|| Broken::new("the coordinator closed the stream without a word".into()))?;
        tracing::info!(coordinator = %self.coordinator, boot = %self.boot, "connected to the coordinator");
        let mut stream = Stream { uplink: self, send, in_flight: VecDeque::new(), pump_at: Some(now()) };
        stream.uplink.recorder.spool().rewind();
        stream.handle(first);
        stream.run(&mut incoming, shutdown).await
    }
}

impl Stream<'_> {
    async fn run(
        &mut self,
        incoming: &mut Streaming<v1::CoordinatorMessage>,
        mut shutdown: watch::Receiver<bool>,
    ) -> Result<Ended, Broken> {
        let (recorder, send) = (self.uplink.recorder.clone(), self.send.clone());
        let mut farewell: Option<Instant> = None;
        loop {
            if farewell.is_some_and(|end| now() >= end) || (farewell.is_some() && self.is_done()) {
                return Ok(Ended::ShutDown);
            }
            let ack_by = self.in_flight.front().map(|batch| batch.sent_at + ACK_MAX);
            tokio::select! {
                received = incoming.message() => match received {
                    Ok(Some(message)) => self.handle(message),
                    Ok(None) => return Err(Broken::connected("the coordinator closed the stream".into())),
                    Err(status) => return Err(Broken::of(status, true)),
                },
                Some((place, report)) = report_with_place(&send, &mut self.uplink.reports) => {
                    place.send(message(agent_message::Message::ChangeReport(orders::report(&report))));
                }
                // Evidence does not linger.
                () = recorder.appended(Lane::Urgent) => self.pump_at = Some(now()),
                () = recorder.appended(Lane::Routine), if self.pump_at.is_none() => self.pump_at = Some(now() + LINGER),
                () = sleep_until(self.pump_at.unwrap_or_else(now)), if self.pump_at.is_some() => {
                    self.pump_at = None;
                    self.pump();
                }
                () = sleep_until(ack_by.unwrap_or_else(now)), if ack_by.is_some() => {
                    return Err(Broken::connected(format!("no acknowledgement for {} s", ACK_MAX.as_secs())));
                }
                () = told_to_stop(&mut shutdown), if farewell.is_none() => {
                    farewell = Some(now() + FAREWELL_MAX);
                    self.pump();
                }
                () = sleep_until(farewell.unwrap_or_else(now)), if farewell.is_some() => {}
            }
        }
    }

    fn is_done(&self) -> bool {
        self.in_flight.is_empty() && !self.uplink.recorder.spool().has_unsent()
    }

    /// Sends from the spool as long as there is room in flight.
    fn pump(&mut self) {
        while self.in_flight.len() < IN_FLIGHT_MAX {
            // A place in the channel first: what left the spool must be on its way.
            let Ok(place) = self.send.try_reserve() else { return };
            let mut spool = self.uplink.recorder.spool();
            let batch = match spool.next_batch(BATCH_OBSERVATIONS_MAX, BATCH_BYTES_MAX) {
                Ok(Some(batch)) => batch,
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(%error, "cannot read the spool; trying again with the next observation");
                    return;
                }
            };
            let (boot, lane) = (batch.boot, batch.lane);
            let (sent, unreadable) = encoded(&batch);
            for sequence in unreadable {
                // Nobody will acknowledge it, so it is done with, once those before it are.
                tracing::warn!(%boot, sequence, "a spooled row that is no observation; left out");
                spool.refused(boot, lane, sequence);
            }
            drop(spool);
            let Some(last) = sent.observations.last().map(|observation| observation.sequence) else { continue };
            place.send(message(agent_message::Message::Batch(sent)));
            self.in_flight.push_back(InFlight { boot, lane, last, sent_at: now() });
        }
    }

    fn handle(&mut self, message: v1::CoordinatorMessage) {
        match message.message {
            Some(coordinator_message::Message::Assignment(assignment)) => match self.uplink.kept.take(&assignment) {
                Ok(Taken::Applied) => {
                    tracing::info!(version = assignment.version, vantage = %assignment.vantage, "a new assignment is in force")
                }
                Ok(Taken::Ignored) => {}
                Err(error) => {
                    tracing::error!(version = assignment.version, %error, "an assignment is not valid; the old one stays in force")
                }
            },
            Some(coordinator_message::Message::Ack(ack)) => self.acked(&ack),
            Some(coordinator_message::Message::Refusal(refusal)) => self.refused(&refusal),
            Some(coordinator_message::Message::Task(task)) => self.task(task),
            Some(coordinator_message::Message::Pong(_)) => {}
            None => tracing::warn!("the coordinator sent a message this agent does not know; is the agent older?"),
        }
    }

    fn acked(&mut self, ack: &v1::Ack) {
        let Ok(boot) = ack.boot_id.parse::<BootId>() else {
            tracing::warn!("an acknowledgement without a boot id; left out");
            return;
        };
        let Some(lane) = lane(ack.lane()) else {
            tracing::warn!("an acknowledgement without a lane; left out");
            return;
        };
        let done = self.uplink.recorder.spool().acked(boot, lane, ack.sequence);
        self.done(boot, lane, done);
    }

    fn refused(&mut self, refusal: &v1::Refusal) {
        tracing::warn!(boot = %refusal.boot_id, sequence = refusal.sequence, reason = %refusal.reason, "the coordinator refused what was sent");
        let (Ok(boot), Some(lane)) = (refusal.boot_id.parse::<BootId>(), lane(refusal.lane())) else { return };
        let mut spool = self.uplink.recorder.spool();
        let done = if refusal.sequence != 0 {
            spool.refused(boot, lane, refusal.sequence)
        } else if let Some(batch) = self.in_flight.iter().find(|batch| batch.boot == boot && batch.lane == lane) {
            // The whole message: the oldest of that lane on its way, since answers come in order.
            spool.acked(boot, lane, batch.last)
        } else {
            return;
        };
        drop(spool);
        self.done(boot, lane, done);
    }

    /// Everything up to `sequence` of that lane is done with: there is room in flight again.
    fn done(&mut self, boot: BootId, lane: Lane, sequence: u64) {
        self.in_flight.retain(|batch| batch.boot != boot || batch.lane != lane || batch.last > sequence);
        self.pump_at.get_or_insert_with(now);
    }

    fn task(&mut self, task: v1::Task) {
        let task_id = task.task_id;
        match orders::task(task) {
            Ok(task) => {
                if self.uplink.tasks.try_send(task).is_err() {
                    tracing::warn!(task_id, "too many tasks wait; this one is left out");
                }
            }
            Err(not_taken) => {
                tracing::warn!(task_id, why = %not_taken.why, "a task is not taken");
                if let Some(report) = not_taken.report {
                    let report = message(agent_message::Message::ChangeReport(orders::report(&report)));
                    if self.send.try_send(report).is_err() {
                        tracing::warn!(task_id, "its answer could not be sent; the coordinator will ask again");
                    }
                }
            }
        }
    }
}

/// A batch as it is sent now, and the numbers of rows that are no observations.
fn encoded(batch: &Batch) -> (v1::Batch, Vec<u64>) {
    let now_ms = clock::boottime_ms();
    let (mut observations, mut unreadable) = (Vec::new(), Vec::new());
    for row in &batch.rows {
        match wire::row(row, now_ms) {
            Some(observation) => observations.push(observation),
            None => unreadable.push(row.sequence),
        }
    }
    (v1::Batch { boot_id: batch.boot.to_string(), observations, lane: wire::lane(batch.lane).into() }, unreadable)
}

fn lane(lane: v1::Lane) -> Option<Lane> {
    match lane {
        v1::Lane::Unspecified => None,
        v1::Lane::Urgent => Some(Lane::Urgent),
        v1::Lane::Routine => Some(Lane::Routine),
    }
}

/// The next report, taken only when there is a place to send it: waiting for one must not stop the
/// stream from reading, nor from noticing that nothing is acknowledged any more.
pub(super) async fn report_with_place<'a>(
    send: &'a mpsc::Sender<v1::AgentMessage>,
    reports: &mut mpsc::Receiver<Report>,
) -> Option<(mpsc::Permit<'a, v1::AgentMessage>, Report)> {
    let place = send.reserve().await.ok()?;
    let report = reports.recv().await?;
    Some((place, report))
}

fn message(message: agent_message::Message) -> v1::AgentMessage {
    v1::AgentMessage { message: Some(message) }
}

/// Why a session broke.
struct Broken {
    why: String,
    connected: bool,
    status: Option<Status>,
}

impl Broken {
    fn new(why: String) -> Self {
        Self { why, connected: false, status: None }
    }

    fn connected(why: String) -> Self {
        Self { why, connected: true, status: None }
    }

    fn of(status: Status, connected: bool) -> Self {
        Self { why: format!("{:?}: {}", status.code(), chain(&status)), connected, status: Some(status) }
    }
}
