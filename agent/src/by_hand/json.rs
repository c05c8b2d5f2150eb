//! What was seen, as one JSON document. Fields are only ever added; `schema` rises when that is broken.

use serde_json::{Value, json};

use super::look::Seen;
use super::told::{reached, sentences, verdict};
use crate::clock::micros;

/// The document's version.
const SCHEMA: u32 = 1;

/// Everything. Durations are microseconds, 0 where a stage was not reached.
#[must_use]
pub fn document(seen: &Seen) -> Value {
    let resolvers: Vec<Value> = seen
        .asked
        .iter()
        .map(|asked| {
            let answers: Vec<Value> = asked
                .answers
                .iter()
                .map(|(answer, kept, duration)| {
                    json!({
                        "family": answer.family,
                        "outcome": answer.outcome,
                        "addresses": answer.addresses,
                        "ttl_s": answer.ttl_s,
                        "server": kept.server,
                        "extended_error": kept.extended_error,
                        "authentic_data": kept.authentic_data,
                        "chain": kept.reply.as_ref().map(|reply| &reply.chain),
                        "odd_replies": kept.odd_replies.len(),
                        "duration_us": micros(*duration),
                    })
                })
                .collect();
            let endpoint = asked.endpoint.as_ref().map(|(check, kept, duration)| {
                json!({
                    "address": check.address,
                    "stage": check.stage,
                    "outcome": check.outcome,
                    "bootstrap_us": micros(kept.stages.bootstrap),
                    "tcp_us": micros(kept.stages.tcp),
                    "tls_us": micros(kept.stages.tls),
                    "http_us": micros(kept.stages.http),
                    "dns_us": micros(kept.stages.dns),
                    "http_status": kept.http_status,
                    "remark": kept.remark,
                    "duration_us": micros(*duration),
                })
            });
            json!({ "resolver": asked.resolver.name, "answers": answers, "endpoint": endpoint })
        })
        .collect();
    let addresses: Vec<Value> = seen
        .tried
        .iter()
        .map(|tried| {
            json!({
                "address": tried.connection.address,
                "port": tried.connection.port,
                "outcome": tried.connection.outcome,
                "attempts": tried.connection.attempts,
                "attempts_connected": tried.connection.attempts_connected,
                "tcp_us": micros(tried.kept.tcp),
                "tls_us": micros(tried.kept.tls),
                "given_by": tried.given_by,
                "duration_us": micros(tried.duration),
            })
        })
        .collect();
    json!({
        "schema": SCHEMA,
        "name": seen.wanted.name,
        "verdict": verdict(seen).word(),
        "says": sentences(seen),
        "controls": { "reached": reached(seen), "of": seen.controls.len(), "outcomes": seen.controls },
        "resolvers": resolvers,
        "addresses": addresses,
    })
}
