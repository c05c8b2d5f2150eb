//! The machine itself: version, descriptors, disk.

use std::path::Path;

use super::Check;
use crate::descriptors;

/// Free space below which it is worth a warning: twice the spool's usual cap.
const FREE_BYTES_MIN: u64 = 128 << 20;

/// Probes in flight below which a large assignment loses rounds.
const PROBES_FEW: usize = 128;

/// What runs here.
pub(super) fn version() -> Check {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease");
    let kernel = kernel.as_deref().map_or("unknown", str::trim);
    Check::ok("version", format!("parallax-agent {} on Linux {kernel}", env!("CARGO_PKG_VERSION")))
}

/// How much may be in flight.
pub(super) fn descriptors() -> Check {
    let probes = descriptors::probes();
    let found = format!("{probes} probes may run at once");
    if probes < PROBES_FEW {
        return Check::warn("files", found, "raise the limit of open files (LimitNOFILE= in the unit, ulimit -n)");
    }
    Check::ok("files", found)
}

/// Whether the state folder can be used.
pub(super) fn disk(state: &Path) -> Check {
    let folder = state.display();
    if !state.exists() {
        let parent = state.ancestors().skip(1).find(|parent| parent.exists());
        let writable = parent.is_some_and(writable);
        let found = format!("{folder} does not exist yet");
        return match writable {
            true => Check::ok("disk", found),
            false => {
                Check::fail("disk", found, format!("make it, owned by the agent's user: install -d -m 700 {folder}"))
            }
        };
    }
    if !writable(state) {
        let found = format!("{folder} cannot be written by this user");
        return Check::fail("disk", found, format!("give it to the agent's user: chown -R USER {folder}"));
    }
    match nix::sys::statvfs::statvfs(state) {
        Ok(space) => {
            let free = space.blocks_available().saturating_mul(space.fragment_size());
            let found = format!("{folder} can be written, {} MiB free", free >> 20);
            if free < FREE_BYTES_MIN {
                let fix = "free some space, or lower spool_bytes_max in the owner's file; without space the newest observations are kept in memory only";
                return Check::warn("disk", found, fix);
            }
            Check::ok("disk", found)
        }
        Err(error) => {
            Check::warn("disk", format!("the free space of {folder} cannot be read: {error}"), "look at it with df")
        }
    }
}

fn writable(folder: &Path) -> bool {
    nix::unistd::access(folder, nix::unistd::AccessFlags::W_OK | nix::unistd::AccessFlags::X_OK).is_ok()
}
