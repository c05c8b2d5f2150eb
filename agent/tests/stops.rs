//! The program itself: it starts on whatever its state folder holds, and SIGTERM ends it.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a panic is how a test says no, in its helpers too")]
#![expect(clippy::disallowed_methods, reason = "no runtime here whose thread could be blocked")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use parallax_agent::spool::{BootId, Limits, Spool};
use parallax_decide::observation::Lane;

/// What a supervisor is promised (field case B55).
const STOP_MAX: Duration = Duration::from_secs(5);

fn identity(folder: &Path) {
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let pem = authority.self_signed(&authority_key).unwrap().pem();
    let issuer = rcgen::Issuer::new(authority, authority_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let own = rcgen::CertificateParams::new(vec!["branch-kazan".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    std::fs::create_dir_all(folder).unwrap();
    for (file, text) in [("ca.pem", pem), ("certificate.pem", own.pem()), ("key.pem", key.serialize_pem())] {
        std::fs::write(folder.join(file), text).unwrap();
    }
}

/// Starts the agent with a coordinator that is not there.
fn start(folder: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_parallax-agent"))
        .args(["run", "--coordinator", "127.0.0.1:9", "--identity"])
        .arg(folder.join("identity"))
        .arg("--state")
        .arg(folder.join("state"))
        .arg("--local")
        .arg(folder.join("local.yaml"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Sends SIGTERM after a while and waits; whether the agent still ran then.
fn stop(mut child: Child, after: Duration) -> bool {
    std::thread::sleep(after);
    let ran = child.try_wait().unwrap().is_none();
    kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
    let mut waited = Duration::ZERO;
    while child.try_wait().unwrap().is_none() {
        if waited > STOP_MAX {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("SIGTERM after {after:?} did not end it within {STOP_MAX:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
        waited += Duration::from_millis(10);
    }
    ran
}

/// Damages the spool in every way of B55 at once, but for the disk itself.
fn damage(spool: &Path) {
    let folders: Vec<_> = std::fs::read_dir(spool).unwrap().map(|entry| entry.unwrap().path()).collect();
    for folder in folders {
        let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        std::fs::write(folder.join("cursor"), [0xa5; 20]).unwrap();
        for (number, file) in files.iter().filter(|file| file.extension().is_some() && file.is_file()).enumerate() {
            let mut bytes = std::fs::read(file).unwrap();
            let middle = bytes.len() / 2;
            match number % 4 {
                0 => bytes.truncate(bytes.len().saturating_sub(7)),
                1 => bytes[middle] ^= 1,
                2 => bytes.fill(0),
                // A folder cannot be read as a file, not even by root.
                3 => {
                    std::fs::remove_file(file).unwrap();
                    std::fs::create_dir(file).unwrap();
                    continue;
                }
                _ => unreachable!(),
            }
            std::fs::write(file, bytes).unwrap();
        }
    }
}

#[test]
fn b55_it_starts_on_a_damaged_spool_and_sigterm_ends_it_at_any_moment() {
    let folder = tempfile::tempdir().unwrap();
    identity(&folder.path().join("identity"));
    std::fs::write(folder.path().join("local.yaml"), "version: 1\n").unwrap();
    let root = folder.path().join("state/spool");
    for after_ms in [0, 1, 3, 10, 30, 100, 1500] {
        let mut spool = Spool::open(root.clone(), BootId::random().unwrap(), Limits::default(), 1);
        for number in 0..4000 {
            let lane = if number % 3 == 0 { Lane::Urgent } else { Lane::Routine };
            spool.append(lane, number, true, &[7; 500]);
        }
        drop(spool);
        damage(&root);
        let ran = stop(start(folder.path()), Duration::from_millis(after_ms));
        assert!(ran, "it ended by itself within {after_ms} ms");
    }
}

#[test]
fn b55_a_state_folder_whose_spool_cannot_be_made_does_not_end_it() {
    let folder = tempfile::tempdir().unwrap();
    identity(&folder.path().join("identity"));
    std::fs::write(folder.path().join("local.yaml"), "version: 1\n").unwrap();
    std::fs::create_dir(folder.path().join("state")).unwrap();
    std::fs::write(folder.path().join("state/spool"), "a file where the folder should be").unwrap();
    assert!(stop(start(folder.path()), Duration::from_millis(1500)), "it ended by itself");
}

#[test]
fn a_journal_of_pins_that_cannot_be_read_does_not_end_it() {
    let folder = tempfile::tempdir().unwrap();
    identity(&folder.path().join("identity"));
    let state = folder.path().join("state");
    std::fs::create_dir(&state).unwrap();
    let driver = "version: 1\ndrivers: { pin: { kind: unbound, control: /nonexistent/unbound.ctl } }\n";
    for local in ["version: 1\n", driver] {
        std::fs::write(folder.path().join("local.yaml"), local).unwrap();
        std::fs::write(state.join("pins"), "rubbish").unwrap();
        assert!(stop(start(folder.path()), Duration::from_millis(800)), "it ended by itself: {local}");
        assert!(!state.join("pins").exists(), "it is set aside: {local}");
    }
    let aside = std::fs::read_dir(&state).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(aside.filter(|name| name.to_str().unwrap().starts_with("pins.damaged-")).count(), 2);
}
