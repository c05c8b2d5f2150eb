//! A process with little memory and a part of one processor: what `MemoryMax=` and `CPUQuota=` of a unit do, without a
//! service manager. Control groups of version 2 or 1 where they may be made; else the nearest honest thing.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::Command;
use tokio::task::JoinHandle;

/// Where control groups are mounted (cgroups(7)).
const MOUNT: &str = "/sys/fs/cgroup";
/// Period that a quota is counted in, the kernel's default.
const PERIOD_US: u64 = 100_000;

/// How much a process may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory: the process's own, its files' pages and its sockets' buffers.
    pub memory_bytes: u64,
    /// Percent of one processor.
    pub cpu_percent: u64,
}

/// A cage that a process starts in. Removed when dropped; the process must have ended by then.
#[derive(Debug)]
pub struct Cage {
    kind: Kind,
    folders: Vec<PathBuf>,
    limits: Limits,
    /// Stops and continues the process where there is no control group.
    pacing: Option<JoinHandle<()>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Version2,
    Version1,
    Paced,
}

/// What the cage counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counted {
    /// Times the kernel killed for want of memory.
    pub kills: u64,
    /// How long the process was kept from running.
    pub throttled: Duration,
}

impl Cage {
    /// Makes one.
    #[must_use]
    pub fn make(limits: Limits) -> Self {
        let name = format!("parallax-bench-{}", std::process::id());
        let made = version2(&name, limits).map(|folder| (Kind::Version2, vec![folder]));
        let made = made.or_else(|_| version1(&name, limits).map(|folders| (Kind::Version1, folders)));
        let (kind, folders) = made.unwrap_or((Kind::Paced, Vec::new()));
        Self { kind, folders, limits, pacing: None }
    }

    /// How the limits are kept, for people.
    #[must_use]
    pub fn describe(&self) -> String {
        let Limits { memory_bytes, cpu_percent } = self.limits;
        let mib = memory_bytes >> 20;
        match self.kind {
            Kind::Version2 => format!("control group v2: memory.max {mib} MiB, no swap, cpu.max {cpu_percent} %"),
            Kind::Version1 => {
                format!("control groups v1: memory.limit_in_bytes {mib} MiB, cpu.cfs_quota_us {cpu_percent} %")
            }
            Kind::Paced => format!(
                "no control group may be made here: the process is stopped {} of every 100 ms, and its memory is watched, not limited, to {mib} MiB",
                100 - cpu_percent.min(100)
            ),
        }
    }

    /// Whether the kernel itself keeps the limits.
    #[must_use]
    pub fn is_kept_by_the_kernel(&self) -> bool {
        self.kind != Kind::Paced
    }

    /// The same command, started inside: a shell puts itself in and becomes the program.
    #[must_use]
    pub fn wrap(&self, command: &Command) -> Command {
        let inner = command.as_std();
        let mut script = String::new();
        for folder in &self.folders {
            script.push_str(&format!("echo $$ >'{}' && ", folder.join("cgroup.procs").display()));
        }
        let mut outer = Command::new("/bin/sh");
        outer.arg("-c").arg(format!("{script}exec \"$0\" \"$@\"")).arg(inner.get_program()).args(inner.get_args());
        outer.env_clear();
        outer
    }

    /// Begins to pace a process, where that is how the limits are kept.
    pub fn pace(&mut self, pid: u32) {
        let (Kind::Paced, Ok(pid)) = (self.kind, i32::try_from(pid)) else { return };
        let run = Duration::from_millis(self.limits.cpu_percent.min(100));
        let stop = Duration::from_millis(100).saturating_sub(run);
        self.pacing = Some(tokio::spawn(async move {
            let pid = Pid::from_raw(pid);
            while kill(pid, Signal::SIGCONT).is_ok() {
                tokio::time::sleep(run).await;
                if kill(pid, Signal::SIGSTOP).is_err() {
                    return;
                }
                tokio::time::sleep(stop).await;
            }
        }));
    }

    /// What was counted so far.
    #[must_use]
    pub fn counted(&self) -> Counted {
        let number = |folder: Option<&PathBuf>, file: &str, name: &str| {
            let text = folder.and_then(|folder| fs::read_to_string(folder.join(file)).ok()).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
            line.unwrap_or_default()
        };
        let (first, last) = (self.folders.first(), self.folders.last());
        match self.kind {
            Kind::Version2 => Counted {
                kills: number(first, "memory.events", "oom_kill "),
                throttled: Duration::from_micros(number(first, "cpu.stat", "throttled_usec ")),
            },
            Kind::Version1 => Counted {
                kills: number(first, "memory.oom_control", "oom_kill "),
                throttled: Duration::from_nanos(number(last, "cpu.stat", "throttled_time ")),
            },
            Kind::Paced => Counted::default(),
        }
    }

    /// Lets a paced process run freely, so that it can stop.
    pub fn open(&mut self, pid: u32) {
        if let Some(pacing) = self.pacing.take() {
            pacing.abort();
            if let Ok(pid) = i32::try_from(pid) {
                let _ = kill(Pid::from_raw(pid), Signal::SIGCONT);
            }
        }
    }
}

impl Drop for Cage {
    fn drop(&mut self) {
        for folder in &self.folders {
            // Busy for a moment after the last process has ended; an empty group does no harm.
            let _ = fs::remove_dir(folder);
        }
    }
}

fn version2(name: &str, limits: Limits) -> Result<PathBuf> {
    let root = Path::new(MOUNT);
    let there = fs::read_to_string(root.join("cgroup.subtree_control")).context("no control groups of version 2")?;
    anyhow::ensure!(
        ["memory", "cpu"].iter().all(|wanted| there.split_whitespace().any(|one| one == *wanted)),
        "memory and cpu are not handed down"
    );
    let folder = root.join(name);
    fs::create_dir(&folder)?;
    let quota = PERIOD_US * limits.cpu_percent / 100;
    let set = fs::write(folder.join("memory.max"), limits.memory_bytes.to_string())
        .and_then(|()| fs::write(folder.join("cpu.max"), format!("{quota} {PERIOD_US}")));
    // Absent where there is no swap at all.
    let _ = fs::write(folder.join("memory.swap.max"), "0");
    set.inspect_err(|_| {
        let _ = fs::remove_dir(&folder);
    })?;
    Ok(folder)
}

fn version1(name: &str, limits: Limits) -> Result<Vec<PathBuf>> {
    let root = Path::new(MOUNT);
    let (memory, cpu) = (root.join("memory").join(name), root.join("cpu").join(name));
    anyhow::ensure!(root.join("memory/memory.limit_in_bytes").exists(), "no control groups of version 1");
    let quota = PERIOD_US * limits.cpu_percent / 100;
    let set = fs::create_dir(&memory)
        .and_then(|()| fs::create_dir(&cpu))
        .and_then(|()| fs::write(memory.join("memory.limit_in_bytes"), limits.memory_bytes.to_string()))
        .and_then(|()| fs::write(cpu.join("cpu.cfs_period_us"), PERIOD_US.to_string()))
        .and_then(|()| fs::write(cpu.join("cpu.cfs_quota_us"), quota.to_string()));
    set.inspect_err(|_| {
        let _ = fs::remove_dir(&memory);
        let _ = fs::remove_dir(&cpu);
    })?;
    Ok(vec![memory, cpu])
}
