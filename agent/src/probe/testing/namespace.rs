//! A network of a test's own: the test starts itself again inside new network and mount namespaces.
//!
//! Works as root, and as an ordinary user where user namespaces are allowed. Elsewhere the test says
//! loudly that it was skipped.

use std::process::Command;

/// Set in the inner process.
const INSIDE: &str = "PARALLAX_TEST_NAMESPACE";

/// What a namespace test needs, tried in a throw-away namespace.
const NEEDED: &str = "ip link set lo up && nft add table inet probe";

/// Runs `story` in a network namespace that holds nothing but a loopback interface, which is up.
/// `test` is the caller's path: `concat!(module_path!(), "::its_name")`.
pub(crate) fn inside(test: &str, story: impl Future<Output = ()>) {
    if std::env::var_os(INSIDE).is_some() {
        shell("ip link set lo up");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(story);
        return;
    }
    let refused = match unshare().args(["sh", "-c", NEEDED]).output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(error) => Some(error.to_string()),
    };
    if let Some(why) = refused {
        assert!(std::env::var_os("CI").is_none(), "CI must be able to run this: {why}");
        eprintln!("SKIPPED {test}: no network namespace with nftables here: {why}");
        return;
    }
    let (_crate, name) = test.split_once("::").unwrap();
    let output = unshare()
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .env("RUST_BACKTRACE", "0")
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.contains("1 passed"), "in the namespace:\n{out}\n{err}");
}

/// Runs a script, which must succeed.
pub(crate) fn shell(script: &str) {
    let output = Command::new("sh").args(["-ec", script]).output().unwrap();
    assert!(output.status.success(), "{script}\n{}", String::from_utf8_lossy(&output.stderr));
}

fn unshare() -> Command {
    let mut command = Command::new("unshare");
    command.arg(if nix::unistd::geteuid().is_root() { "-nm" } else { "-rnm" });
    command
}
