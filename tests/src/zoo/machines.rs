//! One machine of ours a case: where it is, who may stand in for it, and what goes wrong with it.

use std::net::Ipv4Addr;

use super::case::{Case, Planned, Watch};
use super::fault::{Fault, Way};
use super::place::{BRANCH, DARK, FRA, OF_NAMES, OF_TROUBLES, Place, TWIN, WAN, WEAK};
use super::public::Culprit;

/// A machine, and where nothing else is said its own service.
#[derive(Debug, Clone, Copy)]
pub struct Machine {
    /// Its name.
    pub name: &'static str,
    /// Who watches it.
    pub by: &'static [Watch],
    /// Who stands in for it; empty: it has no service of its own.
    pub fallbacks: [&'static str; 2],
}

const fn serves(name: &'static str) -> Machine {
    Machine { name, by: &[Watch::Names], fallbacks: ["spare", "reserve"] }
}

/// All of them, in order of their addresses.
pub const MACHINES: [Machine; 19] = [
    Machine { name: "spare", by: &[Watch::Names, Watch::Troubles], fallbacks: ["", ""] },
    Machine { name: "reserve", by: &[Watch::Names, Watch::Troubles], fallbacks: ["", ""] },
    Machine { name: "far", by: &[Watch::Names], fallbacks: ["", ""] },
    Machine { name: "near", by: &[Watch::Names], fallbacks: ["", ""] },
    serves("m01"),
    serves("m02"),
    serves("m03"),
    serves("m09"),
    serves("m11"),
    serves("m12"),
    Machine { name: "m14", by: &[Watch::Names], fallbacks: ["m01", "m09"] },
    Machine { name: "m15", by: &[Watch::Names], fallbacks: ["far", "reserve"] },
    serves("m27"),
    serves("m29"),
    serves("m30"),
    serves("m39"),
    Machine { name: "m05", by: &[Watch::Troubles], fallbacks: ["spare", "reserve"] },
    Machine { name: "m41", by: &[Watch::Troubles], fallbacks: ["spare", "reserve"] },
    Machine { name: "m44", by: &[Watch::Names], fallbacks: ["near", "reserve"] },
];

/// One that refuses, beside those of the cases.
pub const REFUSING: Machine = serves("refusing");

/// Every machine.
pub fn machines() -> impl Iterator<Item = Machine> {
    MACHINES.into_iter().chain([REFUSING])
}

/// Where a machine is.
#[must_use]
pub fn address(name: &str) -> Ipv4Addr {
    let number = machines().position(|machine| machine.name == name).unwrap_or(usize::from(u8::MAX));
    Ipv4Addr::new(95, 216, u8::try_from(number).unwrap_or(u8::MAX), 10)
}

fn way(places: &[Place], name: &str, what: Way) -> Fault {
    Fault::Way { places: places.to_vec(), to: address(name), what }
}

/// A machine that everybody finds like this.
fn everywhere(id: &'static str, name: &'static str, what: Way, verdict: &'static str, at: &'static str) -> Case {
    from(id, name, &OF_NAMES, what, verdict).address(BRANCH, &format!("node:{name} {}", address(name)), at).service(
        name,
        verdict,
        Planned::To("95.216.0.10"),
    )
}

/// A machine that these places find like this, and nobody else.
fn from(id: &'static str, name: &'static str, places: &[Place], what: Way, verdict: &'static str) -> Case {
    Case::new(Watch::Names, id).fault(way(places, name, what)).node(name, verdict)
}

fn held(case: Case, name: &'static str, kind: &'static str) -> Case {
    case.service(name, kind, Planned::Nothing)
}

/// Every case of machines.
#[must_use]
pub fn cases() -> Vec<Case> {
    let all_but = |one: Place| OF_NAMES.into_iter().filter(|place| *place != one).collect::<Vec<_>>();
    let (dead, some) = ("node_dead_everywhere", "node_unroutable_from_some");
    let with_fallback =
        |id, name, to| from(id, name, &OF_NAMES, Way::Silent, dead).service(name, dead, Planned::To(to));
    vec![
        everywhere("M01", "m01", Way::Silent, dead, "addr_silent"),
        held(from("M02", "m02", &[BRANCH], Way::Silent, some), "m02", some),
        held(from("M03", "m03", &[BRANCH, TWIN], Way::Silent, some), "m03", some),
        everywhere("M09", "m09", Way::Taken(Culprit::Hangs), "node_open_but_dead", "addr_open_but_dead"),
        everywhere("M11", "m11", Way::Taken(Culprit::Expired), "node_cert_invalid_everywhere", "addr_cert_time"),
        everywhere("M12", "m12", Way::Taken(Culprit::Stranger), "node_impostor_everywhere", "addr_impostor"),
        everywhere("4.5/8", "refusing", Way::Refused, "node_refusing_everywhere", "addr_refused"),
        held(from("M14", "m14", &OF_NAMES, Way::Silent, dead), "m14", dead),
        with_fallback("M15", "m15", "95.216.1.10").before(way(&all_but(FRA), "far", Way::Silent)).also("node/far"),
        held(from("M27", "m27", &[WAN], Way::Halved, "node_path_partial"), "m27", "node_path_partial").address(
            WAN,
            &format!("node:m27 {}", address("m27")),
            "addr_partial_path",
        ),
        everywhere("M29", "m29", Way::Narrow, dead, "addr_pmtu_blackhole"),
        // The proposal is how the operator is asked.
        from("M30", "m30", &[BRANCH, WAN], Way::Silent, "node_unroutable_for_audience").service(
            "m30",
            "node_unroutable_for_audience",
            Planned::To("95.216.0.10"),
        ),
        held(from("M39", "m39", &[WAN], Way::Taken(Culprit::Stranger), some), "m39", some).address(
            WAN,
            &format!("node:m39 {}", address("m39")),
            "addr_impostor",
        ),
        Case::new(Watch::Troubles, "M41")
            .fault(way(&[WEAK], "m41", Way::Silent))
            .node("m41", "node_ok")
            .vantage(WEAK, "vantage_degraded"),
        Case::new(Watch::Troubles, "M05")
            .fault(way(&OF_TROUBLES, "m05", Way::Silent))
            .node("m05", dead)
            .vantage(DARK, "vantage_silent")
            .service("m05", dead, Planned::To("95.216.0.10")),
        with_fallback("M44", "m44", "95.216.1.10").before(way(&[BRANCH], "near", Way::Silent)).also("node/near"),
    ]
}
