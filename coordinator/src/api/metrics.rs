//! `/metrics`: few numbers, each true. Addresses, answers and incident numbers are never labels.

use std::fmt::Write;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use parallax_decide::time::Timestamp;
use parallax_decide::verdict::VantageVerdict;
use sqlx::PgConnection;

use crate::report::SEEN_SLACK;
use crate::store::read::counts::{Counts, counts};
use crate::store::read::now::{VantageNow, vantages};
use crate::store::upkeep::{self, Space};
use crate::store::{configured, database_now, freeze, installation};
use crate::web::desk::Desk;

/// The numbers. Without the database only `parallax_database_up 0` and what is known without it.
pub async fn metrics(State(desk): State<Desk>) -> Response {
    let (used, cap) = (desk.app().room.used(), desk.app().config.load().disk_max);
    let room = (used > 0).then_some((used, cap));
    let read = desk.read(async |connection: &mut PgConnection| {
        let now = database_now(connection).await?;
        let heard_since = now.minus(configured::read(connection).await?.policy.silent_after() + SEEN_SLACK);
        let counted = counts(connection).await?;
        let frozen = freeze::current(connection).await?.is_some();
        let space = upkeep::space(connection).await?;
        let (generation, restores) = installation::counts(connection).await?;
        let vantages = vantages(connection).await?;
        Ok(Numbers { space, counts: counted, vantages, frozen, generation, restores, room, heard_since })
    });
    let connected: Vec<String> = desk.app().hub.connected().into_iter().map(|one| one.vantage.to_string()).collect();
    let body = match read.await {
        Ok(numbers) => exposition(Some(&numbers), &connected),
        Err(trouble) => {
            // The scrape itself succeeds, so that the alert names the database and not this process.
            trouble.log();
            exposition(None, &connected)
        }
    };
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], body).into_response()
}

/// What a scrape reads.
struct Numbers {
    counts: Counts,
    space: Space,
    vantages: Vec<VantageNow>,
    frozen: bool,
    /// Of the installation.
    generation: i32,
    /// How often the database was found to have gone back.
    restores: i64,
    /// Bytes that the embedded database uses, and may use; none: there is none.
    room: Option<(u64, u64)>,
    /// A vantage that was last heard before this is silent, whatever was judged of it then.
    heard_since: Timestamp,
}

fn exposition(read: Option<&Numbers>, connected: &[String]) -> String {
    let mut out = String::new();
    let mut family = |name: &str, kind: &str, help: &str, samples: &[(String, String)]| {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in samples {
            let _ = writeln!(out, "{name}{labels} {value}");
        }
    };
    let one = |value: String| vec![(String::new(), value)];
    family(
        "parallax_build_info",
        "gauge",
        "Version of the coordinator; always 1.",
        &[(labels(&[("version", env!("CARGO_PKG_VERSION"))]), "1".to_owned())],
    );
    family(
        "parallax_database_up",
        "gauge",
        "Whether the database answered this scrape.",
        &one(u8::from(read.is_some()).to_string()),
    );
    family(
        "parallax_vantages_connected",
        "gauge",
        "Agents connected to this coordinator.",
        &one(connected.len().to_string()),
    );
    let Some(Numbers { counts, space, vantages, frozen, generation, restores, room, heard_since }) = read else {
        return out;
    };
    let up =
        |v: &VantageNow| v.standing == Some(VantageVerdict::Ok) && v.last_seen_at.is_some_and(|at| at >= *heard_since);
    let by_vantage = |value: &dyn Fn(&VantageNow) -> Option<String>| {
        let samples = vantages.iter().filter_map(|v| Some((labels(&[("vantage", &v.name)]), value(v)?)));
        samples.collect::<Vec<_>>()
    };
    family(
        "parallax_up",
        "gauge",
        "Whether the vantage reports and passes its controls (verdict vantage_ok).",
        &by_vantage(&|v| Some(u8::from(up(v)).to_string())),
    );
    family(
        "parallax_last_seen_timestamp_seconds",
        "gauge",
        "Last message of the vantage's agent, to within a few seconds.",
        &by_vantage(&|v| v.last_seen_at.map(|at| format!("{}.{:03}", at.0.div_euclid(1000), at.0.rem_euclid(1000)))),
    );
    let by = |label: &'static str, counted: &[(String, i64)]| {
        let samples = counted.iter().map(|(word, count)| (labels(&[(label, word)]), count.to_string()));
        samples.collect::<Vec<_>>()
    };
    family("parallax_incidents_open", "gauge", "Open incidents by kind.", &by("kind", &counts.incidents_open));
    family(
        "parallax_ingest_observations_total",
        "counter",
        "Observations settled since the database was made: stored, or refused with a reason.",
        &one(counts.observations.to_string()),
    );
    family(
        "parallax_ingest_missing_total",
        "counter",
        "Observations that agents numbered and that never came.",
        &one(counts.missing.to_string()),
    );
    family(
        "parallax_ingest_refused_total",
        "counter",
        "Messages and observations refused, by reason.",
        &by("reason", &counts.refused),
    );
    let plans: Vec<(String, String)> = counts
        .plans
        .iter()
        .map(|(purpose, status, n)| (labels(&[("purpose", purpose), ("status", status)]), n.to_string()))
        .collect();
    family("parallax_plans", "gauge", "Plans ever made, by purpose and where they stand.", &plans);
    family(
        "parallax_failover_frozen",
        "gauge",
        "Whether every write is stopped, by a person or because the database went back.",
        &one(u8::from(*frozen).to_string()),
    );
    let upkeep = |value: &dyn Fn(u64, bool) -> u64| {
        let samples = counts
            .upkeep
            .iter()
            .map(|(job, behind_s, failed)| (labels(&[("job", job)]), value(*behind_s, *failed).to_string()));
        samples.collect::<Vec<_>>()
    };
    family(
        "parallax_upkeep_behind_seconds",
        "gauge",
        "How far upkeep of the database is past its time: days of the log (days), hourly figures to remove (hourly) or to count (figures).",
        &upkeep(&|behind_s, _| behind_s),
    );
    family(
        "parallax_upkeep_failed",
        "gauge",
        "Whether the last attempt of upkeep failed.",
        &upkeep(&|_, failed| u64::from(failed)),
    );
    family(
        "parallax_database_bytes",
        "gauge",
        "Space on the database's disk: the days of the log, and the whole database.",
        &[
            (labels(&[("part", "log")]), space.log.to_string()),
            (labels(&[("part", "all")]), space.database.to_string()),
        ],
    );
    family(
        "parallax_log_days",
        "gauge",
        "Days of the log there are, with those made ahead.",
        &one(space.days.to_string()),
    );
    family(
        "parallax_config_version",
        "gauge",
        "Number of the configuration that came into force last.",
        &counts.configuration.map(|number| (String::new(), number.to_string())).into_iter().collect::<Vec<_>>(),
    );
    family(
        "parallax_config_refused",
        "gauge",
        "Coordinators that refused their newest configuration and keep an older one in force.",
        &one(counts.configurations_refused.to_string()),
    );
    if let Some((used, cap)) = room {
        family(
            "parallax_embedded_bytes",
            "gauge",
            "What the embedded database uses, with its write-ahead log, and what it may use.",
            &[(labels(&[("part", "used")]), used.to_string()), (labels(&[("part", "cap")]), cap.to_string())],
        );
    }
    family(
        "parallax_installation_generation",
        "gauge",
        "Generation of the database; it rises when the database is found to have gone back.",
        &one(generation.to_string()),
    );
    family(
        "parallax_installation_restores_total",
        "counter",
        "How often the database was found restored from a backup, behind, or replaced.",
        &one(restores.to_string()),
    );
    out
}

/// `{a="x",b="y"}`, escaped as the text format wants it.
fn labels(pairs: &[(&str, &str)]) -> String {
    let escaped = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let parts: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    format!("{{{}}}", parts.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_format_is_kept() {
        let counts = Counts {
            incidents_open: vec![("answer_unroutable_here".to_owned(), 1)],
            observations: 42,
            refused: vec![("a\"b\\c\nd".to_owned(), 2)],
            upkeep: vec![("days".to_owned(), 90_000, false)],
            configurations_refused: 1,
            ..Counts::default()
        };
        let silent = VantageNow {
            name: "branch-kazan".to_owned(),
            first_seen_at: None,
            last_seen_at: Some(Timestamp(1_500)),
            agent_version: None,
            revoked_at: None,
            configured: true,
            standing: Some(VantageVerdict::Ok),
            standing_since: None,
            judgement: None,
            clock_offset_ms: None,
            controls_lately: None,
            observations_missing: 0,
            observations_refused: 0,
            held_by: None,
            cloned: None,
        };
        let heard = VantageNow { name: "wan-gw".to_owned(), last_seen_at: Some(Timestamp(2_000)), ..silent.clone() };
        let vantages = vec![silent, heard];
        let numbers = Numbers {
            counts,
            space: Space { log: 7, days: 5, database: 9 },
            vantages,
            frozen: true,
            generation: 2,
            restores: 1,
            room: Some((5, 20)),
            heard_since: Timestamp(2_000),
        };
        let text = exposition(Some(&numbers), &["wan-gw".to_owned()]);
        for line in [
            "parallax_incidents_open{kind=\"answer_unroutable_here\"} 1",
            "parallax_ingest_observations_total 42",
            "parallax_ingest_refused_total{reason=\"a\\\"b\\\\c\\nd\"} 2",
            "parallax_failover_frozen 1",
            "parallax_database_bytes{part=\"log\"} 7",
            "parallax_upkeep_behind_seconds{job=\"days\"} 90000",
            "parallax_config_refused 1",
            "parallax_embedded_bytes{part=\"used\"} 5",
            "parallax_installation_generation 2",
            "parallax_installation_restores_total 1",
            "parallax_up{vantage=\"branch-kazan\"} 0",
            "parallax_up{vantage=\"wan-gw\"} 1",
            "parallax_last_seen_timestamp_seconds{vantage=\"branch-kazan\"} 1.500",
            "parallax_vantages_connected 1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
        for line in text.lines().filter(|line| line.starts_with("# TYPE")) {
            assert_eq!(text.matches(line).count(), 1, "{line}");
        }
    }

    #[test]
    fn without_the_database_it_says_so() {
        let text = exposition(None, &[]);
        assert!(text.contains("parallax_database_up 0") && !text.contains("parallax_up{"));
    }
}
