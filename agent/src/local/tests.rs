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
fn yaml_can_be_written_in_all_its_ways() {
    let block = "%YAML 1.2\n---\n# a comment\nallow: # and another\n  ports:\n  - 443\n  - 8443\n  paths: no\n...\n";
    let expected = Allow { ports: vec![443, 8443], paths: false, ..Allow::default() };
    for text in [
        block,
        &block.replace('\n', "\r\n"),
        "\u{feff}{ \"allow\": { 'ports': ['443', \"8443\",], paths: \"off\" } }",
        "allow: { ports: [0x1bb, 8_443], paths: FALSE }",
        "? allow\n: !!map { ports: &p [+443, !!int 8443], paths: n }",
        "allow: { <<: [{ ports: [443, 8443], paths: yes }, { ports: [1] }], paths: no }",
    ] {
        assert_eq!(Local::parse(text).map(|local| local.allow), Ok(expected.clone()), "{text}");
    }
    let limits = Local::parse("allow: { connections_per_minute: &n 5, questions_per_minute: *n }").unwrap().allow;
    assert_eq!((limits.connections_per_minute, limits.questions_per_minute), (5, 5));
    for text in ["", "# nothing", "{}", "tls_roots: ~\nproxy: null\nproxy_credentials_file:\ndrivers: { pin: }"] {
        assert_eq!(Local::parse(text), Ok(Local::default()), "{text}");
    }
    let quoted = Local::parse("tls_roots: \"null\"\nproxy: !!str ~").unwrap();
    assert_eq!((quoted.tls_roots, quoted.proxy), (Some("null".into()), Some("~".into())));
}

#[test]
fn mistakes_are_named_with_their_line_and_column() {
    for (text, line, column, part) in [
        // Keys.
        ("alow: {}", 1, 1, "unknown key 'alow', did you mean 'allow'?"),
        ("version: 1\nallow:\n  paths: no\n  port: [443]", 4, 3, "unknown key 'port', did you mean 'ports'?"),
        ("allow: { x: 1 }", 1, 10, "unknown key 'x'; known here: ports, private, paths, connections_per_minute,"),
        ("changes: { deny: true }", 1, 12, "known here: allowed, names"),
        ("drivers: { route: {} }", 1, 12, "known here: pin"),
        ("drivers: { pin: { kind: unbound, socket: /x } }", 1, 34, "known here: kind, control"),
        ("version: 1\nversion: 1", 2, 1, "'version' stands here twice"),
        ("allow: { paths: no, \"paths\": yes }", 1, 21, "'paths' stands here twice"),
        ("? [version]\n: 1", 1, 3, "expected a key, found a list"),
        ("drivers:\n  pin:\n    kind: unbound", 3, 5, "'control' is missing; write { kind: unbound, control:"),
        ("drivers: { pin: { control: /x } }", 1, 17, "'kind' is missing"),
        // Types.
        ("allow:\nversion: 1", 1, 6, "expected a section: keys with their values"),
        ("allow: [443]", 1, 8, "found a list"),
        ("allow: { ports: 443 }", 1, 17, "expected a list of ports like [443], found '443'"),
        ("allow: { ports: [http] }", 1, 18, "expected a port, 0 to 65535, found 'http'"),
        ("allow: { paths: maybe }", 1, 17, "expected true or false, found 'maybe'"),
        ("tls_roots: [/x]", 1, 12, "expected the path of a PEM file, found a list"),
        ("drivers: { pin: { kind: unbound, control: ~ } }", 1, 43, "expected the path of Unbound's control socket"),
        ("tls_roots: !!binary aGk=", 1, 21, "!!binary"),
        // Values.
        ("version: 2", 1, 10, "version is 2, this agent reads version 1"),
        ("allow: { ports: [443, 65536] }", 1, 23, "expected a port, 0 to 65535, found '65536'"),
        ("allow: { ports: [007] }", 1, 18, "0 to 65535"),
        ("allow: { private: [10.0.0/8] }", 1, 20, "expected a network like 10.0.0.0/8"),
        ("allow: { private: [127.0.0.0/8] }", 1, 20, "allow.private names 127.0.0.0/8"),
        ("allow: { private: [10.0.0.0/8, \"::1/128\"] }", 1, 32, "loopback"),
        ("allow: { private: [169.254.0.0/16] }", 1, 20, "link-local"),
        ("allow: { connections_per_minute: 0 }", 1, 34, "measure nothing"),
        ("allow:\r\n  questions_per_minute: 4294967296\r\n", 2, 25, "from 1 to 4294967295"),
        ("live_resolver: localhost", 1, 16, "127.0.0.1:53"),
        ("live_resolver:\n  - 1.1.1.1\n  - one", 3, 5, "127.0.0.1:53"),
        ("live_resolver: [1.1.1.1, 1.1.1.2, 1.1.1.3, 1.1.1.4]", 1, 16, "at most 3"),
        ("drivers: { pin: { kind: bind, control: /x } }", 1, 25, "unknown driver 'bind'"),
        ("changes: { names: [\"*\"] }", 1, 20, "*.example.com"),
        ("spool_bytes_max: 5", 1, 18, "at least 262144"),
        ("spool_bytes_max: 64MiB", 1, 18, "a number of bytes, like 67108864"),
        ("spool_age_max: 24", 1, 16, "24h"),
        ("spool_age_max: 1.5h", 1, 16, "24h"),
        ("spool_age_max: -1h", 1, 16, "24h"),
        ("spool_age_max: 24 h", 1, 16, "24h"),
        ("spool_age_max: 99999d", 1, 16, "24h"),
        ("spool_age_max: 59s", 1, 16, "at least 1m"),
        // YAML itself.
        ("version: 1\nallow: { ports: [443 }", 2, 17, "not YAML: mismatched bracket"),
        ("version: 1\n  allow: {}", 2, 8, "not YAML: "),
        ("version: 1\n---\nversion: 1", 3, 1, "a second document"),
        ("allow: { ports: *p }", 1, 17, "unknown anchor"),
        ("allow: { ports: &p [*p] }", 1, 21, "this alias stands inside of what it names"),
        ("é: 1\n\u{1b}: 1", 2, 1, ""),
    ] {
        let message = Local::parse(text).unwrap_err();
        assert!(message.starts_with(&format!("line {line}, column {column}: ")), "{text}: {message}");
        assert!(message.contains(part), "{text}: {message}");
    }
}

#[test]
fn the_line_of_a_mistake_is_shown_with_a_mark_below_it() {
    let shown = |text: &str| Local::parse(text).unwrap_err().split_once('\n').map(|(_, shown)| shown.to_owned());
    assert_eq!(
        shown("version: 1\nallow:\n  paths: maybe # é\n"),
        Some("    3 |   paths: maybe # é\n      |          ^".into())
    );
    // Of a long line the part around it; and nothing that a terminal would obey.
    let long = format!("proxy: \"{}\", alow: 1", "a\t".repeat(500));
    let shown = shown(&format!("{{{long}}}")).unwrap();
    let (line, mark) = shown.split_once('\n').unwrap();
    assert_eq!(line.find("alow"), mark.find('^'), "{shown}");
    assert!(line.len() < 120 && !line.contains('\t'), "{shown}");
}

#[test]
fn a_file_that_is_made_to_be_large_is_refused() {
    let deep = format!("allow: {}{}", "[".repeat(40), "]".repeat(40));
    assert!(Local::parse(&deep).unwrap_err().contains("nested deeper than 16"));
    // Each line ten times the one before.
    let mut bomb = "allow:\n - &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for i in 1..9 {
        bomb += &format!(" - &a{i} [{}]\n", vec![format!("*a{}", i - 1); 10].join(","));
    }
    assert!(Local::parse(&bomb).unwrap_err().contains("more than 65536 values"));
    // A chain, each link of which is nested as deep as may be.
    let mut chain = "allow:\n - &a0 x\n".to_owned();
    for i in 1..100 {
        chain += &format!(" - &a{i} [[[[[[*a{}]]]]]]\n", i - 1);
    }
    assert!(Local::parse(&chain).unwrap_err().contains("nested deeper than 16"));
}

proptest::proptest! {
    #[test]
    fn no_text_breaks_the_reader(text in "[ -~\n\té&*!|>]{0,60}", at in 0..60usize) {
        let example = include_str!("../../../deploy/local.yaml");
        let (before, after) = example.split_at(example.char_indices().nth(at * 50).map_or(0, |(at, _)| at));
        for text in [text.clone(), format!("allow: {text}"), format!("{before}{text}{after}")] {
            let _ = Local::parse(&text);
        }
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
