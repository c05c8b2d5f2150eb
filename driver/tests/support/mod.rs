//! What the contract stories need: real servers as child processes, and relays that misbehave on purpose.

mod clock;
pub(crate) mod control;
pub(crate) mod named;
pub(crate) mod relay;
pub(crate) mod resolver;

use std::future::Future;
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

use parallax_decide::change::Change;
use parallax_decide::names::{Addresses, DomainName};

/// Long enough for a loaded machine; only failing tests ever wait for it.
pub(crate) const PATIENT: Duration = Duration::from_secs(20);
/// For servers that are silent on purpose.
pub(crate) const IMPATIENT: Duration = Duration::from_millis(300);

/// A child process that ends with the test, by its own pid.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to do.
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Where a server program is. Without it the test is skipped, loudly; under CI it fails.
pub(crate) fn program(name: &str, package: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/usr/local/sbin".into()])
        .map(|folder| folder.join(name))
        .find(|file| file.is_file());
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none(), "{name} is not installed; under CI it must be (package {package})");
        eprintln!("SKIPPED: {name} is not installed (package {package}), so this driver was NOT tested");
    }
    found
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Polls until `ready` says yes; false after ten seconds or when the process ended.
pub(crate) async fn wait_until<F: Future<Output = bool>>(process: &mut Process, ready: impl Fn() -> F) -> bool {
    for _ in 0..500 {
        if ready().await {
            return true;
        }
        if process.0.try_wait().unwrap().is_some() {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    false
}

pub(crate) fn name(text: &str) -> DomainName {
    text.parse().unwrap()
}

pub(crate) fn set(texts: &[&str]) -> Addresses {
    Addresses::new(texts.iter().map(|text| text.parse().unwrap())).unwrap()
}

pub(crate) fn pin(host: &str, addresses: &[&str]) -> Change {
    Change::Pin { name: name(host), addresses: set(addresses), ttl_s: 30 }
}

pub(crate) fn repoint(host: &str, expects: &[&str], sets: &[&str]) -> Change {
    Change::Repoint { name: name(host), expects: set(expects), sets: set(sets), ttl_s: 5 }
}
