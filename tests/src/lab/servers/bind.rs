//! BIND as the authority for every zone of the lab, with signed updates for the services' zone.

use std::fmt::Write;

use anyhow::{Context, Result};

use super::{Ground, START_MAX, text};
use crate::lab::atlas::{CANARIES, NODES, TSIG_NAME, TTL_S, ZONE};
use crate::lab::certs::host_name;
use crate::lab::look;
use crate::lab::process::{self, Process};
use crate::lab::run_dir::{private, write_private};

/// Writes the configuration, starts BIND and waits until it answers.
///
/// # Errors
/// It does not start.
pub async fn start(ground: &Ground) -> Result<Process> {
    let directory = ground.directory.join("authority");
    private(&directory)?;
    let configuration = directory.join("named.conf");
    write_private(&configuration, &configure(ground))?;
    for canary in CANARIES {
        let records: String = canary.native.iter().fold(String::new(), |mut all, address| {
            let _ = writeln!(all, "@ {TTL_S} IN A {address}");
            all
        });
        write_private(&directory.join(format!("{}.db", canary.name)), &zone(&records))?;
    }
    let records: String = NODES.iter().map(|n| format!("{} {TTL_S} IN A {}\n", n.name, n.address)).collect();
    write_private(&directory.join(format!("{ZONE}.db")), &zone(&records))?;

    let mut command = process::command(ground.router(), &ground.programs.named);
    command.arg("-g").args(["-n", "1", "-c"]).arg(&configuration);
    let mut named = Process::start("authority (BIND)", &ground.log("authority"), command)?;
    let (server, namespace, lab) = (ground.layout.authority(), ground.router(), ground.lab_binary()?);
    let question = host_name(NODES[0].name);
    named
        .until("answering", START_MAX, async || {
            look::resolve(namespace, &lab, server, &question).await.is_ok_and(|a| !a.is_empty())
        })
        .await
        .context("the authority")?;
    Ok(named)
}

fn configure(ground: &Ground) -> String {
    let at = ground.layout.authority();
    let directory = text(&ground.directory.join("authority"));
    let mut configuration = format!(
        r#"controls {{ }};
options {{
    directory "{directory}"; pid-file "{directory}/named.pid"; session-keyfile "{directory}/session.key";
    managed-keys-directory "{directory}"; lock-file none;
    listen-on port {port} {{ {address}; }}; listen-on-v6 {{ none; }};
    recursion no; dnssec-validation no; notify no; allow-query {{ any; }}; empty-zones-enable no;
    max-journal-size 1m; version none;
}};
key "{TSIG_NAME}" {{ algorithm hmac-sha256; secret "{secret}"; }};
zone "{ZONE}" {{ type primary; file "{ZONE}.db"; update-policy {{ grant {TSIG_NAME} zonesub A AAAA; }}; }};
"#,
        port = at.port(),
        address = at.ip(),
        secret = ground.tsig_secret,
    );
    for canary in CANARIES {
        let _ = writeln!(configuration, r#"zone "{name}" {{ type primary; file "{name}.db"; }};"#, name = canary.name);
    }
    configuration
}

/// A zone with these records; negative answers live as long as positive ones.
fn zone(records: &str) -> String {
    format!("$TTL {TTL_S}\n@ IN SOA ns hostmaster 1 3600 600 86400 {TTL_S}\n@ IN NS ns\nns IN A 198.18.0.53\n{records}")
}
