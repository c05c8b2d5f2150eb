//! A check of the vantage itself: does anything answer that should, and nothing that should not?
//!
//! A positive control has the outcomes of a connection without a request (the table in
//! [`super::connection`]). For the others:
//!
//! | outcome | negative control | captive-portal question |
//! |---|---|---|
//! | `tcp_ok` | SYN-ACK, whatever follows: something here answers for everybody | never |
//! | `http_ok` | never | status 204 |
//! | `http_redirect`, `http_throttled`, `http_status` | never | any other status: something answers in the server's place |
//! | `http_malformed`, `http_closed`, `http_silent` | never | what answered the connection does not speak HTTP, or no more |
//! | `special_address` | only by a configuration that means no documentation address | the live resolver gives an address that a public name cannot have; not contacted |
//! | words of a DNS reply or exchange, `no_resolver` | never | the host could not be looked up at the live resolver |
//! | the network's and own words | as for a connection; these are what is right | as for a connection |

use parallax_decide::observation::{ControlCheck, Family, Outcome};

use super::connection::{Attempted, probe};
use super::{Limits, captive};
use crate::assignment::{Control, Trial};
use crate::clock::{now, since};
use crate::measured::{ControlParticulars, Measured, What};
use crate::policy::Role;
use crate::site::Site;

/// Tries one control. What is known of the others (the 20-minute window, the clock) is added by who
/// knows it.
pub async fn check(site: &Site, limits: &Limits, control: &Control) -> Measured {
    let start = now();
    let (outcome, kept) = match &control.trial {
        Trial::Positive { at, server_name } => {
            let (address, port) = (at.ip(), at.port());
            let tried =
                Attempted { address, port, server_name: server_name.as_deref(), http: None, role: Role::Target };
            let reached = probe(site, limits, &tried).await;
            let kept = ControlParticulars {
                address: Some(address),
                tcp: reached.kept.tcp,
                tls: reached.kept.tls,
                ..ControlParticulars::default()
            };
            (reached.outcome, kept)
        }
        // Never asked for TLS: a completed TCP handshake with an address where nothing can be is the finding.
        Trial::Negative { at } => {
            let (address, port) = (at.ip(), at.port());
            let tried = Attempted { address, port, server_name: None, http: None, role: Role::NegativeControl };
            let reached = probe(site, limits, &tried).await;
            // The kernel saw an RST after the SYN-ACK: it was a completed handshake too.
            let outcome = if reached.outcome == Outcome::Reset { Outcome::TcpOk } else { reached.outcome };
            let kept = ControlParticulars { address: Some(address), tcp: reached.kept.tcp, ..Default::default() };
            (outcome, kept)
        }
        Trial::Captive { url, address } => {
            let found = captive::question(site, limits, url, *address).await;
            let kept = ControlParticulars {
                address: found.address,
                http_status: found.status,
                tcp: found.tcp,
                ..ControlParticulars::default()
            };
            (found.outcome, kept)
        }
    };
    let fact = ControlCheck { control: control.name.clone(), outcome };
    Measured { what: What::ControlCheck(fact, kept), duration: since(start) }
}

/// The address family that a control is about; `None`: the captive-portal question, which asks whatever
/// its host has.
#[must_use]
pub fn family(control: &Control) -> Option<Family> {
    match &control.trial {
        Trial::Positive { at, .. } | Trial::Negative { at } => Some(Family::of(at.ip())),
        Trial::Captive { .. } => None,
    }
}
