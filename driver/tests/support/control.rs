//! A relay in front of an Unbound's control socket that misbehaves as a script says.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

/// What to do with one command.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// Let it through.
    Pass,
    /// Let it through and lose the reply.
    PassThenCut,
    /// Say nothing, keep the connection.
    Silent,
    /// Answer with this text.
    Text(&'static str),
    /// Answer with records, for ever.
    Endless,
}

/// A relay and what it saw.
pub(crate) struct ControlRelay {
    folder: TempDir,
    seen: Arc<Mutex<Vec<String>>>,
}

impl ControlRelay {
    /// Starts a relay to the socket `server`. The script sees the command and how many equal ones came
    /// before it.
    pub(crate) fn start(server: &Path, script: impl Fn(&str, usize) -> Act + Send + Sync + 'static) -> Self {
        let folder = TempDir::new().unwrap();
        let listener = UnixListener::bind(folder.path().join("control")).unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (server, script, log) = (server.to_owned(), Arc::new(script), Arc::clone(&seen));
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let (server, script, log) = (server.clone(), Arc::clone(&script), Arc::clone(&log));
                tokio::spawn(async move {
                    let mut buffer = vec![0; 1024];
                    let length = client.read(&mut buffer).await.unwrap();
                    let line = String::from_utf8(buffer[..length].to_vec()).unwrap();
                    let command = line.strip_prefix("UBCT1 ").and_then(|line| line.strip_suffix('\n'));
                    let command = command.expect("the whole line in one write");
                    let before = {
                        let mut seen = log.lock().unwrap();
                        seen.push(command.to_owned());
                        seen.iter().filter(|other| *other == command).count() - 1
                    };
                    act(script(command, before), &server, &mut client, &line).await;
                });
            }
        });
        Self { folder, seen }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("control")
    }

    /// The commands seen that change something.
    pub(crate) fn writes(&self) -> Vec<String> {
        self.seen.lock().unwrap().iter().filter(|command| !command.starts_with("list_")).cloned().collect()
    }
}

async fn act(act: Act, server: &Path, client: &mut UnixStream, line: &str) {
    match act {
        Act::Pass => {
            let reply = ask(server, line).await;
            let _sent = client.write_all(&reply).await;
        }
        Act::PassThenCut => drop(ask(server, line).await),
        Act::Silent => {
            let _closed = client.read_u8().await;
        }
        Act::Text(text) => {
            let _sent = client.write_all(text.as_bytes()).await;
        }
        Act::Endless => {
            let record = format!("x.example.\t30\tIN\tTXT\t\"{}\"\n\n", "y".repeat(200_000));
            while client.write_all(record.as_bytes()).await.is_ok() {}
        }
    }
}

async fn ask(server: &Path, line: &str) -> Vec<u8> {
    let mut stream = UnixStream::connect(server).await.unwrap();
    stream.write_all(line.as_bytes()).await.unwrap();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).await.unwrap();
    reply
}
