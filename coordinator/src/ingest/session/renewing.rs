//! A new certificate over the open stream.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use parallax_proto::v1;
use parallax_proto::v1::coordinator_message::Message as ToAgent;
use tonic::Status;

use super::Session;
use super::down::SEND_WITHIN;
use crate::clock::monotonic;
use crate::identity::keeper::Keeper;
use crate::identity::request::AgentKey;
use crate::ingest::admission::{self, unavailable};
use crate::ingest::enrolment::{self, For};
use crate::state::App;
use crate::store;
use crate::store::certificate::{self, How, RENEWALS_AN_HOUR_MAX};

/// Shortest time between two renewals of one stream: each costs a signature and a row for months, and the shortest
/// life of a certificate is an hour.
const RENEWALS_APART_MIN: Duration = Duration::from_secs(10);

/// The renewals of one stream.
#[derive(Debug, Default)]
pub(super) struct Renewals {
    /// When the latest was begun, and the word of who makes it.
    latest: Mutex<Option<(Instant, Weak<OnItsWay>)>>,
}

/// A certificate on its way; another may be asked for once this is dropped.
#[derive(Debug)]
struct OnItsWay;

impl Renewals {
    fn begin(&self, now: Instant) -> Result<Arc<OnItsWay>, String> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, on_its_way)) = &*latest {
            if now.saturating_duration_since(*at) < RENEWALS_APART_MIN {
                return Err(format!("asked again within {} s", RENEWALS_APART_MIN.as_secs()));
            }
            if on_its_way.strong_count() > 0 {
                return Err("one is on its way already".to_owned());
            }
        }
        let on_its_way = Arc::new(OnItsWay);
        *latest = Some((now, Arc::downgrade(&on_its_way)));
        Ok(on_its_way)
    }
}

impl Session {
    /// Answers a request for a new certificate. What is refused is answered at once, before more of the stream is
    /// read; the rest beside what else goes on: a slow database must hold up neither a Pong nor a batch for it.
    ///
    /// # Errors
    /// When the agent takes no answer.
    pub(super) async fn renew(&self, renewal: &v1::Renewal) -> Result<(), Status> {
        let begun = AgentKey::of_request(&renewal.request).and_then(|key| Ok((key, self.renewals.begin(monotonic())?)));
        let (key, on_its_way) = match begun {
            Ok(begun) => begun,
            Err(why) => {
                tracing::warn!(vantage = %self.vantage, why, "a renewal is refused");
                return self.send(ToAgent::Renewed(refused(&why))).await;
            }
        };
        let (app, keeper, down) = (Arc::clone(&self.app), Arc::clone(&self.keeper), self.down.clone());
        let (id, name, remote) = (self.id, self.vantage.clone(), self.peer.remote.ip());
        let by = admission::certificate(&self.peer)?.key_sha256;
        tokio::spawn(async move {
            let whom = For { vantage: id, name: &name, how: How::Renewal, token: None, remote, by_sha256: &by };
            let answer = match issue(&app, &keeper, &key, whom).await {
                Ok(identity) => {
                    tracing::info!(vantage = %name, "certificate renewed");
                    v1::Renewed { answer: Some(v1::renewed::Answer::Identity(identity)) }
                }
                Err(why) => {
                    tracing::warn!(vantage = %name, why, "a renewal is refused");
                    refused(&why)
                }
            };
            drop(on_its_way);
            let message = v1::CoordinatorMessage { message: Some(ToAgent::Renewed(answer)) };
            // A stream that has ended needs no answer.
            let _ = down.send_within(Box::new(Ok(message)), SEND_WITHIN).await;
        });
        Ok(())
    }
}

async fn issue(app: &App, keeper: &Keeper, key: &AgentKey, whom: For<'_>) -> Result<v1::Identity, String> {
    let away = |error| unavailable(&error).message().to_owned();
    let often = async { certificate::renewed_often(&mut *app.pool.acquire().await?, whom.vantage).await };
    if store::word(often).await.map_err(away)? {
        return Err(format!("{} was renewed {RENEWALS_AN_HOUR_MAX} times within an hour; try again later", whom.name));
    }
    let issued = enrolment::issue_alone(app, &keeper.held(), key, whom).await.map_err(away)?;
    issued.map_err(|against| enrolment::against_key(against, whom.name).message().to_owned())
}

fn refused(why: &str) -> v1::Renewed {
    v1::Renewed { answer: Some(v1::renewed::Answer::Refused(why.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_renewal_at_a_time_and_not_two_within_ten_seconds() {
        let (renewals, now) = (Renewals::default(), monotonic());
        let first = renewals.begin(now).unwrap();
        assert!(renewals.begin(now).is_err_and(|why| why.contains("within 10 s")));
        let later = now + RENEWALS_APART_MIN;
        assert!(renewals.begin(later).is_err_and(|why| why.contains("on its way")));
        drop(first);
        drop(renewals.begin(later).unwrap());
        assert!(renewals.begin(later + RENEWALS_APART_MIN / 2).is_err());
        assert!(renewals.begin(later + RENEWALS_APART_MIN).is_ok());
    }
}
