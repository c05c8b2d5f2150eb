//! A batch as rows, or what is wrong with it. One bad observation costs itself only.

use std::time::Duration;

use parallax_decide::names::{ControlName, DomainName, NodeName, ResolverName};
use parallax_decide::observation::{
    Connection, ConnectionOutcome, ControlCheck, EndpointCheck, Fact, Family, Resolution, ResolutionOutcome, Target,
};
use parallax_decide::topology::Topology;
use parallax_proto::{ADDRESSES_MAX, BATCH_OBSERVATIONS_MAX, TEXT_BYTES_MAX, v1};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::convert::address;
use crate::store::commit::Item;
use crate::store::log::NewObservation;
use crate::store::refusal::Refused;
use crate::store::vantage::VantageId;

#[cfg(test)]
mod tests;
mod words;

/// Own attempts of one probe; four are the rule.
const ATTEMPTS_MAX: u32 = 16;

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
}

/// A batch, checked.
#[derive(Debug, Clone)]
pub struct Checked {
    /// The start that numbered it.
    pub boot: Uuid,
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
/// When the whole cannot be taken: an unusable boot id, no observation, or too many.
pub fn batch(batch: &v1::Batch, context: Context<'_>) -> Result<Checked, Fault> {
    let boot = boot_id(&batch.boot_id)?;
    let count = batch.observations.len();
    if count == 0 || count > BATCH_OBSERVATIONS_MAX {
        return Err(("bad_batch", format!("{count} observations; a batch holds 1 to {BATCH_OBSERVATIONS_MAX}")));
    }
    let mut checked = Checked { boot, items: Vec::with_capacity(count), stray: Vec::new() };
    let mut last = 0;
    let refused = |(reason, detail): Fault| Refused { vantage: context.vantage, reason, detail };
    for one in &batch.observations {
        match i64::try_from(one.sequence) {
            Ok(sequence) if sequence > last && sequence <= SEQUENCE_MAX => {
                last = sequence;
                let content = observation(one, boot, context).map_err(refused);
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

fn observation(wire: &v1::Observation, boot: Uuid, context: Context<'_>) -> Result<NewObservation, Fault> {
    let purpose = words::purpose(wire.purpose)?;
    if wire.duration_us > DURATION_US_MAX {
        return Err(("out_of_range", format!("duration of {} us", wire.duration_us)));
    }
    let task_id = i64::try_from(wire.task_id).map_err(|_| ("out_of_range", format!("task {}", wire.task_id)))?;
    let topology = context.topology;
    let (fact, detail) = match &wire.fact {
        Some(v1::observation::Fact::Resolution(one)) => resolution(one, topology)?,
        Some(v1::observation::Fact::Connection(one)) => connection(one, topology)?,
        Some(v1::observation::Fact::EndpointCheck(one)) => endpoint_check(one, topology)?,
        Some(v1::observation::Fact::ControlCheck(one)) => control_check(one, topology)?,
        None => return Err(("no_fact", "an observation without a fact of a known kind".to_owned())),
    };
    // An age of an earlier start is by another monotonic clock and means nothing.
    let current = boot == context.boot;
    let age = if current { Duration::from_millis(wire.age_ms).min(AGE_MAX) } else { Duration::ZERO };
    Ok(NewObservation {
        late: !current || age > late_after(topology),
        age,
        purpose,
        task_id: (task_id != 0).then_some(task_id),
        duration_us: i64::try_from(wire.duration_us).unwrap_or(i64::MAX),
        fact,
        detail: Value::Object(detail),
    })
}

/// Older than two rounds is history: the next round has spoken since.
fn late_after(topology: &Topology) -> Duration {
    let policy = &topology.policy;
    2 * policy.canary_every.max(policy.node_every).max(policy.control_every)
}

fn resolution(wire: &v1::Resolution, topology: &Topology) -> Result<(Fact, Map<String, Value>), Fault> {
    let outcome = words::resolution_outcome(wire.outcome)?;
    let family = words::family(wire.family)?;
    if wire.addresses.len() > ADDRESSES_MAX {
        return Err(("too_large", format!("{} addresses; at most {ADDRESSES_MAX}", wire.addresses.len())));
    }
    let addresses = wire.addresses.iter().map(|bytes| address(bytes)).collect::<Result<Vec<_>, _>>()?;
    if addresses.iter().any(|one| Family::of(*one) != family) {
        return Err(("contradiction", "an address of the other family".to_owned()));
    }
    if (outcome == ResolutionOutcome::Answered) == addresses.is_empty() {
        return Err(("contradiction", format!("outcome {outcome} with {} addresses", addresses.len())));
    }
    if wire.ede_plus_one > 65_536 {
        return Err(("out_of_range", format!("extended DNS error {}", wire.ede_plus_one - 1)));
    }
    let mut detail = Map::new();
    if wire.ede_plus_one > 0 {
        detail.insert("ede".to_owned(), (wire.ede_plus_one - 1).into());
    }
    if wire.authentic_data {
        detail.insert("ad".to_owned(), true.into());
    }
    let fact = Resolution {
        name: watched_name(&wire.name, topology)?,
        resolver: resolver(&wire.resolver, topology)?,
        family,
        outcome,
        addresses,
        // The column is signed; a TTL with its top bit set is nonsense (RFC 2181, 8).
        ttl_s: wire.ttl_s.min(i32::MAX.unsigned_abs()),
    };
    Ok((Fact::Resolution(fact), detail))
}

fn connection(wire: &v1::Connection, topology: &Topology) -> Result<(Fact, Map<String, Value>), Fault> {
    let outcome = words::connection_outcome(wire.outcome)?;
    let target = match &wire.target {
        Some(v1::connection::Target::Name(text)) => Target::Name(watched_name(text, topology)?),
        Some(v1::connection::Target::Node(text)) => Target::Node(node(text, topology)?),
        None => return Err(("no_target", "a connection without a target of a known kind".to_owned())),
    };
    let port = match u16::try_from(wire.port) {
        Ok(port) if port > 0 => port,
        Ok(_) | Err(_) => return Err(("out_of_range", format!("port {}", wire.port))),
    };
    if wire.attempts > ATTEMPTS_MAX || wire.attempts_connected > wire.attempts {
        let (made, connected) = (wire.attempts, wire.attempts_connected);
        return Err(("contradiction", format!("{connected} of {made} attempts connected; at most {ATTEMPTS_MAX}")));
    }
    let claims_success = matches!(outcome, ConnectionOutcome::TlsOk | ConnectionOutcome::TcpOk);
    if claims_success && wire.attempts_connected == 0 {
        return Err(("contradiction", format!("outcome {outcome} without a connected attempt")));
    }
    let narrow = |count: u32| u16::try_from(count).unwrap_or(u16::MAX);
    let fact = Connection {
        target,
        address: address(&wire.address)?,
        port,
        outcome,
        attempts: narrow(wire.attempts),
        attempts_connected: narrow(wire.attempts_connected),
    };
    Ok((Fact::Connection(fact), times([("tcp_us", wire.tcp_us), ("tls_us", wire.tls_us)])))
}

fn endpoint_check(wire: &v1::EndpointCheck, topology: &Topology) -> Result<(Fact, Map<String, Value>), Fault> {
    let stage = words::stage(wire.stage)?;
    let outcome = words::stage_outcome(wire.outcome)?;
    let mut detail = times([("tcp_us", wire.tcp_us), ("tls_us", wire.tls_us), ("http_us", wire.http_us)]);
    if wire.http_status > 0 {
        detail.insert("http_status".to_owned(), wire.http_status.into());
    }
    let fact = EndpointCheck {
        resolver: resolver(&wire.resolver, topology)?,
        address: address(&wire.address)?,
        stage,
        outcome,
    };
    Ok((Fact::EndpointCheck(fact), detail))
}

fn control_check(wire: &v1::ControlCheck, topology: &Topology) -> Result<(Fact, Map<String, Value>), Fault> {
    let control: ControlName = name("control", &wire.control)?;
    if !topology.controls.contains_key(&control) {
        return Err(not_assigned("control", &wire.control));
    }
    let fact = ControlCheck { control, outcome: words::connection_outcome(wire.outcome)? };
    Ok((Fact::ControlCheck(fact), Map::new()))
}

/// A canary, or a service's host name.
fn watched_name(text: &str, topology: &Topology) -> Result<DomainName, Fault> {
    let found: DomainName = name("name", text)?;
    let watched = topology.canaries.contains_key(&found) || topology.services.values().any(|s| s.hostname == found);
    if watched { Ok(found) } else { Err(not_assigned("name", text)) }
}

fn resolver(text: &str, topology: &Topology) -> Result<ResolverName, Fault> {
    let found: ResolverName = name("resolver", text)?;
    if topology.resolvers.contains_key(&found) { Ok(found) } else { Err(not_assigned("resolver", text)) }
}

fn node(text: &str, topology: &Topology) -> Result<NodeName, Fault> {
    let found: NodeName = name("node", text)?;
    if topology.nodes.contains_key(&found) { Ok(found) } else { Err(not_assigned("node", text)) }
}

fn name<T: std::str::FromStr<Err: ToString>>(what: &str, text: &str) -> Result<T, Fault> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(("too_large", format!("a {what} of {} bytes; at most {TEXT_BYTES_MAX}", text.len())));
    }
    text.parse().map_err(|error: T::Err| ("bad_name", format!("{what}: {}", error.to_string())))
}

fn not_assigned(what: &str, text: &str) -> Fault {
    ("not_assigned", format!("{what} '{text}' is not in the assignment"))
}

fn times<const N: usize>(stages: [(&str, u64); N]) -> Map<String, Value> {
    stages.into_iter().filter(|(_, us)| *us > 0).map(|(key, us)| (key.to_owned(), us.into())).collect()
}
