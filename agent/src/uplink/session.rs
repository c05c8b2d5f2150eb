//! Opens one stream: the way there, the greeting, and what its end means.

use std::sync::Arc;
use std::time::Duration;

use parallax_proto::v1::probe_client::ProbeClient;
use parallax_proto::v1::{self, agent_message};
use parallax_proto::{MESSAGE_BYTES_MAX, NONCE_BYTES, PROTOCOL, PROTOCOL_MIN};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use super::address::Coordinator;
use super::backoff::Pace;
use super::connector::Connection;
use super::identity::Credentials;
use super::reply::{self, Meaning, meaning};
use super::stream::{SENDING_MAX, Stream, message};
use super::timing::Timing;
use super::trouble::Trouble;
use super::watched::Once;
use super::{Uplink, chain};
use crate::clock;
use crate::entropy;

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The agent was told to stop.
    ShutDown,
    /// Left on purpose, to come back with a renewed certificate.
    Renewed,
    /// The connection did not come about, or was lost.
    Lost(Lost),
    /// The coordinator does not accept who we are.
    IdentityRefused(String),
}

/// A connection that did not come about, or was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// What happened.
    pub why: String,
    /// In one word, for programs that read the log.
    pub word: &'static str,
    /// How soon another try makes sense.
    pub pace: Pace,
    /// Whether the coordinator had said anything.
    pub connected: bool,
    /// For how long the stream was answered.
    pub held: Duration,
    /// Another stream of our identity took its place.
    pub replaced: bool,
    /// One of the two clocks is suspected.
    pub about_time: bool,
}

impl Lost {
    /// Something went wrong on this side or on the way, while the stream stood.
    #[must_use]
    pub fn alone(word: &'static str, why: String) -> Self {
        Self { why, word, pace: Pace::Usual, connected: true, held: Duration::ZERO, replaced: false, about_time: false }
    }

    /// The coordinator ended it, for everybody perhaps.
    #[must_use]
    pub fn ended(word: &'static str, why: String) -> Self {
        Self { pace: Pace::Spread, ..Self::alone(word, why) }
    }

    /// The coordinator ended it with a status.
    #[must_use]
    pub fn of(status: &Status) -> Self {
        let meaning = meaning(status);
        let clock = reply::server_unix_ms(status).map_or_else(String::new, |server_ms| {
            let apart_ms = i128::from(clock::unix_ms()) - i128::from(server_ms);
            format!(" (by this machine's clock it is {apart_ms} ms later than by the coordinator's)")
        });
        Self {
            pace: meaning.pace(),
            replaced: meaning == Meaning::Replaced,
            about_time: meaning == Meaning::ClockSkew,
            ..Self::alone(meaning.word(), format!("{:?}: {}{clock}", status.code(), chain(status)))
        }
    }
}

impl From<Trouble> for Lost {
    fn from(trouble: Trouble) -> Self {
        Self {
            pace: trouble.pace(),
            connected: false,
            about_time: matches!(trouble, Trouble::Clock { .. } | Trouble::CertificateRefused { .. }),
            ..Self::alone(trouble.word(), trouble.to_string())
        }
    }
}

impl Uplink {
    /// Runs one session. The caller rewinds the spool afterwards.
    pub(super) async fn session(&mut self, to: &Coordinator, shutdown: watch::Receiver<bool>) -> Ended {
        let mut credentials = match self.identity.credentials() {
            Ok(credentials) => credentials,
            Err(error) => return Ended::Lost(Trouble::Identity(error).into()),
        };
        match self.renew_late(to, &credentials).await {
            Ok(()) => credentials = self.identity.credentials().unwrap_or(credentials),
            Err(ended) => return ended,
        }
        self.look_at(&credentials);
        let connection = match self.connector.connect(to, &credentials, &self.timing).await {
            Ok(connection) => connection,
            Err(trouble) => return Ended::Lost(trouble.into()),
        };
        let verdict = connection.verdict.clone();
        let ended = self.converse(to, connection, &credentials, shutdown).await;
        match (ended, verdict.take()) {
            // The HTTP/2 library only says that the connection broke.
            (Ended::Lost(lost), Some(alert)) => {
                let refused = self.connector.refused(alert, &credentials);
                Ended::Lost(Lost { connected: lost.connected, held: lost.held, ..refused.into() })
            }
            (ended, _) => ended,
        }
    }

    /// Notes the certificate in use, and warns before its end.
    pub(super) fn look_at(&mut self, credentials: &Credentials) {
        self.status.holds(credentials.validity);
        let now_s = i64::try_from(clock::unix_ms() / 1000).unwrap_or(i64::MAX);
        self.expiry.look(credentials.validity, now_s);
    }

    async fn converse(
        &mut self,
        to: &Coordinator,
        connection: Connection,
        credentials: &Arc<Credentials>,
        shutdown: watch::Receiver<bool>,
    ) -> Ended {
        let (address, not_yet) = (connection.address, |lost| Ended::Lost(Lost { connected: false, ..lost }));
        let channel = http2(connection, &self.timing).await;
        let channel = match channel {
            Ok(channel) => channel,
            Err(error) => return not_yet(Lost::ended("http2_failed", chain(&error))),
        };
        let mut client = ProbeClient::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let (send, outgoing) = mpsc::channel(SENDING_MAX);
        let boot = self.recorder.spool().hold();
        // Without randomness orders are for no stream in particular, as they were before.
        let nonce = entropy::bytes::<NONCE_BYTES>().map_or_else(|_| Vec::new(), |bytes| bytes.to_vec());
        let hello = v1::Hello {
            protocol: PROTOCOL,
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            boot_id: boot.to_string(),
            assignment_version: self.kept.version(),
            epoch: self.epoch.highest(),
            protocol_min: PROTOCOL_MIN,
            epoch_proof: self.epoch.proof().to_vec(),
            nonce: nonce.clone(),
        };
        // The channel is empty and both its ends are here.
        let _ = send.try_send(message(agent_message::Message::Hello(hello)));
        let greeted = timeout(self.timing.greeting_max, async {
            let mut incoming = client.session(ReceiverStream::new(outgoing)).await?.into_inner();
            let first = incoming.message().await?;
            Ok::<_, Status>((incoming, first))
        });
        let (mut incoming, first) = match greeted.await {
            Ok(Ok((incoming, Some(first)))) => (incoming, first),
            Ok(Ok((_, None))) => {
                return not_yet(Lost::ended("stream_ended", "the coordinator closed the stream without a word".into()));
            }
            Ok(Err(status)) => return refused_or_lost(&status, Duration::ZERO, false),
            Err(_) => {
                // It may also be overloaded; then small segments do no harm.
                self.connector.lost_large_packets(address);
                let why = format!(
                    "TLS stands, but the coordinator did not greet within {} s: it is overloaded, or large packets are lost on the way (path MTU)",
                    self.timing.greeting_max.as_secs()
                );
                return not_yet(Lost::ended("no_greeting", why));
            }
        };
        tracing::info!(coordinator = %to, %address, %boot, "connected to the coordinator");
        self.status.connected(to.to_string());
        let mut stream = Stream::new(self, send, Arc::clone(credentials), nonce);
        let ended = stream.run(first, &mut incoming, shutdown).await;
        let held = stream.held();
        match ended {
            Ok(ended) => ended,
            Err(Broken::Status(status)) => refused_or_lost(&status, held, true),
            Err(Broken::Lost(lost)) => Ended::Lost(Lost { held, ..lost }),
        }
    }
}

/// HTTP/2 over a connection on which the coordinator proved itself.
pub(super) async fn http2(connection: Connection, timing: &Timing) -> Result<Channel, tonic::transport::Error> {
    // The scheme is http because TLS is ours, beneath; the name only fills the authority.
    Endpoint::from_static("http://parallax-coordinator")
        .http2_keep_alive_interval(timing.keepalive_every)
        .keep_alive_timeout(timing.keepalive_wait)
        .keep_alive_while_idle(true)
        .connect_with_connector(Once::new(connection.stream))
        .await
}

fn refused_or_lost(status: &Status, held: Duration, connected: bool) -> Ended {
    match meaning(status) == Meaning::IdentityRefused {
        true => Ended::IdentityRefused(status.message().to_owned()),
        false => Ended::Lost(Lost { held, connected, ..Lost::of(status) }),
    }
}

/// Why a stream broke.
#[derive(Debug)]
pub(super) enum Broken {
    /// The coordinator, or the HTTP/2 library, said so.
    Status(Box<Status>),
    /// We left it.
    Lost(Lost),
}

impl From<Status> for Broken {
    fn from(status: Status) -> Self {
        Self::Status(Box::new(status))
    }
}
