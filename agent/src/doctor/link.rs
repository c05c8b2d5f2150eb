//! The way to the coordinator: who we are, and whether it is there and is who it should be.

use std::path::Path;
use std::sync::Arc;

use super::{Check, Doctor};
use crate::clock;
use crate::join::token;
use crate::local::Local;
use crate::offset::ClockOffset;
use crate::uplink::address::Coordinator;
use crate::uplink::connector::Connector;
use crate::uplink::identity::{Credentials, Identity};
use crate::uplink::known::Known;
use crate::uplink::timing::Timing;

/// Seconds of a day.
const DAY_S: i64 = 24 * 3600;

/// Whether the identity is whole and for how long it holds.
pub(super) fn identity(folder: &Path) -> (Check, Option<Arc<Credentials>>) {
    let credentials = match Identity::new(folder.to_owned()).credentials() {
        Ok(credentials) => credentials,
        Err(error) => {
            let fix =
                "join with a token: parallax token create NAME on the coordinator, parallax-agent join TOKEN here";
            return (Check::fail("identity", error.to_string(), fix), None);
        }
    };
    let now_s = i64::try_from(clock::unix_ms() / 1000).unwrap_or(i64::MAX);
    let left_s = credentials.validity.not_after_s.saturating_sub(now_s);
    let life_s = credentials.validity.not_after_s.saturating_sub(credentials.validity.not_before_s);
    let found = format!(
        "{}: the certificate holds {} ({} days left)",
        credentials.vantage,
        credentials.validity,
        left_s / DAY_S
    );
    let check = if !credentials.validity.holds(now_s) {
        Check::fail(
            "identity",
            found,
            "set this machine's clock if it is wrong; else start the agent: within 90 days it renews itself with the first connection",
        )
    } else if left_s < life_s / 5 {
        Check::warn(
            "identity",
            found,
            "it should have been renewed by now: see the agent's log for certificate_not_renewed or identity_read_only",
        )
    } else {
        Check::ok("identity", found)
    };
    (check, Some(credentials))
}

/// Whether a token of the environment is of use; `None`: there is none.
pub(super) fn token(joined: bool) -> Option<Check> {
    if joined {
        return token::is_in_environment().then(|| Check::ok("token", "given, and not used: this agent has joined"));
    }
    match token::of_environment() {
        Ok(token) => {
            let token = token?;
            Some(Check::ok("token", format!("given, for {}; the agent joins with it when it starts", token.vantage())))
        }
        Err(failure) => Some(Check::fail("token", failure.why, failure.fix)),
    }
}

/// Whether orders are checked.
pub(super) fn signers(credentials: &Credentials) -> Check {
    match credentials.signers.len() {
        0 => Check::warn(
            "orders",
            "nobody's signature is known here: whatever shows the coordinator's certificate is obeyed",
            "connect once to a coordinator of this version, or join anew with a token",
        ),
        count => Check::ok("orders", format!("obeyed when signed with one of {count} keys")),
    }
}

/// Whether this coordinator is reached and proves itself. No stream is opened: a running agent of the
/// same identity is not disturbed.
pub(super) async fn coordinator(options: &Doctor, local: &Local, to: &Coordinator, credentials: &Credentials) -> Check {
    let proxy = match crate::uplink::proxy::ProxySetting::of(options.proxy.as_deref(), local) {
        Ok(proxy) => proxy,
        Err(error) => return Check::fail("coordinator", error.to_string(), "correct the proxy's setting"),
    };
    let mut connector = Connector::new(proxy, Known::default(), ClockOffset::default());
    match connector.connect(to, credentials, &Timing::default()).await {
        Ok(connection) => {
            Check::ok("coordinator", format!("{to} is reached at {} and proves itself", connection.address))
        }
        Err(trouble) => Check::fail(
            "coordinator",
            format!("{to}: {trouble}"),
            "see the reason above; a firewall must let this machine out to it",
        ),
    }
}
