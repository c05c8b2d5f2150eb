//! The log and the verdicts counted hour by hour, for the years after the rows have gone.
//!
//! The log is followed in commit order. What a step counts and how far it got are one transaction, so
//! that a step that is broken off, or made by a holder whose lease has gone, counts nothing, and no
//! row counts twice. A late row is added to the hour in which it was measured.

use std::time::Duration;

use parallax_decide::time::Timestamp;
use sqlx::PgConnection;
use time::OffsetDateTime;

use super::log::STEP_BACK;
use super::{StoreError, database_now, offset, timestamp};

/// Rows of the log that one step counts at most: well below a second of work.
pub const ROWS_MAX: i64 = 50_000;

/// An hour of verdicts is counted this long after its end: what was judged in it is stored by then.
const SETTLED_AFTER: Duration = Duration::from_secs(60);

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Whether there is more to count at once.
    pub more: bool,
    /// How far the figures are behind the log now.
    pub behind: Duration,
}

/// Counts the next rows of the log. Part of a fenced transaction.
///
/// # Errors
/// When the database refuses.
pub async fn count_log(connection: &mut PgConnection) -> Result<Step, StoreError> {
    let position = begin(&mut *connection).await?;
    let from = position.received_at - STEP_BACK;
    // What can be seen of the rows behind the position is a beginning of them: ids rise in commit order.
    let last = sqlx::query!(
        "select id, received_at from observation
         where id > $1 and id <= $1 + $3 and received_at >= $2 order by id desc limit 1",
        position.observation_id,
        from,
        ROWS_MAX
    )
    .fetch_optional(&mut *connection)
    .await?;
    let Some(last) = last else {
        // Numbers that were never used are stepped over.
        let next = sqlx::query_scalar!(
            "select min(id) from observation where id > $1 and received_at >= $2",
            position.observation_id,
            from
        )
        .fetch_one(&mut *connection)
        .await?;
        let Some(next) = next else { return Ok(Step { more: false, behind: Duration::ZERO }) };
        sqlx::query!("update history_position set observation_id = $1, moved_at = clock_timestamp()", next - 1)
            .execute(connection)
            .await?;
        return Ok(Step { more: true, behind: Duration::ZERO });
    };
    count_probes(&mut *connection, position.observation_id, last.id, from).await?;
    count_answers(&mut *connection, position.observation_id, last.id, from).await?;
    sqlx::query!(
        "update history_position set observation_id = $1, received_at = greatest(received_at, $2), moved_at = clock_timestamp()",
        last.id,
        last.received_at
    )
    .execute(&mut *connection)
    .await?;
    let now = database_now(connection).await?;
    let more = last.id - position.observation_id >= ROWS_MAX;
    let behind = if more { now.since(timestamp(last.received_at)) } else { Duration::ZERO };
    Ok(Step { more, behind })
}

/// Counts verdicts of the next hour that is over. True: there may be another.
///
/// # Errors
/// When the database refuses.
pub async fn count_hour(connection: &mut PgConnection, now: Timestamp) -> Result<bool, StoreError> {
    let hour = begin(&mut *connection).await?.hour;
    let over = hour + Duration::from_secs(3600);
    if over + SETTLED_AFTER > offset(now) {
        return Ok(false);
    }
    sqlx::query!("delete from hourly_verdict where hour = $1", hour).execute(&mut *connection).await?;
    sqlx::query!(
        "insert into hourly_verdict (hour, subject_kind, subject, vantage, resolver, verdict, presence, seconds)
         select $1, v.subject_kind, v.subject, coalesce(v.vantage, ''), coalesce(v.resolver, ''), v.verdict, v.presence,
                sum(extract(epoch from upper(x) - lower(x)))
         from verdict v
         join watch w on tstzrange(w.began_at, w.until) && tstzrange($1, $2)
         cross join lateral (
             select tstzrange(v.at, v.until) * tstzrange(w.began_at, w.until) * tstzrange($1, $2) as x
         ) as common
         where tstzrange(v.at, v.until) && tstzrange($1, $2) and not isempty(x)
         group by v.subject_kind, v.subject, coalesce(v.vantage, ''), coalesce(v.resolver, ''), v.verdict, v.presence",
        hour,
        over
    )
    .execute(&mut *connection)
    .await?;
    // Hours without a word are stepped over: years may lie between two starts.
    sqlx::query!(
        "update history_position set hour = greatest($1::timestamptz, least(date_trunc('hour', $2::timestamptz, 'UTC'),
             coalesce((select date_trunc('hour', min(greatest(began_at, $1)), 'UTC') from watch where until > $1), 'infinity')))",
        over,
        offset(now)
    )
    .execute(connection)
    .await?;
    Ok(true)
}

/// Whether no row of this time of the log is still to be counted. The coordinator that runs the tasks asks before it
/// drops a day: what was not counted by then never will be.
///
/// # Errors
/// When the database refuses.
pub async fn are_counted(
    connection: &mut PgConnection,
    from: OffsetDateTime,
    until: OffsetDateTime,
) -> Result<bool, StoreError> {
    let position = sqlx::query!("select observation_id, received_at from history_position")
        .fetch_optional(&mut *connection)
        .await?;
    let after = match position {
        // Rows that come later than this one were received later, but for a step of the clock.
        Some(position) if until <= position.received_at - STEP_BACK => return Ok(true),
        Some(position) => position.observation_id,
        None => 0,
    };
    let waiting = sqlx::query_scalar!(
        r#"select exists (select from observation where received_at >= $1 and received_at < $2 and id > $3) as "waiting!""#,
        from,
        until,
        after
    );
    Ok(!waiting.fetch_one(connection).await?)
}

/// Removes hourly figures, epochs of answers and ended verdicts from before a time, at most `limit`
/// rows of each. Returns whether there may be more, and the oldest figure that is still there.
///
/// # Errors
/// When the database refuses.
pub async fn forget(
    connection: &mut PgConnection,
    before: Timestamp,
    limit: i64,
) -> Result<(bool, Option<Timestamp>), StoreError> {
    let before = offset(before);
    let mut most = 0;
    let done = sqlx::query!(
        "delete from hourly where ctid = any(array(select ctid from hourly where hour < $1 order by hour limit $2))",
        before,
        limit
    );
    most = most.max(done.execute(&mut *connection).await?.rows_affected());
    let done = sqlx::query!(
        "delete from hourly_verdict
         where ctid = any(array(select ctid from hourly_verdict where hour < $1 order by hour limit $2))",
        before,
        limit
    );
    most = most.max(done.execute(&mut *connection).await?.rows_affected());
    let done = sqlx::query!(
        "delete from answer_epoch
         where ctid = any(array(select ctid from answer_epoch where last_at < $1 order by last_at limit $2))",
        before,
        limit
    );
    most = most.max(done.execute(&mut *connection).await?.rows_affected());
    // One that holds stays, however old.
    let done = sqlx::query!(
        "delete from verdict
         where ctid = any(array(select ctid from verdict where tstzrange(at, until) << tstzrange($1, null) limit $2))",
        before,
        limit
    );
    most = most.max(done.execute(&mut *connection).await?.rows_affected());
    let oldest = sqlx::query_scalar!("select min(hour) from hourly").fetch_one(connection).await?;
    Ok((i64::try_from(most).is_ok_and(|most| most >= limit), oldest.map(timestamp)))
}

struct Position {
    observation_id: i64,
    received_at: OffsetDateTime,
    hour: OffsetDateTime,
}

/// The position, made before the first row when there is none.
async fn begin(connection: &mut PgConnection) -> Result<Position, StoreError> {
    sqlx::query!(
        "insert into history_position (observation_id, received_at, hour)
         select 0, to_timestamp(0),
                date_trunc('hour', coalesce((select min(began_at) from watch), clock_timestamp()), 'UTC')
         where not exists (select from history_position)
         on conflict do nothing"
    )
    .execute(&mut *connection)
    .await?;
    Ok(sqlx::query_as!(Position, "select observation_id, received_at, hour from history_position for update")
        .fetch_one(connection)
        .await?)
}

async fn count_probes(
    connection: &mut PgConnection,
    after: i64,
    to: i64,
    from: OffsetDateTime,
) -> Result<(), StoreError> {
    sqlx::query!(
        "with bucketed as (
             select date_trunc('hour', observed_at, 'UTC') as hour, vantage_id, kind, subject, coalesce(resolver, '') as resolver,
                    coalesce(family, family(address)::smallint, 0) as family, outcome,
                    least(floor(2 * ln(greatest(duration_us, 1)::float8) / ln(2::float8)), 60)::integer as bucket,
                    count(*) as n, count(*) filter (where late) as late, sum(duration_us) as total, max(duration_us) as longest
             from observation
             where id > $1 and id <= $2 and received_at >= $3
               and kind in ('resolution', 'connection', 'endpoint_check', 'control_check')
             group by 1, 2, 3, 4, 5, 6, 7, 8
         )
         insert into hourly as h (hour, vantage_id, kind, subject, resolver, family, outcome, probes, late,
                                  duration_us_total, duration_us_max, durations)
         select hour, vantage_id, kind, subject, resolver, family, outcome, sum(n), sum(late), sum(total), max(longest),
                jsonb_object_agg(bucket, n)
         from bucketed
         group by hour, vantage_id, kind, subject, resolver, family, outcome
         order by hour, vantage_id, kind, subject, resolver, family, outcome
         on conflict (hour, vantage_id, kind, subject, resolver, family, outcome) do update set
             probes = h.probes + excluded.probes,
             late = h.late + excluded.late,
             duration_us_total = h.duration_us_total + excluded.duration_us_total,
             duration_us_max = greatest(h.duration_us_max, excluded.duration_us_max),
             durations = (
                 select jsonb_object_agg(key, n) from (
                     select key, sum(value::bigint) as n
                     from (select * from jsonb_each_text(h.durations) union all select * from jsonb_each_text(excluded.durations)) as pair
                     group by key
                 ) as added
             )",
        after,
        to,
        from
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Turns resolutions into epochs: runs of the same set of addresses. The first run of each question
/// goes on with the epoch that is there when it is the same set and later.
async fn count_answers(
    connection: &mut PgConnection,
    after: i64,
    to: i64,
    from: OffsetDateTime,
) -> Result<(), StoreError> {
    sqlx::query!(
        "with asked as (
             select vantage_id, subject, resolver, family, observed_at, id, outcome, ttl_s,
                    coalesce((select array_agg(a order by a) from unnest(addresses) as a), '{}') as addresses
             from observation
             where id > $1 and id <= $2 and received_at >= $3 and kind = 'resolution' and resolver is not null
               and family is not null
         ),
         marked as (
             select *, (outcome, addresses) is distinct from (lag(outcome) over w, lag(addresses) over w) as begins
             from asked window w as (partition by vantage_id, subject, resolver, family order by observed_at, id)
         ),
         numbered as (
             select *, count(*) filter (where begins) over (partition by vantage_id, subject, resolver, family
                                                            order by observed_at, id) as run
             from marked
         ),
         runs as (
             select vantage_id, subject, resolver, family, run, min(observed_at) as began_at, max(observed_at) as last_at,
                    min(outcome) as outcome, min(addresses) as addresses, count(*) as resolutions,
                    min(ttl_s) filter (where outcome = 'answered') as ttl_s_min,
                    max(ttl_s) filter (where outcome = 'answered') as ttl_s_max
             from numbered group by vantage_id, subject, resolver, family, run
         ),
         placed as (
             select r.vantage_id, r.subject, r.resolver, r.family, r.run, r.last_at, r.outcome, r.addresses, r.resolutions,
                    r.ttl_s_min, r.ttl_s_max,
                    case when e.outcome = r.outcome and e.addresses = r.addresses then e.began_at
                         -- Another answer of the same microsecond is an epoch of its own.
                         when e.began_at = r.began_at then r.began_at + interval '1 microsecond'
                         else r.began_at end as began_at
             from runs r
             left join lateral (
                 select began_at, outcome, addresses from answer_epoch a
                 where a.vantage_id = r.vantage_id and a.subject = r.subject and a.resolver = r.resolver
                   and a.family = r.family and a.began_at <= r.began_at
                 order by began_at desc limit 1
             ) as e on r.run = 1
         )
         insert into answer_epoch as a (vantage_id, subject, resolver, family, began_at, last_at, outcome, addresses,
                                        resolutions, ttl_s_min, ttl_s_max)
         select distinct on (vantage_id, subject, resolver, family, began_at)
                vantage_id, subject, resolver, family, began_at, greatest(last_at, began_at), outcome, addresses, resolutions,
                ttl_s_min, ttl_s_max
         from placed order by vantage_id, subject, resolver, family, began_at, run desc
         on conflict (vantage_id, subject, resolver, family, began_at) do update set
             last_at = greatest(a.last_at, excluded.last_at),
             resolutions = a.resolutions + excluded.resolutions,
             ttl_s_min = least(a.ttl_s_min, excluded.ttl_s_min),
             ttl_s_max = greatest(a.ttl_s_max, excluded.ttl_s_max)",
        after,
        to,
        from
    )
    .execute(connection)
    .await?;
    Ok(())
}
