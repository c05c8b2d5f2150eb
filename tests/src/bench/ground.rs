//! The ground that the bench stands on: a network namespace of its own, whose loopback interface carries the addresses
//! of the targets, the peers and the coordinator.
//!
//! An agent contacts no loopback address, whatever its owner allows. So the targets have addresses of the block that is
//! set aside for benchmarks (RFC 2544), which its owner may open and which no other network uses.

use std::net::Ipv4Addr;

use anyhow::{Context, Result, bail};
use tokio::process::Command;

use crate::lab::enter::{self, Decision};
use crate::lab::layout::Kind;
use crate::lab::programs;

/// Where the coordinator and the peers listen, and what everything comes from.
pub const HERE: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// The block. On a loopback interface every address of an address's network is the machine's own.
pub const NETWORK: &str = "198.18.0.0/15";
/// Whether a source port whose connection has ended may be used again before its minute is over (ip-sysctl of the kernel's
/// documentation). By default the kernel allows it between loopback addresses alone; without it the tens of thousands of
/// connections of a sitting would use up the ports, and looking for a free one would cost more than the probe.
const REUSE: &str = "/proc/sys/net/ipv4/tcp_tw_reuse";
/// Length of the block's prefix.
const PREFIX: u8 = 15;

/// An address of the block.
#[must_use]
pub const fn address(third: u8, last: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, third, last)
}

/// Whether a network of one's own may be had here.
///
/// # Errors
/// It may not: what stands in the way, and how to get it.
pub fn decide() -> Result<Decision> {
    let decision = enter::decide_single();
    match decision.kind {
        Kind::Namespaces => Ok(decision),
        Kind::Loopback => bail!(
            "the bench needs a network namespace of its own, but {}.\n\
             An agent contacts no loopback address, so its targets stand on {NETWORK} there. What helps:\n  \
             * a program that is missing: ./x install iproute2 util-linux\n  \
             * root; or, as an ordinary user, user namespaces: sysctl kernel.unprivileged_userns_clone=1 (Debian),\n    \
             sysctl kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu), user.max_user_namespaces above 0\n  \
             * in a container: one that may make namespaces and mount, such as --privileged",
            decision.reason
        ),
    }
}

/// Gives the loopback interface of the namespace that this process is in the addresses, and lets ports be used again as
/// between loopback addresses.
///
/// # Errors
/// `ip` cannot be started, or refuses; the kernel's setting cannot be written.
pub async fn prepare() -> Result<()> {
    let ip = programs::find("ip").context("ip is not installed: ./x install iproute2")?;
    let mut command = Command::new(ip);
    command.args(["address", "add", &format!("{HERE}/{PREFIX}"), "dev", "lo"]);
    let output = command.output().await.context("starting ip")?;
    if !output.status.success() {
        bail!("the loopback interface takes no {HERE}/{PREFIX}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    std::fs::write(REUSE, "1").with_context(|| format!("writing 1 to {REUSE} of the bench's own network namespace"))
}
