//! Own validation of signed answers (RFC 4035), from the root's keys. It turns "different" into
//! "forged" without any other vantage; it never changes the outcome of a resolution.
//!
//! The answer is asked for again with its signatures, from the same resolver, and so are the keys of
//! each zone on the way; `fetch` bounds the questions, `keys` the signatures that are checked.
//! `chain` walks from the anchor to the answer, `denial` reads proofs that something is not there.
//!
//! Not done: SHA-1 (RFC 9905; such a zone counts as unsigned), the root's keys by RFC 5011 (they come
//! with a release), validation through DoH in JSON, which carries no signatures.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use domain::base::iana::Rtype;
use parallax_decide::observation::{Family, Outcome, Resolution};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use self::chain::{Judged, Walk, Zone};
use self::fetch::Fetch;
pub use self::keys::KeyDigest;
use self::name::Canonical;
use super::Limits;
use crate::assignment::Resolver;
use crate::clock::{self, Instant};
use crate::measured::Validation;
use crate::site::Site;

mod chain;
mod denial;
mod fetch;
mod keys;
mod name;
mod records;

/// Validations at once.
const AT_ONCE_MAX: usize = 4;

/// Zones whose keys are kept, and how long at most.
const ZONES_MAX: usize = 32;
const ZONE_LIFE_MAX: Duration = Duration::from_secs(3600);

/// Answers whose validation is kept, and how long at least: an answer that lives shorter is not validated
/// more often.
const ANSWERS_MAX: usize = 256;
const ANSWER_LIFE_MIN: Duration = Duration::from_secs(30);
const ANSWER_LIFE_MAX: Duration = Duration::from_secs(3600);

/// The root's keys: 20326 of 2017 and 38696 of 2024, as IANA publishes them
/// (<https://data.iana.org/root-anchors/root-anchors.xml>).
const ROOT: [(u16, [u8; 32]); 2] = [
    (
        20326,
        [
            0xe0, 0x6d, 0x44, 0xb8, 0x0b, 0x8f, 0x1d, 0x39, 0xa9, 0x5c, 0x0b, 0x0d, 0x7c, 0x65, 0xd0, 0x84, 0x58, 0xe8,
            0x80, 0x40, 0x9b, 0xbc, 0x68, 0x34, 0x57, 0x10, 0x42, 0x37, 0xc7, 0xf8, 0xec, 0x8d,
        ],
    ),
    (
        38696,
        [
            0x68, 0x3d, 0x2d, 0x0a, 0xcb, 0x8c, 0x9b, 0x71, 0x2a, 0x19, 0x48, 0xb2, 0x7f, 0x74, 0x12, 0x19, 0x29, 0x8d,
            0x0a, 0x45, 0x0d, 0x61, 0x2c, 0x48, 0x3a, 0xf4, 0x44, 0xa4, 0xc0, 0xfb, 0x2b, 0x16,
        ],
    ),
];

/// What validates, and what it remembers.
#[derive(Debug)]
pub struct Validator {
    anchors: Vec<KeyDigest>,
    places: Semaphore,
    zones: Mutex<Vec<(Zone, Instant)>>,
    answers: Mutex<BTreeMap<(String, String, Family), Kept>>,
}

/// The validation of an answer, while it may be used for the same answer.
#[derive(Debug, Clone)]
struct Kept {
    until: Instant,
    outcome: Outcome,
    addresses: Vec<IpAddr>,
    validation: Validation,
}

impl Default for Validator {
    fn default() -> Self {
        let anchor = |(tag, digest): (u16, [u8; 32])| KeyDigest { tag, algorithm: 8, kind: 2, digest: digest.to_vec() };
        Self::of(ROOT.map(anchor).to_vec())
    }
}

impl Validator {
    /// One that trusts these keys of the root.
    #[must_use]
    pub fn of(anchors: Vec<KeyDigest>) -> Self {
        Self { anchors, places: Semaphore::new(AT_ONCE_MAX), zones: Mutex::default(), answers: Mutex::default() }
    }

    /// Validates an answer, by the wall clock's time, within the limit for resolvers. At most once in the
    /// answer's own lifetime: until then the same answer has the same validation.
    pub async fn validate(
        &self,
        site: &Site,
        limits: &Limits,
        resolver: &Resolver,
        given: &Resolution,
        server: Option<IpAddr>,
    ) -> Validation {
        let key = (resolver.name.to_string(), given.name.to_string(), given.family);
        if let Some(kept) = self.kept(&key)
            && kept.outcome == given.outcome
            && same(&kept.addresses, &given.addresses)
        {
            return kept.validation;
        }
        let validating = Box::pin(self.anew(site, limits, resolver, given, server));
        let Ok(Some(judged)) = timeout(limits.resolve, validating).await else { return Validation::Indeterminate };
        let validation = of_given(&judged, given);
        if validation != Validation::Indeterminate {
            let lives = Duration::from_secs(u64::from(given.ttl_s));
            self.keep(key, given, validation, lives.clamp(ANSWER_LIFE_MIN, ANSWER_LIFE_MAX));
        }
        validation
    }

    async fn anew(
        &self,
        site: &Site,
        limits: &Limits,
        resolver: &Resolver,
        given: &Resolution,
        server: Option<IpAddr>,
    ) -> Option<Judged> {
        let _place = self.places.acquire().await.ok()?;
        let name = Canonical::of(&given.name)?;
        let rtype = match given.family {
            Family::V4 => Rtype::A,
            Family::V6 => Rtype::AAAA,
        };
        let fetch = Fetch::open(site, limits, resolver, server?).await?;
        // The times of signatures are 32 bits and wrap (RFC 4034, 3.1.5).
        let now_s = u32::try_from((clock::unix_ms() / 1000) & u64::from(u32::MAX)).ok()?;
        let mut walk = Walk::new(fetch, &self.anchors, now_s, self.zones());
        let judged = walk.answer(&name, rtype).await;
        self.learn(walk.zones);
        Some(judged)
    }

    fn zones(&self) -> Vec<Zone> {
        let now = clock::now();
        let mut zones = self.zones.lock().unwrap_or_else(PoisonError::into_inner);
        zones.retain(|(_, until)| now < *until);
        // Without the root there is no beginning.
        if !zones.iter().any(|(zone, _)| zone.apex == Canonical::root()) {
            zones.clear();
        }
        zones.iter().map(|(zone, _)| zone.clone()).collect()
    }

    fn learn(&self, proven: Vec<Zone>) {
        let now = clock::now();
        let mut zones = self.zones.lock().unwrap_or_else(PoisonError::into_inner);
        for zone in proven {
            if zones.len() < ZONES_MAX && !zones.iter().any(|(known, _)| known.apex == zone.apex) {
                let lives = Duration::from_secs(u64::from(zone.ttl_s)).min(ZONE_LIFE_MAX);
                zones.push((zone, now + lives));
            }
        }
    }

    fn kept(&self, key: &(String, String, Family)) -> Option<Kept> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.get(key).filter(|kept| clock::now() < kept.until).cloned()
    }

    fn keep(&self, key: (String, String, Family), given: &Resolution, validation: Validation, lives: Duration) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.len() >= ANSWERS_MAX && !answers.contains_key(&key) {
            answers.pop_first();
        }
        let (outcome, addresses) = (given.outcome, given.addresses.clone());
        answers.insert(key, Kept { until: clock::now() + lives, outcome, addresses, validation });
    }
}

/// What the signed answer proves of the one that was given, which came without signatures. Addresses
/// that the signed one does not have may be another choice of a zone that signs each answer anew:
/// nothing is said of them.
fn of_given(judged: &Judged, given: &Resolution) -> Validation {
    if judged.validation != Validation::Secure {
        return judged.validation;
    }
    let answered = given.outcome == Outcome::Answered;
    let nothing = matches!(given.outcome, Outcome::Empty | Outcome::Nxdomain | Outcome::DanglingCname);
    let covered = given.addresses.iter().all(|address| judged.addresses.contains(address));
    let proven = if answered { covered } else { nothing && judged.addresses.is_empty() };
    match proven {
        true => Validation::Secure,
        // Signed proof that there is no address at all.
        false if answered && judged.addresses.is_empty() => Validation::Bogus,
        false => Validation::Indeterminate,
    }
}

fn same(one: &[IpAddr], other: &[IpAddr]) -> bool {
    one.iter().all(|address| other.contains(address)) && other.iter().all(|address| one.contains(address))
}

#[cfg(test)]
mod tests;
