//! What comes beside a fact: marks of a reply, the clock, what the controls lose, single attempts, late reports.

use std::net::IpAddr;
use std::time::Duration;

use crate::rig::*;
use parallax_decide::call::Call;
use parallax_decide::guard::Refusal;
use parallax_decide::names::DomainName;
use parallax_decide::observation::*;
use parallax_decide::topology::Policy;
use parallax_decide::verdict::{AddressVerdict, AnswerVerdict, NodeVerdict, VantageVerdict};

const NOTHING: Particulars = Particulars {
    proof: None,
    extended_error: None,
    recursion_unavailable: false,
    second_reply: false,
    validation: None,
    clock_offset_ms: None,
    recent: None,
};

fn resolution(outcome: Outcome, addresses: &[&str]) -> Fact {
    Fact::Resolution(Resolution {
        name: n(CDNJS),
        resolver: n("live"),
        family: Family::V4,
        outcome,
        addresses: addresses.iter().map(|a| n(a)).collect(),
        ttl_s: 5,
    })
}

fn connection(target: Target, address: &str, outcome: Outcome, attempts: u16, attempts_connected: u16) -> Fact {
    Fact::Connection(Connection { target, address: n(address), port: 443, outcome, attempts, attempts_connected })
}

fn name() -> Target {
    Target::Name(n::<DomainName>(CDNJS))
}

/// Rounds of the same at the branch, one a second; the particulars are those of the resolution.
fn rounds(particulars: Particulars, facts: &[Fact], times: usize) -> Rig {
    let mut rig = Rig::new(World::well());
    for _ in 0..times {
        rig.now = rig.now.plus(Duration::from_secs(1));
        for fact in facts {
            rig.particulars = particulars;
            rig.observe(BRANCH, fact.clone());
        }
        rig.particulars = Particulars { clock_offset_ms: particulars.clock_offset_ms, ..NOTHING };
        rig.controls(BRANCH);
    }
    rig
}

#[test]
fn replies_are_named_by_their_marks() {
    use AnswerVerdict as V;
    use Outcome as O;
    let ede = |code| Particulars { extended_error: Some(code), ..NOTHING };
    let second = Particulars { second_reply: true, ..NOTHING };
    let bogus = Particulars { validation: Some(Validation::Bogus), ..NOTHING };
    let ra0 = Particulars { recursion_unavailable: true, ..NOTHING };
    let given = ["104.26.6.10"].as_slice();
    for (particulars, outcome, addresses, verdict) in [
        (second, O::Answered, given, V::Injected),
        (second, O::Nxdomain, &[], V::Injected),
        (bogus, O::Answered, given, V::Forged),
        (ede(7), O::Servfail, &[], V::BogusAtResolver),
        (ede(22), O::Servfail, &[], V::Servfail),
        (NOTHING, O::Servfail, &[], V::Servfail),
        (ra0, O::Nxdomain, &[], V::Filtered),
        (ede(15), O::Nxdomain, &[], V::Filtered),
        (NOTHING, O::Nxdomain, &[], V::CanaryGone),
        (ede(17), O::Empty, &[], V::Filtered),
        (ede(4), O::Answered, given, V::Filtered),
        (ede(18), O::Refused, &[], V::Refused),
        (Particulars { clock_offset_ms: Some(90_000), ..bogus }, O::Answered, given, V::InsufficientEvidence),
    ] {
        let facts = [resolution(outcome, addresses)];
        let seen = |times| {
            rounds(particulars, &facts, times).judge().answer(&n(BRANCH), &n(CDNJS), &n("live")).unwrap().verdict
        };
        assert_eq!(seen(3), V::InsufficientEvidence, "{particulars:?} over 2 s");
        assert_eq!(seen(4), verdict, "{particulars:?} {outcome}");
    }
    // Proof outweighs a filter's mark, and a list of block pages is a hint.
    let proven = [resolution(O::Answered, given), connection(name(), "104.26.6.10", O::TlsOk, 1, 1)];
    let judged = |rig: &Rig| rig.judge().answer(&n(BRANCH), &n(CDNJS), &n("live")).unwrap().verdict;
    assert_eq!(judged(&rounds(ede(17), &proven, 4)), V::Ok);
    for (outcome, verdict) in [(O::CertificateName, V::Stub), (O::TlsOk, V::Ok)] {
        let facts = [resolution(O::Answered, given), connection(name(), "104.26.6.10", outcome, 1, 1)];
        let mut rig = rounds(NOTHING, &facts, 5);
        rig.topology.stubs = set(given);
        assert_eq!(judged(&rig), verdict);
    }
}

/// Who forges gives another address each time.
#[test]
fn injected_answers_that_change_agree() {
    let mut rig = Rig::new(World::well());
    for i in 0..5 {
        rig.now = rig.now.plus(Duration::from_secs(1));
        rig.particulars = Particulars { second_reply: true, ..NOTHING };
        rig.observe(BRANCH, resolution(Outcome::Answered, &[["31.13.1.1", "31.13.1.2", "31.13.1.3"][i % 3]]));
        rig.particulars = NOTHING;
        rig.controls(BRANCH);
    }
    assert_eq!(rig.answer_word(BRANCH, CDNJS, "live"), "answer_injected");
    rig.decide();
    assert!(rig.findings.iter().any(|finding| finding.calls.contains(&Call::Security)), "{:?}", rig.findings);
}

#[test]
fn a_wrong_clock_does_not_judge_certificates() {
    for (offset, verdict, standing) in [
        (None, AddressVerdict::CertTime, VantageVerdict::Ok),
        (Some(-1_900), AddressVerdict::CertTime, VantageVerdict::Ok),
        (Some(-300_000), AddressVerdict::Unmeasured, VantageVerdict::ClockSkewed),
    ] {
        let facts = [
            resolution(Outcome::Answered, &["104.26.6.10"]),
            connection(name(), "104.26.6.10", Outcome::CertificateNotYetValid, 1, 1),
        ];
        let mut rig = rounds(Particulars { clock_offset_ms: offset, ..NOTHING }, &facts, 5);
        let judgement = rig.judge();
        assert_eq!(judgement.reach[&(n(BRANCH), name(), n::<IpAddr>("104.26.6.10"))].verdict, verdict, "{offset:?}");
        assert_eq!(judgement.vantages[&n(BRANCH)].verdict, standing, "{offset:?}");
        rig.decide();
        let fix = Call::FixClock { vantage: n(BRANCH) };
        let called = rig.findings.iter().any(|finding| finding.calls.contains(&fix));
        assert_eq!(called, standing == VantageVerdict::ClockSkewed);
    }
}

/// M26: three failures are no evidence where the controls lose as much without any fault.
#[test]
fn a_lossy_place_needs_more_failures() {
    let dead_after = |recent: Recent| {
        let mut rig = Rig::new(World::well());
        rig.topology.policy = Policy { k_max: 12, ..Policy::fast() };
        (1..30).find(|_| {
            rig.now = rig.now.plus(Duration::from_secs(2));
            rig.particulars = Particulars { recent: Some(recent), ..NOTHING };
            rig.controls(BRANCH);
            rig.observe(BRANCH, connection(name(), "104.26.6.10", Outcome::Silent, 4, 0));
            rig.controls(BRANCH);
            rig.judge().reach[&(n(BRANCH), name(), n::<IpAddr>("104.26.6.10"))].dead()
        })
    };
    assert_eq!(dead_after(Recent { failures: 0, checks: 180 }), Some(3));
    assert_eq!(dead_after(Recent { failures: 0, checks: 60 }), Some(4));
    assert_eq!(dead_after(Recent { failures: 5, checks: 60 }), Some(7));
    assert_eq!(dead_after(Recent { failures: 40, checks: 60 }), Some(12), "k_max");
}

/// M27: one of the links near a place is dead: every probe passes, and a part of its attempts does not.
#[test]
fn a_partial_path_is_reported_and_nothing_is_changed() {
    let mut rig = Rig::new(World::well());
    rig.run(20);
    let node = Target::Node(n("fi"));
    for _ in 0..4 {
        rig.now = rig.now.plus(Duration::from_secs(1));
        rig.observe(WAN, connection(node.clone(), FI, Outcome::TlsOk, 4, 2));
        rig.controls(WAN);
    }
    let judgement = rig.judge();
    let reach = &judgement.reach[&(n(WAN), node, n::<IpAddr>(FI))];
    assert_eq!(reach.verdict, AddressVerdict::PartialPath);
    assert!(reach.attempts.is_some_and(|(made, lost)| lost >= 8 && made > lost), "{reach:?}");
    assert_eq!(rig.node_word("fi"), NodeVerdict::PathPartial.word());
    rig.decide();
    let evidence = Call::PathEvidence { vantage: n(WAN) };
    assert!(rig.findings.iter().any(|finding| finding.calls.contains(&evidence)), "{:?}", rig.findings);
    assert!(rig.plans.is_empty());
}

/// M30: the networks of the users lost the node; who does not belong to them is no witness for it.
#[test]
fn a_node_lost_to_its_audience_is_asked_about_or_moved_by_leave() {
    for leave in [false, true] {
        let mut rig = Rig::new(World::well());
        rig.topology.vantages.get_mut(&n(DE)).unwrap().audience = false;
        rig.topology.services.get_mut(&n("fi")).unwrap().audience_failover = leave;
        rig.run(20);
        rig.world.no_path.extend([(BRANCH, n(FI)), (WAN, n(FI))]);
        rig.run(15);
        assert!(rig.history.iter().any(|(_, note)| note.contains("node_unroutable_for_audience")), "{:?}", rig.history);
        let moved = rig.world.record != set(&[FI]);
        assert_eq!(moved, leave, "without leave a person decides: {:?} {:?}", rig.holds, rig.refusals);
        let proposed = rig.refusals.iter().any(|all| all.contains(&Refusal::NotAllowedToAct));
        assert_eq!(proposed, !leave, "{:?}", rig.refusals);
    }
}

/// M33: what arrives too late is history, and says that the place is heard.
#[test]
fn late_reports_do_not_vote() {
    let mut rig = Rig::new(World::well());
    rig.run(20);
    rig.world.silent.insert(BRANCH);
    rig.run(20);
    assert_eq!(rig.judge().vantages[&n(BRANCH)].verdict, VantageVerdict::Silent);
    let before = rig.judge().nodes;
    rig.late = true;
    for _ in 0..5 {
        rig.observe(BRANCH, connection(Target::Node(n("fi")), FI, Outcome::Silent, 4, 0));
    }
    rig.late = false;
    let judgement = rig.judge();
    assert_eq!(judgement.vantages[&n(BRANCH)].verdict, VantageVerdict::Late);
    assert_eq!(judgement.nodes, before);
    rig.now = rig.now.plus(Duration::from_secs(13));
    assert_eq!(rig.judge().vantages[&n(BRANCH)].verdict, VantageVerdict::Silent, "nothing since");
}

/// A01, A05, A24: what the same resolver gives elsewhere, decoded, makes an answer steered; what was tried elsewhere does not.
#[test]
fn steered_is_what_another_place_is_given_and_proves() {
    let mut rig = Rig::new(World::well());
    let mut give = |vantage: &'static str, address: &str, v6: bool| {
        let mut fact = resolution(Outcome::Answered, &[address]);
        if let Fact::Resolution(resolution) = &mut fact {
            resolution.family = if v6 { Family::V6 } else { Family::V4 };
        }
        rig.observe(vantage, fact);
        for tried in [address, "104.26.6.10", "104.26.7.10"] {
            rig.connect(vantage, name(), n(tried));
        }
        rig.controls(vantage);
    };
    give(BRANCH, "104.26.6.10", false);
    give(WAN, "104.26.7.10", false);
    // 104.26.6.10 behind a translator.
    give(DE, "64:ff9b::681a:60a", true);
    assert_eq!(rig.answer_word(BRANCH, CDNJS, "live"), "answer_steered_by_vantage");
    assert_eq!(rig.answer_word(WAN, CDNJS, "live"), "answer_steered_by_vantage");
    rig.observe(WAN, resolution(Outcome::Answered, &["104.26.6.10"]));
    assert_eq!(rig.answer_word(DE, CDNJS, "live"), "answer_ok", "the same address, translated");
    assert_eq!(rig.answer_word(WAN, CDNJS, "live"), "answer_ok");
}
