//! The world: network and servers of one run, started together.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::atlas::{NODES, Place, VANTAGES};
use super::certs::Certificates;
use super::layout::{Kind, Layout};
use super::look::{self, LookOptions, Seen};
use super::map::Maps;
use super::process::Process;
use super::programs::Programs;
use super::run_dir::{private, random_key};
use super::servers::{Ground, bind, dnsdist, unbound, web};
use super::topology;

/// How long a server gets to end by itself.
const STOP_PATIENCE: Duration = Duration::from_secs(2);

/// A running world. Dropping it kills its servers.
#[derive(Debug)]
pub struct World {
    /// What its servers were started with.
    pub ground: Ground,
    /// Map files; the loopback world only.
    pub maps: Option<Maps>,
    pub(super) nodes: Vec<(&'static str, Process)>,
    servers: Vec<Process>,
}

impl World {
    /// Builds the network and starts every server in `directory`, which the caller owns. For the namespace world the
    /// process must be inside already (see `enter`).
    ///
    /// # Errors
    /// A program is missing or a server does not answer.
    pub async fn start(kind: Kind, directory: &Path) -> Result<Self> {
        let layout = match kind {
            Kind::Namespaces => Layout::namespaces(),
            // Runs at the same time shall not try the same ports first.
            Kind::Loopback => Layout::loopback(u16::try_from(std::process::id() % 65_536)?)?,
        };
        private(&directory.join("log"))?;
        let programs = Programs::locate(&directory.join("bin"))?;
        let maps = match kind {
            Kind::Namespaces => {
                topology::build().await?;
                None
            }
            Kind::Loopback => Some(Maps::create(&layout, directory)?),
        };
        let certificates = Certificates::create(&directory.join("tls"))?;
        let ground =
            Ground { layout, directory: directory.to_owned(), programs, certificates, tsig_secret: random_key()? };
        let mut servers = vec![bind::start(&ground).await?];
        let (layout, certificates) = (&ground.layout, &ground.certificates);
        let (cdn, controls) = (layout.cdn(), layout.controls());
        let (public, cdn, controls) = tokio::try_join!(
            dnsdist::start(&ground),
            web::start(&ground, "cdn", &cdn, &certificates.cdn),
            web::start(&ground, "controls", &controls, &certificates.controls),
        )?;
        servers.extend([public, cdn, controls]);
        let mut nodes = Vec::new();
        for node in NODES {
            nodes.push((node.name, Self::start_node(&ground, node.name).await?));
        }
        let (branch, wan, fra) = tokio::try_join!(
            unbound::start(&ground, Place::Branch),
            unbound::start(&ground, Place::Wan),
            unbound::start(&ground, Place::Fra),
        )?;
        servers.extend([branch, wan, fra]);
        Ok(Self { ground, maps, nodes, servers })
    }

    /// How the places are separated.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.ground.layout.kind
    }

    pub(super) async fn start_node(ground: &Ground, name: &'static str) -> Result<Process> {
        let node = super::atlas::node(name)?;
        web::start(ground, name, &[ground.layout.node(node)], &ground.certificates.node(name)).await
    }

    /// What a place sees; public addresses in `options` are translated where the world needs it.
    ///
    /// # Errors
    /// The looking process cannot be run.
    pub async fn look(&self, place: Place, options: &LookOptions) -> Result<Vec<Seen>> {
        let dialled = LookOptions {
            ask: options.ask.iter().map(|a| self.dialled(place, a)).collect::<Result<_>>()?,
            connect: options.connect.iter().map(|c| self.dialled(place, c)).collect::<Result<_>>()?,
            ca: Some(self.ground.certificates.authority.clone()),
        };
        look::look(self.ground.namespace(place), &self.ground.lab_binary()?, &dialled).await
    }

    fn dialled(&self, place: Place, target: &str) -> Result<String> {
        let Some(maps) = &self.maps else { return Ok(target.to_owned()) };
        let (address, rest) = target.split_once('/').map_or((target, None), |(a, r)| (a, Some(r)));
        let public = address.parse()?;
        let at = maps.dial(place, public).unwrap_or(public);
        Ok(rest.map_or_else(|| at.to_string(), |rest| format!("{at}/{rest}")))
    }

    /// The servers that have ended, with the tails of their logs. Empty when all is well.
    pub fn ended(&mut self) -> Vec<String> {
        let all = self.servers.iter_mut().chain(self.nodes.iter_mut().map(|(_, p)| p));
        all.filter_map(Process::ended).collect()
    }

    /// Names of the places where agents run, and their resolvers' addresses: for messages.
    #[must_use]
    pub fn describe(&self) -> String {
        VANTAGES.map(|p| format!("{} asks {}", p.name(), self.ground.layout.live(p))).join(", ")
    }

    /// Stops every server.
    ///
    /// # Errors
    /// The system refuses to kill one.
    pub async fn stop(mut self) -> Result<()> {
        let nodes = self.nodes.iter_mut().map(|(_, process)| process);
        let stops = self.servers.iter_mut().chain(nodes).map(|p| p.stop(STOP_PATIENCE));
        for stopped in futures_util::future::join_all(stops).await {
            stopped?;
        }
        Ok(())
    }
}
