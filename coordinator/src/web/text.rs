//! Plain text and pages as answers.

use askama::Template;
use axum::http::header;
use axum::response::{Html, IntoResponse, Response};

use super::trouble::Trouble;

/// Text in UTF-8.
pub fn plain(body: String) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], body).into_response()
}

/// A rendered page.
///
/// # Errors
/// When the template fails.
pub fn page(template: &impl Template) -> Result<Response, Trouble> {
    template.render().map(|body| Html(body).into_response()).map_err(Trouble::Render)
}
