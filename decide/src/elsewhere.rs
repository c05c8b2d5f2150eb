//! What all vantages together found of each address. Made once for a judgement, so that comparing one answer with
//! what others found costs the same for ten vantages and for ten thousand.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::answer::ReachMap;
use crate::judge::Judgement;
use crate::names::{DomainName, VantageName};
use crate::observation::Target;
use crate::reach::Reach;

/// Vantages named as witnesses of one side, proving or dead, in a verdict. More would not change it, and thousands
/// of vantages that each name thousands would fill the memory.
pub const WITNESSES_MAX: usize = 8;

/// Every address by target, with who proves it and who finds it dead.
#[derive(Debug, Default)]
pub struct Elsewhere<'a> {
    targets: BTreeMap<&'a Target, BTreeMap<IpAddr, Found<'a>>>,
}

/// What vantages found of one address for one target.
#[derive(Debug, Default)]
struct Found<'a> {
    /// Newest probe first.
    proven: Vec<(&'a VantageName, &'a Reach)>,
    /// In order of their names.
    dead: Vec<(&'a VantageName, &'a Reach)>,
}

impl<'a> Elsewhere<'a> {
    /// Turns the map around.
    #[must_use]
    pub fn of(reach: &'a ReachMap) -> Self {
        let mut targets: BTreeMap<&Target, BTreeMap<IpAddr, Found<'_>>> = BTreeMap::new();
        for ((vantage, target, address), here) in reach {
            let (proven, dead) = (here.proven(), here.dead());
            if proven || dead {
                let found = targets.entry(target).or_default().entry(*address).or_default();
                let side = if proven { &mut found.proven } else { &mut found.dead };
                side.push((vantage, here));
            }
        }
        for found in targets.values_mut().flat_map(BTreeMap::values_mut) {
            // Stable: those of one moment stay in order of their names.
            found.proven.sort_by_key(|(_, reach)| Reverse(reach.at));
        }
        Self { targets }
    }

    fn found(&self, target: &Target, address: IpAddr) -> Option<&Found<'a>> {
        self.targets.get(target)?.get(&address)
    }

    /// Others that prove an address after it began to fail as `failing` shows; at most [`WITNESSES_MAX`], newest first.
    pub fn contradicting<'b>(
        &'b self,
        at: &'b VantageName,
        target: &Target,
        address: IpAddr,
        failing: &'b Reach,
    ) -> impl Iterator<Item = (&'a VantageName, &'a Reach)> + 'b {
        let proven = self.found(target, address).map_or(&[][..], |found| &found.proven);
        // Newest first: behind the first that is too old all are.
        let young = proven.iter().take_while(|(_, there)| there.contradicts(failing));
        young.filter(move |(vantage, _)| *vantage != at).take(WITNESSES_MAX).copied()
    }

    /// Others that find an address dead; at most [`WITNESSES_MAX`], in order of their names.
    pub fn dead<'b>(
        &'b self,
        at: &'b VantageName,
        target: &Target,
        address: IpAddr,
    ) -> impl Iterator<Item = (&'a VantageName, &'a Reach)> + 'b {
        let dead = self.found(target, address).map_or(&[][..], |found| &found.dead);
        dead.iter().filter(move |(vantage, _)| *vantage != at).take(WITNESSES_MAX).copied()
    }

    /// Whether others prove addresses for the target, and none of them is one of these.
    #[must_use]
    pub fn proves_only_others(&self, at: &VantageName, target: &Target, these: impl Iterator<Item = IpAddr>) -> bool {
        let Some(addresses) = self.targets.get(target) else { return false };
        let by_another = |found: &Found<'_>| found.proven.iter().any(|(vantage, _)| *vantage != at);
        let these_too = these.filter_map(|address| addresses.get(&address)).any(by_another);
        !these_too && addresses.values().any(by_another)
    }
}

/// Addresses that vantages were given for each name and prove.
#[derive(Debug, Default)]
pub struct Given<'a> {
    names: BTreeMap<&'a DomainName, Vec<(IpAddr, Vec<&'a VantageName>)>>,
}

impl<'a> Given<'a> {
    /// Turns the answers around.
    #[must_use]
    pub fn of(judgement: &'a Judgement) -> Self {
        let mut names: BTreeMap<&DomainName, BTreeMap<IpAddr, Vec<&VantageName>>> = BTreeMap::new();
        for ((vantage, name, _), answer) in &judgement.answers {
            for address in &answer.proven {
                let provers = names.entry(name).or_default().entry(*address).or_default();
                // The answers of one vantage follow each other, those of its resolvers for the name too.
                if provers.last() != Some(&vantage) {
                    provers.push(vantage);
                }
            }
        }
        let by_provers = |addresses: BTreeMap<IpAddr, Vec<&'a VantageName>>| {
            let mut addresses: Vec<_> = addresses.into_iter().collect();
            addresses.sort_by_key(|(address, provers)| (Reverse(provers.len()), *address));
            addresses
        };
        Self { names: names.into_iter().map(|(name, addresses)| (name, by_provers(addresses))).collect() }
    }

    /// Those that vantages other than this one prove, most proven first.
    pub fn to_others<'b>(&'b self, vantage: &'b VantageName, name: &DomainName) -> impl Iterator<Item = IpAddr> + 'b {
        let addresses = self.names.get(name).map_or(&[][..], Vec::as_slice);
        let proven = addresses.iter().filter(move |(_, provers)| provers.iter().any(|prover| *prover != vantage));
        proven.map(|(address, _)| *address)
    }

    /// Vantages other than this one that were given an address for a name and prove it, in order of their names; at most
    /// [`WITNESSES_MAX`].
    pub fn provers<'b>(
        &'b self,
        vantage: &'b VantageName,
        name: &DomainName,
        address: IpAddr,
    ) -> impl Iterator<Item = &'a VantageName> + 'b {
        let addresses = self.names.get(name).map_or(&[][..], Vec::as_slice);
        let provers = addresses.iter().find(|(given, _)| *given == address).map_or(&[][..], |(_, who)| who.as_slice());
        provers.iter().copied().filter(move |prover| *prover != vantage).take(WITNESSES_MAX)
    }
}
