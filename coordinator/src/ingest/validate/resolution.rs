//! What a resolver answered.

use parallax_decide::observation::{Fact, Family, Outcome, Resolution};
use parallax_decide::topology::Topology;
use parallax_proto::{ADDRESSES_MAX, CHAIN_MAX, FIRST_BYTES_MAX, NSID_BYTES_MAX, ODD_REPLIES_MAX, v1};
use serde_json::{Map, Value, json};

use super::field::{
    address_or_none, addresses, as_texts, at_most, keep, less_one, resolver, text, times, watched_name,
};
use super::{Fault, Taken, words};
use crate::hex::hex;

/// Largest response code with its extended bits (RFC 6891, 6.1.3: 12 bits).
const RCODE_MAX: u32 = 0xfff;

pub(super) fn resolution(wire: &v1::Resolution, topology: &Topology) -> Result<Taken, Fault> {
    let outcome = words::outcome(wire.outcome)?;
    let family = words::family(wire.family)?;
    let given = addresses("addresses", &wire.addresses, ADDRESSES_MAX)?;
    if given.iter().any(|one| Family::of(*one) != family) {
        return Err(("contradiction", "an address of the other family".to_owned()));
    }
    let answered = outcome == Outcome::Answered;
    if answered && given.is_empty() {
        return Err(("contradiction", "outcome answered without an address".to_owned()));
    }
    if wire.ede_plus_one > 65_536 {
        return Err(("out_of_range", format!("extended DNS error {}", wire.ede_plus_one - 1)));
    }
    let mut detail = Map::new();
    keep_code(&mut detail, "ede", wire.ede_plus_one);
    keep(&mut detail, "authentic_data", wire.authentic_data);
    keep(&mut detail, "server", address_or_none(&wire.server)?.map(|server| server.to_string()));
    keep(&mut detail, "validation", words::validation(wire.validation)?);
    if !answered {
        // Evidence for people, and nothing more: never compared, never contacted.
        keep(&mut detail, "addresses_not_used", as_texts(&given));
    }
    if let Some(one) = &wire.reply {
        if answered && one.rcode != 0 {
            return Err(("contradiction", format!("outcome answered with response code {}", one.rcode)));
        }
        detail.insert("reply".to_owned(), Value::Object(reply(one)?));
    }
    at_most("odd_replies", wire.odd_replies.len(), ODD_REPLIES_MAX)?;
    let odd = wire.odd_replies.iter().map(odd_reply).collect::<Result<Vec<_>, _>>()?;
    keep(&mut detail, "odd_replies", odd);
    let fact = Resolution {
        name: watched_name(&wire.name, topology)?,
        resolver: resolver(&wire.resolver, topology)?,
        family,
        outcome,
        addresses: if answered { given } else { Vec::new() },
        // The column is signed; a TTL with its top bit set is nonsense (RFC 2181, 8).
        ttl_s: wire.ttl_s.min(i32::MAX.unsigned_abs()),
    };
    Ok(Taken::new(Fact::Resolution(fact), detail))
}

/// 0 is a code, unlike an absent one.
fn keep_code(detail: &mut Map<String, Value>, key: &str, plus_one: u32) {
    if let Some(code) = less_one(plus_one) {
        detail.insert(key.to_owned(), code.into());
    }
}

fn reply(wire: &v1::Reply) -> Result<Map<String, Value>, Fault> {
    at_most("chain", wire.chain.len(), CHAIN_MAX)?;
    at_most("ttls_s", wire.ttls_s.len(), ADDRESSES_MAX)?;
    at_most("bytes of nsid", wire.nsid.len(), NSID_BYTES_MAX)?;
    at_most("first_bytes", wire.first_bytes.len(), FIRST_BYTES_MAX)?;
    if wire.rcode > RCODE_MAX || wire.flags > u32::from(u16::MAX) {
        return Err(("out_of_range", format!("response code {}, flags {:#x}", wire.rcode, wire.flags)));
    }
    let chain = wire.chain.iter().map(|name| text("a name of the chain", name)).collect::<Result<Vec<_>, _>>()?;
    let mut kept = Map::new();
    kept.insert("rcode".to_owned(), wire.rcode.into());
    kept.insert("flags".to_owned(), wire.flags.into());
    kept.insert("size".to_owned(), wire.size.into());
    keep(&mut kept, "chain", chain);
    keep(&mut kept, "ttls_s", wire.ttls_s.clone());
    keep(&mut kept, "nsid", hex(&wire.nsid));
    keep(&mut kept, "trailing", wire.trailing);
    keep(&mut kept, "transport", words::transport(wire.transport)?);
    keep(&mut kept, "truncated", wire.truncated);
    keep(&mut kept, "without_edns", wire.without_edns);
    keep(&mut kept, "reconnected", wire.reconnected);
    keep_code(&mut kept, "negative_ttl", wire.negative_ttl_plus_one);
    keep(&mut kept, "first_bytes", hex(&wire.first_bytes));
    Ok(kept)
}

fn odd_reply(wire: &v1::OddReply) -> Result<Value, Fault> {
    let given = addresses("addresses of an odd reply", &wire.addresses, ODD_REPLIES_MAX)?;
    let mut kept = Map::new();
    kept.insert("kind".to_owned(), json!(words::odd_kind(wire.kind)?));
    times(&mut kept, [("after_us", wire.after_us)])?;
    keep(&mut kept, "addresses", as_texts(&given));
    Ok(Value::Object(kept))
}
