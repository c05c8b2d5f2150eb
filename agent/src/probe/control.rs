//! A check of the vantage itself: does anything answer that should, and nothing that should not?

use parallax_decide::observation::{ControlCheck, Outcome};

use super::Limits;
use super::connection::{Attempted, probe};
use crate::assignment::{Control, Trial};
use crate::measured::{ControlParticulars, Measured, What};
use crate::policy::Role;
use crate::site::Site;

/// Tries one control. A negative control is never asked for TLS: a completed TCP handshake with an
/// address where nothing can be is already the finding.
pub async fn check(site: &Site, limits: &Limits, control: &Control) -> Measured {
    let (at, role, server_name) = match &control.trial {
        Trial::Positive { at, server_name } => (*at, Role::Target, server_name.as_deref()),
        Trial::Negative { at } => (*at, Role::NegativeControl, None),
        Trial::Captive { .. } => {
            let fact = ControlCheck { control: control.name.clone(), outcome: Outcome::OwnTrouble };
            let what = What::ControlCheck(fact, ControlParticulars::default());
            return Measured { what, duration: std::time::Duration::ZERO };
        }
    };
    let tried = Attempted { address: at.ip(), port: at.port(), server_name, role };
    let reached = probe(site, limits, &tried).await;
    let fact = ControlCheck { control: control.name.clone(), outcome: reached.outcome };
    let kept = ControlParticulars {
        address: Some(at.ip()),
        tcp: reached.kept.tcp,
        tls: reached.kept.tls,
        ..ControlParticulars::default()
    };
    Measured { what: What::ControlCheck(fact, kept), duration: reached.duration }
}
