//! A short session that asks for the assignment and leaves again: `join` shows first results with it.

use std::time::Duration;

use parallax_proto::v1::coordinator_message::Message;
use parallax_proto::v1::probe_client::ProbeClient;
use parallax_proto::v1::{self, agent_message, order};
use parallax_proto::{MESSAGE_BYTES_MAX, PROTOCOL, PROTOCOL_MIN};
use tokio_stream::wrappers::ReceiverStream;

use super::address::Coordinator;
use super::chain;
use super::connector::Connector;
use super::credentials::Credentials;
use super::session::http2;
use super::stream::message;
use super::timing::Timing;
use crate::assignment::kept::Kept;
use crate::identity::signers;
use crate::spool::BootId;

/// Longest wait for the assignment, of a coordinator that has greeted.
const ASSIGNMENT_MAX: Duration = Duration::from_secs(10);

/// Puts the assignment of this coordinator into `kept`.
///
/// # Errors
/// Why there is none.
pub async fn glance(
    connector: &mut Connector,
    to: &Coordinator,
    held: &Credentials,
    kept: &Kept,
    timing: &Timing,
) -> Result<(), String> {
    let connection = connector.connect(to, held, timing).await.map_err(|trouble| trouble.to_string())?;
    let asked = tokio::time::timeout(
        ASSIGNMENT_MAX,
        Box::pin(async {
            let channel = http2(connection, timing).await.map_err(|error| chain(&error))?;
            let mut client = ProbeClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
            let (send, outgoing) = tokio::sync::mpsc::channel(1);
            let boot_id = BootId::random().map_err(|error| error.to_string())?.to_string();
            let hello = v1::Hello {
                protocol: PROTOCOL,
                agent_version: env!("CARGO_PKG_VERSION").to_owned(),
                boot_id,
                assignment_version: 0,
                epoch: 0,
                protocol_min: PROTOCOL_MIN,
                ..v1::Hello::default()
            };
            // The channel is empty and both its ends are here.
            let _ = send.try_send(message(agent_message::Message::Hello(hello)));
            let mut incoming =
                client.session(ReceiverStream::new(outgoing)).await.map_err(|status| chain(&status))?.into_inner();
            while let Some(received) = incoming.message().await.map_err(|status| chain(&status))? {
                let taken = match received.message {
                    Some(Message::Assignment(wire)) if held.signers.is_empty() => {
                        kept.take(&wire, 0, Message::Assignment(wire.clone()))
                    }
                    Some(Message::Signed(signed)) => {
                        let order =
                            signers::open(&signed, &held.signers, &held.vantage).map_err(|why| why.to_string())?;
                        let Some(order::Order::Assignment(wire)) = order.order else { continue };
                        kept.take(&wire, order.epoch, Message::Signed(signed))
                    }
                    Some(
                        Message::Assignment(_)
                        | Message::Ack(_)
                        | Message::Refusal(_)
                        | Message::Task(_)
                        | Message::Pong(_)
                        | Message::Renewed(_)
                        | Message::Trust(_),
                    )
                    | None => continue,
                };
                taken.map_err(|error| error.to_string())?;
                drop(send);
                return Ok(());
            }
            Err("the coordinator closed the stream without an assignment".to_owned())
        }),
    );
    asked.await.unwrap_or_else(|_| Err(format!("no assignment within {} s", ASSIGNMENT_MAX.as_secs())))
}
