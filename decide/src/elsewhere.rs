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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;
    use crate::verdict::AddressVerdict;

    fn place(number: u32) -> VantageName {
        format!("v{number:03}").parse().unwrap()
    }

    fn target() -> Target {
        Target::Name("canary.example.net".parse().unwrap())
    }

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([8, 6, 112, last])
    }

    fn seen(verdict: AddressVerdict, at: i64, failing_since: Option<i64>) -> Reach {
        Reach {
            verdict,
            failures: 0,
            wanted: None,
            attempts: None,
            span_ms: 0,
            at: Some(Timestamp(at)),
            failing_since: failing_since.map(Timestamp),
            proof: None,
            held: false,
            evidence: Vec::new(),
        }
    }

    /// A hundred places each way: the first hundred prove it, at 1000, 1001 and so on, the others find it dead since 1050.
    fn divided() -> ReachMap {
        let proven = (0..100).map(|n| (n, seen(AddressVerdict::Ok, 1000 + i64::from(n), None)));
        let dead = (100..200).map(|n| (n, seen(AddressVerdict::Silent, 2000, Some(1050))));
        proven.chain(dead).map(|(n, reach)| ((place(n), target(), ip(1)), reach)).collect()
    }

    #[test]
    fn the_newest_witnesses_speak_and_no_more_than_are_needed() {
        let reach = divided();
        let elsewhere = Elsewhere::of(&reach);
        let failing = &reach[&(place(100), target(), ip(1))];
        let names: Vec<VantageName> =
            elsewhere.contradicting(&place(100), &target(), ip(1), failing).map(|(name, _)| name.clone()).collect();
        assert_eq!(names, (92..100).rev().map(place).collect::<Vec<_>>());
        let dead: Vec<VantageName> =
            elsewhere.dead(&place(100), &target(), ip(1)).map(|(name, _)| name.clone()).collect();
        assert_eq!(dead, (101..109).map(place).collect::<Vec<_>>(), "not the one that asks");
    }

    #[test]
    fn a_success_of_before_the_fault_contradicts_nothing() {
        let mut reach = divided();
        reach.retain(|(name, _, _), _| *name < place(50) || *name >= place(100));
        let elsewhere = Elsewhere::of(&reach);
        let failing = &reach[&(place(100), target(), ip(1))];
        assert_eq!(elsewhere.contradicting(&place(100), &target(), ip(1), failing).count(), 0);
    }
}
