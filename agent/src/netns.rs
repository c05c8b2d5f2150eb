//! For tests: a network and mounts of one's own, in namespaces that end with the test. `/run` is empty there.
//!
//! The test runs itself again as the only process of fresh network, mount and pid namespaces, where it
//! may add namespaces, links and filters as root or, with a user namespace around, as anybody.

use std::process::Command;

/// Set for the test that runs inside.
const MARK: &str = "PARALLAX_TEST_NETNS";

/// What `ip netns` and filters need; then the test itself.
const ENTRY: &str = "mount -t tmpfs test /run && mkdir /run/netns && ip link set lo up && nft list tables && \
     { [ $# = 0 ] || exec \"$@\"; }";

/// Whether this is the inside, where the test is to be done. Outside it has been done when this
/// returns: `module_path` and `test` name it.
pub(crate) fn inside(module_path: &str, test: &str) -> bool {
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    let refused = unshare().output().map_or_else(
        |error| Some(error.to_string()),
        |output| (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned()),
    );
    if let Some(why) = refused {
        assert!(std::env::var_os("CI").is_none(), "CI must be able to run this: {why}");
        eprintln!("SKIPPED, LOUDLY: namespaces of network and mounts, with nftables, are not possible: {why}");
        return false;
    }
    let (_, module) = module_path.split_once("::").unwrap();
    let mut command = unshare();
    command.arg(std::env::current_exe().unwrap()).args(["--exact", &format!("{module}::{test}"), "--nocapture"]);
    let output = command.env(MARK, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    false
}

fn unshare() -> Command {
    let mut command = Command::new("unshare");
    if !nix::unistd::geteuid().is_root() {
        command.args(["--map-current-user", "--keep-caps"]);
    }
    command.args([
        "--net",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "--",
        "sh",
        "-c",
        ENTRY,
        "sh",
    ]);
    command
}

/// Runs a script of the shell to its end.
pub(crate) fn sh(script: &str) {
    let output = Command::new("sh").args(["-ec", script]).output().unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
}

/// What a function gives when it is done in another namespace. Sockets stay where they were opened.
pub(crate) fn at<T: Send + 'static>(place: &str, done: impl FnOnce() -> T + Send + 'static) -> T {
    let file = std::fs::File::open(format!("/run/netns/{place}")).unwrap();
    let entered = move || {
        nix::sched::setns(file, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        done()
    };
    std::thread::spawn(entered).join().unwrap()
}

/// Three routers in a row, and a host behind them: `r1`, `r2`, `r3`, `host`. Seen from here the host has
/// [`HOST_V4`] and [`HOST_V6`], and router N answers from 10.N.0.1 and `fd00:N::1`. In each
/// place the link to the host is `ahead` and the one to here `back`.
pub(crate) fn three_routers() {
    let mut script = String::from("ip netns add r1; ip netns add r2; ip netns add r3; ip netns add host\n");
    let places = [None, Some("r1"), Some("r2"), Some("r3"), Some("host")];
    let within = |place: Option<&str>| place.map_or("ip".to_owned(), |name| format!("ip -n {name}"));
    let on = |place: Option<&str>| place.map_or(String::new(), |name| format!("netns {name}"));
    for (number, pair) in places.windows(2).enumerate() {
        let (near, far, link) = (pair[0], pair[1], number + 1);
        script += &format!("ip link add ahead {} type veth peer name back {}\n", on(near), on(far));
        for (place, end, last) in [(near, "ahead", 2), (far, "back", 1)] {
            let ip = within(place);
            script += &format!("{ip} addr add 10.{link}.0.{last}/24 dev {end}\n");
            script += &format!("{ip} addr add fd00:{link}::{last}/64 dev {end} nodad\n");
            script += &format!("{ip} link set {end} up; {ip} link set lo up\n");
        }
        script += &format!("{} route add default via 10.{link}.0.1\n", within(near));
        script += &format!("{} -6 route add default via fd00:{link}::1\n", within(near));
        // The way back to here.
        script += &match number {
            0 => String::new(),
            _ => format!(
                "{ip} route add 10.1.0.0/24 via 10.{link}.0.2; {ip} -6 route add fd00:1::/64 via fd00:{link}::2\n",
                ip = within(far)
            ),
        };
    }
    script += &format!("ip -n host addr add {HOST_V4}/32 dev lo; ip -n host addr add {HOST_V6}/128 dev lo nodad\n");
    for place in ["r1", "r2", "r3", "host"] {
        // Without a limit on ICMP, which would make a test wait.
        script += &format!(
            "ip netns exec {place} sh -c 'cd /proc/sys/net; echo 1 >ipv4/ip_forward; echo 1 >ipv6/conf/all/forwarding; \
             echo 0 >ipv4/icmp_ratelimit; echo 0 >ipv6/icmp/ratelimit'\n"
        );
    }
    sh(&script);
}

/// A global address of the host behind three routers.
pub(crate) const HOST_V4: &str = "9.9.9.9";

/// A global IPv6 address of the host behind three routers.
pub(crate) const HOST_V6: &str = "2620:fe::9";
