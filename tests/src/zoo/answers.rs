//! One name a case: how it is answered while all is well, and what goes wrong with it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::case::{Case, Planned, Watch};
use super::fault::{Chain, Fault, Told, Way};
use super::place::{BOXED, BRANCH, FRA, OF_NAMES, Place, SANE, TWIN, WAN};
use super::public::{CF, Culprit, GOOGLE, PLAIN, host};

/// A watched name.
#[derive(Debug, Clone)]
pub struct Canary {
    /// Its first label.
    pub label: &'static str,
    /// Who watches it.
    pub by: &'static [Watch],
    /// What the authority has for it.
    pub addresses: Vec<IpAddr>,
}

/// Where a name's server is while all is well.
const fn home(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(104, 20, number, 1)
}

/// Where it is said to be when that is no help.
const fn lost(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(8, 6, number, 5)
}

/// Stands for a block page, and is one.
pub const STUB: Ipv4Addr = Ipv4Addr::new(95, 213, 0, 10);
/// Is listed as one too, and works.
pub const LISTED: Ipv4Addr = home(29);
/// Where the old server of `a08` was. Nobody is there.
const OLD: Ipv4Addr = Ipv4Addr::new(104, 21, 8, 8);
/// A second address of `a10`.
const SECOND: Ipv4Addr = Ipv4Addr::new(104, 21, 10, 2);
/// Only IPv6.
const ONLY_V6: Ipv6Addr = Ipv6Addr::new(0x2606, 0x4700, 0, 0, 0, 0, 0, 1);

/// Where somebody serves pages for all names: every address above at which somebody is.
#[must_use]
pub fn servers() -> Vec<Ipv4Addr> {
    let mut all: Vec<Ipv4Addr> = canaries()
        .into_iter()
        .flat_map(|canary| canary.addresses)
        .filter_map(|address| match address {
            IpAddr::V4(v4) => Some(v4),
            IpAddr::V6(_) => None,
        })
        .chain(steered())
        .chain([1, 2, 3, 4].map(lost))
        .collect();
    all.sort();
    all.dedup();
    all
}

/// What `a05` is at the three sane places.
fn steered() -> [Ipv4Addr; 3] {
    [1, 2, 3].map(|number| Ipv4Addr::new(104, 16, number, 1))
}

/// Every watched name.
#[must_use]
pub fn canaries() -> Vec<Canary> {
    let of = |label, number| Canary { label, by: &[Watch::Names], addresses: vec![home(number).into()] };
    let mut all = vec![
        of("steady", 100),
        of("a01", 1),
        of("a02", 2),
        of("a03", 3),
        of("a04", 4),
        of("a05", 5),
        of("a06", 6),
        of("a07", 7),
        of("a08", 8),
        of("a10", 10),
        of("a11", 11),
        of("a13", 13),
        of("a14", 14),
        of("a16", 16),
        of("a19", 19),
        of("a20", 20),
        of("a22", 22),
        of("a23", 23),
        of("a28", 28),
        of("a29", 29),
        Canary { label: "a31", by: &[Watch::Names], addresses: vec![ONLY_V6.into()] },
        of("a33", 33),
        of("a34", 34),
        of("a40", 40),
        of("a47", 47),
        of("denied", 60),
        of("servfail", 61),
        of("empty", 62),
        of("impostor", 63),
        of("partial", 64),
    ];
    for canary in &mut all {
        match canary.label {
            "steady" => canary.by = &Watch::ALL,
            "a34" => canary.by = &[Watch::Troubles],
            _ => {}
        }
        if canary.label == "a10" {
            canary.addresses.push(SECOND.into());
        }
    }
    all
}

fn told(places: &[Place], at: &[Ipv4Addr], label: &str, what: Told) -> Fault {
    Fault::Told { places: places.to_vec(), at: at.to_vec(), name: host(label), what }
}

fn way(places: &[Place], to: Ipv4Addr, what: Way) -> Fault {
    Fault::Way { places: places.to_vec(), to, what }
}

fn addresses(all: &[Ipv4Addr]) -> Told {
    Told::Addresses(all.iter().copied().map(IpAddr::V4).collect())
}

/// A case that is a name at the branch with this verdict, from the resolver in use and from the live one.
fn at_branch(id: &'static str, label: &str, verdict: &'static str) -> Case {
    let name = host(label);
    Case::new(Watch::Names, id).answer(BRANCH, &name, "cf", verdict).answer(BRANCH, &name, "live", verdict)
}

/// The same, as an incident of its own.
fn unusable(id: &'static str, label: &str, verdict: &'static str) -> Case {
    let name = host(label);
    at_branch(id, label, verdict).incident(format!("name/{name}@branch"), verdict, &name, Planned::Any)
}

/// The same, as part of the one incident of what the branch has no way to.
fn unroutable(id: &'static str, label: &str, plan: Planned) -> Case {
    let word = "answer_unroutable_here";
    at_branch(id, label, word).incident("unroutable/branch", word, &host(label), plan)
}

/// Every case of names.
#[must_use]
pub fn cases() -> Vec<Case> {
    [routes(), replies()].concat()
}

/// What an address is worth.
fn routes() -> Vec<Case> {
    let fine = "answer_steered_by_vantage";
    let [first, second, third] = steered();
    vec![
        unroutable("A01", "a01", Planned::To("104.20.1.1"))
            .fault(told(&[BRANCH, WAN], &[CF], "a01", addresses(&[lost(1)])))
            .fault(told(&[BRANCH], &[GOOGLE], "a01", addresses(&[lost(1)])))
            .fault(way(&[BRANCH], lost(1), Way::Silent))
            .answer(WAN, &host("a01"), "cf", fine)
            .answer(FRA, &host("a01"), "cf", fine),
        unroutable("A02", "a02", Planned::Nothing)
            .fault(told(&[BRANCH, WAN], &[CF], "a02", addresses(&[lost(2)])))
            .fault(way(&[BRANCH], lost(2), Way::Silent))
            .fault(way(&[BRANCH], home(2), Way::Silent)),
        unroutable("A03", "a03", Planned::To("104.20.3.1"))
            .fault(told(&[BRANCH, WAN], &[CF], "a03", addresses(&[lost(3)])))
            .fault(way(&[BRANCH], lost(3), Way::Silent))
            .answer(BRANCH, &host("a03"), "google", "answer_ok"),
        unroutable("A04", "a04", Planned::To("104.20.4.1"))
            .fault(told(&[BRANCH, WAN], &[CF, GOOGLE], "a04", addresses(&[lost(4)])))
            .fault(way(&[BRANCH], lost(4), Way::Silent)),
        Case::new(Watch::Names, "A05")
            .fault(told(&[BRANCH], &[CF], "a05", addresses(&[first])))
            .fault(told(&[WAN], &[CF], "a05", addresses(&[second])))
            .fault(told(&[FRA], &[CF], "a05", addresses(&[third])))
            .answer(BRANCH, &host("a05"), "cf", fine)
            .answer(WAN, &host("a05"), "cf", fine)
            .answer(FRA, &host("a05"), "cf", fine),
        unroutable("A06", "a06", Planned::Nothing)
            .fault(way(&[BRANCH], home(6), Way::Silent))
            .answer(WAN, &host("a06"), "cf", "answer_ok")
            .address(BRANCH, &format!("{} {}", host("a06"), home(6)), "addr_silent"),
        SANE.into_iter()
            .fold(Case::new(Watch::Names, "A07"), |case, place| {
                case.answer(place, &host("a07"), "cf", "answer_dead_everywhere")
            })
            .fault(way(&[BRANCH, WAN, TWIN], home(7), Way::Silent))
            .fault(way(&[FRA], home(7), Way::Prohibited))
            .incident(format!("name/{}", host("a07")), "answer_dead_everywhere", &host("a07"), Planned::Nothing),
        at_branch("A08", "a08", "answer_dead_everywhere")
            .fault(told(&[BRANCH], &[CF], "a08", addresses(&[OLD])))
            .fault(way(&OF_NAMES, OLD, Way::Silent))
            .answer(BRANCH, &host("a08"), "google", "answer_ok")
            .incident(format!("name/{}", host("a08")), "answer_dead_everywhere", &host("a08"), Planned::Nothing),
        unusable("A10", "a10", "answer_partly_dead").fault(way(&[BRANCH], SECOND, Way::Silent)),
        at_branch("A29", "a29", "answer_ok"),
        at_branch("A31", "a31", "answer_family_unusable"),
        unroutable("A33", "a33", Planned::Nothing).fault(way(&[BRANCH], home(33), Way::Narrow)).address(
            BRANCH,
            &format!("{} {}", host("a33"), home(33)),
            "addr_pmtu_blackhole",
        ),
        Case::new(Watch::Troubles, "A34")
            .fault(Fault::Router(
                Chain::Divert,
                format!(
                    "iifname \"{}\" ip daddr {{ {}, {} }} tcp dport 443 dnat to {}",
                    BOXED.link(),
                    super::public::NEGATIVE,
                    home(34),
                    Culprit::Hangs.at()
                ),
            ))
            .also("vantage/boxed")
            .vantage(BOXED, "vantage_intercepted")
            .answer(BOXED, &host("a34"), "cf", "answer_unroutable_here")
            .answer(WAN, &host("a34"), "cf", "answer_ok")
            .incident("unroutable/boxed", "answer_unroutable_here", &host("a34"), Planned::Nothing),
        unroutable("A40", "a40", Planned::Nothing).fault(way(&[BRANCH], home(40), Way::NoReturn)),
        unroutable("A47", "a47", Planned::Nothing).fault(way(&[BRANCH], home(47), Way::Prohibited)),
        unusable("4.4/16", "impostor", "answer_impostor")
            .fault(way(&[BRANCH], home(63), Way::Taken(Culprit::Stranger)))
            .address(BRANCH, &format!("{} {}", host("impostor"), home(63)), "addr_impostor"),
    ]
}

/// What a resolver says.
fn replies() -> Vec<Case> {
    let unspecified = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let metadata = IpAddr::V6(Ipv4Addr::new(169, 254, 169, 254).to_ipv6_mapped());
    vec![
        unusable("A11", "a11", "answer_filtered")
            .fault(told(&[BRANCH, WAN], &[CF], "a11", Told::Addresses(vec![unspecified])))
            .also(format!("name/{}@wan", host("a11")))
            .answer(WAN, &host("a11"), "cf", "answer_filtered")
            .answer(FRA, &host("a11"), "cf", "answer_ok"),
        unusable("A13", "a13", "answer_filtered").fault(told(
            &[BRANCH],
            &[CF],
            "a13",
            Told::Addresses(vec![Ipv6Addr::UNSPECIFIED.into()]),
        )),
        // Unbound does not pass the mark on: what the live resolver says is a plain NXDOMAIN.
        Case::new(Watch::Names, "A14")
            .fault(told(&[BRANCH], &[CF], "a14", Told::Blocked))
            .answer(BRANCH, &host("a14"), "cf", "answer_filtered")
            .answer(BRANCH, &host("a14"), "live", "answer_denied")
            .incident(format!("name/{}@branch", host("a14")), "answer_denied", &host("a14"), Planned::Any),
        SANE.into_iter()
            .fold(unusable("A16", "a16", "canary_gone"), |case, place| {
                case.answer(place, &host("a16"), "cf", "canary_gone")
            })
            .fault(told(&OF_NAMES, &[CF, GOOGLE, PLAIN], "a16", Told::Denied))
            .also(format!("name/{}@wan", host("a16")))
            .also(format!("name/{}@fra", host("a16")))
            .also(format!("name/{}@twin", host("a16"))),
        // Unbound turns REFUSED into SERVFAIL.
        Case::new(Watch::Names, "A19")
            .fault(told(&[BRANCH], &[CF], "a19", Told::Refused))
            .answer(BRANCH, &host("a19"), "cf", "answer_refused")
            .answer(BRANCH, &host("a19"), "live", "answer_servfail")
            .incident(format!("name/{}@branch", host("a19")), "answer_servfail", &host("a19"), Planned::Any),
        unusable("A20", "a20", "answer_dangling_cname").fault(told(
            &[BRANCH],
            &[CF],
            "a20",
            Told::Alias("nothing.zoo.quest"),
        )),
        unusable("A22", "a22", "answer_private").fault(told(
            &[BRANCH],
            &[CF],
            "a22",
            addresses(&[Ipv4Addr::new(192, 168, 1, 1)]),
        )),
        Case::new(Watch::Names, "A23")
            .fault(told(&[FRA], &[CF], "a23", Told::Addresses(vec![metadata])))
            .answer(FRA, &host("a23"), "cf", "answer_private")
            .incident(format!("name/{}@fra", host("a23")), "answer_private", &host("a23"), Planned::Any),
        unusable("A28", "a28", "answer_stub").fault(told(&[BRANCH], &[CF, GOOGLE], "a28", addresses(&[STUB]))),
        unusable("4.4/6", "denied", "answer_denied").fault(told(&[BRANCH], &[CF], "denied", Told::Denied)),
        unusable("4.4/5", "servfail", "answer_servfail").fault(told(&[BRANCH], &[CF], "servfail", Told::Servfail)),
        unusable("4.4/11", "empty", "answer_empty").fault(told(&[BRANCH], &[CF], "empty", Told::Nothing)),
    ]
}
