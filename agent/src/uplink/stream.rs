//! The life of one stream: what goes up, what comes down, and what notices that nothing does.

use std::sync::Arc;
use std::time::Duration;

use parallax_decide::observation::Lane;
use parallax_proto::v1::{self, agent_message, coordinator_message};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep_until;
use tonic::Streaming;

use super::flight::{BATCH_BYTES_MAX, Flight, Flying};
use super::heartbeat::{Beat, Heartbeat};
use super::identity::Credentials;
use super::reply::{Meaning, meaning};
use super::session::{Broken, Ended, Lost};
use super::{Uplink, orders, told_to_stop, wire};
use crate::clock::{self, Instant, now};
use crate::entropy;
use crate::pins::Report;
use crate::spool::{Batch, BootId};

mod obeying;
mod renewing;

pub use obeying::Disobeyed;

/// Longest wait for an acknowledgement. A coordinator whose database is away acknowledges late; one
/// that never does is better left and found again.
const ACK_MAX: Duration = Duration::from_secs(60);

/// Messages on their way into the HTTP/2 library: the batches of both lanes, a question and an
/// answer or two.
pub(super) const SENDING_MAX: usize = 12;

/// Routine facts of one moment travel together: a round gives dozens. Urgent ones do not wait.
const LINGER: Duration = Duration::from_millis(50);

/// Longest wait for the last acknowledgements when the agent stops.
const FAREWELL_MAX: Duration = Duration::from_secs(1);

/// What a running stream keeps track of.
pub(super) struct Stream<'a> {
    uplink: &'a mut Uplink,
    send: mpsc::Sender<v1::AgentMessage>,
    flight: Flight,
    heart: Heartbeat,
    /// When to look into the spool again.
    pump_at: Option<Instant>,
    credentials: Arc<Credentials>,
    reload_at: Instant,
    /// When to come back with a renewed certificate.
    renew_at: Option<Instant>,
    greeted_at: Instant,
    heard_at: Instant,
    /// Whether the coordinator speaks protocol 2, as its messages show.
    two: bool,
    /// Whom the coordinator takes us for: orders on this stream are signed for the name in the certificate
    /// it was opened with, also when a new one has another.
    vantage: String,
    /// What orders of this stream repeat.
    nonce: Vec<u8>,
    /// Number of the last order that was signed for this stream; 0: none was.
    ordered: u64,
}

impl<'a> Stream<'a> {
    pub(super) fn new(
        uplink: &'a mut Uplink,
        send: mpsc::Sender<v1::AgentMessage>,
        credentials: Arc<Credentials>,
        nonce: Vec<u8>,
    ) -> Self {
        let (now, timing) = (now(), uplink.timing);
        uplink.recorder.spool().rewind();
        let vantage = credentials.vantage.clone();
        Self {
            uplink,
            send,
            flight: Flight::default(),
            heart: Heartbeat::new(now, timing.ask_every, timing.silence_max),
            pump_at: Some(now),
            credentials,
            reload_at: now + timing.reload_every,
            renew_at: None,
            greeted_at: now,
            heard_at: now,
            two: false,
            vantage,
            nonce,
            ordered: 0,
        }
    }

    /// For how long the coordinator has answered.
    pub(super) fn held(&self) -> Duration {
        self.heard_at.saturating_duration_since(self.greeted_at)
    }

    pub(super) async fn run(
        &mut self,
        first: v1::CoordinatorMessage,
        incoming: &mut Streaming<v1::CoordinatorMessage>,
        mut shutdown: watch::Receiver<bool>,
    ) -> Result<Ended, Broken> {
        let (recorder, send) = (self.uplink.recorder.clone(), self.send.clone());
        let mut farewell: Option<Instant> = None;
        self.handle(first);
        loop {
            if farewell.is_some_and(|end| now() >= end || self.is_done()) {
                return Ok(Ended::ShutDown);
            }
            if self.renew_at.is_some_and(|at| now() >= at) && self.flight.is_empty() {
                tracing::info!("coming back with the renewed certificate");
                return Ok(Ended::Renewed);
            }
            let ack_by = self.flight.oldest().map(|batch| batch.sent_at + ACK_MAX);
            let beat_at = self.heart.at();
            let pump_at = self.pump_at;
            tokio::select! {
                received = incoming.message() => match received {
                    Ok(Some(message)) => self.handle(message),
                    Ok(None) => {
                        return Err(Broken::Lost(Lost::ended("stream_ended", "the coordinator closed the stream".into())));
                    }
                    Err(status) => return Err(self.broken(status)),
                },
                Some((place, report)) = report_with_place(&send, &mut self.uplink.reports) => {
                    place.send(message(agent_message::Message::ChangeReport(orders::report(&report))));
                }
                // Evidence does not linger.
                () = recorder.appended(Lane::Urgent) => self.pump_lane(Lane::Urgent, now()),
                () = recorder.appended(Lane::Routine), if self.pump_at.is_none() => {
                    self.pump_at = Some(now() + LINGER);
                }
                () = sleep_until(pump_at.unwrap_or_else(now)), if pump_at.is_some() => self.pump(),
                () = sleep_until(beat_at.unwrap_or_else(now)), if beat_at.is_some() => self.beat()?,
                () = sleep_until(self.reload_at) => self.reload(),
                () = sleep_until(self.renew_at.unwrap_or_else(now)), if self.renew_at.is_some() && self.flight.is_empty() => {}
                () = sleep_until(ack_by.unwrap_or_else(now)), if ack_by.is_some() => {
                    let why = format!("no acknowledgement for {} s", ACK_MAX.as_secs());
                    return Err(Broken::Lost(Lost::ended("no_acknowledgement", why)));
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
        self.flight.is_empty() && !self.uplink.recorder.spool().has_unsent()
    }

    /// The stream ended with this status. What was too large is not sent unchanged again.
    fn broken(&mut self, status: tonic::Status) -> Broken {
        if meaning(&status) == Meaning::TooLarge
            && let Some(one) = self.uplink.cut.refused(&self.flight)
        {
            tracing::error!(
                reason = "too_large", boot = %one.boot, lane = %one.lane, sequence = one.first,
                "an observation is larger than the coordinator takes; it is set aside and recorded as lost"
            );
            self.uplink.recorder.spool().set_aside(one.boot, one.lane, one.first);
            self.uplink.status.set_aside();
        }
        status.into()
    }

    fn beat(&mut self) -> Result<(), Broken> {
        match self.heart.beat(now()) {
            Beat::Wait => Ok(()),
            Beat::Ask(ping) => {
                // No place: then much is on its way, and its acknowledgements are life enough.
                let _ = self.send.try_send(message(agent_message::Message::Ping(ping)));
                Ok(())
            }
            Beat::Dead => {
                let why = format!(
                    "nothing came over the stream for {} s although it was asked for: it is dead, or something on the way holds it back",
                    self.uplink.timing.silence_max.as_secs()
                );
                Err(Broken::Lost(Lost::alone("stream_silent", why)))
            }
        }
    }

    /// Looks at the identity's files. A new certificate is shown within the life of the old one.
    fn reload(&mut self) {
        self.reload_at = now() + self.uplink.timing.reload_every;
        // It was whole when this stream was opened, so it is now.
        let Ok(credentials) = self.uplink.identity.credentials() else { return };
        self.uplink.look_at(&credentials);
        self.renew();
        if self.renew_at.is_none() && !Arc::ptr_eq(&credentials, &self.credentials) {
            let now_s = clock::unix_ms() / 1000;
            let ends_s = u64::try_from(self.credentials.validity.not_after_s).unwrap_or_default();
            let left = Duration::from_secs(ends_s.saturating_sub(now_s));
            self.renew_at = Some(now() + entropy::below((left / 2).min(self.uplink.timing.renew_max)));
        }
    }

    /// Sends from the spool as long as there is room in flight, what is urgent first.
    fn pump(&mut self) {
        let now = now();
        // A routine backlog goes on when its pause is over.
        self.pump_at = self.flight.routine_at().filter(|at| *at > now);
        for lane in Lane::ALL {
            self.pump_lane(lane, now);
        }
    }

    fn pump_lane(&mut self, lane: Lane, now: Instant) {
        while self.flight.has_room(lane, now, &self.uplink.cut) {
            // A place in the channel first: what left the spool must be on its way.
            let Ok(place) = self.send.try_reserve() else { return };
            let mut spool = self.uplink.recorder.spool();
            let batch = match spool.next_batch_of(lane, self.uplink.cut.rows(), BATCH_BYTES_MAX) {
                Ok(Some(batch)) => batch,
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(%error, "cannot read the spool; trying again with the next observation");
                    return;
                }
            };
            let boot = batch.boot;
            let (sent, unreadable) = encoded(&batch);
            for sequence in unreadable {
                // Nobody will acknowledge it, so it is done with, once those before it are, and told as lost.
                tracing::warn!(%boot, %lane, sequence, "a spooled row that is no observation; recorded as lost");
                spool.set_aside(boot, lane, sequence);
            }
            let more = spool.has_unsent_of(lane);
            drop(spool);
            let numbers = || sent.observations.iter().map(|observation| observation.sequence);
            let (Some(first), Some(last)) = (numbers().next(), numbers().next_back()) else { continue };
            let rows = sent.observations.len();
            place.send(message(agent_message::Message::Batch(sent)));
            self.flight.sent(Flying { boot, lane, first, last, rows, sent_at: now }, more);
            self.pump_at = earlier(self.pump_at, self.flight.routine_at().filter(|at| *at > now));
        }
    }

    fn handle(&mut self, message: v1::CoordinatorMessage) {
        self.heard_at = now();
        self.heart.heard();
        match message.message {
            Some(coordinator_message::Message::Assignment(assignment)) => self.unsigned_assignment(assignment),
            Some(coordinator_message::Message::Ack(ack)) => self.acked(&ack),
            Some(coordinator_message::Message::Refusal(refusal)) => self.refused(&refusal),
            Some(coordinator_message::Message::Task(task)) => self.unsigned_task(task),
            Some(coordinator_message::Message::Signed(signed)) => self.signed(signed),
            Some(coordinator_message::Message::Trust(trust)) => self.unsigned_trust(&trust),
            Some(coordinator_message::Message::Renewed(renewed)) => self.renewed(renewed),
            Some(coordinator_message::Message::Pong(pong)) => {
                if let Some(sent_ms) = self.heart.answered(&pong) {
                    self.uplink.recorder.clock().heard(pong.unix_ms, sent_ms);
                    if let Some(nonce) = pong.life.as_ref().and_then(orders::life_nonce) {
                        self.uplink.recorder.life().heard(nonce, sent_ms);
                    }
                }
            }
            None => tracing::warn!("the coordinator sent a message this agent does not know; is the agent older?"),
        }
    }

    fn acked(&mut self, ack: &v1::Ack) {
        let (Ok(boot), Some(lane)) = (ack.boot_id.parse::<BootId>(), lane(ack.lane)) else {
            tracing::warn!("an acknowledgement without a boot or a lane; left out");
            return;
        };
        let done = self.uplink.recorder.spool().acked(boot, lane, ack.sequence);
        self.uplink.status.acked();
        self.uplink.cut.acked();
        self.done(boot, lane, done);
    }

    fn refused(&mut self, refusal: &v1::Refusal) {
        let (Ok(boot), Some(lane)) = (refusal.boot_id.parse::<BootId>(), lane(refusal.lane)) else {
            // A coordinator that is older than the question of the heartbeat refuses it so.
            if refusal.reason.starts_with("no_message") {
                tracing::info!("the coordinator is older than this agent and does not answer heartbeats");
                self.heart.not_known();
            } else {
                tracing::warn!(reason = %refusal.reason, "the coordinator refused a message");
            }
            return;
        };
        tracing::warn!(%boot, %lane, sequence = refusal.sequence, reason = %refusal.reason, "the coordinator refused what was sent");
        let mut spool = self.uplink.recorder.spool();
        let done = if refusal.sequence != 0 {
            spool.refused(boot, lane, refusal.sequence)
        } else if let Some(batch) = self.flight.oldest_of(boot, lane) {
            // The whole message: the oldest of that lane on its way, since answers come in order.
            spool.acked(boot, lane, batch.last)
        } else {
            return;
        };
        drop(spool);
        self.done(boot, lane, done);
    }

    /// Everything up to `sequence` is done with: there is room in flight again.
    fn done(&mut self, boot: BootId, lane: Lane, sequence: u64) {
        self.flight.done(boot, lane, sequence);
        self.pump_at = Some(now());
    }
}

fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

fn lane(wire: i32) -> Option<Lane> {
    match v1::Lane::try_from(wire) {
        Ok(v1::Lane::Urgent) => Some(Lane::Urgent),
        Ok(v1::Lane::Routine) => Some(Lane::Routine),
        Ok(v1::Lane::Unspecified) | Err(_) => None,
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
    let (boot_id, lane, ages_hold) = (batch.boot.to_string(), wire::lane(batch.lane).into(), batch.ours);
    (v1::Batch { boot_id, observations, lane, ages_hold }, unreadable)
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

pub(super) fn message(message: agent_message::Message) -> v1::AgentMessage {
    v1::AgentMessage { message: Some(message) }
}
