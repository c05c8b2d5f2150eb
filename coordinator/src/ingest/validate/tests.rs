//! Hostile and clumsy batches, without a network.

use parallax_decide::observation::{ConnectionOutcome, ResolutionOutcome, Stage, StageOutcome};
use parallax_proto::v1;
use uuid::Uuid;

use super::{Checked, Context, batch, boot_id, words};
use crate::store::vantage::VantageId;
use crate::testing;

const BOOT: &str = "000000000000000000000000000b0071";

fn check(observations: Vec<v1::Observation>) -> Checked {
    let config = testing::example();
    let boot = boot_id(BOOT).unwrap();
    let context = Context { vantage: VantageId(1), boot, topology: &config.topology };
    batch(&v1::Batch { boot_id: BOOT.to_owned(), observations }, context).unwrap()
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
        outcome: v1::ResolutionOutcome::Answered.into(),
        addresses: vec![vec![8, 6, 112, 0]],
        ttl_s: 300,
        ede_plus_one: 0,
        authentic_data: false,
    }
}

fn connection() -> v1::Connection {
    v1::Connection {
        target: Some(v1::connection::Target::Node("fi".to_owned())),
        address: vec![95, 216, 10, 10],
        port: 443,
        outcome: v1::ConnectionOutcome::TlsOk.into(),
        attempts: 1,
        attempts_connected: 1,
        tcp_us: 900,
        tls_us: 0,
    }
}

fn endpoint_check() -> v1::EndpointCheck {
    v1::EndpointCheck {
        resolver: "doh-cf".to_owned(),
        address: vec![1, 1, 1, 1],
        stage: v1::Stage::Http.into(),
        outcome: v1::StageOutcome::Status.into(),
        tcp_us: 1,
        tls_us: 2,
        http_us: 3,
        http_status: 503,
    }
}

#[test]
fn good_facts_pass_with_their_particulars() {
    let mut asked = resolution();
    (asked.ede_plus_one, asked.authentic_data, asked.ttl_s) = (1, true, u32::MAX);
    let checked = check(vec![observed(v1::observation::Fact::Resolution(asked))]);
    let taken = checked.items[0].content.as_ref().unwrap();
    assert_eq!(taken.detail, serde_json::json!({ "ede": 0, "ad": true }));
    let checked = check(vec![observed(v1::observation::Fact::EndpointCheck(endpoint_check()))]);
    let taken = checked.items[0].content.as_ref().unwrap();
    assert_eq!(taken.detail, serde_json::json!({ "tcp_us": 1, "tls_us": 2, "http_us": 3, "http_status": 503 }));
    let checked = check(vec![observed(v1::observation::Fact::Connection(connection()))]);
    assert_eq!(checked.items[0].content.as_ref().unwrap().detail, serde_json::json!({ "tcp_us": 900 }));
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
        (r(|one| one.outcome = v1::ResolutionOutcome::Timeout.into()), "contradiction"),
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
        (c(|one| one.attempts = 1000), "contradiction"),
        (c(|one| one.attempts_connected = 2), "contradiction"),
        (c(|one| one.attempts_connected = 0), "contradiction"),
        (e(|one| one.stage = -1), "unknown_word"),
        (e(|one| one.outcome = 0), "unknown_word"),
        (e(|one| one.resolver = "doh cf".to_owned()), "bad_name"),
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
    for number in 1..=ResolutionOutcome::ALL.len() as i32 {
        let wire = v1::ResolutionOutcome::try_from(number).unwrap();
        let word = words::resolution_outcome(number).unwrap().word();
        assert_eq!(word, name(wire.as_str_name(), "RESOLUTION_OUTCOME_"));
    }
    for number in 1..=ConnectionOutcome::ALL.len() as i32 {
        let wire = v1::ConnectionOutcome::try_from(number).unwrap();
        assert_eq!(words::connection_outcome(number).unwrap().word(), name(wire.as_str_name(), "CONNECTION_OUTCOME_"));
    }
    for number in 1..=Stage::ALL.len() as i32 {
        let wire = v1::Stage::try_from(number).unwrap();
        assert_eq!(words::stage(number).unwrap().word(), name(wire.as_str_name(), "STAGE_"));
    }
    for number in 1..=StageOutcome::ALL.len() as i32 {
        let wire = v1::StageOutcome::try_from(number).unwrap();
        assert_eq!(words::stage_outcome(number).unwrap().word(), name(wire.as_str_name(), "STAGE_OUTCOME_"));
    }
}
