//! What our programs are told in the zoo: the coordinators' configurations and each agent owner's file.

use std::fmt::Write;
use std::path::Path;

use super::answers::{LISTED, STUB, canaries};
use super::case::Watch;
use super::ground::{Ground, resolver_host};
use super::machines::{self, machines};
use super::place::{BRANCH, CACHED, HQ, Place};
use super::public::{
    AUTHORITY, CF, CONTROLS, ENDPOINTS, GOOGLE, NEGATIVE, NO_CONTENT, PLAIN, SIGNPOST, TSIG_NAME, TTL_S, ZONE,
    endpoint_at, host,
};
use super::servers::control_socket;

/// More seldom than the policy has it, and more patient: all of this runs on a machine of two cores that has other work too.
const PACE: &str = "policy_overrides: { canary_every_s: 10, node_every_s: 5, endpoint_every_s: 8, fresh_for_s: 25, \
                    attempt_at_ms: [0, 250, 500, 750], connect_timeout_ms: 2000, tls_timeout_ms: 2500, http_timeout_ms: 2500, resolve_timeout_ms: 3000, silent_after_s: 20, proof_age_max_s: 20 }\n";

/// The agent owner's file.
#[must_use]
pub fn owner(ground: &Ground, place: Place) -> String {
    let mut file = format!(
        "version: 1\nlive_resolver: \"127.0.0.1:53\"\ntls_roots: {}\nallow: {{ ports: [80, 443], connections_per_minute: 20000, \
         connections_per_minute_to_one: 2000, connections_per_minute_to_network: 2000, questions_per_minute: 60000, \
         questions_per_minute_to_one: 20000, new_addresses_per_hour: 1000 }}\n",
        ground.authority.display()
    );
    if place == BRANCH {
        let _ = writeln!(
            file,
            "drivers: {{ pin: {{ kind: unbound, control: {} }} }}",
            control_socket(ground, place).display()
        );
    }
    file
}

/// A coordinator's `parallax.yaml`: nothing in it may be done without a person.
#[must_use]
pub fn coordinator(watch: Watch, page: &Path, tsig_secret_file: &Path) -> String {
    let mut file = format!(
        "version: 1\nlisten: {{ web: \"unix:{}\", grpc: \"{}:{}\" }}\npolicy: fast\n{PACE}",
        page.display(),
        HQ.address(),
        watch.port()
    );
    file.push_str("vantages:\n");
    for place in watch.places() {
        let (name, domain, audience) = (place.name, place.domain, place.audience);
        let more = match (watch, *place) {
            (Watch::Names, BRANCH) => ", upstream: cf, pin: { driver: pin, mode: propose }",
            (Watch::Names | Watch::Troubles, _) => ", upstream: cf",
            (Watch::Endpoints, CACHED) => ", upstream: e15, switch: by_hand",
            (Watch::Endpoints, _) => "",
        };
        let _ = writeln!(file, "  - {{ name: {name}, failure_domain: {domain}, audience: {audience}{more} }}");
    }
    file.push_str("controls:\n");
    for (name, address) in CONTROLS {
        let _ = writeln!(file, "  - {{ name: {name}, address: {address}, server_name: {} }}", host(name));
    }
    let _ = writeln!(file, "  - {{ name: negative, address: {NEGATIVE}, port: 443, negative: true }}");
    let _ = writeln!(
        file,
        "  - {{ name: captive, address: {NO_CONTENT}, captive_url: \"http://{}/generate_204\" }}",
        host("captive")
    );
    let _ = writeln!(
        file,
        "questions: {{ known: {}, freshness_zone: {}, missing_zone: {} }}",
        host("known"),
        host("fresh"),
        host("void")
    );
    file.push_str("resolvers:\n  - { name: live, kind: system, role: live }\n");
    match watch {
        Watch::Names | Watch::Troubles => names(&mut file, watch, tsig_secret_file),
        Watch::Endpoints => endpoints(&mut file),
    }
    file
}

fn doh(file: &mut String, name: &str, how: &str) {
    let _ =
        writeln!(file, "  - {{ name: {name}, kind: doh, url: \"https://{}/dns-query\", {how} }}", resolver_host(name));
}

fn endpoints(file: &mut String) {
    for (number, name) in ENDPOINTS.into_iter().enumerate() {
        let address = endpoint_at(number);
        let how = match name {
            "ok" => format!("bootstrap: [{address}], role: reserve, order: 1"),
            "e15" => format!("bootstrap: [{address}], role: primary"),
            "e12" => format!("bootstrap: [{address}], role: observe_only, format: json, method: get"),
            "e21" => format!("bootstrap_resolvers: [\"{SIGNPOST}:53\"], role: observe_only"),
            _ => format!("bootstrap: [{address}], role: observe_only"),
        };
        doh(file, name, &how);
    }
    let _ = writeln!(file, "canaries:\n  - {{ name: {} }}", host("steady"));
}

fn names(file: &mut String, watch: Watch, tsig_secret_file: &Path) {
    doh(file, "cf", &format!("bootstrap: [{CF}], role: primary"));
    doh(file, "google", &format!("bootstrap: [{GOOGLE}], role: reserve, order: 1"));
    let _ = writeln!(file, "  - {{ name: plain, kind: udp, address: \"{PLAIN}:53\", role: observe_only }}");
    let _ = writeln!(file, "stubs: [{STUB}, {LISTED}]\ncanaries:");
    for canary in canaries().into_iter().filter(|canary| canary.by.contains(&watch)) {
        let _ = writeln!(file, "  - {{ name: {} }}", host(canary.label));
    }
    file.push_str("nodes:\n");
    for machine in machines().filter(|machine| machine.by.contains(&watch)) {
        let (name, address, server_name) = (machine.name, machines::address(machine.name), host(machine.name));
        let _ = writeln!(file, "  {name}: {{ address: {address}, server_name: {server_name} }}");
    }
    file.push_str("services:\n");
    for machine in machines().filter(|machine| machine.by.contains(&watch) && !machine.fallbacks.contains(&"")) {
        let (name, hostname, [first, second]) = (machine.name, host(machine.name), machine.fallbacks);
        let _ = writeln!(
            file,
            "  - {{ name: {name}, hostname: {hostname}, ttl_s: {TTL_S}, native: {name}, fallbacks: [{first}, {second}], driver: auth, mode: propose }}"
        );
    }
    let _ = writeln!(
        file,
        "drivers:\n  auth: {{ kind: rfc2136, mode: propose, server: \"{AUTHORITY}:53\", zone: {ZONE}, tsig_name: {TSIG_NAME}, \
         tsig_algorithm: hmac-sha256, tsig_secret_file: {} }}",
        tsig_secret_file.display(),
    );
}
