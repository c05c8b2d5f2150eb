//! The switches: what goes wrong in the stories, and how it heals. Each works in both worlds.

use std::net::Ipv4Addr;

use anyhow::{Context, Result, bail};

use super::atlas::{
    CANARIES, CDN_FAMILY_RESOLVER, CDN_RESOLVER, LOST_OTHER, LOST_PAIR, OTHER_RESOLVER, PLACES, Place, VANTAGES, node,
};
use super::servers::dnsdist::{self, spoof};
use super::topology;
use super::world::World;

impl World {
    /// Story 1: from now on every public resolver hands the branch addresses that have no path from there: the content
    /// network's the known pair, the other operator's another address of the same prefix. example.com stays fine.
    ///
    /// # Errors
    /// dnsdist refuses the rules.
    pub async fn hand_branch_the_pair(&self) -> Result<()> {
        let content_network = [CDN_RESOLVER, CDN_FAMILY_RESOLVER];
        let layout = &self.ground.layout;
        let mut statements = Vec::new();
        for canary in handed() {
            let pair = spoof(layout, &rule("pair", canary), Place::Branch, &content_network, canary, &LOST_PAIR);
            let other = spoof(layout, &rule("other", canary), Place::Branch, &[OTHER_RESOLVER], canary, &[LOST_OTHER]);
            statements.extend([pair, other]);
        }
        dnsdist::console(&self.ground, &statements.join(" ")).await
    }

    /// Ends story 1: the branch is handed the native answers again.
    ///
    /// # Errors
    /// dnsdist refuses.
    pub async fn hand_branch_native_answers(&self) -> Result<()> {
        let rules = handed().flat_map(|canary| [rule("pair", canary), rule("other", canary)]);
        let statements: Vec<String> = rules.map(|r| format!("rmRule({r:?})")).collect();
        dnsdist::console(&self.ground, &statements.join(" ")).await
    }

    /// Story 2: a machine of ours goes dark. Nothing it is sent is answered, from anywhere.
    ///
    /// # Errors
    /// The network refuses the change.
    pub async fn darken_node(&mut self, name: &str) -> Result<()> {
        let address = node(name)?.address;
        self.set_silent(&PLACES, address, true).await
    }

    /// The machine is back.
    ///
    /// # Errors
    /// The network refuses the change.
    pub async fn light_node(&mut self, name: &str) -> Result<()> {
        let address = node(name)?.address;
        self.set_silent(&PLACES, address, false).await
    }

    /// Kills a node's server process: the machine is there and refuses connections.
    ///
    /// # Errors
    /// There is no such node, or it cannot be killed.
    pub async fn kill_node_server(&mut self, name: &str) -> Result<()> {
        let found = self.nodes.iter_mut().find(|(n, _)| *n == name);
        found.with_context(|| format!("the lab has no node {name}"))?.1.kill9().await
    }

    /// Starts a killed node's server again.
    ///
    /// # Errors
    /// There is no such node, or it does not start.
    pub async fn start_node_server(&mut self, name: &str) -> Result<()> {
        let found = self.nodes.iter_mut().find(|(n, _)| *n == name);
        let (name, process) = found.with_context(|| format!("the lab has no node {name}"))?;
        *process = Self::start_node(&self.ground, name).await?;
        Ok(())
    }

    /// Cuts a place's uplink, or joins it again. In the loopback world the place's own resolver and its way to the
    /// coordinator stay.
    ///
    /// # Errors
    /// The network refuses the change.
    pub async fn set_cut(&mut self, place: Place, cut: bool) -> Result<()> {
        if let Some(maps) = &mut self.maps {
            return maps.set_cut(place, cut);
        }
        topology::nft(&format!("{} element ip lab cut {{ \"{}\" }}", verb(cut), place.link())).await
    }

    /// Cuts a place off from the coordinator alone, or joins it again. Namespace world only: the agents' way to the
    /// coordinator is not mapped.
    ///
    /// # Errors
    /// The network refuses the change, or this is the loopback world.
    pub async fn set_coordinator_cut(&mut self, place: Place, cut: bool) -> Result<()> {
        if self.maps.is_some() {
            bail!("the loopback world cannot cut an agent off from the coordinator");
        }
        self.set_silent(&[place], Place::Hq.address(), cut).await
    }

    /// Makes an address silent for some places, or lets it answer again.
    ///
    /// # Errors
    /// The network refuses the change.
    pub async fn set_silent(&mut self, places: &[Place], address: Ipv4Addr, silent: bool) -> Result<()> {
        if let Some(maps) = &mut self.maps {
            for place in VANTAGES.iter().filter(|p| places.contains(p)) {
                maps.set_silent(*place, address, silent)?;
            }
            return Ok(());
        }
        let elements: Vec<String> = places.iter().map(|p| format!("\"{}\" . {address}", p.link())).collect();
        topology::nft(&format!("{} element ip lab silent {{ {} }}", verb(silent), elements.join(", "))).await
    }
}

/// The names of story 1.
pub fn handed() -> impl Iterator<Item = &'static str> {
    CANARIES.iter().filter(|c| c.native != c.wan).map(|c| c.name)
}

fn rule(what: &str, canary: &str) -> String {
    format!("fault {what} {canary}")
}

fn verb(on: bool) -> &'static str {
    if on { "add" } else { "delete" }
}
