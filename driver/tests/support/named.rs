//! A BIND `named` that serves `example.net` and takes signed updates.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parallax_driver::Driver;
use parallax_driver::rfc2136::{Clock, Rfc2136, Rfc2136Config, TsigAlgorithm};
use secrecy::SecretString;
use tempfile::TempDir;

use super::clock;
use super::{PATIENT, Process, free_port, name, program, wait_until};

/// 32 bytes in base64, as every key of the test server has them.
pub(crate) const SECRET: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
/// Another 32 bytes.
pub(crate) const WRONG_SECRET: &str = "ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA=";

const ZONE: &str = "$TTL 300
@ SOA ns hostmaster 1 3600 600 86400 5
@ NS ns
ns A 127.0.0.1
fi 5 A 95.216.10.10
two 5 A 95.216.10.10
two 5 A 95.216.10.11
two 5 AAAA 2a01:4f8::10
below.two A 95.216.10.99
v6 5 AAAA 2a01:4f8::6
long A 95.216.10.10
private A 10.0.0.1
alias CNAME fi
dangling CNAME missing
mail MX 10 fi
*.wild A 95.216.10.10
child NS ns.example.org.
";

/// A running server. It ends with this value.
pub(crate) struct Named {
    _process: Process,
    _folder: TempDir,
    pub(crate) address: SocketAddr,
}

impl Named {
    /// Starts one, or says loudly why not.
    pub(crate) async fn start() -> Option<Self> {
        let binary = program("named", "bind9")?;
        let mut log = String::new();
        // Somebody may take the port between finding and using it.
        for _ in 0..3 {
            let folder = TempDir::new().unwrap();
            let port = free_port();
            configure(folder.path(), port);
            let messages = fs::File::create(folder.path().join("log")).unwrap();
            let child = Command::new(&binary)
                .args(["-g", "-n", "1", "-c"])
                .arg(folder.path().join("named.conf"))
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(messages)
                .spawn();
            let mut process = Process(child.unwrap());
            let address = SocketAddr::from(([127, 0, 0, 1], port));
            let probe = driver(config(address), Duration::ZERO);
            let question = name("fi.example.net");
            if wait_until(&mut process, async || probe.read(&question).await.is_ok()).await {
                return Some(Self { _process: process, _folder: folder, address });
            }
            log = fs::read_to_string(folder.path().join("log")).unwrap_or_default();
        }
        panic!("named does not start; its last log:\n{log}");
    }

    /// A driver for it with the key that may update.
    pub(crate) fn driver(&self) -> Rfc2136 {
        driver(config(self.address), Duration::ZERO)
    }
}

/// The configuration that works with a server at `address`.
pub(crate) fn config(address: SocketAddr) -> Rfc2136Config {
    Rfc2136Config {
        server: address,
        zone: name("example.net"),
        key_name: name("key-sha256"),
        algorithm: TsigAlgorithm::HmacSha256,
        secret: SecretString::from(format!("\u{feff}{SECRET}\r\n")),
        timeout: PATIENT,
    }
}

/// A driver whose clock is `late` behind.
pub(crate) fn driver(config: Rfc2136Config, late: Duration) -> Rfc2136 {
    let clock: Clock = Arc::new(move || clock::now() - late);
    Rfc2136::new(config, clock).unwrap()
}

fn configure(folder: &Path, port: u16) {
    let here = folder.display();
    let mut keys = String::new();
    for (key, algorithm) in [
        ("key-sha256", "hmac-sha256"),
        ("key-sha384", "hmac-sha384"),
        ("key-sha512", "hmac-sha512"),
        ("key-reads", "hmac-sha256"),
    ] {
        keys += &format!("key \"{key}\" {{ algorithm {algorithm}; secret \"{SECRET}\"; }};\n");
    }
    let conf = format!(
        "controls {{ }};
options {{ directory \"{here}\"; pid-file \"{here}/pid\"; session-keyfile \"{here}/session\";
  managed-keys-directory \"{here}\"; listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }};
  recursion no; dnssec-validation no; }};
{keys}
zone \"example.net\" {{ type primary; file \"zone\"; update-policy {{
  grant key-sha256 zonesub A AAAA; grant key-sha384 zonesub A AAAA; grant key-sha512 zonesub A AAAA; }}; }};\n"
    );
    let many: String = (1..=20).map(|n| format!("many A 95.216.20.{n}\n")).collect();
    fs::write(folder.join("named.conf"), conf).unwrap();
    fs::write(folder.join("zone"), format!("{ZONE}{many}")).unwrap();
}
