//! What is no measurement of a subject: a path, observations that were dropped, rounds that did not run.

use parallax_decide::observation::{Fact, Loss, LossReason, Missed, Path};
use parallax_decide::topology::Topology;
use parallax_proto::{HOPS_MAX, v1};
use serde_json::{Map, Value};

use super::field::{
    address, address_or_none, at_most, control, keep, node, not_assigned, port, resolver, times, watched_name,
};
use super::{Fault, SEQUENCE_MAX, Taken, age_of, boot_id, words};

/// Largest packet of IP, in bytes.
const MTU_MAX: u32 = 65_535;

/// Groups of subjects whose rounds an agent may miss together.
const GROUPS: [&str; 4] = ["canaries", "nodes", "controls", "endpoints"];

pub(super) fn path(wire: &v1::Path) -> Result<Taken, Fault> {
    let outcome = words::outcome(wire.outcome)?;
    at_most("hops", wire.hops.len(), HOPS_MAX)?;
    if wire.path_mtu > MTU_MAX {
        return Err(("out_of_range", format!("path_mtu {}; at most {MTU_MAX}", wire.path_mtu)));
    }
    let (mut hops, mut last_hop) = (Vec::new(), None);
    for hop in &wire.hops {
        let from = address_or_none(&hop.address)?;
        last_hop = from.or(last_hop);
        if !(1..=u32::from(u8::MAX)).contains(&hop.ttl) {
            return Err(("out_of_range", format!("hop with TTL {}", hop.ttl)));
        }
        let mut kept = Map::new();
        kept.insert("ttl".to_owned(), hop.ttl.into());
        keep(&mut kept, "address", from.map(|from| from.to_string()));
        times(&mut kept, [("rtt_us", hop.rtt_us)])?;
        hops.push(Value::Object(kept));
    }
    let mut detail = Map::new();
    detail.insert("port".to_owned(), port(wire.port)?.into());
    keep(&mut detail, "hops", hops);
    keep(&mut detail, "path_mtu", wire.path_mtu);
    Ok(Taken::new(Fact::Path(Path { address: address(&wire.address)?, outcome, last_hop }), detail))
}

/// `current`: whether the batch is of the start that said hello: only then are its ages by a clock that
/// still runs.
pub(super) fn loss(wire: &v1::Loss, current: bool) -> Result<Taken, Fault> {
    let reason = words::loss_reason(wire.reason)?;
    let lane = words::lane(wire.lane)?;
    let boot = boot_id(&wire.boot_id)?;
    let sequence = |number: u64| match i64::try_from(number) {
        Ok(number) if number <= SEQUENCE_MAX => Ok(number),
        Ok(_) | Err(_) => Err(("out_of_range", format!("number {number}; at most {SEQUENCE_MAX}"))),
    };
    let (first, last) = (sequence(wire.first_sequence)?, sequence(wire.last_sequence)?);
    // Damage may have taken the numbers as well.
    let unknown = reason == LossReason::Damaged && last == 0;
    if first > last || (first == 0 && !unknown) {
        return Err(("contradiction", format!("lost from number {first} to {last}")));
    }
    let count = sequence(wire.count)?;
    if !unknown && (count == 0 || count > last - first + 1) {
        return Err(("contradiction", format!("{count} lost between number {first} and {last}")));
    }
    if wire.first_age_ms < wire.last_age_ms {
        return Err(("contradiction", "the first that was lost is younger than the last".to_owned()));
    }
    let mut detail = Map::new();
    for (key, value) in [
        ("reason", Value::from(reason.word())),
        ("count", count.into()),
        ("lane", lane.word().into()),
        ("first_sequence", first.into()),
        ("last_sequence", last.into()),
        ("boot_id", boot.simple().to_string().into()),
    ] {
        detail.insert(key.to_owned(), value);
    }
    let fact = Fact::Loss(Loss { reason, count: wire.count });
    let known = current && !unknown;
    let lost_ago = known.then(|| (age_of(wire.first_age_ms), age_of(wire.last_age_ms)));
    Ok(Taken { fact, detail, lost_ago })
}

pub(super) fn missed(wire: &v1::Missed, topology: &Topology) -> Result<Taken, Fault> {
    let reason = words::missed_reason(wire.reason)?;
    if wire.count == 0 || wire.count > SEQUENCE_MAX.unsigned_abs() {
        return Err(("out_of_range", format!("{} missed rounds", wire.count)));
    }
    let what = wire.what.as_str();
    let known = GROUPS.contains(&what)
        || watched_name(what, topology).is_ok()
        || node(what, topology).is_ok()
        || control(what, topology).is_ok()
        || resolver(what, topology).is_ok();
    if !known {
        return Err(not_assigned("what was missed,", &what.chars().take(64).collect::<String>()));
    }
    let mut detail = Map::new();
    detail.insert("reason".to_owned(), reason.word().into());
    detail.insert("what".to_owned(), what.into());
    detail.insert("count".to_owned(), wire.count.into());
    Ok(Taken::new(Fact::Missed(Missed { reason, count: wire.count }), detail))
}
