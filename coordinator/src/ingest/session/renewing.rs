//! A new certificate over the open stream.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parallax_proto::v1;
use parallax_proto::v1::coordinator_message::Message as ToAgent;

use super::Session;
use super::down::SEND_WITHIN;
use crate::identity::request::AgentKey;
use crate::ingest::admission::unavailable;
use crate::ingest::enrolment::{self, For};
use crate::store::certificate::How;

impl Session {
    /// Answers a request for a new certificate beside what else goes on: a slow database must hold up neither
    /// a Pong nor a batch for it. One at a time.
    pub(super) fn renew(&self, renewal: &v1::Renewal) {
        let refused = |why: &str| v1::Renewed { answer: Some(v1::renewed::Answer::Refused(why.to_owned())) };
        let key = match AgentKey::of_request(&renewal.request) {
            Ok(key) if !self.renewing.swap(true, Ordering::AcqRel) => Ok(key),
            Ok(_) => Err("one is on its way already".to_owned()),
            Err(why) => Err(why),
        };
        let (app, keeper, down) = (Arc::clone(&self.app), Arc::clone(&self.keeper), self.down.clone());
        let (id, name, remote, renewing) = (self.id, self.vantage.clone(), self.remote, Arc::clone(&self.renewing));
        tokio::spawn(async move {
            let answer = match &key {
                Err(why) => {
                    tracing::warn!(vantage = %name, why, "a renewal is refused");
                    refused(why)
                }
                Ok(key) => {
                    let whom = For { vantage: id, name: &name, how: How::Renewal, token: None, remote: remote.ip() };
                    let issued = async {
                        let mut connection = app.pool.acquire().await?;
                        enrolment::issue(&mut connection, &app, &keeper.held(), key, whom).await
                    };
                    let answer = match issued.await {
                        Ok(identity) => {
                            tracing::info!(vantage = %name, "certificate renewed");
                            v1::Renewed { answer: Some(v1::renewed::Answer::Identity(identity)) }
                        }
                        Err(error) => refused(unavailable(&error).message()),
                    };
                    renewing.store(false, Ordering::Release);
                    answer
                }
            };
            let message = v1::CoordinatorMessage { message: Some(ToAgent::Renewed(answer)) };
            // A stream that has ended needs no answer.
            let _ = down.send_timeout(Box::new(Ok(message)), SEND_WITHIN).await;
        });
    }
}
