//! `/api/v1/status/failover`: each host name, where it leads now, and why.

use std::collections::BTreeMap;
use std::net::IpAddr;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::report::SCHEMA;
use crate::report::failover::Failover;
use crate::report::moment::At;
use crate::web::desk::Desk;
use crate::web::failover::read;
use crate::web::trouble::Form;

#[derive(Serialize)]
struct Status<'a> {
    schema: u32,
    at: At,
    frozen: bool,
    hosts: BTreeMap<&'a str, Host<'a>>,
}

#[derive(Serialize)]
struct Host<'a> {
    service: &'a str,
    ip: Option<IpAddr>,
    node: Option<&'a str>,
    native: bool,
    native_ip: Option<IpAddr>,
    since: Option<At>,
    reason: &'a str,
    incident: Option<i64>,
}

/// The answer.
pub async fn failover(State(desk): State<Desk>) -> Response {
    match read(&desk).await {
        Ok(failover) => axum::Json(status(&failover)).into_response(),
        Err(trouble) => trouble.answer(Form::Json, &desk),
    }
}

fn status(failover: &Failover) -> Status<'_> {
    let hosts = failover.services.iter().map(|one| {
        let host = Host {
            service: &one.name,
            ip: one.serves.ip,
            node: one.serves.node.as_deref(),
            native: one.serves.native,
            native_ip: one.native_ip,
            since: one.serves.since,
            reason: &one.reason,
            incident: one.incident,
        };
        (one.hostname.as_str(), host)
    });
    Status { schema: SCHEMA, at: failover.at, frozen: failover.frozen.is_some(), hosts: hosts.collect() }
}
