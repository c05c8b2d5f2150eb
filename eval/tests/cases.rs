//! The committed cases come out right, and a file that is no file of cases says where.

use std::path::Path;

use parallax_eval::baseline::{self, Baseline};
use parallax_eval::case::{Case, parse, read};
use parallax_eval::grade::{Grade, grade};
use parallax_eval::table;

fn cases() -> Vec<Case> {
    match read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios/cases.yaml")) {
        Ok(cases) => cases,
        Err(error) => unreachable!("{error}"),
    }
}

#[test]
fn all_cases_come_out_right() {
    let cases = cases();
    let grades: Vec<Grade> = cases.iter().map(|case| grade(case).unwrap()).collect();
    let wrong: Vec<&str> = grades.iter().filter(|grade| !grade.ok).map(|grade| grade.id.as_str()).collect();
    assert!(wrong.is_empty(), "{wrong:?}\n{}", table::text(&cases, &grades));
}

#[test]
fn what_people_use_today_does_worse_on_the_same_cases() {
    let cases = cases();
    for baseline in Baseline::ALL {
        let score = baseline::score(baseline, &cases);
        assert!(score.wrong_cases >= 10 && score.missed_faults >= 20, "{}: {score:?}", baseline.title());
    }
}

const CASE: &str = "version: 1
scenarios:
- id: A01
  title: t
  truth: t
  subject: {kind: answer, canary: example.com, resolver: cf}
  observe:
    branch: {ans: {cf: {a: [104.20.0.1]}}, addr: {104.20.0.1: ok}}
  expect:
    fused: none
    do: [none]
";

#[test]
fn slips_are_named_with_their_place() {
    assert_eq!(parse("f", CASE).unwrap().len(), 1);
    for (from, to, line, said) in [
        ("version: 1", "version: 2", 1, "version 2 is unknown"),
        ("  title: t", "  titel: t", 4, "titel"),
        ("addr: {104.20.0.1: ok}", "addr: {104.20.0.1: okay}", 8, "'okay' is no address token"),
        ("addr: {104.20.0.1: ok}", "E1: tcp_silent", 8, "'tcp_silent' is no endpoint token"),
        ("addr: {104.20.0.1: ok}", "addr: {104.20.0.300: ok}", 8, "invalid IP address"),
        ("addr: {104.20.0.1: ok}", "addr: {104.20.0.1: ok}, controls: 4", 8, "4 controls"),
        ("addr: {104.20.0.1: ok}", "addr: {104.20.0.1: ok}, v6: maybe", 8, "v6 is true, false or none"),
        ("kind: answer", "kind: reply", 6, "reply"),
        ("do: [none]", "do: [nothing]", 11, "'nothing' is no action"),
        ("do: [none]", "do: [\"failover:\"]", 11, "is no action"),
    ] {
        let error = parse("f", &CASE.replace(from, to)).unwrap_err().to_string();
        assert!(error.starts_with("f: ") && error.contains(said), "{to}: {error}");
        assert!(error.contains(&format!("line {line}")), "{to}: {error}");
    }
}

#[test]
fn a_case_that_contradicts_itself_is_named() {
    for (from, to, said) in [
        (", resolver: cf}", "}", "case A01: an answer needs a canary and a resolver"),
        (
            "    fused: none",
            "    fused: none\n    vantage: {gw: vantage_silent}",
            "case A01: gw is expected something of",
        ),
    ] {
        let error = parse("f", &CASE.replace(from, to)).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    let twice = format!("{CASE}{}", CASE.split_once("scenarios:\n").unwrap().1);
    assert!(parse("f", &twice).unwrap_err().to_string().contains("case A01: the id is used twice"));
}
