//! What is encoded, and what is added when it is sent.

use std::time::Duration;

use parallax_decide::observation::ControlCheck;

use super::*;
use crate::measured::ControlParticulars;

fn stored(sequence: u64, ended_ms: u64, bytes: Vec<u8>) -> Row {
    Row { sequence, ended_ms, good: true, content: Content::Observation(bytes) }
}

#[test]
fn a_loss_is_sent_with_ages_as_of_now() {
    let lost = Loss {
        reason: LossReason::Old,
        boot: "000000000000000000000000000000ab".parse().unwrap(),
        lane: Lane::Routine,
        count: 7,
        good: 6,
        sequences: (3, 9),
        ended_ms: (-500, 1000),
    };
    let sent = row(&Row { sequence: 4, ended_ms: 2000, good: false, content: Content::Loss(lost) }, 2500).unwrap();
    assert_eq!((sent.sequence, sent.age_ms, sent.purpose()), (4, 500, v1::Purpose::Scheduled));
    let Some(v1::observation::Fact::Loss(loss)) = sent.fact else { panic!("{sent:?}") };
    assert_eq!((loss.reason(), loss.lane(), loss.count), (v1::LossReason::Old, v1::Lane::Routine, 7));
    assert_eq!((loss.first_age_ms, loss.last_age_ms), (3000, 1500));
    assert_eq!((loss.first_sequence, loss.last_sequence), (3, 9));
    assert_eq!(loss.boot_id, "000000000000000000000000000000ab");
}

#[test]
fn number_and_age_are_added_when_a_row_is_sent() {
    let fact = Resolution {
        name: "example.com".parse().unwrap(),
        resolver: "live".parse().unwrap(),
        family: Family::V6,
        outcome: Outcome::Answered,
        addresses: vec!["2606:4700::1".parse().unwrap(), "8.6.112.0".parse().unwrap()],
        ttl_s: 60,
    };
    let kept = ResolutionParticulars { extended_error: Some(0), authentic_data: true, ..Default::default() };
    let measured = Measured { what: What::Resolution(fact, kept), duration: Duration::from_millis(3) };
    let encoded = observation(Reason::CONFIRM, &measured);
    let sent = row(&stored(9, 1000, encoded), 1500).unwrap();
    assert_eq!((sent.sequence, sent.age_ms, sent.duration_us), (9, 500, 3000));
    assert_eq!(sent.purpose(), v1::Purpose::Confirm);
    let Some(v1::observation::Fact::Resolution(resolution)) = sent.fact else { panic!("{sent:?}") };
    assert_eq!(resolution.addresses.iter().map(Vec::len).collect::<Vec<_>>(), [16, 4]);
    assert_eq!(resolution.ede_plus_one, 1, "code 0 is a code");
}

/// B65: nothing underflows.
#[test]
fn a_clock_that_went_back_makes_no_negative_age_and_rubbish_no_row() {
    let fact = ControlCheck { control: "a".parse().unwrap(), outcome: Outcome::TcpOk };
    let what = What::ControlCheck(fact, ControlParticulars::default());
    let measured = Measured { what, duration: Duration::ZERO };
    let observation = observation(Reason::SCHEDULED, &measured);
    assert_eq!(row(&stored(1, 5000, observation), 10).unwrap().age_ms, 0);
    assert!(row(&stored(1, 0, vec![0xff; 9]), 10).is_none());
}

#[test]
fn no_outcome_becomes_the_word_for_nothing() {
    for one in Outcome::ALL {
        assert_ne!(outcome(*one), v1::Outcome::Unspecified);
    }
}
