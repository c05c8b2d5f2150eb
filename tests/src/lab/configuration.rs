//! What our programs are told: the coordinator's configuration and each agent owner's file.

use std::fmt::Write;
use std::path::Path;

use super::atlas::{
    CANARIES, CDN_FAMILY_RESOLVER, CDN_RESOLVER, CONTROLS, NEGATIVE_CONTROL, NODES, OTHER_RESOLVER, Place, TSIG_NAME,
    TTL_S, ZONE,
};
use super::certs::{control_name, host_name};
use super::servers::{Ground, unbound};
use crate::page;

/// Names of the resolvers in the coordinator's file, sorted.
pub const RESOLVERS: [&str; 5] = ["doh-cf", "doh-cf-family", "live", "plain-cf", "plain-google"];

/// The agent owner's file: what may be contacted from there, and the branch's pin driver.
#[must_use]
pub fn owner_file(ground: &Ground, place: Place) -> String {
    let mut file = format!(
        "version: 1\nlive_resolver: \"{}\"\ntls_roots: {}\nallow: {{ ports: [443], connections_per_minute: 3000, questions_per_minute: 6000 }}\n",
        ground.layout.live(place),
        ground.certificates.authority.display(),
    );
    if place == Place::Branch {
        let control = unbound::control_socket(ground, place);
        let _ = writeln!(file, "drivers: {{ pin: {{ kind: unbound, control: {} }} }}", control.display());
    }
    file
}

/// What a coordinator of the lab may do, and how patient it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stance {
    /// Lines of its file: `policy` and what goes over it.
    pub policy: &'static str,
    /// Mode of its drivers, services and pins.
    pub mode: &'static str,
}

impl Stance {
    /// That of the demo.
    pub const ACTING: Self = Self { policy: "policy: fast", mode: "act" };
}

/// A coordinator's `parallax.yaml`, of the first or the second: the vantages, resolvers, names, machines and services of both field cases.
#[must_use]
pub fn coordinator_file(ground: &Ground, tsig_secret_file: &Path, number: usize, stance: Stance) -> String {
    let Stance { policy, mode } = stance;
    let mut file = format!(
        r#"version: 1
listen: {{ web: "unix:{web}", grpc: "{grpc}" }}
{policy}
vantages:
  - {{ name: branch-kazan, labels: {{ site: kazan, isp: rt, region: ru }}, failure_domain: isp-rt, upstream: doh-cf, pin: {{ driver: pin, mode: {mode} }} }}
  - {{ name: wan-gw, labels: {{ site: hq, role: gateway, region: ru }}, failure_domain: isp-hq, upstream: doh-cf }}
  - {{ name: de-fra, labels: {{ site: fra, role: reference, region: eu }}, failure_domain: isp-fra, upstream: doh-cf }}
resolvers:
  - {{ name: live, kind: system, role: live }}
  - {{ name: doh-cf, kind: doh, url: "https://{cdn_name}/dns-query", bootstrap: [{cdn}], role: primary }}
  - {{ name: doh-cf-family, kind: doh, url: "https://{family_name}/dns-query", bootstrap: [{family}], role: reserve, order: 1 }}
  - {{ name: plain-cf, kind: udp, address: "{cdn}:53", role: observe_only }}
  - {{ name: plain-google, kind: udp, address: "{other}:53", role: observe_only }}
"#,
        web = ground.directory.join(page::socket(number)).display(),
        grpc = ground.layout.grpc(number),
        cdn_name = CDN_RESOLVER.server_name,
        cdn = CDN_RESOLVER.address,
        family_name = CDN_FAMILY_RESOLVER.server_name,
        family = CDN_FAMILY_RESOLVER.address,
        other = OTHER_RESOLVER.address,
    );
    file.push_str("canaries:\n");
    for canary in CANARIES {
        let _ = writeln!(file, "  - {{ name: {}, port: 443, tls: true }}", canary.name);
    }
    file.push_str("controls:\n");
    for (name, address) in CONTROLS {
        let server_name = control_name(name);
        let _ = writeln!(file, "  - {{ name: {name}, address: {address}, port: 443, server_name: {server_name} }}");
    }
    let _ = writeln!(file, "  - {{ name: negative, address: {NEGATIVE_CONTROL}, port: 443, negative: true }}");
    file.push_str("nodes:\n");
    for node in NODES {
        let (name, address, server_name) = (node.name, node.address, host_name(node.name));
        let _ = writeln!(file, "  {name}: {{ address: {address}, port: 443, server_name: {server_name} }}");
    }
    file.push_str("services:\n");
    for node in NODES {
        let (name, hostname, [first, second]) = (node.name, host_name(node.name), node.fallbacks);
        let _ = writeln!(
            file,
            "  - {{ name: {name}, hostname: {hostname}, ttl_s: {TTL_S}, native: {name}, fallbacks: [{first}, {second}], driver: auth, mode: {mode} }}"
        );
    }
    let _ = writeln!(
        file,
        "drivers:\n  auth: {{ kind: rfc2136, mode: {mode}, server: \"{}\", zone: {ZONE}, tsig_name: {TSIG_NAME}, tsig_algorithm: hmac-sha256, tsig_secret_file: {} }}",
        ground.layout.authority(),
        tsig_secret_file.display(),
    );
    file
}
