//! The wire between agents and coordinator, generated from `probe/v1/session.proto`, and the text form
//! of a join [`token`].
//!
//! Read the `.proto` file: it carries the documentation, the units and the limits. These types
//! stop at the agent's `uplink` and the coordinator's `ingest`; nothing else of ours uses them.

pub mod codec;
pub mod token;

/// The probe protocol's messages.
#[expect(
    missing_docs,
    clippy::all,
    clippy::allow_attributes_without_reason,
    reason = "generated code; the .proto file is the documentation"
)]
pub mod v1 {
    tonic::include_proto!("parallax.probe.v1");
}

/// Newest protocol version of this program. 2: signed orders, renewal, trust.
pub const PROTOCOL: u32 = 2;

/// Oldest protocol version this program still speaks: one version apart works both ways.
pub const PROTOCOL_MIN: u32 = 1;

/// What is signed in a `Signed` begins with this.
pub const ORDER_CONTEXT: &[u8] = b"parallax order v1\0";

/// What is signed in a `Signed.epoch_proof` begins with this.
pub const EPOCH_CONTEXT: &[u8] = b"parallax epoch v1\0";

/// Bytes of `Hello.nonce`.
pub const NONCE_BYTES: usize = 16;

/// What a `Signed.epoch_proof` signs.
#[must_use]
pub fn epoch_message(epoch: u64) -> Vec<u8> {
    [EPOCH_CONTEXT, epoch.to_be_bytes().as_slice()].concat()
}

/// What a node signs to prove its life begins with this.
pub const LIFE_CONTEXT: &[u8] = b"parallax life v1\0";

/// What a responder is asked begins with this; the nonce follows. It answers with the signature and closes.
pub const LIFE_QUESTION: [u8; 8] = *b"plxlife1";

/// Bytes of a nonce that a node signs.
pub const LIFE_NONCE_BYTES: usize = 32;

/// Bytes of a node's public key, and of its signature (RFC 8032, 5.1).
pub const LIFE_KEY_BYTES: usize = 32;
/// As above.
pub const LIFE_SIGNATURE_BYTES: usize = 64;

/// Bytes by which a `LifeProof` names a key.
pub const LIFE_NAME_BYTES: usize = 8;

/// Port of a node's responder, unless it says another one: of no registered service (IANA, 2025), and above the ports that
/// need a privilege.
pub const LIFE_PORT: u16 = 7443;

/// What a node signs.
#[must_use]
pub fn life_message(nonce: &[u8]) -> Vec<u8> {
    [LIFE_CONTEXT, nonce].concat()
}

/// Most coordinators a token or a `Trust` may name.
pub const COORDINATORS_MAX: usize = 16;

/// Most authorities and most signers a `Trust` may name.
pub const TRUSTED_MAX: usize = 8;

/// Longest certificate request, in bytes: a P-256 one has about 300.
pub const REQUEST_BYTES_MAX: usize = 4096;

/// The word for why something was refused stands in a status's metadata under this name.
pub const REASON: &str = "reason";

/// Largest encoded message either side accepts, in bytes. A batch of observations stays far
/// below it (see `BATCH_OBSERVATIONS_MAX`); a larger message ends the stream with a reason.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Most observations one batch may carry.
pub const BATCH_OBSERVATIONS_MAX: usize = 500;

/// Most addresses one resolution may carry: an answer is hostile input.
pub const ADDRESSES_MAX: usize = 16;

/// Longest text field on the wire, in bytes: a DNS name is at most 255 (RFC 1035, 2.3.4).
pub const TEXT_BYTES_MAX: usize = 255;

/// Most names of a CNAME chain one resolution may carry.
pub const CHAIN_MAX: usize = 8;

/// Most odd datagrams one resolution may carry, and most addresses of each.
pub const ODD_REPLIES_MAX: usize = 4;

/// Longest name server identifier that is kept, in bytes (RFC 5001 sets no limit).
pub const NSID_BYTES_MAX: usize = 64;

/// First bytes that are kept of a reply that could not be read.
pub const FIRST_BYTES_MAX: usize = 32;

/// Most own attempts one connection may carry.
pub const ATTEMPTS_MAX: usize = 16;

/// Most hops one path may carry.
pub const HOPS_MAX: usize = 30;
