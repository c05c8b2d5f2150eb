//! What the kernel says of a process: `/proc/PID`, as proc(5) describes it.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result};

/// Ticks a second of `utime` and `stime`: USER_HZ, 100 on every architecture Debian builds for but one of long ago.
const TICKS_PER_S: f64 = 100.0;

/// State `SYN_SENT` in /proc/net/tcp (include/net/tcp_states.h).
const SYN_SENT: &str = "02";

/// Memory of a process, KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Resident set.
    pub rss: u64,
    /// Resident set, shared pages counted in proportion.
    pub pss: u64,
    /// Anonymous part of the resident set.
    pub anonymous: u64,
    /// Largest resident set so far.
    pub peak: u64,
}

/// User and system time of all threads of a process, also of those that ended, in seconds.
///
/// # Errors
/// The process is gone.
pub fn cpu_s(pid: u32) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).with_context(|| format!("process {pid} is gone"))?;
    // The name, in parentheses, may hold anything; fields 14 and 15 are 12 and 13 after it.
    let (_, after) = text.rsplit_once(')').context("/proc/PID/stat has no name")?;
    let ticks: f64 = after.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    Ok(ticks / TICKS_PER_S)
}

/// User and system time of a process and of its children, also of those that ended and were waited for, in seconds.
///
/// # Errors
/// The process is gone.
pub fn tree_cpu_s(pid: u32) -> Result<f64> {
    let mut sum = 0.0;
    for entry in fs::read_dir("/proc")?.filter_map(|entry| entry.ok()) {
        let Some(one) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(text) = fs::read_to_string(format!("/proc/{one}/stat")) else { continue };
        let Some((_, after)) = text.rsplit_once(')') else { continue };
        let fields: Vec<&str> = after.split_whitespace().collect();
        let ticks = |place: usize| fields.get(place).and_then(|field| field.parse::<f64>().ok()).unwrap_or_default();
        let parent = fields.get(1).and_then(|field| field.parse::<u32>().ok());
        // Of the process itself also fields 16 and 17: its children that are no more.
        if one == pid {
            sum += ticks(11) + ticks(12) + ticks(13) + ticks(14);
        } else if parent == Some(pid) {
            sum += ticks(11) + ticks(12);
        }
    }
    Ok(sum / TICKS_PER_S)
}

/// Memory of a process.
///
/// # Errors
/// The process is gone.
pub fn memory(pid: u32) -> Result<Memory> {
    let read = |file: &str| {
        fs::read_to_string(format!("/proc/{pid}/{file}")).with_context(|| format!("process {pid} is gone"))
    };
    let (status, maps) = (read("status")?, read("smaps_rollup")?);
    let field = |text: &str, name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.split_whitespace().next().and_then(|n| n.parse().ok()).with_context(|| format!("no {name} of {pid}"))
    };
    Ok(Memory {
        rss: field(&status, "VmRSS:")?,
        pss: field(&maps, "Pss:")?,
        anonymous: field(&status, "RssAnon:")?,
        peak: field(&status, "VmHWM:")?,
    })
}

/// Sockets that a process holds open.
///
/// # Errors
/// The process is gone.
pub fn sockets(pid: u32) -> Result<BTreeSet<u64>> {
    let folder = fs::read_dir(format!("/proc/{pid}/fd")).with_context(|| format!("process {pid} is gone"))?;
    let links = folder.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    Ok(links.filter_map(|link| link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()).collect())
}

/// How many of a process's sockets wait for an answer to their SYN.
///
/// # Errors
/// The process is gone.
pub fn connecting(pid: u32) -> Result<usize> {
    let own = sockets(pid)?;
    let table = fs::read_to_string(format!("/proc/{pid}/net/tcp"))?;
    // Columns: sl, local, remote, st, queues, timer, retransmits, uid, timeout, inode.
    let waiting = table.lines().skip(1).filter(|line| {
        let mut fields = line.split_whitespace();
        fields.nth(3) == Some(SYN_SENT)
            && fields.nth(5).and_then(|inode| inode.parse().ok()).is_some_and(|inode: u64| own.contains(&inode))
    });
    Ok(waiting.count())
}

/// Load of the machine over 1, 5 and 15 minutes.
#[must_use]
pub fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_of_ourselves() {
        let me = std::process::id();
        assert!(cpu_s(me).unwrap() >= 0.0);
        let memory = memory(me).unwrap();
        assert!(memory.peak >= memory.rss && memory.rss >= memory.anonymous && memory.pss > 0);
        let _socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(!sockets(me).unwrap().is_empty());
        assert!(connecting(me).is_ok());
        assert!(cpu_s(u32::MAX).is_err());
    }
}
