//! A batch as rows, or what is wrong with it. One bad observation costs itself only.

use std::time::Duration;

use parallax_decide::observation::{Fact, Group, Lane, Outcome};
use parallax_decide::topology::Topology;
use parallax_proto::{BATCH_OBSERVATIONS_MAX, v1};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::ingest::life::Life;
use crate::store::commit::Item;
use crate::store::log::NewObservation;
use crate::store::refusal::Refused;
use crate::store::vantage::VantageId;

mod check;
mod connection;
mod field;
mod record;
mod resolution;
#[cfg(test)]
mod tests;
mod words;

/// Longest probe that is believed, in microseconds: an hour.
const DURATION_US_MAX: u64 = 3_600_000_000;

/// Longest age that is recorded: older ones are given this. They are history anyhow.
const AGE_MAX: Duration = Duration::from_secs(90 * 24 * 3600);

/// Highest number of an observation: a thousand a second for thirty years. Sums over gaps and starts
/// must fit a `bigint`, or one agent could break every page that adds them up.
const SEQUENCE_MAX: i64 = 1 << 40;

/// Word for the kind of fault, and its particulars.
type Fault = (&'static str, String);

/// What a batch is held against.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// Who sent it.
    pub vantage: VantageId,
    /// The start of the agent that said hello on this stream.
    pub boot: Uuid,
    /// What it was assigned.
    pub topology: &'a Topology,
    /// What proofs of life are held against; none: nobody looks at them.
    pub life: Option<Life<'a>>,
}

/// A batch, checked.
#[derive(Debug, Clone)]
pub struct Checked {
    /// The start that numbered it.
    pub boot: Uuid,
    /// Which of its numberings.
    pub lane: Lane,
    /// By rising number.
    pub items: Vec<Item>,
    /// Observations without a usable number, with the number they claim.
    pub stray: Vec<(u64, Refused)>,
}

/// Identity of a start: 32 hex digits.
///
/// # Errors
/// When it is something else, or all zero.
pub fn boot_id(text: &str) -> Result<Uuid, Fault> {
    let hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match Uuid::try_parse(text) {
        Ok(boot) if hex && !boot.is_nil() => Ok(boot),
        Ok(_) | Err(_) => Err(("bad_boot_id", format!("boot_id of {} bytes is not 32 hex digits", text.len()))),
    }
}

/// Checks a batch.
///
/// # Errors
/// When the whole cannot be taken: an unusable boot id, an unknown lane, no observation, or too many.
pub fn batch(batch: &v1::Batch, context: Context<'_>) -> Result<Checked, Fault> {
    let boot = boot_id(&batch.boot_id)?;
    let lane = words::lane(batch.lane)?;
    let count = batch.observations.len();
    if count == 0 || count > BATCH_OBSERVATIONS_MAX {
        return Err(("bad_batch", format!("{count} observations; a batch holds 1 to {BATCH_OBSERVATIONS_MAX}")));
    }
    let mut checked = Checked { boot, lane, items: Vec::with_capacity(count), stray: Vec::new() };
    let mut last = 0;
    // An age of an earlier start is by another monotonic clock and means nothing.
    let current = boot == context.boot || batch.ages_hold;
    let refused = |(reason, detail): Fault| Refused { vantage: context.vantage, reason, detail };
    for one in &batch.observations {
        match i64::try_from(one.sequence) {
            Ok(sequence) if sequence > last && sequence <= SEQUENCE_MAX => {
                last = sequence;
                let content = observation(one, current, context).map_err(refused);
                checked.items.push(Item { sequence, content });
            }
            Ok(_) | Err(_) => {
                let fault = if one.sequence > SEQUENCE_MAX.unsigned_abs() {
                    ("out_of_range", format!("number {}; at most {SEQUENCE_MAX}", one.sequence))
                } else {
                    ("sequence_not_rising", format!("number {} follows {last}", one.sequence))
                };
                checked.stray.push((one.sequence, refused(fault)));
            }
        }
    }
    Ok(checked)
}

fn observation(wire: &v1::Observation, current: bool, context: Context<'_>) -> Result<NewObservation, Fault> {
    let purpose = words::purpose(wire.purpose)?;
    if wire.duration_us > DURATION_US_MAX {
        return Err(("out_of_range", format!("duration of {} us", wire.duration_us)));
    }
    let task_id = i64::try_from(wire.task_id).map_err(|_| ("out_of_range", format!("task {}", wire.task_id)))?;
    let topology = context.topology;
    let age = if current { age_of(wire.age_ms) } else { Duration::ZERO };
    let Taken { fact, detail, lost_ago } = match &wire.fact {
        Some(v1::observation::Fact::Resolution(one)) => resolution::resolution(one, topology)?,
        Some(v1::observation::Fact::Connection(one)) => connection::connection(one, context, current.then_some(age))?,
        Some(v1::observation::Fact::EndpointCheck(one)) => check::endpoint_check(one, topology)?,
        Some(v1::observation::Fact::ControlCheck(one)) => check::control_check(one, topology)?,
        Some(v1::observation::Fact::Path(one)) => record::path(one)?,
        Some(v1::observation::Fact::Loss(one)) => record::loss(one, current)?,
        Some(v1::observation::Fact::Missed(one)) => record::missed(one, topology)?,
        None => return Err(("no_fact", "an observation without a fact of a known kind".to_owned())),
    };
    let outcome = fact.outcome();
    if !outcome.fits(fact.kind()) {
        return Err(("misfit", format!("a {} cannot end with {outcome}", fact.kind())));
    }
    if wire.duration_us == 0 && takes_time(outcome) {
        return Err(("contradiction", format!("outcome {outcome} after 0 us: nothing was measured")));
    }
    Ok(NewObservation {
        of_earlier_start: !current,
        late_after: late_after(topology),
        age,
        purpose,
        task_id: (task_id != 0).then_some(task_id),
        duration_us: i64::try_from(wire.duration_us).unwrap_or(i64::MAX),
        fact,
        detail: Value::Object(detail),
        lost_ago,
    })
}

/// A fact with its particulars.
struct Taken {
    fact: Fact,
    detail: Map<String, Value>,
    /// Of a loss: how long ago the first and the last ended, at sending.
    lost_ago: Option<(Duration, Duration)>,
}

impl Taken {
    fn new(fact: Fact, detail: Map<String, Value>) -> Self {
        Self { fact, detail, lost_ago: None }
    }
}

fn age_of(ms: u64) -> Duration {
    Duration::from_millis(ms).min(AGE_MAX)
}

/// Whether an outcome needs packets to have come and gone, or a deadline to have passed.
fn takes_time(outcome: Outcome) -> bool {
    match outcome.group() {
        Group::Works | Group::Reply | Group::Dns | Group::Tls | Group::Certificate | Group::Http => true,
        // Without a route the kernel answers at once.
        Group::Network | Group::Own | Group::Refused | Group::Record => false,
    }
}

/// Older than two rounds is history: the next round has spoken since.
fn late_after(topology: &Topology) -> Duration {
    let policy = &topology.policy;
    2 * policy.canary_every.max(policy.node_every).max(policy.control_every)
}
