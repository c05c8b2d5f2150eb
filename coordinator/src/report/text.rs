//! The same things as text, for terminals and the pages' `.txt` twins. Colour only where asked for;
//! marks and words carry the meaning.

use std::fmt::Write;

use super::failover::{ChangeLine, Failover};
use super::matrix::{Cell, Line, Matrix};
use super::moment::Zone;
use super::story::Story;
use super::summary::Summary;
use crate::words::State;
use parallax_decide::names::DomainName;

/// Columns prose is wrapped at.
const WIDTH: usize = 100;

/// Column at which the text of a labelled paragraph begins.
const INDENT: usize = 15;

/// Steps of a timeline a terminal shows; the page has all.
const STEPS_SHOWN: usize = 60;

/// A clock that is off by this much, in milliseconds, is worth a word on a terminal.
const ODD_CLOCK_MS: u64 = 1000;

/// How to render.
#[derive(Debug, Clone)]
pub struct Style {
    /// Zone of the reader.
    pub zone: Zone,
    /// Whether the reader's terminal takes colours.
    pub colour: bool,
}

impl Style {
    /// For a `.txt` twin: UTC, no colour.
    #[must_use]
    pub fn plain() -> Self {
        Self { zone: Zone::utc(), colour: false }
    }

    /// Colours of the page as near as a terminal has them.
    pub(crate) fn paint(&self, state: State, text: &str) -> String {
        if !self.colour {
            return text.to_owned();
        }
        let code = match state {
            State::Usable => "34",
            State::Partial => "33",
            State::Unroutable => "1;31",
            State::NoAnswer => "1",
            State::WrongContent => "35",
            State::Unobserved => "2",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// `parallax matrix`
#[must_use]
pub fn matrix(matrix: &Matrix, style: &Style) -> String {
    let mut out = String::new();
    let at = matrix.at.0;
    let legend: Vec<String> =
        State::ALL.iter().map(|state| style.paint(*state, &format!("{} {}", state.mark(), state.word()))).collect();
    let _ = writeln!(out, "{}{}   {}", style.zone.date_time(at), style.zone.and_utc(at), legend.join("  "));
    notices(&mut out, matrix, style);
    for incident in &matrix.open {
        let _ = writeln!(
            out,
            "! {} {}, {}, {}: {}",
            format_args!("#{}", incident.id),
            incident.title,
            incident.place,
            incident.lasted_coarse(),
            incident.conclusion
        );
    }
    out.push('\n');
    if matrix.vantages.is_empty() {
        out.push_str(NO_VANTAGE);
        return out;
    }
    let mut heads = vec![String::new()];
    heads.extend(matrix.canaries.iter().cloned());
    heads.extend(matrix.services.iter().map(|service| {
        if service.serves.native {
            service.name.clone()
        } else {
            format!("{} → {}", service.name, service.serves.name())
        }
    }));
    heads.push("last seen".to_owned());
    let rows: Vec<Vec<(State, String)>> = matrix.vantages.iter().map(|line| row(line, matrix)).collect();
    table(&mut out, &heads, &rows, style);
    out
}

/// What to type when no vantage is there yet.
pub const NO_VANTAGE: &str = "No vantage yet. Name one under `vantages:` in parallax.yaml, then\n\
    \x20 on the coordinator   parallax token create NAME\n\
    \x20 at the place         parallax-agent join TOKEN\n";

fn notices(out: &mut String, matrix: &Matrix, style: &Style) {
    for refused in &matrix.refused_configurations {
        let at = style.zone.date_time(refused.at.0);
        let kept = refused.in_force.map_or_else(|| "an older one".to_owned(), |number| format!("version {number}"));
        let _ =
            writeln!(out, "CONFIGURATION refused at {at} on {}; {kept} is in force:\n{}", refused.host, refused.why);
    }
    if let Some(frozen) = &matrix.frozen {
        let since = style.zone.date_time(frozen.since.0);
        let _ = writeln!(out, "FROZEN since {since} by {}: {}", frozen.by, frozen.reason);
    }
    if !matrix.judged() {
        let until = matrix.judging_until.map(|until| style.zone.date_time(until.0));
        let _ = writeln!(
            out,
            "NOBODY JUDGES: no coordinator runs the tasks{}; states are as they were",
            until.map(|until| format!(" since {until}")).unwrap_or_default()
        );
    }
}

fn row(line: &Line, matrix: &Matrix) -> Vec<(State, String)> {
    let mut row = vec![(State::Usable, line.vantage.clone())];
    row.extend(line.cells.iter().map(|cell| (cell.state, cell_text(cell))));
    row.extend(line.services.iter().map(|cell| (cell.state, cell_text(cell))));
    let seen = line.last_seen_at.map_or_else(|| "never".to_owned(), |at| at.age(&matrix.at));
    let standing = match line.state() {
        State::Usable => seen,
        State::Partial | State::Unroutable | State::NoAnswer | State::WrongContent | State::Unobserved => {
            line.last_seen_at.map_or(line.standing_words.to_owned(), |_| format!("{seen}, {}", line.standing_words))
        }
    };
    // All is said on the page; here what stands out.
    let odd = line.clock_offset_ms.is_some_and(|ms| ms.unsigned_abs() >= ODD_CLOCK_MS)
        || line.controls_lately.is_some_and(|(failures, _)| failures > 0);
    let noted = odd && !line.condition.is_empty();
    let mut said = if noted { format!("{standing}, {}", line.condition) } else { standing };
    if line.cloned.is_some() {
        said = format!("{said}, {}", line.clone_note());
    }
    if let Some(coordinator) = line.coordinator.as_ref().filter(|_| matrix.several()) {
        said = format!("{said}, at {coordinator}");
    }
    row.push((line.state(), said));
    row
}

fn cell_text(cell: &Cell) -> String {
    let mut text = format!("{} {}", cell.state.mark(), cell.fraction());
    if cell.state != State::Usable {
        text = format!("{text} {}", cell.words);
    } else if let Some(node) = &cell.serves {
        text = format!("{text} {node}");
    } else {
        text = format!("{text} {}", cell.duration());
    }
    if cell.pinned_by_plan.is_some() {
        text.push_str(" pinned");
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn table(out: &mut String, heads: &[String], rows: &[Vec<(State, String)>], style: &Style) {
    let width = |i: usize| {
        let cells = rows.iter().filter_map(|row| row.get(i)).map(|(_, text)| text.chars().count());
        cells.chain(heads.get(i).map(|head| head.chars().count())).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let pad = |text: &str, i: usize| {
        let missing = widths.get(i).copied().unwrap_or(0).saturating_sub(text.chars().count());
        format!("{text}{}", " ".repeat(missing))
    };
    let line: Vec<String> = heads.iter().enumerate().map(|(i, head)| pad(head, i)).collect();
    let _ = writeln!(out, "{}", line.join("  ").trim_end());
    for row in rows {
        let cells: Vec<String> = row
            .iter()
            .enumerate()
            .map(|(i, (state, text))| if i == 0 { pad(text, i) } else { style.paint(*state, &pad(text, i)) })
            .collect();
        let _ = writeln!(out, "{}", cells.join("  ").trim_end());
    }
}

/// `parallax incidents`
#[must_use]
pub fn incidents(list: &[Summary], style: &Style) -> String {
    if list.is_empty() {
        return "No incident in that time.\n".to_owned();
    }
    let zone = list.first().map(|one| style.zone.abbreviation(one.opened_at.0)).unwrap_or_default();
    let heads = ["ID", &format!("OPENED ({zone})"), "LASTED", "KIND", "WHERE", "WHAT", "ACTION"].map(str::to_owned);
    let rows: Vec<Vec<(State, String)>> = list
        .iter()
        .map(|one| {
            let lasted = if one.open { format!("{} open", one.lasted()) } else { one.lasted() };
            let plain = |text: String| (State::Usable, text);
            vec![
                plain(one.id.to_string()),
                plain(style.zone.minute(one.opened_at.0)),
                plain(lasted),
                (one.state, format!("{} {}", one.state.mark(), one.title)),
                plain(one.place.clone()),
                plain(one.about.clone()),
                plain(one.action.clone()),
            ]
        })
        .collect();
    // Only the kind is painted: a list in which everything is coloured says nothing.
    let mut out = String::new();
    table(&mut out, &heads, &rows, &Style { colour: false, ..style.clone() });
    out
}

/// `parallax explain incident N`
#[must_use]
pub fn story(story: &Story, style: &Style) -> String {
    let mut out = String::new();
    let one = &story.incident;
    let mark = style.paint(one.state, &format!("{} {}", one.state.mark(), one.title));
    let _ = writeln!(out, "Incident {}  {mark}  {}   {}", one.id, story.when(&style.zone), one.lasted());
    paragraph(&mut out, "About", &format!("{} ({})", one.about, one.place));
    paragraph(&mut out, "Conclusion", &story.conclusion);
    let numbered = story.why.iter().enumerate().map(|(i, why)| {
        let mut text = why.saw.clone();
        if let Some(so) = &why.so {
            text.push_str(&format!(" -> {so}"));
        }
        if !why.observations.is_empty() {
            let ids: Vec<String> = why.observations.iter().map(|id| format!("#{id}")).collect();
            let more = if why.more > 0 { format!(" and {} more", why.more) } else { String::new() };
            text.push_str(&format!(" [evidence {}{more}]", ids.join(" ")));
        }
        (format!("{} ", i + 1), text)
    });
    rows(&mut out, "Why so sure", numbered);
    if let Some(other) = &story.another_resolver {
        paragraph(&mut out, "Resolver", &format!("would another one help? {}", other.sentence));
        let given = other.grouped().into_iter().map(|(given, names)| {
            let addresses: Vec<String> = given.addresses.iter().map(ToString::to_string).collect();
            let names: Vec<&str> = names.into_iter().map(DomainName::as_str).collect();
            let said = format!("{} {} for {}", given.words, addresses.join(", "), names.join(", "));
            (format!("  {:<12} ", given.resolver.as_str()), said)
        });
        rows(&mut out, "", given);
    }
    paragraphs(&mut out, "Path", story.paths.iter().map(|path| format!("{} [#{}]", path.text, path.observation)));
    paragraphs(&mut out, "Ruled out", story.ruled_out.iter().cloned());
    if story.plans.is_empty() {
        paragraph(&mut out, "Did", "changed nothing");
    } else {
        let did = story.plans.iter().map(|plan| {
            let when = style.zone.clock(plan.line.at.0);
            let mut text = format!("plan {} {}: {}", plan.line.plan, plan.line.purpose, change_text(&plan.line));
            text.push_str(&format!(", because {}", plan.line.reason));
            (format!("{when}  "), text)
        });
        rows(&mut out, "Did", did);
    }
    let lanes = story.timeline.iter().map(|step| step.lane.chars().count()).max().unwrap_or(0);
    let skipped = story.timeline.len().saturating_sub(STEPS_SHOWN);
    let steps = story.timeline.iter().skip(skipped).map(|step| {
        let plan = step.plan.map(|plan| format!("plan {plan} ")).unwrap_or_default();
        let when = format!("{} {:>8}  {:<lanes$}  ", style.zone.clock(step.at.0), step.after(), step.lane);
        (when, format!("{plan}{}", step.text))
    });
    rows(&mut out, "Timeline", steps);
    paragraphs(&mut out, "Not known", story.not_known.iter().cloned());
    let mut label = "Check again";
    for check in &story.check {
        paragraph(&mut out, label, &format!("{}:", check.place));
        label = "";
        for command in &check.commands {
            let _ = writeln!(out, "{}{command}", " ".repeat(INDENT + 2));
        }
    }
    let mut label = "SQL";
    for statement in &story.sql {
        let _ = writeln!(out, "  {label:<width$}{statement}", width = INDENT - 2);
        label = "";
    }
    out
}

fn change_text(line: &ChangeLine) -> String {
    let mut text = format!("{}; {}", line.change, line.status_words);
    let took = line.took();
    if !took.is_empty() {
        text.push_str(&format!(" ({took})"));
    }
    text
}

/// `parallax failover status`
#[must_use]
pub fn failover(failover: &Failover, style: &Style) -> String {
    let mut out = String::new();
    match &failover.frozen {
        Some(frozen) => {
            let since = style.zone.date_time(frozen.since.0);
            let _ = writeln!(out, "FROZEN since {since} by {}: {}", frozen.by, frozen.reason);
            out.push_str("Nothing is written until: parallax failover thaw\n\n");
        }
        None => out.push_str("Not frozen: plans in mode act are applied.\n\n"),
    }
    if failover.services.is_empty() {
        out.push_str("No service is configured: add `nodes:` and `services:` to parallax.yaml.\n");
    } else {
        let heads = ["SERVICE", "NATIVE", "SERVES", "SINCE", "CHANGES", "MODE", "DRIVER"].map(str::to_owned);
        let plain = |text: String| (State::Usable, text);
        let rows: Vec<Vec<(State, String)>> = failover
            .services
            .iter()
            .map(|one| {
                let ip = one.serves.ip.map(|ip| format!(" {ip}")).unwrap_or_default();
                let mark = if one.serves.native { "=" } else { ">" };
                vec![
                    plain(one.hostname.clone()),
                    plain(one.native.clone()),
                    (
                        if one.serves.native { State::Usable } else { State::Partial },
                        format!("{mark} {}{ip}", one.serves.name()),
                    ),
                    plain(one.serves.since.map_or_else(|| "-".to_owned(), |at| style.zone.minute(at.0))),
                    plain(format!("{}/{}", one.changes_made, one.changes_max)),
                    plain(one.mode.to_owned()),
                    plain(one.driver.clone()),
                ]
            })
            .collect();
        table(&mut out, &heads, &rows, &Style { colour: false, ..style.clone() });
        out.push('\n');
        for one in &failover.services {
            let incident = one.incident.map(|id| format!("#{id} ")).unwrap_or_default();
            let waits = one.waits.as_ref().map(|waits| format!("; {waits}")).unwrap_or_default();
            paragraph(&mut out, &one.name, &format!("{incident}{}{waits}", one.reason));
        }
    }
    if !failover.changes.is_empty() {
        out.push('\n');
        let lines = failover.changes.iter().map(|line| {
            let text = format!("plan {} {} #{}: {}", line.plan, line.purpose, line.incident, change_text(line));
            (format!("{}  ", style.zone.minute(line.at.0)), text)
        });
        rows(&mut out, "Last plans", lines);
    }
    out
}

pub(crate) fn paragraphs(out: &mut String, label: &str, items: impl IntoIterator<Item = String>) {
    let mut label = label;
    for item in items {
        paragraph(out, label, &item);
        label = "";
    }
}

/// Rows under one label, each with a fixed beginning and a wrapped rest.
pub(crate) fn rows(out: &mut String, label: &str, items: impl IntoIterator<Item = (String, String)>) {
    let mut label = label;
    for (beginning, text) in items {
        row_of(out, label, &beginning, &text, beginning.chars().count());
        label = "";
    }
}

/// A labelled paragraph, wrapped, with a hanging indent.
pub(crate) fn paragraph(out: &mut String, label: &str, text: &str) {
    row_of(out, label, "", text, 2);
}

fn row_of(out: &mut String, label: &str, beginning: &str, text: &str, hang: usize) {
    let mut line = format!("  {label:<width$}{beginning}", width = INDENT - 2);
    let mut empty = true;
    for word in text.split_whitespace() {
        if !empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            out.push_str(line.trim_end());
            out.push('\n');
            line = " ".repeat(INDENT + hang);
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    out.push_str(line.trim_end());
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_wrapped_under_its_label() {
        let mut out = String::new();
        paragraph(&mut out, "Conclusion", &"word ".repeat(40));
        let lines: Vec<&str> = out.lines().collect();
        assert!(lines[0].starts_with("  Conclusion   word word"));
        assert!(lines.len() > 1 && lines.iter().all(|line| line.len() <= WIDTH));
        assert!(lines[1].starts_with(&" ".repeat(INDENT + 2)));
    }

    #[test]
    fn a_table_is_aligned_with_and_without_colour() {
        let rows = vec![vec![(State::Usable, "a".to_owned()), (State::Unroutable, "# 0/2".to_owned())]];
        let heads = ["name".to_owned(), "x".to_owned()];
        let mut plain = String::new();
        table(&mut plain, &heads, &rows, &Style::plain());
        assert_eq!(plain, "name  x\na     # 0/2\n");
        let mut coloured = String::new();
        table(&mut coloured, &heads, &rows, &Style { colour: true, zone: Zone::utc() });
        assert!(coloured.contains("\x1b[1;31m# 0/2\x1b[0m"));
    }
}
