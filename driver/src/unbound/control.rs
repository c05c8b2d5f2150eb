//! One control command over Unbound's unix socket.
//!
//! **A connection that is open without its whole line stalls that worker of Unbound: with one thread
//! all DNS of the branch.** So a connection is made for one command, the line goes out in one write
//! right after connecting, and everything has a deadline after which the connection is closed.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::error::quoted;

/// Most bytes of a listing: about 1.3 million entries of a block list. A longer one is an error, and is
/// not read on: Unbound's worker serves nobody while it prints.
const LIST_BYTES_MAX: u64 = 64 << 20;
/// Most bytes of one line of a listing: a name and 65,535 bytes of record data, each written `\DDD`.
const LINE_BYTES_MAX: usize = 272 << 10;
/// Most bytes of a command's reply: Unbound's are one short line.
const REPLY_BYTES_MAX: u64 = 4 << 10;

/// Why a command did not succeed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The command did not leave.
    NotSent(String),
    /// The operating system forbids talking to it.
    Denied(String),
    /// Sent, and no whole reply came.
    Lost(String),
    /// Unbound answered `error …`.
    Error(String),
    /// Unbound answered something else.
    Garbage(String),
}

impl Failure {
    /// Whether the command certainly had no effect.
    pub(super) fn nothing_done(&self) -> bool {
        match self {
            Self::NotSent(_) | Self::Denied(_) | Self::Error(_) => true,
            Self::Lost(_) | Self::Garbage(_) => false,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent(why) | Self::Denied(why) | Self::Lost(why) => f.write_str(why),
            Self::Error(reply) | Self::Garbage(reply) => write!(f, "its control answered '{reply}'"),
        }
    }
}

/// A control socket.
#[derive(Debug)]
pub(super) struct Control {
    path: PathBuf,
    timeout: Duration,
}

impl fmt::Display for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unbound at {}", self.path.display())
    }
}

impl Control {
    pub(super) fn new(path: PathBuf, timeout: Duration) -> Self {
        Self { path, timeout }
    }

    /// Runs a command whose success is `ok`.
    pub(super) async fn command(&self, command: &str) -> Result<(), Failure> {
        let mut sent = false;
        let talk = async {
            let stream = self.send(command, &mut sent).await?;
            let mut reply = Vec::new();
            stream.take(REPLY_BYTES_MAX).read_to_end(&mut reply).await.map_err(|error| lost(&error))?;
            judged(&String::from_utf8_lossy(&reply))
        };
        let done = timeout(self.timeout, talk).await;
        done.unwrap_or_else(|_| Err(self.too_late(sent)))
    }

    /// Runs a command that lists lines, giving each to `each`. Holds one line at a time.
    pub(super) async fn list(
        &self,
        command: &str,
        mut each: impl FnMut(&str) -> Result<(), String> + Send,
    ) -> Result<(), Failure> {
        let mut sent = false;
        let talk = async {
            let stream = self.send(command, &mut sent).await?;
            let mut lines = BufReader::with_capacity(64 << 10, stream.take(LIST_BYTES_MAX));
            let (mut line, mut entries) = (Vec::new(), 0_u64);
            loop {
                let more = next_line(&mut lines, &mut line).await;
                if lines.get_ref().limit() == 0 {
                    return Err(Failure::Garbage(format!("{command}: more than {} MiB", LIST_BYTES_MAX >> 20)));
                }
                if !more? {
                    break;
                }
                let text = std::str::from_utf8(&line)
                    .map_err(|_| Failure::Garbage(quoted(&String::from_utf8_lossy(&line))))?
                    .trim();
                if entries == 0 && (text == "error" || text.starts_with("error ")) {
                    return Err(Failure::Error(quoted(text)));
                }
                // Unbound puts an empty line after each record.
                if !text.is_empty() {
                    each(text).map_err(Failure::Garbage)?;
                    entries += 1;
                }
            }
            if entries == 0 {
                // A stock Unbound always lists localhost: nothing at all is a cut reply, not an empty list.
                return Err(Failure::Garbage(format!("{command}: an empty reply")));
            }
            Ok(())
        };
        let done = timeout(self.timeout, talk).await;
        done.unwrap_or_else(|_| Err(self.too_late(sent)))
    }

    async fn send(&self, command: &str, sent: &mut bool) -> Result<UnixStream, Failure> {
        let mut stream = UnixStream::connect(&self.path).await.map_err(|error| refused_connect(&error))?;
        *sent = true;
        stream.write_all(format!("UBCT1 {command}\n").as_bytes()).await.map_err(|error| lost(&error))?;
        Ok(stream)
    }

    fn too_late(&self, sent: bool) -> Failure {
        if sent {
            Failure::Lost(format!("no whole reply within {:?}", self.timeout))
        } else {
            Failure::NotSent(format!("no connection within {:?}", self.timeout))
        }
    }
}

/// Reads the next line without its end into `line`; false at the end of the stream.
async fn next_line(lines: &mut BufReader<impl AsyncRead + Unpin + Send>, line: &mut Vec<u8>) -> Result<bool, Failure> {
    line.clear();
    loop {
        let (used, ended) = {
            let mut reader = std::pin::Pin::new(&mut *lines);
            let chunk = reader.fill_buf().await.map_err(|error| lost(&error))?;
            if chunk.is_empty() {
                return match line.is_empty() {
                    true => Ok(false),
                    false => Err(Failure::Lost("the list ended in the middle of a line".to_owned())),
                };
            }
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let part = end.map_or(chunk, |end| chunk.get(..end).unwrap_or_default());
            if line.len() + part.len() > LINE_BYTES_MAX {
                return Err(Failure::Garbage(quoted(&String::from_utf8_lossy(line))));
            }
            line.extend_from_slice(part);
            (end.map_or(chunk.len(), |end| end + 1), end.is_some())
        };
        std::pin::Pin::new(&mut *lines).consume(used);
        if ended {
            return Ok(true);
        }
    }
}

/// Reads a command's reply.
fn judged(reply: &str) -> Result<(), Failure> {
    let text = reply.trim();
    match text.split_whitespace().next() {
        Some("ok") => Ok(()),
        Some("error") => Err(Failure::Error(quoted(text))),
        Some(_) => Err(Failure::Garbage(quoted(text))),
        None => Err(Failure::Lost("it closed the connection without a reply".to_owned())),
    }
}

fn refused_connect(error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::PermissionDenied {
        return Failure::Denied(error.to_string());
    }
    // Whatever else the system says speaks for itself.
    let hint = if error.kind() == io::ErrorKind::NotFound {
        "; is control-enable: yes and control-interface this path?"
    } else if error.kind() == io::ErrorKind::ConnectionRefused {
        "; is it running?"
    } else {
        ""
    };
    Failure::NotSent(format!("{error}{hint}"))
}

fn lost(error: &io::Error) -> Failure {
    Failure::Lost(format!("the connection broke: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(input: &[u8]) -> (Vec<String>, Option<Failure>) {
        let (mut reader, mut line, mut all) = (BufReader::with_capacity(8, input), Vec::new(), Vec::new());
        loop {
            match next_line(&mut reader, &mut line).await {
                Ok(true) => all.push(String::from_utf8(line.clone()).unwrap()),
                Ok(false) => return (all, None),
                Err(failure) => return (all, Some(failure)),
            }
        }
    }

    #[tokio::test]
    async fn lines_longer_than_the_buffer_are_whole() {
        let (all, failure) = lines(b"a line longer than the buffer\n\nx\n").await;
        assert_eq!(all, ["a line longer than the buffer", "", "x"]);
        assert!(failure.is_none());
    }

    #[tokio::test]
    async fn a_list_cut_inside_a_line_is_not_a_list() {
        let (all, failure) = lines(b"x. static\ny. sta").await;
        assert_eq!(all, ["x. static"]);
        assert!(matches!(failure, Some(Failure::Lost(_))));
    }

    #[tokio::test]
    async fn a_line_without_end_is_refused_before_it_fills_memory() {
        let (_, failure) = lines(&vec![b'x'; LINE_BYTES_MAX + 9]).await;
        assert!(matches!(failure, Some(Failure::Garbage(what)) if what.len() < 300));
    }

    #[test]
    fn replies_are_told_apart() {
        assert!(judged("ok\n").is_ok());
        assert!(judged("ok removed 3 rrsets\n").is_ok());
        assert!(matches!(judged("error unknown command 'x'\n"), Err(Failure::Error(_))));
        assert!(matches!(judged("okay"), Err(Failure::Garbage(_))));
        assert!(matches!(judged(""), Err(Failure::Lost(_))));
    }
}
