//! What was seen, as tables on a terminal.

use std::fmt::Write as _;
use std::time::Duration;

use parallax_decide::observation::{Outcome, Says, Stage};

use super::look::{Asked, Seen};
use super::told::sentences;
use crate::assignment::Transport;
use crate::measured::StageTimes;
use crate::probe::doh::Form;

/// Everything, as text.
#[must_use]
pub fn text(seen: &Seen) -> String {
    let mut out = String::new();
    for sentence in sentences(seen) {
        let _ = writeln!(out, "{sentence}");
    }
    let head = ["resolver", "how", "bootstrap", "tcp", "tls", "http", "dns", "answer"].map(str::to_owned).to_vec();
    out.push('\n');
    table(&mut out, std::iter::once(head).chain(seen.asked.iter().map(resolver_row)).collect());
    if !seen.tried.is_empty() {
        let head = ["address", "attempts", "tcp", "tls", "outcome", "given by"].map(str::to_owned).to_vec();
        out.push('\n');
        let rows = seen.tried.iter().map(|tried| {
            let connection = &tried.connection;
            vec![
                connection.address.to_string(),
                format!("{} of {}", connection.attempts_connected, connection.attempts),
                time(tried.kept.tcp),
                time(tried.kept.tls),
                connection.outcome.to_string(),
                tried.given_by.join(" "),
            ]
        });
        table(&mut out, std::iter::once(head).chain(rows).collect());
    }
    out
}

fn resolver_row(asked: &Asked) -> Vec<String> {
    let times = asked.endpoint.as_ref().map(|(_, kept, _)| kept.stages).unwrap_or_default();
    let failed = asked.endpoint.as_ref().filter(|(check, _, _)| check.outcome.says() != Says::Works);
    let failed = failed.map(|(check, _, _)| (check.stage, check.outcome));
    let mut row = vec![asked.resolver.name.to_string(), how(asked)];
    row.extend(Stage::ALL.iter().map(|stage| match failed {
        Some((at, outcome)) if at == *stage => outcome.to_string(),
        _ => time(at_stage(&times, *stage)),
    }));
    row.push(answer(asked));
    row
}

fn at_stage(times: &StageTimes, stage: Stage) -> Duration {
    match stage {
        Stage::Bootstrap => times.bootstrap,
        Stage::Tcp => times.tcp,
        Stage::Tls => times.tls,
        Stage::Http => times.http,
        Stage::Dns => times.dns,
    }
}

fn how(asked: &Asked) -> String {
    let server = asked.answers.iter().find_map(|(_, kept, _)| kept.server);
    let at = server.map_or_else(|| "-".to_owned(), |server| server.to_string());
    match &asked.resolver.transport {
        Transport::Live => format!("live {at}"),
        Transport::Plain { server } => format!("udp {server}"),
        Transport::Tcp { server } => format!("tcp {server}"),
        Transport::Dot { server, .. } => format!("tls {server}"),
        Transport::Doh(endpoint) => match endpoint.form {
            Form::WirePost => format!("https {at}"),
            Form::WireGet => format!("https GET {at}"),
            Form::Json => format!("https JSON {at}"),
        },
    }
}

/// The addresses, or why there are none.
fn answer(asked: &Asked) -> String {
    let addresses: Vec<String> = asked.addresses().map(|address| address.to_string()).collect();
    if !addresses.is_empty() {
        return addresses.join(" ");
    }
    let mut outcomes: Vec<Outcome> = asked.answers.iter().map(|(answer, _, _)| answer.outcome).collect();
    outcomes.dedup();
    outcomes.iter().map(Outcome::to_string).collect::<Vec<_>>().join(" ")
}

fn time(duration: Duration) -> String {
    if duration.is_zero() {
        return "-".to_owned();
    }
    let ms = duration.as_secs_f64() * 1000.0;
    if ms < 10.0 { format!("{ms:.1} ms") } else { format!("{ms:.0} ms") }
}

/// Columns as wide as their widest cell; the last one is not padded.
fn table(out: &mut String, rows: Vec<Vec<String>>) {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:<width$}  ");
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
}
