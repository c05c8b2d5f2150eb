//! The page: server-rendered, working without scripts, from embedded bytes only.
//!
//! - [`listen`] opens the TCP or Unix socket; [`router`] has every route of page and API.
//! - [`matrix`], [`incident`], [`failover`]: pages, each with its `.json` and `.txt` twin.
//! - [`live`]: server-sent events that say "look again". [`assets`]: the embedded files.
//! - [`reload`]: reads the configuration again, for somebody on this machine.
//! - [`desk`]: what handlers share: bounded access to the database. [`trouble`]: answers that are
//!   not what was asked for. [`text`]: plain-text answers.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};
use tokio_util::sync::CancellationToken;

use crate::api;
use crate::room::Level;
use crate::state::App;
use crate::store::{self, StoreError};

pub mod assets;
pub mod desk;
pub mod failover;
pub mod incident;
pub mod listen;
pub mod live;
pub mod matrix;
pub mod reload;
pub mod text;
pub mod trouble;

use desk::{Desk, READ_WITHIN};

/// What a browser may load, from where, and what may be done with the page: only our own bytes.
const CONTENT_SECURITY_POLICY: &str =
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'";

/// Every route. Streams end with `shutdown`.
pub fn router(app: Arc<App>, shutdown: CancellationToken) -> Router {
    let desk = Desk::new(Arc::clone(&app), shutdown);
    let probes = Router::new().route("/-/healthy", get(healthy)).route("/-/ready", get(ready)).with_state(app);
    Router::new()
        .route("/", get(matrix::page))
        .route("/matrix.json", get(matrix::json))
        .route("/matrix.txt", get(matrix::text))
        .route("/incidents.json", get(incident::list_json))
        .route("/i/{number}", get(incident::show))
        .route("/failover", get(failover::page))
        .route("/failover.txt", get(failover::text))
        .route("/api/v1/status/failover", get(api::status::failover))
        .route("/metrics", get(api::metrics::metrics))
        .route("/-/reload", post(reload::reload))
        .route("/events", get(live::events))
        .route("/assets/{file}", get(assets::file))
        .fallback(trouble::nothing_here)
        .method_not_allowed_fallback(trouble::read_only)
        .with_state(desk)
        .merge(probes)
        .layer(middleware::from_fn(headers))
}

/// Headers of every answer.
async fn headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    // What the page says is true for a moment; assets say otherwise themselves.
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// The process lives and answers.
async fn healthy() -> &'static str {
    std::future::ready("ok\n").await
}

/// Whether it can do its work: the database takes writes.
async fn ready(State(app): State<Arc<App>>) -> (StatusCode, String) {
    let checked = async { store::check_writable(&mut *app.pool.acquire().await?).await };
    match store::within(READ_WITHIN, checked).await {
        Ok(()) => match &*app.refused.load() {
            // It works, with the configuration it had.
            Some(refused) => (
                StatusCode::OK,
                format!(
                    "ready, but the newest configuration was refused and an older one is in force:\n{}\n",
                    refused.why
                ),
            ),
            None => match app.room.level() {
                Level::Enough => (StatusCode::OK, "ready\n".to_owned()),
                level @ (Level::Short | Level::Full | Level::Over) => {
                    (StatusCode::OK, format!("ready, but room for the embedded database is {level}\n"))
                }
            },
        },
        Err(error @ (StoreError::Database(_) | StoreError::Content { .. } | StoreError::StaleEpoch { .. })) => {
            tracing::warn!(%error, "not ready");
            (StatusCode::SERVICE_UNAVAILABLE, "not ready: the database takes no writes\n".to_owned())
        }
    }
}

#[cfg(test)]
mod tests;
