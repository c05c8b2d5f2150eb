//! The real servers of the lab: one file each, from its configuration to "it answers".

pub mod bind;
pub mod dnsdist;
pub mod unbound;
pub mod web;

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::atlas::Place;
use super::certs::Certificates;
use super::layout::{Kind, Layout};
use super::programs::Programs;

/// How long a server may take to answer its first question. Busy two-core machines need seconds.
pub const START_MAX: Duration = Duration::from_secs(30);

/// What every server's start needs to know.
#[derive(Debug)]
pub struct Ground {
    /// Where everything listens.
    pub layout: Layout,
    /// The run's private directory.
    pub directory: PathBuf,
    /// The programs.
    pub programs: Programs,
    /// The certificates.
    pub certificates: Certificates,
    /// Secret of the TSIG key, base64.
    pub tsig_secret: String,
}

/// The router's namespace, where everything public lives.
pub const ROUTER: &str = "inet";

impl Ground {
    /// The namespace a place's programs run in; none in the loopback world.
    #[must_use]
    pub fn namespace(&self, place: Place) -> Option<&'static str> {
        match self.layout.kind {
            Kind::Namespaces => Some(place.name()),
            Kind::Loopback => None,
        }
    }

    /// The namespace of everything public; none in the loopback world.
    #[must_use]
    pub fn router(&self) -> Option<&'static str> {
        match self.layout.kind {
            Kind::Namespaces => Some(ROUTER),
            Kind::Loopback => None,
        }
    }

    /// A log file.
    #[must_use]
    pub fn log(&self, name: &str) -> PathBuf {
        self.directory.join("log").join(format!("{name}.log"))
    }

    /// The lab's own binary, for the parts it plays itself.
    ///
    /// # Errors
    /// It was not built.
    pub fn lab_binary(&self) -> anyhow::Result<PathBuf> {
        super::programs::ours("parallax-lab")
    }
}

/// A path as text for a configuration file. The run directory's path is ours and has no odd characters.
fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
