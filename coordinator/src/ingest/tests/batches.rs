//! What becomes of a batch: stored and acknowledged, or refused in part with the reason.

use super::*;

/// B60, B66: acknowledged is stored, and stored once.
#[tokio::test]
async fn a_batch_is_acknowledged_when_it_is_stored_and_a_redelivery_again() {
    let world = world().await;
    let (mut agent, assignment) = world.agent("de-fra").await.unwrap();
    assert_eq!(assignment.vantage, "de-fra");
    assert!(assignment.version > 0 && assignment.canaries.len() == 4);
    for _ in 0..2 {
        agent.batch(BOOT, vec![control(1), control(2)]).await;
        assert_eq!(agent.acked().await, 2);
        assert_eq!(world.stored().await, 2);
    }
    assert_eq!(world.app.hub.connected().len(), 1);
    // The same content, the same version, also on another stream.
    let (_other, again) = world.agent("de-fra").await.unwrap();
    assert_eq!(again.version, assignment.version);
}

#[tokio::test]
async fn bad_observations_are_refused_with_a_reason_and_the_rest_is_stored() {
    let world = world().await;
    let (mut agent, _) = world.agent("de-fra").await.unwrap();
    let mut unassigned = control(2);
    unassigned.fact = Some(v1::observation::Fact::ControlCheck(v1::ControlCheck {
        control: "someone\0else".to_owned(),
        outcome: v1::Outcome::TlsOk.into(),
        ..v1::ControlCheck::default()
    }));
    let mut unknown = control(3);
    unknown.purpose = 77;
    let mut empty = control(4);
    empty.fact = None;
    agent.batch(BOOT, vec![control(1), unassigned, unknown, empty, control(5), control(5)]).await;
    for (sequence, part) in
        [(2, "bad_name"), (3, "unknown_word: purpose 77"), (4, "no_fact"), (5, "sequence_not_rising")]
    {
        let (number, reason) = agent.refused().await;
        assert_eq!(number, sequence);
        assert!(reason.contains(part), "{reason}");
    }
    assert_eq!(agent.acked().await, 5);
    assert_eq!(world.stored().await, 2);
    let counted: i64 =
        sqlx::query_scalar("select sum(count)::bigint from ingest_refusal").fetch_one(&world.app.pool).await.unwrap();
    assert_eq!(counted, 4);
}

#[tokio::test]
async fn whole_messages_that_cannot_be_taken_do_not_end_the_stream() {
    let world = world().await;
    let (mut agent, _) = world.agent("de-fra").await.unwrap();
    agent.batch("not hex", vec![control(1)]).await;
    assert!(agent.refused().await.1.contains("bad_boot_id"));
    agent.batch(BOOT, vec![]).await;
    assert!(agent.refused().await.1.contains("bad_batch"));
    agent.batch(BOOT, (1..=501).map(control).collect()).await;
    assert!(agent.refused().await.1.contains("501 observations"));
    agent.hello(1, BOOT).await;
    assert!(agent.refused().await.1.contains("second_hello"));
    agent.up.send(v1::AgentMessage { message: None }).await.unwrap();
    assert!(agent.refused().await.1.contains("no_message"));
    agent.batch(BOOT, vec![control(1)]).await;
    assert_eq!(agent.acked().await, 1);
}

#[tokio::test]
async fn an_earlier_start_and_an_old_age_are_history() {
    let world = world().await;
    let (mut agent, _) = world.agent("de-fra").await.unwrap();
    agent.batch(OLDER_BOOT, vec![control(1)]).await;
    assert_eq!(agent.acked().await, 1);
    let mut old = control(1);
    old.age_ms = u64::MAX;
    agent.batch(BOOT, vec![old, control(2)]).await;
    assert_eq!(agent.acked().await, 2);
    let late: Vec<bool> =
        sqlx::query_scalar("select late from observation order by id").fetch_all(&world.app.pool).await.unwrap();
    assert_eq!(late, [true, true, false]);
}

#[tokio::test]
async fn each_lane_is_acknowledged_by_itself() {
    let world = world().await;
    let (mut agent, _) = world.agent("de-fra").await.unwrap();
    for lane in [v1::Lane::Routine, v1::Lane::Urgent, v1::Lane::Routine] {
        agent.batch_in(lane, BOOT, vec![control(1), control(2)]).await;
        let ToAgent::Ack(ack) = agent.next().await.unwrap() else { panic!("no ack") };
        assert_eq!((ack.lane, ack.sequence), (lane.into(), 2));
    }
    assert_eq!(world.stored().await, 4);
    agent.batch_in(v1::Lane::Unspecified, BOOT, vec![control(3)]).await;
    let (sequence, reason) = agent.refused().await;
    assert_eq!(sequence, 0);
    assert!(reason.contains("unknown_word: lane 0"), "{reason}");
    let mut bad = control(3);
    bad.purpose = 0;
    agent.batch_in(v1::Lane::Routine, BOOT, vec![bad]).await;
    let ToAgent::Refusal(refusal) = agent.next().await.unwrap() else { panic!("no refusal") };
    assert_eq!(refusal.lane, i32::from(v1::Lane::Routine));
}

#[tokio::test]
async fn b04_a_result_without_an_outcome_is_refused_with_a_reason_and_counted() {
    let world = world().await;
    let (mut agent, _) = world.agent("de-fra").await.unwrap();
    let mut blank = control(1);
    blank.duration_us = 0;
    blank.fact = Some(v1::observation::Fact::ControlCheck(v1::ControlCheck {
        control: "control-cf".to_owned(),
        ..v1::ControlCheck::default()
    }));
    agent.batch(BOOT, vec![blank]).await;
    assert!(agent.refused().await.1.contains("outcome 0"));
    assert_eq!(agent.acked().await, 1);
    assert_eq!(world.stored().await, 0);
    let counted: (String, i64) =
        sqlx::query_as("select reason, count from ingest_refusal").fetch_one(&world.app.pool).await.unwrap();
    assert_eq!(counted, ("unknown_word".to_owned(), 1));
}

#[tokio::test]
async fn b77_a_message_above_the_limit_ends_the_stream_with_a_word_that_is_not_retried_unchanged() {
    let world = world().await;
    let (mut agent, _) = world.agent("de-fra").await.unwrap();
    agent.batch(&"x".repeat(2 << 20), vec![control(1)]).await;
    assert_eq!(agent.next().await.unwrap_err().code(), tonic::Code::OutOfRange);
    let (mut agent, _) = world.agent("de-fra").await.unwrap();
    agent.batch(BOOT, vec![control(1)]).await;
    assert_eq!(agent.acked().await, 1);
}

fn check(sequence: u64, remark: &str) -> v1::Observation {
    v1::Observation {
        fact: Some(v1::observation::Fact::EndpointCheck(v1::EndpointCheck {
            resolver: "doh-cf".to_owned(),
            address: vec![1, 1, 1, 1],
            stage: v1::Stage::Tls.into(),
            outcome: v1::Outcome::TlsSilent.into(),
            remark: remark.to_owned(),
            ..v1::EndpointCheck::default()
        })),
        ..control(sequence)
    }
}

fn answer(sequence: u64, chain: &str, nsid: &[u8]) -> v1::Observation {
    v1::Observation {
        fact: Some(v1::observation::Fact::Resolution(v1::Resolution {
            name: "cdnjs.cloudflare.com".to_owned(),
            resolver: "doh-cf".to_owned(),
            family: v1::Family::V4.into(),
            outcome: v1::Outcome::Answered.into(),
            addresses: vec![vec![104, 17, 24, 14]],
            ttl_s: 60,
            reply: Some(v1::Reply {
                chain: vec![chain.to_owned()],
                nsid: nsid.to_vec(),
                first_bytes: vec![0xff, 0, 0xfe],
                ..v1::Reply::default()
            }),
            ..v1::Resolution::default()
        })),
        ..control(sequence)
    }
}

#[tokio::test]
async fn b81_a_clock_that_is_years_off_changes_neither_partition_nor_age() {
    let world = world().await;
    let (mut agent, _) = world.agent("de-fra").await.unwrap();
    let off = |sequence: u64, ms: i64| v1::Observation {
        fact: Some(v1::observation::Fact::ControlCheck(v1::ControlCheck {
            control: "control-cf".to_owned(),
            outcome: v1::Outcome::TlsOk.into(),
            clock_offset_ms: Some(ms),
            ..v1::ControlCheck::default()
        })),
        ..control(sequence)
    };
    let day = 86_400_000;
    let since_the_start = v1::Observation { age_ms: u64::MAX, ..control(4) };
    agent
        .batch(BOOT, vec![off(1, 400 * day), off(2, -56 * 365 * day), off(3, i64::MAX), since_the_start, control(5)])
        .await;
    let (sequence, reason) = agent.refused().await;
    assert_eq!(sequence, 3);
    assert!(reason.contains("clock offset"), "{reason}");
    assert_eq!(agent.acked().await, 5);
    // The day of receipt decides where a row lies; upkeep has nothing to complain of.
    let odd: i64 = sqlx::query_scalar(
        "select count(*) from observation
         where received_at not between now() - interval '1 hour' and now() + interval '1 hour'
            or observed_at > received_at or observed_at < received_at - interval '91 days'",
    )
    .fetch_one(&world.app.pool)
    .await
    .unwrap();
    assert_eq!((odd, world.stored().await), (0, 4));
    crate::store::partition::ensure(&mut world.app.pool.acquire().await.unwrap()).await.unwrap();
}

#[tokio::test]
async fn b85_a_zero_byte_in_what_was_read_off_the_network_costs_no_row() {
    let world = world().await;
    let (mut agent, _) = world.agent("de-fra").await.unwrap();
    let mut batch: Vec<_> = (1..=500).map(control).collect();
    batch[41] = check(42, "a\0b");
    batch[42] = answer(43, "odd\0name.example", &[0xc3, 0x28, 0]);
    batch[43] = check(44, r#"{"text": "\u0000"}"#);
    agent.batch(BOOT, batch).await;
    assert_eq!(agent.acked().await, 500);
    assert_eq!(world.stored().await, 500);
    let kept: Vec<serde_json::Value> =
        sqlx::query_scalar("select detail from observation where sequence between 42 and 44 order by sequence")
            .fetch_all(&world.app.pool)
            .await
            .unwrap();
    assert_eq!(kept[0]["remark"], "a\u{fffd}b");
    assert_eq!(kept[1]["reply"]["chain"][0], "odd\u{fffd}name.example");
    assert_eq!(kept[1]["reply"]["nsid"], "c32800");
    assert_eq!(kept[2]["remark"], r#"{"text": "\u0000"}"#);
}

#[tokio::test]
async fn b86_of_the_same_number_twice_the_first_is_stored_and_the_clash_counted() {
    let world = world().await;
    let (mut agent, _) = world.agent("de-fra").await.unwrap();
    // Two with one number in one batch, of which the second says something else.
    agent.batch(BOOT, vec![control(1), control(2), check(2, "another"), control(3)]).await;
    assert_eq!(agent.refused().await.0, 2);
    assert_eq!(agent.acked().await, 3);
    // A resend that was joined with a new one; two lanes with the same numbers at the same moment.
    agent.batch(BOOT, vec![control(2), check(3, "another"), control(4)]).await;
    agent.batch_in(v1::Lane::Routine, BOOT, vec![control(1), control(2)]).await;
    let mut acked = [agent.acked().await, agent.acked().await];
    acked.sort_unstable();
    assert_eq!(acked, [2, 4]);
    let kinds: Vec<(i64, String)> =
        sqlx::query_as("select sequence, kind from observation where lane = 'urgent' order by sequence")
            .fetch_all(&world.app.pool)
            .await
            .unwrap();
    assert_eq!(kinds, (1..=4).map(|number| (number, "control_check".to_owned())).collect::<Vec<_>>());
    assert_eq!(world.stored().await, 6);
    let counted: Vec<(String, i64)> =
        sqlx::query_as("select reason, count from ingest_refusal").fetch_all(&world.app.pool).await.unwrap();
    assert_eq!(counted, [("sequence_not_rising".to_owned(), 1)]);
}
