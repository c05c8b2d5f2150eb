//! A replay as rows for a spreadsheet: one an incident and one a change, of each side.

use std::fmt::Write;

use super::{Replay, Side};

/// The first line.
const HEAD: &str = "side,row,number,kind,key,place,about,at,until,detected_after_s,as_stored,detail\n";

/// `parallax replay --csv`
#[must_use]
pub fn csv(replay: &Replay) -> String {
    let mut out = HEAD.to_owned();
    let sides = [("stored", Some(&replay.stored)), ("replayed", Some(&replay.replayed))];
    for (name, side) in sides.into_iter().chain([("rehearsed", replay.rehearsed.as_ref())]) {
        if let Some(side) = side {
            rows(&mut out, name, side);
        }
    }
    out
}

fn rows(out: &mut String, name: &str, side: &Side) {
    for one in &side.incidents {
        let number = one.stored.map(|id| id.to_string()).unwrap_or_default();
        let until = one.closed_at.map(|at| at.iso()).unwrap_or_default();
        let after = one.detected_after_s.map(|after| after.to_string()).unwrap_or_default();
        let fields = [
            name,
            "incident",
            &number,
            &one.kind,
            &one.key,
            &one.place,
            &one.about,
            &one.opened_at.iso(),
            &until,
            &after,
            if one.as_stored { "yes" } else { "no" },
            &one.members.join(" "),
        ];
        line(out, &fields);
    }
    for one in &side.changes {
        let number = one.plan.map(|id| id.to_string()).unwrap_or_default();
        let detail = format!("{}: {}", one.change, one.ended);
        let same = if one.plan.is_some() { "yes" } else { "no" };
        let at = one.at.iso();
        line(out, &[name, "change", &number, one.purpose, &one.key, "", &one.item, &at, "", "", same, &detail]);
    }
}

/// One row (RFC 4180).
fn line(out: &mut String, fields: &[&str]) {
    let quoted = fields.iter().map(|field| {
        if field.contains([',', '"', '\n', '\r']) {
            format!("\"{}\"", field.replace('"', "\"\""))
        } else {
            (*field).to_owned()
        }
    });
    let _ = writeln!(out, "{}", quoted.collect::<Vec<_>>().join(","));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_with_a_comma_or_a_quote_stays_one_field() {
        let mut out = String::new();
        line(&mut out, &["a", "b, \"c\"", ""]);
        assert_eq!(out, "a,\"b, \"\"c\"\"\",\n");
    }
}
