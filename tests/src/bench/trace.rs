//! R3 and R11: what the agent asks of the system during a round, read from strace(1). A probe touches nothing but sockets
//! and the agent's own folder: nothing is written elsewhere, no temporary file is made, nothing listens, nothing is run,
//! no socket is raw.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::Command;

use super::agent::{Agent, Setup};
use super::assignment::{self, ORDINARY_PROBES};
use super::sitting::Sitting;
use crate::lab::programs;

/// Interval of every grid while it is watched, ms.
const ROUND_MS: u32 = 3000;
/// For two rounds, watched at every call.
const ROUNDS_MAX: Duration = Duration::from_secs(90);
/// Calls that change or make files, make sockets, or run programs. Reading and sending is left out: it needs a
/// descriptor, and where that came from is seen.
const CALLS: &str = "open,openat,openat2,creat,rename,renameat,renameat2,unlink,unlinkat,rmdir,mkdir,mkdirat,link,linkat,symlink,symlinkat,truncate,chmod,fchmodat,chown,lchown,fchownat,mknod,mknodat,memfd_create,socket,listen,execve,execveat,setsockopt,mount,ptrace";

/// What a trace holds that it must not, and how much it holds.
#[derive(Debug, Default, PartialEq, Eq)]
struct Findings {
    calls: usize,
    written: usize,
    wrong: Vec<String>,
}

/// Watches the agent through two rounds of its ordinary work.
///
/// # Errors
/// strace is not installed, the rounds do not come about, or the agent does what it must not: the message lists it.
pub async fn check(sitting: &Sitting) -> Result<String> {
    let strace = programs::find("strace").context("strace is not installed: ./x install strace")?;
    let (coordinator, setup) = sitting.pair("trace", assignment::ordinary(&sitting.targets, ROUND_MS)).await?;
    let output = sitting.directory().join("trace/strace");
    let inner = setup.command.as_std();
    let mut command = Command::new(strace);
    command
        .env_clear()
        .args(["-f", "-qq", "-y", "-I", "1", "-s", "256", "-e", &format!("trace={CALLS}"), "-o"])
        .arg(&output);
    // With -I 1 it ends at a signal, and hands it on to the program that it started.
    command.arg("--").arg(inner.get_program()).args(inner.get_args());
    let state = setup.state.clone();
    let mut agent = Agent::start(Setup { command, ..setup })?;
    // A tracer that is killed lets its tracee go on.
    let _traced = Traced::of(agent.pid()?, &sitting.binary).await?;
    let worked = coordinator
        .until("two rounds", ROUNDS_MAX, |seen| {
            seen.rows.iter().filter(|row| row.works()).count() > 2 * ORDINARY_PROBES
        })
        .await;
    worked.with_context(|| agent.log_tail())?;
    agent.pid()?;
    agent.stop().await?;
    let text = std::fs::read_to_string(&output).with_context(|| format!("reading {}", output.display()))?;
    let found = read(&text, &state);
    ensure!(found.written > 0, "the trace shows no write at all, so it proves nothing");
    if !found.wrong.is_empty() {
        bail!("the agent did what it must not:\n{}", found.wrong.join("\n"));
    }
    Ok(format!(
        "R3 R11 ok: {} calls in two rounds, {} of them open a file for writing or change one, all below the state folder; no temporary file, no listener, no raw socket, no program run",
        found.calls, found.written
    ))
}

/// The agent below its tracer.
struct Traced {
    pid: Pid,
    binary: PathBuf,
}

impl Traced {
    async fn of(tracer: u32, binary: &Path) -> Result<Self> {
        for _ in 0..100 {
            let children =
                std::fs::read_to_string(format!("/proc/{tracer}/task/{tracer}/children")).unwrap_or_default();
            for child in children.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()) {
                let traced = Self { pid: Pid::from_raw(child), binary: binary.to_owned() };
                if traced.runs() {
                    return Ok(traced);
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!("strace did not start the agent")
    }

    fn runs(&self) -> bool {
        std::fs::read_link(format!("/proc/{}/exe", self.pid)).is_ok_and(|exe| exe == self.binary)
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        if self.runs() {
            let _ = kill(self.pid, Signal::SIGKILL);
        }
    }
}

fn read(trace: &str, state: &Path) -> Findings {
    let mut found = Findings::default();
    let mut executed = 0;
    for line in trace.lines() {
        // "PID call(arguments) = result"; unfinished calls carry their arguments before the mark.
        let Some((_, call)) = line.split_once(char::is_whitespace) else { continue };
        let call = call.trim_start();
        let Some((name, arguments)) = call.split_once('(') else { continue };
        if !name.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_') {
            continue;
        }
        found.calls += 1;
        let wrong = match name {
            "open" | "openat" | "openat2" => {
                let writes = ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_TMPFILE"];
                if !writes.iter().any(|flag| arguments.contains(flag)) {
                    continue;
                }
                found.written += 1;
                arguments.contains("O_TMPFILE") || !paths(arguments).all(|path| is_below(&path, state))
            }
            "execve" | "execveat" => {
                // The first is strace's own, of the agent.
                executed += 1;
                executed > 1
            }
            "socket" => arguments.contains("SOCK_RAW") || arguments.contains("AF_PACKET"),
            "setsockopt" => arguments.contains("IP_HDRINCL"),
            "listen" | "memfd_create" | "mount" | "ptrace" => true,
            // Everything else changes a file or a folder.
            _ => {
                found.written += 1;
                !paths(arguments).all(|path| is_below(&path, state))
            }
        };
        if wrong {
            found.wrong.push(call.to_owned());
        }
    }
    found
}

/// The paths among a call's arguments: what is in quotes, below the folder before it in angle brackets where it is
/// relative.
fn paths(arguments: &str) -> impl Iterator<Item = PathBuf> {
    let parts: Vec<&str> = arguments.split('"').collect();
    let pairs: Vec<PathBuf> = parts
        .chunks_exact(2)
        .filter_map(|pair| {
            let [before, quoted] = pair else { return None };
            let folder = before.rsplit_once('<').and_then(|(_, rest)| rest.split_once('>')).map(|(folder, _)| folder);
            Some(Path::new(folder.unwrap_or_default()).join(quoted))
        })
        .collect();
    pairs.into_iter()
}

fn is_below(path: &Path, state: &Path) -> bool {
    let has_parent_steps = path.components().any(|part| part == std::path::Component::ParentDir);
    !has_parent_steps && (path.starts_with(state) || path == Path::new("/dev/null"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_must_not_be_is_found() {
        let trace = r#"7 execve("/x/parallax-agent", ["/x/parallax-agent"], 0x7ff /* 0 vars */) = 0
7 openat(AT_FDCWD</>, "/etc/resolv.conf", O_RDONLY|O_CLOEXEC) = 5</etc/resolv.conf>
7 openat(AT_FDCWD</>, "/s/spool/1.segment", O_WRONLY|O_CREAT|O_APPEND|O_CLOEXEC, 0666) = 6</s/spool/1.segment>
8 unlinkat(5</s/spool/1>, "2.segment", 0) = 0
8 rename("/s/spool/cursor.new", "/s/spool/cursor") = 0
8 socket(AF_INET, SOCK_DGRAM|SOCK_CLOEXEC|SOCK_NONBLOCK, IPPROTO_IP) = 7<socket:[1]>
8 <... rename resumed>) = 0
"#;
        let found = read(trace, Path::new("/s"));
        assert_eq!((found.calls, found.written, found.wrong.len()), (6, 3, 0), "{found:?}");
        for wrong in [
            r#"openat(AT_FDCWD</>, "/etc/resolv.conf", O_WRONLY|O_TRUNC) = 5"#,
            r#"openat(AT_FDCWD</>, "/s/../etc/hosts", O_WRONLY) = 5"#,
            r#"openat(AT_FDCWD</>, "/tmp/x", O_RDWR|O_CREAT|O_EXCL, 0600) = 5"#,
            r#"openat(AT_FDCWD</>, "/s", O_RDWR|O_TMPFILE, 0600) = 5"#,
            r#"rename("/s/a", "/etc/a") = 0"#,
            r#"memfd_create("x", 0) = 5"#,
            r"listen(5, 128) = 0",
            r#"execve("/bin/sh", ["sh"], 0x7ff) = 0"#,
            r"socket(AF_INET, SOCK_RAW, IPPROTO_ICMP) = 5",
            r#"unlink("/etc/a") = 0"#,
            r#"unlinkat(5</etc>, "a", 0) = 0"#,
        ] {
            let found = read(&format!("{trace}9 {wrong}\n"), Path::new("/s"));
            assert_eq!(found.wrong, [wrong], "{wrong}");
        }
    }
}
