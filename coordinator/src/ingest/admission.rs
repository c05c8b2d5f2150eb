//! Which agent may report: by the key of its certificate, whatever name that carries.

use std::net::SocketAddr;

use parallax_proto::REASON;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};

use super::accept::Peer;
use crate::clock;
use crate::state::App;
use crate::store::StoreError;
use crate::store::certificate::{self, Holder, Presented};
use crate::store::vantage::{self, VantageRow};

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

/// Whether an agent may report here; its vantage if so.
///
/// # Errors
/// Why not, as the agent is told.
pub async fn admit(app: &App, presented: &Presented, remote: SocketAddr) -> Result<VantageRow, Status> {
    let found = async {
        let mut connection = app.pool.acquire().await?;
        let from = remote.ip().to_string();
        let found = certificate::holder(&mut connection, presented, app.instance, &from).await?;
        if found.is_some() || !app.config.load().topology.vantages.contains_key(&presented.name) {
            return Ok(found);
        }
        vantage::find_or_make(&mut connection, &presented.name).await?;
        certificate::holder(&mut connection, presented, app.instance, &from).await
    };
    let found = found.await.map_err(|error: StoreError| unavailable(&error))?;
    let Some(Holder { vantage: row, key_revoked }) = found else {
        return Err(not_listed(presented.name.as_str(), "is not in the coordinator's configuration"));
    };
    let name = &row.name;
    if row.retired_at.is_some() {
        return Err(refusal(Code::PermissionDenied, "vantage_unknown", &format!("vantage {name} was removed")));
    }
    if row.revoked_at.is_some() {
        return Err(refusal(Code::PermissionDenied, "vantage_revoked", &format!("vantage {name} was revoked")));
    }
    if key_revoked {
        return Err(refusal(
            Code::PermissionDenied,
            "vantage_revoked",
            &format!("this key of vantage {name} was revoked"),
        ));
    }
    if !app.config.load().topology.vantages.contains_key(name) {
        let why = match row.admitted_at {
            Some(_) => "was approved and waits for the coordinator to take it in",
            None => "is not in the coordinator's configuration, and nobody approved it",
        };
        return Err(not_listed(name.as_str(), why));
    }
    Ok(row)
}

/// Not a refusal for good: a slip in the configuration must not end agents that nobody can visit.
fn not_listed(name: &str, why: &str) -> Status {
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
