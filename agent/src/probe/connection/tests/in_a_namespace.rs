//! What takes a network of one's own: ICMP of each kind, routes that come and go, filters.

use super::*;
use crate::local::Allow;
use crate::netns::{inside, sh};
use crate::policy::Policy;
use crate::probe::live::LiveServers;

/// Public addresses, which the namespace's loopback interface has.
const V4: &str = "104.26.4.10";
const V6: &str = "2606:4700::6810:a";

fn site(authority: &Authority) -> Site {
    // Here they are this machine's own, which nobody may contact without the owner's leave.
    let private = [V4, V6].map(|address| address.parse::<std::net::IpAddr>().unwrap().into()).to_vec();
    let policy = Policy::new(Allow { private, ..Allow::default() });
    Site::new(Dialer::direct(), policy, authority.trust(), LiveServers::new(Vec::new()))
}

/// Short ones: nobody is far away here. On the loopback interface an ICMPv6 error comes while the socket is
/// still in the hands of `connect`, which the kernel does not take as the end: only the one after its
/// second SYN, a second later, is.
fn limits() -> Limits {
    let attempt_at = [0, 100, 200, 300].map(Duration::from_millis).to_vec();
    let ms = Duration::from_millis;
    Limits { attempt_at, connect: ms(1500), tls: ms(700), http: ms(1000), ..super::limits() }
}

async fn probed(site: &Site, address: &str) -> Reached {
    let address = address.parse().unwrap();
    let tried = Attempted { address, port: 443, server_name: Some(NAME), http: None, role: Role::Target };
    probe(site, &limits(), &tried).await
}

/// A TLS server on port 443 of an address.
async fn serve_at(address: &str, config: rustls::ServerConfig) {
    let listener = TcpListener::bind(SocketAddr::new(address.parse().unwrap(), 443)).await.unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let _stream = acceptor.accept(stream).await;
                std::future::pending::<()>().await;
            });
        }
    });
}

/// Replaces the filter of what arrives.
fn filter(rule: &str) {
    sh(&format!(
        "nft 'table inet faults; delete table inet faults; table inet faults {{ chain arriving {{ type filter hook input priority 0; {rule}; }}; }}'"
    ));
}

#[tokio::test]
async fn b37_each_kind_of_icmp_has_its_word_and_so_has_silence() {
    if !inside(module_path!(), "b37_each_kind_of_icmp_has_its_word_and_so_has_silence") {
        return;
    }
    sh(&format!("ip addr add {V4}/32 dev lo; ip addr add {V6}/128 dev lo nodad"));
    // Else the second answer to a host waits for a second.
    sh("echo 0 > /proc/sys/net/ipv6/icmp/ratelimit; echo 0 > /proc/sys/net/ipv4/icmp_ratelimit");
    let authority = Authority::new();
    let site = site(&authority);
    use Outcome as O;
    for (address, reply, outcome) in [
        (V4, "reject with icmp type host-unreachable", O::HostUnreachable),
        (V4, "reject with icmp type net-unreachable", O::NetUnreachable),
        // Before Linux 6.2 the kernel makes the same of both (icmp(7)).
        (V4, "reject with icmp type admin-prohibited", O::AdminProhibited),
        (V4, "reject with icmp type port-unreachable", O::ConnectionRefused),
        (V4, "reject with tcp reset", O::ConnectionRefused),
        (V4, "drop", O::Silent),
        (V6, "reject with icmpv6 type addr-unreachable", O::HostUnreachable),
        (V6, "reject with icmpv6 type no-route", O::NetUnreachable),
        (V6, "reject with icmpv6 type admin-prohibited", O::AdminProhibited),
        (V6, "reject with tcp reset", O::ConnectionRefused),
        (V6, "drop", O::Silent),
    ] {
        filter(&format!("tcp dport 443 {reply}"));
        let reached = probed(&site, address).await;
        assert_eq!(reached.outcome, outcome, "{address} {reply}");
        assert_eq!((reached.attempts, reached.attempts_connected), (4, 0));
        assert!(reached.kept.attempts.iter().all(|attempt| attempt.outcome == outcome), "{reached:?}");
    }
}

#[tokio::test]
async fn own_routes_are_told_apart_from_the_network() {
    if !inside(module_path!(), "own_routes_are_told_apart_from_the_network") {
        return;
    }
    let authority = Authority::new();
    let site = site(&authority);
    for family in [V4, V6] {
        let reached = probed(&site, family).await;
        assert_eq!((reached.outcome, reached.attempts), (Outcome::FamilyUnavailable, 1), "{family}: no route at all");
    }
    // A way out for everything but one prefix, in each manner the kernel has.
    sh("ip addr add 198.51.100.1/32 dev lo; ip route add default dev lo");
    sh("ip -6 addr add 2606:4700::1/128 dev lo nodad; ip -6 route add default dev lo");
    for kind in ["unreachable", "prohibit", "blackhole", "throw"] {
        sh(&format!("ip route add {kind} 104.26.0.0/16; ip -6 route add {kind} 2606:4700::6810:0/112"));
        for address in [V4, V6] {
            let reached = probed(&site, address).await;

            assert_eq!((reached.outcome, reached.attempts), (Outcome::NoRoute, 1), "{address} {kind}");
        }
        sh(&format!("ip route del {kind} 104.26.0.0/16; ip -6 route del {kind} 2606:4700::6810:0/112"));
    }
}

#[tokio::test]
async fn b38_a_hole_for_large_packets_is_told_from_a_dead_server() {
    if !inside(module_path!(), "b38_a_hole_for_large_packets_is_told_from_a_dead_server") {
        return;
    }
    // Packets as on a wire: no larger than the link's, and not several in one.
    sh(&format!("ip link set lo mtu 1500 gso_max_segs 1; ip addr add {V4}/32 dev lo"));
    let authority = Authority::new();
    let site = site(&authority);
    serve_at(V4, authority.wordy_server(NAME)).await;
    assert_eq!(probed(&site, V4).await.outcome, Outcome::TlsOk);

    filter("tcp sport 443 meta length > 1300 drop");
    let reached = probed(&site, V4).await;
    assert_eq!((reached.outcome, reached.kept.small_segments), (Outcome::PmtuBlackhole, Some(Outcome::TlsOk)));
    assert_eq!((reached.attempts, reached.attempts_connected), (1, 1), "TCP was fine");
    assert!(reached.kept.tcp < reached.kept.tls && reached.kept.tls >= limits().tls, "{reached:?}");

    // A dead process behind an open port hangs in small segments too.
    filter("tcp sport 443 tcp flags & syn == 0 drop");
    let reached = probed(&site, V4).await;
    assert_eq!((reached.outcome, reached.kept.small_segments), (Outcome::TlsSilent, Some(Outcome::TlsSilent)));

    // One that is silenced in between answers no second SYN.
    filter(
        "tcp sport 443 meta length > 1300 drop; tcp dport 443 tcp flags syn limit rate over 1/minute burst 1 packets drop",
    );
    let reached = probed(&site, V4).await;
    assert_eq!((reached.outcome, reached.kept.small_segments), (Outcome::TlsSilent, Some(Outcome::Silent)));
}

#[tokio::test]
async fn one_of_four_paths_dead_shows_in_single_attempts() {
    if !inside(module_path!(), "one_of_four_paths_dead_shows_in_single_attempts") {
        return;
    }
    sh(&format!("ip addr add {V4}/32 dev lo"));
    let authority = Authority::new();
    let site = site(&authority);
    serve_at(V4, authority.server(NAME)).await;
    // A load balancer sends every fourth source port into the hole.
    filter("tcp dport 443 tcp flags syn numgen inc mod 4 == 0 drop");
    let (mut made, mut connected) = (0, 0);
    for _ in 0..9 {
        let reached = probed(&site, V4).await;
        assert_eq!(reached.outcome, Outcome::TlsOk, "the probe as a whole hides it");
        let by_list = reached.kept.attempts.iter().filter(|attempt| attempt.outcome == Outcome::TcpOk).count();
        assert_eq!(usize::from(reached.attempts_connected), by_list);
        made += reached.attempts;
        connected += reached.attempts_connected;
    }
    assert_eq!((made, connected), (12, 9));
}

#[tokio::test]
async fn b41_a_family_that_is_not_here_is_skipped_and_picked_up_when_it_comes() {
    if !inside(module_path!(), "b41_a_family_that_is_not_here_is_skipped_and_picked_up_when_it_comes") {
        return;
    }
    // Two variants: link-local and unique local addresses alone; the family switched off.
    sh("ip link add out type veth peer name far; ip link set out up; ip link set far up");
    sh("ip addr add 198.51.100.1/24 dev out; ip route add default via 198.51.100.2");
    sh("ip -6 addr add fd00::1/64 dev out nodad");
    let authority = Authority::new();
    let site = site(&authority);
    assert_eq!(probed(&site, V6).await.outcome, Outcome::FamilyUnavailable);
    sh("echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6");
    assert_eq!(probed(&site, V6).await.outcome, Outcome::FamilyUnavailable);
    // It comes, and with it the server.
    sh("echo 0 > /proc/sys/net/ipv6/conf/all/disable_ipv6");
    sh(&format!(
        "ip -6 addr add 2606:4700::1/64 dev out nodad; ip -6 route add default dev out; ip addr add {V6}/128 dev lo nodad"
    ));
    serve_at(V6, authority.server(NAME)).await;
    assert_eq!(probed(&site, V6).await.outcome, Outcome::TlsOk, "without a restart");
}

#[tokio::test]
async fn b33_special_addresses_are_never_contacted() {
    if !inside(module_path!(), "b33_special_addresses_are_never_contacted") {
        return;
    }
    sh("ip addr add 10.0.0.1/32 dev lo; ip addr add 192.0.2.1/32 dev lo; ip addr add 169.254.1.1/32 dev lo");
    sh(
        "ip addr add 100.64.0.1/32 dev lo; ip -6 addr add fd00::1/128 dev lo nodad; ip -6 addr add fe80::1/128 dev lo nodad",
    );
    let authority = Authority::new();
    let site = site(&authority);
    // Dual stack: every local address, over both families.
    let trap = std::net::TcpListener::bind("[::]:443").unwrap();
    trap.set_nonblocking(true).unwrap();
    for local in ["10.0.0.1:443", "[::1]:443", "[::ffff:127.0.0.1]:443"] {
        drop(std::net::TcpStream::connect(local).unwrap());
        trap.accept().unwrap();
    }
    for special in [
        "0.0.0.0",
        "::",
        "127.0.0.1",
        "127.255.0.9",
        "::1",
        "169.254.1.1",
        "169.254.169.254",
        "fe80::1",
        "fd00::1",
        "224.0.0.1",
        "ff02::1",
        "255.255.255.255",
        "240.0.0.1",
        "192.0.2.1",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "100.64.0.1",
        "198.18.0.1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::127.0.0.1",
        "64:ff9b::10.0.0.1",
        "2002:7f00:1::1",
        "2002:a00:1::1",
        "2001:0:1:2:3:4:80ff:fffe",
        "::127.0.0.1",
        "2001:db8::1",
    ] {
        let reached = probed(&site, special).await;
        assert_eq!((reached.outcome, reached.attempts), (Outcome::SpecialAddress, 0), "{special}");
    }
    assert!(trap.accept().is_err(), "nobody came");
}

#[tokio::test]
async fn no_descriptor_is_own_trouble_and_says_nothing_of_the_address() {
    // In a process of its own, whose limit may be spoilt.
    if !inside(module_path!(), "no_descriptor_is_own_trouble_and_says_nothing_of_the_address") {
        return;
    }
    use nix::sys::resource::{Resource, setrlimit};
    sh(&format!("ip addr add {V4}/32 dev lo"));
    let authority = Authority::new();
    let site = site(&authority);
    serve_at(V4, authority.server(NAME)).await;
    let free = std::fs::File::open("/dev/null").unwrap();
    let lowest = u64::try_from(std::os::fd::AsRawFd::as_raw_fd(&free)).unwrap();
    drop(free);
    let (soft, hard) = nix::sys::resource::getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, lowest, hard).unwrap();
    let reached = probed(&site, V4).await;
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
    assert_eq!((reached.outcome, reached.attempts_connected), (Outcome::OwnTrouble, 0));
    assert_eq!(probed(&site, V4).await.outcome, Outcome::TlsOk);
}

#[tokio::test]
async fn what_the_owner_does_not_allow_is_not_contacted() {
    let authority = Authority::new();
    let address: IpAddr = V4.parse().unwrap();
    let allow = Allow { connections_per_minute: 1, ..Allow::default() };
    let limited = Site::new(Dialer::direct(), Policy::new(allow), authority.trust(), LiveServers::new(Vec::new()));
    limited.policy.take_connection(address).unwrap();
    for (site, port, outcome) in
        [(&site(&authority), 22, Outcome::RefusedByPolicy), (&limited, 443, Outcome::RateLimited)]
    {
        let tried = Attempted { address, port, server_name: None, http: None, role: Role::Target };
        let reached = probe(site, &limits(), &tried).await;
        assert_eq!((reached.outcome, reached.attempts), (outcome, 0));
    }
}
