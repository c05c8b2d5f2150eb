//! Rows of the tables that the stories do not reach by themselves.

use crate::rig::*;
use parallax_decide::names::DomainName;
use parallax_decide::observation::*;
use parallax_decide::verdict::{AddressVerdict, AnswerVerdict, NodeVerdict, VantageVerdict};
use std::net::IpAddr;

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

fn connection(address: &str, outcome: Outcome) -> Fact {
    let target = Target::Name(n::<DomainName>(CDNJS));
    Fact::Connection(Connection { target, address: n(address), port: 443, outcome, attempts: 4, attempts_connected: 0 })
}

/// Rounds of the same facts at the branch, one a second, inside passing controls.
fn rounds(facts: &[Fact], times: usize) -> Rig {
    let mut rig = Rig::new(World::well());
    for _ in 0..times {
        rig.now = rig.now.plus(std::time::Duration::from_secs(1));
        for fact in facts {
            rig.observe(BRANCH, fact.clone());
        }
        rig.controls(BRANCH);
    }
    rig
}

fn answer(facts: &[Fact], times: usize) -> AnswerVerdict {
    rounds(facts, times).judge().answer(&n(BRANCH), &n(CDNJS), &n("live")).unwrap().verdict
}

#[test]
fn answers_without_addresses_need_enough_agreeing_probes() {
    use Outcome as R;
    for (outcome, verdict) in [
        (R::Servfail, AnswerVerdict::Servfail),
        (R::Refused, AnswerVerdict::Refused),
        (R::OtherRcode, AnswerVerdict::Refused),
        (R::Formerr, AnswerVerdict::Refused),
        (R::Referral, AnswerVerdict::Refused),
        (R::DanglingCname, AnswerVerdict::DanglingCname),
        (R::Nxdomain, AnswerVerdict::CanaryGone),
        (R::Empty, AnswerVerdict::Empty),
    ] {
        assert_eq!(answer(&[resolution(outcome, &[])], 1), AnswerVerdict::InsufficientEvidence, "{outcome} once");
        assert_eq!(answer(&[resolution(outcome, &[])], 3), AnswerVerdict::InsufficientEvidence, "{outcome} over 2 s");
        assert_eq!(answer(&[resolution(outcome, &[])], 4), verdict, "{outcome} over 3 s");
    }
    for outcome in R::ALL.iter().copied().filter(|outcome| outcome.fits(Kind::Resolution) && !outcome.is_reply()) {
        assert_eq!(answer(&[resolution(outcome, &[])], 3), AnswerVerdict::InsufficientEvidence, "{outcome} over 2 s");
        assert_eq!(answer(&[resolution(outcome, &[])], 4), AnswerVerdict::NotObtained, "{outcome}");
    }
}

#[test]
fn nxdomain_only_here_is_denied() {
    let mut elsewhere = resolution(Outcome::Answered, &["104.26.6.10"]);
    if let Fact::Resolution(other) = &mut elsewhere {
        other.resolver = n("doh-cf");
    }
    assert_eq!(answer(&[resolution(Outcome::Nxdomain, &[]), elsewhere], 4), AnswerVerdict::Denied);
}

/// B33, B34: an address that is none for a public name is bad, whoever listens there.
#[test]
fn block_pages_are_named_and_never_contacted() {
    for (addresses, verdict) in [
        (&["0.0.0.0"][..], AnswerVerdict::Filtered),
        (&["104.26.6.10", "0.0.0.0"], AnswerVerdict::Filtered),
        (&["10.10.34.35"], AnswerVerdict::Private),
        (&["127.0.0.1"], AnswerVerdict::Private),
    ] {
        assert_eq!(answer(&[resolution(Outcome::Answered, addresses)], 4), verdict);
        let rig = rounds(&[resolution(Outcome::Answered, addresses)], 4);
        let asks = parallax_decide::wanted::wanted(&rig.topology, &rig.judge());
        assert!(asks.iter().all(|ask| parallax_decide::address::special_purpose(ask.address).is_none()), "{asks:?}");
    }
}

#[test]
fn addresses_by_outcome() {
    use Outcome as C;
    let answered = resolution(Outcome::Answered, &["104.26.6.10"]);
    for outcome in C::ALL.iter().filter(|outcome| outcome.fits(Kind::Connection)) {
        let rig = rounds(&[answered.clone(), connection("104.26.6.10", *outcome)], 5);
        let key = (n(BRANCH), Target::Name(n(CDNJS)), n::<IpAddr>("104.26.6.10"));
        let expected = match (outcome, outcome.group()) {
            (C::TcpOk, _) => AddressVerdict::OkUnproven,
            (_, Group::Works) => AddressVerdict::Ok,
            (C::ConnectionRefused, _) => AddressVerdict::Refused,
            (_, Group::Network) => AddressVerdict::Silent,
            (C::PmtuBlackhole, _) => AddressVerdict::PmtuBlackhole,
            (_, Group::Tls) => AddressVerdict::OpenButDead,
            (C::CertificateExpired | C::CertificateNotYetValid, _) => AddressVerdict::CertTime,
            (_, Group::Certificate) => AddressVerdict::Impostor,
            (_, Group::Http) => AddressVerdict::HttpFailed,
            (C::FamilyUnavailable, _) => AddressVerdict::FamilyUnavailable,
            (_, Group::Refused) => AddressVerdict::RefusedByPolicy,
            (_, Group::Own) => AddressVerdict::Unmeasured,
            (_, Group::Reply | Group::Dns | Group::Record) => unreachable!("no connection ends so"),
        };
        assert_eq!(rig.judge().reach[&key].verdict, expected, "{outcome}");
    }
}

#[test]
fn answers_by_addresses() {
    use Outcome as C;
    let two = resolution(Outcome::Answered, &["104.26.6.10", "104.26.7.10"]);
    let case = |a, b| answer(&[two.clone(), connection("104.26.6.10", a), connection("104.26.7.10", b)], 5);
    assert_eq!(case(C::TlsOk, C::TlsOk), AnswerVerdict::Ok);
    assert_eq!(case(C::TlsOk, C::Silent), AnswerVerdict::PartlyDead);
    assert_eq!(case(C::CertificateName, C::CertificateAuthority), AnswerVerdict::Impostor);
    assert_eq!(case(C::FamilyUnavailable, C::FamilyUnavailable), AnswerVerdict::FamilyUnusable);
    assert_eq!(case(C::Silent, C::ConnectionRefused), AnswerVerdict::InsufficientEvidence, "nobody to compare with");
    assert_eq!(case(C::Silent, C::OwnTrouble), AnswerVerdict::InsufficientEvidence, "own trouble is not the target's");
}

#[test]
fn failures_without_a_control_after_them_do_not_accuse() {
    let mut rig = Rig::new(World::well());
    rig.controls(BRANCH);
    for _ in 0..5 {
        rig.now = rig.now.plus(std::time::Duration::from_secs(1));
        rig.observe(BRANCH, connection("104.26.6.10", Outcome::Silent));
    }
    let key = (n(BRANCH), Target::Name(n(CDNJS)), n::<IpAddr>("104.26.6.10"));
    assert_eq!(rig.judge().reach[&key].verdict, AddressVerdict::Unmeasured, "the uplink may have died meanwhile");
    rig.controls(BRANCH);
    assert_eq!(rig.judge().reach[&key].verdict, AddressVerdict::Silent);
}

#[test]
fn vantages_by_controls() {
    let check = |control: &str, ok| {
        let outcome = if ok { Outcome::TlsOk } else { Outcome::Silent };
        Fact::ControlCheck(ControlCheck { control: n(control), outcome })
    };
    for (a, b, c, negative, verdict) in [
        (true, true, true, false, VantageVerdict::Ok),
        (true, true, false, false, VantageVerdict::Ok),
        (true, false, false, false, VantageVerdict::Degraded),
        (false, false, false, false, VantageVerdict::UplinkDown),
        (true, true, true, true, VantageVerdict::Intercepted),
        (false, false, false, true, VantageVerdict::UplinkDown),
    ] {
        let mut rig = Rig::new(World::well());
        for (control, ok) in [("control-a", a), ("control-b", b), ("control-c", c), ("negative", negative)] {
            rig.observe(BRANCH, check(control, ok));
        }
        assert_eq!(rig.judge().vantages[&n(BRANCH)].verdict, verdict);
    }
    let mut rig = Rig::new(World::well());
    rig.topology.controls.insert(
        n("portal"),
        parallax_decide::topology::Control { kind: parallax_decide::topology::ControlKind::Captive },
    );
    for control in ["control-a", "control-b", "control-c"] {
        rig.observe(BRANCH, check(control, true));
    }
    for (outcome, verdict) in [
        (Outcome::HttpOk, VantageVerdict::Ok),
        (Outcome::HttpStatus, VantageVerdict::Captive),
        (Outcome::HttpRedirect, VantageVerdict::Captive),
        (Outcome::Silent, VantageVerdict::Ok),
    ] {
        rig.observe(BRANCH, Fact::ControlCheck(ControlCheck { control: n("portal"), outcome }));
        assert_eq!(rig.judge().vantages[&n(BRANCH)].verdict, verdict, "{outcome}");
    }
    let mut rig = Rig::new(World::well());
    assert_eq!(rig.judge().vantages[&n(BRANCH)].verdict, VantageVerdict::Unmeasured, "it had no time to speak yet");
    rig.now = rig.now.plus(std::time::Duration::from_secs(13));
    assert_eq!(rig.judge().vantages[&n(BRANCH)].verdict, VantageVerdict::Silent);
    rig.observe(BRANCH, connection("104.26.6.10", Outcome::TlsOk));
    assert_eq!(rig.judge().vantages[&n(BRANCH)].verdict, VantageVerdict::Unmeasured);
}

/// B31: a box that accepts every connection proves nothing by TCP.
#[test]
fn intercepted_vantages_prove_only_by_tls() {
    let mut facts = vec![
        Fact::ControlCheck(ControlCheck { control: n("control-a"), outcome: Outcome::TlsOk }),
        Fact::ControlCheck(ControlCheck { control: n("control-b"), outcome: Outcome::TlsOk }),
        Fact::ControlCheck(ControlCheck { control: n("negative"), outcome: Outcome::TcpOk }),
    ];
    let key = (n(BRANCH), Target::Name(n(CDNJS)), n::<IpAddr>("104.26.6.10"));
    for (outcome, verdict) in [
        (Outcome::TcpOk, AddressVerdict::Unmeasured),
        (Outcome::TlsOk, AddressVerdict::Ok),
        (Outcome::TlsSilent, AddressVerdict::Silent),
    ] {
        facts.insert(0, connection("104.26.6.10", outcome));
        let mut rig = Rig::new(World::well());
        for _ in 0..5 {
            rig.now = rig.now.plus(std::time::Duration::from_secs(1));
            for fact in &facts {
                rig.observe(BRANCH, fact.clone());
            }
        }
        assert_eq!(rig.judge().reach[&key].verdict, verdict, "{outcome}");
        facts.remove(0);
    }
}

#[test]
fn nodes_by_what_the_accusers_agree_on() {
    use Outcome as C;
    for (outcome, verdict) in [
        (C::ConnectionRefused, NodeVerdict::RefusingEverywhere),
        (C::TlsSilent, NodeVerdict::OpenButDead),
        (C::CertificateName, NodeVerdict::ImpostorEverywhere),
        (C::CertificateExpired, NodeVerdict::CertInvalidEverywhere),
        (C::Silent, NodeVerdict::DeadEverywhere),
        (C::OwnTrouble, NodeVerdict::InsufficientEvidence),
        (C::TlsOk, NodeVerdict::Ok),
    ] {
        let mut rig = Rig::new(World::well());
        for _ in 0..5 {
            rig.now = rig.now.plus(std::time::Duration::from_secs(1));
            for vantage in [BRANCH, WAN] {
                let target = Target::Node(n("fi"));
                let fact =
                    Connection { target, address: n(FI), port: 443, outcome, attempts: 4, attempts_connected: 0 };
                rig.observe(vantage, Fact::Connection(fact));
                rig.controls(vantage);
            }
        }
        assert_eq!(rig.judge().nodes[&n("fi")].verdict, verdict, "{outcome}");
    }
}

#[test]
fn stale_results_prove_nothing() {
    let mut rig = Rig::new(World::well());
    rig.run(20);
    assert_eq!(rig.node_word("fi"), "node_ok");
    rig.now = rig.now.plus(std::time::Duration::from_secs(13));
    assert_eq!(rig.node_word("fi"), "insufficient_evidence");
    assert_eq!(rig.answer_word(BRANCH, CDNJS, "live"), "insufficient_evidence");
}

#[test]
fn redelivery_and_stragglers_change_nothing() {
    let mut rig = Rig::new(World::well());
    rig.run(30);
    let before = rig.fold.clone();
    for observation in rig.log.clone() {
        rig.fold.apply(&rig.topology, &observation);
    }
    assert_eq!(rig.fold, before, "the same log again");
    let mut straggler = rig.log[0].clone();
    straggler.id = ObservationId(1_000_000);
    let reports = rig.fold.vantage(&straggler.vantage).unwrap().controls.clone();
    rig.fold.apply(&rig.topology, &straggler);
    assert_eq!(rig.fold.vantage(&straggler.vantage).unwrap().controls, reports, "an old fact under a new key");
}

#[test]
fn a_rebuilt_fold_equals_the_live_one() {
    let mut rig = Rig::new(World::well());
    rig.run(30);
    rig.world.dead.insert(n(FI));
    rig.run(30);
    let mut rebuilt = parallax_decide::fold::Fold::listening_since(parallax_decide::time::Timestamp(1_000_000));
    for observation in &rig.log {
        rebuilt.apply(&rig.topology, observation);
    }
    assert_eq!(rebuilt, rig.fold);
}
