//! Controls: targets that only tell how the vantage itself stands.

use std::collections::BTreeMap;

use parallax_decide::address::special_purpose;
use parallax_decide::names::ControlName;
use parallax_decide::operator;
use parallax_decide::topology::{Control, ControlKind};

use super::check::{bounded, port};
use super::error::Found;
use super::file::{ControlFile, File};
use super::{ControlTarget, spelling};

/// Most controls.
const CONTROLS_MAX: usize = 16;

/// Port of plain HTTP and of HTTPS.
const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;

/// The controls, and where they are.
pub type Controls = (BTreeMap<ControlName, Control>, BTreeMap<ControlName, ControlTarget>);

/// Checks the controls.
pub fn check(file: &File, found: &mut Found) -> Controls {
    let (mut controls, mut targets) = (BTreeMap::new(), BTreeMap::new());
    bounded(&file.controls, "controls", CONTROLS_MAX, found);
    for one in &file.controls.value {
        let name: Option<ControlName> = found.parse("name of a control", &one.name);
        let target = match &one.captive_url {
            Some(_) => check_captive(one, found),
            None => check_target(one, found),
        };
        let (Some(name), Some(target)) = (name, target) else { continue };
        let kind = match (&target.captive_url, one.negative) {
            (Some(_), _) => ControlKind::Captive,
            (None, true) => ControlKind::Negative,
            (None, false) => ControlKind::Positive,
        };
        if controls.insert(name.clone(), Control { kind }).is_some() {
            found.at(&one.name, format!("control `{name}` is there twice"));
        }
        targets.insert(name, target);
    }
    if !file.controls.value.iter().any(|one| !one.negative && one.captive_url.is_none()) {
        found.at(
            &file.controls,
            "no positive control: without one a vantage whose own uplink is down would accuse the world",
        );
    }
    warn_of_one_operator(file, found);
    (controls, targets)
}

/// Of those that must answer, and can be told apart.
fn warn_of_one_operator(file: &File, found: &mut Found) {
    let positive = || file.controls.value.iter().filter(|one| !one.negative && one.captive_url.is_none());
    let known = positive().filter_map(|one| {
        Some((one.address.as_ref()?.value, one.server_name.as_ref().map(|name| name.value.as_str())))
    });
    if let (true, Some(first)) = (operator::is_one(known), positive().next()) {
        found.doubt(
            &first.name,
            "all positive controls are of one operator, as their names and networks tell: its outage would look like every vantage's own; add one of another operator",
        );
    }
}

fn check_target(one: &ControlFile, found: &mut Found) -> Option<ControlTarget> {
    let number = one.port.unwrap_or(HTTPS_PORT);
    port(number, &one.name, found);
    let Some(address) = &one.address else {
        found.at(&one.name, format!("control `{}` needs an `address`, or a `captive_url`", one.name.value));
        return None;
    };
    if let (Some(why), false) = (special_purpose(address.value), one.negative) {
        found.at(address, format!("a positive control must be on the internet; this address is {why}"));
    }
    if let (true, Some(server_name)) = (one.negative, &one.server_name) {
        found.at(server_name, "a negative control must stay silent; it has no certificate to check");
    }
    let server_name = match &one.server_name {
        None => None,
        Some(text) => found.parse("name of the certificate", text),
    };
    Some(ControlTarget { address: Some(address.value), port: number, server_name, captive_url: None })
}

/// A portal answers plain HTTP; nothing of it can be verified, and the status alone is looked at.
fn check_captive(one: &ControlFile, found: &mut Found) -> Option<ControlTarget> {
    let url = one.captive_url.as_ref()?;
    if one.negative || one.server_name.is_some() || one.port.is_some() {
        found.at(url, "a captive URL is plain HTTP: `negative`, `server_name` and `port` do not belong to it");
    }
    if let Some(address) = &one.address
        && let Some(why) = special_purpose(address.value)
    {
        found.at(address, format!("a captive URL must be on the internet; this address is {why}"));
    }
    match spelling::url(&url.value, "http") {
        Ok((uri, _)) => Some(ControlTarget {
            address: one.address.as_ref().map(|address| address.value),
            port: uri.port_u16().unwrap_or(HTTP_PORT),
            server_name: None,
            captive_url: Some(url.value.clone()),
        }),
        Err(fault) => {
            found.at(url, fault);
            None
        }
    }
}
