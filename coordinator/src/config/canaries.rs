//! Watched names, what is asked of a target after TLS, and what endpoint checks ask.

use std::collections::BTreeMap;

use axum::http::uri::PathAndQuery;
use parallax_decide::names::DomainName;
use parallax_decide::topology::{Canary, Policy};
use serde_saphyr::Spanned;

use super::check::{bounded, port, public_name};
use super::error::Found;
use super::file::{File, HttpFile};
use super::{CanaryExtra, HttpCheck, Questions, Schedule, policy};

/// Most names one agent watches, services' host names among them: what agents take.
pub(super) const NAMES_MAX: usize = 64;

/// Most statuses a target may expect, and longest body that is read: what agents take.
const STATUSES_MAX: usize = 16;
const READ_BYTES_MAX: u32 = 1 << 20;

/// Longest path of a request, in bytes: what the wire takes.
const PATH_BYTES_MAX: usize = 255;

/// The canaries, and what some of them have besides.
pub type Canaries = (BTreeMap<DomainName, Canary>, BTreeMap<DomainName, CanaryExtra>);

/// How much time there is.
#[derive(Debug, Clone, Copy)]
pub struct Times<'a> {
    /// The intervals.
    pub policy: &'a Policy,
    /// The limits.
    pub schedule: &'a Schedule,
}

/// Checks the canaries.
pub fn check(file: &File, times: Times<'_>, found: &mut Found) -> Canaries {
    let (mut canaries, mut extras) = (BTreeMap::new(), BTreeMap::new());
    let Some(list) = &file.canaries else { return (canaries, extras) };
    bounded(list, "canaries", NAMES_MAX, found);
    for one in &list.value {
        let Some(name) = public_name("canary", &one.name, found) else { continue };
        port(one.port, &one.name, found);
        if let (Some(http), false) = (&one.http, one.tls) {
            found.at(http, "an HTTP request needs TLS first: leave out `tls: false`, or `http`");
        }
        let http = one.http.as_ref().and_then(|http| {
            check_http(http, found);
            in_time(http, "canary_every", times.policy.canary_every, times.schedule, found);
            http_of(http)
        });
        if canaries.insert(name.clone(), Canary { port: one.port, tls: one.tls }).is_some() {
            found.at(&one.name, format!("canary `{name}` is there twice"));
        }
        let extra = CanaryExtra { http, validate: one.validate };
        if extra != CanaryExtra::default() {
            extras.insert(name, extra);
        }
    }
    (canaries, extras)
}

/// Checks the questions of endpoint checks and fills in the defaults: the first canary is the known name,
/// and random labels below it do not exist.
pub fn check_questions(file: &File, found: &mut Found) -> Questions {
    let mut named =
        |what: &str, text: &Option<Spanned<String>>| text.as_ref().and_then(|text| public_name(what, text, found));
    let known = named("known name", &file.questions.known);
    let freshness_zone = named("freshness zone", &file.questions.freshness_zone);
    let missing_zone = named("zone of missing names", &file.questions.missing_zone);
    let first = || {
        let canary = file.canaries.iter().flat_map(|list| &list.value).map(|one| &one.name);
        let service = file.services.iter().flat_map(|list| &list.value).map(|one| &one.hostname);
        canary.chain(service).find_map(|name| name.value.parse().ok())
    };
    let known = known.or_else(first);
    let missing_zone = missing_zone.or_else(|| known.clone());
    Questions { known, freshness_zone, missing_zone }
}

/// Checks a request after TLS.
pub(super) fn check_http(one: &Spanned<HttpFile>, found: &mut Found) {
    let HttpFile { path, statuses, read_bytes } = &one.value;
    let readable = path.parse::<PathAndQuery>().is_ok_and(|parsed| parsed.as_str() == path);
    if !path.starts_with('/') || !readable || path.len() > PATH_BYTES_MAX {
        found.at(one, format!("`path` must begin with / and hold at most {PATH_BYTES_MAX} bytes of a URL"));
    }
    if statuses.len() > STATUSES_MAX || statuses.iter().any(|status| !(100..600).contains(status)) {
        found.at(one, format!("`statuses` must hold at most {STATUSES_MAX} numbers from 100 to 599"));
    }
    if *read_bytes > READ_BYTES_MAX {
        found.at(one, format!("`read_bytes` must be at most {READ_BYTES_MAX}, not {read_bytes}"));
    }
}

/// B48: a probe that cannot be over in time would never be seen to be slow.
pub(super) fn in_time(
    one: &Spanned<HttpFile>,
    every: &str,
    interval: std::time::Duration,
    schedule: &Schedule,
    found: &mut Found,
) {
    let budget = policy::connection_budget(schedule, true);
    if budget > policy::allowance(interval, schedule) {
        found.at(
            one,
            format!(
                "with `http` a probe may take {budget:?} (connect_timeout_ms, tls_timeout_ms and http_timeout_ms \
                 together), which is more than {} {every} ({interval:?}): lower one of them in policy_overrides, or \
                 raise {every} to at least {:?}",
                policy::share_words(schedule),
                policy::needed(budget, schedule)
            ),
        );
    }
}

/// What is meant.
pub(super) fn http_of(one: &Spanned<HttpFile>) -> Option<HttpCheck> {
    let HttpFile { path, statuses, read_bytes } = &one.value;
    Some(HttpCheck { path: path.clone(), statuses: statuses.clone(), read_bytes: *read_bytes })
}
