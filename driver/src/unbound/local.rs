//! What of Unbound's local data and zones concerns one name.

use std::collections::BTreeSet;
use std::net::IpAddr;

use parallax_decide::change::{Change, Standing};
use parallax_decide::names::{ADDRESSES_MAX, Addresses, DomainName};

use crate::Reading;
use crate::error::quoted;

/// Most foreign record types that are named to people.
const TYPES_MAX: usize = 8;

/// The part of the lists that concerns a name; built line by line, so that a list of any length costs
/// no memory.
#[derive(Debug)]
pub(super) struct Local {
    /// Lower case, with the trailing dot.
    name: String,
    /// At most one more than a set may hold.
    addresses: BTreeSet<IpAddr>,
    ttls_s: BTreeSet<u32>,
    /// Other record types at the name.
    types: BTreeSet<String>,
    /// Whether a name below this one has local data.
    below: bool,
    /// Type of the zone with just this name.
    own_zone: Option<String>,
    /// Name and type of the closest zone above.
    zone_above: Option<(String, String)>,
}

impl Local {
    pub(super) fn new(name: &DomainName) -> Self {
        Self {
            name: format!("{name}."),
            addresses: BTreeSet::new(),
            ttls_s: BTreeSet::new(),
            types: BTreeSet::new(),
            below: false,
            own_zone: None,
            zone_above: None,
        }
    }

    /// Takes a line of `list_local_data`: name, TTL, class, type and data.
    pub(super) fn data_line(&mut self, line: &str) -> Result<(), String> {
        let mut words = line.split_ascii_whitespace();
        let (Some(owner), Some(ttl), Some(_class), Some(rtype)) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(not_understood(line));
        };
        let ttl_s: u32 = ttl.parse().map_err(|_| not_understood(line))?;
        if !owner.ends_with('.') {
            return Err(not_understood(line));
        }
        if !self.is_at(owner) {
            self.below |= is_below(owner, &self.name);
            return Ok(());
        }
        if rtype == "A" || rtype == "AAAA" {
            let data = words.next().unwrap_or_default();
            let address: IpAddr = data.parse().map_err(|_| not_understood(line))?;
            if self.addresses.len() <= ADDRESSES_MAX {
                self.addresses.insert(address);
                self.ttls_s.insert(ttl_s);
            }
        } else if self.types.len() < TYPES_MAX {
            self.types.insert(quoted(rtype));
        }
        Ok(())
    }

    /// Takes a line of `list_local_zones`: name and type.
    pub(super) fn zone_line(&mut self, line: &str) -> Result<(), String> {
        let mut words = line.split_ascii_whitespace();
        let (Some(zone), Some(kind), None) = (words.next(), words.next(), words.next()) else {
            return Err(not_understood(line));
        };
        if !zone.ends_with('.') {
            return Err(not_understood(line));
        }
        if self.is_at(zone) {
            self.own_zone = Some(quoted(kind));
        } else if is_below(&self.name, zone)
            && self.zone_above.as_ref().is_none_or(|(closest, _)| closest.len() < zone.len())
        {
            self.zone_above = Some((zone.to_owned(), quoted(kind)));
        }
        Ok(())
    }

    /// What a client of Unbound is given for the name, as far as local data decides it.
    pub(super) fn reading(&self) -> Reading {
        let zone = match (&self.own_zone, &self.zone_above) {
            (Some(kind), _) => Some((self.name.as_str(), kind.as_str())),
            (None, Some((zone, kind))) => Some((zone.as_str(), kind.as_str())),
            (None, None) => None,
        };
        if let Some((zone, kind)) = zone.filter(|(_, kind)| *kind != "transparent") {
            return foreign(format!("local zone {zone} of type {kind}, made by the operator"));
        }
        if !self.types.is_empty() {
            let types: Vec<&str> = self.types.iter().map(String::as_str).collect();
            return foreign(format!("local data of type {}", types.join(", ")));
        }
        match Addresses::new(self.addresses.iter().copied()) {
            Ok(addresses) => Reading::Set { addresses, ttl_s: self.ttls_s.last().copied().unwrap_or_default() },
            Err(_) if self.addresses.is_empty() => Reading::Nothing,
            Err(error) => foreign(format!("local data that can never be ours: {error}")),
        }
    }

    /// Compares with a change about `ours`. A part of our own set, with our own TTL, is an interrupted
    /// write of ours: the change may go on from there.
    pub(super) fn standing(&self, change: &Change, ours: &Addresses, ttl_s: u32) -> Standing {
        match self.reading() {
            Reading::Set { addresses, .. }
                if addresses != *ours
                    && addresses.as_set().is_subset(ours.as_set())
                    && self.ttls_s.iter().eq([&ttl_s]) =>
            {
                Standing::AsExpected
            }
            reading @ (Reading::Nothing | Reading::Set { .. } | Reading::Foreign { .. }) => reading.standing(change),
        }
    }

    pub(super) fn holds(&self, address: IpAddr) -> bool {
        self.addresses.contains(&address)
    }

    /// Whether the zone of just this name can go without changing anything for anybody else.
    pub(super) fn zone_is_removable(&self) -> bool {
        self.own_zone.as_deref() == Some("transparent")
            && !self.below
            && self.zone_above.as_ref().is_none_or(|(_, kind)| kind == "transparent")
    }

    fn is_at(&self, name: &str) -> bool {
        name.eq_ignore_ascii_case(&self.name)
    }
}

/// Whether `name` is a proper descendant of `zone`; both with the trailing dot.
fn is_below(name: &str, zone: &str) -> bool {
    if zone == "." {
        return name != ".";
    }
    let Some(split) = name.len().checked_sub(zone.len()) else { return false };
    split > 0
        && name.as_bytes().get(split - 1) == Some(&b'.')
        && name.get(split..).is_some_and(|end| end.eq_ignore_ascii_case(zone))
}

fn foreign(what: String) -> Reading {
    Reading::Foreign { what }
}

fn not_understood(line: &str) -> String {
    format!("line '{}'", quoted(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(data: &[&str], zones: &[&str]) -> Local {
        let mut local = Local::new(&"fi.example.net".parse().unwrap());
        data.iter().for_each(|line| local.data_line(line).unwrap());
        zones.iter().for_each(|line| local.zone_line(line).unwrap());
        local
    }

    fn pin(addresses: &[&str]) -> (Change, Addresses) {
        let addresses = Addresses::new(addresses.iter().map(|text| text.parse().unwrap())).unwrap();
        (Change::Pin { name: "fi.example.net".parse().unwrap(), addresses: addresses.clone(), ttl_s: 30 }, addresses)
    }

    fn is_foreign(local: &Local, part: &str) -> bool {
        matches!(local.reading(), Reading::Foreign { what } if what.contains(part))
    }

    #[test]
    fn only_the_name_itself_counts_in_any_case() {
        let found = local(
            &[
                "Fi.Example.NET.\t30\tIN\tA\t95.216.10.10",
                "x.fi.example.net. 30 IN A 1.1.1.1",
                "afi.example.net. 1 IN A 8.8.8.8",
            ],
            &["Fi.example.net. transparent", "test. static"],
        );
        let (_, addresses) = pin(&["95.216.10.10"]);
        assert_eq!(found.reading(), Reading::Set { addresses, ttl_s: 30 });
        assert!(found.below);
        assert!(!found.zone_is_removable(), "the zone holds another's data");
    }

    #[test]
    fn what_is_not_ours_is_foreign_and_never_nothing() {
        assert!(is_foreign(&local(&["fi.example.net. 30 IN TXT \"x y\""], &[]), "TXT"));
        assert!(is_foreign(&local(&["fi.example.net. 30 IN A 10.0.0.1"], &[]), "private"));
        assert!(is_foreign(&local(&[], &["fi.example.net. redirect"]), "redirect"));
        assert!(is_foreign(&local(&[], &["EXAMPLE.net. static"]), "static"));
        assert!(is_foreign(&local(&[], &[". refuse"]), "refuse"));
        assert!(is_foreign(&local(&[], &["net. transparent", "example.net. typetransparent"]), "typetransparent"));
        let many: Vec<String> = (1..40).map(|n| format!("fi.example.net. 30 IN A 95.216.10.{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(is_foreign(&local(&many, &[]), "at most 16"));
    }

    #[test]
    fn the_closest_zone_decides() {
        assert_eq!(local(&[], &["example.net. transparent", "net. static"]).reading(), Reading::Nothing);
        assert_eq!(local(&[], &["fi.example.net. transparent", "example.net. static"]).reading(), Reading::Nothing);
        assert_eq!(local(&[], &["xample.net. static", "a.fi.example.net. static"]).reading(), Reading::Nothing);
    }

    #[test]
    fn a_zone_that_shields_the_name_stays() {
        assert!(local(&[], &["fi.example.net. transparent"]).zone_is_removable());
        assert!(!local(&[], &["fi.example.net. transparent", "example.net. static"]).zone_is_removable());
        assert!(!local(&[], &[]).zone_is_removable());
    }

    #[test]
    fn a_part_of_our_own_pin_goes_on_and_a_stranger_does_not() {
        let (change, ours) = pin(&["95.216.10.10", "95.216.10.11"]);
        let part = local(&["fi.example.net. 30 IN A 95.216.10.10"], &[]);
        assert_eq!(part.standing(&change, &ours, 30), Standing::AsExpected);
        assert_eq!(part.standing(&change.undo(), &ours, 30), Standing::AsExpected);
        assert_eq!(part.standing(&change, &ours, 60), Standing::Foreign, "not the TTL we write");
        let stranger = local(&["fi.example.net. 30 IN A 95.216.10.12"], &[]);
        assert_eq!(stranger.standing(&change, &ours, 30), Standing::Foreign);
        let more = local(&["fi.example.net. 30 IN A 95.216.10.10", "fi.example.net. 30 IN TXT x"], &[]);
        assert_eq!(more.standing(&change, &ours, 30), Standing::Foreign);
    }

    #[test]
    fn lines_that_are_not_understood_are_errors() {
        let mut local = Local::new(&"fi.example.net".parse().unwrap());
        for line in
            ["<html>", "fi.example.net. x IN A 1.1.1.1", "fi.example.net 30 IN A 1.1.1.1", "fi.example.net. 30 IN A x"]
        {
            assert!(local.data_line(line).is_err(), "{line}");
        }
        for line in ["a.", "a static", "a. static extra"] {
            assert!(local.zone_line(line).is_err(), "{line}");
        }
    }
}
