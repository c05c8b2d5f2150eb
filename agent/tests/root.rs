//! `sudo parallax-agent join`: what root does in a folder that belongs to somebody else. As another user there is nothing
//! to try.

#![expect(clippy::unwrap_used, reason = "a panic is how a test says no, in its helpers too")]

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::Path;
use std::process::{Command, Output};

/// The agent's user in these tests; nobody has it.
const USER: u32 = 61_234;

fn token() -> String {
    parallax_proto::token::encode(&parallax_proto::v1::Token {
        secret: vec![7; 32],
        authority_sha256: vec![8; 32],
        coordinators: vec!["127.0.0.1:9".to_owned()],
        vantage: "branch-kazan".to_owned(),
        expires_unix_s: 0,
    })
}

fn join(state: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_parallax-agent"));
    command.args(["join", &token(), "--no-service", "--json", "--state"]).arg(state).env_clear();
    command.output().unwrap()
}

/// A place that anybody may enter, with the agent's folder in it and one of root's; none when we are not root.
fn place() -> Option<tempfile::TempDir> {
    if !nix::unistd::geteuid().is_root() {
        return None;
    }
    let root = tempfile::tempdir().unwrap();
    std::fs::set_permissions(root.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let (state, roots) = (root.path().join("state"), root.path().join("roots"));
    for folder in [&state, &roots] {
        std::fs::create_dir(folder).unwrap();
    }
    chown(&state, Some(USER), Some(USER)).unwrap();
    std::fs::write(roots.join("shadow"), "secret").unwrap();
    std::fs::write(roots.join("certificate.new"), "root's own").unwrap();
    Some(root)
}

#[test]
fn a_link_that_the_agents_user_planted_leads_root_nowhere() {
    let Some(root) = place() else { return };
    let (state, roots) = (root.path().join("state"), root.path().join("roots"));
    symlink(&roots, state.join("identity")).unwrap();
    let ended = join(&state);
    let told = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{told}");
    assert!(told.contains("cannot write"), "{told}");
    let left: std::collections::BTreeSet<_> =
        std::fs::read_dir(&roots).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["certificate.new".into(), "shadow".into()].into(), "nothing came and nothing went");
    for file in [roots.clone(), roots.join("shadow"), roots.join("certificate.new")] {
        assert_eq!(std::fs::metadata(&file).unwrap().uid(), 0, "{}", file.display());
    }
}

#[test]
fn what_root_joins_for_another_belongs_to_them_from_the_beginning() {
    let Some(root) = place() else { return };
    let state = root.path().join("state");
    // Nobody answers there: the key waits for the next try.
    let ended = join(&state);
    assert_eq!(ended.status.code(), Some(5), "{}", String::from_utf8_lossy(&ended.stderr));
    for file in ["identity", "identity/key.new"] {
        let data = std::fs::metadata(state.join(file)).unwrap();
        assert_eq!((data.uid(), data.gid()), (USER, USER), "{file}");
    }
}
