//! What is wrong with a file, in the words the operator reads.

use parallax_decide::topology::{Mode, Role};

use super::{Config, WebListen, builtin};

/// The example with one text replaced; it must be there.
fn with(from: &str, to: &str) -> String {
    assert!(builtin::EXAMPLE.contains(from), "{from}");
    builtin::EXAMPLE.replacen(from, to, 1)
}

fn faults(text: &str) -> String {
    match Config::parse(text, "parallax.yaml") {
        Ok(_) => "none".to_owned(),
        Err(faults) => faults.to_string(),
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
        ("bootstrap: [1.1.1.3]", "bootstrap: []", "`bootstrap` must hold one to eight"),
        (", bootstrap: [1.1.1.3]", "", "resolver `doh-family` needs `bootstrap`"),
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
    for (from, to, part) in cases {
        let said = faults(&with(from, to));
        assert!(said.contains(part), "{to}\n  said: {said}\n  not: {part}");
        assert!(said.starts_with("parallax.yaml:") && !said.starts_with("parallax.yaml: "), "{to}: {said}");
    }
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
        builtin::DEFAULT.lines().filter(|line| !line.contains("control-")).collect::<Vec<_>>().join("\n");
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
