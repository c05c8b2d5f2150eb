//! One resolver's endpoint a case: what goes wrong between a place and the door of a resolver, or behind it.

use std::net::Ipv4Addr;

use super::case::{Case, Planned, Watch};
use super::fault::{Fault, Told, Way};
use super::place::{BRANCH, CACHED, FRA, OF_ENDPOINTS, Place, SANE, WAN};
use super::public::{Culprit, SIGNPOST, ZONE, endpoint, host};

fn way(places: &[Place], name: &str, what: Way) -> Fault {
    Fault::Way { places: places.to_vec(), to: endpoint(name), what }
}

fn told(places: &[Place], name: &str, below: &str, what: Told) -> Fault {
    Fault::Told { places: places.to_vec(), at: vec![endpoint(name)], name: below.to_owned(), what }
}

/// What every name below the fresh zone is, in truth.
pub const FRESH: Ipv4Addr = Ipv4Addr::new(104, 30, 0, 1);

/// Every case of endpoints.
#[must_use]
pub fn cases() -> Vec<Case> {
    let (ok, failed) = ("endpoint_ok", "endpoint_tls_failed");
    let everywhere = |id, name, what, verdict| {
        Case::new(Watch::Endpoints, id).fault(way(&OF_ENDPOINTS, name, what)).endpoint(&SANE, name, verdict)
    };
    let at_branch = |id, name, what, verdict| {
        Case::new(Watch::Endpoints, id).fault(way(&[BRANCH], name, what)).endpoint(&[BRANCH], name, verdict).endpoint(
            &[WAN, FRA],
            name,
            ok,
        )
    };
    vec![
        Case::new(Watch::Endpoints, "E01")
            .fault(way(&[BRANCH, WAN, CACHED], "e01", Way::Silent))
            .fault(way(&[FRA], "e01", Way::Prohibited))
            .endpoint(&SANE, "e01", "endpoint_no_path"),
        at_branch("E02", "e02", Way::Silent, "endpoint_no_path"),
        everywhere("E03", "e03", Way::Refused, "endpoint_refused"),
        everywhere("E04", "e04", Way::Taken(Culprit::Expired), failed),
        at_branch("E06", "e06", Way::Taken(Culprit::Stranger), failed),
        at_branch("E07", "e07", Way::Taken(Culprit::Unknown), failed),
        Case::new(Watch::Endpoints, "E09")
            .fault(way(&[BRANCH, WAN], "e09", Way::Taken(Culprit::Sheds)))
            .endpoint(&[BRANCH, WAN], "e09", "endpoint_throttled")
            .endpoint(&[FRA], "e09", ok),
        Case::new(Watch::Endpoints, "E10").fault(told(&OF_ENDPOINTS, "e10", ZONE, Told::Status(502))).endpoint(
            &SANE,
            "e10",
            "endpoint_http_failed",
        ),
        // The dialect is wrong from the start.
        Case::new(Watch::Endpoints, "E12").endpoint(&SANE, "e12", "probe_misconfigured"),
        everywhere("E13", "e13", Way::Taken(Culprit::Mute), "endpoint_silent"),
        Case::new(Watch::Endpoints, "A49")
            .wanted("answer", &host("steady"), Some("e13"), Some(BRANCH), "answer_not_obtained")
            .wanted("answer", &host("steady"), Some("ok"), Some(BRANCH), "answer_ok"),
        Case::new(Watch::Endpoints, "E15")
            .fault(way(&[CACHED], "e15", Way::Silent))
            .endpoint(&[CACHED], "e15", "stale_cache_masking_dead_endpoint")
            .endpoint(&[WAN, FRA], "e15", ok)
            .incident("endpoint/e15", "stale_cache_masking_dead_endpoint", CACHED.name, Planned::Offer("ok")),
        Case::new(Watch::Endpoints, "E16")
            .fault(told(&[BRANCH, WAN], "e16", &host("fresh"), Told::Servfail))
            .endpoint(&[BRANCH, WAN], "e16", "endpoint_serving_stale")
            .endpoint(&[FRA], "e16", ok),
        at_branch("E19", "e19", Way::Narrow, "endpoint_pmtu_blackhole"),
        Case::new(Watch::Endpoints, "E21")
            .fault(Fault::Way { places: vec![BRANCH], to: SIGNPOST, what: Way::Silent })
            .endpoint(&[BRANCH], "e21", "insufficient_evidence")
            .endpoint(&[WAN, FRA], "e21", ok),
        Case::new(Watch::Endpoints, "E25")
            .fault(told(&[BRANCH], "e25", ZONE, Told::Nothing))
            .endpoint(&[BRANCH], "e25", "endpoint_alive_not_resolving")
            .endpoint(&[WAN, FRA], "e25", ok),
        Case::new(Watch::Endpoints, "4.3/2")
            .fault(told(&[BRANCH], "rewrites", &host("void"), Told::Addresses(vec![FRESH.into()])))
            .endpoint(&[BRANCH], "rewrites", "endpoint_rewrites")
            .endpoint(&[WAN, FRA], "rewrites", ok),
    ]
}
