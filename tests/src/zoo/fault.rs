//! What can go wrong, as data, and how the router and the public resolvers are told to do it.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr};

use super::place::Place;
use super::public::{Culprit, TTL_S};

/// One thing that goes wrong.
#[derive(Debug, Clone)]
pub enum Fault {
    /// What some places are told for a name, and for all below it.
    Told {
        /// Who is told it.
        places: Vec<Place>,
        /// The resolvers that tell it.
        at: Vec<Ipv4Addr>,
        /// The name.
        name: String,
        /// What.
        what: Told,
    },
    /// What happens on the way from some places to an address.
    Way {
        /// Whose way.
        places: Vec<Place>,
        /// Where to.
        to: Ipv4Addr,
        /// What.
        what: Way,
    },
    /// Anything else that the router does: a rule for one of its chains.
    Router(Chain, String),
}

/// What a resolver says instead of the truth.
#[derive(Debug, Clone)]
pub enum Told {
    /// These addresses, to the question for their family.
    Addresses(Vec<IpAddr>),
    /// An alias, and no address.
    Alias(&'static str),
    /// NXDOMAIN.
    Denied,
    /// NXDOMAIN without "recursion available": the mark of a block.
    Blocked,
    /// SERVFAIL.
    Servfail,
    /// REFUSED.
    Refused,
    /// NOERROR and nothing.
    Nothing,
    /// Over HTTPS: this status.
    Status(u16),
}

/// What happens on a way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Nothing comes back.
    Silent,
    /// ICMP: administratively prohibited.
    Prohibited,
    /// RST.
    Refused,
    /// Packets arrive, and none returns.
    NoReturn,
    /// Large packets are lost, and so is what would say so.
    Narrow,
    /// Half of the flows die, by source port.
    Halved,
    /// Somebody else answers.
    Taken(Culprit),
}

/// A chain of the router.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Chain {
    /// Where a connection goes.
    Divert,
    /// What is lost on arrival.
    Arrive,
    /// What is answered in the target's place.
    Answer,
    /// What is lost on the way back.
    Leave,
}

impl Chain {
    const ALL: [Self; 4] = [Self::Divert, Self::Arrive, Self::Answer, Self::Leave];

    fn name(self) -> &'static str {
        match self {
            Self::Divert => "divert",
            Self::Arrive => "arrive",
            Self::Answer => "answer",
            Self::Leave => "leave",
        }
    }

    fn hook(self) -> &'static str {
        match self {
            Self::Divert => "type nat hook prerouting priority -100;",
            Self::Arrive => "type filter hook prerouting priority 0;",
            Self::Answer => "type filter hook input priority 0;",
            Self::Leave => "type filter hook output priority 0;",
        }
    }
}

/// The router's table, as nft reads it, with every chain empty.
#[must_use]
pub fn empty_table() -> String {
    let chains: String = Chain::ALL.iter().map(|c| format!(" chain {} {{ {} }};", c.name(), c.hook())).collect();
    format!("table ip zoo {{{chains} }}")
}

/// What heals every way.
pub const FLUSH: &str = "flush table ip zoo";

/// What nft is told for these faults: one script, so that all begin at once.
#[must_use]
pub fn router(faults: &[Fault]) -> String {
    let mut script = String::new();
    for fault in faults {
        let (chain, rule) = match fault {
            Fault::Told { .. } => continue,
            Fault::Router(chain, rule) => (*chain, rule.clone()),
            Fault::Way { places, to, what } => way(places, *to, *what),
        };
        let _ = writeln!(script, "add rule ip zoo {} {rule}", chain.name());
    }
    script
}

fn way(places: &[Place], to: Ipv4Addr, what: Way) -> (Chain, String) {
    let links: Vec<String> = places.iter().map(|place| format!("\"{}\"", place.link())).collect();
    let links = links.join(", ");
    let forth = format!("iifname {{ {links} }} ip daddr {to}");
    let back = format!("oifname {{ {links} }} ip saddr {to}");
    match what {
        Way::Silent => (Chain::Arrive, format!("{forth} drop")),
        Way::Prohibited => (Chain::Answer, format!("{forth} reject with icmp type admin-prohibited")),
        Way::Refused => (Chain::Answer, format!("{forth} tcp dport 443 reject with tcp reset")),
        Way::NoReturn => (Chain::Leave, format!("{back} drop")),
        // Above what a segment of 536 bytes makes.
        Way::Narrow => (Chain::Leave, format!("{back} meta length > 700 drop")),
        // Not the lowest bit: Linux connects from ports of one parity.
        Way::Halved => (Chain::Arrive, format!("{forth} tcp sport & 2 == 2 drop")),
        Way::Taken(culprit) => (Chain::Divert, format!("{forth} tcp dport 443 dnat to {}", culprit.at())),
    }
}

/// What dnsdist's console is told for these faults.
#[must_use]
pub fn resolvers(faults: &[Fault]) -> Vec<String> {
    let mut statements = Vec::new();
    for fault in faults {
        let Fault::Told { places, at, name, what } = fault else { continue };
        let sources = list(places.iter().map(|place| format!("{}/24", place.gateway())));
        let asked = list(at.iter().map(Ipv4Addr::to_string));
        let mut rule = |question: &str, action: String| {
            statements.push(format!(
                "addAction(AndRule({{fromTo({sources}, {asked}), makeRule({name:?}){question}}}), {action})"
            ));
        };
        match what {
            Told::Addresses(all) => {
                for (family, question) in [(true, "A"), (false, "AAAA")] {
                    let of_family = all.iter().filter(|address| address.is_ipv4() == family);
                    let addresses: Vec<String> = of_family.map(IpAddr::to_string).collect();
                    if !addresses.is_empty() {
                        let answer = list(addresses.into_iter());
                        rule(
                            &format!(", QTypeRule(DNSQType.{question})"),
                            format!("SpoofAction({answer}, {{ttl={TTL_S}}})"),
                        );
                    }
                }
            }
            Told::Alias(to) => rule("", format!("SpoofCNAMEAction({to:?}, {{ttl={TTL_S}}})")),
            Told::Denied => rule("", "RCodeAction(DNSRCode.NXDOMAIN, {ra=true})".to_owned()),
            Told::Blocked => rule("", "RCodeAction(DNSRCode.NXDOMAIN, {ra=false})".to_owned()),
            Told::Servfail => rule("", "RCodeAction(DNSRCode.SERVFAIL, {ra=true})".to_owned()),
            Told::Refused => rule("", "RCodeAction(DNSRCode.REFUSED, {ra=true})".to_owned()),
            Told::Nothing => rule("", "RCodeAction(DNSRCode.NOERROR, {ra=true})".to_owned()),
            Told::Status(status) => rule("", format!("HTTPStatusAction({status}, \"zoo\")")),
        }
    }
    statements
}

/// A Lua list of strings.
fn list(items: impl Iterator<Item = String>) -> String {
    let quoted: Vec<String> = items.map(|i| format!("{i:?}")).collect();
    format!("{{{}}}", quoted.join(", "))
}
