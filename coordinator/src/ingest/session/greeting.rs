//! The greeting: which protocol, which start of the agent, and what it was told before.

use std::sync::atomic::Ordering;

use parallax_proto::{PROTOCOL, PROTOCOL_MIN, TEXT_BYTES_MAX, v1};
use tonic::Status;
use uuid::Uuid;

use super::Session;
use crate::ingest::admission::unavailable;
use crate::ingest::validate;
use crate::installation;
use crate::store::StoreError;
use crate::store::vantage;

impl Session {
    pub(super) async fn greet(&self, hello: &v1::Hello) -> Result<Uuid, Status> {
        // The newest that both know; 0 stands for 1 in what the oldest agents do not send.
        let speaks = hello.protocol.min(PROTOCOL);
        if speaks < PROTOCOL_MIN || hello.protocol_min.max(1) > speaks {
            return Err(Status::failed_precondition(format!(
                "protocol {} is not spoken here; this coordinator speaks {PROTOCOL_MIN} to {PROTOCOL}",
                hello.protocol
            )));
        }
        self.speaks.store(speaks, Ordering::Relaxed);
        let boot = validate::boot_id(&hello.boot_id).map_err(|(_, why)| Status::invalid_argument(why))?;
        if hello.agent_version.len() > TEXT_BYTES_MAX || hello.agent_version.chars().any(char::is_control) {
            return Err(Status::invalid_argument("agent_version is too long or holds control characters"));
        }
        let greeted = async {
            let from = (self.remote.to_string(), self.app.instance);
            let _turn = self.greetings.acquire().await;
            let mut connection = self.app.pool.acquire().await?;
            vantage::greeted(&mut connection, self.id, &hello.agent_version, (&from.0, from.1)).await
        };
        greeted.await.map_err(|error: StoreError| unavailable(&error))?;
        // What it was told before may be more than this database knows.
        if hello.epoch > 0 {
            let told = installation::told_by_agent(&self.app, self.vantage.as_str(), hello.epoch);
            told.await.map_err(|error| unavailable(&error))?;
        }
        Ok(boot)
    }
}
