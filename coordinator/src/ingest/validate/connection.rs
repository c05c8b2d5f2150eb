//! Whether an address could be used.

use std::time::Duration;

use parallax_decide::observation::{Connection, Fact, Group, Kind, Outcome, Proof, Says, Target};
use parallax_proto::{ATTEMPTS_MAX, v1};
use serde_json::{Map, Value, json};

use super::field::{address, at_most, certificate, http_status, keep, node, port, times, watched_name};
use super::{Context, Fault, Taken, words};
use crate::ingest::life::{trouble, well_formed};

/// `age`: how long ago it ended, where that is known. What is of an earlier start proves nothing.
pub(super) fn connection(wire: &v1::Connection, context: Context<'_>, age: Option<Duration>) -> Result<Taken, Fault> {
    let topology = context.topology;
    let outcome = words::outcome(wire.outcome)?;
    let target = match &wire.target {
        Some(v1::connection::Target::Name(text)) => Target::Name(watched_name(text, topology)?),
        Some(v1::connection::Target::Node(text)) => Target::Node(node(text, topology)?),
        None => return Err(("no_target", "a connection without a target of a known kind".to_owned())),
    };
    let (made, connected) = (count(wire.attempts)?, count(wire.attempts_connected)?);
    if connected > made {
        return Err(("contradiction", format!("{connected} of {made} attempts connected")));
    }
    if outcome.says() == Says::Works && connected == 0 {
        return Err(("contradiction", format!("outcome {outcome} without a connected attempt")));
    }
    let mut detail = Map::new();
    times(&mut detail, [("tcp_us", wire.tcp_us), ("tls_us", wire.tls_us), ("http_us", wire.http_us)])?;
    http_status(&mut detail, wire.http_status)?;
    keep(&mut detail, "body_bytes", i64::try_from(wire.body_bytes).unwrap_or(i64::MAX));
    at_most("attempt", wire.attempt.len(), ATTEMPTS_MAX)?;
    let attempts = wire.attempt.iter().map(attempt).collect::<Result<Vec<_>, _>>()?;
    keep(&mut detail, "attempt", attempts);
    certificate(&mut detail, &wire.certificate_sha256)?;
    let small = words::outcome_or_none(wire.small_segments, Kind::Connection)?;
    if outcome == Outcome::PmtuBlackhole && small.is_none_or(|small| small.says() != Says::Works) {
        return Err((
            "contradiction",
            "outcome pmtu_blackhole without a try with small segments that worked".to_owned(),
        ));
    }
    keep(&mut detail, "small_segments", small.map(Outcome::word));
    let proof = wire.life.as_ref();
    if proof.is_some_and(|proof| !well_formed(proof)) {
        return Err(("out_of_range", "a proof of life whose key or signature has another length".to_owned()));
    }
    if let (Target::Node(node), Some(life), Some(age)) = (&target, context.life, age) {
        let found = life.proof(node, outcome.says() == Says::Works, proof, life.now.minus(age));
        keep(&mut detail, "proof", found.map(Proof::word));
        keep(&mut detail, "proof_trouble", proof.and_then(trouble));
    }
    let fact = Connection {
        target,
        address: address(&wire.address)?,
        port: port(wire.port)?,
        outcome,
        attempts: made,
        attempts_connected: connected,
    };
    Ok(Taken::new(Fact::Connection(fact), detail))
}

fn count(attempts: u32) -> Result<u16, Fault> {
    match u16::try_from(attempts) {
        Ok(count) if usize::from(count) <= ATTEMPTS_MAX => Ok(count),
        Ok(_) | Err(_) => Err(("too_large", format!("{attempts} attempts; at most {ATTEMPTS_MAX}"))),
    }
}

fn attempt(wire: &v1::Attempt) -> Result<Value, Fault> {
    let outcome = words::outcome(wire.outcome)?;
    // One own TCP attempt: what came after it is the connection's outcome.
    let fits = match outcome.group() {
        Group::Works => outcome == Outcome::TcpOk,
        Group::Network | Group::Own | Group::Refused => true,
        Group::Reply | Group::Dns | Group::Tls | Group::Certificate | Group::Http | Group::Record => false,
    };
    if !fits {
        return Err(("misfit", format!("an attempt cannot end with {outcome}")));
    }
    let mut kept = Map::new();
    kept.insert("started_ms".to_owned(), wire.started_ms.into());
    kept.insert("outcome".to_owned(), json!(outcome.word()));
    times(&mut kept, [("duration_us", wire.duration_us)])?;
    Ok(Value::Object(kept))
}
