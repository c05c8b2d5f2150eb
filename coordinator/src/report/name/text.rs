//! One name on a terminal: the places that suffer in full, the others in a line each.

use std::fmt::Write;
use std::time::Duration;

use super::{Given, Name, Place, Tried, cited};
use crate::report::moment::span;
use crate::report::text::{Style, paragraph, paragraphs, rows};
use crate::words::{SPELLED_MAX, State, list};

/// Places told in full; more are told in a line each. JSON has all.
const WHOLE_MAX: usize = 5;

/// Places told in a line.
const LINES_MAX: usize = 200;

/// `parallax explain name NAME`
#[must_use]
pub fn text(name: &Name, style: &Style) -> String {
    let mut out = String::new();
    let at = name.at.0;
    let _ = writeln!(out, "{}  at {}{}   {}", name.name, style.zone.date_time(at), style.zone.and_utc(at), name.what);
    paragraphs(&mut out, "Note", name.notes.iter().cloned());
    let incidents = name.incidents.iter().map(|one| {
        format!(
            "#{} {}, {}, opened {}: parallax explain incident {}",
            one.id,
            one.title,
            one.place,
            style.zone.date_time(one.opened_at.0),
            one.id
        )
    });
    paragraphs(&mut out, "Incident", incidents);
    let alone = name.places.len() == 1;
    let whole = |place: &&Place| alone || place.state != State::Usable;
    let told: Vec<&Place> = name.places.iter().filter(whole).take(WHOLE_MAX).collect();
    for place in &told {
        out.push('\n');
        full(&mut out, place, style);
    }
    let short: Vec<&Place> = name.places.iter().filter(|place| !told.contains(place)).collect();
    if !short.is_empty() {
        out.push('\n');
    }
    let wide = short.iter().map(|place| place.vantage.chars().count()).max().unwrap_or(0);
    for place in short.iter().take(LINES_MAX) {
        let _ = writeln!(out, "{:<wide$}  {}", place.vantage, line(place, style));
    }
    if short.len() > LINES_MAX {
        let _ = writeln!(out, "and {} more: --json has all", short.len() - LINES_MAX);
    }
    if !alone && !short.is_empty() {
        let _ = writeln!(out, "\nOne of them in full: parallax explain name {} --vantage NAME", name.name);
    }
    out.push('\n');
    let mut label = "SQL";
    for statement in &name.sql {
        let _ = writeln!(out, "  {label:<13}{statement}");
        label = "";
    }
    out
}

fn head(place: &Place, style: &Style) -> String {
    let mark = style.paint(place.state, &format!("{} {}", place.state.mark(), place.words));
    let since = place.since.map(|at| format!("  since {}", style.zone.date_time(at.0))).unwrap_or_default();
    format!("{mark}{since}")
}

fn line(place: &Place, style: &Style) -> String {
    let live = place.answers.iter().find(|one| one.live);
    let given = live.map(|one| format!("  {}{}", answer(one), cited(&one.observations))).unwrap_or_default();
    format!("{}{given}", head(place, style))
}

fn full(out: &mut String, place: &Place, style: &Style) {
    let _ = writeln!(out, "{}  {}", place.vantage, head(place, style));
    paragraph(out, "So", place.sentence);
    if let Some(decided) = &place.decided_by {
        let here = cited(&decided.observations);
        let elsewhere = cited(&decided.observations_elsewhere);
        let elsewhere = if elsewhere.is_empty() { elsewhere } else { format!("; elsewhere{elsewhere}") };
        paragraph(
            out,
            "Decided by",
            &format!("row {} of the table of answers: {}{here}{elsewhere}", decided.row, decided.asks),
        );
    }
    paragraph(out, "The place", &place.standing_words);
    let wide = place.answers.iter().map(|one| one.resolver.chars().count()).max().unwrap_or(0);
    let answers = place.answers.iter().map(|one| {
        let mark = format!("{} {:<wide$}  ", one.state.mark(), one.resolver);
        let live = if one.live { " (what clients there use)" } else { "" };
        (mark, format!("{}: {}{live}{}", answer(one), one.words, cited(&one.observations)))
    });
    rows(out, "Answers", answers);
    let wide = place.addresses.iter().map(|one| one.address.to_string().len()).max().unwrap_or(0);
    let addresses =
        place.addresses.iter().map(|one| (format!("{:<wide$}  ", one.address.to_string()), tried(one, style)));
    rows(out, "Addresses", addresses);
    if let Some(other) = &place.another_resolver {
        paragraph(
            out,
            "Resolver",
            &format!("would another one help? {}{}", other.sentence, cited(&other.observations)),
        );
    }
    let mut label = "By hand";
    for check in &place.check {
        paragraph(out, label, &format!("{}:", check.place));
        label = "";
        for command in &check.commands {
            let _ = writeln!(out, "{}{command}", " ".repeat(17));
        }
    }
}

fn answer(one: &Given) -> String {
    let given = if one.addresses.is_empty() {
        one.ended.unwrap_or("no address").to_owned()
    } else {
        list(&one.addresses, SPELLED_MAX)
    };
    one.ttl_s.map_or_else(|| given.clone(), |ttl| format!("{given}, TTL {ttl} s"))
}

fn tried(one: &Tried, style: &Style) -> String {
    let mut text = format!("from here it {}", one.words);
    if let Some((failures, span_ms)) = one.failures {
        text.push_str(&format!(", {failures} failures in a row over {}", span(Duration::from_millis(span_ms))));
    }
    if let Some(since) = one.since {
        text.push_str(&format!(", since {}", style.zone.clock_named(since.0)));
    }
    text.push_str(&cited(&one.observations));
    if !one.works_at.is_empty() {
        text.push_str(&format!("; works at {}", list(&one.works_at, SPELLED_MAX)));
    }
    if !one.dead_at.is_empty() {
        text.push_str(&format!("; dead at {}", list(&one.dead_at, SPELLED_MAX)));
    }
    if !one.given {
        text.push_str("; not given here");
    }
    text
}
