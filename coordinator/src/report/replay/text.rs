//! A replay on a terminal: the figures of all sides, then each incident and each change with what differs.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use super::{Changed, Replay, Side, Told};
use crate::report::moment::{At, Zone, span};
use crate::report::text::{Style, paragraph, paragraphs};
use crate::words;

/// Incidents and changes a terminal shows; JSON and CSV have all.
const SHOWN_MAX: usize = 50;

/// `parallax replay`
#[must_use]
pub fn text(replay: &Replay, style: &Style) -> String {
    let mut out = String::new();
    let zone = &style.zone;
    let (from, to) = (replay.from.0, replay.to.0);
    let _ = writeln!(out, "Replay  {} - {}   {}", zone.date_time(from), zone.date_time(to), span(to.since(from)));
    let observations = words::count(usize::try_from(replay.observations).unwrap_or(usize::MAX), "observation");
    let read = format!(
        "{observations}, read from {} on; judged {} times: at each commit, and every {} ms in between",
        zone.date_time(replay.read_from.0),
        replay.judged,
        replay.step_ms
    );
    paragraph(&mut out, "Log", &read);
    let versions: Vec<String> = replay.configurations.iter().map(|number| format!("version {number}")).collect();
    let policy = format!("of the day (configuration {})", words::list(&versions, 6));
    let rehearsed = replay.policy.as_ref().map(|file| format!("; rehearsed: {file}")).unwrap_or_default();
    paragraph(&mut out, "Policy", &format!("{policy}{rehearsed}"));
    paragraphs(&mut out, "Note", replay.notes.iter().cloned());
    out.push('\n');
    figures(&mut out, replay);
    out.push('\n');
    incidents(&mut out, replay, style);
    changes(&mut out, replay, zone);
    out
}

fn sides(replay: &Replay) -> Vec<(&'static str, &Side)> {
    let rehearsed = replay.rehearsed.as_ref().map(|side| ("rehearsed", side));
    [("stored", &replay.stored), ("replayed", &replay.replayed)].into_iter().chain(rehearsed).collect()
}

fn figures(out: &mut String, replay: &Replay) {
    let sides = sides(replay);
    let _ = write!(out, "  {:<36}", "");
    for (name, _) in &sides {
        let _ = write!(out, "{:>12}", name.to_uppercase());
    }
    out.push('\n');
    let mut row = |label: &str, of: &dyn Fn(&Side) -> String| {
        let _ = write!(out, "  {label:<36}");
        for (_, side) in &sides {
            let _ = write!(out, "{:>12}", of(side));
        }
        out.push('\n');
    };
    let after = |seconds: Option<f64>| seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.1} s"));
    row("incidents", &|side| side.incidents.len().to_string());
    row("  of them as stored, to the second", &|side| side.as_stored.to_string());
    row("flaps (back within relapse_window)", &|side| side.flaps.to_string());
    row("detected after, mean", &|side| after(side.detected_after_mean_s));
    row("detected after, longest", &|side| after(side.detected_after_max_s));
    row("changes", &|side| side.changes.len().to_string());
}

/// The incidents, those of one stored incident together.
fn incidents(out: &mut String, replay: &Replay, style: &Style) {
    let sides = sides(replay);
    // In order of the first opening on any side; what is stored nowhere stands alone, by its key and opening.
    let mut groups: BTreeMap<(At, String), Vec<(&str, &Told)>> = BTreeMap::new();
    let opened = |one: &Told| {
        let twin = replay.stored.incidents.iter().find(|stored| stored.stored == one.stored);
        one.stored.and(twin).map_or(one.opened_at, |twin| twin.opened_at)
    };
    for (name, side) in &sides {
        for one in &side.incidents {
            groups.entry((opened(one), one.key.clone())).or_default().push((name, one));
        }
    }
    if groups.is_empty() {
        out.push_str("No incident, on any side.\n");
        return;
    }
    let more = groups.len().saturating_sub(SHOWN_MAX);
    for group in groups.values().take(SHOWN_MAX) {
        let Some((_, first)) = group.first() else { continue };
        let number = first.stored.map_or_else(|| "not stored".to_owned(), |id| format!("#{id}"));
        let title = style.paint(first.state, &format!("{} {}", first.state.mark(), first.title));
        let _ = writeln!(out, "{number}  {title}  {} ({})", first.about, first.place);
        for (name, _) in &sides {
            let found = group.iter().find(|(side, _)| side == name).map(|(_, one)| *one);
            let said = match (found, *name) {
                (None, "stored") => "never opened".to_owned(),
                (None, _) => "would never open".to_owned(),
                (Some(one), "stored") => lived(one, &style.zone),
                (Some(one), _) if one.as_stored => "the same".to_owned(),
                (Some(one), _) => lived(one, &style.zone),
            };
            let _ = writeln!(out, "    {name:<10} {said}");
        }
    }
    if more > 0 {
        let _ = writeln!(out, "and {more} more: --json and --csv have all");
    }
}

fn lived(one: &Told, zone: &Zone) -> String {
    let lasted = |closed: At| span(closed.0.since(one.opened_at.0));
    let end = one
        .closed_at
        .map_or_else(|| "open at the end".to_owned(), |closed| format!("{}  {}", zone.clock(closed.0), lasted(closed)));
    let after = match (one.detected_after_s, one.carried) {
        (Some(after), _) => format!(", detected after {}", seconds(after)),
        (None, true) => ", open before the replay began".to_owned(),
        (None, false) => String::new(),
    };
    format!("{} - {end}{after}", zone.date_time(one.opened_at.0))
}

fn seconds(after: f64) -> String {
    if after < 120.0 { format!("{after:.1} s") } else { span(Duration::from_secs_f64(after)) }
}

fn changes(out: &mut String, replay: &Replay, zone: &Zone) {
    let sides = sides(replay);
    if sides.iter().all(|(_, side)| side.changes.is_empty()) {
        out.push_str("\nNo change, on any side.\n");
        return;
    }
    for (name, side) in sides {
        let _ = writeln!(out, "\nChanges, {name}");
        if side.changes.is_empty() {
            out.push_str("    none\n");
        }
        if name == "replayed" && as_made(side, &replay.stored) {
            out.push_str("    the same, at the same times\n");
            continue;
        }
        for one in side.changes.iter().take(SHOWN_MAX) {
            let _ = writeln!(out, "    {}  {}", zone.date_time(one.at.0), changed(one));
        }
        let more = side.changes.len().saturating_sub(SHOWN_MAX);
        if more > 0 {
            let _ = writeln!(out, "    and {more} more: --json and --csv have all");
        }
    }
}

/// Whether a side would have made what was made, when it was made, and nothing else.
fn as_made(side: &Side, stored: &Side) -> bool {
    let near = |a: At, b: At| a.0.since(b.0).max(b.0.since(a.0)) <= super::SAME_WITHIN;
    let twins = side.changes.iter().zip(&stored.changes);
    !side.changes.is_empty()
        && side.changes.len() == stored.changes.len()
        && twins.into_iter().all(|(one, made)| one.plan == made.plan && near(one.at, made.at))
}

fn changed(one: &Changed) -> String {
    let plan = one.plan.map_or_else(|| "not stored".to_owned(), |plan| format!("plan {plan}"));
    format!("{plan}  {} of {}: {} ({}; mode {})", one.purpose, one.item, one.change, one.ended, one.mode)
}
