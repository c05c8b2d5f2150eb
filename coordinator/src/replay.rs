//! The stored log, run once more through the code of live detection, beside what really happened. Nothing is written.
//!
//! - [`course`]: one run over the log: state, incidents, and the changes that would be made.
//! - [`remedies`]: which changes are in force in it: those that were really made, or those of a rehearsal.
//! - [`onset`]: when a fault began, as the log shows it. [`beside`]: which replayed incident is which stored one.
//!
//! Judging happens at each commit of the log and in between as often as live detection looks (`step`), in those spans only in
//! which a coordinator really judged, and with the configuration of the day. What cannot be rehearsed is the world: it is
//! seen as it was measured then, with the changes that were really made and at the intervals of then.

use std::time::Duration;

use parallax_decide::time::Timestamp;
use parallax_decide::topology::{Policy, Topology};
use sqlx::PgConnection;

use crate::judging::{self, PAGE_MAX};
use crate::store::log::{Position, observations_after};
use crate::store::plan::of_span;
use crate::store::read::replay::{self as rows, InForce, Really};
use crate::store::{StoreError, database_now};
use course::Course;
use remedies::{Kept, Remedies};

pub mod beside;
pub mod course;
pub mod onset;
pub mod remedies;

/// As often as live detection looks when nothing is new.
pub const STEP: Duration = Duration::from_millis(250);

/// That somebody judges is noted this often: the end of a span is known to within it.
const WATCH_NOTED_EVERY: Duration = Duration::from_secs(5);

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Begin.
    pub from: Timestamp,
    /// End.
    pub to: Timestamp,
    /// Another policy to rehearse, beside that of the day.
    pub policy: Option<Policy>,
    /// How often judging happens when nothing is new.
    pub step: Duration,
}

/// Why there is no replay.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The database refused, or a row cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The log is empty.
    #[error("the log is empty")]
    Empty,
    /// The log begins after the span.
    #[error("the log begins after the span that was asked for")]
    NoLog {
        /// When its oldest row was received.
        begins: Timestamp,
    },
    /// No configuration was ever in force.
    #[error("no configuration was in force until then")]
    NoConfiguration,
}

/// What came out.
#[derive(Debug)]
pub struct Outcome {
    /// The span, cut where the log ends it.
    pub from: Timestamp,
    /// Its end.
    pub to: Timestamp,
    /// Now, database clock.
    pub now: Timestamp,
    /// When the oldest row of the log was received.
    pub log_begins: Timestamp,
    /// From when on the log was read.
    pub read_from: Timestamp,
    /// Observations that were folded, warm-up included.
    pub observations: u64,
    /// Rows that this version cannot read.
    pub unreadable: u64,
    /// Moments that were judged, warm-up included.
    pub judged: u64,
    /// Time between `from` and `to` in which no coordinator judged.
    pub unwatched: Duration,
    /// Numbers of the configurations that were in force.
    pub versions: Vec<i32>,
    /// Incidents as they really were.
    pub really: Vec<Really>,
    /// Plans as they really were, each with the key of its incident.
    pub plans: Vec<Kept>,
    /// The replay under the configuration of the day.
    pub replayed: Course,
    /// The rehearsal under another policy.
    pub rehearsed: Option<Course>,
    /// Incidents that were open when the replay began and whose finding cannot be read.
    pub not_carried: usize,
}

/// Replays. `told` hears how far it is.
///
/// # Errors
/// When there is nothing to replay, or the database refuses.
pub async fn run(
    connection: &mut PgConnection,
    asked: &Asked,
    told: &mut (dyn FnMut(Timestamp) + Send),
) -> Result<Outcome, ReplayError> {
    let now = database_now(&mut *connection).await?;
    let log_begins = rows::log_begins(&mut *connection).await?.ok_or(ReplayError::Empty)?;
    let to = asked.to;
    if log_begins > to {
        return Err(ReplayError::NoLog { begins: log_begins });
    }
    let from = asked.from.max(log_begins);
    let days = Days::of(rows::configurations(&mut *connection, from, to).await?);
    let days = days.ok_or(ReplayError::NoConfiguration)?;
    let policies = || days.all().map(|one| &one.topology.policy).chain(&asked.policy);
    // Judging begins early, so that what was about to open or to close at `from` is known then.
    let back = policies().map(Policy::looks_back).max().unwrap_or_default();
    let begin = from.minus(back).max(log_begins);
    let warm_up = policies().map(judging::warm_up).max().unwrap_or_default();
    let relapses = policies().map(|policy| policy.relapse_window).max().unwrap_or_default();

    let watched = rows::watched(&mut *connection, begin, to).await?;
    let really = rows::incidents(&mut *connection, begin, to).await?;
    let ids: Vec<_> = really.iter().map(|one| one.id).collect();
    let plans = of_span(&mut *connection, &ids, begin.minus(relapses), to).await?;
    let plan_ids: Vec<_> = plans.iter().map(|stored| stored.record.id).collect();
    let ended = rows::ended(&mut *connection, &plan_ids).await?;
    let records = rows::records_at(&mut *connection, begin).await?;
    let plans = remedies::as_they_were(plans, &really, &ended);

    let topology = days.at(begin);
    let stored = Remedies::as_stored(topology, &records, &plans);
    let mut replayed = Course::new(stored, None, begin, &really);
    let mut rehearsed = asked.policy.clone().map(|policy| {
        let rehearsed = Remedies::rehearsed(topology, &records, &plans, begin);
        Course::new(rehearsed, Some(policy), begin, &really)
    });
    let not_carried = really.iter().filter(|one| one.opened_at < begin && one.finding_at(begin).is_none()).count();

    let mut run = Run { step: asked.step, warm_up, observations: 0, unreadable: 0, told };
    // Of what was before the log nothing is known, whoever listened then.
    let spans = spans(&watched, begin, to, log_begins);
    for span in &spans {
        let mut courses: Vec<&mut Course> = std::iter::once(&mut replayed).chain(rehearsed.as_mut()).collect();
        run.span(connection, &days, *span, &mut courses).await?;
    }
    let (observations, unreadable) = (run.observations, run.unreadable);
    let watched_for: Duration = spans.iter().map(|span| span.end.since(span.start.max(from))).sum();
    Ok(Outcome {
        from,
        to,
        now,
        log_begins,
        read_from: begin.minus(warm_up).max(log_begins),
        observations,
        unreadable,
        judged: replayed.judged(),
        unwatched: to.min(now).since(from).saturating_sub(watched_for),
        versions: days.all().map(|one| one.number).collect(),
        really,
        plans,
        replayed,
        rehearsed,
        not_carried,
    })
}

/// A span in which a coordinator judged, as far as it is replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    /// Since when that coordinator heard its agents.
    began: Timestamp,
    /// First moment.
    start: Timestamp,
    /// Last moment.
    end: Timestamp,
}

fn spans(watched: &[(Timestamp, Timestamp)], begin: Timestamp, to: Timestamp, log_begins: Timestamp) -> Vec<Span> {
    let next = watched.iter().skip(1).map(|(began, _)| *began).chain(std::iter::once(Timestamp(i64::MAX)));
    let spans = watched.iter().zip(next).map(|((began, until), next)| Span {
        began: (*began).max(log_begins),
        start: (*began).max(begin),
        end: until.plus(WATCH_NOTED_EVERY).min(Timestamp(next.0.saturating_sub(1))).min(to),
    });
    spans.filter(|span| span.start <= span.end).collect()
}

/// The configurations of the span, in order of their coming into force; at least one.
#[derive(Debug)]
struct Days {
    first: InForce,
    later: Vec<InForce>,
}

impl Days {
    fn of(mut all: Vec<InForce>) -> Option<Self> {
        if all.is_empty() {
            return None;
        }
        let later = all.split_off(1);
        Some(Self { first: all.pop()?, later })
    }

    fn all(&self) -> impl Iterator<Item = &InForce> {
        std::iter::once(&self.first).chain(&self.later)
    }

    fn at(&self, moment: Timestamp) -> &Topology {
        &self.later.iter().rev().find(|one| one.at <= moment).unwrap_or(&self.first).topology
    }
}

/// What the spans have in common.
struct Run<'a> {
    step: Duration,
    warm_up: Duration,
    observations: u64,
    unreadable: u64,
    told: &'a mut (dyn FnMut(Timestamp) + Send),
}

impl Run<'_> {
    /// Follows the log through one span.
    async fn span(
        &mut self,
        connection: &mut PgConnection,
        days: &Days,
        span: Span,
        courses: &mut [&mut Course],
    ) -> Result<(), StoreError> {
        for course in courses.iter_mut() {
            course.start(days.at(span.start), span.began, span.start);
        }
        let mut position = Position::since(span.start.minus(self.warm_up));
        let mut reloads = days.later.iter().filter(|one| one.at > span.start && one.at <= span.end).peekable();
        'log: loop {
            let page = observations_after(&mut *connection, position, PAGE_MAX).await?;
            self.unreadable += u64::try_from(page.unreadable.len()).unwrap_or(u64::MAX);
            for observation in &page.observations {
                if observation.received_at > span.end {
                    break 'log;
                }
                while let Some(reload) = reloads.next_if(|one| one.at <= observation.received_at) {
                    courses.iter_mut().for_each(|course| course.reload(&reload.topology, reload.at, self.step));
                }
                for course in courses.iter_mut() {
                    course.apply(observation, self.step);
                }
                self.observations += 1;
            }
            if let Some(last) = page.observations.last() {
                (self.told)(last.received_at);
            }
            match page.behind {
                Some(behind) if i64::try_from(page.rows).is_ok_and(|read| read == PAGE_MAX) => position = behind,
                Some(_) | None => break,
            }
        }
        for reload in reloads {
            courses.iter_mut().for_each(|course| course.reload(&reload.topology, reload.at, self.step));
        }
        courses.iter_mut().for_each(|course| course.finish(span.end, self.step));
        (self.told)(span.end);
        Ok(())
    }
}
