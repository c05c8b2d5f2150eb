//! The namespace world's network: one router, one veth pair a place, every public address a /32 on the router.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};
use tokio::io::AsyncWriteExt;

use super::atlas::{
    AUTHORITY, CONTROLS, LOST_PREFIXES, NEGATIVE_CONTROL, NODES, PLACES, PUBLIC_RESOLVERS, Place, cdn_addresses,
};
use super::process;
use super::servers::ROUTER;

/// Builds it. Must run where `enter` has led.
///
/// # Errors
/// A step is refused; the message carries what the tool said.
pub async fn build() -> Result<()> {
    let mut outside = format!("netns add {ROUTER}\n");
    for place in PLACES {
        let (name, link) = (place.name(), place.link());
        let _ = writeln!(outside, "netns add {name}");
        let _ = writeln!(outside, "link add eth0 netns {name} type veth peer name {link} netns {ROUTER}");
    }
    batch(None, &outside).await.context("making the namespaces")?;

    let mut router = String::from("link set lo up\n");
    let places = PLACES.iter().map(|p| (p.link(), p.number()));
    for (link, number) in places {
        let _ = writeln!(router, "addr add 10.10.{number}.1/24 dev {link}\nlink set {link} up");
    }
    let resolvers = PUBLIC_RESOLVERS.iter().map(|r| r.address);
    let machines = NODES.iter().map(|n| n.address).chain(CONTROLS.iter().map(|(_, a)| *a));
    for address in cdn_addresses().into_iter().chain(resolvers).chain(machines).chain([AUTHORITY]) {
        let _ = writeln!(router, "addr add {address}/32 dev lo");
    }
    batch(Some(ROUTER), &router).await.context("configuring the router")?;
    for place in PLACES {
        let (address, number) = (place.address(), place.number());
        let inside = format!(
            "link set lo up\naddr add {address}/24 dev eth0\nlink set eth0 up\nroute add default via 10.10.{number}.1\n"
        );
        batch(Some(place.name()), &inside).await.with_context(|| format!("configuring {}", place.name()))?;
    }
    // icmp_ratelimit: otherwise the seventh and later ICMP errors to one host come a second late.
    let settings = "echo 1 >/proc/sys/net/ipv4/ip_forward; echo 0 >/proc/sys/net/ipv4/icmp_ratelimit";
    process::run(Some(ROUTER), Path::new("sh"), &["-c", settings]).await.context("making the router forward")?;
    nft(&filter()).await.context("the router's filter")?;
    Ok(())
}

/// Changes the router's filter by nft commands.
///
/// # Errors
/// nft refuses them.
pub async fn nft(commands: &str) -> Result<()> {
    process::run(Some(ROUTER), Path::new("nft"), &[commands]).await?;
    Ok(())
}

/// Silence is dropping on the router: a drop in a place's own output hook would show as EPERM there.
fn filter() -> String {
    let lost: Vec<String> = LOST_PREFIXES.iter().map(|(a, bits)| format!("{a}/{bits}")).collect();
    format!(
        "table ip lab {{
            set cut {{ type ifname; }}
            set silent {{ type ifname . ipv4_addr; }}
            chain faults {{
                type filter hook prerouting priority 0;
                iifname @cut drop
                iifname . ip daddr @silent drop
                iifname \"{branch}\" ip daddr {{ {lost} }} drop
                ip daddr {NEGATIVE_CONTROL} drop
            }}
        }}",
        branch = Place::Branch.link(),
        lost = lost.join(", "),
    )
}

/// Runs lines of `ip -batch`, in a namespace or where it stands.
///
/// # Errors
/// `ip` refuses one of them.
pub async fn batch(namespace: Option<&str>, lines: &str) -> Result<()> {
    let mut command = tokio::process::Command::new("ip");
    if let Some(namespace) = namespace {
        command.args(["-n", namespace]);
    }
    command
        .args(["-batch", "-"])
        .stdin(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().context("starting ip")?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(lines.as_bytes()).await?;
    }
    let output = child.wait_with_output().await?;
    anyhow::ensure!(output.status.success(), "ip refused: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
