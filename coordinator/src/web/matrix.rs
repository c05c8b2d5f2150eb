//! `/`: every vantage against every name, now.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse, Response};

use super::desk::Desk;
use super::text;
use super::trouble::Form;
use crate::report::matrix::Matrix;
use crate::report::text::{self as rendered, Style};
use crate::words;

#[derive(Template)]
#[template(path = "matrix.html")]
struct Page {
    active: &'static str,
    version: &'static str,
    matrix: Arc<Matrix>,
    states: [words::State; 6],
}

/// The page.
pub async fn page(State(desk): State<Desk>) -> Response {
    let shown = desk.matrix().await.and_then(|matrix| {
        text::page(&Page { active: "matrix", version: env!("CARGO_PKG_VERSION"), matrix, states: words::State::ALL })
    });
    shown.unwrap_or_else(|trouble| trouble.answer(Form::Html, &desk))
}

/// Its JSON twin.
pub async fn json(State(desk): State<Desk>) -> Response {
    match desk.matrix().await {
        Ok(matrix) => axum::Json(&*matrix).into_response(),
        Err(trouble) => trouble.answer(Form::Json, &desk),
    }
}

/// Its text twin.
pub async fn text(State(desk): State<Desk>) -> Response {
    match desk.matrix().await {
        Ok(matrix) => text::plain(rendered::matrix(&matrix, &Style::plain())),
        Err(trouble) => trouble.answer(Form::Text, &desk),
    }
}
