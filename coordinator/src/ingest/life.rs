//! Proof of life of nodes: the nonce that agents have them sign, and whether what comes back proves anything.
//!
//! ```text
//! agent  Ping -->  coordinator  Pong with a nonce for this vantage and this moment
//! agent  nonce -->  node's responder  signature
//! agent  observation with the signature -->  coordinator: valid, invalid or absent
//! ```
//!
//! A nonce is made of the vantage and the moment with a key that lies beside the authority: nobody can know it before,
//! no other vantage can use it, and no coordinator need remember it. A signature over it was therefore made by the node
//! after that moment. The agent decides nothing: one that lies can hold a true signature back, or show it for [`AGE_MAX`].

use std::collections::BTreeMap;
use std::time::Duration;

use parallax_decide::names::NodeName;
use parallax_decide::observation::Proof;
use parallax_decide::time::Timestamp;
use parallax_proto::{LIFE_KEY_BYTES, LIFE_NAME_BYTES, LIFE_SIGNATURE_BYTES, life_message, v1};
use ring::signature::{ED25519, UnparsedPublicKey};

use super::convert;
use crate::config::NodeProof;
use crate::identity::keeper::Held;
use crate::identity::request::sha256;
use crate::identity::signer::Signer;
use crate::store::vantage::VantageId;

/// What a nonce is made of begins with this.
const CONTEXT: &[u8] = b"parallax nonce v1\0";

/// How long after its nonce was made a proof counts. An honest agent has a node sign within 10 s of asking for the nonce
/// and has the answer within 3 s more; the rest is for the way of the observation's age.
pub const AGE_MAX: Duration = Duration::from_secs(15);

/// From this age on nobody honest shows it: somebody kept it. In between it proves nothing, and accuses nobody: the clocks of
/// two coordinators may be apart.
pub const REPLAYED_AFTER: Duration = Duration::from_secs(60);

/// What proofs from one vantage are held against.
#[derive(Debug, Clone, Copy)]
pub struct Life<'a> {
    /// The keys.
    pub held: &'a Held,
    /// Nodes that prove their life.
    pub nodes: &'a BTreeMap<NodeName, NodeProof>,
    /// Whose they are.
    pub vantage: VantageId,
    /// When they are looked at.
    pub now: Timestamp,
}

impl Life<'_> {
    /// The nonce of this moment; none while no node proves its life, or the key cannot be used.
    #[must_use]
    pub fn nonce(&self) -> Option<v1::LifeNonce> {
        if self.nodes.is_empty() {
            return None;
        }
        let signer = self.held.signers.signing();
        let issued_ms = u64::try_from(self.now.0).ok()?;
        let nonce = made(signer, self.vantage, issued_ms)?.to_vec();
        Some(v1::LifeNonce { issued_ms, maker: name_of(signer).to_vec(), nonce })
    }

    /// What a proof that an observation carried is worth, when that ended at `at`. None: the node proves nothing, or does
    /// not work from there and is said to prove nothing.
    #[must_use]
    pub fn proof(&self, node: &NodeName, works: bool, wire: Option<&v1::LifeProof>, at: Timestamp) -> Option<Proof> {
        let configured = self.nodes.get(node)?;
        match wire.filter(|wire| !wire.signature.is_empty()) {
            Some(wire) => Some(self.judged(configured, wire, at)),
            None => works.then_some(Proof::Absent),
        }
    }

    fn judged(&self, node: &NodeProof, wire: &v1::LifeProof, at: Timestamp) -> Proof {
        let issued = Timestamp(i64::try_from(wire.issued_ms).unwrap_or(i64::MAX));
        let key = node.key.get(..LIFE_NAME_BYTES).unwrap_or_default();
        let maker = self.held.signers.all().find(|signer| name_of(signer).as_slice() == wire.maker);
        let Some(maker) = maker.filter(|_| wire.key == key) else {
            // Of a key that was replaced meanwhile, ours or the node's: nothing that a liar gains by.
            return Proof::Absent;
        };
        let Some(nonce) = made(maker, self.vantage, wire.issued_ms) else { return Proof::Absent };
        let public = UnparsedPublicKey::new(&ED25519, node.key);
        if public.verify(&life_message(&nonce), &wire.signature).is_err() {
            return Proof::Invalid;
        }
        match at.since(issued) {
            // It holds, and nobody knows a nonce before it is made: our clock went back.
            _ if issued > at.plus(AGE_MAX) => Proof::Absent,
            age if age <= AGE_MAX => Proof::Valid,
            age if age <= REPLAYED_AFTER => Proof::Absent,
            _ => Proof::Invalid,
        }
    }
}

/// The nonce of a vantage and a moment: what the signer's (deterministic, RFC 8032, 5.1.6) signature over both hashes to.
fn made(signer: &Signer, vantage: VantageId, issued_ms: u64) -> Option<[u8; 32]> {
    let of = [CONTEXT, vantage.0.to_be_bytes().as_slice(), issued_ms.to_be_bytes().as_slice()].concat();
    match signer.sign(&of) {
        Ok(signature) => Some(sha256(&signature)),
        Err(error) => {
            tracing::error!(%error, "no nonce can be made: nodes do not prove their life");
            None
        }
    }
}

fn name_of(signer: &Signer) -> [u8; LIFE_NAME_BYTES] {
    let hash = sha256(signer.public());
    let mut name = [0; LIFE_NAME_BYTES];
    name.iter_mut().zip(hash).for_each(|(to, from)| *to = from);
    name
}

/// Whether a proof's parts have lengths that can be; it is looked at later.
#[must_use]
pub fn well_formed(wire: &v1::LifeProof) -> bool {
    match wire.signature.len() {
        0 => wire.maker.is_empty() && wire.key.is_empty(),
        LIFE_SIGNATURE_BYTES => wire.maker.len() == LIFE_NAME_BYTES && wire.key.len() == LIFE_NAME_BYTES,
        _ => false,
    }
}

/// The word for why there is no signature; none: nothing is said.
#[must_use]
pub fn trouble(wire: &v1::LifeProof) -> Option<&'static str> {
    convert::life_trouble(wire.trouble)
}

/// A public key as the configuration has it: 64 hexadecimal digits.
#[must_use]
pub fn key(text: &str) -> Option<[u8; LIFE_KEY_BYTES]> {
    let text = text.trim();
    if text.len() != LIFE_KEY_BYTES * 2 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut key = [0; LIFE_KEY_BYTES];
    for (byte, at) in key.iter_mut().zip((0..text.len()).step_by(2)) {
        *byte = u8::from_str_radix(text.get(at..at + 2)?, 16).ok()?;
    }
    Some(key)
}
