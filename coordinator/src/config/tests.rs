//! What is wrong with a file, in the words the operator reads.

use parallax_decide::topology::{ControlKind, Mode, Role};

use super::error::Faults;
use super::file::{DohFormatName, DohMethodName, HttpVersionName};
use super::{Config, Endpoint, WebListen, builtin};

/// The example with one text replaced; it must be there.
fn with(from: &str, to: &str) -> String {
    assert!(builtin::EXAMPLE.contains(from), "{from}");
    builtin::EXAMPLE.replacen(from, to, 1)
}

fn faults(text: &str) -> String {
    match Config::parse(text, "parallax.yaml") {
        Ok(_) => "none".to_owned(),
        // Without the lines of the file, which would be in the way of counting.
        Err(faults) => Faults { text: String::new(), ..faults }.to_string(),
    }
}

#[test]
fn the_example_and_the_default_are_right() {
    let config = Config::parse(builtin::EXAMPLE, "example").unwrap();
    let fi = &config.topology.services[&"fi".parse().unwrap()];
    assert_eq!((fi.ttl_s, fi.mode, fi.fallbacks.len()), (60, Mode::Observe, 2));
    let family = &config.topology.resolvers[&"doh-family".parse().unwrap()];
    assert_eq!(family.role, Role::Reserve(1));
    let default = Config::load(None).unwrap();
    assert_eq!(default.topology.canaries.len(), 3);
    assert!(default.topology.services.is_empty() && default.drivers.is_empty());
}

#[test]
fn positive_controls_of_one_operator_alone_are_allowed_and_warned_of_with_their_place() {
    assert_eq!(Config::parse(builtin::EXAMPLE, "x").unwrap().warnings, None);
    assert_eq!(Config::load(None).unwrap().warnings, None);
    let cloudflare = "address: 1.0.0.1, port: 443, server_name: one.one.one.one";
    let text = with(cloudflare, "address: 8.8.8.8, port: 443, server_name: www.dns.google")
        .replace("149.112.112.112, port: 443, server_name: dns.quad9.net", "8.8.4.5, port: 443");
    let config = Config::parse(&text, "x.yaml").unwrap();
    let line = 1 + text.lines().position(|line| line.contains("name: control-cf")).unwrap();
    let said = config.warnings.unwrap().to_string();
    assert!(said.starts_with(&format!("x.yaml:{line}:13: all positive controls are of one operator")), "{said}");
    assert!(said.contains("  - { name: control-cf,"), "the line is shown: {said}");
}

#[test]
fn a_country_code_stays_a_text_and_a_socket_is_a_place_for_the_page() {
    let config = Config::parse(&with("region: ru", "region: no"), "x").unwrap();
    assert_eq!(config.labels[&"branch-kazan".parse().unwrap()]["region"], "no");
    let config = Config::parse(&with("web: \"127.0.0.1:8080\"", "web: \"unix:/run/parallax/web.sock\""), "x").unwrap();
    assert_eq!(config.listen.web, WebListen::Unix("/run/parallax/web.sock".into()));
}

#[test]
fn a_drivers_mode_caps_its_services() {
    let text = with("mode: observe", "mode: act").replace("    mode: act\n    server", "    mode: propose\n    server");
    let config = Config::parse(&text, "x").unwrap();
    assert_eq!(config.topology.services[&"fi".parse().unwrap()].mode, Mode::Propose);
}

#[test]
fn every_fault_is_named_with_its_place() {
    let cases = [
        ("canaries:", "cannaries:", "unknown key `cannaries`, did you mean `canaries`?"),
        (
            "failure_domain: isp-rt",
            "failure_domian: isp-rt",
            "unknown key `failure_domian`, did you mean `failure_domain`?",
        ),
        ("kind: rfc2136", "kind: rfc2163", "unknown value `rfc2163`"),
        ("mode: propose }", "mode: akt }", "unknown value `akt`, did you mean `act`?"),
        ("policy: default", "policy: quick", "unknown value `quick`; expected one of default, fast"),
        ("version: 1", "version: 2", "version 2 is not known"),
        ("version: 1", "version: one", "parallax.yaml:2:10: invalid u32 at `one`"),
        ("version: 1", "version: 1\nversion: 1", "duplicate key `version`"),
        ("    ttl_s: 60", "    ttl_s: 60\n    ttl_s: 60", "duplicate"),
        ("ttl_s: 60", "ttl_s: 0", "ttl_s must be 1 to 3600"),
        ("ttl_s: 60", "ttl_s: 60s", "invalid u32 at `60s`"),
        ("version: 1", "", "the key `version` is missing"),
        (
            "policy_overrides: { dwell_s: 300,",
            "policy_overrides: { dwel_s: 300,",
            "unknown key `dwel_s`, did you mean `dwell_s`?",
        ),
        ("policy_overrides: { dwell_s: 300,", "policy_overrides: { k_min: 2,", "k_min has a floor of 3"),
        ("upstream: doh-cf", "upstream: doh-fc", "unknown resolver `doh-fc`, did you mean `doh-cf`?"),
        ("upstream: doh-cf", "upstream: live", "the live resolver cannot be its own upstream"),
        ("- name: branch-kazan", "- name: wan-gw", "vantage `wan-gw` is there twice"),
        ("name: doh-family", "name: doh-cf", "resolver `doh-cf` is there twice"),
        (
            "name: plain-google, kind: udp, address: \"8.8.8.8:53\", role: observe_only",
            "name: plain-google, kind: udp, address: \"8.8.8.8:53\", role: reserve, order: 3",
            "a plain resolver cannot be a reserve",
        ),
        ("role: reserve, order: 2", "role: reserve, order: 1", "two reserves have order 1"),
        ("role: reserve, order: 2", "role: reserve", "a reserve needs an `order`"),
        ("kind: system, role: live", "kind: system, role: primary", "belong together"),
        ("bootstrap: [1.1.1.3]", "bootstrap: []", "`bootstrap` must hold one to 4"),
        (
            ", bootstrap: [1.1.1.3]",
            "",
            "resolver `doh-family` needs `bootstrap` (its addresses) or `bootstrap_resolvers`",
        ),
        (
            "bootstrap: [1.1.1.3]",
            "bootstrap: [1.1.1.3], bootstrap_resolvers: [\"1.1.1.1:53\"]",
            "`bootstrap_resolvers` is not used while `bootstrap` pins",
        ),
        ("bootstrap: [1.1.1.3]", "bootstrap_resolvers: []", "`bootstrap_resolvers` must hold one to 3"),
        ("bootstrap: [1.1.1.3]", "bootstrap_resolvers: [\"2606:4700::64:53\"]", "as in \"[2606:4700::64]:53\""),
        ("bootstrap: [1.1.1.3]", "bootstrap: [1.1.1.3], format: jsno", "unknown value `jsno`, did you mean `json`?"),
        (
            "bootstrap: [1.1.1.3]",
            "bootstrap: [1.1.1.3], method: patch",
            "unknown value `patch`; expected one of post, get",
        ),
        ("bootstrap: [1.1.1.3]", "bootstrap: [1.1.1.3], http: 3", "unknown value `3`; expected one of auto, 1.1, 2"),
        ("bootstrap: [1.1.1.3]", "bootstrap: [1.1.1.3], format: json, method: post", "the JSON form is a GET"),
        ("https://family.cloudflare-dns.com", "https://2606:4700::1113", "https://[2606:4700::1113]/dns-query"),
        ("address: \"8.8.8.8:53\"", "address: \"2001:4860::8888\"", "as in \"[2001:4860::8888]:53\""),
        ("address: \"9.9.9.9:853\"", "address: \"tls://2620:fe::fe\"", "as in \"[2620:fe::fe]:853\""),
        (
            "kind: udp, address",
            "kind: udp, format: wire, address",
            "`format` does not belong to a resolver of this kind",
        ),
        (
            "name: plain-google, kind: udp, address: \"8.8.8.8:53\", role: observe_only",
            "name: plain-google, kind: tcp, address: \"8.8.8.8:53\", role: reserve, order: 3",
            "a plain resolver cannot be a reserve",
        ),
        ("validate: true, http: { path: /,", "validate: true, http: { path: health,", "`path` must begin with /"),
        ("statuses: [200], read_bytes", "statuses: [20], read_bytes", "`statuses` must hold at most 16 numbers"),
        ("read_bytes: 512", "read_bytes: 2000000", "`read_bytes` must be at most 1048576"),
        ("tls: true, validate", "tls: false, validate", "an HTTP request needs TLS first"),
        ("server_name: fi.montana.quest, http", "http", "an HTTP request needs TLS first: give `server_name`"),
        ("questions: { known:", "questions: { knwon:", "unknown key `knwon`, did you mean `known`?"),
        (
            "freshness_zone: fresh.montana.quest",
            "freshness_zone: 10.0.0.1",
            "a freshness zone is a name, not an address",
        ),
        ("addresses: [49.12.20.99]", "addresses: [49.12.20.99, 49.12.20.98]", "at most one address of each family"),
        ("interface: eth0", "interface: an-interface-of-long-name", "`interface` must be a name of 1 to 15"),
        ("source: { addresses: [49.12.20.99], interface: eth0 }", "source: {}", "`source` says nothing"),
        ("captive_url: \"http:", "captive_url: \"https:", "must read http://HOST/PATH"),
        ("{ name: captive, captive_url", "{ name: captive, negative: true, captive_url", "do not belong to it"),
        (
            "captive_url: \"http://connectivitycheck.gstatic.com",
            "captive_url: \"http://fi.montana.quest",
            "it cannot be a control",
        ),
        (
            "address: 1.0.0.1, port: 443, server_name",
            "port: 443, server_name",
            "control `control-cf` needs an `address`",
        ),
        (
            "policy_overrides: { dwell_s: 300,",
            "policy_overrides: { jitter_permille: 101,",
            "jitter_permille must be at most 100, not 101",
        ),
        (
            "policy_overrides: { dwell_s: 300,",
            "policy_overrides: { udp_hold_ms: 6000,",
            "udp_hold_ms must be at most 5000 ms",
        ),
        ("https://family.", "http://family.", "must read https://HOST/PATH"),
        ("https://family.cloudflare-dns.com", "https://fi.montana.quest", "it cannot be a resolver"),
        ("- { name: example.com,", "- { name: fi.montana.quest,", "it cannot be a canary as well"),
        ("- { name: example.com,", "- { name: 93.184.216.34,", "a canary is a name, not an address"),
        ("- { name: example.com,", "- { name: router.local,", "has a special use"),
        ("- { name: example.com,", "- { name: cdnjs.cloudflare.com,", "canary `cdnjs.cloudflare.com` is there twice"),
        ("- { name: example.com,", "- { name: \"exa mple.com\",", "holds ' '"),
        ("name: example.com, port: 443", "name: example.com, port: 0", "port 0 cannot be contacted"),
        ("name: control-google", "name: control-cf", "control `control-cf` is there twice"),
        ("address: 1.0.0.1", "address: 10.0.0.1", "a positive control must be on the internet"),
        ("server_name: dns.google }", "server_name: fi.montana.quest }", "it cannot be a control"),
        (
            "fi: { address: 95.216.10.10",
            "fi: { address: 203.0.113.10",
            "an address that can never be served: documentation",
        ),
        ("de: { address: 49.12.20.20", "de: { address: 95.216.10.10", "have the same address"),
        ("native: fi", "native: fo", "unknown node `fo`"),
        ("fallbacks: [de, us]", "fallbacks: [de, usa]", "unknown node `usa`, did you mean `us`?"),
        ("fallbacks: [de, us]", "fallbacks: [de, fi]", "node `fi` serves `fi` already"),
        ("fallbacks: [de, us]", "fallbacks: []", "`fallbacks` is empty"),
        ("driver: auth", "driver: outh", "unknown driver `outh`, did you mean `auth`?"),
        ("zone: montana.quest", "zone: tana.quest", "which does not hold this name"),
        ("web: \"127.0.0.1:8080\"", "web: \"unix:web.sock\"", "must be an absolute path"),
        ("web: \"127.0.0.1:8080\"", "web: \"localhost\"", "address and port, or unix:/path"),
    ];
    let mut wrong = String::new();
    for (from, to, part) in cases {
        let said = faults(&with(from, to));
        let placed = said.starts_with("parallax.yaml:") && !said.starts_with("parallax.yaml: ");
        if !placed || !said.contains(part) {
            wrong.push_str(&format!("{to}\n  said: {said}\n  not: {part}\n"));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// The limits leave no room in the interval: refused, with the value to change (B48); a result would come
/// later than it is expected (B54).
#[test]
fn b48_b54_limits_that_do_not_fit_the_interval_are_refused_with_the_value_to_change() {
    let said = |overrides: &str| {
        let text = with("policy_overrides: { dwell_s: 300, verify_within_s: 180 }", overrides);
        faults(&text)
    };
    let slow = said("policy_overrides: { endpoint_every_ms: 1000 }");
    assert!(slow.contains("unknown key `endpoint_every_ms`"), "{slow}");
    let slow = said("policy_overrides: { endpoint_every_s: 1 }");
    let part = "a probe may take 5s (resolve_timeout_ms), which is more than half of endpoint_every (1s): lower \
                resolve_timeout_ms, or raise endpoint_every to at least 10s";
    assert!(slow.contains(part) && slow.starts_with("parallax.yaml:"), "{slow}");
    // The whole interval may be allowed, and then says so.
    let slow = said("policy_overrides: { endpoint_every_s: 4, probe_budget_permille: 1000 }");
    assert!(slow.contains("more than the whole of endpoint_every (4s)"), "{slow}");
    assert_eq!(said("policy_overrides: { endpoint_every_s: 5, probe_budget_permille: 1000 }"), "none");
    // Without HTTP the nodes' probes fit; the one with `http` does not.
    let slow = said("policy_overrides: { node_every_s: 14 }");
    assert!(
        slow.contains("with `http` a probe may take 10s") && slow.contains("raise node_every to at least 20s"),
        "{slow}"
    );
    assert_eq!(slow.lines().count(), 1, "{slow}");
    let late = said("policy_overrides: { silent_after_s: 70 }");
    assert!(
        late.contains("a slow failure is known 72s after") && late.contains("raise silent_after above 72s"),
        "{late}"
    );
    let never = said("policy_overrides: { connect_timeout_ms: 1500 }");
    assert!(never.contains("attempt_at_ms starts an attempt after 1.5s"), "{never}");
}

#[test]
fn what_an_endpoint_check_asks_has_defaults() {
    let config = Config::parse(builtin::EXAMPLE, "example").unwrap();
    assert_eq!(config.questions.freshness_zone, Some("fresh.montana.quest".parse().unwrap()));
    let default = Config::load(None).unwrap();
    let known: parallax_decide::names::DomainName = "example.com".parse().unwrap();
    assert_eq!((default.questions.known, default.questions.missing_zone), (Some(known.clone()), Some(known)));
    assert_eq!(default.questions.freshness_zone, None);
}

#[test]
fn the_default_has_three_operators_a_negative_and_a_captive_control() {
    let default = Config::load(None).unwrap();
    let of = |kind| default.topology.controls.values().filter(|control| control.kind == kind).count();
    assert_eq!((of(ControlKind::Positive), of(ControlKind::Negative), of(ControlKind::Captive)), (3, 1, 1));
}

#[test]
fn a_url_with_an_address_needs_no_other_and_names_may_be_looked_up() {
    let text = with(
        "url: \"https://family.cloudflare-dns.com/dns-query\", bootstrap: [1.1.1.3]",
        "url: \"https://[2606:4700::1113]:8443/dns-query\", http: 1.1, method: get",
    );
    let config = Config::parse(&text, "x").unwrap();
    let Endpoint::Doh(family) = &config.endpoints[&"doh-family".parse().unwrap()] else { panic!("no DoH") };
    assert_eq!(family.bootstrap, ["2606:4700::1113".parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!((family.http, family.method), (HttpVersionName::Http1, DohMethodName::Get));
    let Endpoint::Doh(json) = &config.endpoints[&"doh-google-json".parse().unwrap()] else { panic!("no DoH") };
    assert!(json.bootstrap.is_empty() && json.bootstrap_resolvers.len() == 2);
    assert_eq!(
        (json.format, json.method, json.http),
        (DohFormatName::Json, DohMethodName::Get, HttpVersionName::Http2)
    );
}

#[test]
fn agents_take_at_most_64_names() {
    let mut text = builtin::DEFAULT.to_owned();
    let more: String = (0..62).map(|i| format!("  - {{ name: n{i}.example.org }}\n")).collect();
    text = text.replacen("canaries:\n", &format!("canaries:\n{more}"), 1);
    assert!(faults(&text).contains("`canaries` holds 65; at most 64"), "{}", faults(&text));
}

#[test]
fn lists_that_must_not_be_empty_are_refused() {
    let list = |key: &str| {
        let start = builtin::DEFAULT.find(key).unwrap();
        let rest = &builtin::DEFAULT[start + key.len()..];
        let end = rest.find("\n- ").or_else(|| {
            rest.match_indices('\n')
                .map(|(i, _)| i)
                .find(|i| rest[i + 1..].chars().next().is_some_and(char::is_alphabetic))
        });
        let after = end.map_or("", |end| &rest[end..]);
        format!("{}{key} []{after}\n", &builtin::DEFAULT[..start])
    };
    for key in ["vantages:", "resolvers:", "canaries:", "controls:"] {
        let said = faults(&list(key));
        assert!(said.contains(&format!("`{}` is empty", key.trim_end_matches(':'))), "{key}: {said}");
    }
    let negative_only =
        builtin::DEFAULT.lines().filter(|line| !line.contains("name: control-")).collect::<Vec<_>>().join("\n");
    assert!(faults(&negative_only).contains("no positive control"), "{}", faults(&negative_only));
}

#[test]
fn two_services_cannot_claim_one_name() {
    let twin = "services:\n  - { name: twin, hostname: FI.montana.quest., ttl_s: 60, native: de, fallbacks: [us], driver: auth }\n";
    assert!(faults(&with("services:\n", twin)).contains("two services claim `fi.montana.quest`"));
}

#[test]
fn all_faults_are_found_at_once_in_the_order_of_the_lines() {
    let text = with("upstream: doh-cf", "upstream: nothing").replace("native: fi", "native: nobody");
    let said = faults(&text);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 2, "{said}");
    assert!(lines[0].contains("unknown resolver") && lines[1].contains("unknown node"), "{said}");
}

#[test]
fn a_file_without_a_size_is_not_read_without_end() {
    let endless = Config::load(Some(std::path::Path::new("/dev/zero"))).unwrap_err().to_string();
    assert!(endless.contains("has more than 1048576 bytes"), "{endless}");
    let folder = Config::load(Some(std::path::Path::new("/"))).unwrap_err().to_string();
    assert!(folder.starts_with("/: cannot be read"), "{folder}");
}

#[test]
fn what_is_no_yaml_says_where() {
    let deep = faults(&format!("version: {}", "[".repeat(100_000)));
    assert!(deep.len() < 200, "{deep}");
    for text in ["version: [1", "\tversion: 1", "- a\n- b", "", "version: &a [*a]"] {
        let said = faults(text);
        assert!(said.starts_with("parallax.yaml:"), "{text:?}: {said}");
    }
}
