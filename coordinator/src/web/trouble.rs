//! Answers that are not what was asked for: they say what happened, why, and what there is.

use askama::Template;
use axum::extract::State;
use axum::http::{StatusCode, Uri, header};
use axum::response::{Html, IntoResponse, Response};
use serde_json::json;

use super::desk::Desk;
use super::text;
use crate::store::StoreError;

/// Places worth naming to somebody who is lost.
const PLACES: [(&str, &str); 6] = [
    ("/", "every vantage against every name, now"),
    ("/failover", "what each service serves, and the last changes"),
    ("/matrix.json", "the matrix for programs"),
    ("/incidents.json", "incidents for programs"),
    ("/api/v1/status/failover", "host names and where they lead now"),
    ("/metrics", "numbers for Prometheus"),
];

/// Why something cannot be shown.
#[derive(Debug)]
pub enum Trouble {
    /// There is no such incident.
    NoIncident {
        /// As it was asked for.
        asked: String,
        /// The newest there is.
        newest: Option<i64>,
    },
    /// The number is none.
    NoNumber {
        /// As it was asked for.
        asked: String,
    },
    /// The database is away or refuses.
    Database(StoreError),
    /// The database did not answer in time.
    Slow,
    /// Too many event streams are open.
    Crowded,
    /// A page could not be written.
    Render(askama::Error),
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        if error.is_overdue() { Self::Slow } else { Self::Database(error) }
    }
}

/// In which form an answer is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A page.
    Html,
    /// JSON.
    Json,
    /// Text.
    Text,
}

impl Form {
    /// By the end of a path.
    #[must_use]
    pub fn of(path: &str) -> Self {
        if path.ends_with(".json") || path.starts_with("/api/") {
            Self::Json
        } else if path.ends_with(".txt") || path == "/metrics" || path == "/events" {
            Self::Text
        } else {
            Self::Html
        }
    }
}

#[derive(Template)]
#[template(path = "trouble.html")]
struct Page<'a> {
    active: &'static str,
    version: &'static str,
    what: &'a str,
    why: &'a str,
    retry: bool,
    places: &'a [(&'static str, &'static str)],
    known: &'a [String],
}

impl Trouble {
    fn status(&self) -> StatusCode {
        match self {
            Self::NoIncident { .. } => StatusCode::NOT_FOUND,
            Self::NoNumber { .. } => StatusCode::BAD_REQUEST,
            Self::Database(_) | Self::Slow | Self::Crowded => StatusCode::SERVICE_UNAVAILABLE,
            Self::Render(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn said(&self) -> (String, String) {
        match self {
            Self::NoIncident { asked, newest } => (
                format!("There is no incident {asked}"),
                match newest {
                    Some(newest) => format!("The newest one is number {newest}."),
                    None => "None was ever opened.".to_owned(),
                },
            ),
            Self::NoNumber { asked } => (
                format!("'{asked}' is not the number of an incident"),
                "Incidents are numbered 1, 2, 3 and so on: /i/17, /i/17.json or /i/17.txt.".to_owned(),
            ),
            // The reason goes to the log: it may name hosts and users.
            Self::Database(StoreError::Content { table, column, row, why }) => (
                "A row cannot be read by this version".to_owned(),
                format!("Table {table}, column {column}, row {row}: {why}. Was it written by a newer coordinator?"),
            ),
            Self::Database(StoreError::Database(_) | StoreError::StaleEpoch { .. }) => (
                "The database does not answer".to_owned(),
                "Nothing can be shown until it does. Agents keep what they measure and send it then; records and pins \
                 stay as they are. The coordinator's log has the reason."
                    .to_owned(),
            ),
            Self::Slow => (
                "The database does not answer in time".to_owned(),
                "It is busy, or away. Nothing is lost or changed by that. Try again in a moment.".to_owned(),
            ),
            Self::Crowded => (
                "Too many pages are open".to_owned(),
                "Live updates are full; the page itself works and can be reloaded.".to_owned(),
            ),
            Self::Render(_) => ("The page cannot be written".to_owned(), "This is a fault of Parallax.".to_owned()),
        }
    }

    /// Writes to the log what the reader is not told.
    pub fn log(&self) {
        match self {
            Self::Database(error) => tracing::warn!(%error, "a page cannot be shown"),
            Self::Slow => tracing::warn!("a page cannot be shown: the database does not answer in time"),
            Self::Crowded => tracing::warn!("an event stream is refused: too many are open"),
            Self::Render(error) => tracing::error!(%error, "a page cannot be written"),
            Self::NoIncident { .. } | Self::NoNumber { .. } => {}
        }
    }

    /// The answer in the form that was wanted.
    #[must_use]
    pub fn answer(self, form: Form, desk: &Desk) -> Response {
        let status = self.status();
        let (what, why) = self.said();
        self.log();
        let known = match &self {
            Self::Database(_) | Self::Slow => still_known(desk),
            Self::NoIncident { .. } | Self::NoNumber { .. } | Self::Crowded | Self::Render(_) => Vec::new(),
        };
        let places: &[_] = if status.is_client_error() { &PLACES } else { &[] };
        let mut response = said(status, form, &what, &why, places, &known);
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("5"));
        }
        response
    }
}

/// The vantages connected here: known without the database.
fn still_known(desk: &Desk) -> Vec<String> {
    let now = desk.app().clock.now();
    let connected = desk.app().hub.connected();
    if connected.is_empty() {
        return vec!["no vantage is connected to this coordinator".to_owned()];
    }
    connected
        .into_iter()
        .map(|one| {
            let age = crate::report::moment::coarse(now.since(one.last_seen));
            format!("{} is connected, last heard {age} ago", one.vantage)
        })
        .collect()
}

fn said(
    status: StatusCode,
    form: Form,
    what: &str,
    why: &str,
    places: &[(&'static str, &'static str)],
    known: &[String],
) -> Response {
    match form {
        Form::Json => {
            (status, axum::Json(json!({ "schema": crate::report::SCHEMA, "error": what, "why": why, "known": known })))
                .into_response()
        }
        Form::Text => {
            let mut body = format!("{what}\n{why}\n");
            for line in known {
                body.push_str(&format!("- {line}\n"));
            }
            for (place, about) in places {
                body.push_str(&format!("{place}  {about}\n"));
            }
            (status, text::plain(body)).into_response()
        }
        Form::Html => {
            let page = Page {
                active: "",
                version: env!("CARGO_PKG_VERSION"),
                what,
                why,
                retry: status == StatusCode::SERVICE_UNAVAILABLE,
                places,
                known,
            };
            match page.render() {
                Ok(body) => (status, Html(body)).into_response(),
                Err(error) => {
                    tracing::error!(%error, "a page cannot be written");
                    (status, text::plain(format!("{what}\n{why}\n"))).into_response()
                }
            }
        }
    }
}

/// Any method but GET and HEAD.
pub async fn read_only(State(_desk): State<Desk>, uri: Uri) -> Response {
    let what = "Nothing can be changed here";
    let why = "Pages and API only read: GET or HEAD. Changes are made with the command line: parallax --help.";
    let answer = said(StatusCode::METHOD_NOT_ALLOWED, Form::of(uri.path()), what, why, &[], &[]);
    std::future::ready(answer).await
}

/// Any path that is none of ours.
pub async fn nothing_here(State(_desk): State<Desk>, uri: Uri) -> Response {
    let form = Form::of(uri.path());
    let what = "There is nothing here";
    std::future::ready(said(
        StatusCode::NOT_FOUND,
        form,
        what,
        "The address is mistyped, or the page has gone.",
        &PLACES,
        &[],
    ))
    .await
}
