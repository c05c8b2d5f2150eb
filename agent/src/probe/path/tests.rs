use parallax_decide::observation::Outcome;

use super::*;
use crate::assignment::Source;
use crate::dial::Dialer;
use crate::local::Allow;
use crate::measured::Hop;
use crate::netns::{HOST_V4, HOST_V6, inside, sh, three_routers};
use crate::policy::Policy;
use crate::probe::live::LiveServers;
use crate::probe::testing::Authority;

fn site(allow: Allow) -> Site {
    Site::new(Dialer::direct(), Policy::new(allow), Authority::new().trust(), LiveServers::new(Vec::new()))
}

/// Looks for a path in this place: the outcome, who answered at each hop, and the path's MTU.
fn found(to: &str) -> (Outcome, Vec<String>, u32) {
    found_by(&site(Allow::default()), to)
}

fn found_by(site: &Site, to: &str) -> (Outcome, Vec<String>, u32) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let measured = runtime.block_on(find(site, to.parse().unwrap(), 443, DEADLINE));
    let What::Path(path, kept) = measured.what else { panic!("no path") };
    let answered = |hop: &Hop| hop.address.map_or("*".to_owned(), |address| address.to_string());
    let last = kept.hops.iter().rev().find_map(|hop| hop.address);
    assert_eq!((path.last_hop, path.address.to_string()), (last, to.to_owned()));
    assert!(
        kept.hops.iter().zip(1..).all(|(hop, ttl)| hop.ttl == ttl && (hop.address.is_none() || !hop.rtt.is_zero()))
    );
    (path.outcome, kept.hops.iter().map(answered).collect(), kept.mtu)
}

fn hops(hops: &[&str]) -> Vec<String> {
    hops.iter().map(|hop| (*hop).to_owned()).collect()
}

#[test]
fn the_routers_on_the_way_are_found_and_the_target_behind_them() {
    if !inside(module_path!(), "the_routers_on_the_way_are_found_and_the_target_behind_them") {
        return;
    }
    three_routers();
    let (outcome, answered, mtu) = found(HOST_V4);
    assert_eq!(outcome, Outcome::PathReached);
    assert_eq!((answered, mtu), (hops(&["10.1.0.1", "10.2.0.1", "10.3.0.1", HOST_V4]), 1500));
    let (outcome, answered, mtu) = found(HOST_V6);
    assert_eq!(outcome, Outcome::PathReached);
    assert_eq!((answered, mtu), (hops(&["fd00:1::1", "fd00:2::1", "fd00:3::1", HOST_V6]), 1500));
}

#[test]
fn a_path_begins_at_the_source_of_the_assignment() {
    if !inside(module_path!(), "a_path_begins_at_the_source_of_the_assignment") {
        return;
    }
    three_routers();
    // Packets from the usual address do not pass.
    sh("ip addr add 10.1.0.77/24 dev ahead
        ip netns exec r1 nft 'table inet t { chain f { type filter hook forward priority 0; ip saddr 10.1.0.2 drop; }; }'");
    assert_eq!(found(HOST_V4).0, Outcome::PathLost);
    let site = site(Allow::default());
    let addresses = vec!["10.1.0.77".parse().unwrap()];
    site.dialer.come_from(&Source { addresses, ..Source::default() });
    let (outcome, _, mtu) = found_by(&site, HOST_V4);
    assert_eq!((outcome, mtu), (Outcome::PathReached, 1500));
}

#[test]
fn a_narrow_link_is_named_and_what_passes_it_is_the_paths_mtu() {
    if !inside(module_path!(), "a_narrow_link_is_named_and_what_passes_it_is_the_paths_mtu") {
        return;
    }
    three_routers();
    sh(
        "ip -n r2 link set ahead mtu 1400; ip -n r3 link set back mtu 1400; ip -n r3 link set ahead mtu 1320; ip -n host link set back mtu 1320",
    );
    for to in [HOST_V4, HOST_V6] {
        let (outcome, _, mtu) = found(to);
        assert_eq!((outcome, mtu), (Outcome::PathReached, 1320), "{to}");
    }
}

#[test]
fn a_router_that_says_nothing_is_a_gap_and_no_end() {
    if !inside(module_path!(), "a_router_that_says_nothing_is_a_gap_and_no_end") {
        return;
    }
    three_routers();
    sh(
        "ip netns exec r2 nft 'table inet t { chain o { type filter hook output priority 0; meta l4proto { icmp, ipv6-icmp } drop; }; }'",
    );
    let (outcome, answered, mtu) = found(HOST_V4);
    assert_eq!(outcome, Outcome::PathReached);
    assert_eq!((answered, mtu), (hops(&["10.1.0.1", "*", "10.3.0.1", HOST_V4]), 1500));
}

#[test]
fn b38_large_packets_that_vanish_leave_the_paths_mtu_unknown() {
    if !inside(module_path!(), "b38_large_packets_that_vanish_leave_the_paths_mtu_unknown") {
        return;
    }
    three_routers();
    sh(
        "ip netns exec r2 nft 'table inet t { chain f { type filter hook forward priority 0; meta length > 1300 drop; }; }'",
    );
    let (outcome, _, mtu) = found(HOST_V4);
    assert_eq!((outcome, mtu), (Outcome::PathReached, 0));
}

#[test]
fn a_hole_behind_a_router_leaves_that_router_as_the_last_hop() {
    if !inside(module_path!(), "a_hole_behind_a_router_leaves_that_router_as_the_last_hop") {
        return;
    }
    three_routers();
    sh(
        "ip netns exec r3 nft 'table inet t { chain p { type filter hook prerouting priority 0; ip daddr 9.9.9.9 drop; }; }'",
    );
    let (outcome, answered, mtu) = found(HOST_V4);
    assert_eq!(outcome, Outcome::PathLost);
    assert_eq!((answered, mtu), (hops(&["10.1.0.1", "10.2.0.1", "*", "*", "*", "*", "*"]), 1500));
}

#[test]
fn a_router_without_a_way_on_ends_the_path() {
    if !inside(module_path!(), "a_router_without_a_way_on_ends_the_path") {
        return;
    }
    three_routers();
    sh("ip -n r2 route add unreachable 9.9.9.9; ip -n r2 -6 route add prohibit 2620:fe::9");
    assert_eq!(found(HOST_V4), (Outcome::PathLost, hops(&["10.1.0.1", "10.2.0.1"]), 1500));
    assert_eq!(found(HOST_V6), (Outcome::PathLost, hops(&["fd00:1::1", "fd00:2::1"]), 1500));
}

#[test]
fn without_a_route_nothing_is_sent() {
    if !inside(module_path!(), "without_a_route_nothing_is_sent") {
        return;
    }
    assert_eq!(found(HOST_V4), (Outcome::FamilyUnavailable, Vec::new(), 0));
    assert_eq!(found(HOST_V6), (Outcome::FamilyUnavailable, Vec::new(), 0));
    three_routers();
    sh("ip route add unreachable 9.9.9.0/24; ip -6 route add blackhole 2620:fe::/32");
    assert_eq!(found(HOST_V4), (Outcome::NoRoute, Vec::new(), 0));
    assert_eq!(found(HOST_V6), (Outcome::NoRoute, Vec::new(), 0));
}

#[test]
fn a_filter_of_this_machine_itself_is_own_trouble() {
    if !inside(module_path!(), "a_filter_of_this_machine_itself_is_own_trouble") {
        return;
    }
    three_routers();
    sh("nft 'table inet t { chain o { type filter hook output priority 0; udp dport 33434-33600 drop; }; }'");
    assert_eq!(found(HOST_V4).0, Outcome::OwnTrouble);
}

#[test]
fn what_the_owner_does_not_allow_is_not_looked_for() {
    assert_eq!(found("10.0.0.1").0, Outcome::SpecialAddress);
    assert_eq!(found("::ffff:127.0.0.1").0, Outcome::SpecialAddress);
    let forbidden = site(Allow { paths: false, ..Allow::default() });
    assert_eq!(found_by(&forbidden, HOST_V4).0, Outcome::RefusedByPolicy);
    let limited = site(Allow { connections_per_minute_to_one: 1, ..Allow::default() });
    while limited.policy.take_connection(HOST_V4.parse().unwrap()).is_ok() {}
    assert_eq!(found_by(&limited, HOST_V4).0, Outcome::RateLimited);
}
