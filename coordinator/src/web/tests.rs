//! The pages against a real database with a story in it.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use parallax_decide::finding::{Finding, Reason, Subject};
use parallax_decide::observation::{ControlCheck, Fact, Outcome, Path};
use parallax_decide::verdict::{AnswerVerdict, FleetVerdict};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::report::told::Teller;
use crate::state::App;
use crate::store::{freeze, incident};
use crate::testing;

fn pages(app: &Arc<App>) -> Router {
    super::router(Arc::clone(app), CancellationToken::new())
}

struct Got {
    status: StatusCode,
    headers: axum::http::HeaderMap,
    body: String,
}

async fn ask(router: &Router, method: Method, path: &str) -> Got {
    let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
    let response = router.clone().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = axum::body::to_bytes(body, 4 << 20).await.unwrap();
    Got { status: parts.status, headers: parts.headers, body: String::from_utf8(bytes.to_vec()).unwrap() }
}

async fn get(router: &Router, path: &str) -> Got {
    ask(router, Method::GET, path).await
}

async fn json(router: &Router, path: &str) -> Value {
    let got = get(router, path).await;
    assert_eq!(got.status, StatusCode::OK, "{path}: {}", got.body);
    let value: Value = serde_json::from_str(&got.body).unwrap();
    assert_eq!(value["schema"], 1, "{path}");
    value
}

#[track_caller]
fn holds(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "missing {part:?} in\n{text}");
    }
}

async fn story() -> (Arc<App>, Teller) {
    let app = testing::app().await;
    let teller = Teller::new(Arc::clone(&app)).await;
    (app, teller)
}

#[tokio::test]
async fn with_nothing_yet_the_page_says_what_to_type() {
    let app = testing::app().await;
    let got = get(&pages(&app), "/").await;
    assert_eq!(got.status, StatusCode::OK);
    holds(&got.body, &["No vantage yet", "parallax token create", "parallax-agent join"]);
    holds(&get(&pages(&app), "/matrix.txt").await.body, &["No vantage yet"]);
    let _teller = Teller::new(Arc::clone(&app)).await;
    let got = get(&pages(&app), "/").await;
    holds(&got.body, &["No agent has connected yet", "parallax token create branch-kazan", "Nobody judges", "never"]);
    assert!(!got.body.contains("No open incident"), "nobody looked, so nothing is known");
}

#[tokio::test]
async fn when_all_is_well_it_says_so_in_every_form() {
    let (app, mut teller) = story().await;
    teller.all_well().await;
    let router = pages(&app);
    let got = get(&router, "/").await;
    holds(
        &got.body,
        &[
            "No open incident.",
            "branch-kazan, cdnjs.cloudflare.com: usable, 2 of 2 addresses work",
            "2/2 · 38 ms",
            "served by fi",
            "8.6.112.0: TCP and TLS completed, certificate right",
        ],
    );
    assert!(!got.body.contains("Nobody judges"));
    let matrix = json(&router, "/matrix.json").await;
    assert_eq!(matrix["vantages"][0]["cells"][0]["state"], "usable");
    let text = get(&router, "/matrix.txt").await;
    assert_eq!(text.headers["content-type"], "text/plain; charset=utf-8");
    holds(&text.body, &["o 2/2 38 ms", "o 1/1 fi", "wan-gw"]);
}

#[tokio::test]
async fn the_branch_that_lost_a_web_site_is_told_from_conclusion_to_command_line() {
    let (app, mut teller) = story().await;
    teller.all_well().await;
    let id = teller.branch_loses_the_pair().await.0;
    let router = pages(&app);
    let sentence = "one address pair explains 2 names; no resolver asked from there does better";
    let front = get(&router, "/").await.body;
    holds(
        &front,
        &[
            sentence,
            "branch-kazan only",
            &format!("href=\"/i/{id}\""),
            "branch-kazan, cdn.tailwindcss.com: unroutable, 0 of 2 addresses work",
            "8.47.69.0: nothing came back: timed out",
            "pinned by plan 1",
            "1 name pinned",
        ],
    );
    let page = get(&router, &format!("/i/{id}")).await.body;
    holds(
        &page,
        &[
            "no: 4 of 4 hand out unroutable addresses",
            "while de-fra and wan-gw reach the same addresses",
            "the path, not the address",
            "switching the resolver is useless",
            "pin cdnjs.cloudflare.com to 104.26.4.10 (TTL 5 s)",
            "take the pin cdnjs.cloudflare.com to 104.26.4.10 away",
            "0.4 s to apply, 1.3 s to proof",
            "no address or node is proven usable from the side that suffers",
            "--resolve cdn.tailwindcss.com:443:",
            "dig +noall",
            "/tool/netwatch/add type=tcp-conn",
            &format!("select * from v_evidence where incident_id = {id} order by at;"),
            "which hop drops it",
        ],
    );
    let told = json(&router, &format!("/i/{id}.json")).await;
    assert_eq!(told["another_resolver"]["would_help"], "no");
    assert_eq!(told["another_resolver"]["answers"].as_array().unwrap().len(), 8);
    assert_eq!(told["evidence_total"], 18);
    let why = told["why"].as_array().unwrap();
    assert!(why.iter().all(|point| !point["observations"].as_array().unwrap().is_empty()
        || point["saw"].as_str().unwrap().starts_with("de-fra")));
    assert_eq!(told["plans"][0]["status"], "verified");
    let list = json(&router, "/incidents.json").await;
    assert_eq!(list["incidents"][0]["conclusion"], sentence);
    holds(&get(&router, "/metrics").await.body, &["parallax_incidents_open{kind=\"answer_unroutable_here\"} 1"]);
    let text = get(&router, &format!("/i/{id}.txt")).await.body;
    holds(
        &text,
        &[
            "# unroutable answer",
            "Conclusion   DNS answered (NOERROR)",
            "would another one help? no: 4 of 4 hand out unroutable addresses",
            "[evidence #",
            "Check again  on the LAN of branch-kazan",
            "SQL          select * from v_evidence",
        ],
    );
    assert!(text.lines().filter(|line| !line.contains("curl ")).all(|line| line.chars().count() <= 110), "{text}");
}

#[tokio::test]
async fn the_way_to_what_is_silent_is_told_by_the_last_hop_that_answered() {
    let (app, mut teller) = story().await;
    teller.all_well().await;
    let id = teller.branch_loses_the_pair().await.0;
    let to = "8.6.112.0".parse().unwrap();
    let last_hop = Some("192.0.2.9".parse().unwrap());
    let fact = Fact::Path(Path { address: to, outcome: Outcome::PathLost, last_hop });
    let detail = serde_json::json!({ "port": 33_434, "path_mtu": 1400, "hops": [
        { "ttl": 1, "address": "192.0.2.1", "rtt_us": 900 },
        { "ttl": 2, "address": "192.0.2.9", "rtt_us": 4250 },
        { "ttl": 3 },
    ] });
    for _ in 0..2 {
        teller.observe_with("branch-kazan", 1_000, 8_000_000, fact.clone(), detail.clone()).await;
    }
    let router = pages(&app);
    let sentence = "on the way from branch-kazan to 8.6.112.0 the last hop that answered is 192.0.2.9 (hop 2 of 3 tried \
                    in 4.2 ms)";
    let page = get(&router, &format!("/i/{id}")).await.body;
    holds(&page, &["The way there", sentence, "packets of at most 1400 bytes fit"]);
    assert!(!page.contains("which hop drops it"));
    let told = json(&router, &format!("/i/{id}.json")).await;
    assert_eq!(told["paths"].as_array().unwrap().len(), 1, "the newest of each");
    assert_eq!(told["paths"][0]["last_hop"], "192.0.2.9");
    assert_eq!(told["paths"][0]["outcome"], "path_lost");
    let text = get(&router, &format!("/i/{id}.txt")).await.body;
    holds(&text, &["  Path         on the way from branch-kazan to 8.6.112.0"]);
}

#[tokio::test]
async fn a_vantage_says_how_its_clock_and_its_controls_are() {
    let (app, mut teller) = story().await;
    teller.all_well().await;
    let check =
        |name: &str| Fact::ControlCheck(ControlCheck { control: name.parse().unwrap(), outcome: Outcome::TlsOk });
    for (seconds, detail) in [
        (3, serde_json::json!({ "address": "1.0.0.1", "failures": 1, "checks": 180, "clock_offset_ms": 9 })),
        (2, serde_json::json!({ "address": "1.0.0.1", "failures": 0, "checks": 180, "clock_offset_ms": 12 })),
        (1, serde_json::json!({ "address": "2606:4700:4700::1001", "failures": 2, "checks": 60 })),
    ] {
        teller.observe_with("wan-gw", seconds, 30_000, check("control-cf"), detail).await;
    }
    let router = pages(&app);
    holds(&get(&router, "/").await.body, &["clock 12 ms, controls 2 of 240 failed in 20 min"]);
    holds(&get(&router, "/matrix.txt").await.body, &["controls 2 of 240 failed in 20 min"]);
    let matrix = json(&router, "/matrix.json").await;
    let lines = matrix["vantages"].as_array().unwrap();
    let line = lines.iter().find(|line| line["vantage"] == "wan-gw").unwrap();
    assert_eq!((&line["clock_offset_ms"], &line["controls_lately"]), (&12.into(), &serde_json::json!([2, 240])));
    assert!(lines.iter().filter(|line| line["vantage"] != "wan-gw").all(|line| line["clock_offset_ms"].is_null()));
    // What was said long ago says nothing of now.
    sqlx::query("update vantage_controls set told_at = now() - interval '21 minutes'")
        .execute(&app.pool)
        .await
        .unwrap();
    let kept: (Option<i64>, Option<i64>) =
        sqlx::query_as("select clock_offset_ms, control_checks from v_vantage where vantage = 'wan-gw'")
            .fetch_one(&app.pool)
            .await
            .unwrap();
    assert_eq!(kept, (Some(12), None));
}

#[tokio::test]
async fn a_moved_record_shows_where_it_leads_why_and_who_sees_it() {
    let (app, mut teller) = story().await;
    teller.all_well().await;
    let id = teller.node_dies().await.0;
    let router = pages(&app);
    holds(
        &get(&router, "/").await.body,
        &["temporarily via de", "node fi is dead: 3 vantages in 3 failure domains agree"],
    );
    holds(
        &get(&router, "/failover").await.body,
        &[
            "temporarily via de",
            "49.12.20.20",
            "repoint fi.montana.quest from 95.216.10.10 to 49.12.20.20",
            "the remedy stands; back when the native answer or node is usable",
            "branch-kazan: de",
            "1 of 3",
            "seen by 3 vantages",
            "Not frozen",
        ],
    );
    let status = json(&router, "/api/v1/status/failover").await;
    let host = &status["hosts"]["fi.montana.quest"];
    assert_eq!((&host["ip"], &host["node"], &host["native"]), (&"49.12.20.20".into(), &"de".into(), &false.into()));
    assert!(host["reason"].as_str().unwrap().contains("node fi is dead"));
    let page = get(&router, &format!("/i/{id}")).await.body;
    holds(
        &page,
        &["from branch-kazan it stays silent", "one proven living witness would have been a veto", "3.9 s to proof"],
    );
    holds(&get(&router, "/failover.txt").await.body, &["> de 49.12.20.20", "Last plans"]);
    teller.ends(incident_id(id), 5).await;
    // Another coordinator's page: this one may show what it read a moment ago.
    holds(&get(&pages(&app), "/").await.body, &["No open incident.", &format!("#{id} node dead"), "fi → de"]);
}

fn incident_id(id: i64) -> parallax_decide::incident::IncidentId {
    parallax_decide::incident::IncidentId(id)
}

#[tokio::test]
async fn an_open_incident_is_shown_however_many_have_closed_since() {
    let (app, mut teller) = story().await;
    teller.all_well().await;
    let id = teller.branch_loses_the_pair().await.0;
    sqlx::query(
        "insert into incident (opened_at, closed_at, key, about, kind, vantage, subject, members, conclusion)
         select opened_at, opened_at, 'flap/' || n, about, kind, vantage, subject, members, conclusion
         from incident, generate_series(1, 300) as n where id = $1",
    )
    .bind(id)
    .execute(teller.conn())
    .await
    .unwrap();
    let router = pages(&app);
    let page = get(&router, "/").await.body;
    holds(&page, &[&format!("aria-label=\"Open incident {id}\"")]);
    assert!(!page.contains("No open incident"));
    let list = json(&router, "/incidents.json").await;
    let listed = list["incidents"].as_array().unwrap();
    assert_eq!((listed.len(), &listed[199]["id"], &listed[199]["open"]), (200, &id.into(), &true.into()));
}

#[tokio::test]
async fn what_was_done_is_told_however_many_proposals_came_to_nothing_since() {
    let (app, mut teller) = story().await;
    teller.all_well().await;
    let id = teller.branch_loses_the_pair().await.0;
    sqlx::query(
        "insert into plan (incident_id, epoch, created_at, expires_at, purpose, driver, vantage, subject, change, undo,
                           reason, mode, status)
         select incident_id, epoch, created_at, expires_at, purpose, driver, vantage, subject, change, undo, reason,
                'propose', 'expired'
         from plan, generate_series(1, 150) where incident_id = $1",
    )
    .bind(id)
    .execute(teller.conn())
    .await
    .unwrap();
    let router = pages(&app);
    holds(&get(&router, "/").await.body, &["1 name pinned"]);
    let told = json(&router, &format!("/i/{id}.json")).await;
    let plans = told["plans"].as_array().unwrap();
    assert_eq!((plans.len(), &plans[0]["status"], &plans[99]["status"]), (100, &"verified".into(), &"expired".into()));
}

#[tokio::test]
async fn a_vantage_without_an_uplink_accuses_nobody() {
    let (app, mut teller) = story().await;
    teller.all_well().await;
    teller
        .cell(
            "branch-kazan",
            "example.com",
            &["23.192.228.80"],
            Outcome::Silent,
            AnswerVerdict::InsufficientEvidence,
            60,
        )
        .await;
    teller.uplink_goes_down("branch-kazan").await;
    let router = pages(&app);
    let page = get(&router, "/").await.body;
    holds(
        &page,
        &[
            "branch-kazan: its own uplink is down (no control was reached); it accuses nobody",
            "branch-kazan, example.com: uplink down",
            "nothing accused from here",
            "controls 0/2",
        ],
    );
    assert!(!page.contains("branch-kazan, example.com: unroutable") && !page.contains("class=\"unroutable\""));
    let matrix = json(&router, "/matrix.json").await;
    let kazan = matrix["vantages"].as_array().unwrap().iter().find(|line| line["vantage"] == "branch-kazan").unwrap();
    assert!(
        kazan["cells"]
            .as_array()
            .unwrap()
            .iter()
            .all(|cell| cell["state"] == "unobserved" && cell["verdict"].is_null())
    );
    holds(
        &get(&router, "/metrics").await.body,
        &["parallax_up{vantage=\"branch-kazan\"} 0", "parallax_up{vantage=\"wan-gw\"} 1"],
    );
}

#[tokio::test]
async fn a_freeze_is_on_every_page_and_in_the_numbers() {
    let (app, mut teller) = story().await;
    teller.all_well().await;
    freeze::freeze(teller.conn(), "anna", "DNS provider maintenance").await.unwrap();
    let router = pages(&app);
    for path in ["/", "/failover"] {
        holds(&get(&router, path).await.body, &["Every write is frozen", "by anna: DNS provider maintenance"]);
    }
    holds(&get(&router, "/matrix.txt").await.body, &["FROZEN since", "by anna"]);
    holds(&get(&router, "/metrics").await.body, &["parallax_failover_frozen 1"]);
    assert_eq!(json(&router, "/api/v1/status/failover").await["frozen"], true);
}

#[tokio::test]
async fn what_comes_from_rows_is_never_markup() {
    let (app, mut teller) = story().await;
    teller.all_well().await;
    let id = teller.branch_loses_the_pair().await.0;
    let evil = "<script>alert(1)</script>\"'&";
    freeze::freeze(teller.conn(), evil, evil).await.unwrap();
    for statement in [
        "update incident set kind = $1, members = array[$1]",
        "update incident_event set what = $1, detail = jsonb_build_object('why', $1, $1, $1)",
        "update plan_event set what = $1, detail = jsonb_build_object('detail', $1)",
        "update plan set approved_by = $1, driver = $1, mode = 'act'",
        "update vantage set agent_version = $1",
        "update configured set detail = jsonb_set(detail, '{labels}', jsonb_build_object($1, $1)) where kind = 'vantage'",
        "update observation set subject = $1, resolver = $1 where id % 2 = 0",
        "update observation set outcome = $1 where id % 3 = 0",
        "update incident_evidence set says = $1",
    ] {
        sqlx::query(statement).bind(evil).execute(teller.conn()).await.unwrap();
    }
    let router = pages(&app);
    for path in
        ["/", "/failover", &format!("/i/{id}"), "/i/%3Cscript%3Ealert(1)%3C%2Fscript%3E", "/%3Cscript%3Ealert(1)"]
    {
        let got = get(&router, path).await;
        assert!(!got.body.contains("<script>alert"), "{path}: {}", got.body);
    }
    let page = get(&router, &format!("/i/{id}")).await;
    assert_eq!(page.status, StatusCode::OK, "a row of another version is shown as far as it can be");
    json(&router, &format!("/i/{id}.json")).await;
}

#[tokio::test]
async fn rows_of_another_version_are_shown_as_far_as_they_can_be() {
    let (app, mut teller) = story().await;
    teller.all_well().await;
    let id = teller.branch_loses_the_pair().await.0;
    for statement in [
        "update incident set conclusion = '{\"x\": 1}', about = '[]', kind = 'answer_eaten_by_a_dog'",
        "update plan set reason = '{}', change = '{\"kind\": \"teleport\"}'",
        "delete from observation",
        // As by a version that kept no copies.
        "delete from cited_observation",
    ] {
        sqlx::query(statement).execute(teller.conn()).await.unwrap();
    }
    let router = pages(&app);
    holds(&get(&router, "/").await.body, &["answer eaten by a dog"]);
    holds(
        &get(&router, &format!("/i/{id}")).await.body,
        &[
            "The finding was stored by another version of Parallax",
            "written by another version of Parallax",
            "no longer in the log",
        ],
    );
}

#[tokio::test]
async fn who_is_lost_is_told_what_there_is() {
    let (app, mut teller) = story().await;
    teller.all_well().await;
    let router = pages(&app);
    let got = get(&router, "/nonsense").await;
    assert_eq!(got.status, StatusCode::NOT_FOUND);
    holds(&got.body, &["There is nothing here", "/failover", "/metrics"]);
    let got = get(&router, "/i/99").await;
    assert_eq!(got.status, StatusCode::NOT_FOUND);
    holds(&got.body, &["There is no incident 99", "None was ever opened."]);
    let id = teller.node_dies().await.0;
    holds(&get(&router, "/i/99").await.body, &[&format!("The newest one is number {id}.")]);
    for wrong in ["/i/x", "/i/-1", "/i/+1", "/i/1e3", "/i/99999999999999999999", "/i/1.5.json"] {
        let got = get(&router, wrong).await;
        assert_eq!(got.status, StatusCode::BAD_REQUEST, "{wrong}");
        holds(&got.body, &["is not the number of an incident"]);
    }
    let missing = get(&router, "/i/99.json").await;
    let value: Value = serde_json::from_str(&missing.body).unwrap();
    assert_eq!((missing.status, &value["schema"]), (StatusCode::NOT_FOUND, &1.into()));
    let post = ask(&router, Method::POST, "/").await;
    assert_eq!((post.status, &post.headers["allow"]), (StatusCode::METHOD_NOT_ALLOWED, &"GET,HEAD".parse().unwrap()));
    holds(&post.body, &["Nothing can be changed here", "parallax --help"]);
}

#[tokio::test]
async fn every_answer_forbids_outside_bytes_and_head_works() {
    let (app, mut teller) = story().await;
    teller.all_well().await;
    let id = teller.node_dies().await.0;
    let router = pages(&app);
    let paths = [
        "/",
        "/matrix.json",
        "/matrix.txt",
        "/incidents.json",
        "/failover",
        "/failover.txt",
        "/metrics",
        "/api/v1/status/failover",
        "/-/healthy",
        "/-/ready",
        "/assets/parallax.css",
        "/assets/live.js",
        "/assets/icon.svg",
    ];
    for path in paths.iter().map(ToString::to_string).chain([format!("/i/{id}"), format!("/i/{id}.txt")]) {
        let got = get(&router, &path).await;
        assert_eq!(got.status, StatusCode::OK, "{path}");
        let head = ask(&router, Method::HEAD, &path).await;
        assert_eq!((head.status, head.body.len()), (StatusCode::OK, 0), "{path}");
        for headers in [&got.headers, &head.headers] {
            assert!(headers["content-security-policy"].to_str().unwrap().starts_with("default-src 'self'"), "{path}");
            assert_eq!(headers["x-content-type-options"], "nosniff", "{path}");
        }
        assert!(!got.body.contains(" style=") && !got.body.contains("onclick"), "{path}");
        let outside = got.body.match_indices("http").filter(|(at, _)| {
            let before = &got.body[..*at];
            before.ends_with("src=\"") || before.ends_with("href=\"")
        });
        assert_eq!(outside.count(), 0, "{path}");
    }
    assert!(get(&router, "/nonsense").await.headers.contains_key("content-security-policy"));
    let tag = get(&router, "/assets/live.js").await.headers["etag"].clone();
    let request = Request::builder().uri("/assets/live.js").header("if-none-match", tag).body(Body::empty()).unwrap();
    assert_eq!(router.clone().oneshot(request).await.unwrap().status(), StatusCode::NOT_MODIFIED);
}

#[tokio::test]
async fn without_the_database_it_says_so_and_what_it_still_knows() {
    let gone =
        sqlx::postgres::PgConnectOptions::new_without_pgpass().socket("/nonexistent").username("x").database("x");
    let app =
        App::new(crate::store::pool(gone), testing::example(), crate::clock::Clock::system(), "/nonexistent".into());
    let router = pages(&app);
    for path in ["/", "/failover", "/i/1"] {
        let got = get(&router, path).await;
        assert_eq!(got.status, StatusCode::SERVICE_UNAVAILABLE, "{path}");
        assert_eq!(got.headers["retry-after"], "5");
        holds(&got.body, &["The database does not answer", "no vantage is connected to this coordinator"]);
        assert!(!got.body.contains("/nonexistent"), "what the server said stays in the log");
    }
    let got = get(&router, "/matrix.json").await;
    assert_eq!(got.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(serde_json::from_str::<Value>(&got.body).unwrap()["error"].as_str().unwrap().contains("database"));
    let metrics = get(&router, "/metrics").await;
    assert_eq!(metrics.status, StatusCode::OK);
    holds(&metrics.body, &["parallax_database_up 0"]);
    assert_eq!(get(&router, "/-/healthy").await.status, StatusCode::OK);
}

#[tokio::test]
async fn streams_are_bounded_and_end_with_the_coordinator() {
    let (app, _teller) = story().await;
    let shutdown = CancellationToken::new();
    let router = super::router(Arc::clone(&app), shutdown.clone());
    let open = || router.clone().oneshot(Request::builder().uri("/events").body(Body::empty()).unwrap());
    let mut streams = Vec::new();
    for _ in 0..100 {
        let response = open().await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        streams.push(response);
    }
    assert_eq!(open().await.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
    app.hub.announce(crate::hub::News::Incidents);
    shutdown.cancel();
    for stream in streams.drain(..) {
        // It ends: reading to the end returns.
        axum::body::to_bytes(stream.into_body(), 1 << 16).await.unwrap();
    }
    assert_ne!(open().await.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn a_frozen_fleet_is_an_incident_like_any_other() {
    let (app, mut teller) = story().await;
    teller.all_well().await;
    let finding = Finding {
        subject: Subject::Fleet,
        kind: FleetVerdict::ControlsFailed.word().to_owned(),
        members: std::collections::BTreeSet::new(),
        reason: Reason::Fleet { verdict: FleetVerdict::ControlsFailed },
        calls: std::collections::BTreeSet::new(),
        evidence: Vec::new(),
    };
    let now = teller.now;
    let id = incident::open(teller.conn(), now, &finding).await.unwrap().0;
    let router = pages(&app);
    holds(&get(&router, "/").await.body, &["all controls failed", "nothing is judged and nothing changed"]);
    holds(&get(&router, &format!("/i/{id}")).await.body, &["all vantages", "Nothing was changed"]);
}
