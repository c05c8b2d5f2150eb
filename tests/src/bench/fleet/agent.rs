//! The life of one simulated agent: connect, greet, send what is due, wait for acknowledgements, ask for signs of life,
//! and come back with full jitter when the stream ends. What was not acknowledged stays.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use parallax_proto::BATCH_OBSERVATIONS_MAX;
use parallax_proto::v1::agent_message::Message as Up;
use parallax_proto::v1::coordinator_message::Message as Down;
use parallax_proto::v1::{self, Lane};
use rustls::ClientConfig;
use tokio::sync::watch;
use tokio::time::{sleep_until, timeout};

use super::queue::Queue;
use super::tally::Tally;
use super::wire::Stream;
use crate::clock;

/// The times of the real agent's `uplink`: longest wait for TCP and TLS, and for the greeting; between questions for a
/// sign of life, and until an unanswered one ends the stream; the first and the longest limit of a wait.
const OPEN_MAX: Duration = Duration::from_secs(18);
const ASK_EVERY: Duration = Duration::from_secs(5);
const SILENCE_MAX: Duration = Duration::from_secs(10);
const WAIT_MIN: Duration = Duration::from_millis(500);
const WAIT_MAX: Duration = Duration::from_secs(5);

/// A routine row waits at most this long for others, as in the real agent.
const LINGER: Duration = Duration::from_millis(50);

/// How much a fleet says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Nothing but signs of life.
    Idle,
    /// A round of so many routine rows, and so many urgent ones.
    Rounds {
        /// Routine rows of a round.
        routine: u32,
        /// Urgent rows of a round.
        urgent: u32,
        /// From one round to the next.
        every: Duration,
    },
    /// Batches of so many rows, as fast as they are acknowledged.
    Flat {
        /// Rows of a batch.
        rows: u32,
    },
    /// No more, and the stream ends when everything is acknowledged.
    Ending,
}

/// What one agent is.
pub struct Setup {
    /// Place in the fleet; phases and jitter follow from it.
    pub index: u64,
    /// Address it connects from.
    pub source: IpAddr,
    /// The coordinator's.
    pub coordinator: SocketAddr,
    /// Its identity.
    pub tls: Arc<ClientConfig>,
    /// Where it counts.
    pub tally: Arc<Tally>,
    /// How much it says, now and later.
    pub pace: watch::Receiver<Pace>,
    /// First attempts are spread over this.
    pub spread: Duration,
}

/// A simulated agent.
pub struct Agent {
    setup: Setup,
    boot_id: String,
    urgent: Queue,
    routine: Queue,
    round_at: Option<Instant>,
}

impl Agent {
    /// One that has measured nothing yet.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        let boot_id = format!("{:032x}", 0x00b0_0700_0000_0000_u128 | u128::from(setup.index));
        Self { setup, boot_id, urgent: Queue::new(Lane::Urgent), routine: Queue::new(Lane::Routine), round_at: None }
    }

    /// Lives until the pace is [`Pace::Ending`] and everything is acknowledged; the last number of each lane.
    pub async fn live(mut self) -> (u64, u64) {
        let mut wait = self.setup.spread;
        let mut turn = 0;
        loop {
            turn += 1;
            tokio::time::sleep(fraction(wait, self.setup.index, turn)).await;
            let opened = Tally::read(&self.setup.tally.opened);
            match self.session().await {
                Ok(()) => return (self.urgent.last(), self.routine.last()),
                Err(error) => {
                    if turn <= 1 && opened == 0 {
                        eprintln!("bench: agent {} cannot open its stream: {error:#}", self.setup.index);
                    }
                    wait = (wait * 2).clamp(WAIT_MIN, WAIT_MAX);
                }
            }
        }
    }

    async fn session(&mut self) -> Result<()> {
        let hello = v1::Hello {
            protocol: 1,
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            boot_id: self.boot_id.clone(),
            ..v1::Hello::default()
        };
        let opening = async {
            let mut stream = Stream::open(self.setup.source, self.setup.coordinator, &self.setup.tls, hello).await?;
            match stream.next().await? {
                Some(Down::Assignment(_) | Down::Signed(_)) => Ok(stream),
                other => bail!("no assignment but {other:?}"),
            }
        };
        let opened = timeout(OPEN_MAX, opening).await.context("no stream in time").and_then(|opened| opened);
        let tally = Arc::clone(&self.setup.tally);
        let stream = opened.inspect_err(|_| {
            tally.failed.fetch_add(1, Ordering::Relaxed);
        })?;
        tally.opened.fetch_add(1, Ordering::Relaxed);
        tally.live.fetch_add(1, Ordering::Relaxed);
        self.urgent.rewind();
        self.routine.rewind();
        let ended = self.converse(stream).await;
        tally.live.fetch_sub(1, Ordering::Relaxed);
        tally.ended.fetch_add(1, Ordering::Relaxed);
        ended
    }

    async fn converse(&mut self, mut stream: Stream) -> Result<()> {
        let mut ask_at = clock::now() + fraction(ASK_EVERY, self.setup.index, 0);
        let mut asked: Option<Instant> = None;
        loop {
            let pace = *self.setup.pace.borrow_and_update();
            let now = clock::now();
            self.measure(pace, now);
            self.pump(&mut stream, now)?;
            if pace == Pace::Ending && self.urgent.waiting() + self.routine.waiting() == 0 {
                return Ok(());
            }
            let beat_at = asked.map_or(ask_at, |asked| asked + SILENCE_MAX);
            let wake_at = self.round_at.map_or(beat_at, |round| round.min(beat_at));
            tokio::select! {
                biased;
                message = stream.next() => match message? {
                    Some(message) => {
                        asked = None;
                        self.take(&message);
                    }
                    None => bail!("the coordinator ended the stream"),
                },
                changed = self.setup.pace.changed() => {
                    changed.context("the fleet is gone")?;
                    self.round_at = None;
                }
                () = sleep_until(wake_at.into()) => {
                    let now = clock::now();
                    match asked {
                        Some(asked) if now >= asked + SILENCE_MAX => bail!("no sign of life"),
                        None if now >= ask_at => {
                            stream.send(Up::Ping(v1::Ping { nonce: 1 }))?;
                            asked = Some(now);
                            ask_at = now + ASK_EVERY;
                        }
                        Some(_) | None => {}
                    }
                }
            }
        }
    }

    /// Numbers the rows that are due.
    fn measure(&mut self, pace: Pace, now: Instant) {
        let mut added = 0_u64;
        match pace {
            Pace::Idle | Pace::Ending => self.round_at = None,
            Pace::Rounds { routine, urgent, every } => {
                let mut due = *self.round_at.get_or_insert(now + fraction(every, self.setup.index, 7));
                while due <= now {
                    (0..urgent).for_each(|_| self.urgent.add(now));
                    for place in 0..routine {
                        self.routine.add(now.checked_sub(LINGER * place / routine.max(1)).unwrap_or(now));
                    }
                    added += u64::from(routine) + u64::from(urgent);
                    due += every;
                }
                self.round_at = Some(due);
            }
            Pace::Flat { rows } => {
                self.round_at = None;
                let batches = if self.routine.has_room() { 1 } else { 0 };
                (0..batches * rows).for_each(|_| self.routine.add(now));
                added = u64::from(batches * rows);
            }
        }
        self.setup.tally.waiting.fetch_add(added, Ordering::Relaxed);
    }

    fn pump(&mut self, stream: &mut Stream, now: Instant) -> Result<()> {
        for queue in [&mut self.urgent, &mut self.routine] {
            while let Some(batch) = queue.batch(&self.boot_id, BATCH_OBSERVATIONS_MAX, now) {
                stream.send(Up::Batch(batch))?;
            }
        }
        Ok(())
    }

    fn take(&mut self, message: &Down) {
        let tally = &self.setup.tally;
        match message {
            Down::Ack(ack) => {
                let now = clock::now();
                let queue = match ack.lane() {
                    Lane::Urgent => &mut self.urgent,
                    Lane::Routine | Lane::Unspecified => &mut self.routine,
                };
                let latency = tally.latency(ack.lane());
                let mut count = 0;
                for ended in queue.acknowledge(ack.sequence) {
                    latency.add(now.saturating_duration_since(ended));
                    count += 1;
                }
                tally.acked.fetch_add(count, Ordering::Relaxed);
                tally.batches.fetch_add(1, Ordering::Relaxed);
                tally.waiting.fetch_sub(count, Ordering::Relaxed);
            }
            Down::Refusal(refusal) => {
                if tally.refused.fetch_add(1, Ordering::Relaxed) == 0 {
                    eprintln!("bench: refused: {}", refusal.reason);
                }
            }
            Down::Assignment(_)
            | Down::Task(_)
            | Down::Pong(_)
            | Down::Signed(_)
            | Down::Renewed(_)
            | Down::Trust(_) => {}
        }
    }
}

/// A part of `whole` that follows from the agent's place and the turn: even over a fleet, and the same in each run.
fn fraction(whole: Duration, index: u64, turn: u64) -> Duration {
    // SplitMix64 (Steele, Lea, Flood 2014).
    let mut mixed = (index << 20).wrapping_add(turn).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    let thousandths = u32::try_from(mixed % 1000).unwrap_or_default();
    whole * thousandths / 1000
}
