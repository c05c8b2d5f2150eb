//! What lies around the machine: its resolver, its way out, portals, the clock.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use futures_util::future::join_all;
use http::Uri;
use parallax_decide::observation::{Family, Outcome, Says};

use super::Check;
use crate::assignment::{Resolver, Transport};
use crate::clock;
use crate::probe::message::Question;
use crate::probe::{Limits, captive, control, resolution};
use crate::site::Site;
use crate::well_known;

/// A well-known address of IPv6.
const WELL_KNOWN_V6: (Ipv6Addr, &str) = (Ipv6Addr::new(0x2606, 0x4700, 0x4700, 0, 0, 0, 0, 0x1111), "one.one.one.one");

/// A page that answers with status 204, as browsers and telephones ask it.
const PORTAL_URL: &str = "http://cp.cloudflare.com/generate_204";

/// A clock that is further off than this makes certificate times of no account.
const OFFSET_MAX: Duration = Duration::from_secs(2);

/// Whether the live resolver answers.
pub(super) async fn dns(site: &Site) -> Check {
    let servers = site.live.servers();
    if servers.is_empty() {
        return Check::fail(
            "dns",
            "no resolver is configured here",
            "name one in /etc/resolv.conf, or as live_resolver in the owner's file",
        );
    }
    let shown = servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let (Ok(live), Ok(name)) = ("live".parse(), "example.com".parse()) else {
        return Check::warn("dns", "not looked at", "");
    };
    let resolver = Resolver { name: live, transport: Transport::Live };
    let measured =
        resolution::resolve(site, &Limits::by_hand(), &resolver, &Question { name, family: Family::V4 }).await;
    let outcome = measured.fact.outcome;
    match outcome.says() {
        Says::Works => Check::ok("dns", format!("{shown} answers for example.com")),
        Says::Fails | Says::Nothing => Check::fail(
            "dns",
            format!("{shown}: the resolver {} ({outcome})", outcome.meaning()),
            "see which part fails with: parallax-agent probe example.com",
        ),
    }
}

/// Whether anything outside is reached, over each family.
pub(super) async fn way_out(site: &Site) -> Vec<Check> {
    let limits = Limits::by_hand();
    let controls = well_known::controls();
    let ended = join_all(controls.iter().map(|one| control::check(site, &limits, one))).await;
    let outcomes: Vec<Outcome> = ended.iter().map(|measured| measured.what.outcome()).collect();
    let reached = outcomes.iter().filter(|outcome| outcome.says() == Says::Works).count();
    let found = format!("{reached} of {} well-known addresses complete TLS", outcomes.len());
    let why = outcomes.iter().find(|outcome| outcome.says() != Says::Works).map_or("", |outcome| outcome.word());
    let out = if reached == outcomes.len() {
        Check::ok("egress", found)
    } else if reached > 0 {
        Check::warn(
            "egress",
            format!("{found} ({why})"),
            "let this machine out to TCP 443; what the agent measures here is judged with more doubt meanwhile",
        )
    } else {
        Check::fail(
            "egress",
            format!("{found} ({why})"),
            "let this machine out to TCP 443, and exempt it from interception of TLS",
        )
    };
    let six = if site.dialer.family_available(Family::V6) {
        match well_known::control("ipv6", IpAddr::V6(WELL_KNOWN_V6.0), WELL_KNOWN_V6.1) {
            Some(one) => match control::check(site, &limits, &one).await.what.outcome() {
                outcome if outcome.says() == Says::Works => Check::ok("ipv6", "there is a way out over IPv6"),
                outcome => Check::warn(
                    "ipv6",
                    format!("there is an IPv6 route, and nothing is reached by it ({outcome})"),
                    "repair IPv6 here, or take the route away; AAAA addresses are judged unusable meanwhile",
                ),
            },
            None => Check::ok("ipv6", "not looked at"),
        }
    } else {
        Check::ok("ipv6", "no IPv6 here; AAAA addresses are left out, which is no fault")
    };
    vec![out, six]
}

/// Whether a captive portal stands in between, and what time others have.
pub(super) async fn captive_and_clock(site: &Site) -> (Check, Check) {
    let url = Uri::from_static(PORTAL_URL);
    let found = captive::question(site, &Limits::by_hand(), &url, None).await;
    let outcome = found.outcome;
    let portal = match outcome.says() {
        Says::Works => Check::ok("portal", "no captive portal in between"),
        Says::Nothing => Check::ok("portal", format!("not looked at: it {}", outcome.meaning())),
        Says::Fails => Check::warn(
            "portal",
            format!("the captive-portal question {} ({outcome}{})", outcome.meaning(), status(found.status)),
            "sign in to the network, or let the agent out past the portal",
        ),
    };
    (portal, time(found.date_s))
}

fn status(status: u16) -> String {
    if status == 0 { String::new() } else { format!(", HTTP {status}") }
}

/// The clock against what an HTTP server said.
fn time(date_s: Option<i64>) -> Check {
    let Some(theirs) = date_s else {
        return Check::warn(
            "clock",
            "could not be compared: no HTTP server told its time",
            "see that a time service runs (timedatectl, chronyc tracking)",
        );
    };
    let ours = i64::try_from(clock::unix_ms() / 1000).unwrap_or(i64::MAX);
    let off = ours.saturating_sub(theirs);
    let most = i64::try_from(OFFSET_MAX.as_secs()).unwrap_or(2);
    if off.abs() > most {
        let fix = "set the clock: install and start a time service (systemd-timesyncd, chrony)";
        return Check::fail("clock", format!("{off} s off; certificates cannot be judged by it"), fix);
    }
    Check::ok("clock", format!("within {most} s of an HTTP server's"))
}
