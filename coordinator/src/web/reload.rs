//! `POST /-/reload`: reads the configuration again, for somebody on this machine.
//!
//! The page has no log-in and stands behind a proxy. So whoever asks must have come by the Unix socket or from the
//! loopback, and must not have been carried there: a request with a header that proxies and browsers add is not from
//! somebody on this machine, wherever its last hop was.

use std::net::SocketAddr;

use axum::Extension;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::desk::Desk;
use crate::report::SCHEMA;
use crate::store::config_version::How;
use crate::{config, reload};

/// Marks requests that came by the Unix socket.
#[derive(Debug, Clone, Copy)]
pub struct BySocket;

/// Headers that only a proxy or a browser's script adds.
const CARRIED: [&str; 6] = ["forwarded", "x-forwarded-for", "x-real-ip", "via", "origin", "sec-fetch-site"];

/// Reads the configuration again and says what came of it: 200 taken, 409 refused, 403 not from here.
pub async fn reload(
    State(desk): State<Desk>,
    socket: Option<Extension<BySocket>>,
    peer: Option<Extension<ConnectInfo<SocketAddr>>>,
    headers: HeaderMap,
) -> Response {
    let near = socket.is_some() || peer.is_some_and(|Extension(ConnectInfo(peer))| peer.ip().is_loopback());
    if !near || CARRIED.iter().any(|name| headers.contains_key(*name)) {
        let why = "only somebody on the coordinator's machine may ask, directly: parallax config reload, or SIGHUP";
        return answer(StatusCode::FORBIDDEN, false, Some(why));
    }
    let app = desk.app();
    let path = app.config_file.get().cloned().flatten();
    let loaded = tokio::task::spawn_blocking(move || config::Config::load(path.as_deref())).await;
    let loaded = match loaded {
        Ok(loaded) => loaded.map_err(crate::error::Failure::from),
        Err(error) => return answer(StatusCode::INTERNAL_SERVER_ERROR, false, Some(&error.to_string())),
    };
    if reload::again(app, loaded, How::Request).await {
        return answer(StatusCode::OK, true, None);
    }
    let refused = app.refused.load_full();
    answer(StatusCode::CONFLICT, false, refused.as_ref().map(|refused| refused.why.as_str()))
}

fn answer(status: StatusCode, taken: bool, why: Option<&str>) -> Response {
    (status, axum::Json(json!({ "schema": SCHEMA, "taken": taken, "why": why }))).into_response()
}
