//! Asks a coordinator for a certificate, without showing one: with a token, or with the key of a
//! certificate that has ended.

use std::time::Duration;

use parallax_proto::v1::enrolment_client::EnrolmentClient;
use parallax_proto::{MESSAGE_BYTES_MAX, REASON, v1};
use rustls_pki_types::CertificateDer;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::address::Coordinator;
use super::backoff::Pace;
use super::chain;
use super::connector::{Connection, Connector};
use super::credentials::Credentials;
use super::reply;
use super::session::http2;
use super::timing::Timing;
use super::trouble::Trouble;
use crate::clock;
use crate::entropy::NoEntropy;
use crate::identity::folder::{Folder, FolderError};
use crate::identity::key::Key;
use crate::identity::trusted::{NotTrusted, Trusted};
use crate::identity::vouched::vouched;
use crate::probe::remark::harmless;

/// Longest wait for an answer; one that was lost is given again.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// Longest text of the coordinator that is shown, in characters.
const SHOWN_MAX: usize = 255;

/// What is asked with.
#[derive(Debug)]
pub enum By<'a> {
    /// The secret of a token.
    Token(&'a [u8]),
    /// The key itself: a certificate for it has ended.
    Key,
}

/// A certificate that was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enrolled {
    /// The vantage it is for.
    pub vantage: String,
    /// Our own certificate in DER, and those above it.
    pub certificates: Vec<Vec<u8>>,
    /// Whom to trust from now on; empty lists: as before.
    pub trusted: Trusted,
    /// This machine's wall clock less the coordinator's, in ms.
    pub clock_offset_ms: i64,
}

/// Why there is no certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotEnrolled {
    /// The coordinator was not reached, or did not prove itself.
    Trouble(Trouble),
    /// It refused for good.
    Refused {
        /// In one word; empty when it gave none.
        word: String,
        /// In its words, fit to be shown.
        why: String,
    },
    /// One of the two clocks is wrong; this machine's less the coordinator's, in ms, where it was said.
    Clock {
        /// How far apart.
        offset_ms: Option<i64>,
        /// In its words.
        why: String,
    },
    /// Not now.
    Later {
        /// How soon to try again.
        pace: Pace,
        /// What it said.
        why: String,
    },
    /// It is older than enrolment.
    NotOffered,
    /// What it gave is no identity, or cannot be kept.
    Answer(String),
}

impl From<NoEntropy> for NotEnrolled {
    fn from(error: NoEntropy) -> Self {
        Self::Trouble(Trouble::Own(error.to_string()))
    }
}

impl From<NotTrusted> for NotEnrolled {
    fn from(error: NotTrusted) -> Self {
        Self::Answer(format!("whom it says to trust cannot be taken: {error}"))
    }
}

impl From<FolderError> for NotEnrolled {
    fn from(error: FolderError) -> Self {
        Self::Answer(error.to_string())
    }
}

/// Asks one coordinator. Whom it says to trust counts only where no signer of orders is known yet.
///
/// # Errors
/// When there is no certificate, or none that an authority vouches for.
pub async fn ask(
    connector: &mut Connector,
    to: &Coordinator,
    with: &Credentials,
    (by, key): (By<'_>, &Key),
    timing: &Timing,
) -> Result<Enrolled, NotEnrolled> {
    let connection = connector.connect(to, with, timing).await.map_err(NotEnrolled::Trouble)?;
    let (request, verdict) = (key.request()?, connection.verdict.clone());
    let asked = tokio::time::timeout(ANSWER_MAX, Box::pin(call(connection, by, request, timing)));
    let asked = asked.await.unwrap_or_else(|_| {
        let why = format!("no answer within {} s", ANSWER_MAX.as_secs());
        Err(NotEnrolled::Later { pace: Pace::Usual, why })
    });
    let (reply, clock_offset_ms) = match asked {
        // Whoever demands a certificate first does not give one: it is of before there was enrolment.
        Err(NotEnrolled::Later { .. }) if verdict.take().is_some() => return Err(NotEnrolled::NotOffered),
        asked => asked?,
    };
    let identity = reply.identity.ok_or_else(|| NotEnrolled::Answer("the answer holds no identity".to_owned()))?;
    // Whoever knows its signers takes nothing else from anybody who can merely answer here: what changes, a
    // known signer says on the next stream.
    let trusted = match with.signers.is_empty() {
        true => Trusted::try_from(&identity.trust.unwrap_or_default())?,
        false => Trusted::default(),
    };
    let roots: &[CertificateDer<'static>] = match trusted.authorities.is_empty() {
        true => &with.roots,
        false => &trusted.authorities,
    };
    vouched(&identity.certificates, roots, &identity.vantage)
        .map_err(|why| NotEnrolled::Answer(format!("what it sent is no certificate of ours: {why}")))?;
    Ok(Enrolled { vantage: identity.vantage, certificates: identity.certificates, trusted, clock_offset_ms })
}

impl Enrolled {
    /// Writes it into the identity folder: whom to trust first, then the pair.
    ///
    /// # Errors
    /// When the disk does not take it.
    pub fn keep(&self, folder: &Folder, key: &Key) -> Result<(), FolderError> {
        folder.trust(&self.trusted)?;
        folder.put(key, &self.certificates).map(|_| ())
    }
}

async fn call(
    connection: Connection,
    by: By<'_>,
    request: Vec<u8>,
    timing: &Timing,
) -> Result<(v1::JoinReply, i64), NotEnrolled> {
    let ended = |error| NotEnrolled::Later { pace: Pace::Usual, why: chain(&error) };
    let channel: Channel = http2(connection, timing).await.map_err(ended)?;
    let mut client = EnrolmentClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
    let agent_version = env!("CARGO_PKG_VERSION").to_owned();
    let (sent_ms, unix_ms) = (clock::boottime_ms(), clock::unix_ms());
    let replied = match by {
        By::Token(secret) => {
            client.join(v1::JoinRequest { secret: secret.to_vec(), request, agent_version, unix_ms }).await
        }
        By::Key => client.renew(v1::LateRenewal { request, agent_version, unix_ms }).await,
    };
    let reply = replied.map_err(|status| meaning(&status, matches!(by, By::Key)))?.into_inner();
    let half_ms = clock::boottime_ms().saturating_sub(sent_ms) / 2;
    let offset_ms = signed(unix_ms.saturating_add(half_ms)).saturating_sub(signed(reply.unix_ms));
    Ok((reply, offset_ms))
}

/// What a status means here: what is for good, and what another try may mend.
/// `by_key`: asked by an agent that has been one, and shall not end for a slip of either side.
fn meaning(status: &Status, by_key: bool) -> NotEnrolled {
    let word = status.metadata().get(REASON).and_then(|word| word.to_str().ok()).unwrap_or_default();
    let why = harmless(status.message(), SHOWN_MAX);
    if word == reply::CLOCK_SKEW {
        let said = status.metadata().get("clock-offset-ms").and_then(|ms| ms.to_str().ok()?.parse().ok());
        let ours = |server_ms| signed(clock::unix_ms()).saturating_sub(signed(server_ms));
        return NotEnrolled::Clock { offset_ms: said.or_else(|| reply::server_unix_ms(status).map(ours)), why };
    }
    match status.code() {
        Code::PermissionDenied => NotEnrolled::Refused { word: harmless(word, SHOWN_MAX), why },
        // The form of what was asked is no judgement of who asks: a later version may be understood.
        Code::InvalidArgument if by_key => NotEnrolled::Later { pace: Pace::Slow, why },
        Code::InvalidArgument => NotEnrolled::Refused { word: harmless(word, SHOWN_MAX), why },
        Code::Unimplemented => NotEnrolled::NotOffered,
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::NotFound
        | Code::AlreadyExists
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::OutOfRange
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss
        | Code::Unauthenticated => {
            NotEnrolled::Later { pace: reply::meaning(status).pace(), why: harmless(&chain(status), SHOWN_MAX) }
        }
    }
}

fn signed(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}
