//! Hostile and clumsy batches, without a network.

use parallax_decide::observation::{Fact, Kind, Outcome, Stage};
use parallax_proto::v1;
use uuid::Uuid;

use super::{Checked, Context, batch, boot_id, words};
use crate::store::log::NewObservation;
use crate::store::vantage::VantageId;
use crate::testing;

const BOOT: &str = "000000000000000000000000000b0071";

fn check(observations: Vec<v1::Observation>) -> Checked {
    let config = testing::example();
    let boot = boot_id(BOOT).unwrap();
    let context = Context { vantage: VantageId(1), boot, topology: &config.topology, life: None };
    batch(
        &v1::Batch { boot_id: BOOT.to_owned(), observations, lane: v1::Lane::Urgent.into(), ..v1::Batch::default() },
        context,
    )
    .unwrap()
}

fn taken(fact: v1::observation::Fact) -> NewObservation {
    check(vec![observed(fact)]).items.remove(0).content.unwrap()
}

fn observed(fact: v1::observation::Fact) -> v1::Observation {
    let purpose = v1::Purpose::Scheduled.into();
    v1::Observation { sequence: 1, age_ms: 10, purpose, task_id: 0, duration_us: 1000, fact: Some(fact) }
}

fn resolution() -> v1::Resolution {
    v1::Resolution {
        name: "example.com".to_owned(),
        resolver: "live".to_owned(),
        family: v1::Family::V4.into(),
        outcome: v1::Outcome::Answered.into(),
        addresses: vec![vec![8, 6, 112, 0]],
        ttl_s: 300,
        ..v1::Resolution::default()
    }
}

fn connection() -> v1::Connection {
    v1::Connection {
        target: Some(v1::connection::Target::Node("fi".to_owned())),
        address: vec![95, 216, 10, 10],
        port: 443,
        outcome: v1::Outcome::TlsOk.into(),
        attempts: 1,
        attempts_connected: 1,
        tcp_us: 900,
        ..v1::Connection::default()
    }
}

fn endpoint_check() -> v1::EndpointCheck {
    v1::EndpointCheck {
        resolver: "doh-cf".to_owned(),
        address: vec![1, 1, 1, 1],
        stage: v1::Stage::Http.into(),
        outcome: v1::Outcome::HttpStatus.into(),
        tcp_us: 1,
        tls_us: 2,
        http_us: 3,
        http_status: 503,
        ..v1::EndpointCheck::default()
    }
}

fn control_check() -> v1::ControlCheck {
    v1::ControlCheck {
        control: "control-cf".to_owned(),
        outcome: v1::Outcome::TlsOk.into(),
        address: vec![1, 1, 1, 1],
        failures: 2,
        checks: 180,
        clock_offset_ms: Some(-12),
        http_status: 0,
        tcp_us: 10,
        tls_us: 20,
    }
}

fn path() -> v1::Path {
    let hop = |ttl, address: &[u8]| v1::Hop { ttl, address: address.to_vec(), rtt_us: 700 };
    v1::Path {
        address: vec![8, 6, 112, 0],
        port: 443,
        outcome: v1::Outcome::PathLost.into(),
        hops: vec![hop(1, &[192, 0, 2, 1]), hop(2, &[192, 0, 2, 2]), hop(3, &[])],
        path_mtu: 1400,
    }
}

fn loss() -> v1::Loss {
    v1::Loss {
        reason: v1::LossReason::Full.into(),
        count: 3,
        first_age_ms: 9000,
        last_age_ms: 4000,
        lane: v1::Lane::Routine.into(),
        first_sequence: 5,
        last_sequence: 9,
        boot_id: BOOT.to_owned(),
    }
}

fn missed() -> v1::Missed {
    v1::Missed { reason: v1::MissedReason::Overrun.into(), what: "canaries".to_owned(), count: 2 }
}

#[test]
fn good_facts_pass_with_their_particulars() {
    let mut asked = resolution();
    (asked.ede_plus_one, asked.authentic_data, asked.ttl_s) = (1, true, u32::MAX);
    let found = taken(v1::observation::Fact::Resolution(asked));
    assert_eq!(found.detail, serde_json::json!({ "ede": 0, "authentic_data": true }));
    let found = taken(v1::observation::Fact::EndpointCheck(endpoint_check()));
    assert_eq!(found.detail, serde_json::json!({ "tcp_us": 1, "tls_us": 2, "http_us": 3, "http_status": 503 }));
    let found = taken(v1::observation::Fact::Connection(connection()));
    assert_eq!(found.detail, serde_json::json!({ "tcp_us": 900 }));
    let found = taken(v1::observation::Fact::ControlCheck(control_check()));
    let kept = serde_json::json!({ "address": "1.1.1.1", "failures": 2, "checks": 180, "clock_offset_ms": -12,
        "tcp_us": 10, "tls_us": 20 });
    assert_eq!(found.detail, kept);
}

#[test]
fn all_particulars_of_a_reply_are_kept_under_the_names_of_the_wire() {
    let mut asked = resolution();
    asked.server = vec![192, 0, 2, 53];
    asked.validation = v1::Validation::Secure.into();
    asked.odd_replies = vec![v1::OddReply {
        kind: v1::OddKind::Different.into(),
        after_us: 20_000,
        addresses: vec![vec![198, 51, 100, 66]],
    }];
    asked.reply = Some(v1::Reply {
        chain: vec!["a.example".to_owned(), "b\0.example".to_owned()],
        ttls_s: vec![300],
        rcode: 0,
        flags: 0x8180,
        nsid: vec![0xab, 0x01],
        size: 56,
        trailing: 40,
        transport: v1::Transport::Http2.into(),
        truncated: true,
        without_edns: true,
        reconnected: true,
        negative_ttl_plus_one: 1,
        first_bytes: vec![0xff],
    });
    let found = taken(v1::observation::Fact::Resolution(asked));
    let kept = serde_json::json!({
        "server": "192.0.2.53",
        "validation": "secure",
        "odd_replies": [{ "kind": "different", "after_us": 20_000, "addresses": ["198.51.100.66"] }],
        "reply": {
            "chain": ["a.example", "b\u{fffd}.example"], "ttls_s": [300], "rcode": 0, "flags": 0x8180, "nsid": "ab01",
            "size": 56, "trailing": 40, "transport": "http2", "truncated": true, "without_edns": true,
            "reconnected": true, "negative_ttl": 0, "first_bytes": "ff",
        },
    });
    assert_eq!(found.detail, kept);
}

/// RIG6 of B04: an old or broken agent cannot store nonsense.
#[test]
fn b04_a_blank_outcome_and_a_result_that_took_no_time_are_refused() {
    let mut blank = observed(v1::observation::Fact::Resolution(v1::Resolution { outcome: 0, ..resolution() }));
    blank.duration_us = 0;
    let checked = check(vec![blank]);
    let refused = checked.items[0].content.as_ref().unwrap_err();
    assert_eq!(refused.reason, "unknown_word");
    assert!(refused.detail.contains("outcome 0"), "{}", refused.detail);
    let mut instant = observed(v1::observation::Fact::Resolution(resolution()));
    instant.duration_us = 0;
    let checked = check(vec![instant]);
    assert_eq!(checked.items[0].content.as_ref().unwrap_err().reason, "contradiction");
}

/// B05: an error code with addresses is a failure, and its addresses are compared with nothing.
#[test]
fn b05_addresses_beside_an_error_are_evidence_only() {
    let mut asked = resolution();
    asked.outcome = v1::Outcome::Servfail.into();
    asked.addresses = vec![vec![203, 0, 113, 10], vec![203, 0, 113, 11]];
    let found = taken(v1::observation::Fact::Resolution(asked));
    assert_eq!(found.detail, serde_json::json!({ "addresses_not_used": ["203.0.113.10", "203.0.113.11"] }));
    let Fact::Resolution(fact) = found.fact else { panic!("another kind") };
    assert!(fact.addresses.is_empty());
    assert_eq!(fact.outcome, Outcome::Servfail);
}

#[test]
fn a_path_a_loss_and_missed_rounds_are_taken_with_their_particulars() {
    let found = taken(v1::observation::Fact::Path(path()));
    let Fact::Path(fact) = &found.fact else { panic!("another kind") };
    assert_eq!(fact.last_hop, Some("192.0.2.2".parse().unwrap()));
    assert_eq!(found.detail["hops"][2], serde_json::json!({ "ttl": 3, "rtt_us": 700 }));
    let found = taken(v1::observation::Fact::Loss(loss()));
    assert_eq!(found.detail["first_sequence"], 5);
    assert!(found.lost_ago.is_some_and(|(first, last)| first.as_millis() == 9000 && last.as_millis() == 4000));
    // The ages of a batch of an earlier start are by a clock that is gone.
    let config = testing::example();
    let context = Context { vantage: VantageId(1), boot: Uuid::from_u128(7), topology: &config.topology, life: None };
    let observations = vec![observed(v1::observation::Fact::Loss(loss()))];
    let earlier =
        v1::Batch { boot_id: BOOT.to_owned(), observations, lane: v1::Lane::Urgent.into(), ..v1::Batch::default() };
    let checked = batch(&earlier, context).unwrap();
    let content = checked.items[0].content.as_ref().unwrap();
    assert_eq!((content.lost_ago, content.of_earlier_start), (None, true));
    // Those of an earlier part of an outage are by the clock of the process that said hello.
    let checked = batch(&v1::Batch { ages_hold: true, ..earlier }, context).unwrap();
    let content = checked.items[0].content.as_ref().unwrap();
    assert!(content.lost_ago.is_some() && !content.of_earlier_start);
    // Damage may have taken the numbers as well.
    let damaged =
        v1::Loss { reason: v1::LossReason::Damaged.into(), first_sequence: 0, last_sequence: 0, count: 0, ..loss() };
    assert_eq!(taken(v1::observation::Fact::Loss(damaged)).lost_ago, None);
    for what in ["canaries", "example.com", "fi.montana.quest", "fi", "control-cf", "doh-cf"] {
        let found = taken(v1::observation::Fact::Missed(v1::Missed { what: what.to_owned(), ..missed() }));
        assert_eq!(found.detail, serde_json::json!({ "reason": "overrun", "what": what, "count": 2 }));
    }
}

#[test]
fn a_batch_of_no_known_lane_is_refused_as_a_whole() {
    let config = testing::example();
    let context =
        Context { vantage: VantageId(1), boot: boot_id(BOOT).unwrap(), topology: &config.topology, life: None };
    let observations = vec![observed(v1::observation::Fact::Connection(connection()))];
    for lane in [0, 3] {
        let sent =
            v1::Batch { boot_id: BOOT.to_owned(), observations: observations.clone(), lane, ..v1::Batch::default() };
        assert_eq!(batch(&sent, context).unwrap_err().0, "unknown_word");
    }
}

/// Each kind takes the words that fit it, and no other.
#[test]
fn an_outcome_of_another_kind_is_refused() {
    for number in 1..=Outcome::ALL.len() as i32 {
        let outcome = words::outcome(number).unwrap();
        for kind in Kind::ALL {
            let (mut one, mut two, mut three, mut four, mut five) =
                (resolution(), connection(), endpoint_check(), control_check(), path());
            (one.outcome, two.outcome, three.outcome, four.outcome, five.outcome) =
                (number, number, number, number, number);
            (two.small_segments, three.stage) = (v1::Outcome::TlsOk.into(), v1::Stage::Dns.into());
            let fact = match kind {
                Kind::Resolution => v1::observation::Fact::Resolution(one),
                Kind::Connection => v1::observation::Fact::Connection(two),
                Kind::EndpointCheck => v1::observation::Fact::EndpointCheck(three),
                Kind::ControlCheck => v1::observation::Fact::ControlCheck(four),
                Kind::Path => v1::observation::Fact::Path(five),
                Kind::Loss | Kind::Missed => continue,
            };
            let checked = check(vec![observed(fact)]);
            match &checked.items[0].content {
                Ok(_) => assert!(outcome.fits(*kind), "{outcome} of a {kind}"),
                Err(refused) => {
                    assert!(!outcome.fits(*kind), "{outcome} of a {kind}: {}", refused.detail);
                    assert_eq!(refused.reason, "misfit");
                }
            }
        }
    }
}

#[test]
fn each_bad_field_has_its_reason() {
    let r = |change: fn(&mut v1::Resolution)| {
        let mut one = resolution();
        change(&mut one);
        observed(v1::observation::Fact::Resolution(one))
    };
    let c = |change: fn(&mut v1::Connection)| {
        let mut one = connection();
        change(&mut one);
        observed(v1::observation::Fact::Connection(one))
    };
    let e = |change: fn(&mut v1::EndpointCheck)| {
        let mut one = endpoint_check();
        change(&mut one);
        observed(v1::observation::Fact::EndpointCheck(one))
    };
    let k = |change: fn(&mut v1::ControlCheck)| {
        let mut one = control_check();
        change(&mut one);
        observed(v1::observation::Fact::ControlCheck(one))
    };
    let p = |change: fn(&mut v1::Path)| {
        let mut one = path();
        change(&mut one);
        observed(v1::observation::Fact::Path(one))
    };
    let l = |change: fn(&mut v1::Loss)| {
        let mut one = loss();
        change(&mut one);
        observed(v1::observation::Fact::Loss(one))
    };
    let m = |change: fn(&mut v1::Missed)| {
        let mut one = missed();
        change(&mut one);
        observed(v1::observation::Fact::Missed(one))
    };
    // Changes one field of a reply.
    let y = |change: fn(&mut v1::Reply)| {
        let mut one = v1::Reply::default();
        change(&mut one);
        observed(v1::observation::Fact::Resolution(v1::Resolution { reply: Some(one), ..resolution() }))
    };
    let o = |change: fn(&mut v1::Observation)| {
        let mut one = observed(v1::observation::Fact::Connection(connection()));
        change(&mut one);
        one
    };
    let cases = [
        (r(|one| one.name = "other.example".to_owned()), "not_assigned"),
        (r(|one| one.name = "x".repeat(300)), "too_large"),
        (r(|one| one.name = "exa\0mple.com".to_owned()), "bad_name"),
        (r(|one| one.resolver = "nobody".to_owned()), "not_assigned"),
        (r(|one| one.family = 0), "unknown_word"),
        (r(|one| one.outcome = 99), "unknown_word"),
        (r(|one| one.outcome = v1::Outcome::TlsOk.into()), "misfit"),
        (r(|one| one.server = vec![1, 2, 3]), "bad_address"),
        (r(|one| one.validation = 9), "unknown_word"),
        (r(|one| one.odd_replies = vec![v1::OddReply::default()]), "unknown_word"),
        (r(|one| one.odd_replies = vec![v1::OddReply { kind: 1, ..v1::OddReply::default() }; 5]), "too_large"),
        (
            r(|one| {
                let addresses = vec![vec![1, 2, 3, 4]; 5];
                one.odd_replies = vec![v1::OddReply { kind: 1, after_us: 1, addresses }];
            }),
            "too_large",
        ),
        (y(|one| one.chain = vec!["a".to_owned(); 9]), "too_large"),
        (y(|one| one.chain = vec!["a".repeat(256)]), "too_large"),
        (y(|one| one.ttls_s = vec![1; 17]), "too_large"),
        (y(|one| one.nsid = vec![0; 65]), "too_large"),
        (y(|one| one.first_bytes = vec![0; 33]), "too_large"),
        (y(|one| one.rcode = 2), "contradiction"),
        (y(|one| one.flags = 65_536), "out_of_range"),
        (y(|one| one.transport = 77), "unknown_word"),
        (r(|one| one.addresses.clear()), "contradiction"),
        (r(|one| one.addresses = vec![vec![0; 16]]), "contradiction"),
        (r(|one| one.addresses = vec![vec![1, 2, 3]]), "bad_address"),
        (r(|one| one.addresses = vec![vec![1, 2, 3, 4]; 17]), "too_large"),
        (r(|one| one.ede_plus_one = 70_000), "out_of_range"),
        (c(|one| one.target = None), "no_target"),
        (c(|one| one.target = Some(v1::connection::Target::Node("jp".to_owned()))), "not_assigned"),
        (c(|one| one.target = Some(v1::connection::Target::Name(String::new()))), "bad_name"),
        (c(|one| one.address = vec![]), "bad_address"),
        (c(|one| one.port = 0), "out_of_range"),
        (c(|one| one.port = 65_536), "out_of_range"),
        (c(|one| one.outcome = 0), "unknown_word"),
        (c(|one| one.attempts = 17), "too_large"),
        (c(|one| one.attempt = vec![v1::Attempt { outcome: 20, ..v1::Attempt::default() }; 17]), "too_large"),
        (c(|one| one.attempt = vec![v1::Attempt::default()]), "unknown_word"),
        (c(|one| one.attempt = vec![v1::Attempt { outcome: 2, ..v1::Attempt::default() }]), "misfit"),
        (c(|one| one.certificate_sha256 = vec![0; 31]), "out_of_range"),
        (c(|one| one.small_segments = 99), "unknown_word"),
        (c(|one| one.small_segments = v1::Outcome::Servfail.into()), "misfit"),
        (c(|one| one.outcome = v1::Outcome::PmtuBlackhole.into()), "contradiction"),
        (c(|one| one.http_status = 99), "out_of_range"),
        (c(|one| one.tls_us = u64::MAX), "out_of_range"),
        (c(|one| one.attempts_connected = 2), "contradiction"),
        (c(|one| one.attempts_connected = 0), "contradiction"),
        (e(|one| one.stage = -1), "unknown_word"),
        (e(|one| one.outcome = 0), "unknown_word"),
        (e(|one| one.resolver = "doh cf".to_owned()), "bad_name"),
        (e(|one| one.address = vec![]), "contradiction"),
        (e(|one| one.outcome = v1::Outcome::Answered.into()), "contradiction"),
        (e(|one| one.fresh = v1::Outcome::TlsOk.into()), "misfit"),
        (e(|one| one.missing = 99), "unknown_word"),
        (e(|one| one.remark = "x".repeat(256)), "too_large"),
        (e(|one| one.certificate_sha256 = vec![0; 33]), "out_of_range"),
        (k(|one| one.control = "nobody".to_owned()), "not_assigned"),
        (k(|one| one.failures = 181), "contradiction"),
        (k(|one| one.clock_offset_ms = Some(i64::MIN)), "out_of_range"),
        (k(|one| one.address = vec![1]), "bad_address"),
        (p(|one| one.hops = vec![one.hops[0].clone(); 31]), "too_large"),
        (p(|one| one.hops[0].ttl = 0), "out_of_range"),
        (p(|one| one.hops[0].ttl = 256), "out_of_range"),
        (p(|one| one.hops[0].address = vec![1]), "bad_address"),
        (p(|one| one.path_mtu = 70_000), "out_of_range"),
        (p(|one| one.address = vec![]), "bad_address"),
        (l(|one| one.reason = 0), "unknown_word"),
        (l(|one| one.lane = 0), "unknown_word"),
        (l(|one| one.boot_id = "x".to_owned()), "bad_boot_id"),
        (l(|one| one.count = 0), "contradiction"),
        (l(|one| one.count = 6), "contradiction"),
        (l(|one| one.first_sequence = 0), "contradiction"),
        (l(|one| one.first_sequence = 10), "contradiction"),
        (l(|one| one.last_sequence = u64::MAX), "out_of_range"),
        (l(|one| one.last_age_ms = 10_000), "contradiction"),
        (m(|one| one.reason = 0), "unknown_word"),
        (m(|one| one.count = 0), "out_of_range"),
        (m(|one| one.count = u64::MAX), "out_of_range"),
        (m(|one| one.what = "somebody".to_owned()), "not_assigned"),
        (m(|one| one.what = "x".repeat(300)), "not_assigned"),
        (o(|one| one.purpose = 0), "unknown_word"),
        (o(|one| one.duration_us = u64::MAX), "out_of_range"),
        (o(|one| one.task_id = u64::MAX), "out_of_range"),
        (o(|one| one.fact = None), "no_fact"),
    ];
    for (index, (wire, reason)) in cases.into_iter().enumerate() {
        let checked = check(vec![wire]);
        let refused = checked.items[0].content.as_ref().unwrap_err();
        assert_eq!(refused.reason, reason, "case {index}: {}", refused.detail);
    }
}

#[test]
fn numbers_that_do_not_rise_are_stray_and_the_others_stay() {
    let numbered = |sequence| v1::Observation { sequence, ..observed(v1::observation::Fact::Connection(connection())) };
    let checked = check([3, 3, 0, 2, 7, u64::MAX].map(numbered).to_vec());
    assert_eq!(checked.items.iter().map(|item| item.sequence).collect::<Vec<_>>(), [3, 7]);
    assert_eq!(checked.stray.iter().map(|(sequence, _)| *sequence).collect::<Vec<_>>(), [3, 0, 2, u64::MAX]);
}

#[test]
fn a_number_no_agent_can_have_reached_is_refused() {
    let numbered = |sequence| v1::Observation { sequence, ..observed(v1::observation::Fact::Connection(connection())) };
    let checked = check([1, 1 << 40, (1 << 40) + 1, i64::MAX as u64].map(numbered).to_vec());
    assert_eq!(checked.items.iter().map(|item| item.sequence).collect::<Vec<_>>(), [1, 1 << 40]);
    assert_eq!(checked.stray.iter().map(|(_, refused)| refused.reason).collect::<Vec<_>>(), ["out_of_range"; 2]);
}

#[test]
fn a_boot_id_is_32_hex_digits() {
    assert_eq!(boot_id(BOOT).unwrap(), Uuid::from_u128(0xb0071));
    for text in ["", "b0071", &"g".repeat(32), &"0".repeat(32), "00000000-0000-0000-0000-0000000b0071"] {
        assert!(boot_id(text).is_err(), "{text}");
    }
}

/// Number and word of an outcome mean the same on both sides.
#[test]
fn every_number_of_the_wire_is_the_word_of_its_name() {
    let name = |full: &str, prefix: &str| full.strip_prefix(prefix).unwrap().to_ascii_lowercase();
    for number in 1..=Outcome::ALL.len() as i32 {
        let wire = v1::Outcome::try_from(number).unwrap();
        assert_eq!(words::outcome(number).unwrap().word(), name(wire.as_str_name(), "OUTCOME_"));
    }
    assert!(v1::Outcome::try_from(Outcome::ALL.len() as i32 + 1).is_err());
    for number in 1..=Stage::ALL.len() as i32 {
        let wire = v1::Stage::try_from(number).unwrap();
        assert_eq!(words::stage(number).unwrap().word(), name(wire.as_str_name(), "STAGE_"));
    }
    for number in 1..=4 {
        let loss = v1::LossReason::try_from(number).unwrap();
        assert_eq!(words::loss_reason(number).unwrap().word(), name(loss.as_str_name(), "LOSS_REASON_"));
        let validation = v1::Validation::try_from(number).unwrap();
        assert_eq!(words::validation(number).unwrap(), Some(&*name(validation.as_str_name(), "VALIDATION_")));
    }
    for number in 1..=5 {
        let missed = v1::MissedReason::try_from(number).unwrap();
        assert_eq!(words::missed_reason(number).unwrap().word(), name(missed.as_str_name(), "MISSED_REASON_"));
        let transport = v1::Transport::try_from(number).unwrap();
        assert_eq!(words::transport(number).unwrap(), Some(&*name(transport.as_str_name(), "TRANSPORT_")));
    }
    for number in 1..=7 {
        let odd = v1::OddKind::try_from(number).unwrap();
        assert_eq!(words::odd_kind(number).unwrap(), name(odd.as_str_name(), "ODD_KIND_"));
    }
}
