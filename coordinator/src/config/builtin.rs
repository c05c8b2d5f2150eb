//! The configuration without a file, and the example that `parallax config example` prints. Both
//! are files of this format, so that the reader and its tests see them too.

/// What runs without a configuration file: it watches three well-known names from this machine and
/// changes nothing.
pub const DEFAULT: &str = r#"version: 1
vantages:
  - { name: local, failure_domain: local }
resolvers:
  - { name: live, kind: system, role: live }
  - { name: doh-cf, kind: doh, url: "https://cloudflare-dns.com/dns-query", bootstrap: [1.1.1.1], role: primary }
  - { name: doh-google, kind: doh, url: "https://dns.google/dns-query", bootstrap: [8.8.8.8], role: observe_only }
  - { name: doh-quad9, kind: doh, url: "https://dns.quad9.net/dns-query", bootstrap: [9.9.9.9], role: observe_only }
canaries:
  - { name: example.com, port: 443, tls: true }
  - { name: cdnjs.cloudflare.com, port: 443, tls: true }
  - { name: cdn.tailwindcss.com, port: 443, tls: true }
controls:
  - { name: control-cf, address: 1.0.0.1, port: 443, server_name: one.one.one.one }
  - { name: control-google, address: 8.8.4.4, port: 443, server_name: dns.google }
  - { name: control-quad9, address: 149.112.112.112, port: 443, server_name: dns.quad9.net }
  - { name: negative, address: 192.0.2.1, port: 443, negative: true }
  - { name: captive, captive_url: "http://connectivitycheck.gstatic.com/generate_204" }
"#;

/// A commented file with everything in it.
pub const EXAMPLE: &str = r#"# Configuration of the coordinator. `parallax config check --config FILE` says what is wrong with it.
version: 1

# Page and API; agents. web may also be unix:/run/parallax/web.sock (mode 0660).
listen: { web: "127.0.0.1:8080", grpc: "127.0.0.1:8443" }

# Where agents reach the coordinators (needed when listen.grpc is a wildcard), and how long their certificates
# live (1h to 366d). Without files the coordinator makes an authority of its own in its state directory; with
# them: authority_file and authority_key_file, server_certificate_file and server_key_file.
identity: { advertise: ["parallax.example.net:8443"], certificate_life: 30d }

# How long what is kept: every result; figures by the hour, verdicts and epochs of answers; incidents with all they rest on.
# The embedded database never takes more of the disk than this; near it days of the log go before their time.
database:
  retain: { results: 30d, hourly: 2y, incidents: forever }
  embedded: { disk_max: 20GiB }

# How careful to be: default, or fast for a laboratory. Single settings: `parallax config show`
# lists them all. A probe may take half of its interval (probe_budget_permille: 500); the check
# says which value to change when the limits leave no room.
policy: default
policy_overrides: { dwell_s: 300, verify_within_s: 180 }

# Places that measure. Each joins with a token: parallax token create NAME.
# Two vantages of one failure_domain (the uplink they share) count as one witness.
# upstream: the resolver that the place's live resolver forwards to.
# pin: the driver in the agent's own local file, and what may be done without a person:
# observe, propose or act.
# source: where probes come from, where a machine has more than one way out; the kernel chooses
# otherwise. At most one address of each family.
vantages:
  - name: branch-kazan
    labels: { site: kazan, isp: rt, region: ru }
    failure_domain: isp-rt
    upstream: doh-cf
    pin: { driver: pin, mode: propose }
  - { name: wan-gw, labels: { site: hq, role: gateway }, failure_domain: isp-hq, upstream: doh-cf }
  - name: de-fra
    labels: { site: fra, role: reference }
    failure_domain: isp-fra
    upstream: doh-cf
    source: { addresses: [49.12.20.99], interface: eth0 }

# Resolvers under test. Exactly one is live: what clients at the place use.
# kind: system, doh, dot, udp (then TCP when cut) or tcp. IPv6 stands in brackets:
# address: "[2001:4860:4860::8888]:53".
# A DoH endpoint's own name may not be resolvable. Pin its addresses with bootstrap, or name plain
# servers that know it with bootstrap_resolvers.
# Its form is set per endpoint: format wire (RFC 8484) or json (always GET), method post or get,
# http auto, 1.1 or 2.
resolvers:
  - { name: live, kind: system, role: live }
  - { name: doh-cf, kind: doh, url: "https://cloudflare-dns.com/dns-query", bootstrap: [1.1.1.1], role: primary }
  - { name: doh-family, kind: doh, url: "https://family.cloudflare-dns.com/dns-query", bootstrap: [1.1.1.3], role: reserve, order: 1 }
  - { name: dot-quad9, kind: dot, address: "9.9.9.9:853", server_name: dns.quad9.net, role: reserve, order: 2 }
  - { name: plain-google, kind: udp, address: "8.8.8.8:53", role: observe_only }
  - name: doh-google-json
    kind: doh
    url: "https://dns.google/resolve"
    bootstrap_resolvers: ["9.9.9.9:53", "[2620:fe::fe]:53"]
    format: json
    http: 2
    role: observe_only

# Names whose answers and reachability are watched.
# http: a request after TLS: the status must be one of statuses (without them 200 to 399), and at
# least read_bytes of the body must arrive.
# validate: agents validate the answer themselves (DNSSEC); for a signed name.
canaries:
  - { name: example.com, port: 443, tls: true, validate: true, http: { path: /, statuses: [200], read_bytes: 512 } }
  - { name: cdnjs.cloudflare.com, port: 443, tls: true }
  - { name: cdn.tailwindcss.com, port: 443, tls: true }

# What a check of a resolver asks. known: a name that exists (else the first
# canary). missing_zone: a random label below it does not exist (else below known).
# freshness_zone: an unsigned wildcard zone of yours, in which every label exists and none is in a
# cache. Without it nobody can tell a resolver that only serves what it remembers
# (that an endpoint serves stale answers) from one that works: the live resolver's cache may hide a dead upstream.
questions: { known: example.com, freshness_zone: fresh.montana.quest, missing_zone: example.com }

# Targets that only tell whether the vantage's own uplink works. Take different operators. The
# negative one must stay silent: an answer means that something accepts every connection. The
# captive one must give status 204 over plain HTTP: anything else is a log-in page.
controls:
  - { name: control-cf, address: 1.0.0.1, port: 443, server_name: one.one.one.one }
  - { name: control-google, address: 8.8.4.4, port: 443, server_name: dns.google }
  - { name: control-quad9, address: 149.112.112.112, port: 443, server_name: dns.quad9.net }
  - { name: negative, address: 192.0.2.1, port: 443, negative: true }
  - { name: captive, captive_url: "http://connectivitycheck.gstatic.com/generate_204" }

# Machines of ours. Without server_name a completed TCP handshake is the proof; http as above. One that proves its life
# (`parallax-agent respond` on it; its public key is what `parallax-agent respond --public` prints there) gets
#   proof: { key: 64 hexadecimal digits, port: 7443 }
# Then only who shows its signature keeps two accusers from moving its users.
nodes:
  fi: { address: 95.216.10.10, port: 443, server_name: fi.montana.quest, http: { path: /health, statuses: [200, 204] } }
  de: { address: 49.12.20.20, port: 443, server_name: fi.montana.quest }
  us: { address: 5.161.30.30, port: 443, server_name: fi.montana.quest }

# Host names of ours and the machines that can serve them, fallbacks in order of preference.
services:
  - name: fi
    hostname: fi.montana.quest
    ttl_s: 60
    native: fi
    fallbacks: [de, us]
    driver: auth
    mode: observe

# How the records are changed. A driver's mode caps the modes of its services.
drivers:
  auth:
    kind: rfc2136
    mode: act
    server: "198.18.0.53:53"
    zone: montana.quest
    tsig_name: parallax
    tsig_algorithm: hmac-sha256
    tsig_secret_file: /etc/parallax/tsig
"#;
