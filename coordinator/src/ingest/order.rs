//! What agents are told under signature, and whom they are told to trust.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use parallax_decide::names::VantageName;
use parallax_proto::{ORDER_CONTEXT, epoch_message, v1};
use prost::Message;
use ring::signature::{ED25519, UnparsedPublicKey};
use tonic::Status;

use crate::identity::keeper::Held;

/// Makes the orders of one stream: for its vantage, each at least as new as the one before.
#[derive(Debug)]
pub struct Orders {
    /// As the certificate of the stream names it: after a renaming the agent goes by that until it has a new one.
    vantage: VantageName,
    epoch: AtomicU64,
    /// Of the stream, as its agent chose it; empty for one of before.
    nonce: OnceLock<Vec<u8>>,
    /// Orders signed so far.
    number: AtomicU64,
}

impl Orders {
    /// Orders for a vantage.
    #[must_use]
    pub fn new(vantage: VantageName) -> Self {
        Self { vantage, epoch: AtomicU64::new(0), nonce: OnceLock::new(), number: AtomicU64::new(0) }
    }

    /// Notes the word that each order of this stream repeats, once.
    pub fn begin(&self, nonce: Vec<u8>) {
        let _ = self.nonce.set(nonce);
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
        let nonce = self.nonce.get().cloned().unwrap_or_default();
        let number = match nonce.is_empty() {
            true => 0,
            false => self.number.fetch_add(1, Ordering::Relaxed).saturating_add(1),
        };
        let vantage = self.vantage.to_string();
        let order = v1::Order { vantage, epoch, order: Some(order), nonce, number }.encode_to_vec();
        let signature = signature(held, &[ORDER_CONTEXT, &order].concat())?;
        Ok(v1::Signed { order, signature, epoch_proof: signature_of_epoch(held, epoch)? })
    }
}

fn signature_of_epoch(held: &Held, epoch: u64) -> Result<Vec<u8>, Status> {
    signature(held, &epoch_message(epoch))
}

fn signature(held: &Held, message: &[u8]) -> Result<Vec<u8>, Status> {
    held.signers.signing().sign(message).map_err(|error| {
        tracing::error!(%error, "an order cannot be signed");
        Status::internal("the coordinator cannot sign")
    })
}

/// Whether one of our own signers told somebody this epoch.
#[must_use]
pub fn is_proven(held: &Held, epoch: u64, proof: &[u8]) -> bool {
    let message = epoch_message(epoch);
    let told = |public: &[u8]| UnparsedPublicKey::new(&ED25519, public).verify(&message, proof).is_ok();
    held.signers.all().any(|signer| told(signer.public()))
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
