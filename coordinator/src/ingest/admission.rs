//! Which agent may report: by the key of its certificate, whatever name that carries.

use std::net::SocketAddr;
use std::time::Duration;

use parallax_decide::names::VantageName;
use parallax_proto::REASON;
use tokio::sync::Semaphore;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};

use super::accept::Peer;
use crate::clock;
use crate::state::App;
use crate::store::certificate::{self, Holder, Presented};
use crate::store::vantage;
use crate::store::{self, StoreError};

/// Longest wait of a greeting for its turn and its word with the database: after so long agents give up and begin again
/// with a pause.
const GREETING_WITHIN: Duration = Duration::from_secs(10);

/// The coordinator's wall clock stands in refusals under this name, ms since 1970.
pub const SERVER_UNIX_MS: &str = "server-unix-ms";

/// The certificate of a peer; without one there is no stream.
///
/// # Errors
/// When it has none.
pub fn certificate(peer: &Peer) -> Result<&Presented, Status> {
    peer.certificate.as_ref().ok_or_else(|| {
        refusal(
            Code::Unauthenticated,
            "no_certificate",
            "a stream needs a client certificate; join with a token: parallax-agent join TOKEN",
        )
    })
}

/// How a vantage stands with the people who run it.
#[derive(Debug, Clone, Copy)]
pub struct Stands<'a> {
    /// Its name now.
    pub name: &'a VantageName,
    /// It was removed.
    pub retired: bool,
    /// It was revoked.
    pub revoked: bool,
    /// This key of it was.
    pub key_revoked: bool,
    /// A person approved it although the configuration does not list it.
    pub admitted: bool,
}

/// Whether an agent may report here; its vantage if so.
///
/// # Errors
/// Why not, as the agent is told.
pub async fn admit(
    app: &App,
    greetings: &Semaphore,
    presented: &Presented,
    remote: SocketAddr,
) -> Result<Holder, Status> {
    let found = in_turn(greetings, || async {
        let mut connection = app.pool.acquire().await?;
        let from = remote.ip().to_string();
        let found = certificate::holder(&mut connection, presented, app.instance, &from).await?;
        if found.is_some() || !app.config.load().topology.vantages.contains_key(&presented.name) {
            return Ok(found);
        }
        vantage::find_or_make(&mut connection, &presented.name).await?;
        certificate::holder(&mut connection, presented, app.instance, &from).await
    });
    let found = found.await.map_err(|error: StoreError| unavailable(&error))?;
    let Some(holder) = found else {
        return Err(not_listed(presented.name.as_str(), "is not in the coordinator's configuration"));
    };
    let stands = Stands {
        name: &holder.name,
        retired: holder.retired,
        revoked: holder.revoked,
        key_revoked: holder.key_revoked,
        admitted: holder.admitted,
    };
    may_report(app, stands)?;
    Ok(holder)
}

/// A greeting's word with the database, when its turn comes. However the database hangs, it ends. The word begins, and
/// takes its memory, when it is its turn: thousands may wait.
///
/// # Errors
/// What was asked says, or [`sqlx::Error::PoolTimedOut`].
pub async fn in_turn<T, A: Future<Output = Result<T, StoreError>>>(
    greetings: &Semaphore,
    ask: impl FnOnce() -> A,
) -> Result<T, StoreError> {
    store::within(GREETING_WITHIN, async {
        let _turn = greetings.acquire().await;
        Box::pin(store::word(ask())).await
    })
    .await
}

/// Whether a vantage that stands so may report here.
///
/// # Errors
/// Why not, as the agent is told.
pub fn may_report(app: &App, stands: Stands<'_>) -> Result<(), Status> {
    let name = stands.name;
    if stands.retired {
        return Err(refusal(Code::PermissionDenied, "vantage_unknown", &format!("vantage {name} was removed")));
    }
    if stands.revoked {
        return Err(refusal(Code::PermissionDenied, "vantage_revoked", &format!("vantage {name} was revoked")));
    }
    if stands.key_revoked {
        return Err(refusal(
            Code::PermissionDenied,
            "vantage_revoked",
            &format!("this key of vantage {name} was revoked"),
        ));
    }
    if !app.config.load().topology.vantages.contains_key(name) {
        let why = match stands.admitted {
            true => "was approved and waits for the coordinator to take it in",
            false => "is not in the coordinator's configuration, and nobody approved it",
        };
        return Err(not_listed(name.as_str(), why));
    }
    Ok(())
}

/// Not a refusal for good: a slip in the configuration must not end agents that nobody can visit.
pub(super) fn not_listed(name: &str, why: &str) -> Status {
    refusal(
        Code::FailedPrecondition,
        "vantage_not_listed",
        &format!("vantage {name} {why}; add it under vantages:, or: parallax vantage approve {name}"),
    )
}

/// A status with a word for programs, a text for people, and the time here.
#[must_use]
pub fn refusal(code: Code, word: &'static str, text: &str) -> Status {
    let mut metadata = MetadataMap::new();
    metadata.insert(REASON, MetadataValue::from_static(word));
    if let Ok(now) = MetadataValue::try_from(clock::wall_ms().to_string()) {
        metadata.insert(SERVER_UNIX_MS, now);
    }
    Status::with_metadata(code, text, metadata)
}

/// The database is away.
#[must_use]
pub fn unavailable(error: &StoreError) -> Status {
    tracing::warn!(%error, "the database is away");
    Status::unavailable("the coordinator's database is away; try again")
}
