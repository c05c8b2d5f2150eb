//! The network of the zoo: one router, a link to each place, every public address on the router.

use std::fmt::Write;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Context, Result};

use super::place::PLACES;
use super::public::NEGATIVE;
use super::{fault, ground::Ground};
use crate::lab::process;
use crate::lab::servers::ROUTER;
use crate::lab::topology::batch;

/// Builds it, with these public addresses. Must run where `enter` has led.
///
/// # Errors
/// A step is refused; the message carries what the tool said.
pub async fn build(addresses: &[Ipv4Addr]) -> Result<()> {
    let mut outside = format!("netns add {ROUTER}\n");
    let mut router = String::from("link set lo up\n");
    for place in PLACES {
        let (name, link, gateway) = (place.name, place.link(), place.gateway());
        let _ = writeln!(outside, "netns add {name}");
        let _ = writeln!(outside, "link add eth0 netns {name} type veth peer name {link} netns {ROUTER}");
        // Segments leave one by one, so that a rule on the length of packets sees what a wire would.
        let _ =
            writeln!(router, "link set {link} gso_max_segs 1\naddr add {gateway}/24 dev {link}\nlink set {link} up");
    }
    for address in addresses {
        let _ = writeln!(router, "addr add {address}/32 dev lo");
    }
    batch(None, &outside).await.context("making the namespaces")?;
    batch(Some(ROUTER), &router).await.context("configuring the router")?;
    for place in PLACES {
        let (address, gateway) = (place.address(), place.gateway());
        let inside = format!(
            "link set lo up\naddr add {address}/24 dev eth0\nlink set eth0 up\nroute add default via {gateway}\n"
        );
        batch(Some(place.name), &inside).await.with_context(|| format!("configuring {}", place.name))?;
    }
    let settings = "echo 1 >/proc/sys/net/ipv4/ip_forward; echo 0 >/proc/sys/net/ipv4/icmp_ratelimit";
    process::run(Some(ROUTER), Path::new("sh"), &["-c", settings]).await.context("making the router forward")?;
    let always = format!(
        "table ip always {{ chain nowhere {{ type filter hook prerouting priority 10; ip daddr {NEGATIVE} drop; }}; }}"
    );
    nft(&format!("{always}\n{}", fault::empty_table())).await.context("the router's filter")
}

async fn nft(commands: &str) -> Result<()> {
    process::run(Some(ROUTER), Path::new("nft"), &[commands]).await?;
    Ok(())
}

/// Switches on what the router does of these faults, all at once.
///
/// # Errors
/// nft refuses a rule.
pub async fn break_ways(ground: &Ground, faults: &[fault::Fault]) -> Result<()> {
    let script = ground.directory.join("faults.nft");
    std::fs::write(&script, fault::router(faults)).context("writing the router's rules")?;
    process::run(Some(ROUTER), Path::new("nft"), &["-f".as_ref(), script.as_os_str()]).await?;
    Ok(())
}

/// Heals every way.
///
/// # Errors
/// nft refuses.
pub async fn heal_ways() -> Result<()> {
    nft(fault::FLUSH).await
}
