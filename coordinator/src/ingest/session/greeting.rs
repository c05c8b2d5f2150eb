//! The greeting: which protocol, which start of the agent, whether it may report, and what it was told before.

use parallax_proto::{NONCE_BYTES, PROTOCOL, PROTOCOL_MIN, TEXT_BYTES_MAX, v1};
use tonic::Status;
use uuid::Uuid;

use super::Session;
use super::ending::cut_off;
use crate::ingest::admission::{Stands, certificate, in_turn, may_report, unavailable};
use crate::ingest::standing::Cut;
use crate::ingest::{assignment, order as orders, validate};
use crate::installation;
use crate::store::greeting::{Greeting, greet};
use crate::store::{StoreError, order};

/// A greeting that is in order.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hello {
    /// Random identity of the agent's start.
    pub(super) boot: Uuid,
    /// The newest version of the protocol that both know.
    pub(super) speaks: u32,
}

impl Hello {
    /// Checks what it says.
    pub(super) fn of(hello: &v1::Hello) -> Result<Self, Status> {
        // 0 stands for 1 in what the oldest agents do not send.
        let speaks = hello.protocol.min(PROTOCOL);
        if speaks < PROTOCOL_MIN || hello.protocol_min.max(1) > speaks {
            return Err(Status::failed_precondition(format!(
                "protocol {} is not spoken here; this coordinator speaks {PROTOCOL_MIN} to {PROTOCOL}",
                hello.protocol
            )));
        }
        let boot = validate::boot_id(&hello.boot_id).map_err(|(_, why)| Status::invalid_argument(why))?;
        if hello.agent_version.len() > TEXT_BYTES_MAX || hello.agent_version.chars().any(char::is_control) {
            return Err(Status::invalid_argument("agent_version is too long or holds control characters"));
        }
        if hello.nonce.len() > NONCE_BYTES {
            let why = format!("nonce has {} bytes, at most {NONCE_BYTES}", hello.nonce.len());
            return Err(Status::invalid_argument(why));
        }
        Ok(Self { boot, speaks })
    }
}

impl Session {
    /// Has the greeting noted, and sees how the vantage stands now that a revocation finds this stream: one between the
    /// first look and here did not. Returns the assignment, with its version if that is known.
    pub(super) async fn greet(&self, hello: &v1::Hello) -> Result<v1::Assignment, Status> {
        self.orders.begin(hello.nonce.clone());
        let proven = hello.epoch > 0 && orders::is_proven(&self.keeper.held(), hello.epoch, &hello.epoch_proof);
        let mut content = assignment::content(&self.app.config.load(), &self.vantage);
        let content_sha256 = assignment::fingerprint(&content);
        let presented = certificate(&self.peer)?;
        let remote = self.peer.remote.to_string();
        let greeted = in_turn(&self.greetings, || async {
            let mut connection = self.app.pool.acquire().await?;
            let greeting = Greeting {
                key_sha256: &presented.key_sha256,
                serial: &presented.serial,
                vantage: self.id,
                agent_version: &hello.agent_version,
                remote: &remote,
                coordinator: self.app.instance,
                content_sha256: &content_sha256,
            };
            let greeted = greet(&mut connection, greeting).await?;
            if let Some(greeted) = &greeted {
                let told = (self.vantage.as_str(), hello.epoch, proven);
                // What it was told before may be more than this database knows.
                let known = installation::told_by_agent(&self.app, &mut connection, &greeted.found, told).await?;
                if !known && greeted.found.position.generation != self.app.installation.generation() {
                    installation::look(&self.app, &mut connection).await?;
                }
            }
            Ok(greeted)
        });
        let greeted = greeted.await.map_err(|error: StoreError| unavailable(&error))?;
        let Some(greeted) = greeted else { return Err(cut_off(Cut::WentBack, &self.vantage)) };
        may_report(
            &self.app,
            Stands {
                name: &greeted.name,
                retired: greeted.retired,
                revoked: greeted.revoked,
                key_revoked: greeted.key_revoked,
                admitted: greeted.admitted,
            },
        )?;
        if greeted.vantage != self.id {
            return Err(cut_off(Cut::WentBack, &self.vantage));
        }
        if greeted.name != self.vantage {
            return Err(cut_off(Cut::Renamed, &self.vantage));
        }
        let position = greeted.found.position;
        self.orders.raise(order::joined(position.generation, position.epoch));
        content.version = match greeted.assignment {
            Some(version) => version,
            None => self.new_version(&content_sha256).await?,
        };
        Ok(content)
    }
}
