//! The service that goes on measuring: whom it runs as, and starting it where systemd is.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;
use std::process::{Command, Stdio};

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid, fchown, getgroups, setegid, seteuid, setgroups};

use crate::doctor::{Check, Grade};

/// Name of the unit, and of the user it runs as.
const UNIT: &str = "parallax-agent.service";
const USER: &str = "parallax-agent";

/// Where a unit may lie.
const UNIT_FOLDERS: [&str; 3] = ["/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"];

/// Exists when systemd runs this machine (sd_booted(3)).
const SYSTEMD: &str = "/run/systemd/system";

/// Rights of a state folder.
const STATE_MODE: u32 = 0o700;

/// Whom what root writes is to belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    user: u32,
    group: u32,
}

impl Owner {
    /// Does file work as they, until what this gives is dropped: what root wrote by their leave, a link of theirs could
    /// lead anywhere.
    ///
    /// # Errors
    /// What the system said.
    pub fn act(self) -> io::Result<Acting> {
        let acting = Acting { groups: getgroups()? };
        // Groups first: only root may.
        setgroups(&[Gid::from_raw(self.group)])?;
        setegid(Gid::from_raw(self.group))?;
        seteuid(Uid::from_raw(self.user))?;
        Ok(acting)
    }

    /// Gives a folder to them, if it is one and no link to one.
    fn give(self, folder: &Path) -> io::Result<()> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let folder = nix::fcntl::open(folder, flags, Mode::empty())?;
        fchown(folder, Some(Uid::from_raw(self.user)), Some(Gid::from_raw(self.group)))?;
        Ok(())
    }
}

/// We are somebody else until this is dropped.
#[derive(Debug)]
pub struct Acting {
    groups: Vec<Gid>,
}

impl Drop for Acting {
    fn drop(&mut self) {
        // Root is still our real user, so this is allowed; were it not, less may be done and nothing more.
        let back = seteuid(Uid::from_raw(0)).and_then(|()| setegid(Gid::from_raw(0)));
        if let Err(error) = back.and_then(|()| setgroups(&self.groups)) {
            tracing::error!(%error, "cannot become root again");
        }
    }
}

/// Makes the folders of state and identity when they are missing. Whom they belong to, when we are root and it is
/// another's: the state folder's owner, or the service's user where it is new.
///
/// # Errors
/// What the disk said.
pub fn owner(state: &Path, identity: &Path) -> io::Result<Option<Owner>> {
    let is_new = !state.exists();
    fs::DirBuilder::new().recursive(true).mode(STATE_MODE).create(state)?;
    if !nix::unistd::geteuid().is_root() {
        return Ok(None);
    }
    let owner = match is_new {
        true => fs::read_to_string("/etc/passwd").ok().and_then(|users| of_users(&users)),
        false => {
            let held = fs::metadata(state)?;
            (held.uid() != 0).then(|| Owner { user: held.uid(), group: held.gid() })
        }
    };
    let Some(owner) = owner else { return Ok(None) };
    if is_new {
        owner.give(state)?;
    }
    // One beside the state folder may lie where only root may make it, and is theirs from then on. In the state folder
    // whatever is there is of their making.
    if !identity.starts_with(state) && !identity.exists() {
        fs::DirBuilder::new().recursive(true).mode(STATE_MODE).create(identity)?;
        owner.give(identity)?;
    }
    Ok(Some(owner))
}

/// The service's user among these lines (passwd(5)); a static program asks no name service.
fn of_users(users: &str) -> Option<Owner> {
    let mut fields = users.lines().find_map(|line| line.strip_prefix(USER)?.strip_prefix(':'))?.split(':').skip(1);
    Some(Owner { user: fields.next()?.parse().ok()?, group: fields.next()?.parse().ok()? })
}

/// Enables and starts the service where systemd is and we may; else says how to start the agent.
pub async fn start() -> Check {
    let by_hand =
        "start the agent: parallax-agent run, under whatever starts services here (in a container it is the command)";
    if !Path::new(SYSTEMD).exists() {
        return Check::warn("service", "no systemd here, nothing was started", by_hand);
    }
    if !UNIT_FOLDERS.iter().any(|folder| Path::new(folder).join(UNIT).exists()) {
        return Check::warn("service", format!("{UNIT} is not installed, nothing was started"), by_hand);
    }
    let as_root = format!("as root: systemctl enable --now {UNIT}");
    if !nix::unistd::geteuid().is_root() {
        return Check::warn("service", "not started: only root may", as_root);
    }
    let run = tokio::task::spawn_blocking(|| {
        Command::new("systemctl").args(["enable", "--now", UNIT]).stdin(Stdio::null()).output()
    });
    match run.await {
        Ok(Ok(output)) if output.status.success() => Check::ok("service", format!("{UNIT} enabled and started")),
        Ok(Ok(output)) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said.lines().last().unwrap_or("systemctl failed");
            Check::warn("service", format!("{UNIT} was not started: {said}"), format!("see systemctl status {UNIT}"))
        }
        Ok(Err(error)) => Check::warn("service", format!("systemctl cannot be run: {error}"), as_root),
        Err(_) => Check::warn("service", "systemctl was not run", as_root),
    }
}

/// Whether the service was started.
#[must_use]
pub fn runs(started: &Check) -> bool {
    started.grade == Grade::Ok && started.found.ends_with("started")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_services_user_is_found_in_the_list_of_users() {
        let users = "root:x:0:0::/root:/bin/sh\nparallax-agent-2:x:1:1::/:/bin/sh\nparallax-agent:x:998:997:Agent:/var:/bin/false\n";
        assert_eq!(of_users(users), Some(Owner { user: 998, group: 997 }));
        for none in ["", "parallax-agent", "parallax-agent:x:y:z", "root:x:0:0::/:/bin/sh"] {
            assert_eq!(of_users(none), None);
        }
    }

    #[test]
    fn a_new_state_folder_is_made_for_its_owner_alone() {
        let root = tempfile::tempdir().unwrap();
        let state = root.path().join("a/state");
        let identity = state.join("identity");
        owner(&state, &identity).unwrap();
        assert_eq!(fs::metadata(&state).unwrap().mode() & 0o777, 0o700);
        assert_eq!(owner(&state, &identity).unwrap(), None, "it is ours");
    }
}
