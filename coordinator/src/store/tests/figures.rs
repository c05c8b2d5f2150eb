//! Hourly figures: every row once, in the hour in which it was measured.

use super::*;
use crate::store::figures::{count_hour, count_log};
use crate::store::verdict::{self, NewVerdict, SubjectKind, VerdictSubject};
use crate::store::{offset, watch};
use parallax_decide::presence::Presence;
use parallax_decide::time::Timestamp;

async fn count_all(pool: &PgPool) {
    loop {
        let mut transaction = pool.begin().await.unwrap();
        let step = count_log(&mut transaction).await.unwrap();
        transaction.commit().await.unwrap();
        if !step.more {
            return;
        }
    }
}

/// What the figures must say, from the log itself.
const COMPARED: &str = "
    select count(*) from (
        select date_trunc('hour', observed_at, 'UTC') as hour, vantage_id, kind, subject, coalesce(resolver, '') as resolver,
               coalesce(family, family(address), 0)::smallint as family, outcome, count(*) as probes,
               count(*) filter (where late) as late, sum(duration_us) as total, max(duration_us) as longest
        from observation where kind in ('resolution', 'connection', 'endpoint_check', 'control_check')
        group by 1, 2, 3, 4, 5, 6, 7
    ) as log
    full join hourly h using (hour, vantage_id, kind, subject, resolver, family, outcome)
    where h.probes is distinct from log.probes or h.late is distinct from log.late
       or h.duration_us_total is distinct from log.total or h.duration_us_max is distinct from log.longest
       or h.probes is distinct from (select sum(value::bigint) from jsonb_each_text(h.durations))";

#[tokio::test]
async fn every_row_is_counted_once_late_ones_too_however_often_counting_breaks_off() {
    let (pool, vantage) = with_vantage().await;
    let mut connection = pool.acquire().await.unwrap();
    let mut sequence = 0;
    for round in 0..12_u64 {
        let numbers: Vec<i64> = (1..=17).map(|n| sequence + n).collect();
        sequence += 17;
        let mut batch = delivery(vantage, BOOT, monotonic(), &numbers);
        for (n, item) in (0..).zip(batch.items.iter_mut()) {
            let taken = item.content.as_mut().unwrap();
            // Every third batch comes hours late.
            let late = round % 3 == 0;
            taken.late_after = Duration::from_secs(3600);
            taken.age = Duration::from_secs(if late { 3 * 3600 + n * 977 } else { n });
            taken.duration_us = i64::try_from(n * n * 1000 + round).unwrap();
        }
        commit(&mut connection, &[batch]).await.unwrap();
        // Broken off: nothing is counted, and the position has not moved.
        let mut transaction = pool.begin().await.unwrap();
        count_log(&mut transaction).await.unwrap();
        transaction.rollback().await.unwrap();
        if round % 2 == 0 {
            count_all(&pool).await;
        }
    }
    count_all(&pool).await;
    count_all(&pool).await;
    let wrong: i64 = sqlx::query_scalar(COMPARED).fetch_one(&pool).await.unwrap();
    assert_eq!(wrong, 0);
    let counted: i64 = sqlx::query_scalar("select sum(probes)::bigint from hourly").fetch_one(&pool).await.unwrap();
    assert_eq!(counted, sequence);
    let (p50, p95, most): (f64, f64, f64) =
        sqlx::query_as("select max(p50_ms)::float8, max(p95_ms)::float8, max(max_ms)::float8 from v_hourly")
            .fetch_one(&pool)
            .await
            .unwrap();
    assert!(p50 > 0.0 && p50 <= p95 && p95 <= most * 1.42, "{p50} {p95} {most}");
}

#[tokio::test]
async fn numbers_that_were_never_used_are_stepped_over() {
    let (pool, vantage) = with_vantage().await;
    sqlx::query("select setval('observation_id_seq', 2000000)").execute(&pool).await.unwrap();
    let batch = [delivery(vantage, BOOT, monotonic(), &[1, 2])];
    commit(&mut pool.acquire().await.unwrap(), &batch).await.unwrap();
    count_all(&pool).await;
    let counted: i64 = sqlx::query_scalar("select sum(probes)::bigint from hourly").fetch_one(&pool).await.unwrap();
    assert_eq!(counted, 2);
}

#[tokio::test]
async fn an_epoch_of_answers_lasts_while_the_set_is_the_same_whatever_its_order() {
    let (pool, vantage) = with_vantage().await;
    let mut connection = pool.acquire().await.unwrap();
    let a = ["192.0.2.1", "192.0.2.2"];
    let turned = ["192.0.2.2", "192.0.2.1"];
    let b = ["198.51.100.7"];
    let story: [&[&str]; 7] = [&a, &turned, &a, &b, &b, &a, &[]];
    for (n, addresses) in (1..).zip(story) {
        let outcome = if addresses.is_empty() { Outcome::Servfail } else { Outcome::Answered };
        let mut taken = observation(Fact::Resolution(Resolution {
            name: "example.com".parse().unwrap(),
            resolver: "live".parse().unwrap(),
            family: Family::V4,
            outcome,
            addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
            ttl_s: 60 + u32::try_from(n).unwrap(),
        }));
        taken.age = Duration::ZERO;
        let items = vec![Item { sequence: n, content: Ok(taken) }];
        let batch = Delivery { vantage, boot: BOOT, lane: Lane::Urgent, received: monotonic(), items, stray: vec![] };
        commit(&mut connection, &[batch]).await.unwrap();
        // Counted in one step or in several, the epochs are the same.
        if n % 2 == 0 {
            count_all(&pool).await;
        }
    }
    count_all(&pool).await;
    let epochs: Vec<(String, i64, i64, Option<i32>)> = sqlx::query_as(
        "select outcome, cardinality(addresses)::bigint, resolutions, ttl_s_max from v_answer order by since",
    )
    .fetch_all(&pool)
    .await
    .unwrap();
    let answered = |addresses, resolutions, ttl| ("answered".to_owned(), addresses, resolutions, Some(ttl));
    assert_eq!(
        epochs,
        [answered(2, 3, 63), answered(1, 2, 65), answered(2, 1, 66), ("servfail".to_owned(), 0, 1, None)]
    );
}

fn said(word: &'static str, presence: Presence) -> NewVerdict {
    let subject = VerdictSubject { kind: SubjectKind::Node, subject: "fi".to_owned(), vantage: None, resolver: None };
    NewVerdict { subject, word, presence, reason: json!({}), evidence: vec![] }
}

#[tokio::test]
async fn an_hour_counts_what_was_judged_and_nothing_else_and_can_be_counted_again() {
    let (pool, _) = with_vantage().await;
    let mut connection = pool.acquire().await.unwrap();
    let hour = 1_790_000_000_i64 / 3600 * 3600;
    let at = |seconds: i64| Timestamp((hour + seconds) * 1000);
    let mut lease = pool.acquire().await.unwrap();
    let epoch = super::lease::acquire(&mut lease, Uuid::new_v4(), 0).await.unwrap().unwrap();
    verdict::insert(&mut connection, at(0), &[said("node_ok", Presence::Online)]).await.unwrap();
    let mut keep = async |from: i64, to: i64| {
        for second in (from..=to).step_by(5) {
            watch::keep(&mut connection, epoch, at(second)).await.unwrap();
        }
    };
    keep(0, 1200).await;
    // Twenty minutes without anybody who judges, and then half an hour of trouble.
    keep(2400, 7200).await;
    verdict::insert(&mut connection, at(3000), &[said("node_dead_everywhere", Presence::Offline)]).await.unwrap();
    verdict::insert(&mut connection, at(4800), &[said("node_ok", Presence::Online)]).await.unwrap();
    // Not before it is over.
    assert!(!count_hour(&mut connection, at(3600)).await.unwrap());
    let mut times = 0;
    while count_hour(&mut connection, at(3 * 3600)).await.unwrap() {
        times += 1;
        assert!(times < 10);
    }
    let read = async || -> Vec<(f64, f64, f64, f64)> {
        sqlx::query_as(
            "select online_s::float8, offline_s::float8, uptime_percent::float8, observed_percent::float8
             from v_uptime where subject = 'fi' and hour < $1 order by hour limit 2",
        )
        .bind(offset(at(7200)))
        .fetch_all(&pool)
        .await
        .unwrap()
    };
    let first = read().await;
    assert_eq!(first, [(1800.0, 600.0, 75.0, 66.667), (2400.0, 1200.0, 66.667, 100.0)]);
    // The same again: as after a restore, or by a holder that does not know.
    sqlx::query("update history_position set hour = $1").bind(offset(at(0))).execute(&pool).await.unwrap();
    while count_hour(&mut connection, at(3 * 3600)).await.unwrap() {}
    assert_eq!(read().await, first);
}
