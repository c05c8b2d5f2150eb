//! How far a cold question to an endpoint got, and how the vantage itself stands.

use std::net::{IpAddr, Ipv4Addr};

use parallax_decide::observation::{ControlCheck, EndpointCheck, Fact, Group, Kind, Outcome, Stage};
use parallax_decide::topology::Topology;
use parallax_proto::v1;
use serde_json::Map;

use super::field::{address_or_none, certificate, control, http_status, keep, less_one, resolver, text, times};
use super::{Fault, Taken, words};

/// Control checks that fit into 20 minutes, with a margin that no schedule reaches.
const CHECKS_MAX: u32 = 1_000_000;

/// Largest clock offset that is kept, in milliseconds: three thousand years.
const CLOCK_OFFSET_MAX_MS: u64 = 100_000_000_000_000;

pub(super) fn endpoint_check(wire: &v1::EndpointCheck, topology: &Topology) -> Result<Taken, Fault> {
    let stage = words::stage(wire.stage)?;
    let outcome = words::outcome(wire.outcome)?;
    if outcome == Outcome::Answered && stage != Stage::Dns {
        return Err(("contradiction", format!("outcome answered at stage {stage}")));
    }
    let contacted = address_or_none(&wire.address)?;
    let may_lack = stage == Stage::Bootstrap || matches!(outcome.group(), Group::Own | Group::Refused);
    if contacted.is_none() && !may_lack {
        return Err(("contradiction", format!("stage {stage} was reached without an address")));
    }
    let fresh = words::outcome_or_none(wire.fresh, Kind::EndpointCheck)?;
    let missing = words::outcome_or_none(wire.missing, Kind::EndpointCheck)?;
    let mut detail = Map::new();
    times(
        &mut detail,
        [
            ("bootstrap_us", wire.bootstrap_us),
            ("tcp_us", wire.tcp_us),
            ("tls_us", wire.tls_us),
            ("http_us", wire.http_us),
            ("dns_us", wire.dns_us),
        ],
    )?;
    http_status(&mut detail, wire.http_status)?;
    keep(&mut detail, "fresh", fresh.map(Outcome::word));
    keep(&mut detail, "missing", missing.map(Outcome::word));
    keep(&mut detail, "worked_before", wire.worked_before);
    if let Some(seconds) = less_one(wire.retry_after_plus_one) {
        detail.insert("retry_after".to_owned(), seconds.into());
    }
    certificate(&mut detail, &wire.certificate_sha256)?;
    keep(&mut detail, "remark", text("remark", &wire.remark)?);
    let fact = EndpointCheck {
        resolver: resolver(&wire.resolver, topology)?,
        address: contacted.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        stage,
        outcome,
        fresh,
        missing,
        worked_before: wire.worked_before,
    };
    Ok(Taken::new(Fact::EndpointCheck(fact), detail))
}

pub(super) fn control_check(wire: &v1::ControlCheck, topology: &Topology) -> Result<Taken, Fault> {
    if wire.failures > wire.checks || wire.checks > CHECKS_MAX {
        let (failures, checks) = (wire.failures, wire.checks);
        return Err(("contradiction", format!("{failures} of {checks} control checks failed; at most {CHECKS_MAX}")));
    }
    let mut detail = Map::new();
    keep(&mut detail, "address", address_or_none(&wire.address)?.map(|address| address.to_string()));
    times(&mut detail, [("tcp_us", wire.tcp_us), ("tls_us", wire.tls_us)])?;
    http_status(&mut detail, wire.http_status)?;
    if wire.checks > 0 {
        detail.insert("failures".to_owned(), wire.failures.into());
        detail.insert("checks".to_owned(), wire.checks.into());
    }
    if let Some(offset) = wire.clock_offset_ms {
        if offset.unsigned_abs() > CLOCK_OFFSET_MAX_MS {
            return Err(("out_of_range", format!("clock offset of {offset} ms")));
        }
        detail.insert("clock_offset_ms".to_owned(), offset.into());
    }
    let fact = ControlCheck { control: control(&wire.control, topology)?, outcome: words::outcome(wire.outcome)? };
    Ok(Taken::new(Fact::ControlCheck(fact), detail))
}
