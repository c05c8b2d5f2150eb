//! Days of the log go in small steps, and what is cited of them stays.

use time::Date;

use super::*;
use crate::store::citation;
use crate::tasks::retention;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Days of the log from `oldest` days ago until today, with rows in each.
async fn fill(connection: &mut PgConnection, vantage: VantageId, oldest: i32, rows_a_day: i32) {
    for statement in [
        "do $$ declare day date; begin
             for n in 4..200 loop
                 exit when n > (select current_setting('test.oldest')::integer);
                 day := (now() at time zone 'UTC')::date - n;
                 execute format('create table if not exists observation_%s partition of observation for values from (%L) to (%L)',
                                to_char(day, 'YYYYMMDD'), day::timestamp at time zone 'UTC', (day + 1)::timestamp at time zone 'UTC');
             end loop; end $$",
        "do $$ declare day date; begin
             for n in 2..3 loop
                 day := (now() at time zone 'UTC')::date - n;
                 execute format('create table if not exists observation_%s partition of observation for values from (%L) to (%L)',
                                to_char(day, 'YYYYMMDD'), day::timestamp at time zone 'UTC', (day + 1)::timestamp at time zone 'UTC');
             end loop; end $$",
    ] {
        sqlx::query("select set_config('test.oldest', $1::text, false)").bind(oldest).execute(&mut *connection).await.unwrap();
        sqlx::query(statement).execute(&mut *connection).await.unwrap();
    }
    sqlx::query(
        "insert into observation (received_at, observed_at, vantage_id, boot_id, lane, sequence, late, purpose, duration_us,
                                  kind, subject, outcome, address, port, attempts, attempts_connected, detail)
         select t, t, $1, gen_random_uuid(), 'routine', r, false, 'scheduled', 900, 'connection', 'example.com', 'tls_ok',
                '192.0.2.1', 443, 1, 1, '{}'
         from generate_series(1, $2) as d, generate_series(1, $3) as r,
              lateral (select ((now() at time zone 'UTC')::date - d + interval '12 hours') at time zone 'UTC'
                              + r * interval '1 ms' as t) as at
         order by t",
    )
    .bind(vantage.0)
    .bind(oldest)
    .bind(rows_a_day)
    .execute(connection)
    .await
    .unwrap();
}

/// A database with so many days of one vantage's log before today, the pool, and a session for upkeep.
async fn filled(days: i32, rows_a_day: i32) -> (PgPool, VantageId, PgConnection) {
    let options = testing::fresh().await;
    let pool = super::super::pool(options.clone());
    let vantage =
        vantage::find_or_make(&mut pool.acquire().await.unwrap(), &"de-fra".parse().unwrap()).await.unwrap().id;
    let mut upkeep = PgConnection::connect_with(&options).await.unwrap();
    fill(&mut upkeep, vantage, days, rows_a_day).await;
    (pool, vantage, upkeep)
}

async fn lease_taken(connection: &mut PgConnection) -> i64 {
    lease::acquire(connection, Uuid::new_v4(), 0).await.unwrap().unwrap()
}

/// Counts the log into hourly figures as far as it goes.
async fn count_all(connection: &mut PgConnection) {
    loop {
        let mut transaction = connection.begin().await.unwrap();
        let step = crate::store::figures::count_log(&mut transaction).await.unwrap();
        transaction.commit().await.unwrap();
        if !step.more {
            return;
        }
    }
}

async fn days_there(pool: &PgPool) -> i64 {
    sqlx::query_scalar("select count(*) from pg_inherits where inhparent = 'observation'::regclass")
        .fetch_one(pool)
        .await
        .unwrap()
}

#[tokio::test]
async fn b83_ninety_days_become_seven_one_by_one_while_agents_report_and_what_is_cited_stays() {
    let (pool, vantage, mut upkeep) = filled(90, 200).await;
    // An incident of long ago cites a row whose copy was never made, and one that has a copy.
    let cited: Vec<i64> = sqlx::query_scalar(
        "select id from observation where received_at < now() - interval '60 days' order by id limit 2",
    )
    .fetch_all(&pool)
    .await
    .unwrap();
    sqlx::query(
        "with i as (insert into incident (opened_at, closed_at, key, about, kind, subject, members, conclusion)
                    values (now() - interval '89 days', now() - interval '88 days', 'k', '{}', 'k', 's', '{}', '{}') returning id)
         insert into incident_evidence (incident_id, observation_id, says) select i.id, o, 'fails_here' from i, unnest($1) as o",
    )
    .bind(&cited)
    .execute(&pool)
    .await
    .unwrap();
    let long_ago = database_now(&mut upkeep).await.unwrap().minus(DAY * 90);
    citation::keep(&mut upkeep, long_ago, &[parallax_decide::observation::ObservationId(cited[1])]).await.unwrap();
    // Every statement of upkeep ends within a moment, or it is broken off.
    sqlx::query("set statement_timeout = '5s'").execute(&mut upkeep).await.unwrap();
    let mut holder = PgConnection::connect_with(&pool.connect_options()).await.unwrap();
    let epoch = lease_taken(&mut holder).await;
    let writing = tokio::spawn({
        let pool = pool.clone();
        async move {
            for n in 1..=60 {
                let batch = [delivery(vantage, BOOT, monotonic(), &[n])];
                commit(&mut pool.acquire().await.unwrap(), &batch).await.unwrap();
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    });
    // Not one of them before its rows are in the hourly figures.
    let behind = retention::days(&mut upkeep, DAY * 7, epoch).await.unwrap();
    assert!(behind > DAY * 80, "{behind:?}");
    count_all(&mut upkeep).await;
    let behind = retention::days(&mut upkeep, DAY * 7, epoch).await.unwrap();
    assert_eq!(behind, Duration::ZERO);
    let counted: i64 = sqlx::query_scalar(
        "select sum(probes)::bigint from hourly
             where hour < (date_trunc('day', now() at time zone 'UTC') - interval '1 day') at time zone 'UTC'",
    )
    .fetch_one(&pool)
    .await
    .unwrap();
    assert_eq!(counted, 89 * 200, "what went is in the figures");
    writing.await.unwrap();
    let (kept, oldest_h): (i64, f64) =
        sqlx::query_as("select count(*), extract(epoch from now() - min(received_at))::float8 / 3600 from observation")
            .fetch_one(&pool)
            .await
            .unwrap();
    assert!((6.0 * 24.0..8.0 * 24.0).contains(&oldest_h), "{oldest_h}");
    assert_eq!((kept - 60) % 200, 0, "whole days went, and every row of today is there");
    let shown: i64 = sqlx::query_scalar("select count(outcome) from v_evidence").fetch_one(&pool).await.unwrap();
    assert_eq!(shown, 2, "what the incident cites is still there");
    // A holder whose lease has gone removes nothing.
    sqlx::query("update lease set epoch = epoch + 1").execute(&pool).await.unwrap();
    let there = days_there(&pool).await;
    let error = retention::days(&mut upkeep, DAY * 2, epoch).await.unwrap_err();
    assert!(matches!(error, StoreError::StaleEpoch { .. }), "{error}");
    assert_eq!(days_there(&pool).await, there);
}

#[tokio::test]
async fn b83_a_day_that_somebody_reads_is_left_and_taken_up_where_it_was() {
    let (pool, vantage, mut upkeep) = filled(5, 3).await;
    let mut holder = PgConnection::connect_with(&pool.connect_options()).await.unwrap();
    let epoch = lease_taken(&mut holder).await;
    let mut reader = PgConnection::connect_with(&pool.connect_options()).await.unwrap();
    sqlx::raw_sql("begin; select count(*) from observation").execute(&mut reader).await.unwrap();
    count_all(&mut upkeep).await;
    sqlx::query("set statement_timeout = '300ms'").execute(&mut upkeep).await.unwrap();
    retention::days(&mut upkeep, DAY * 2, epoch).await.unwrap_err();
    let pending: i64 = sqlx::query_scalar(
        "select count(*) from pg_inherits where inhparent = 'observation'::regclass and inhdetachpending",
    )
    .fetch_one(&pool)
    .await
    .unwrap();
    assert_eq!(pending, 1, "taking it out was broken off half-way");
    commit(&mut pool.acquire().await.unwrap(), &[delivery(vantage, BOOT, monotonic(), &[1])]).await.unwrap();
    let due = partition::due(&mut upkeep, DAY * 2).await.unwrap();
    assert!(due.behind >= DAY * 2, "{due:?}");
    sqlx::raw_sql("commit").execute(&mut reader).await.unwrap();
    // As a new holder would find it, in a new session.
    let mut next = PgConnection::connect_with(&pool.connect_options()).await.unwrap();
    let behind = retention::days(&mut next, DAY * 2, epoch).await.unwrap();
    assert_eq!(behind, Duration::ZERO);
    let left: i64 =
        sqlx::query_scalar("select count(*) from v_storage where day < (now() at time zone 'UTC')::date - 3")
            .fetch_one(&pool)
            .await
            .unwrap();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn b81_whatever_an_agent_says_of_time_its_rows_are_of_today_and_the_next_days_upkeep_is_well() {
    let (pool, vantage) = with_vantage().await;
    let mut connection = pool.acquire().await.unwrap();
    let mut batch = delivery(vantage, BOOT, monotonic(), &[1, 2, 3]);
    let ages = [Duration::ZERO, DAY * 365 * 56, Duration::from_secs(u64::from(u32::MAX))];
    for (item, age) in batch.items.iter_mut().zip(ages) {
        let taken = item.content.as_mut().unwrap();
        taken.age = age;
        // The agent's wall clock is of the year 9999.
        taken.detail = json!({ "clock_offset_ms": 251_000_000_000_000_i64 });
    }
    commit(&mut connection, &[batch]).await.unwrap();
    let of_today: i64 = sqlx::query_scalar(
        "select count(*) from observation where received_at > now() - interval '1 minute' and received_at <= clock_timestamp()",
    )
    .fetch_one(&pool)
    .await
    .unwrap();
    assert_eq!(of_today, 3);
    // A week of upkeep, a day at a time.
    let today = super::super::offset(database_now(&mut connection).await.unwrap()).date();
    let tomorrow = |n: i64| -> Date { today.checked_add(time::Duration::days(n)).unwrap() };
    for n in 1..=7 {
        assert_eq!(partition::ensure_around(&mut connection, tomorrow(n)).await.unwrap(), 1);
        assert_eq!(partition::ensure_around(&mut connection, tomorrow(n)).await.unwrap(), 0);
    }
    let strays: i64 = sqlx::query_scalar("select count(*) from pg_partitioned_table where partdefid <> 0")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(strays, 0, "there is no partition in which a row could lie that belongs nowhere");
    let mut transaction = connection.begin().await.unwrap();
    let step = crate::store::figures::count_log(&mut transaction).await.unwrap();
    transaction.commit().await.unwrap();
    assert!(!step.more);
}

#[tokio::test]
async fn at_the_cap_of_the_embedded_database_each_look_drops_the_oldest_day_until_two_are_left() {
    let (pool, _, mut upkeep) = filled(5, 3).await;
    // A coordinator that was off for two days: days go one at a time also across the hole.
    for day in [3, 2] {
        let statement = format!(
            "do $$ begin execute format('drop table observation_%s',
                 to_char((now() at time zone 'UTC')::date - {day}, 'YYYYMMDD')); end $$"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(&mut upkeep).await.unwrap();
    }
    count_all(&mut upkeep).await;
    let mut holder = PgConnection::connect_with(&pool.connect_options()).await.unwrap();
    let epoch = lease_taken(&mut holder).await;
    let (room, cap) = (crate::room::Room::default(), 20 << 30);
    let ages = "select array_agg(distinct (now() at time zone 'UTC')::date - to_date(right(c.relname, 8), 'YYYYMMDD'))
                from pg_inherits i join pg_class c on c.oid = i.inhrelid
                where i.inhparent = 'observation'::regclass and to_date(right(c.relname, 8), 'YYYYMMDD') <= (now() at time zone 'UTC')::date";
    for left in [vec![0, 1, 4], vec![0, 1], vec![0, 1]] {
        let days = partition::span(&mut upkeep).await.unwrap();
        room.measured(cap, cap, 100 << 30, days);
        let behind = retention::days(&mut upkeep, room.keep(DAY * 30), epoch).await.unwrap();
        assert_eq!(behind, Duration::ZERO);
        let there: Vec<i32> = sqlx::query_scalar(ages).fetch_one(&pool).await.unwrap();
        assert_eq!(there, left);
    }
}
