//! Whose orders are obeyed.
//!
//! TLS proves that a coordinator's certificate is of our authority; it may be stolen all the same, and
//! TLS inspected on purpose. What makes an agent do anything is therefore signed with a key that lies
//! beside the authority, and for this vantage alone.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parallax_proto::{ORDER_CONTEXT, TRUSTED_MAX, epoch_message, v1};
use prost::Message as _;
use ring::signature::{ED25519, UnparsedPublicKey};

/// Length of an Ed25519 public key (RFC 8032, 5.1.5), in bytes.
pub const SIGNER_BYTES: usize = 32;

/// A public key that may sign orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signer([u8; SIGNER_BYTES]);

impl Signer {
    /// From the wire; `None` when it has not 32 bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    fn signed(self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, self.0).verify(message, signature).is_ok()
    }
}

/// As the file `signers.txt` has them.
#[must_use]
pub fn to_text(signers: &[Signer]) -> String {
    signers.iter().map(|signer| STANDARD.encode(signer.0) + "\n").collect()
}

/// Reads the file `signers.txt`; a line that begins with `#` is for people.
///
/// # Errors
/// What is wrong with it.
pub fn from_text(text: &[u8]) -> Result<Vec<Signer>, &'static str> {
    let text = std::str::from_utf8(text).map_err(|_| "it is no text")?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let read = lines.map(|line| Signer::from_bytes(&STANDARD.decode(line).ok()?));
    let signers: Option<Vec<Signer>> = read.take(TRUSTED_MAX + 1).collect();
    let signers = signers.ok_or("a line of it is not the base64 of 32 bytes")?;
    if signers.len() > TRUSTED_MAX { Err("it has more than 8 keys") } else { Ok(signers) }
}

/// Why something is not obeyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotObeyed {
    /// Signers are known, and it is not signed.
    #[error("it is not signed, and this agent knows who signs")]
    Unsigned,
    /// It is signed by nobody we know, or was changed on its way.
    #[error("its signature is of no key that may sign orders for this agent, or it was changed on its way")]
    Signature,
    /// It is for another vantage.
    #[error("it is for another vantage")]
    Vantage,
    /// Somebody ordered under a later epoch before.
    #[error("it is of an earlier epoch than one obeyed before; whoever sent it no longer holds the lease")]
    Epoch,
    /// It was for another stream, or was obeyed on this one.
    #[error("it was signed for another stream than this one, or came twice: somebody sends old orders again")]
    Replayed,
    /// The signature holds, and what is signed is no order that this agent knows.
    #[error("what is signed is no order that this agent knows; is the agent older than the coordinator?")]
    Content,
}

impl NotObeyed {
    /// One word for programs that read the log.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Unsigned => "order_unsigned",
            Self::Signature => "order_signature",
            Self::Vantage => "order_vantage",
            Self::Epoch => "order_epoch",
            Self::Replayed => "order_replayed",
            Self::Content => "order_content",
        }
    }
}

/// Opens what is signed: the order in it, when one of these signed it for this vantage. While no signer is
/// known, whoever signed it: an identity of before there were signers obeys whatever comes, signed or not,
/// and says so.
///
/// # Errors
/// When it is not to be obeyed.
pub fn open(signed: &v1::Signed, signers: &[Signer], vantage: &str) -> Result<v1::Order, NotObeyed> {
    let message = [ORDER_CONTEXT, signed.order.as_slice()].concat();
    if !signers.is_empty() && !signers.iter().any(|signer| signer.signed(&message, &signed.signature)) {
        return Err(NotObeyed::Signature);
    }
    let order = v1::Order::decode(signed.order.as_slice()).map_err(|_| NotObeyed::Content)?;
    if order.vantage != vantage {
        return Err(NotObeyed::Vantage);
    }
    Ok(order)
}

/// The proof that comes with an order, when one of these signed it; empty: none did.
#[must_use]
pub fn proof(signed: &v1::Signed, epoch: u64, signers: &[Signer]) -> Vec<u8> {
    let message = epoch_message(epoch);
    let holds = signers.iter().any(|signer| signer.signed(&message, &signed.epoch_proof));
    if holds { signed.epoch_proof.clone() } else { Vec::new() }
}

#[cfg(test)]
pub(crate) mod tests {
    use ring::signature::{Ed25519KeyPair, KeyPair as _};

    use super::*;

    /// The coordinator's end of it.
    pub(crate) struct Hand(Ed25519KeyPair);

    impl Hand {
        pub(crate) fn new() -> Self {
            let seed: [u8; 32] = crate::entropy::bytes().unwrap();
            Self(Ed25519KeyPair::from_seed_unchecked(&seed).unwrap())
        }

        pub(crate) fn signer(&self) -> Signer {
            Signer::from_bytes(&self.bytes()).unwrap()
        }

        pub(crate) fn bytes(&self) -> Vec<u8> {
            self.0.public_key().as_ref().to_vec()
        }

        pub(crate) fn sign(&self, vantage: &str, epoch: u64, order: v1::order::Order) -> v1::Signed {
            self.sign_for(&[], 0, vantage, epoch, order)
        }

        /// As the order of this number on the stream with this nonce.
        pub(crate) fn sign_for(
            &self,
            nonce: &[u8],
            number: u64,
            vantage: &str,
            epoch: u64,
            order: v1::order::Order,
        ) -> v1::Signed {
            let (vantage, nonce) = (vantage.to_owned(), nonce.to_vec());
            let order = v1::Order { vantage, epoch, order: Some(order), nonce, number }.encode_to_vec();
            let signature = self.0.sign(&[ORDER_CONTEXT, &order].concat()).as_ref().to_vec();
            let epoch_proof = self.0.sign(&epoch_message(epoch)).as_ref().to_vec();
            v1::Signed { order, signature, epoch_proof }
        }
    }

    #[test]
    fn an_order_is_obeyed_only_signed_unchanged_and_for_us() {
        let (hand, other) = (Hand::new(), Hand::new());
        let task = || v1::order::Order::Task(v1::Task { task_id: 7, ..v1::Task::default() });
        let signed = hand.sign("branch-kazan", 3, task());
        let signers = [other.signer(), hand.signer()];
        assert_eq!(open(&signed, &signers, "branch-kazan").unwrap().epoch, 3);
        assert_eq!(open(&signed, &signers, "branch-ufa"), Err(NotObeyed::Vantage));
        assert_eq!(open(&signed, &[other.signer()], "branch-kazan"), Err(NotObeyed::Signature));
        assert_eq!(open(&signed, &[], "branch-kazan").unwrap().epoch, 3, "nobody to check it by");
        assert_eq!(open(&signed, &[], "branch-ufa"), Err(NotObeyed::Vantage));
        for bit in 0..signed.order.len() * 8 {
            let mut changed = signed.clone();
            changed.order[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(open(&changed, &signers, "branch-kazan"), Err(NotObeyed::Signature));
        }
        for bit in 0..signed.signature.len() * 8 {
            let mut changed = signed.clone();
            changed.signature[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(open(&changed, &signers, "branch-kazan"), Err(NotObeyed::Signature));
        }
        // The same bytes signed for another purpose.
        let bare = v1::Signed { signature: hand.0.sign(&signed.order).as_ref().to_vec(), ..signed.clone() };
        assert_eq!(open(&bare, &signers, "branch-kazan"), Err(NotObeyed::Signature));
        let rubbish = [ORDER_CONTEXT, &[0xff]].concat();
        let signature = hand.0.sign(&rubbish).as_ref().to_vec();
        let rubbish = v1::Signed { order: vec![0xff], signature, ..v1::Signed::default() };
        assert_eq!(open(&rubbish, &signers, "branch-kazan"), Err(NotObeyed::Content));
    }

    #[test]
    fn a_proof_of_an_epoch_is_kept_when_a_signer_gave_it() {
        let (hand, thief) = (Hand::new(), Hand::new());
        let trust = || v1::order::Order::Trust(v1::Trust::default());
        let signed = hand.sign("branch-kazan", 3, trust());
        assert_eq!(proof(&signed, 3, &[hand.signer()]), signed.epoch_proof);
        let swapped = v1::Signed { epoch_proof: thief.sign("branch-kazan", 3, trust()).epoch_proof, ..signed.clone() };
        for (signed, epoch) in [(&signed, 4), (&swapped, 3), (&v1::Signed::default(), 3)] {
            assert!(proof(signed, epoch, &[hand.signer()]).is_empty());
        }
    }

    #[test]
    fn the_file_of_signers_goes_both_ways_and_is_bounded() {
        let signers: Vec<Signer> = (0..3).map(|_| Hand::new().signer()).collect();
        let text = to_text(&signers);
        assert_eq!(from_text(format!("\n {text}\r\n").as_bytes()).unwrap(), signers);
        assert_eq!(from_text(b"").unwrap(), []);
        for bad in [text.repeat(3), text[1..].to_owned(), "rubbish".to_owned()] {
            assert!(from_text(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(from_text(&[0xff]).is_err());
    }
}
