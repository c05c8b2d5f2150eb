//! From a trust anchor down to an answer (RFC 4035, 5).

use std::net::IpAddr;

use domain::base::iana::Rtype;

use super::denial::{Cut, Denials};
use super::fetch::{Fetch, Unfetched};
use super::keys::{Checks, Key, KeyDigest, Unproven, authentic, trusted};
use super::name::Canonical;
use super::records::{Records, Set, find};
use crate::measured::Validation;
use crate::probe::message::CHAIN_MAX;

/// A zone whose keys are proven.
#[derive(Debug, Clone)]
pub(super) struct Zone {
    pub(super) apex: Canonical,
    pub(super) keys: Vec<Key>,
    /// How long its keys may be kept, in seconds.
    pub(super) ttl_s: u32,
}

/// What an answer is worth, and which addresses it has when it is secure.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Judged {
    pub(super) validation: Validation,
    pub(super) addresses: Vec<IpAddr>,
}

impl Judged {
    fn nothing(validation: Validation) -> Self {
        Self { validation, addresses: Vec::new() }
    }
}

/// A validation under way.
pub(super) struct Walk<'a> {
    pub(super) fetch: Fetch<'a>,
    pub(super) anchors: &'a [KeyDigest],
    pub(super) now_s: u32,
    /// Zones that are proven, parents before children.
    pub(super) zones: Vec<Zone>,
    checks: Checks,
}

/// Why the walk ended before a zone.
type Ended = Validation;

impl<'a> Walk<'a> {
    pub(super) fn new(fetch: Fetch<'a>, anchors: &'a [KeyDigest], now_s: u32, zones: Vec<Zone>) -> Self {
        Self { fetch, anchors, now_s, zones, checks: Checks::default() }
    }

    /// Asks for the name and judges what comes.
    pub(super) async fn answer(&mut self, name: &Canonical, rtype: Rtype) -> Judged {
        match self.try_answer(name, rtype).await {
            Ok(judged) => judged,
            Err(ended) => Judged::nothing(ended),
        }
    }

    async fn try_answer(&mut self, name: &Canonical, rtype: Rtype) -> Result<Judged, Ended> {
        let records = self.get(name, rtype).await?;
        if !matches!(records.rcode, 0 | 3) {
            return Err(Validation::Indeterminate);
        }
        let mut at = name.clone();
        for _ in 0..=CHAIN_MAX {
            let set = find(&records.answer, &at, rtype).or_else(|| find(&records.answer, &at, Rtype::CNAME));
            let Some(set) = set else {
                self.nothing(&records, &at, rtype).await?;
                return Ok(Judged::nothing(Validation::Secure));
            };
            self.set(set, &records).await?;
            if set.rtype == rtype {
                let addresses = set.data.iter().filter_map(|data| address(data)).collect();
                return Ok(Judged { validation: Validation::Secure, addresses });
            }
            let target = set.data.first().map(|data| domain::dep::octseq::Parser::from_ref(data.as_slice()));
            at = target.and_then(|mut data| Canonical::parse(&mut data)).ok_or(Validation::Bogus)?;
        }
        Err(Validation::Bogus)
    }

    /// Whether a set of an answer is secure.
    async fn set(&mut self, set: &Set, records: &Records) -> Result<(), Ended> {
        let signer = set.signatures.iter().map(|one| &one.signer).find(|signer| set.owner.is_within(signer)).cloned();
        let zone = self.zone(&set.owner, signer.as_ref()).await?;
        if signer.is_none() {
            // Its zone is signed, and it is not.
            return Err(Validation::Bogus);
        }
        let signature = authentic(set, &zone.apex, &zone.keys, self.now_s, &mut self.checks).map_err(named)?;
        if signature.is_expanded(&set.owner) {
            // Of a wildcard: nothing nearer may exist.
            let labels = signature.labels;
            let denials = self.denials(&zone, records)?;
            return if denials.nearest_is(&set.owner, labels) { Ok(()) } else { Err(Validation::Bogus) };
        }
        Ok(())
    }

    /// Whether it is proven that the name, or records of the type there, do not exist.
    async fn nothing(&mut self, records: &Records, name: &Canonical, rtype: Rtype) -> Result<(), Ended> {
        let proofs = records.authority.iter().filter(|set| matches!(set.rtype, Rtype::NSEC | Rtype::NSEC3));
        let signer = proofs
            .flat_map(|set| &set.signatures)
            .map(|one| &one.signer)
            .find(|signer| name.is_within(signer))
            .cloned();
        let zone = self.zone(name, signer.as_ref()).await?;
        let denials = self.denials(&zone, records)?;
        let proven = if records.rcode == 3 { denials.missing(name) } else { denials.lacks(name, rtype) };
        // Of an opt-out gap too little is proven for "secure" and nothing for "bogus".
        match proven {
            true => Ok(()),
            false if denials.cut(name) == Cut::Insecure => Err(Validation::Insecure),
            false => Err(Validation::Bogus),
        }
    }

    /// The zone of a name: the one that is said to have signed, or the deepest on the way to it.
    async fn zone(&mut self, name: &Canonical, signer: Option<&Canonical>) -> Result<Zone, Ended> {
        let end = signer.unwrap_or(name);
        if self.zones.is_empty() {
            let root = self.keys(&Canonical::root(), self.anchors).await?;
            self.zones.push(root);
        }
        let known = self.zones.iter().filter(|zone| end.is_within(&zone.apex)).max_by_key(|zone| zone.apex.depth());
        let mut zone = known.cloned().ok_or(Validation::Indeterminate)?;
        for depth in zone.apex.depth() + 1..=end.depth() {
            let below = end.ancestor(depth);
            let records = self.get(&below, Rtype::DS).await?;
            if let Some(set) = find(&records.answer, &below, Rtype::DS) {
                authentic(set, &zone.apex, &zone.keys, self.now_s, &mut self.checks).map_err(named)?;
                let digests: Vec<KeyDigest> = set.data.iter().filter_map(|data| KeyDigest::read(data)).collect();
                if !digests.iter().any(KeyDigest::is_supported) {
                    // Signed in a way that is not known here (RFC 4035, 5.2).
                    return Err(Validation::Insecure);
                }
                let mut next = self.keys(&below, &digests).await?;
                next.ttl_s = next.ttl_s.min(set.ttl_s).min(zone.ttl_s);
                self.zones.push(next.clone());
                zone = next;
            } else if let Some(alias) = find(&records.answer, &below, Rtype::CNAME) {
                // A name with an alias has nothing else, and is no zone.
                authentic(alias, &zone.apex, &zone.keys, self.now_s, &mut self.checks).map_err(named)?;
            } else {
                match self.denials(&zone, &records)?.cut(&below) {
                    Cut::None => {}
                    Cut::Insecure => return Err(Validation::Insecure),
                    Cut::Unproven => return Err(Validation::Bogus),
                }
            }
        }
        Ok(zone)
    }

    /// The keys of a zone by what its parent, or an anchor, says of them.
    async fn keys(&mut self, zone: &Canonical, digests: &[KeyDigest]) -> Result<Zone, Ended> {
        let records = self.get(zone, Rtype::DNSKEY).await?;
        let set = find(&records.answer, zone, Rtype::DNSKEY).ok_or(Validation::Bogus)?;
        let keys = trusted(zone, set, digests, self.now_s, &mut self.checks).map_err(named)?;
        Ok(Zone { apex: zone.clone(), keys, ttl_s: set.ttl_s })
    }

    /// What the authentic proofs of a message say.
    fn denials(&mut self, zone: &Zone, records: &Records) -> Result<Denials, Ended> {
        let mut proven = Vec::new();
        for set in records.authority.iter().filter(|set| matches!(set.rtype, Rtype::NSEC | Rtype::NSEC3)) {
            match authentic(set, &zone.apex, &zone.keys, self.now_s, &mut self.checks) {
                // One that a wildcard gave is no proof of the name it stands at.
                Ok(signature) if !signature.is_expanded(&set.owner) => proven.push(set),
                Ok(_) | Err(Unproven::Bogus) => {}
                Err(Unproven::TooMuch) => return Err(Validation::Indeterminate),
            }
        }
        Ok(Denials::of(&zone.apex, proven.into_iter()))
    }

    async fn get(&mut self, name: &Canonical, rtype: Rtype) -> Result<Records, Ended> {
        self.fetch.get(name, rtype).await.map_err(|Unfetched| Validation::Indeterminate)
    }
}

fn named(unproven: Unproven) -> Ended {
    match unproven {
        Unproven::Bogus => Validation::Bogus,
        Unproven::TooMuch => Validation::Indeterminate,
    }
}

fn address(data: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(data).ok().map(IpAddr::from);
    v4().or_else(|| <[u8; 16]>::try_from(data).ok().map(IpAddr::from))
}
