//! The table of endpoints: every combination of what can be seen is decided, and every row is reached.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::rig::*;
use parallax_decide::call::Call;
use parallax_decide::endpoint::Class;
use parallax_decide::finding::{Reason, Subject};
use parallax_decide::names::{ResolverName, VantageName};
use parallax_decide::observation::*;
use parallax_decide::plan::NoPlan;
use parallax_decide::verdict::EndpointVerdict;

fn check(resolver: &str, stage: Stage, outcome: Outcome) -> EndpointCheck {
    let answered = outcome == Outcome::Answered;
    EndpointCheck {
        resolver: n(resolver),
        address: n("104.16.248.249"),
        stage,
        outcome,
        fresh: answered.then_some(Outcome::Answered),
        missing: answered.then_some(Outcome::Nxdomain),
        worked_before: true,
    }
}

/// Rounds of the same checks at the branch, one a second, inside passing controls.
fn rounds(checks: &[EndpointCheck], times: usize) -> Rig {
    let mut rig = Rig::new(World::well());
    more(&mut rig, checks, times);
    rig
}

fn more(rig: &mut Rig, checks: &[EndpointCheck], times: usize) {
    for _ in 0..times {
        rig.now = rig.now.plus(Duration::from_secs(1));
        rig.controls(BRANCH);
        for check in checks {
            rig.observe(BRANCH, Fact::EndpointCheck(check.clone()));
        }
        rig.controls(BRANCH);
    }
}

fn verdict(rig: &Rig, resolver: &str) -> EndpointVerdict {
    let (vantage, resolver): (VantageName, ResolverName) = (n(BRANCH), n(resolver));
    rig.judge().endpoint(&vantage, &resolver).map_or(EndpointVerdict::InsufficientEvidence, |judged| judged.verdict)
}

#[test]
fn each_row_by_the_stage_that_failed() {
    use EndpointVerdict as V;
    use Outcome as O;
    let unsupported =
        |worked_before| EndpointCheck { worked_before, ..check("doh-cf", Stage::Http, O::HttpUnsupported) };
    let dns = |outcome, fresh| EndpointCheck { fresh, ..check("doh-cf", Stage::Dns, outcome) };
    let rewrites = EndpointCheck { missing: Some(O::Answered), ..check("doh-cf", Stage::Dns, O::Answered) };
    for (one, expected) in [
        (rewrites, V::Rewrites),
        (check("doh-cf", Stage::Http, O::HttpThrottled), V::Throttled),
        (unsupported(false), V::Misconfigured),
        (unsupported(true), V::HttpFailed),
        (check("doh-cf", Stage::Bootstrap, O::DnsSilent), V::InsufficientEvidence),
        (check("doh-cf", Stage::Tcp, O::Silent), V::NoPath),
        (check("doh-cf", Stage::Tcp, O::HostUnreachable), V::NoPath),
        (check("doh-cf", Stage::Tcp, O::NoRoute), V::NoPath),
        (check("doh-cf", Stage::Tcp, O::ConnectionRefused), V::Refused),
        (check("doh-cf", Stage::Tls, O::PmtuBlackhole), V::PmtuBlackhole),
        (check("doh-cf", Stage::Tls, O::TlsSilent), V::TlsFailed),
        (check("doh-cf", Stage::Tls, O::CertificateExpired), V::TlsFailed),
        (check("doh-cf", Stage::Http, O::HttpStatus), V::HttpFailed),
        (check("doh-cf", Stage::Http, O::HttpSilent), V::Silent),
        (check("doh-cf", Stage::Dns, O::DnsSilent), V::Silent),
        (dns(O::Answered, Some(O::Servfail)), V::ServingStale),
        (dns(O::Servfail, Some(O::Servfail)), V::AliveNotResolving),
        (dns(O::Empty, None), V::AliveNotResolving),
        (dns(O::Servfail, Some(O::Answered)), V::InsufficientEvidence),
        (dns(O::Nxdomain, None), V::InsufficientEvidence),
        (check("doh-cf", Stage::Tcp, O::OwnTrouble), V::InsufficientEvidence),
    ] {
        let rig = rounds(std::slice::from_ref(&one), 3);
        assert_eq!(verdict(&rig, "doh-cf"), V::InsufficientEvidence, "{one:?} over 2 s");
        let rig = rounds(std::slice::from_ref(&one), 4);
        assert_eq!(verdict(&rig, "doh-cf"), expected, "{one:?}");
    }
    let well = check("doh-cf", Stage::Dns, O::Answered);
    assert_eq!(verdict(&rounds(std::slice::from_ref(&well), 1), "doh-cf"), V::Ok, "one success is enough");
    let unasked = EndpointCheck { fresh: None, missing: None, ..well };
    assert_eq!(verdict(&rounds(&[unasked], 1), "doh-cf"), V::Ok, "without a freshness zone nothing stale is seen");
}

/// Every stage with every outcome, fresh label, missing name and history: decided, and by the class that it must be.
#[test]
fn every_combination_is_decided_and_every_row_is_reached() {
    let outcomes: Vec<Outcome> = Outcome::ALL.iter().copied().filter(|o| o.fits(Kind::EndpointCheck)).collect();
    let others = [None, Some(Outcome::Answered), Some(Outcome::Servfail), Some(Outcome::Nxdomain)];
    let (mut reached, mut count) = (BTreeSet::new(), 0);
    for stage in Stage::ALL {
        for outcome in &outcomes {
            for (fresh, missing) in others.iter().flat_map(|fresh| others.iter().map(move |missing| (*fresh, *missing)))
            {
                for worked_before in [false, true] {
                    let one = EndpointCheck { fresh, missing, worked_before, ..check("doh-cf", *stage, *outcome) };
                    let mut rig = Rig::new(World::well());
                    rig.controls(BRANCH);
                    for _ in 0..4 {
                        rig.observe(BRANCH, Fact::EndpointCheck(one.clone()));
                        rig.now = rig.now.plus(Duration::from_secs(1));
                    }
                    rig.observe(BRANCH, Fact::EndpointCheck(one.clone()));
                    rig.controls(BRANCH);
                    let verdict = verdict(&rig, "doh-cf");
                    let class = Class::of(&one);
                    assert_eq!(verdict == EndpointVerdict::Ok, class == Some(Class::Works), "{one:?}: {verdict}");
                    assert!(!verdict.dead() || class == Some(Class::Fails), "{one:?}: {verdict}");
                    reached.insert(verdict);
                    count += 1;
                }
            }
        }
    }
    let without = BTreeSet::from([EndpointVerdict::StaleCacheMasking]);
    let all: BTreeSet<EndpointVerdict> = EndpointVerdict::ALL.iter().copied().collect();
    assert_eq!(&all - &reached, without, "{count} combinations");
}

#[test]
fn a_place_that_may_not_accuse_says_nothing_of_endpoints() {
    let mut rig = Rig::new(World::well());
    rig.world.island.insert(BRANCH);
    more(&mut rig, &[check("doh-cf", Stage::Tcp, Outcome::Silent)], 5);
    assert_eq!(verdict(&rig, "doh-cf"), EndpointVerdict::InsufficientEvidence);
    assert!(!rig.judge().endpoints.is_empty());
}

/// B24, and the field script's bug: the live resolver answers from its cache while the endpoint behind it is dead.
#[test]
fn a_cache_that_hides_a_dead_endpoint_is_named_and_the_next_endpoint_offered() {
    let dead = check("doh-cf", Stage::Tcp, Outcome::Silent);
    let next = check("doh-family", Stage::Dns, Outcome::Answered);
    let mut rig = rounds(&[dead.clone(), next.clone()], 4);
    assert_eq!(verdict(&rig, "doh-cf"), EndpointVerdict::NoPath, "nobody asked the live resolver");
    let live = Resolution {
        name: n(CDNJS),
        resolver: n("live"),
        family: Family::V4,
        outcome: Outcome::Answered,
        addresses: vec![n("104.26.6.10")],
        ttl_s: 5,
    };
    rig.observe(BRANCH, Fact::Resolution(live));
    rig.observe(DE, Fact::EndpointCheck(check("doh-cf", Stage::Dns, Outcome::Answered)));
    rig.controls(DE);
    assert_eq!(verdict(&rig, "doh-cf"), EndpointVerdict::StaleCacheMasking);
    rig.decide();
    let subject = Subject::Endpoint { resolver: n("doh-cf") };
    let finding = rig.findings.iter().find(|finding| finding.subject == subject).unwrap();
    assert_eq!(finding.calls, [Call::PathEvidence { vantage: n(BRANCH) }].into(), "{finding:?}");
    let Reason::Endpoint { places, reached_at, .. } = &finding.reason else { panic!("{finding:?}") };
    assert_eq!((places.len(), reached_at.as_slice()), (1, [n::<VantageName>(DE)].as_slice()));
    let offer = NoPlan::SwitchByHand { vantage: n(BRANCH), to: n("doh-family"), then_flush: true };
    assert_eq!(rig.holds.get(BRANCH), Some(&offer), "{:?}", rig.holds);
    assert!(rig.plans.is_empty(), "no driver switches");
    // It works again: the incident closes.
    more(&mut rig, &[check("doh-cf", Stage::Dns, Outcome::Answered), next], 8);
    rig.decide();
    rig.now = rig.now.plus(Duration::from_secs(11));
    more(&mut rig, &[check("doh-cf", Stage::Dns, Outcome::Answered)], 1);
    rig.decide();
    assert!(!rig.book.open().any(|open| open.subject == subject), "{:?}", rig.history);
}

/// A live resolver that gives no answer: what is behind it decides whose trouble that is.
#[test]
fn a_live_resolver_that_hangs_is_told_from_a_dead_upstream() {
    let silent = Resolution {
        name: n(CDNJS),
        resolver: n("live"),
        family: Family::V4,
        outcome: Outcome::DnsSilent,
        addresses: Vec::new(),
        ttl_s: 0,
    };
    for (stage, outcome, upstream, expected) in [
        (Stage::Dns, Outcome::Answered, true, vec!["live_resolver_stuck"]),
        (Stage::Tcp, Outcome::Silent, true, vec!["endpoint_no_path"]),
        (Stage::Tcp, Outcome::Silent, false, vec!["answer_not_obtained"]),
    ] {
        let mut rig = Rig::new(World::well());
        if !upstream {
            rig.topology.vantages.get_mut(&n(BRANCH)).unwrap().upstream = None;
        }
        for _ in 0..5 {
            more(&mut rig, &[check("doh-cf", stage, outcome)], 1);
            rig.observe(BRANCH, Fact::Resolution(silent.clone()));
        }
        rig.decide();
        let kinds: Vec<&str> = rig.findings.iter().map(|finding| finding.kind.as_str()).collect();
        assert_eq!(kinds, expected);
        assert!(rig.plans.is_empty());
    }
}
