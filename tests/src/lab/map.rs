//! The loopback world's map files: from public address to the socket that plays it, one file a vantage. Faults are
//! entries that point to the black hole.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::atlas::{NEGATIVE_CONTROL, Place, VANTAGES, cdn_addresses, is_lost_at_branch};
use super::blackhole::BlackHole;
use super::layout::Layout;

/// The maps of one world and what is silent in them.
#[derive(Debug)]
pub struct Maps {
    layout: Layout,
    directory: PathBuf,
    hole: BlackHole,
    /// Public addresses that give no answer, by place.
    silent: BTreeSet<(Place, Ipv4Addr)>,
    /// Places to which nothing answers.
    cut: BTreeSet<Place>,
}

impl Maps {
    /// Writes the maps of a world without faults: only the paths that never exist are missing.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn create(layout: &Layout, directory: &Path) -> Result<Self> {
        let lost = cdn_addresses().into_iter().filter(|a| is_lost_at_branch(*a)).map(|a| (Place::Branch, a));
        let negative = VANTAGES.into_iter().map(|p| (p, NEGATIVE_CONTROL));
        let maps = Self {
            layout: layout.clone(),
            directory: directory.to_owned(),
            hole: BlackHole::open()?,
            silent: lost.chain(negative).collect(),
            cut: BTreeSet::new(),
        };
        maps.write()?;
        Ok(maps)
    }

    /// The map file of a vantage.
    #[must_use]
    pub fn file(&self, place: Place) -> PathBuf {
        self.directory.join(format!("map-{}.json", place.name()))
    }

    /// Makes an address silent for a place, or lets it answer again.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn set_silent(&mut self, place: Place, address: Ipv4Addr, silent: bool) -> Result<()> {
        if silent {
            self.silent.insert((place, address));
        } else {
            self.silent.remove(&(place, address));
        }
        self.write()
    }

    /// Cuts a place off from every public address, or joins it again. Its own resolver still answers it.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn set_cut(&mut self, place: Place, cut: bool) -> Result<()> {
        if cut {
            self.cut.insert(place);
        } else {
            self.cut.remove(&place);
        }
        self.write()
    }

    /// Where a public address leads from a place, faults included; none when nothing plays it.
    #[must_use]
    pub fn dial(&self, place: Place, public: SocketAddrV4) -> Option<SocketAddrV4> {
        self.entries(place).get(&public).copied()
    }

    fn entries(&self, place: Place) -> BTreeMap<SocketAddrV4, SocketAddrV4> {
        let mut entries = self.layout.dial(place);
        entries.insert(SocketAddrV4::new(NEGATIVE_CONTROL, 443), self.hole.at());
        let own = self.layout.live(place);
        for (public, at) in &mut entries {
            let silent = self.silent.contains(&(place, *public.ip()));
            if silent || (self.cut.contains(&place) && *public != own) {
                *at = self.hole.at();
            }
        }
        entries
    }

    /// Each file appears whole: agents re-read them while running.
    fn write(&self) -> Result<()> {
        for place in VANTAGES {
            let text: BTreeMap<String, String> =
                self.entries(place).iter().map(|(public, at)| (public.to_string(), at.to_string())).collect();
            let file = self.file(place);
            let fresh = file.with_extension("fresh");
            std::fs::write(&fresh, serde_json::to_string_pretty(&text)?)?;
            std::fs::rename(&fresh, &file).with_context(|| format!("writing {}", file.display()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::atlas::{LOST_PAIR, NODES};

    #[test]
    fn a_fault_changes_one_place_and_is_undone_without_trace() {
        let directory = tempfile::tempdir().unwrap();
        let mut maps = Maps::create(&Layout::loopback(11).unwrap(), directory.path()).unwrap();
        let fi = SocketAddrV4::new(NODES[0].address, 443);
        let before = std::fs::read_to_string(maps.file(Place::Wan)).unwrap();
        maps.set_silent(Place::Wan, NODES[0].address, true).unwrap();
        assert_eq!(maps.dial(Place::Wan, fi), Some(maps.hole.at()));
        assert_ne!(maps.dial(Place::Fra, fi), Some(maps.hole.at()));
        maps.set_silent(Place::Wan, NODES[0].address, false).unwrap();
        assert_eq!(std::fs::read_to_string(maps.file(Place::Wan)).unwrap(), before);
    }

    #[test]
    fn the_pair_is_lost_at_the_branch_only() {
        let directory = tempfile::tempdir().unwrap();
        let maps = Maps::create(&Layout::loopback(12).unwrap(), directory.path()).unwrap();
        for address in LOST_PAIR {
            let public = SocketAddrV4::new(address, 443);
            assert_eq!(maps.dial(Place::Branch, public), Some(maps.hole.at()));
            assert_ne!(maps.dial(Place::Wan, public), Some(maps.hole.at()));
        }
    }
}
