//! The records of a message, in sets with their signatures.

use domain::base::Message;
use domain::base::iana::{Class, Rtype};
use domain::dep::octseq::Parser;

use super::name::Canonical;

/// Most records of a message that are looked at; one with more is not validated.
const RECORDS_MAX: usize = 256;

/// Most signatures of one set that are kept: keys are changed one after another.
const SIGNATURES_MAX: usize = 4;

/// A DNS message, as far as validation needs it.
#[derive(Debug)]
pub(super) struct Records {
    /// Response code without its extension.
    pub(super) rcode: u8,
    pub(super) answer: Vec<Set>,
    pub(super) authority: Vec<Set>,
}

/// Records of one name and type.
#[derive(Debug, Clone)]
pub(super) struct Set {
    pub(super) owner: Canonical,
    pub(super) rtype: Rtype,
    pub(super) ttl_s: u32,
    /// Data in canonical form.
    pub(super) data: Vec<Vec<u8>>,
    pub(super) signatures: Vec<Signature>,
}

/// An RRSIG record (RFC 4034, 3).
#[derive(Debug, Clone)]
pub(super) struct Signature {
    pub(super) algorithm: u8,
    pub(super) labels: usize,
    pub(super) original_ttl: [u8; 4],
    pub(super) expiration: u32,
    pub(super) inception: u32,
    pub(super) tag: u16,
    pub(super) signer: Canonical,
    /// Everything of its data before the signature: that is signed too.
    pub(super) head: Vec<u8>,
    pub(super) signature: Vec<u8>,
}

impl Signature {
    /// Whether the set at this name was made from a wildcard. The count of labels leaves the wildcard's
    /// own out (RFC 4034, 3.1.3).
    pub(super) fn is_expanded(&self, owner: &Canonical) -> bool {
        self.labels < owner.depth() && *owner != owner.ancestor(self.labels).wildcard()
    }
}

impl Records {
    /// Reads a message; `None` when it is broken or too large.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let message = Message::from_slice(bytes).ok()?;
        let counts = message.header_counts();
        let mut parser = Parser::from_ref(bytes);
        parser.advance(12).ok()?;
        for _ in 0..counts.qdcount() {
            Canonical::parse(&mut parser)?;
            parser.advance(4).ok()?;
        }
        let total = usize::from(counts.ancount()) + usize::from(counts.nscount());
        if total > RECORDS_MAX {
            return None;
        }
        let answer = sets(&mut parser, counts.ancount())?;
        let authority = sets(&mut parser, counts.nscount())?;
        Some(Self { rcode: message.header().rcode().to_int(), answer, authority })
    }
}

/// Finds a set among others.
pub(super) fn find<'a>(sets: &'a [Set], owner: &Canonical, rtype: Rtype) -> Option<&'a Set> {
    sets.iter().find(|set| set.rtype == rtype && set.owner == *owner)
}

fn sets(parser: &mut Parser<'_, [u8]>, count: u16) -> Option<Vec<Set>> {
    let mut sets: Vec<Set> = Vec::new();
    for _ in 0..count {
        let owner = Canonical::parse(parser)?;
        let (rtype, class) = (Rtype::from_int(parser.parse_u16_be().ok()?), parser.parse_u16_be().ok()?);
        let ttl_s = parser.parse_u32_be().ok()?;
        let length = usize::from(parser.parse_u16_be().ok()?);
        let end = parser.pos() + length;
        parser.check_len(length).ok()?;
        let mut data = *parser;
        parser.seek(end).ok()?;
        if class != Class::IN.to_int() {
            continue;
        }
        if rtype == Rtype::RRSIG {
            let covered = Rtype::from_int(data.parse_u16_be().ok()?);
            let signature = signature(&mut data, covered, end)?;
            let set = within(&mut sets, owner, covered, ttl_s);
            if set.signatures.len() < SIGNATURES_MAX {
                set.signatures.push(signature);
            }
        } else {
            let data = match rtype {
                // The name in it is compressed, and signed in lower case (RFC 4034, 6.2).
                Rtype::CNAME => {
                    let target = Canonical::parse(&mut data).filter(|_| data.pos() == end)?;
                    target.wire().to_vec()
                }
                _ => data.parse_octets(length).ok()?.to_vec(),
            };
            let set = within(&mut sets, owner, rtype, ttl_s);
            set.ttl_s = set.ttl_s.min(ttl_s);
            set.data.push(data);
        }
    }
    // Signatures whose records are not here cover nothing.
    sets.retain(|set| !set.data.is_empty());
    Some(sets)
}

fn within(sets: &mut Vec<Set>, owner: Canonical, rtype: Rtype, ttl_s: u32) -> &mut Set {
    let place = sets.iter().position(|set| set.rtype == rtype && set.owner == owner).unwrap_or(sets.len());
    if place == sets.len() {
        sets.push(Set { owner, rtype, ttl_s, data: Vec::new(), signatures: Vec::new() });
    }
    // Pushed just now, or found there.
    #[expect(clippy::indexing_slicing, reason = "the place was found or made in the lines above")]
    &mut sets[place]
}

fn signature(data: &mut Parser<'_, [u8]>, covered: Rtype, end: usize) -> Option<Signature> {
    let fixed = data.parse_octets(16).ok()?;
    let [algorithm, labels, ttl @ .., tag_high, tag_low] = fixed else { return None };
    let [t0, t1, t2, t3, e0, e1, e2, e3, i0, i1, i2, i3] = *ttl else { return None };
    let signer = Canonical::parse(data)?;
    let signature = data.parse_octets(end.checked_sub(data.pos())?).ok()?.to_vec();
    Some(Signature {
        algorithm: *algorithm,
        labels: usize::from(*labels),
        original_ttl: [t0, t1, t2, t3],
        expiration: u32::from_be_bytes([e0, e1, e2, e3]),
        inception: u32::from_be_bytes([i0, i1, i2, i3]),
        tag: u16::from_be_bytes([*tag_high, *tag_low]),
        head: [&covered.to_int().to_be_bytes()[..], fixed, signer.wire()].concat(),
        signer,
        signature,
    })
}
