use std::sync::atomic::{AtomicBool, Ordering};

use parallax_decide::observation::Family;

use super::*;
use crate::assignment::Transport;
use crate::probe::ask::{self, Asked};
use crate::probe::doh::{Form, HttpVersion};
use crate::probe::testing::doh::{Answer, Body, HOST, Idle, Server, doh, place, serve, serve_idle};
use crate::probe::testing::{Authority, dot, limits};

/// The 8 s of the case, and the 60 s between its probes, shortened.
const IDLE: Duration = Duration::from_millis(150);
const PAUSE: Duration = Duration::from_millis(250);
const CYCLES: u32 = 20;

fn short() -> Limits {
    Limits { http: Duration::from_millis(900), resolve: Duration::from_millis(900), ..limits() }
}

/// How many connections the pool keeps.
fn kept(site: &Site) -> usize {
    site.pool.lock().idle.len()
}

async fn one(site: &Site, resolver: &Resolver) -> Asked {
    let question = Question { name: "example.com".parse().unwrap(), family: Family::V4 };
    ask::ask(site, &short(), resolver, &question).await
}

/// Asks once a pause; each time an answer, and how often a connection had died meanwhile.
async fn cycles(site: &Site, resolver: &Resolver, pause: Duration) -> u32 {
    let mut reconnected = 0;
    for cycle in 0..CYCLES {
        let asked = one(site, resolver).await;
        let outcome = asked.ended.as_ref().map_or_else(|outcome| *outcome, |reply| reply.outcome);
        assert_eq!(outcome, Outcome::Answered, "cycle {cycle} at stage {}", asked.trace.stage);
        reconnected += u32::from(asked.trace.reply.reconnected);
        tokio::time::sleep(pause).await;
    }
    reconnected
}

fn dot_at(server: std::net::SocketAddr) -> Resolver {
    Resolver { name: "dot".parse().unwrap(), transport: Transport::Dot { server, server_name: HOST.into() } }
}

async fn b16(idle: Idle) {
    let authority = Authority::new();
    let site = place(authority.trust());
    let old = serve_idle(authority.server(HOST), &["http/1.1"], idle, Answer::good).await;
    let new = serve_idle(authority.server(HOST), &["h2"], idle, Answer::good).await;
    let dot = dot_at(dot::serve_idle(authority.server(HOST), idle).await);
    let old = doh(old.address, Form::WirePost, Some(HttpVersion::Http1));
    let new = Resolver { name: "h2".parse().unwrap(), ..doh(new.address, Form::WireGet, Some(HttpVersion::Http2)) };
    let died = tokio::join!(cycles(&site, &old, PAUSE), cycles(&site, &new, PAUSE), cycles(&site, &dot, PAUSE));
    assert_eq!(died, (CYCLES - 1, CYCLES - 1, CYCLES - 1));
}

#[tokio::test]
async fn b16_a_connection_closed_while_idle_is_no_failure() {
    b16(Idle::Fin(IDLE)).await;
}

#[tokio::test]
async fn b16_a_connection_reset_while_idle_is_no_failure() {
    b16(Idle::Reset(IDLE)).await;
}

#[tokio::test]
async fn b16_a_connection_forgotten_on_the_way_makes_the_answer_late_and_not_missing() {
    b16(Idle::Drop(IDLE)).await;
}

#[tokio::test]
async fn b16_a_good_bye_of_http2_while_idle_is_no_failure() {
    let authority = Authority::new();
    let site = place(authority.trust());
    let server = serve_idle(authority.server(HOST), &["h2"], Idle::Goaway(IDLE), Answer::good).await;
    assert_eq!(cycles(&site, &doh(server.address, Form::WirePost, None), PAUSE).await, CYCLES - 1);
}

#[tokio::test]
async fn b16_a_connection_that_stays_is_used_again_and_each_check_has_a_cold_one() {
    let authority = Authority::new();
    let site = place(authority.trust());
    let (server, resolver) = stays(&authority, &["h2", "http/1.1"]).await;
    assert_eq!(cycles(&site, &resolver, Duration::ZERO).await, 0);
    assert!(connections(&server) == 1 && kept(&site) == 1);
    let known = Question { name: "example.com".parse().unwrap(), family: Family::V4 };
    let questions = crate::probe::endpoint::Questions { known, freshness_zone: None, missing_zone: None };
    for number in 2..4 {
        crate::probe::endpoint::check(&site, &short(), &resolver, &questions).await;
        assert_eq!(connections(&server), number);
    }
}

async fn stays(authority: &Authority, protocols: &[&str]) -> (Server, Resolver) {
    let server = serve(authority.server(HOST), protocols, Answer::good).await;
    let resolver = doh(server.address, Form::WirePost, None);
    (server, resolver)
}

/// How many connections questions came over.
fn connections(server: &Server) -> usize {
    server.seen().iter().map(|seen| seen.connection).collect::<std::collections::BTreeSet<_>>().len()
}

#[tokio::test]
async fn many_questions_at_once_share_what_can_be_shared_and_one_connection_is_kept() {
    let authority = Authority::new();
    for protocols in [["h2"], ["http/1.1"]] {
        let site = place(authority.trust());
        let (server, resolver) = stays(&authority, &protocols).await;
        let asked = futures_util::future::join_all((0..20).map(|_| one(&site, &resolver))).await;
        assert!(asked.iter().all(|asked| asked.ended.is_ok()));
        assert_eq!(kept(&site), 1);
        assert!(protocols == ["http/1.1"] || connections(&server) < 5, "{}", connections(&server));
    }
}

#[tokio::test]
async fn those_who_shared_a_connection_that_fell_silent_share_the_next_one() {
    let authority = Authority::new();
    let site = place(authority.trust());
    let answered = AtomicBool::new(false);
    let server = serve(authority.server(HOST), &["h2"], move |seen| {
        // The first connection answers once.
        let silent = seen.connection == 0 && answered.swap(true, Ordering::Relaxed);
        if silent { Answer::good(seen).body(Body::Never) } else { Answer::good(seen) }
    })
    .await;
    let resolver = doh(server.address, Form::WirePost, None);
    assert!(one(&site, &resolver).await.ended.is_ok());
    let asked = futures_util::future::join_all((0..20).map(|_| one(&site, &resolver))).await;
    assert!(asked.iter().all(|asked| asked.ended.is_ok() && asked.trace.reply.reconnected));
    assert!(connections(&server) < 5, "{}", connections(&server));
}

#[tokio::test]
async fn a_connection_ends_when_it_is_old_and_when_the_assignment_changes() {
    let authority = Authority::new();
    let site = place(authority.trust());
    let (_, resolver) = stays(&authority, &["h2"]).await;
    let dot = dot_at(dot::serve_idle(authority.server(HOST), Idle::Stays).await);
    for resolver in [&resolver, &dot] {
        assert!(one(&site, resolver).await.ended.is_ok());
    }
    assert_eq!(kept(&site), 2);
    site.pool.keep(std::slice::from_ref(&dot));
    assert_eq!(kept(&site), 1);
    // Another server under the same name gets a connection of its own.
    let other = Resolver { name: dot.name.clone(), ..resolver };
    assert!(one(&site, &other).await.ended.is_ok());
    assert_eq!(kept(&site), 1);
    tokio::time::pause();
    tokio::time::sleep(IDLE_MAX + Duration::from_secs(1)).await;
    assert_eq!(kept(&site), 0);
}

#[tokio::test]
async fn a_connection_whose_first_question_failed_is_kept_from_the_next() {
    let authority = Authority::new();
    let site = place(authority.trust());
    let server = serve(authority.server(HOST), &["h2"], |_| Answer::new(500, "text/plain", "no")).await;
    let asked = one(&site, &doh(server.address, Form::WirePost, None)).await;
    assert_eq!(asked.ended, Err(Outcome::HttpStatus));
    assert_eq!(kept(&site), 0);
}
