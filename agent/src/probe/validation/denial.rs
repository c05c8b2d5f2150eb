//! Proofs that something is not there: NSEC (RFC 4034, 4; RFC 4035, 5.4) and NSEC3 (RFC 5155).

use domain::base::iana::Rtype;
use domain::dep::octseq::Parser;
use ring::digest;

use super::name::Canonical;
use super::records::Set;

/// More rounds of hashing than this are not done (RFC 9276, 3.2): the zone counts as unsigned.
const ITERATIONS_MAX: u16 = 100;

/// Hashes that are computed for one proof at most.
const LABELS_MAX: usize = 32;

/// Hashed gaps that are looked at: a proof needs three (RFC 5155, 7.2.1).
const GAPS_MAX: usize = 8;

/// What the authentic records of a zone prove.
#[derive(Debug, Default)]
pub(super) struct Denials {
    zone: Option<Canonical>,
    gaps: Vec<Gap>,
    hashed: Vec<HashedGap>,
    /// There are some that cost too much.
    too_costly: bool,
}

#[derive(Debug)]
struct Gap {
    owner: Canonical,
    next: Canonical,
    types: Vec<u8>,
}

#[derive(Debug)]
struct HashedGap {
    owner: Vec<u8>,
    next: Vec<u8>,
    salt: Vec<u8>,
    iterations: u16,
    opt_out: bool,
    types: Vec<u8>,
}

/// What is proven of a name that a zone might be cut at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// A zone begins there, and it is unsigned.
    Insecure,
    /// None begins there.
    None,
    /// Nothing is proven.
    Unproven,
}

impl Denials {
    /// Of sets that are authentic.
    pub(super) fn of<'a>(zone: &Canonical, sets: impl Iterator<Item = &'a Set>) -> Self {
        let mut denials = Self { zone: Some(zone.clone()), ..Self::default() };
        for set in sets {
            for data in &set.data {
                match set.rtype {
                    Rtype::NSEC => denials.gaps.extend(Gap::read(&set.owner, data)),
                    Rtype::NSEC3 => match HashedGap::read(&set.owner, data) {
                        Some(gap) if gap.iterations > ITERATIONS_MAX => denials.too_costly = true,
                        Some(gap) if denials.hashed.len() < GAPS_MAX => denials.hashed.push(gap),
                        Some(_) | None => {}
                    },
                    _ => {}
                }
            }
        }
        denials
    }

    /// Whether a zone is cut at a name that has no DS record (RFC 4035, 5.2; RFC 5155, 8.9).
    pub(super) fn cut(&self, name: &Canonical) -> Cut {
        if self.too_costly {
            return Cut::Insecure;
        }
        if let Some(types) = self.types(name) {
            let has = |rtype| has(types, rtype);
            return match (has(Rtype::DS), has(Rtype::NS) && !has(Rtype::SOA)) {
                (true, _) => Cut::Unproven,
                (false, true) => Cut::Insecure,
                (false, false) => Cut::None,
            };
        }
        match self.covering(name) {
            Some(opt_out) if opt_out => Cut::Insecure,
            Some(_) => Cut::None,
            None => Cut::Unproven,
        }
    }

    /// Whether the name has no records of this type, though it may have others.
    pub(super) fn lacks(&self, name: &Canonical, rtype: Rtype) -> bool {
        let without = |types: &[u8]| !has(types, rtype) && !has(types, Rtype::CNAME);
        if let Some(types) = self.types(name) {
            return without(types);
        }
        // A name between two labels has records below it alone.
        let between = |gap: &Gap| gap.covers(name) && gap.next.is_within(name);
        if self.gaps.iter().any(between) {
            return true;
        }
        let Some(encloser) = self.encloser(name) else { return false };
        self.covering(name).is_some() && self.types(&encloser.wildcard()).is_some_and(without)
    }

    /// Whether the name does not exist, and no wildcard stands for it. In an opt-out gap there may be
    /// names that nobody signed (RFC 5155, 9.2).
    pub(super) fn missing(&self, name: &Canonical) -> bool {
        let Some(encloser) = self.encloser(name) else { return false };
        self.covering(name) == Some(false) && self.covering(&encloser.wildcard()).is_some()
    }

    /// Whether nothing stands nearer to the name than the wildcard that a signature of so many labels is of.
    pub(super) fn nearest_is(&self, name: &Canonical, labels: usize) -> bool {
        let nearer = name.ancestor(labels + 1);
        self.gaps.iter().any(|gap| gap.covers(name) && !gap.next.is_within(&nearer) && !gap.owner.is_within(&nearer))
            || self.hashed.iter().any(|gap| gap.covers(&gap.hash(&nearer)))
    }

    /// Types that exist at a name.
    fn types(&self, name: &Canonical) -> Option<&[u8]> {
        let gap = self.gaps.iter().find(|gap| gap.owner == *name).map(|gap| gap.types.as_slice());
        gap.or_else(|| self.hashed.iter().find(|gap| gap.hash(name) == gap.owner).map(|gap| gap.types.as_slice()))
    }

    /// Whether the name falls into a gap, and whether unsigned delegations may hide in it.
    fn covering(&self, name: &Canonical) -> Option<bool> {
        if self.gaps.iter().any(|gap| gap.covers(name)) {
            return Some(false);
        }
        // The name next below the closest one that exists is what the gap is of (RFC 5155, 8.3).
        let encloser = self.encloser(name)?;
        let next = name.ancestor(encloser.depth() + 1);
        self.hashed.iter().find(|gap| gap.covers(&gap.hash(&next))).map(|gap| gap.opt_out)
    }

    /// The closest ancestor that is proven to exist.
    fn encloser(&self, name: &Canonical) -> Option<Canonical> {
        let zone = self.zone.as_ref()?;
        if let Some(gap) = self.gaps.iter().find(|gap| gap.covers(name)) {
            return Some(name.ancestor(name.common(&gap.owner).max(name.common(&gap.next))));
        }
        (zone.depth()..name.depth())
            .rev()
            .take(LABELS_MAX)
            .map(|depth| name.ancestor(depth))
            .find(|ancestor| self.hashed.iter().any(|gap| gap.hash(ancestor) == gap.owner))
    }
}

impl Gap {
    fn read(owner: &Canonical, data: &[u8]) -> Option<Self> {
        let mut parser = Parser::from_ref(data);
        let next = Canonical::parse(&mut parser)?;
        let types = data.get(parser.pos()..)?.to_vec();
        Some(Self { owner: owner.clone(), next, types })
    }

    /// The last gap of a zone ends at its apex.
    fn covers(&self, name: &Canonical) -> bool {
        let after = self.owner < *name;
        // A delegation's gap says nothing of the names below it (RFC 4035, 5.4).
        let below_cut = name.is_within(&self.owner) && has(&self.types, Rtype::NS) && !has(&self.types, Rtype::SOA);
        after && !below_cut && (*name < self.next || self.next <= self.owner)
    }
}

impl HashedGap {
    fn read(owner: &Canonical, data: &[u8]) -> Option<Self> {
        let [algorithm, flags, high, low, salt_length, rest @ ..] = data else { return None };
        if *algorithm != 1 {
            return None;
        }
        let (salt, rest) = rest.split_at_checked(usize::from(*salt_length))?;
        let (length, rest) = rest.split_first()?;
        let (next, types) = rest.split_at_checked(usize::from(*length))?;
        Some(Self {
            owner: base32hex(owner.labels().first()?)?,
            next: next.to_vec(),
            salt: salt.to_vec(),
            iterations: u16::from_be_bytes([*high, *low]),
            opt_out: flags & 1 != 0,
            types: types.to_vec(),
        })
    }

    /// RFC 5155, 5.
    fn hash(&self, name: &Canonical) -> Vec<u8> {
        let once = |value: &[u8]| {
            digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, &[value, &self.salt].concat()).as_ref().to_vec()
        };
        (0..self.iterations).fold(once(name.wire()), |value, _| once(&value))
    }

    fn covers(&self, hash: &[u8]) -> bool {
        let (after, before) = (self.owner.as_slice() < hash, hash < self.next.as_slice());
        if self.owner < self.next { after && before } else { after || before }
    }
}

/// Whether a type is in a bitmap (RFC 4034, 4.1.2).
fn has(bitmap: &[u8], rtype: Rtype) -> bool {
    let [window, low] = rtype.to_int().to_be_bytes();
    let mut rest = bitmap;
    while let [number, length, after @ ..] = rest {
        let Some((bits, next)) = after.split_at_checked(usize::from(*length)) else { return false };
        if *number == window {
            return bits.get(usize::from(low / 8)).is_some_and(|byte| byte & (0x80 >> (low % 8)) != 0);
        }
        rest = next;
    }
    false
}

/// RFC 4648, 7, without padding and in lower case.
fn base32hex(text: &[u8]) -> Option<Vec<u8>> {
    let (mut bytes, mut held, mut bits) = (Vec::new(), 0u32, 0);
    for character in text {
        let value = match character {
            b'0'..=b'9' => character - b'0',
            b'a'..=b'v' => character - b'a' + 10,
            _ => return None,
        };
        held = held << 5 | u32::from(value);
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(held >> bits & 0xff).ok()?);
            held &= (1 << bits) - 1;
        }
    }
    Some(bytes)
}
