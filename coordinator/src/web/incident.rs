//! `/i/N`: one incident, from conclusion to command line; and the list for programs.

use std::time::Duration;

use askama::Template;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use parallax_decide::incident::IncidentId;
use serde_json::json;
use sqlx::PgConnection;

use super::desk::Desk;
use super::text;
use super::trouble::{Form, Trouble};
use crate::report::moment::{At, Zone};
use crate::report::story::{self, Story};
use crate::report::summary::{self, Summary};
use crate::report::text::{self as rendered, Style};
use crate::report::{SCHEMA, timeline};
use crate::store::read::incident::{self as rows, INCIDENTS_MAX};
use crate::store::{configured, database_now};

/// How far back the list for programs goes.
const LISTED: Duration = Duration::from_secs(30 * 24 * 3600);

/// Width of the drawing's time axis and where it begins, in its own units.
const AXIS: (i64, i64) = (150, 835);

/// Height of one lane, in its own units.
const LANE: usize = 26;

/// Lanes that are drawn: the table has all.
const LANES_MAX: usize = 12;

#[derive(Template)]
#[template(path = "incident.html")]
struct Page<'a> {
    active: &'static str,
    version: &'static str,
    one: &'a Summary,
    story: &'a Story,
    lanes: Option<Lanes>,
}

/// The timeline as a drawing: one lane for each who did something.
struct Lanes {
    height: usize,
    open_x: i64,
    open_width: i64,
    end: &'static str,
    rows: Vec<Lane>,
}

struct Lane {
    label: String,
    y: usize,
    ticks: Vec<Tick>,
}

struct Tick {
    x: i64,
    class: &'static str,
    title: String,
}

/// The page, or its twin when the number ends in `.json` or `.txt`.
pub async fn show(State(desk): State<Desk>, Path(asked): Path<String>) -> Response {
    let form = Form::of(&asked);
    let number = asked.trim_end_matches(".json").trim_end_matches(".txt");
    let shown = async {
        let story = read(&desk, number).await?;
        match form {
            Form::Json => Ok(axum::Json(&story).into_response()),
            Form::Text => Ok(text::plain(rendered::story(&story, &Style::plain()))),
            Form::Html => text::page(&Page {
                active: "",
                version: env!("CARGO_PKG_VERSION"),
                one: &story.incident,
                lanes: lanes(&story),
                story: &story,
            }),
        }
    };
    shown.await.unwrap_or_else(|trouble: Trouble| trouble.answer(form, &desk))
}

async fn read(desk: &Desk, number: &str) -> Result<Story, Trouble> {
    let shortened = || number.chars().take(40).collect::<String>();
    // Digits only: `+7` is a number for the parser and none for people.
    let id = match number.parse::<i64>() {
        Ok(id) if number.bytes().all(|b| b.is_ascii_digit()) => IncidentId(id),
        Ok(_) | Err(_) => return Err(Trouble::NoNumber { asked: shortened() }),
    };
    let found = desk
        .read(async |connection: &mut PgConnection| match story::read(connection, id, &Zone::utc()).await? {
            Some(story) => Ok(Ok(story)),
            None => Ok(Err(rows::newest(connection).await?)),
        })
        .await?;
    found.map_err(|newest| Trouble::NoIncident { asked: shortened(), newest: newest.map(|id| id.0) })
}

/// Open incidents and those of the last 30 days.
pub async fn list_json(State(desk): State<Desk>) -> Response {
    let read = desk.read(async |connection: &mut PgConnection| {
        let now = database_now(connection).await?;
        let configured = configured::read(connection).await?;
        let list = summary::read(connection, &configured, now.minus(LISTED), now, INCIDENTS_MAX).await?;
        Ok((now, list))
    });
    match read.await {
        Ok((now, incidents)) => {
            axum::Json(json!({ "schema": SCHEMA, "at": At(now), "incidents": incidents })).into_response()
        }
        Err(trouble) => trouble.answer(Form::Json, &desk),
    }
}

fn lanes(story: &Story) -> Option<Lanes> {
    let (first, last) = (story.timeline.first()?.at.0.0, story.timeline.last()?.at.0.0);
    let opened = story.incident.opened_at.0.0;
    let from = first.min(opened);
    let closed = story.incident.closed_at.map(|at| at.0.0);
    // While it is open the axis ends shortly after the newest step: a long wait would squeeze the rest.
    let until = closed.unwrap_or_else(|| last.saturating_add(last.saturating_sub(from) / 8)).max(last);
    let span = until.saturating_sub(from).max(1);
    let x = |at: i64| AXIS.0 + at.clamp(from, until).saturating_sub(from).saturating_mul(AXIS.1) / span;
    let mut rows: Vec<Lane> = Vec::new();
    for step in &story.timeline {
        let tick = Tick { x: x(step.at.0.0), class: class(step), title: format!("{} {}", step.after(), step.text) };
        if let Some(lane) = rows.iter_mut().find(|lane| lane.label == step.lane) {
            lane.ticks.push(tick);
        } else if rows.len() < LANES_MAX {
            let y = LANE * rows.len() + LANE / 2 + 4;
            rows.push(Lane { label: step.lane.clone(), y, ticks: vec![tick] });
        }
    }
    let end = if closed.is_some() { "closed" } else { "goes on" };
    let open_x = x(opened);
    Some(Lanes {
        height: LANE * rows.len() + 28,
        open_x,
        open_width: (x(closed.unwrap_or(until)) - open_x).max(2),
        end,
        rows,
    })
}

fn class(step: &timeline::Step) -> &'static str {
    if step.lane == "incident" { "incident" } else { "" }
}
