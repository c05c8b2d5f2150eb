//! `/failover`: what each service serves now, and the last changes.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use sqlx::PgConnection;

use super::desk::Desk;
use super::text;
use super::trouble::{Form, Trouble};
use crate::report::failover::{self, Failover};
use crate::report::moment::Zone;
use crate::report::text::{self as rendered, Style};

#[derive(Template)]
#[template(path = "failover.html")]
struct Page {
    active: &'static str,
    version: &'static str,
    failover: Failover,
}

/// Reads what page and API show.
pub(crate) async fn read(desk: &Desk) -> Result<Failover, Trouble> {
    desk.read(async |connection: &mut PgConnection| failover::read(connection, &Zone::utc()).await).await
}

/// The page.
pub async fn page(State(desk): State<Desk>) -> Response {
    let shown = read(&desk)
        .await
        .and_then(|failover| text::page(&Page { active: "failover", version: env!("CARGO_PKG_VERSION"), failover }));
    shown.unwrap_or_else(|trouble| trouble.answer(Form::Html, &desk))
}

/// Its text twin.
pub async fn text(State(desk): State<Desk>) -> Response {
    match read(&desk).await {
        Ok(failover) => text::plain(rendered::failover(&failover, &Style::plain())),
        Err(trouble) => trouble.answer(Form::Text, &desk),
    }
}
