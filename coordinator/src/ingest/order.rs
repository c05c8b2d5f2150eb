//! What agents are told under signature, and whom they are told to trust.

use std::sync::atomic::{AtomicU64, Ordering};

use parallax_decide::names::VantageName;
use parallax_proto::{ORDER_CONTEXT, v1};
use prost::Message;
use tonic::Status;

use crate::identity::keeper::Held;

/// Makes the orders of one stream: for its vantage, each at least as new as the one before.
#[derive(Debug)]
pub struct Orders {
    /// As the certificate of the stream names it: after a renaming the agent goes by that until it has a new one.
    vantage: VantageName,
    epoch: AtomicU64,
}

impl Orders {
    /// Orders for a vantage.
    #[must_use]
    pub fn new(vantage: VantageName) -> Self {
        Self { vantage, epoch: AtomicU64::new(0) }
    }

    /// Notes how new orders are by now.
    pub fn raise(&self, epoch: u64) {
        self.epoch.fetch_max(epoch, Ordering::Relaxed);
    }

    /// Signs an order. One that comes from a holder of the lease carries that one's epoch, also when it was
    /// overtaken: the agent then refuses it, as it shall.
    ///
    /// # Errors
    /// When the library refuses, which it has no reason to.
    pub fn sign(&self, held: &Held, order: v1::order::Order, epoch: Option<u64>) -> Result<v1::Signed, Status> {
        if let Some(epoch) = epoch {
            self.raise(epoch);
        }
        let epoch = epoch.unwrap_or_else(|| self.epoch.load(Ordering::Relaxed));
        let order = v1::Order { vantage: self.vantage.to_string(), epoch, order: Some(order) }.encode_to_vec();
        let signature = held.signers.signing().sign(&[ORDER_CONTEXT, &order].concat()).map_err(|error| {
            tracing::error!(%error, "an order cannot be signed");
            Status::internal("the coordinator cannot sign")
        })?;
        Ok(v1::Signed { order, signature })
    }
}

/// Whom agents trust, as the wire says it.
#[must_use]
pub fn trust(held: &Held) -> v1::Trust {
    v1::Trust {
        authorities: held.bundle.trusted().map(|certificate| certificate.to_vec()).collect(),
        signers: held.signers.public(),
        coordinators: held.advertise.clone(),
    }
}
