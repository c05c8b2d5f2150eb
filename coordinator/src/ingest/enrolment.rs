//! How an agent without a valid certificate gets one: with a token, or with the key of a certificate that ran
//! out. Anybody can ask.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parallax_decide::names::VantageName;
use parallax_proto::token::SECRET_BYTES;
use parallax_proto::{TEXT_BYTES_MAX, v1};
use serde_json::json;
use sqlx::{Connection, PgConnection};
use tonic::metadata::MetadataValue;
use tonic::{Code, Request, Response, Status};

use super::accept::Peer;
use super::admission::{refusal, unavailable};
use super::order;
use super::pace::Pace;
use crate::clock::{self, monotonic};
use crate::hex::hex;
use crate::identity::keeper::{Held, Keeper};
use crate::identity::request::{AgentKey, sha256};
use crate::state::App;
use crate::store::audit::{self, Deed};
use crate::store::certificate::{self, Against, How, NewCertificate};
use crate::store::token::{self, Redeemed, Refusal};
use crate::store::vantage::VantageId;
use crate::store::{self, StoreError};

/// An agent whose clock is further off cannot tell whether certificates are valid.
const SKEW_MAX: Duration = Duration::from_secs(300);

/// A key may renew this long after its certificate's end.
const LATE_MAX: Duration = Duration::from_secs(certificate::LATE_DAYS_MAX.unsigned_abs() as u64 * 86_400);

/// How far the agent's clock is from ours stands under this name: the agent's less ours, ms.
const CLOCK_OFFSET_MS: &str = "clock-offset-ms";

/// When to try again stands under this name (gRPC's own word), ms.
const PUSHBACK_MS: &str = "grpc-retry-pushback-ms";

/// The service of the `.proto` file.
#[derive(Debug, Clone)]
pub struct Service {
    app: Arc<App>,
    keeper: Arc<Keeper>,
    pace: Arc<Pace>,
}

/// Whom a certificate is for.
#[derive(Debug, Clone, Copy)]
pub struct For<'a> {
    /// The vantage.
    pub vantage: VantageId,
    /// Its name.
    pub name: &'a VantageName,
    /// How it came to this.
    pub how: How,
    /// Token it is joined with.
    pub token: Option<i64>,
    /// Where it is sent.
    pub remote: IpAddr,
    /// SHA-256 of the key that asks for it: of the certificate that is shown, or the one it is for.
    pub by_sha256: &'a [u8; 32],
}

impl Service {
    /// A service with full buckets.
    #[must_use]
    pub fn new(app: Arc<App>, keeper: Arc<Keeper>) -> Self {
        Self { app, keeper, pace: Arc::default() }
    }

    /// What both calls check first: pace, clock, texts, and the request's own signature.
    fn check(&self, remote: SocketAddr, asked: &Asked<'_>) -> Result<AgentKey, Status> {
        self.pace.take(remote.ip(), monotonic()).map_err(|wait| {
            let mut status = refusal(
                Code::ResourceExhausted,
                "slow_down",
                &format!("too many tries from this address; try again in {} s", wait.as_secs().max(1)),
            );
            if let Ok(wait) = MetadataValue::try_from(wait.as_millis().to_string()) {
                status.metadata_mut().insert(PUSHBACK_MS, wait);
            }
            status
        })?;
        let agent_ms = i64::try_from(asked.unix_ms).unwrap_or(i64::MAX);
        let offset_ms = agent_ms.saturating_sub(clock::wall_ms());
        if offset_ms.unsigned_abs() > u64::try_from(SKEW_MAX.as_millis()).unwrap_or(u64::MAX) {
            let mut status = refusal(
                Code::FailedPrecondition,
                "clock_skew",
                &format!(
                    "the agent's clock is {} s {} the coordinator's; set it right (or the coordinator's) and try again",
                    offset_ms.unsigned_abs() / 1000,
                    if offset_ms > 0 { "ahead of" } else { "behind" }
                ),
            );
            if let Ok(offset) = MetadataValue::try_from(offset_ms.to_string()) {
                status.metadata_mut().insert(CLOCK_OFFSET_MS, offset);
            }
            return Err(status);
        }
        if asked.agent_version.len() > TEXT_BYTES_MAX || asked.agent_version.chars().any(char::is_control) {
            return Err(invalid("agent_version is too long or holds control characters"));
        }
        AgentKey::of_request(asked.request).map_err(|why| invalid(&why))
    }

    async fn join(&self, remote: SocketAddr, request: &v1::JoinRequest) -> Result<v1::JoinReply, Status> {
        let asked = Asked::of(&request.request, &request.agent_version, request.unix_ms);
        let key = self.check(remote, &asked)?;
        if request.secret.len() != SECRET_BYTES {
            return Err(refusal(Code::PermissionDenied, "token_unknown", "the token's secret has not 32 bytes"));
        }
        let held = self.keeper.held();
        let joined = store::word(self.redeem(remote.ip(), &sha256(&request.secret), &key, &held)).await;
        match joined.map_err(|error| unavailable(&error))? {
            Ok(identity) => {
                tracing::info!(vantage = identity.vantage, %remote, "joined");
                Ok(reply(identity))
            }
            Err(refusal) => Err(told(&refusal, remote)),
        }
    }

    /// One transaction: a token is used when its certificate is recorded, and not otherwise.
    async fn redeem(
        &self,
        remote: IpAddr,
        secret_sha256: &[u8; 32],
        key: &AgentKey,
        held: &Held,
    ) -> Result<Result<v1::Identity, Refusal>, StoreError> {
        let mut connection = self.app.pool.acquire().await?;
        let mut transaction = connection.begin().await?;
        let from = remote.to_string();
        let redeemed = match token::redeem(&mut transaction, secret_sha256, &key.sha256, &from).await? {
            Redeemed::Granted { token, vantage, name, again, noted } => {
                let by_sha256 = &key.sha256;
                let whom = For { vantage, name: &name, how: How::Join, token: Some(token), remote, by_sha256 };
                let identity = match issue(&mut transaction, &self.app, held, key, whom).await? {
                    Ok(identity) => identity,
                    Err(against) => return Ok(Err(against_token(against, &name))),
                };
                let what = if again { "token_used_again" } else { "token_used" };
                let deed = Deed {
                    who: audit::COORDINATOR,
                    what,
                    subject: &format!("vantage {name}"),
                    reason: "an agent joined",
                };
                if noted {
                    let detail = json!({ "token": token, "key_sha256": hex(&key.sha256) });
                    audit::write(&mut transaction, deed, &detail).await?;
                }
                Ok(identity)
            }
            Redeemed::Refused(refusal) => {
                if let Refusal::Used { token, vantage, alert: true, .. } = &refusal {
                    let deed = Deed {
                        who: audit::COORDINATOR,
                        what: "token_used_twice",
                        subject: &format!("vantage {vantage}"),
                        reason: "another key came with a token that was used; the holder keeps the vantage",
                    };
                    audit::write(&mut transaction, deed, &json!({ "token": token })).await?;
                }
                Err(refusal)
            }
        };
        transaction.commit().await?;
        Ok(redeemed)
    }

    async fn renew(&self, remote: SocketAddr, request: &v1::LateRenewal) -> Result<v1::JoinReply, Status> {
        let asked = Asked::of(&request.request, &request.agent_version, request.unix_ms);
        let key = self.check(remote, &asked)?;
        let found = store::word(async {
            let mut connection = self.app.pool.acquire().await?;
            let holder = certificate::by_key(&mut connection, &key.sha256, None).await?;
            let end = certificate::last_end(&mut connection, &key.sha256).await?;
            Ok((holder, end, store::database_now(&mut connection).await?))
        });
        let (holder, end, now) = found.await.map_err(|error: StoreError| unavailable(&error))?;
        let (Some(holder), Some(end)) = (holder, end) else {
            return Err(refusal(
                Code::PermissionDenied,
                "key_unknown",
                "no certificate was ever issued for this key here; join with a new token",
            ));
        };
        let name = &holder.name;
        let against = match (holder.retired, holder.revoked) {
            (true, _) => Some(Against::VantageRetired),
            (false, true) => Some(Against::VantageRevoked),
            (false, false) => holder.key_revoked.then_some(Against::KeyRevoked),
        };
        if let Some(against) = against {
            return Err(against_key(against, name));
        }
        if now.since(end) > LATE_MAX {
            return Err(refusal(
                Code::PermissionDenied,
                "renewal_too_late",
                &format!("the certificate of {name} ended more than 90 days ago; join with a new token"),
            ));
        }
        let held = self.keeper.held();
        let (how, by_sha256, remote) = (How::LateRenewal, &key.sha256, remote.ip());
        let whom = For { vantage: holder.vantage, name, how, token: None, remote, by_sha256 };
        let issued = issue_alone(&self.app, &held, &key, whom).await.map_err(|error| unavailable(&error))?;
        let identity = issued.map_err(|against| against_key(against, name))?;
        tracing::info!(vantage = identity.vantage, %remote, "renewed late");
        Ok(reply(identity))
    }

    /// Whoever is refused waits longer.
    fn answered<T>(&self, remote: SocketAddr, answer: Result<T, Status>) -> Result<Response<T>, Status> {
        answer.map(Response::new).inspect_err(|status| {
            if matches!(status.code(), Code::PermissionDenied | Code::InvalidArgument) {
                self.pace.refused(remote.ip());
            }
            tracing::warn!(%remote, reason = status.message(), "enrolment refused");
        })
    }
}

#[tonic::async_trait]
impl v1::enrolment_server::Enrolment for Service {
    async fn join(&self, request: Request<v1::JoinRequest>) -> Result<Response<v1::JoinReply>, Status> {
        let remote = remote_of(&request)?;
        self.answered(remote, Service::join(self, remote, request.get_ref()).await)
    }

    async fn renew(&self, request: Request<v1::LateRenewal>) -> Result<Response<v1::JoinReply>, Status> {
        let remote = remote_of(&request)?;
        self.answered(remote, Service::renew(self, remote, request.get_ref()).await)
    }
}

struct Asked<'a> {
    request: &'a [u8],
    agent_version: &'a str,
    unix_ms: u64,
}

impl<'a> Asked<'a> {
    fn of(request: &'a [u8], agent_version: &'a str, unix_ms: u64) -> Self {
        Self { request, agent_version, unix_ms }
    }
}

fn remote_of<T>(request: &Request<T>) -> Result<SocketAddr, Status> {
    let peer = request.extensions().get::<Arc<Peer>>();
    peer.map(|peer| peer.remote).ok_or_else(|| Status::internal("a call without a connection"))
}

fn invalid(why: &str) -> Status {
    refusal(Code::InvalidArgument, "request_invalid", why)
}

fn reply(identity: v1::Identity) -> v1::JoinReply {
    v1::JoinReply { identity: Some(identity), unix_ms: u64::try_from(clock::wall_ms()).unwrap_or(0) }
}

/// Issues a certificate and records it, unless something stands against it. Call inside a transaction: until its end
/// nobody can revoke, replace or remove the vantage.
///
/// # Errors
/// When the database refuses, or the certificate cannot be signed.
pub async fn issue(
    connection: &mut PgConnection,
    app: &App,
    held: &Held,
    key: &AgentKey,
    whom: For<'_>,
) -> Result<Result<v1::Identity, Against>, StoreError> {
    if let Some(against) = certificate::against(connection, whom.vantage, [whom.by_sha256, &key.sha256]).await? {
        return Ok(Err(against));
    }
    let unsigned =
        |why: String| StoreError::Database(sqlx::Error::Protocol(format!("cannot issue a certificate: {why}")));
    let authority = match whom.how {
        // It was away: while the authority is replaced, the old one may be all that it knows.
        How::LateRenewal => held.bundle.serving(),
        How::Join | How::Renewal => held.bundle.issuing(),
    };
    let authority = authority.map_err(|error| unsigned(error.to_string()))?;
    let issued = authority
        .issue(whom.name, &key.public, held.life, clock::wall())
        .map_err(|error| unsigned(error.to_string()))?;
    let new = NewCertificate {
        serial: &issued.serial,
        vantage: whom.vantage,
        key_sha256: &key.sha256,
        authority_sha256: &issued.authority_sha256,
        how: whom.how,
        not_before: issued.not_before,
        not_after: issued.not_after,
        coordinator: app.instance,
        remote: &whom.remote.to_string(),
        token: whom.token,
    };
    certificate::record(connection, new).await?;
    Ok(Ok(v1::Identity {
        vantage: whom.name.to_string(),
        certificates: vec![issued.certificate.to_vec()],
        trust: Some(order::trust(held)),
    }))
}

/// [`issue`] in a transaction of its own.
///
/// # Errors
/// As [`issue`].
pub async fn issue_alone(
    app: &App,
    held: &Held,
    key: &AgentKey,
    whom: For<'_>,
) -> Result<Result<v1::Identity, Against>, StoreError> {
    store::word(async {
        let mut connection = app.pool.acquire().await?;
        let mut transaction = connection.begin().await?;
        let issued = issue(&mut transaction, app, held, key, whom).await?;
        transaction.commit().await?;
        Ok(issued)
    })
    .await
}

/// What stands against a renewal, as the agent is told it.
#[must_use]
pub fn against_key(against: Against, name: &VantageName) -> Status {
    let (word, text) = match against {
        Against::VantageRetired => ("vantage_unknown", format!("vantage {name} was removed")),
        Against::VantageRevoked | Against::KeyRevoked => {
            ("vantage_revoked", format!("vantage {name} or this key of it was revoked"))
        }
    };
    refusal(Code::PermissionDenied, word, &text)
}

fn against_token(against: Against, name: &VantageName) -> Refusal {
    let vantage = name.to_string();
    match against {
        Against::VantageRetired => Refusal::VantageRetired { vantage },
        Against::VantageRevoked => Refusal::VantageRevoked { vantage },
        Against::KeyRevoked => Refusal::KeyRevoked { vantage },
    }
}

/// A refusal as the agent is told it.
fn told(refused: &Refusal, remote: SocketAddr) -> Status {
    let at = |at: parallax_decide::time::Timestamp| {
        store::offset(at).format(&time::format_description::well_known::Rfc3339).unwrap_or_default()
    };
    let (word, text) = match refused {
        Refusal::Unknown => ("token_unknown", "there is no such token here".to_owned()),
        Refusal::Used { token, vantage, at: when, from, alert } => {
            if *alert {
                tracing::error!(token, vantage, %remote, first = from, "a token came a second time, with another key: somebody else has it; if the first was not yours: parallax vantage replace");
            }
            ("token_used", format!("it was used at {} from {from} to join as {vantage}; tokens work once", at(*when)))
        }
        Refusal::Expired { at: when } => ("token_expired", format!("it ended at {}", at(*when))),
        Refusal::Revoked { at: when } => ("token_revoked", format!("it was taken back at {}", at(*when))),
        Refusal::VantageRevoked { vantage } => ("vantage_revoked", format!("vantage {vantage} was revoked")),
        Refusal::VantageRetired { vantage } => ("vantage_unknown", format!("vantage {vantage} was removed")),
        Refusal::KeyRevoked { vantage } => {
            ("vantage_revoked", format!("this key of vantage {vantage} was revoked; make a new one"))
        }
        Refusal::TooLate { vantage } => (
            "renewal_too_late",
            format!("this key used it to join as {vantage} and holds no certificate any more; join with a new token"),
        ),
    };
    refusal(Code::PermissionDenied, word, &format!("the join token was refused: {text}"))
}
