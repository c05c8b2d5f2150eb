//! What is wrong with a vantage itself, one of them a case.

use super::case::{Case, Planned, Watch};
use super::fault::{Chain, Fault};
use super::place::{DARK, FRA, HOTEL, HQ, ISLAND, Place, WAN, WEAK};
use super::public::{CONTROLS, Culprit, host};

fn vantage(id: &'static str, place: Place, verdict: &'static str) -> Case {
    Case::new(Watch::Troubles, id).vantage(place, verdict).incident(
        format!("vantage/{}", place.name),
        verdict,
        place.name,
        Planned::Nothing,
    )
}

/// Every case of vantages.
#[must_use]
pub fn cases() -> Vec<Case> {
    let ([(_, first), (_, second), _], weak) = (CONTROLS, WEAK.link());
    let (hotel, portal) = (HOTEL.link(), Culprit::Portal.at());
    let island = format!("iifname \"{}\" ip daddr != {} drop", ISLAND.link(), HQ.address());
    vec![
        // The agent is killed by whoever plays the case.
        vantage("A43", DARK, "vantage_silent").answer(DARK, &host("steady"), "cf", "insufficient_evidence"),
        vantage("A41", HOTEL, "vantage_captive")
            .fault(Fault::Router(
                Chain::Divert,
                format!("iifname \"{hotel}\" ip daddr != {} tcp dport 80 dnat to {portal}", HQ.address()),
            ))
            .fault(Fault::Router(
                Chain::Divert,
                format!(
                    "iifname \"{hotel}\" ip daddr != {} tcp dport {{ 443, 853 }} dnat to {}",
                    HQ.address(),
                    Culprit::Unknown.at()
                ),
            ))
            .answer(HOTEL, &host("steady"), "cf", "insufficient_evidence"),
        // What the portal does to the hotel's way is a fault of `A41`.
        Case::new(Watch::Troubles, "E24").endpoint(&[HOTEL], "cf", "insufficient_evidence").endpoint(
            &[WAN, FRA],
            "cf",
            "endpoint_ok",
        ),
        vantage("4.1/5", ISLAND, "vantage_uplink_down").fault(Fault::Router(Chain::Arrive, island)),
        Case::new(Watch::Troubles, "4.1/7")
            .fault(Fault::Router(Chain::Arrive, format!("iifname \"{weak}\" ip daddr {{ {first}, {second} }} drop")))
            .vantage(WEAK, "vantage_degraded"),
    ]
}
