//! Keys, and what they have signed.

use ring::{digest, signature};

use super::name::Canonical;
use super::records::{Set, Signature};

/// Signatures that are checked for one validation at most: each costs time, and a hostile zone can
/// hold many (CVE-2023-50387).
const CHECKS_MAX: u32 = 48;

/// Bits of a DNSKEY record's flags: it signs a zone (RFC 4034, 2.1.1), it is revoked (RFC 5011, 3).
const ZONE_KEY: u16 = 0x0100;
const REVOKED: u16 = 0x0080;

/// A key of a zone.
#[derive(Debug, Clone)]
pub(super) struct Key {
    algorithm: u8,
    tag: u16,
    data: Vec<u8>,
}

/// A DS record (RFC 4034, 5): the parent's word on a key, or a trust anchor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyDigest {
    /// Tag of the key.
    pub tag: u16,
    /// Algorithm of the key.
    pub algorithm: u8,
    /// Kind of digest.
    pub kind: u8,
    /// The digest.
    pub digest: Vec<u8>,
}

/// How much may still be computed.
#[derive(Debug)]
pub(super) struct Checks(u32);

impl Default for Checks {
    fn default() -> Self {
        Self(CHECKS_MAX)
    }
}

/// Why a set is not authentic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unproven {
    /// No signature holds.
    Bogus,
    /// Too much to compute.
    TooMuch,
}

impl KeyDigest {
    /// Of a DS record's data.
    pub(super) fn read(data: &[u8]) -> Option<Self> {
        let [tag_high, tag_low, algorithm, kind, digest @ ..] = data else { return None };
        let tag = u16::from_be_bytes([*tag_high, *tag_low]);
        Some(Self { tag, algorithm: *algorithm, kind: *kind, digest: digest.to_vec() })
    }

    /// Whether its algorithms are known here. SHA-1 is not: RFC 9905 gives it up.
    pub(super) fn is_supported(&self) -> bool {
        matches!(self.kind, 2 | 4) && matches!(self.algorithm, 8 | 10 | 13 | 14 | 15)
    }

    fn is_of(&self, zone: &Canonical, key: &Key) -> bool {
        let algorithm = if self.kind == 2 { &digest::SHA256 } else { &digest::SHA384 };
        let whole = [zone.wire(), &key.data].concat();
        self.is_supported()
            && (self.tag, self.algorithm) == (key.tag, key.algorithm)
            && digest::digest(algorithm, &whole).as_ref() == self.digest.as_slice()
    }
}

impl Key {
    /// Of a DNSKEY record's data; `None` when it does not sign zones.
    pub(super) fn read(data: &[u8]) -> Option<Self> {
        let [high, low, protocol, algorithm, ..] = data else { return None };
        let flags = u16::from_be_bytes([*high, *low]);
        let usable = flags & ZONE_KEY != 0 && flags & REVOKED == 0 && *protocol == 3;
        usable.then(|| Self { algorithm: *algorithm, tag: tag(data), data: data.to_vec() })
    }

    fn public(&self) -> &[u8] {
        self.data.get(4..).unwrap_or_default()
    }

    fn verifies(&self, signed: &[u8], signature: &[u8]) -> bool {
        let uncompressed = || [&[4], self.public()].concat();
        let by = |algorithm: &'static dyn signature::VerificationAlgorithm, key: &[u8]| {
            signature::UnparsedPublicKey::new(algorithm, key).verify(signed, signature).is_ok()
        };
        match self.algorithm {
            8 => self.verifies_rsa(&signature::RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, signed, signature),
            10 => self.verifies_rsa(&signature::RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY, signed, signature),
            13 => by(&signature::ECDSA_P256_SHA256_FIXED, &uncompressed()),
            14 => by(&signature::ECDSA_P384_SHA384_FIXED, &uncompressed()),
            15 => by(&signature::ED25519, self.public()),
            _ => false,
        }
    }

    /// The form of the key is that of RFC 3110, 2.
    fn verifies_rsa(&self, by: &'static signature::RsaParameters, signed: &[u8], signature: &[u8]) -> bool {
        let (length, rest) = match self.public() {
            [0, high, low, rest @ ..] => (usize::from(u16::from_be_bytes([*high, *low])), rest),
            [length, rest @ ..] => (usize::from(*length), rest),
            [] => return false,
        };
        let Some((e, n)) = rest.split_at_checked(length) else { return false };
        signature::RsaPublicKeyComponents { n, e }.verify(by, signed, signature).is_ok()
    }
}

/// The keys of a zone's DNSKEY set, when one of the digests is of a key that signed it.
pub(super) fn trusted(
    zone: &Canonical,
    set: &Set,
    digests: &[KeyDigest],
    now_s: u32,
    checks: &mut Checks,
) -> Result<Vec<Key>, Unproven> {
    let keys: Vec<Key> = set.data.iter().filter_map(|data| Key::read(data)).collect();
    let entry: Vec<Key> =
        keys.iter().filter(|key| digests.iter().any(|digest| digest.is_of(zone, key))).cloned().collect();
    authentic(set, zone, &entry, now_s, checks).map(|_| keys)
}

/// Whether a set was signed by one of a zone's keys (RFC 4035, 5.3): the signature that holds.
pub(super) fn authentic<'a>(
    set: &'a Set,
    zone: &Canonical,
    keys: &[Key],
    now_s: u32,
    checks: &mut Checks,
) -> Result<&'a Signature, Unproven> {
    for signature in &set.signatures {
        if signature.signer != *zone || !set.owner.is_within(zone) || signature.labels > set.owner.depth() {
            continue;
        }
        // Serial number arithmetic (RFC 1982): the times wrap in 2106.
        let valid =
            signature.expiration.wrapping_sub(now_s) < 1 << 31 && now_s.wrapping_sub(signature.inception) < 1 << 31;
        if !valid {
            continue;
        }
        let fitting = keys.iter().filter(|key| (key.tag, key.algorithm) == (signature.tag, signature.algorithm));
        for key in fitting {
            checks.0 = checks.0.checked_sub(1).ok_or(Unproven::TooMuch)?;
            if key.verifies(&signed(set, signature), &signature.signature) {
                return Ok(signature);
            }
        }
    }
    Err(Unproven::Bogus)
}

/// What a signature is over (RFC 4034, 3.1.8.1).
fn signed(set: &Set, signature: &Signature) -> Vec<u8> {
    let owner = match signature.is_expanded(&set.owner) {
        true => set.owner.ancestor(signature.labels).wildcard(),
        false => set.owner.clone(),
    };
    let mut data: Vec<&Vec<u8>> = set.data.iter().collect();
    data.sort();
    data.dedup();
    let mut signed = signature.head.clone();
    for data in data {
        signed.extend(owner.wire());
        signed.extend(set.rtype.to_int().to_be_bytes());
        signed.extend(1u16.to_be_bytes());
        signed.extend(signature.original_ttl);
        signed.extend(u16::try_from(data.len()).unwrap_or(u16::MAX).to_be_bytes());
        signed.extend(data);
    }
    signed
}

/// RFC 4034, appendix B.
fn tag(data: &[u8]) -> u16 {
    let sum: u32 = data
        .iter()
        .enumerate()
        .map(|(place, byte)| u32::from(*byte) << if place % 2 == 0 { 8 } else { 0 })
        .fold(0, u32::wrapping_add);
    let folded = sum.wrapping_add(sum >> 16 & 0xffff) & 0xffff;
    u16::try_from(folded).unwrap_or_default()
}
