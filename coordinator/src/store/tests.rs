//! The log, the cursors and the lease against a real Postgres.

use std::time::{Duration, Instant};

use parallax_decide::observation::{
    Connection, ControlCheck, EndpointCheck, Fact, Family, Lane, Loss, LossReason, Missed, MissedReason, Observation,
    Outcome, Path, Purpose, Resolution, Stage, Target,
};
use serde_json::json;
use sqlx::{Connection as _, PgConnection, PgPool};
use uuid::Uuid;

use super::commit::{Committed, Delivery, Item, commit};
use super::log::{NewObservation, Position, observations_after, observations_by_id, set_aside};
use super::refusal::Refused;
use super::vantage::{self, VantageId};
use super::{StoreError, assignment, check_writable, database_now, lease, partition, setup};
use crate::clock::monotonic;
use crate::testing;

mod days;
mod figures;
mod schema;
mod tailing;

const BOOT: Uuid = Uuid::from_u128(0xb007);

fn facts() -> Vec<Fact> {
    vec![
        Fact::Resolution(Resolution {
            name: "example.com".parse().unwrap(),
            resolver: "live".parse().unwrap(),
            family: Family::V4,
            outcome: Outcome::Answered,
            addresses: vec!["8.6.112.0".parse().unwrap(), "8.47.69.0".parse().unwrap()],
            ttl_s: 300,
        }),
        Fact::Resolution(Resolution {
            name: "example.com".parse().unwrap(),
            resolver: "doh-cf".parse().unwrap(),
            family: Family::V6,
            outcome: Outcome::Empty,
            addresses: vec![],
            ttl_s: 0,
        }),
        Fact::Connection(Connection {
            target: Target::Name("example.com".parse().unwrap()),
            address: "2606:4700::1111".parse().unwrap(),
            port: 443,
            outcome: Outcome::Silent,
            attempts: 4,
            attempts_connected: 0,
        }),
        Fact::Connection(Connection {
            target: Target::Node("fi".parse().unwrap()),
            address: "95.216.10.10".parse().unwrap(),
            port: 443,
            outcome: Outcome::TlsOk,
            attempts: 1,
            attempts_connected: 1,
        }),
        Fact::EndpointCheck(EndpointCheck {
            resolver: "doh-cf".parse().unwrap(),
            address: "1.1.1.1".parse().unwrap(),
            stage: Stage::Tls,
            outcome: Outcome::TlsSilent,
            fresh: None,
            missing: None,
            worked_before: false,
        }),
        Fact::ControlCheck(ControlCheck { control: "negative".parse().unwrap(), outcome: Outcome::Silent }),
    ]
}

/// The kinds that keep a part of themselves in the particulars.
fn with_particulars() -> Vec<(Fact, serde_json::Value)> {
    let check = EndpointCheck {
        resolver: "doh-cf".parse().unwrap(),
        // None was found.
        address: "0.0.0.0".parse().unwrap(),
        stage: Stage::Bootstrap,
        outcome: Outcome::DnsSilent,
        fresh: Some(Outcome::Servfail),
        missing: Some(Outcome::Nxdomain),
        worked_before: true,
    };
    let path = Path {
        address: "8.6.112.0".parse().unwrap(),
        outcome: Outcome::PathLost,
        last_hop: Some("192.0.2.2".parse().unwrap()),
    };
    vec![
        (
            Fact::EndpointCheck(check),
            json!({ "fresh": "servfail", "missing": "nxdomain", "worked_before": true, "bootstrap_us": 9 }),
        ),
        (Fact::Path(path), json!({ "port": 443, "hops": [{ "ttl": 1, "address": "192.0.2.2" }, { "ttl": 2 }] })),
        (
            Fact::Loss(Loss { reason: LossReason::Full, count: 3 }),
            json!({ "reason": "full", "count": 3, "lane": "urgent", "first_sequence": 2, "last_sequence": 4,
                    "boot_id": BOOT.simple().to_string() }),
        ),
        (
            Fact::Missed(Missed { reason: MissedReason::Paused, count: 2 }),
            json!({ "reason": "paused", "what": "canaries", "count": 2 }),
        ),
    ]
}

fn observation(fact: Fact) -> NewObservation {
    NewObservation {
        of_earlier_start: false,
        late_after: Duration::from_secs(3600),
        age: Duration::from_millis(1500),
        purpose: Purpose::Scheduled,
        task_id: None,
        duration_us: 42,
        fact,
        detail: json!({ "tcp_us": 7 }),
        lost_ago: None,
    }
}

fn delivery(vantage: VantageId, boot: Uuid, received: Instant, sequences: &[i64]) -> Delivery {
    let facts = facts();
    let items = sequences
        .iter()
        .map(|sequence| Item {
            sequence: *sequence,
            content: Ok(observation(facts[usize::try_from(*sequence).unwrap() % facts.len()].clone())),
        })
        .collect();
    Delivery { vantage, boot, lane: Lane::Urgent, received, items, stray: vec![] }
}

async fn with_vantage() -> (PgPool, VantageId) {
    let pool = testing::database().await;
    let row = vantage::find_or_make(&mut pool.acquire().await.unwrap(), &"de-fra".parse().unwrap()).await.unwrap();
    (pool, row.id)
}

async fn all(connection: &mut PgConnection) -> Vec<Observation> {
    observations_after(connection, Position::since(testing::at(0)), 10_000).await.unwrap().observations
}

#[tokio::test]
async fn every_kind_of_fact_reads_back_as_it_was() {
    let (pool, vantage) = with_vantage().await;
    let mut connection = pool.acquire().await.unwrap();
    let sent: Vec<i64> = (1..=6).collect();
    commit(&mut connection, &[delivery(vantage, BOOT, monotonic(), &sent)]).await.unwrap();
    let read = all(&mut connection).await;
    let expected: Vec<Fact> = sent.iter().map(|n| facts()[usize::try_from(*n).unwrap() % 6].clone()).collect();
    assert_eq!(read.iter().map(|one| one.fact.clone()).collect::<Vec<_>>(), expected);
    for one in &read {
        assert_eq!(one.vantage.as_str(), "de-fra");
        let age = one.received_at.since(one.at);
        assert!(age >= Duration::from_millis(1500) && age < Duration::from_secs(60), "{age:?}");
    }
    let ids: Vec<_> = read.iter().map(|one| one.id).collect();
    assert!(ids.is_sorted());
    assert_eq!(observations_by_id(&mut connection, &ids[1..3]).await.unwrap(), read[1..3]);
}

#[tokio::test]
async fn what_is_kept_among_the_particulars_reads_back_too() {
    let (pool, vantage) = with_vantage().await;
    let mut connection = pool.acquire().await.unwrap();
    let mut sent = delivery(vantage, BOOT, monotonic(), &[1, 2, 3, 4]);
    for (item, (fact, detail)) in sent.items.iter_mut().zip(with_particulars()) {
        item.content = Ok(NewObservation { detail, ..observation(fact) });
    }
    commit(&mut connection, &[sent]).await.unwrap();
    let facts: Vec<Fact> = all(&mut connection).await.into_iter().map(|one| one.fact).collect();
    assert_eq!(facts, with_particulars().into_iter().map(|(fact, _)| fact).collect::<Vec<_>>());
    let subjects: Vec<String> =
        sqlx::query_scalar("select subject from observation order by id").fetch_all(&pool).await.unwrap();
    assert_eq!(subjects, ["doh-cf", "8.6.112.0", "observations", "canaries"]);
}

#[tokio::test]
async fn each_lane_has_its_own_numbers() {
    let (pool, vantage) = with_vantage().await;
    let mut connection = pool.acquire().await.unwrap();
    let urgent = delivery(vantage, BOOT, monotonic(), &[1, 2]);
    let routine = Delivery { lane: Lane::Routine, ..delivery(vantage, BOOT, monotonic(), &[1, 2, 5]) };
    let done = commit(&mut connection, &[urgent.clone(), routine.clone()]).await.unwrap();
    assert_eq!(done, Committed { stored: 5, known: 0, missing: 2 });
    let again = commit(&mut connection, &[routine, urgent]).await.unwrap();
    assert_eq!(again, Committed { stored: 0, known: 5, missing: 0 });
    let cursors: Vec<(String, i64)> =
        sqlx::query_as("select lane, last_sequence from agent_cursor order by lane").fetch_all(&pool).await.unwrap();
    assert_eq!(cursors, [("routine".to_owned(), 5), ("urgent".to_owned(), 2)]);
    let lanes: Vec<(String, i64)> =
        sqlx::query_as("select lane, count(*) from observation group by lane order by lane")
            .fetch_all(&pool)
            .await
            .unwrap();
    assert_eq!(lanes, [("routine".to_owned(), 3), ("urgent".to_owned(), 2)]);
    let gap: String = sqlx::query_scalar("select lane from observation_gap").fetch_one(&pool).await.unwrap();
    assert_eq!(gap, "routine");
}

#[tokio::test]
async fn a_record_of_a_loss_explains_its_gap_and_no_other() {
    let (pool, vantage) = with_vantage().await;
    let mut connection = pool.acquire().await.unwrap();
    let lost = |reason: &str, first: i64, last: i64, ago: Option<(u64, u64)>| NewObservation {
        detail: json!({ "reason": reason, "count": last - first + 1, "lane": "routine", "first_sequence": first,
                        "last_sequence": last, "boot_id": BOOT.simple().to_string() }),
        lost_ago: ago.map(|(from, to)| (Duration::from_secs(from), Duration::from_secs(to))),
        ..observation(Fact::Loss(Loss { reason: LossReason::from_word(reason).unwrap(), count: 1 }))
    };
    // 5 to 12 went in two drops; 15 and 16 are known to nobody.
    let routine = Delivery { lane: Lane::Routine, ..delivery(vantage, BOOT, monotonic(), &[1, 2, 3, 4, 13, 14, 17]) };
    let mut urgent = delivery(vantage, BOOT, monotonic(), &[1, 2]);
    urgent.items[0].content = Ok(lost("full", 5, 8, Some((900, 600))));
    urgent.items[1].content = Ok(lost("old", 9, 12, None));
    commit(&mut connection, &[routine, urgent]).await.unwrap();
    let told: Vec<String> = sqlx::query_scalar(
        "select concat_ws(' ', first_sequence, missing, explained, lost, reasons, lost_to - lost_from)
         from v_gap order by first_sequence",
    )
    .fetch_all(&pool)
    .await
    .unwrap();
    assert_eq!(told, ["5 8 t 8 {full,old} 00:05:00", "15 2 f"]);
    let ago: i64 =
        sqlx::query_scalar("select extract(epoch from now() - lost_from)::bigint from v_gap where explained")
            .fetch_one(&pool)
            .await
            .unwrap();
    assert!((890..960).contains(&ago), "{ago}");
    let sums: (i64, i64) = sqlx::query_as("select observations_missing, observations_unexplained from v_vantage")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(sums, (10, 2));
    // The row of the log says the same.
    let spans: Vec<Option<bool>> = sqlx::query_scalar(
        "select (detail ->> 'to')::timestamptz - (detail ->> 'from')::timestamptz = interval '300 seconds'
         from observation where kind = 'loss' order by id",
    )
    .fetch_all(&pool)
    .await
    .unwrap();
    assert_eq!(spans, [Some(true), None]);
}

/// B60: what was committed and not acknowledged comes again, and is one row.
#[tokio::test]
async fn a_redelivery_changes_nothing() {
    let (pool, vantage) = with_vantage().await;
    let mut connection = pool.acquire().await.unwrap();
    let first = commit(&mut connection, &[delivery(vantage, BOOT, monotonic(), &[1, 2, 3])]).await.unwrap();
    assert_eq!(first, Committed { stored: 3, known: 0, missing: 0 });
    let again = commit(&mut connection, &[delivery(vantage, BOOT, monotonic(), &[1, 2, 3])]).await.unwrap();
    assert_eq!(again, Committed { stored: 0, known: 3, missing: 0 });
    // Half known, half new, and the same batch twice in one transaction.
    let both = [delivery(vantage, BOOT, monotonic(), &[3, 4]), delivery(vantage, BOOT, monotonic(), &[3, 4, 5])];
    assert_eq!(commit(&mut connection, &both).await.unwrap(), Committed { stored: 2, known: 3, missing: 0 });
    assert_eq!(all(&mut connection).await.len(), 5);
}

#[tokio::test]
async fn another_start_of_the_agent_counts_anew() {
    let (pool, vantage) = with_vantage().await;
    let mut connection = pool.acquire().await.unwrap();
    let both =
        [delivery(vantage, BOOT, monotonic(), &[1, 2]), delivery(vantage, Uuid::from_u128(2), monotonic(), &[1, 2])];
    assert_eq!(commit(&mut connection, &both).await.unwrap().stored, 4);
}

#[tokio::test]
async fn a_gap_is_recorded_as_a_gap() {
    let (pool, vantage) = with_vantage().await;
    let mut connection = pool.acquire().await.unwrap();
    commit(&mut connection, &[delivery(vantage, BOOT, monotonic(), &[1])]).await.unwrap();
    let done = commit(&mut connection, &[delivery(vantage, BOOT, monotonic(), &[5, 6, 9])]).await.unwrap();
    assert_eq!(done, Committed { stored: 3, known: 0, missing: 5 });
    let gaps: Vec<(i64, i64)> =
        sqlx::query_as("select first_sequence, last_sequence from observation_gap order by first_sequence")
            .fetch_all(&mut *connection)
            .await
            .unwrap();
    assert_eq!(gaps, [(2, 4), (7, 8)]);
}

#[tokio::test]
async fn a_refused_observation_is_counted_once_and_costs_itself_only() {
    let (pool, vantage) = with_vantage().await;
    let mut connection = pool.acquire().await.unwrap();
    let mut batch = delivery(vantage, BOOT, monotonic(), &[1, 2, 3]);
    batch.items[1].content = Err(Refused { vantage, reason: "unknown_word", detail: "stage\0 77".to_owned() });
    for _ in 0..2 {
        commit(&mut connection, std::slice::from_ref(&batch)).await.unwrap();
    }
    assert_eq!(all(&mut connection).await.len(), 2);
    let counted: Vec<(String, i64, String)> = sqlx::query_as("select reason, count, last_detail from ingest_refusal")
        .fetch_all(&mut *connection)
        .await
        .unwrap();
    assert_eq!(counted, [("unknown_word".to_owned(), 1, "stage\u{fffd} 77".to_owned())]);
}

#[tokio::test]
async fn late_observations_are_stored_and_never_evidence() {
    let (pool, vantage) = with_vantage().await;
    let mut connection = pool.acquire().await.unwrap();
    let mut batch = delivery(vantage, BOOT, monotonic(), &[1, 2]);
    batch.items[0].content.as_mut().unwrap().of_earlier_start = true;
    commit(&mut connection, &[batch]).await.unwrap();
    assert_eq!(all(&mut connection).await.len(), 1);
    let stored: i64 = sqlx::query_scalar("select count(*) from observation").fetch_one(&mut *connection).await.unwrap();
    assert_eq!(stored, 2);
}

#[tokio::test]
async fn a_commit_that_was_delayed_makes_history_of_what_grew_old_meanwhile() {
    let (pool, vantage) = with_vantage().await;
    let mut connection = pool.acquire().await.unwrap();
    let mut batch = delivery(vantage, BOOT, monotonic() - Duration::from_secs(61), &[1, 2, 3]);
    for (item, late_after) in batch.items.iter_mut().zip([60, 62, 600]) {
        item.content.as_mut().unwrap().late_after = Duration::from_secs(late_after);
    }
    commit(&mut connection, &[batch]).await.unwrap();
    // 61 s here and 1.5 s before: only the last of them is younger than its limit.
    let late: Vec<bool> =
        sqlx::query_scalar("select late from observation order by id").fetch_all(&mut *connection).await.unwrap();
    assert_eq!(late, [true, true, false]);
    let age: bool =
        sqlx::query_scalar("select bool_and(received_at - observed_at >= interval '62.5 s') from observation")
            .fetch_one(&mut *connection)
            .await
            .unwrap();
    assert!(age, "the wait is part of the age");
}

#[tokio::test]
async fn a_reader_that_goes_on_behind_the_last_misses_and_repeats_nothing() {
    let (pool, vantage) = with_vantage().await;
    let mut connection = pool.acquire().await.unwrap();
    let sent: Vec<i64> = (1..=25).collect();
    for part in sent.chunks(7) {
        commit(&mut connection, &[delivery(vantage, BOOT, monotonic(), part)]).await.unwrap();
    }
    let (mut position, mut read) = (Position::since(testing::at(0)), Vec::new());
    loop {
        let page = observations_after(&mut connection, position, 4).await.unwrap();
        let Some(behind) = page.behind else { break };
        position = behind;
        read.extend(page.observations);
    }
    assert_eq!(read, all(&mut connection).await);
    assert_eq!(read.len(), 25);
}

#[tokio::test]
async fn writers_at_the_same_time_leave_one_order_and_no_duplicate() {
    let (pool, vantage) = with_vantage().await;
    let writers = (0..4).map(|_| {
        let pool = pool.clone();
        tokio::spawn(async move {
            for start in (1..=40).step_by(4) {
                let numbers: Vec<i64> = (start..start + 4).collect();
                let batch = [delivery(vantage, BOOT, monotonic(), &numbers)];
                commit(&mut pool.acquire().await.unwrap(), &batch).await.unwrap();
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let numbers: Vec<i64> =
        sqlx::query_scalar("select sequence from observation order by id").fetch_all(&pool).await.unwrap();
    assert_eq!(numbers, (1..=40).collect::<Vec<i64>>());
}

#[tokio::test]
async fn a_row_that_cannot_be_read_is_named_and_set_aside_once_and_holds_up_nothing() {
    let (pool, vantage) = with_vantage().await;
    let mut connection = pool.acquire().await.unwrap();
    commit(&mut connection, &[delivery(vantage, BOOT, monotonic(), &[1, 2, 3])]).await.unwrap();
    sqlx::query("update observation set outcome = 'sideways' where sequence = 2")
        .execute(&mut *connection)
        .await
        .unwrap();
    for _ in 0..2 {
        let page = observations_after(&mut connection, Position::since(testing::at(0)), 10).await.unwrap();
        assert_eq!((page.observations.len(), page.unreadable.len(), page.rows), (2, 1, 3));
        set_aside(&mut connection, &page.unreadable).await.unwrap();
        let behind = observations_after(&mut connection, page.behind.unwrap(), 10).await.unwrap();
        assert_eq!(behind.rows, 0);
    }
    let why: Vec<String> =
        sqlx::query_scalar("select why from observation_unreadable").fetch_all(&mut *connection).await.unwrap();
    assert_eq!(why.len(), 1);
    assert!(why[0].contains("table observation, column outcome, row ") && why[0].contains("'sideways'"), "{why:?}");
}

#[tokio::test]
async fn the_lease_has_one_holder_and_follows_a_dead_one_at_once() {
    let options = testing::fresh().await;
    let connect = || PgConnection::connect_with(&options);
    let (mut first, mut second) = (connect().await.unwrap(), connect().await.unwrap());
    let (one, two) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let epoch = lease::acquire(&mut first, one, 0).await.unwrap().unwrap();
    assert_eq!(lease::acquire(&mut second, two, 0).await.unwrap(), None);
    assert!(lease::renew(&mut first, one, epoch).await.unwrap().is_some());
    // As with kill -9: the session ends without a word, its lease still runs.
    drop(first);
    let taken = loop {
        match lease::acquire(&mut second, two, 0).await.unwrap() {
            Some(taken) => break taken,
            None => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    assert_eq!(taken, epoch + 1);
    let mut old = connect().await.unwrap();
    assert_eq!(lease::renew(&mut old, one, epoch).await.unwrap(), None);
    assert!(matches!(lease::fence(&mut old, epoch).await, Err(StoreError::StaleEpoch { epoch: 1 })));
    lease::fence(&mut second, taken).await.unwrap();
}

#[tokio::test]
async fn a_holder_that_hangs_is_evicted_when_its_lease_expires() {
    let options = testing::fresh().await;
    let connect = || PgConnection::connect_with(&options);
    let (mut hung, mut next) = (connect().await.unwrap(), connect().await.unwrap());
    lease::acquire(&mut hung, Uuid::from_u128(1), 0).await.unwrap().unwrap();
    assert_eq!(lease::acquire(&mut next, Uuid::from_u128(2), 0).await.unwrap(), None);
    sqlx::query("update lease set expires_at = clock_timestamp() - interval '1 second'")
        .execute(&mut next)
        .await
        .unwrap();
    assert_eq!(lease::acquire(&mut next, Uuid::from_u128(2), 0).await.unwrap(), None, "this try only evicts");
    let epoch = loop {
        match lease::acquire(&mut next, Uuid::from_u128(2), 0).await.unwrap() {
            Some(epoch) => break epoch,
            None => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    assert_eq!(epoch, 2);
    assert!(lease::renew(&mut hung, Uuid::from_u128(1), 1).await.is_err(), "its session is gone");
}

#[tokio::test]
async fn a_fence_holds_the_lease_until_the_transaction_ends() {
    let options = testing::fresh().await;
    let (mut holder, mut writer) =
        (PgConnection::connect_with(&options).await.unwrap(), PgConnection::connect_with(&options).await.unwrap());
    let epoch = lease::acquire(&mut holder, Uuid::from_u128(1), 0).await.unwrap().unwrap();
    let mut transaction = writer.begin().await.unwrap();
    lease::fence(&mut transaction, epoch).await.unwrap();
    drop(holder);
    let mut next = PgConnection::connect_with(&options).await.unwrap();
    let mut taking = Box::pin(async {
        loop {
            if let Some(epoch) = lease::acquire(&mut next, Uuid::from_u128(2), 0).await.unwrap() {
                return epoch;
            }
        }
    });
    assert!(tokio::time::timeout(Duration::from_millis(200), &mut taking).await.is_err(), "taken over inside a fence");
    transaction.commit().await.unwrap();
    assert_eq!(taking.await, epoch + 1);
}

#[tokio::test]
async fn an_assignment_rises_only_with_its_content() {
    let (pool, vantage) = with_vantage().await;
    let mut connection = pool.acquire().await.unwrap();
    let first = assignment::version(&mut connection, vantage, &[1; 32]).await.unwrap();
    assert_eq!(assignment::version(&mut connection, vantage, &[1; 32]).await.unwrap(), first);
    let second = assignment::version(&mut connection, vantage, &[2; 32]).await.unwrap();
    assert!(second > first);
    assert!(assignment::version(&mut connection, vantage, &[1; 32]).await.unwrap() > second);
}

#[tokio::test]
async fn partitions_and_migrations_can_be_made_again_and_by_several() {
    let options = testing::fresh().await;
    let starts = (0..3).map(|_| {
        let options = options.clone();
        async move {
            let mut connection = PgConnection::connect_with(&options).await.unwrap();
            setup::migrate(&mut connection).await.unwrap();
            partition::ensure(&mut connection).await.unwrap();
            check_writable(&mut connection).await.unwrap();
        }
    });
    futures_util::future::join_all(starts).await;
    let mut connection = PgConnection::connect_with(&options).await.unwrap();
    assert_eq!(partition::ensure(&mut connection).await.unwrap(), 0);
    assert_eq!(partition::existing(&mut connection).await.unwrap().len(), 5);
    setup::check_schema(&mut connection).await.unwrap();
    assert!(database_now(&mut connection).await.unwrap() > testing::at(1_000_000_000));
}

#[tokio::test]
async fn a_revoked_vantage_stays_revoked_and_the_others_hear_of_it() {
    let (pool, _) = with_vantage().await;
    let mut heard = vantage::Revocations::open(&pool).await.unwrap();
    let mut connection = pool.acquire().await.unwrap();
    assert!(vantage::change::revoke(&mut connection, &"de-fra".parse().unwrap()).await.unwrap());
    assert!(!vantage::change::revoke(&mut connection, &"nowhere".parse().unwrap()).await.unwrap());
    heard.next().await.unwrap();
    // One that no notice told of, as when the session that listens has lost its other end.
    sqlx::query("update vantage_change set number = number + 1").execute(&mut *connection).await.unwrap();
    heard.next().await.unwrap();
    assert!(vantage::change::revoke(&mut connection, &"de-fra".parse().unwrap()).await.unwrap());
    heard.next().await.unwrap();
    let row = vantage::find_or_make(&mut connection, &"de-fra".parse().unwrap()).await.unwrap();
    assert!(row.revoked_at.is_some());
}

#[tokio::test]
async fn naming_known_vantages_again_uses_up_no_keys() {
    let (pool, first) = with_vantage().await;
    let mut connection = pool.acquire().await.unwrap();
    for _ in 0..20 {
        let names = ["de-fra".parse().unwrap(), "wan-gw".parse().unwrap()];
        vantage::ensure(&mut connection, &names).await.unwrap();
    }
    let next = vantage::find_or_make(&mut connection, &"late-comer".parse().unwrap()).await.unwrap();
    assert_eq!(next.id.0, first.0 + 2, "a key is a smallint: there are 32,767 of them");
}

#[tokio::test]
async fn a_transaction_that_is_left_open_does_not_stay_for_ever() {
    let pool = testing::database().await;
    let limit: String = sqlx::query_scalar("show idle_in_transaction_session_timeout").fetch_one(&pool).await.unwrap();
    assert_eq!(limit, "15s");
}

#[tokio::test]
async fn numbers_whose_sum_fits_no_bigint_do_not_break_the_counts() {
    let (pool, vantage) = with_vantage().await;
    for boot in 1..=3 {
        sqlx::query(
            "insert into agent_cursor (vantage_id, boot_id, lane, last_sequence) values ($1, $2, 'urgent', $3)",
        )
        .bind(vantage.0)
        .bind(Uuid::from_u128(boot))
        .bind(i64::MAX)
        .execute(&pool)
        .await
        .unwrap();
        sqlx::query(
            "insert into observation_gap (vantage_id, boot_id, lane, first_sequence, last_sequence)
             values ($1, $2, 'urgent', 1, $3)",
        )
        .bind(vantage.0)
        .bind(Uuid::from_u128(boot))
        .bind(i64::MAX)
        .execute(&pool)
        .await
        .unwrap();
    }
    // And the view that adds them up a vantage answers as well.
    let missing: i64 =
        sqlx::query_scalar("select observations_unexplained from v_vantage").fetch_one(&pool).await.unwrap();
    assert_eq!(missing, i64::MAX);
    let counted = super::read::counts::counts(&mut pool.acquire().await.unwrap()).await.unwrap();
    assert_eq!((counted.observations, counted.missing), (0, i64::MAX));
}
