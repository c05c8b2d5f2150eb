//! What goes down a stream: orders, signed for whoever knows signatures, trust, and answers.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use parallax_proto::v1;
use parallax_proto::v1::coordinator_message::Message as ToAgent;
use parallax_proto::v1::order::Order;
use tonic::Status;

use super::Session;
use super::ending::ending;
use crate::hub::Outbound;
use crate::ingest::admission::{in_turn, unavailable};
use crate::ingest::{assignment, convert, order};
use crate::mailbox;
use crate::store::{self, StoreError};

/// An agent that takes nothing for this long is gone.
pub(super) const SEND_WITHIN: Duration = Duration::from_secs(30);

/// Version of the protocol from which on orders are signed, and trust is told.
const SIGNED_SINCE: u32 = 2;

/// Messages on their way down one stream.
pub(super) const DOWN_MAX: usize = 32;

/// One message on its way down.
pub(super) type DownMessage = Box<Result<v1::CoordinatorMessage, Status>>;

/// What goes down one stream.
#[derive(Debug)]
pub struct Down(pub(super) mailbox::Receiver<DownMessage>);

impl tokio_stream::Stream for Down {
    type Item = Result<v1::CoordinatorMessage, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|message| message.map(|message| *message))
    }
}

impl Session {
    /// What the configuration in force has it do.
    pub(super) async fn send_assignment(&self) -> Result<(), Status> {
        let mut content = assignment::content(&self.app.config.load(), &self.vantage);
        let fingerprint = assignment::fingerprint(&content);
        content.version = self.new_version(&fingerprint).await?;
        self.send_order(Order::Assignment(content), None).await
    }

    /// The version of an assignment that is perhaps new, and how new orders are by now.
    pub(super) async fn new_version(&self, content_sha256: &[u8; 32]) -> Result<u64, Status> {
        let version = in_turn(&self.greetings, || async {
            let mut connection = self.app.pool.acquire().await?;
            let version = store::assignment::version(&mut connection, self.id, content_sha256).await?;
            Ok((version, store::order::epoch(&mut connection).await?))
        });
        let (version, epoch) = version.await.map_err(|error: StoreError| unavailable(&error))?;
        self.orders.raise(epoch);
        Ok(version)
    }

    pub(super) async fn send_outbound(&self, message: Outbound) -> Result<(), Status> {
        match message {
            Outbound::Task(id, task) => self.send_order(Order::Task(convert::task(id, &task)), None).await,
            Outbound::Change(id, change, deadline) => {
                // As new as the plan it belongs to: an agent that heard of a later holder refuses it.
                let epoch = store::order::joined(self.app.installation.generation(), change.epoch);
                self.send_order(Order::Task(convert::change(id, &change, epoch, deadline)), Some(epoch)).await
            }
            Outbound::Assignment => self.send_assignment().await,
        }
    }

    /// Signed for whoever knows signatures.
    pub(super) async fn send_order(&self, order: Order, epoch: Option<u64>) -> Result<(), Status> {
        if self.speaks >= SIGNED_SINCE {
            let signed = self.orders.sign(&self.keeper.held(), order, epoch)?;
            return self.send(ToAgent::Signed(signed)).await;
        }
        self.send(match order {
            Order::Assignment(assignment) => ToAgent::Assignment(assignment),
            Order::Task(task) => ToAgent::Task(task),
            // Agents that know no signatures know no trust either.
            Order::Trust(_) => return Ok(()),
        })
        .await
    }

    /// Trust at the beginning of a stream.
    pub(super) async fn send_first_trust(&self) -> Result<(), Status> {
        if self.speaks >= SIGNED_SINCE {
            // For an agent that holds no signer's key yet, and no more than that: what is signed follows.
            let signers = order::trust(&self.keeper.held()).signers;
            self.send(ToAgent::Trust(v1::Trust { signers, ..v1::Trust::default() })).await?;
        }
        self.send_trust().await
    }

    pub(super) async fn send_trust(&self) -> Result<(), Status> {
        self.send_order(Order::Trust(order::trust(&self.keeper.held())), None).await
    }

    /// Its future is small: the message is boxed before.
    pub(super) fn send(&self, message: ToAgent) -> impl Future<Output = Result<(), Status>> + Send + '_ {
        let message = Box::new(Ok(v1::CoordinatorMessage { message: Some(message) }));
        async move {
            tokio::select! {
                biased;
                sent = self.down.send_within(message, SEND_WITHIN) => {
                    sent.map_err(|_| Status::deadline_exceeded("the agent takes no messages"))
                }
                () = self.shutdown.cancelled() => Err(ending()),
            }
        }
    }
}
