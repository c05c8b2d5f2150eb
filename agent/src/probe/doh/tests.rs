use std::time::Duration;

use parallax_decide::observation::{EndpointCheck, Family, Stage};

use super::*;
use crate::measured::{Carrier, EndpointParticulars, What};
use crate::probe::ask::{Asked, ask};
use crate::probe::endpoint::{self, Questions};
use crate::probe::message::Question;
use crate::probe::testing::doh::{Answer, Body, HOST, Seen, Server, doh, place, raw, serve};
use crate::probe::testing::{Authority, limits};

const BOTH: [&str; 2] = ["h2", "http/1.1"];
const WIRE: &str = "application/dns-message";
const GOOD: &str = r#"{"Status":0,"Answer":[{"name":"example.com","type":1,"TTL":60,"data":"8.6.112.0"}]}"#;

fn question() -> Question {
    Question { name: "example.com".parse().unwrap(), family: Family::V4 }
}

fn short() -> Limits {
    Limits { http: Duration::from_millis(400), resolve: Duration::from_millis(900), ..limits() }
}

/// One question to a server, in one form, over each version of HTTP.
async fn over_both(server: SocketAddr, authority: &Authority, form: Form) -> Vec<Asked> {
    let mut ended = Vec::new();
    for version in [HttpVersion::Http1, HttpVersion::Http2] {
        let site = place(authority.trust());
        ended.push(ask(&site, &short(), &doh(server, form, Some(version)), &question()).await);
    }
    ended
}

async fn server(authority: &Authority, script: impl Fn(&Seen) -> Answer + Send + Sync + 'static) -> Server {
    serve(authority.server(HOST), &BOTH, script).await
}

fn word(asked: &Asked) -> Outcome {
    match &asked.ended {
        Ok(reply) => reply.outcome,
        Err(outcome) => *outcome,
    }
}

#[tokio::test]
async fn b13_media_types_are_compared_without_case_and_parameters() {
    let authority = Authority::new();
    for (form, media, outcome) in [
        (Form::Json, "application/dns-json", Outcome::Answered),
        (Form::Json, "application/json", Outcome::Answered),
        (Form::Json, "application/json; charset=UTF-8", Outcome::Answered),
        (Form::Json, "Application/JSON;charset=utf-8", Outcome::Answered),
        (Form::Json, "text/javascript", Outcome::Answered),
        (Form::Json, "application/x-javascript; charset=UTF-8", Outcome::Answered),
        (Form::Json, "", Outcome::Answered),
        (Form::WireGet, "application/dns-message; charset=utf-8", Outcome::Answered),
        (Form::WirePost, "Application/DNS-Message", Outcome::Answered),
        (Form::WirePost, "", Outcome::Answered),
        (Form::Json, WIRE, Outcome::HttpNotDns),
        (Form::WirePost, "application/json", Outcome::HttpNotDns),
        (Form::WirePost, "application/octet-stream", Outcome::HttpNotDns),
    ] {
        let server = server(&authority, move |seen| match form {
            Form::Json => Answer::new(200, media, GOOD),
            Form::WirePost | Form::WireGet => {
                Answer { headers: Answer::new(200, media, "").headers, ..Answer::good(seen) }
            }
        })
        .await;
        for asked in over_both(server.address, &authority, form).await {
            assert_eq!(word(&asked), outcome, "{form:?} {media}");
            assert!(!asked.trace.stages.http.is_zero() && asked.trace.http_status == 200);
            assert_eq!(asked.trace.remark.is_empty(), outcome == Outcome::Answered, "{}", asked.trace.remark);
        }
    }
}

#[tokio::test]
async fn b13_a_login_page_is_told_and_a_document_without_status_is_malformed() {
    let authority = Authority::new();
    for (media, body, stage, outcome, remark) in [
        ("text/html", "<html><title>Log in to the net</title>", Stage::Http, Outcome::HttpNotDns, "Log in to the net"),
        ("", "<html>no title</html>", Stage::Http, Outcome::HttpNotDns, "login page"),
        ("application/json", r#"{"error":"..."}"#, Stage::Dns, Outcome::Malformed, ""),
        ("application/json", r#"{"Status":2,"Comment":"no luck"}"#, Stage::Dns, Outcome::Servfail, "it says: no luck"),
    ] {
        let server = server(&authority, move |_| Answer::new(200, media, body)).await;
        for asked in over_both(server.address, &authority, Form::Json).await {
            assert_eq!((asked.trace.stage, word(&asked)), (stage, outcome), "{body}");
            assert!(asked.trace.remark.contains(remark), "{}", asked.trace.remark);
        }
    }
}

/// The four services of B15, and which form each takes.
fn b15(number: usize) -> impl Fn(&Seen) -> Answer + Send + Sync + 'static {
    move |seen| {
        let refused = |status| Answer::new(status, "text/plain", "no");
        let wire = seen.message().is_some();
        assert_eq!(seen.headers["accept"], if wire { WIRE } else { "application/dns-json" });
        match number {
            1 if !wire => refused(400),
            2 if wire => refused(415),
            3 if seen.method != "POST" => refused(405),
            4 if seen.parameter("dns").is_some_and(|value| value.ends_with('=')) => refused(400),
            1 | 3 | 4 if wire => Answer::good(seen),
            2 => Answer::new(200, "application/json", GOOD),
            _ => refused(404),
        }
    }
}

#[tokio::test]
async fn b15_each_service_takes_its_forms_and_a_wrong_one_is_a_misconfiguration_until_it_worked() {
    let authority = Authority::new();
    for (number, takes) in
        [(1, [true, true, false]), (2, [false, false, true]), (3, [true, false, false]), (4, [true, true, false])]
    {
        let server = server(&authority, b15(number)).await;
        for (form, taken) in [Form::WirePost, Form::WireGet, Form::Json].into_iter().zip(takes) {
            let site = place(authority.trust());
            let resolver = doh(server.address, form, None);
            let mut asked_before = false;
            for worked_before in [false, taken] {
                let (fact, kept) = checked(&site, &resolver, &known()).await;
                let (stage, outcome) =
                    if taken { (Stage::Dns, Outcome::Answered) } else { (Stage::Http, Outcome::HttpUnsupported) };
                assert_eq!(
                    (fact.stage, fact.outcome, fact.worked_before),
                    (stage, outcome, worked_before),
                    "{number} {form:?}"
                );
                assert_eq!(kept.remark.contains(form.in_words()), !taken, "{}", kept.remark);
                // Which forms it does take is told with the first refusal alone.
                let told = kept.remark.contains("it takes ");
                assert_eq!(told, !taken && !std::mem::replace(&mut asked_before, true), "{}", kept.remark);
                if told {
                    let all = [Form::WirePost, Form::WireGet, Form::Json].map(Form::keys).into_iter().zip(takes);
                    assert!(
                        all.into_iter().all(|(keys, takes)| kept.remark.contains(keys) == takes),
                        "{}",
                        kept.remark
                    );
                }
            }
            // Told already: once is enough.
            assert_eq!(site.worked.tells(&resolver), taken, "{number} {form:?}");
        }
    }
}

fn known() -> Questions {
    Questions { known: question(), freshness_zone: None, missing_zone: None }
}

async fn checked(
    site: &Site,
    resolver: &crate::assignment::Resolver,
    questions: &Questions,
) -> (EndpointCheck, EndpointParticulars) {
    let measured = endpoint::check(site, &short(), resolver, questions).await;
    let What::EndpointCheck(fact, kept) = measured.what else { panic!("{measured:?}") };
    (fact, kept)
}

#[tokio::test]
async fn b17_every_way_an_answer_can_fail_has_its_word() {
    let authority = Authority::new();
    type Script = fn(&Seen) -> Answer;
    let ways: [(Script, Stage, Outcome, &str); 16] = [
        (
            |_| Answer::new(502, "text/html", "<title>Bad gateway</title>"),
            Stage::Http,
            Outcome::HttpStatus,
            "Bad gateway",
        ),
        (|_| Answer::new(503, "", ""), Stage::Http, Outcome::HttpStatus, ""),
        (|_| Answer::new(511, "", ""), Stage::Http, Outcome::HttpStatus, "captive portal"),
        (|_| Answer::new(200, WIRE, ""), Stage::Http, Outcome::HttpEmpty, ""),
        (|_| Answer::new(204, "", ""), Stage::Http, Outcome::HttpEmpty, ""),
        (|_| Answer::new(200, WIRE, "abc"), Stage::Dns, Outcome::Malformed, ""),
        (
            |_| Answer::new(301, "", "").with("location", "https://else.example/dns-query"),
            Stage::Http,
            Outcome::HttpRedirect,
            "https://else.example/dns-query",
        ),
        (|_| Answer::new(200, WIRE, "").body(Body::Endless), Stage::Http, Outcome::HttpTooLarge, ""),
        (|_| Answer::new(200, WIRE, vec![0; 65_536]), Stage::Http, Outcome::HttpTooLarge, ""),
        (|_| Answer::new(200, WIRE, vec![0; 65_535]), Stage::Dns, Outcome::Malformed, ""),
        (|_| Answer::new(200, WIRE, "").body(Body::Stalls(vec![0; 9])), Stage::Http, Outcome::HttpStalled, ""),
        (
            |_| Answer::new(200, WIRE, "").body(Body::Trickle(Duration::from_millis(30))),
            Stage::Http,
            Outcome::HttpStalled,
            "",
        ),
        (|_| Answer::new(200, WIRE, "").body(Body::Never), Stage::Http, Outcome::HttpSilent, ""),
        (|_| Answer::new(404, "text/html", ""), Stage::Http, Outcome::HttpUnsupported, "404"),
        (|_| Answer::new(429, "", ""), Stage::Http, Outcome::HttpThrottled, ""),
        (|_| Answer::new(503, "", "").with("retry-after", "7"), Stage::Http, Outcome::HttpThrottled, ""),
    ];
    for (number, (script, stage, outcome, remark)) in ways.into_iter().enumerate() {
        let server = server(&authority, script).await;
        for asked in over_both(server.address, &authority, Form::WirePost).await {
            assert_eq!((asked.trace.stage, word(&asked)), (stage, outcome), "way {number}");
            assert!(asked.trace.remark.contains(remark), "way {number}: {}", asked.trace.remark);
            assert!(asked.duration < short().resolve * 2, "way {number} took {:?}", asked.duration);
        }
    }
}

#[tokio::test]
async fn b17_a_connection_closed_without_an_answer_and_bytes_that_are_no_http() {
    let authority = Authority::new();
    let replies: [(&[u8], Outcome); 7] = [
        (b"", Outcome::HttpClosed),
        (b"HTTP/1.1 200 OK\r\ncontent-le", Outcome::HttpClosed),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc", Outcome::HttpClosed),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", Outcome::HttpMalformed),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", Outcome::HttpMalformed),
        (b"\x15\x03\x01\x00\x02\x02\x46", Outcome::HttpMalformed),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999999999\r\n\r\n", Outcome::HttpMalformed),
    ];
    for (reply, outcome) in replies {
        let server = raw(authority.server(HOST), reply).await;
        let site = place(authority.trust());
        let asked = ask(&site, &short(), &doh(server, Form::WirePost, None), &question()).await;
        assert_eq!((asked.trace.stage, word(&asked)), (Stage::Http, outcome), "{}", String::from_utf8_lossy(reply));
    }
    // The same over HTTP/2: agreed on by ALPN, and then something else is spoken, or nothing.
    for (reply, outcome) in
        [(&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], Outcome::HttpMalformed), (b"", Outcome::HttpClosed)]
    {
        let mut config = authority.server(HOST);
        config.alpn_protocols = vec![b"h2".to_vec()];
        let server = crate::probe::testing::accept(config, move |mut stream| async move {
            use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
            let _ = stream.read(&mut [0; 24]).await;
            let _ = stream.write_all(reply).await;
            let _ = stream.shutdown().await;
        })
        .await;
        let site = place(authority.trust());
        let asked = ask(&site, &short(), &doh(server, Form::WirePost, None), &question()).await;
        assert_eq!((asked.trace.stage, word(&asked)), (Stage::Http, outcome), "{}", String::from_utf8_lossy(reply));
    }
}

#[tokio::test]
async fn a_version_of_http_is_agreed_on_or_forced() {
    let authority = Authority::new();
    let (both, old) = (["h2", "http/1.1"].as_slice(), ["http/1.1"].as_slice());
    for (offered, wanted, carrier) in [
        (both, None, Ok(Carrier::Http2)),
        (old, None, Ok(Carrier::Http1)),
        (&[], None, Ok(Carrier::Http1)),
        (both, Some(HttpVersion::Http1), Ok(Carrier::Http1)),
        (both, Some(HttpVersion::Http2), Ok(Carrier::Http2)),
        // The server refuses by an alert, or does not know of ALPN at all.
        (old, Some(HttpVersion::Http2), Err(Outcome::TlsAlert)),
        (&[], Some(HttpVersion::Http2), Err(Outcome::HttpUnsupported)),
    ] {
        let server = serve(authority.server(HOST), offered, Answer::good).await;
        let site = place(authority.trust());
        let asked = ask(&site, &short(), &doh(server.address, Form::WireGet, wanted), &question()).await;
        match carrier {
            Ok(carrier) => assert_eq!((word(&asked), asked.trace.reply.transport), (Outcome::Answered, Some(carrier))),
            Err(outcome) => assert_eq!(asked.ended, Err(outcome), "{offered:?} {wanted:?}"),
        }
    }
}

#[tokio::test]
async fn who_wants_to_be_left_alone_is() {
    let authority = Authority::new();
    let server = server(&authority, |_| {
        Answer::new(429, "", "")
            .with("date", "Sun, 06 Nov 1994 08:49:37 GMT")
            .with("retry-after", "Sun, 06 Nov 1994 08:51:37 GMT")
    })
    .await;
    let site = place(authority.trust());
    let resolver = doh(server.address, Form::WirePost, None);
    let (fact, kept) = checked(&site, &resolver, &known()).await;
    assert_eq!((fact.outcome, kept.retry_after), (Outcome::HttpThrottled, Some(Duration::from_secs(120))));
    assert!(kept.remark.starts_with("its clock says 1994-11-06T08:49:37Z, ours 20"), "{}", kept.remark);
    let until = site.throttle.until(&resolver.name).unwrap();
    assert!(until > crate::clock::now() + Duration::from_secs(110));
    assert_eq!(checked(&site, &resolver, &known()).await.0.outcome, Outcome::RateLimited);
    assert_eq!(ask(&site, &short(), &resolver, &question()).await.ended, Err(Outcome::RateLimited));
    assert_eq!(server.seen().len(), 1, "nothing was sent");
}

/// What a check with all three questions finds at a server whose script sees the kind of name.
async fn three(
    authority: &Authority,
    protocols: &[&str],
    script: impl Fn(&Seen) -> Answer + Send + Sync + 'static,
) -> (EndpointCheck, EndpointParticulars, Server) {
    let server = serve(authority.server(HOST), protocols, script).await;
    let site = place(authority.trust());
    let zone = |text: &str| Some(text.parse().unwrap());
    let questions =
        Questions { known: question(), freshness_zone: zone("fresh.example"), missing_zone: zone("missing.example") };
    let (fact, kept) = checked(&site, &doh(server.address, Form::WirePost, None), &questions).await;
    (fact, kept, server)
}

/// A reply without records and with this code.
fn code(seen: &Seen, code: u8) -> Answer {
    let mut message = seen.message().unwrap();
    message[2] |= 0x80;
    message[3] = code;
    Answer::new(200, WIRE, message)
}

#[tokio::test]
async fn three_questions_share_one_cold_connection() {
    let authority = Authority::new();
    for protocols in [["h2"], ["http/1.1"]] {
        let (fact, kept, server) =
            three(&authority, &protocols, |seen| match seen.name().ends_with("missing.example") {
                true => code(seen, 3),
                false => Answer::good(seen),
            })
            .await;
        assert_eq!((fact.stage, fact.outcome), (Stage::Dns, Outcome::Answered));
        assert_eq!((fact.fresh, fact.missing), (Some(Outcome::Answered), Some(Outcome::Nxdomain)));
        assert!(kept.certificate.is_some() && kept.remark.is_empty(), "{}", kept.remark);
        let times = [kept.stages.tcp, kept.stages.tls, kept.stages.http];
        assert!(times.iter().all(|time| !time.is_zero()) && kept.stages.dns.is_zero());
        let seen = server.seen();
        assert_eq!(seen.iter().map(|one| one.connection).collect::<Vec<_>>(), [0, 0, 0]);
        let labels: Vec<String> = seen.iter().map(Seen::name).collect();
        assert!(labels[1].ends_with(".fresh.example") && labels[1].len() == 16 + ".fresh.example".len(), "{labels:?}");
    }
}

#[tokio::test]
async fn an_address_for_a_name_that_does_not_exist_is_told_and_a_stale_cache_too() {
    let authority = Authority::new();
    let (fact, kept, _) = three(&authority, &BOTH, Answer::good).await;
    assert_eq!(fact.missing, Some(Outcome::Answered));
    assert_eq!(kept.remark, "gives 8.6.112.0 for a name that does not exist");

    let (fact, _, _) = three(&authority, &BOTH, |seen| match seen.name().as_str() {
        "example.com" => Answer::good(seen),
        _ => code(seen, 2),
    })
    .await;
    assert_eq!(
        (fact.outcome, fact.fresh, fact.missing),
        (Outcome::Answered, Some(Outcome::Servfail), Some(Outcome::Servfail))
    );

    // After a failure nothing more is asked.
    let (fact, _, server) = three(&authority, &BOTH, |_| Answer::new(500, "", "")).await;
    assert_eq!((fact.stage, fact.outcome, fact.fresh, fact.missing), (Stage::Http, Outcome::HttpStatus, None, None));
    assert_eq!(server.seen().len(), 1);

    // Silence after the first answer is a finding of the second question.
    let (fact, _, _) = three(&authority, &BOTH, |seen| match seen.name().as_str() {
        "example.com" => Answer::good(seen),
        _ => Answer::good(seen).body(Body::Never),
    })
    .await;
    assert_eq!((fact.outcome, fact.fresh), (Outcome::Answered, Some(Outcome::HttpSilent)));
}

#[tokio::test]
async fn a_server_that_closes_after_each_answer_is_connected_to_again() {
    let authority = Authority::new();
    let (fact, _, server) =
        three(&authority, &["http/1.1"], |seen| Answer::good(seen).with("connection", "close")).await;
    assert_eq!(
        (fact.outcome, fact.fresh, fact.missing),
        (Outcome::Answered, Some(Outcome::Answered), Some(Outcome::Answered))
    );
    assert_eq!(server.seen().iter().map(|one| one.connection).collect::<Vec<_>>(), [0, 1, 2]);
}

#[tokio::test]
async fn a_clock_that_differs_is_told_on_success_too() {
    let authority = Authority::new();
    let server = server(&authority, |seen| Answer::good(seen).with("date", "Tue, 01 Jan 2019 00:00:00 GMT")).await;
    for asked in over_both(server.address, &authority, Form::WirePost).await {
        assert_eq!(word(&asked), Outcome::Answered);
        assert!(
            asked.trace.remark.starts_with("its clock says 2019-01-01T00:00:00Z, ours 2"),
            "{}",
            asked.trace.remark
        );
    }
}
