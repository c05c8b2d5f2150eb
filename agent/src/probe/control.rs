//! A check of the vantage itself: does anything answer that should, and nothing that should not?

use parallax_decide::observation::{ControlCheck, Fact};

use super::Limits;
use super::connection::{Attempted, probe};
use crate::assignment::Control;
use crate::measured::Measured;
use crate::policy::Role;
use crate::site::Site;

/// Tries one control. A negative control is never asked for TLS: a completed TCP handshake with an
/// address where nothing can be is already the finding.
pub async fn check(site: &Site, limits: &Limits, control: &Control) -> Measured {
    let (role, server_name) = match control.negative {
        true => (Role::NegativeControl, None),
        false => (Role::Target, control.server_name.as_deref()),
    };
    let tried = Attempted { address: control.address, port: control.port, server_name, role };
    let reached = probe(site, limits, &tried).await;
    Measured {
        fact: Fact::ControlCheck(ControlCheck { control: control.name.clone(), outcome: reached.outcome }),
        details: reached.details,
        duration: reached.duration,
    }
}
