//! One name as one resolver answers it at one vantage. Read from the top; the first row decides.
//!
//! | # | evidence | verdict |
//! |---|---|---|
//! | 1 | nothing measured, stale, or the vantage may not accuse and nothing of it is proven | insufficient evidence |
//! | 2 | no DNS answer | not obtained |
//! | 3 | two different replies to one question | injected |
//! | 4 | a signed name fails the agent's own validation, its clock being right | forged |
//! | 5 | SERVFAIL with an extended error of a broken zone; other SERVFAIL; REFUSED or another code | bogus at resolver; servfail; refused |
//! | 6 | NXDOMAIN with a filter's mark; answered nowhere by anybody; only here | filtered; canary gone; denied |
//! | 7 | 0.0.0.0 or ::; or a filter's mark and nothing proven | filtered |
//! | 8 | another special-purpose address | private |
//! | 9 | only addresses that stand for a block, none proven | stub |
//! | 10 | NOERROR without an address | dangling CNAME; empty |
//! | 11 | only addresses of a family the vantage lacks | family unusable |
//! | 12 | some proven, some dead | partly dead |
//! | 13 | proven, disjoint from what the same resolver gives another vantage, proven there | steered by vantage |
//! | 14 | proven | ok |
//! | 15 | not all dead or partly reached, by enough probes | insufficient evidence |
//! | 16 | all impostors | impostor |
//! | 17 | a partial path to some | path partial |
//! | 18 | all dead, another vantage proves one of these same addresses | unroutable here |
//! | 19 | all dead, dead at another sane vantage too, proven nowhere | dead everywhere |
//! | 20 | else | insufficient evidence |
//!
//! "Proves" means by a probe that ended after the address began to fail here: an older success may
//! be the world before the fault. Rows 2 to 10 need as many agreeing answers as a run of failures (`chance`), over
//! `span_min`, and a control that passed since; until then: insufficient evidence.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::address;
use crate::elsewhere::Elsewhere;
use crate::fold::{AnswerState, VantageState};
use crate::names::{DomainName, ResolverName, VantageName};
use crate::observation::{Family, ObservationId, Outcome, Target};
use crate::reach::Reach;
use crate::time::Timestamp;
use crate::topology::Topology;
use crate::vantage::{VantageJudgement, controls_passed_since};
use crate::verdict::{AddressVerdict, AnswerVerdict};

/// An answer, with what decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The row.
    pub verdict: AnswerVerdict,
    /// Every address of the answer, both families.
    pub addresses: BTreeSet<IpAddr>,
    /// Those proven from this vantage.
    pub proven: BTreeSet<IpAddr>,
    /// Those dead from this vantage, by enough probes.
    pub dead: BTreeSet<IpAddr>,
    /// Those that a part of the flows from this vantage reaches.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub partial: BTreeSet<IpAddr>,
    /// Other vantages that prove an address of this answer that is dead from this one: at most [`WITNESSES_MAX`](crate::elsewhere::WITNESSES_MAX) each.
    pub proven_at: BTreeMap<IpAddr, Vec<VantageName>>,
    /// Other vantages that find an address of this answer dead: at most [`WITNESSES_MAX`](crate::elsewhere::WITNESSES_MAX) each.
    pub dead_at: BTreeMap<IpAddr, Vec<VantageName>>,
    /// Newest resolution.
    pub at: Option<Timestamp>,
    /// Resolutions and connections of this vantage that decided.
    pub evidence: Vec<ObservationId>,
    /// Connections of other vantages that decided.
    pub evidence_elsewhere: Vec<ObservationId>,
}

impl Answer {
    /// Whether it has addresses and none of them can be used from this vantage.
    #[must_use]
    pub fn all_dead(&self) -> bool {
        !self.addresses.is_empty() && self.addresses.iter().all(|address| self.dead.contains(address))
    }
}

/// Reach of every address, by vantage, target and address.
pub type ReachMap = BTreeMap<(VantageName, Target, IpAddr), Reach>;

/// What judging one answer reads besides the answer itself.
#[derive(Debug, Clone, Copy)]
pub struct Setting<'a> {
    /// The configuration.
    pub topology: &'a Topology,
    /// Standing of each vantage.
    pub vantages: &'a BTreeMap<VantageName, VantageJudgement>,
    /// Standing of each address.
    pub reach: &'a ReachMap,
    /// The same, by address.
    pub elsewhere: &'a Elsewhere<'a>,
    /// Names that some resolver answers at some vantage.
    pub answered: &'a BTreeSet<DomainName>,
    /// The time it is judged at.
    pub now: Timestamp,
}

/// Judges what `resolver` answers for `name` at vantage `at`.
#[must_use]
pub fn judge(
    setting: Setting<'_>,
    at: &VantageName,
    state: &VantageState,
    name: &DomainName,
    resolver: &ResolverName,
) -> Answer {
    let key = |family| (name.clone(), resolver.clone(), family);
    let fresh = |family| {
        state.answers.get(&key(family)).filter(|a| setting.now.since(a.at) <= setting.topology.policy.fresh_for)
    };
    let (v4, v6) = (fresh(Family::V4), fresh(Family::V6));
    let mut answer = Answer {
        verdict: AnswerVerdict::InsufficientEvidence,
        addresses: BTreeSet::new(),
        proven: BTreeSet::new(),
        dead: BTreeSet::new(),
        partial: BTreeSet::new(),
        proven_at: BTreeMap::new(),
        dead_at: BTreeMap::new(),
        at: None,
        evidence: Vec::new(),
        evidence_elsewhere: Vec::new(),
    };
    for part in [v4, v6].into_iter().flatten() {
        answer.addresses.extend(&part.addresses);
        answer.at = answer.at.max(Some(part.at));
        answer.evidence.push(part.id);
    }
    compare_addresses(setting, at, name, &mut answer);
    // The family that carries addresses speaks for the answer; without any, IPv4 does.
    let speaker = [v4, v6].into_iter().flatten().find(|part| !part.addresses.is_empty()).or(v4).or(v6);
    if let Some(speaker) = speaker {
        answer.verdict = row(setting, at, state, name, speaker, &answer);
    }
    answer
}

fn compare_addresses(setting: Setting<'_>, at: &VantageName, name: &DomainName, answer: &mut Answer) {
    let target = Target::Name(name.clone());
    for &address in &answer.addresses {
        let Some(here) = setting.reach.get(&(at.clone(), target.clone(), address)) else { continue };
        if here.proven() {
            answer.proven.insert(address);
        } else if here.dead() {
            answer.dead.insert(address);
        } else if here.partial() {
            answer.partial.insert(address);
        } else {
            continue;
        }
        answer.evidence.extend(&here.evidence);
        for (vantage, there) in setting.elsewhere.dead(at, &target, address) {
            answer.dead_at.entry(address).or_default().push(vantage.clone());
            answer.evidence_elsewhere.extend(&there.evidence);
        }
        // What works here needs no witness.
        if here.dead() {
            for (vantage, there) in setting.elsewhere.contradicting(at, &target, address, here) {
                answer.proven_at.entry(address).or_default().push(vantage.clone());
                answer.evidence_elsewhere.extend(&there.evidence);
            }
        }
    }
}

fn row(
    setting: Setting<'_>,
    at: &VantageName,
    state: &VantageState,
    name: &DomainName,
    speaker: &AnswerState,
    answer: &Answer,
) -> AnswerVerdict {
    let standing = setting.vantages.get(at);
    let may_accuse = standing.is_some_and(VantageJudgement::may_accuse);
    if !may_accuse && answer.proven.is_empty() {
        return AnswerVerdict::InsufficientEvidence;
    }
    // As for an address: what the controls lose is regarded, and one of them must have passed since it was enough.
    let settled =
        speaker.confirmed_at.is_some_and(|confirmed_at| controls_passed_since(setting.topology, state, confirmed_at));
    let if_settled = |verdict| if settled { verdict } else { AnswerVerdict::InsufficientEvidence };
    if !speaker.outcome.is_reply() {
        return if_settled(AnswerVerdict::NotObtained);
    }
    if speaker.marks.injected {
        return if_settled(AnswerVerdict::Injected);
    }
    if speaker.marks.bogus && standing.is_some_and(VantageJudgement::knows_the_time) {
        return if_settled(AnswerVerdict::Forged);
    }
    if speaker.outcome != Outcome::Answered {
        return if_settled(refusal(speaker, setting.answered.contains(name)));
    }
    let stub = |address: &IpAddr| setting.topology.stubs.contains(address);
    if answer.addresses.iter().any(IpAddr::is_unspecified) || (speaker.marks.kept_back && answer.proven.is_empty()) {
        if_settled(AnswerVerdict::Filtered)
    } else if answer.addresses.iter().any(|a| address::special_purpose(*a).is_some()) {
        if_settled(AnswerVerdict::Private)
    } else if answer.proven.is_empty() && answer.addresses.iter().all(stub) {
        if_settled(AnswerVerdict::Stub)
    } else {
        answered(setting, at, name, answer)
    }
}

/// A reply without an address.
fn refusal(speaker: &AnswerState, answered_somewhere: bool) -> AnswerVerdict {
    let (outcome, marks) = (speaker.outcome, speaker.marks);
    if outcome == Outcome::Servfail {
        if marks.zone_broken { AnswerVerdict::BogusAtResolver } else { AnswerVerdict::Servfail }
    } else if outcome == Outcome::Nxdomain {
        match (marks.kept_back, answered_somewhere) {
            (true, _) => AnswerVerdict::Filtered,
            (false, true) => AnswerVerdict::Denied,
            (false, false) => AnswerVerdict::CanaryGone,
        }
    } else if outcome == Outcome::Empty {
        if marks.kept_back { AnswerVerdict::Filtered } else { AnswerVerdict::Empty }
    } else if matches!(outcome, Outcome::DanglingCname | Outcome::CnameLoop) {
        AnswerVerdict::DanglingCname
    } else {
        // REFUSED, FORMERR, a referral, other codes: the resolver will not do its work.
        AnswerVerdict::Refused
    }
}

fn answered(setting: Setting<'_>, at: &VantageName, name: &DomainName, answer: &Answer) -> AnswerVerdict {
    let target = Target::Name(name.clone());
    let verdict_here =
        |address: IpAddr| setting.reach.get(&(at.clone(), target.clone(), address)).map(|reach| reach.verdict);
    let reachable_family: Vec<IpAddr> = answer
        .addresses
        .iter()
        .copied()
        .filter(|address| verdict_here(*address) != Some(AddressVerdict::FamilyUnavailable))
        .collect();
    if reachable_family.is_empty() {
        return AnswerVerdict::FamilyUnusable;
    }
    if !answer.proven.is_empty() {
        // Whether it is steered is seen when all answers are judged.
        return if answer.dead.is_empty() { AnswerVerdict::Ok } else { AnswerVerdict::PartlyDead };
    }
    if !reachable_family.iter().all(|address| answer.dead.contains(address) || answer.partial.contains(address)) {
        return AnswerVerdict::InsufficientEvidence;
    }
    if reachable_family.iter().all(|address| verdict_here(*address) == Some(AddressVerdict::Impostor)) {
        AnswerVerdict::Impostor
    } else if !answer.partial.is_empty() {
        AnswerVerdict::PathPartial
    } else if !answer.proven_at.is_empty() {
        AnswerVerdict::UnroutableHere
    } else if !answer.dead_at.is_empty() {
        AnswerVerdict::DeadEverywhere
    } else {
        AnswerVerdict::InsufficientEvidence
    }
}

/// Names the answers that differ between vantages and work at each: normal for a CDN. Compared is what the same resolver
/// gives for the same name, with embedded IPv4 addresses decoded.
pub fn steer(answers: &mut BTreeMap<(VantageName, DomainName, ResolverName), Answer>) {
    // Sets rather than vantages: thousands of these are given few different ones.
    let mut given: BTreeMap<(&DomainName, &ResolverName), BTreeSet<BTreeSet<IpAddr>>> = BTreeMap::new();
    for ((_, name, resolver), answer) in answers.iter().filter(|(_, answer)| !answer.proven.is_empty()) {
        let sets = given.entry((name, resolver)).or_default();
        if sets.len() < SETS_MAX {
            sets.insert(decoded(&answer.proven));
        }
    }
    let steered = |name: &DomainName, resolver: &ResolverName, own: &BTreeSet<IpAddr>| {
        given.get(&(name, resolver)).is_some_and(|sets| sets.iter().any(|other| own.is_disjoint(other)))
    };
    let keys: Vec<_> = answers
        .iter()
        .filter(|(_, answer)| answer.verdict == AnswerVerdict::Ok)
        .filter(|((_, name, resolver), answer)| steered(name, resolver, &decoded(&answer.proven)))
        .map(|(key, _)| key.clone())
        .collect();
    for key in keys {
        if let Some(answer) = answers.get_mut(&key) {
            answer.verdict = AnswerVerdict::SteeredByVantage;
        }
    }
}

/// Different sets of proven addresses that an answer is compared with. A site that rotates through more is steered by any
/// of them.
const SETS_MAX: usize = 64;

fn decoded(addresses: &BTreeSet<IpAddr>) -> BTreeSet<IpAddr> {
    let decode = |address: &IpAddr| match address {
        IpAddr::V4(_) => *address,
        IpAddr::V6(v6) => address::embedded_v4(*v6).map_or(*address, IpAddr::V4),
    };
    addresses.iter().map(decode).collect()
}
