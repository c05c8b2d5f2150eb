//! The lab's test of itself: who is told what, who reaches what, before, during and after each fault.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use anyhow::Result;

use super::atlas::{
    CANARIES, CDN_FAMILY_RESOLVER, CDN_RESOLVER, CONTROLS, Canary, LOST_OTHER, LOST_PAIR, NEGATIVE_CONTROL, NODES,
    OTHER_RESOLVER, PUBLIC_RESOLVERS, Place, TTL_S, VANTAGES, cdn_addresses, is_lost_at_branch, node,
};
use super::certs::{control_name, host_name};
use super::faults::handed;
use super::look::{LookOptions, Seen};
use super::world::World;
use crate::clock::now;

/// A live resolver may serve its cache this long after a change of what its upstream says.
const CACHE_MAX: Duration = Duration::from_secs(TTL_S as u64 + 3);

/// Expectation and what was seen, one line each.
#[derive(Debug, Default)]
pub struct Findings {
    /// Lines for people.
    pub lines: Vec<String>,
    /// How many did not hold.
    pub failed: usize,
}

impl Findings {
    fn record(&mut self, what: String, expected: &Seen, seen: &Seen) {
        let holds = expected == seen;
        self.failed += usize::from(!holds);
        let mark = if holds { "ok " } else { "BAD" };
        let wanted = if holds { String::new() } else { format!("   expected {}", show(expected)) };
        self.lines.push(format!("  {mark} {what:<64} {}{wanted}", show(seen)));
    }
}

/// Runs every check.
///
/// # Errors
/// A looking process cannot be run, or a fault not be switched.
pub async fn run(world: &mut World) -> Result<Findings> {
    let mut findings = Findings::default();
    findings.lines.push("as it is".to_owned());
    for place in VANTAGES {
        answers(world, place, false, &mut findings).await?;
        connections(world, place, &mut findings).await?;
    }
    findings.lines.push("the branch is handed the pair".to_owned());
    world.hand_branch_the_pair().await?;
    for place in VANTAGES {
        answers(world, place, place == Place::Branch, &mut findings).await?;
    }
    world.hand_branch_native_answers().await?;
    findings.lines.push("and the native answers again".to_owned());
    answers(world, Place::Branch, false, &mut findings).await?;

    findings.lines.push("node fi is dark, then its server is dead, then it is back".to_owned());
    world.darken_node("fi").await?;
    node_from_everywhere(world, "fi", &Seen::Silent, &mut findings).await?;
    world.light_node("fi").await?;
    node_from_everywhere(world, "fi", &Seen::Connected, &mut findings).await?;
    world.kill_node_server("fi").await?;
    node_from_everywhere(world, "fi", &refused(), &mut findings).await?;
    world.start_node_server("fi").await?;
    node_from_everywhere(world, "fi", &Seen::Connected, &mut findings).await?;

    findings.lines.push("the branch's uplink is cut, then joined".to_owned());
    world.set_cut(Place::Branch, true).await?;
    check_controls(world, Place::Branch, &Seen::Silent, &mut findings).await?;
    check_controls(world, Place::Wan, &Seen::Connected, &mut findings).await?;
    world.set_cut(Place::Branch, false).await?;
    check_controls(world, Place::Branch, &Seen::Connected, &mut findings).await?;
    Ok(findings)
}

async fn answers(world: &World, place: Place, faulty: bool, findings: &mut Findings) -> Result<()> {
    let mut options = LookOptions::default();
    let mut expected = Vec::new();
    for canary in CANARIES {
        for resolver in PUBLIC_RESOLVERS {
            options.ask.push(format!("{}:53/{}", resolver.address, canary.name));
            expected.push(Seen::Answer(told(place, &canary, faulty, resolver == OTHER_RESOLVER)));
        }
    }
    for node in NODES {
        options.ask.push(format!("{}:53/{}", CDN_RESOLVER.address, host_name(node.name)));
        expected.push(Seen::Answer(vec![node.address]));
    }
    let seen = world.look(place, &options).await?;
    for ((question, expected), seen) in options.ask.iter().zip(&expected).zip(&seen) {
        findings.record(format!("{} asks {question}", place.name()), expected, seen);
    }
    // The live resolver may have the old answer for its TTL.
    for canary in CANARIES {
        let question = format!("{}/{}", world.ground.layout.live(place), canary.name);
        let expected = Seen::Answer(told(place, &canary, faulty, false));
        let start = now();
        loop {
            let options = LookOptions { ask: vec![question.clone()], ..LookOptions::default() };
            let seen = world.look(place, &options).await?.into_iter().next().unwrap_or(Seen::Silent);
            if seen == expected || start.elapsed() > CACHE_MAX {
                findings.record(format!("{} asks its own {question}", place.name()), &expected, &seen);
                break;
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }
    Ok(())
}

async fn connections(world: &World, place: Place, findings: &mut Findings) -> Result<()> {
    let mut options = LookOptions::default();
    let mut expected = Vec::new();
    for address in cdn_addresses() {
        let name = CANARIES.iter().find(|c| c.native.contains(&address) || c.fra.contains(&address)).map(|c| c.name);
        options.connect.push(format!("{address}:443/{}", name.unwrap_or("cdnjs.cloudflare.com")));
        let lost = place == Place::Branch && is_lost_at_branch(address);
        expected.push(if lost { Seen::Silent } else { Seen::Connected });
    }
    for node in NODES {
        options.connect.push(format!("{}:443/{}", node.address, host_name(node.name)));
        expected.push(Seen::Connected);
    }
    for resolver in [CDN_RESOLVER, CDN_FAMILY_RESOLVER, OTHER_RESOLVER] {
        options.connect.push(format!("{}:443/{}", resolver.address, resolver.server_name));
        expected.push(Seen::Connected);
    }
    options.connect.push(format!("{NEGATIVE_CONTROL}:443"));
    expected.push(Seen::Silent);
    let seen = world.look(place, &options).await?;
    for ((target, expected), seen) in options.connect.iter().zip(&expected).zip(&seen) {
        findings.record(format!("{} connects to {target}", place.name()), expected, seen);
    }
    check_controls(world, place, &Seen::Connected, findings).await
}

async fn check_controls(world: &World, place: Place, expected: &Seen, findings: &mut Findings) -> Result<()> {
    let connect = CONTROLS.iter().map(|(name, address)| format!("{address}:443/{}", control_name(name))).collect();
    let options = LookOptions { connect, ..LookOptions::default() };
    for (target, seen) in options.connect.iter().zip(world.look(place, &options).await?) {
        findings.record(format!("{} connects to {target}", place.name()), expected, &seen);
    }
    Ok(())
}

async fn node_from_everywhere(world: &World, name: &str, expected: &Seen, findings: &mut Findings) -> Result<()> {
    let target = format!("{}/{}", SocketAddrV4::new(node(name)?.address, 443), host_name(name));
    for place in VANTAGES {
        let options = LookOptions { connect: vec![target.clone()], ..LookOptions::default() };
        let seen = world.look(place, &options).await?.into_iter().next().unwrap_or(Seen::Silent);
        findings.record(format!("{} connects to {target}", place.name()), expected, &seen);
    }
    Ok(())
}

/// What a place is told, sorted.
fn told(place: Place, canary: &Canary, faulty: bool, by_other: bool) -> Vec<Ipv4Addr> {
    let handed = faulty && handed().any(|name| name == canary.name);
    let mut addresses = match place {
        Place::Branch if handed && by_other => vec![LOST_OTHER],
        Place::Branch if handed => LOST_PAIR.to_vec(),
        Place::Branch | Place::Hq => canary.native.to_vec(),
        Place::Wan => canary.wan.to_vec(),
        Place::Fra => canary.fra.to_vec(),
    };
    addresses.sort();
    addresses
}

fn refused() -> Seen {
    Seen::Failed("Connection refused (os error 111)".to_owned())
}

fn show(seen: &Seen) -> String {
    match seen {
        Seen::Answer(addresses) => {
            let all: Vec<String> = addresses.iter().map(Ipv4Addr::to_string).collect();
            if all.is_empty() { "no address".to_owned() } else { all.join(" ") }
        }
        Seen::Connected => "connected".to_owned(),
        Seen::Silent => "silent".to_owned(),
        Seen::Failed(why) => why.clone(),
    }
}
