use std::net::TcpListener;

use nix::sys::socket::getsockopt;

use super::*;
use crate::netns::{HOST_V4, HOST_V6, at, inside, sh, three_routers};

/// Runs a future in a namespace test, which has no runtime of its own.
fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn host(port: u16) -> [SocketAddr; 2] {
    [HOST_V4, HOST_V6].map(|address| SocketAddr::new(address.parse().unwrap(), port))
}

fn source(addresses: &[&str], interface: Option<&str>) -> Source {
    let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
    Source { addresses, interface: interface.map(str::to_owned) }
}

/// How a TCP connection and a datagram fail.
async fn failures(dialer: &Dialer, to: SocketAddr) -> (Option<Outcome>, Option<Outcome>) {
    let stream = told(&dialer.tcp(to).await.unwrap_err());
    let socket = match dialer.udp(to) {
        Ok(socket) => socket,
        Err(error) => return (stream, told(&error)),
    };
    socket.send(b"?").await.unwrap();
    socket.recv(&mut [0]).await.unwrap_err();
    (stream, icmp::why(&socket))
}

#[tokio::test]
async fn a_port_nobody_listens_on_refuses() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    assert!(Dialer::direct().tcp(address).await.is_ok());
    drop(listener);
    let error = Dialer::direct().tcp(address).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn only_a_connection_that_something_is_sent_over_is_prepared_for_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    for (segments, prepared) in [(Segments::None, false), (Segments::Usual, true), (Segments::Small, true)] {
        let stream = Dialer::direct().tcp_in(segments, to).await.unwrap();
        assert_eq!(stream.nodelay().unwrap(), prepared, "{segments:?}");
        assert_eq!(getsockopt(&stream, sockopt::Ipv4RecvErr).unwrap(), !prepared, "{segments:?}");
    }
}

#[cfg(feature = "lab")]
#[tokio::test]
async fn the_lab_map_is_followed_and_read_again_and_its_absences_are_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let local = listener.local_addr().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("map.json");
    std::fs::write(&file, "{}").unwrap();
    let dialer = Dialer::mapped(file.clone());
    let public = "8.8.8.8:443".parse().unwrap();
    let error = dialer.tcp(public).await.unwrap_err();
    assert_eq!(errno(&error), Some(Errno::ENETUNREACH));
    assert!(!dialer.family_available(Family::V4));

    std::fs::write(&file, format!("{{\"8.8.8.8:443\": \"{local}\"}}")).unwrap();
    assert!(dialer.tcp(public).await.is_ok());
    assert!(dialer.family_available(Family::V4));
    assert!(!dialer.family_available(Family::V6));

    std::fs::write(&file, "not json at all").unwrap();
    assert!(dialer.tcp(public).await.is_ok(), "the last good map stays in use");
}

#[test]
fn b37_what_routers_and_hosts_say_is_told_apart() {
    if !inside(module_path!(), "b37_what_routers_and_hosts_say_is_told_apart") {
        return;
    }
    three_routers();
    sh("ip netns exec r2 nft 'table inet t { chain f { type filter hook forward priority 0; }; }'");
    let dialer = Dialer::direct();
    // A TCP socket has no error queue before Linux 6.2: then "prohibited" is one of the unreachables.
    let old = |outcome, number| if kernel_is_old() { number } else { Some(outcome) };
    for (v4, v6, outcome) in [
        ("host-unreachable", "addr-unreachable", Outcome::HostUnreachable),
        ("net-unreachable", "no-route", Outcome::NetUnreachable),
        ("admin-prohibited", "admin-prohibited", Outcome::AdminProhibited),
        ("host-prohibited", "policy-fail", Outcome::AdminProhibited),
        ("port-unreachable", "port-unreachable", Outcome::ConnectionRefused),
    ] {
        sh(&format!(
            "ip netns exec r2 nft 'flush chain inet t f; add rule inet t f ip daddr 9.9.9.9 reject with icmp type {v4}; \
             add rule inet t f ip6 daddr 2620:fe::9 reject with icmpv6 type {v6}'"
        ));
        for to in host(443) {
            assert_eq!(run(failures(&dialer, to)), (old(outcome, None), Some(outcome)), "{to} {v4} {v6}");
        }
    }
}

fn kernel_is_old() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split('.').map(|number| number.parse().unwrap_or(0));
    (numbers.next(), numbers.next()) < (Some(6), Some(2))
}

#[test]
fn b37_b41_no_route_is_not_what_a_router_said_and_not_a_missing_family() {
    if !inside(module_path!(), "b37_b41_no_route_is_not_what_a_router_said_and_not_a_missing_family") {
        return;
    }
    let dialer = Dialer::direct();
    let missing = Some(Outcome::FamilyUnavailable);
    for to in host(443) {
        assert_eq!(run(failures(&dialer, to)), (missing, missing), "{to}: no address, no route");
    }
    three_routers();
    for kind in ["unreachable", "prohibit", "blackhole"] {
        sh(&format!("ip route replace {kind} 9.9.9.0/24; ip -6 route replace {kind} 2620:fe::/32"));
        for to in host(443) {
            let no_route = Some(Outcome::NoRoute);
            assert_eq!(run(failures(&dialer, to)), (no_route, no_route), "{to}: {kind}");
            assert_eq!((dialer.way(to.ip()), dialer.family_available(Family::of(to.ip()))), (Way::NoRoute, true));
        }
    }
    for kind in ["unreachable", "prohibit", "blackhole"] {
        sh(&format!("ip route replace {kind} default; ip -6 route del default; ip -6 route add {kind} default"));
        for to in host(443) {
            assert_eq!(run(failures(&dialer, to)), (missing, missing), "{to}: {kind} for all");
        }
    }
    sh("ip -6 route del default; ip -6 route add default via fd00:1::1; ip -6 route del blackhole 2620:fe::/32");
    assert_eq!(dialer.way(HOST_V6.parse().unwrap()), Way::Open, "it is noticed without a restart");
    sh("echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6");
    assert_eq!(run(failures(&dialer, host(443)[1])), (missing, missing));
}

#[test]
fn probes_come_from_the_address_or_the_interface_of_the_assignment() {
    if !inside(module_path!(), "probes_come_from_the_address_or_the_interface_of_the_assignment") {
        return;
    }
    three_routers();
    sh("ip addr add 10.1.0.77/24 dev ahead; ip addr add fd00:1::77/64 dev ahead nodad
        ip link add other type veth peer name other netns r1
        ip addr add 10.8.0.2/24 dev other; ip link set other up
        ip -n r1 addr add 10.8.0.1/24 dev other; ip -n r1 link set other up
        ip route add default via 10.8.0.1 metric 900");
    let listeners = at("host", || host(443).map(|to| TcpListener::bind(to).unwrap()));
    let near = at("r1", || TcpListener::bind("10.2.0.2:443").unwrap());
    let dialer = Dialer::direct();
    dialer.come_from(&source(&["10.1.0.77", "fd00:1::77"], None));
    for (listener, from) in listeners.iter().zip(["10.1.0.77", "fd00:1::77"]) {
        let to = listener.local_addr().unwrap();
        let streams = run(async { [dialer.tcp(to).await.unwrap(), dialer.tcp(to).await.unwrap()] });
        let seen = [listener.accept().unwrap().1, listener.accept().unwrap().1];
        assert!(seen.iter().all(|peer| peer.ip().to_string() == from), "{seen:?}");
        assert_ne!(seen[0].port(), seen[1].port(), "each attempt has a port of its own");
        let asked = run(async { dialer.udp(to).unwrap().local_addr().unwrap() });
        assert_eq!(asked.ip().to_string(), from);
        drop(streams);
    }
    dialer.come_from(&source(&[], Some("other")));
    let stream = run(dialer.tcp(near.local_addr().unwrap())).unwrap();
    assert_eq!(stream.local_addr().unwrap().ip().to_string(), "10.8.0.2");
    assert!(!dialer.family_available(Family::V6), "that interface has no IPv6");

    // The owner's own name servers are asked as clients here ask them.
    let own = run(dialer.tcp_own(listeners[0].local_addr().unwrap())).unwrap();
    assert_eq!(own.local_addr().unwrap().ip().to_string(), "10.1.0.2");

    for wrong in [source(&["10.99.0.1", "fd00:99::1"], None), source(&[], Some("eth99"))] {
        dialer.come_from(&wrong);
        for to in host(443) {
            let own = Some(Outcome::OwnTrouble);
            assert_eq!(run(failures(&dialer, to)), (own, own), "{wrong:?}");
            assert!(dialer.family_available(Family::of(to.ip())), "a wrong source says nothing of the family");
        }
    }
    dialer.come_from(&Source::default());
    assert!(run(dialer.tcp(host(443)[0])).is_ok());
}

#[test]
fn small_segments_are_small_both_ways() {
    if !inside(module_path!(), "small_segments_are_small_both_ways") {
        return;
    }
    three_routers();
    let listeners = at("host", || host(443).map(|to| TcpListener::bind(to).unwrap()));
    for listener in listeners {
        let to = listener.local_addr().unwrap();
        for (size, expected) in [(Segments::Small, true), (Segments::Usual, false)] {
            let ours = run(Dialer::direct().tcp_in(size, to));
            let (ours, (theirs, _)) = (ours.unwrap(), listener.accept().unwrap());
            let segments =
                [getsockopt(&ours, sockopt::TcpMaxSeg).unwrap(), getsockopt(&theirs, sockopt::TcpMaxSeg).unwrap()];
            assert!(segments.iter().all(|size| (*size <= SMALL_SEGMENT_BYTES) == expected), "{to} {segments:?}");
        }
    }
}
