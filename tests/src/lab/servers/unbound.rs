//! Unbound as each place's own resolver: what its clients really ask. It forwards to the content network's resolver
//! over DNS over TLS; the branch's has a control socket, for pins.

use std::path::PathBuf;

use anyhow::{Context, Result};

use super::{Ground, START_MAX, text};
use crate::lab::atlas::{CANARIES, CDN_RESOLVER, Place};
use crate::lab::look;
use crate::lab::process::{self, Process};
use crate::lab::run_dir::{private, write_private};

/// Where the control socket of a place's resolver is.
#[must_use]
pub fn control_socket(ground: &Ground, place: Place) -> PathBuf {
    directory(ground, place).join("control.sock")
}

/// Writes the configuration, starts Unbound and waits until it answers.
///
/// # Errors
/// It does not start.
pub async fn start(ground: &Ground, place: Place) -> Result<Process> {
    let directory = directory(ground, place);
    private(&directory)?;
    let configuration = directory.join("unbound.conf");
    write_private(&configuration, &configure(ground, place))?;
    let name = format!("live-{}", place.name());
    let mut command = process::command(ground.namespace(place), &ground.programs.unbound);
    command.arg("-d").arg("-c").arg(&configuration);
    let mut unbound = Process::start(&format!("{name} (Unbound)"), &ground.log(&name), command)?;
    let (server, namespace, lab) = (ground.layout.live(place), ground.namespace(place), ground.lab_binary()?);
    unbound
        .until("answering", START_MAX, async || {
            look::resolve(namespace, &lab, server, CANARIES[0].name).await.is_ok_and(|a| !a.is_empty())
        })
        .await
        .with_context(|| format!("the resolver of {}", place.name()))?;
    Ok(unbound)
}

fn directory(ground: &Ground, place: Place) -> PathBuf {
    ground.directory.join(format!("live-{}", place.name()))
}

fn configure(ground: &Ground, place: Place) -> String {
    let directory = directory(ground, place);
    let at = ground.layout.live(place);
    let upstream = ground.layout.resolver(place, CDN_RESOLVER, 853);
    format!(
        r#"server:
    directory: "{directory}"
    pidfile: "{directory}/unbound.pid"
    username: ""
    chroot: ""
    use-syslog: no
    verbosity: 1
    interface: {address}
    port: {port}
    do-ip6: no
    num-threads: 1
    access-control: 127.0.0.0/8 allow
    do-not-query-localhost: no
    module-config: "iterator"
    hide-version: yes
    minimal-responses: yes
    qname-minimisation: no
    tls-upstream: yes
    tls-cert-bundle: "{authority}"
    msg-cache-size: 256k
    rrset-cache-size: 512k
    infra-host-ttl: 5
remote-control:
    control-enable: yes
    control-interface: "{control}"
    control-use-cert: no
forward-zone:
    name: "."
    forward-tls-upstream: yes
    forward-addr: {upstream_address}@{upstream_port}#{server_name}
"#,
        directory = text(&directory),
        address = at.ip(),
        port = at.port(),
        authority = text(&ground.certificates.authority),
        control = text(&control_socket(ground, place)),
        upstream_address = upstream.ip(),
        upstream_port = upstream.port(),
        server_name = CDN_RESOLVER.server_name,
    )
}
