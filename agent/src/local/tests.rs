//! The owner's file, well written and otherwise.

use super::*;

#[test]
fn the_whole_file_is_understood() {
    let local = Local::parse(
        r#"
version: 1
live_resolver: "127.0.0.1:5353"
tls_roots: /etc/roots.pem
allow: { ports: [443, 8443], private: ["10.0.0.0/8"], connections_per_minute: 60 }
drivers: { pin: { kind: unbound, control: /run/unbound.ctl } }
"#,
    )
    .unwrap();
    assert_eq!(local.live_resolver, ["127.0.0.1:5353".parse().unwrap()]);
    assert_eq!(local.allow.ports, [443, 8443]);
    assert_eq!(local.allow.connections_per_minute, 60);
    assert_eq!(local.allow.questions_per_minute, 1200);
    assert_eq!(local.drivers.pin, Some(PinDriver::Unbound { control: "/run/unbound.ctl".into() }));
}

#[test]
fn changes_can_be_narrowed_to_names_or_forbidden() {
    let permits = |text: &str, name: &str| Local::parse(text).unwrap().changes.permits(&name.parse().unwrap());
    assert!(permits("version: 1", "example.com"));
    assert!(!permits("changes: { allowed: false }", "example.com"));
    let some = "changes: { names: [example.com, \"*.example.org\"] }";
    assert!(permits(some, "example.com") && permits(some, "a.b.example.org"));
    for other in ["www.example.com", "example.org", "notexample.org"] {
        assert!(!permits(some, other), "{other}");
    }
    assert!(Local::parse("changes: { names: [\"*\"] }").unwrap_err().contains("*.example.com"));
}

#[test]
fn the_example_shows_the_defaults() {
    assert_eq!(Local::parse(include_str!("../../../deploy/local.yaml")).unwrap(), Local::default());
    let local = Local::parse("spool_age_max: 2d\nspool_bytes_max: 262144").unwrap();
    assert_eq!((local.spool_age_max.as_secs(), local.spool_bytes_max), (172_800, 262_144));
}

#[test]
fn a_list_of_live_servers_and_a_missing_port_are_fine() {
    let local = Local::parse("live_resolver: [\"10.0.0.1\", \"[::1]:5353\"]").unwrap();
    assert_eq!(local.live_resolver, ["10.0.0.1:53".parse().unwrap(), "[::1]:5353".parse().unwrap()]);
}

#[test]
fn mistakes_are_named() {
    for (text, part) in [
        ("version: 2", "version 1"),
        ("alow: {}", "alow"),
        ("allow: { port: [443] }", "port"),
        ("allow: { private: [127.0.0.0/8] }", "allow.private names 127.0.0.0/8"),
        ("allow: { private: [10.0.0.0/8, \"::1/128\"] }", "loopback"),
        ("allow: { private: [169.254.0.0/16] }", "link-local"),
        ("allow: { connections_per_minute: 0 }", "measure nothing"),
        ("live_resolver: localhost", "127.0.0.1:53"),
        ("live_resolver: [1.1.1.1, 1.1.1.2, 1.1.1.3, 1.1.1.4]", "at most 3"),
        ("drivers: { pin: { kind: bind, control: /x } }", "bind"),
        ("drivers: { pin: { kind: unbound } }", "control"),
        ("version: 1\nversion: 1", "version"),
        ("spool_bytes_max: 5", "at least"),
        ("spool_age_max: 24", "24h"),
        ("spool_age_max: 1.5h", "24h"),
        ("spool_age_max: -1h", "24h"),
        ("spool_age_max: 24 h", "24h"),
        ("spool_age_max: 99999d", "24h"),
        ("spool_age_max: 59s", "at least 1m"),
    ] {
        let message = Local::parse(text).unwrap_err();
        assert!(message.contains(part), "{text}: {message}");
    }
}

#[test]
fn a_missing_file_is_an_error_only_when_it_was_asked_for() {
    let error = Local::read(Some(Path::new("/nonexistent/local.yaml"))).unwrap_err().to_string();
    assert!(error.contains("--local"), "{error}");
    assert_eq!(Local::read_or(None, Path::new("/nonexistent/local.yaml")).unwrap(), Local::default());
    let hidden = Local::read_or(None, Path::new("/dev/null/local.yaml"));
    assert!(hidden.is_err(), "what cannot be looked at is not the same as no file");
}
