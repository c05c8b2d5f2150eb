//! One name as one resolver answers it at one vantage. Read from the top; the first row decides.
//!
//! | # | evidence | verdict |
//! |---|---|---|
//! | 1 | nothing measured, stale, or the vantage may not accuse and nothing of it is proven | insufficient evidence |
//! | 2 | no DNS answer | not obtained |
//! | 3 | SERVFAIL; REFUSED or another code | servfail; refused |
//! | 4 | NXDOMAIN at every resolver that answered here; only here | canary gone; denied |
//! | 5 | 0.0.0.0 or :: | filtered |
//! | 6 | another special-purpose address | private |
//! | 7 | NOERROR without an address | empty |
//! | 8 | only addresses of a family the vantage lacks | family unusable |
//! | 9 | some proven, some dead | partly dead |
//! | 10 | proven, disjoint from another vantage's proven answer | steered by vantage |
//! | 11 | proven | ok |
//! | 12 | not all dead by enough probes | insufficient evidence |
//! | 13 | all impostors | impostor |
//! | 14 | all dead, another vantage proves one of these same addresses | unroutable here |
//! | 15 | all dead, dead at another sane vantage too, proven nowhere | dead everywhere |
//! | 16 | else | insufficient evidence |
//!
//! "Proves" means by a probe that ended after the address began to fail here: an older success may
//! be the world before the fault. Rows 3 to 7 need `k_min` agreeing answers over `span_min`; until then: insufficient evidence.

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
use crate::vantage::VantageJudgement;
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
    let policy = &setting.topology.policy;
    let may_accuse = setting.vantages.get(at).is_some_and(VantageJudgement::may_accuse);
    if !may_accuse && answer.proven.is_empty() {
        return AnswerVerdict::InsufficientEvidence;
    }
    let settled = speaker.times >= policy.k_min && speaker.at.since(speaker.since) >= policy.span_min;
    let if_settled = |verdict| if settled { verdict } else { AnswerVerdict::InsufficientEvidence };
    if !speaker.outcome.is_reply() {
        return AnswerVerdict::NotObtained;
    }
    if speaker.outcome != Outcome::Answered {
        return if_settled(refusal(speaker.outcome, denied_everywhere(state, name)));
    }
    if answer.addresses.iter().any(IpAddr::is_unspecified) {
        if_settled(AnswerVerdict::Filtered)
    } else if answer.addresses.iter().any(|a| address::special_purpose(*a).is_some()) {
        if_settled(AnswerVerdict::Private)
    } else {
        answered(setting, at, name, answer)
    }
}

/// A reply without an address.
fn refusal(outcome: Outcome, denied_everywhere: bool) -> AnswerVerdict {
    if outcome == Outcome::Servfail {
        AnswerVerdict::Servfail
    } else if outcome == Outcome::Nxdomain {
        if denied_everywhere { AnswerVerdict::CanaryGone } else { AnswerVerdict::Denied }
    } else if outcome == Outcome::Empty {
        AnswerVerdict::Empty
    } else if matches!(outcome, Outcome::DanglingCname | Outcome::CnameLoop) {
        AnswerVerdict::DanglingCname
    } else {
        // REFUSED, FORMERR, a referral, other codes: the resolver will not do its work.
        AnswerVerdict::Refused
    }
}

fn denied_everywhere(state: &VantageState, name: &DomainName) -> bool {
    state
        .answers
        .iter()
        .filter(|((asked, _, family), _)| asked == name && *family == Family::V4)
        .all(|(_, answer)| answer.outcome != Outcome::Answered && answer.outcome != Outcome::Empty)
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
        return if !answer.dead.is_empty() {
            AnswerVerdict::PartlyDead
        } else if setting.elsewhere.proves_only_others(at, &target, answer.addresses.iter().copied()) {
            AnswerVerdict::SteeredByVantage
        } else {
            AnswerVerdict::Ok
        };
    }
    if !reachable_family.iter().all(|address| answer.dead.contains(address)) {
        return AnswerVerdict::InsufficientEvidence;
    }
    if reachable_family.iter().all(|address| verdict_here(*address) == Some(AddressVerdict::Impostor)) {
        AnswerVerdict::Impostor
    } else if !answer.proven_at.is_empty() {
        AnswerVerdict::UnroutableHere
    } else if !answer.dead_at.is_empty() {
        AnswerVerdict::DeadEverywhere
    } else {
        AnswerVerdict::InsufficientEvidence
    }
}
