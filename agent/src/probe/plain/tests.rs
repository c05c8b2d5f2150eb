//! Servers that answer oddly, late, twice or not at all: the cases of plain DNS by their ids.

use std::net::IpAddr;

use tokio::io::AsyncWriteExt as _;

use parallax_decide::observation::Family;

use super::servers::WITHOUT_EDNS;
use super::*;
use crate::measured::{OddKind, OddReply, ReplyParticulars};
use crate::netns::{inside, sh};
use crate::probe::testing::refused_port;
use crate::probe::testing::rig1::{Datagram, Rig1, Said, Write};

const LIMIT: Duration = Duration::from_secs(2);
const HOLD: Duration = Duration::from_millis(300);
const TRUE: &str = "203.0.113.10";
const FORGED: &str = "198.51.100.66";

/// What a script makes of a query.
type Makes<T> = fn(&[u8]) -> T;

/// How a question to a server ended, with what came after the reply.
struct Ended {
    outcome: Outcome,
    addresses: Vec<IpAddr>,
    reply: ReplyParticulars,
    odd: Vec<OddReply>,
    remark: String,
    decided: Option<Duration>,
}

impl Ended {
    fn kinds(&self) -> Vec<OddKind> {
        self.odd.iter().map(|odd| odd.kind).collect()
    }

    fn answered(&self, addresses: &[&str]) {
        let wanted: Vec<IpAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
        assert_eq!((self.outcome, &self.addresses), (Outcome::Answered, &wanted));
    }
}

fn question() -> Question {
    Question { name: "example.com".parse().unwrap(), family: Family::V4 }
}

fn reply(query: &[u8]) -> Said {
    Said::to(query).address(TRUE, 60)
}

fn forged(query: &[u8]) -> Said {
    Said::to(query).address(FORGED, 60)
}

async fn ask_by(servers: &Servers, server: SocketAddr, hold: Duration, stream: bool) -> Ended {
    let dialer = Dialer::direct();
    let plain = Plain { dialer: &dialer, servers, server, choice: Choice::Assigned, hold };
    let (begin, question) = (now(), question());
    let mut trace = Trace::default();
    let asked = async {
        if stream {
            plain.ask_stream(&question, &mut trace).await
        } else {
            plain.ask(&question, LIMIT, &mut trace).await
        }
    };
    let ended = match tokio::time::timeout(LIMIT, asked).await {
        Ok(ended) => ended,
        Err(_) => Err(trace.silence()),
    };
    let mut odd = trace.odd_replies;
    if let Some(hold) = trace.hold {
        hold.listen(|one| one.note(&mut odd)).await;
    }
    let (outcome, addresses) = match ended {
        Ok(reply) => (reply.outcome, reply.addresses),
        Err(outcome) => (outcome, Vec::new()),
    };
    let decided = trace.decided.map(|at| at.saturating_duration_since(begin));
    Ended { outcome, addresses, reply: trace.reply, odd, remark: trace.remark, decided }
}

async fn ask_at(server: SocketAddr) -> Ended {
    ask_by(&Servers::default(), server, HOLD, false).await
}

async fn ask_tcp(server: SocketAddr) -> Ended {
    ask_by(&Servers::default(), server, HOLD, true).await
}

/// Asks a server that answers each query with what `script` makes of it.
async fn udp(script: impl Fn(&[u8]) -> Vec<Datagram> + Send + 'static) -> Ended {
    ask_at(Rig1::udp(move |query, _| script(query)).await.address).await
}

fn now_with(said: Said) -> Vec<Datagram> {
    vec![Datagram::now(said.bytes())]
}

#[tokio::test]
async fn b01_a_cut_reply_is_asked_for_again_over_tcp() {
    let all: Vec<String> = (1..=20).map(|i| format!("203.0.113.{i}")).collect();
    for with_a_record in [false, true] {
        let whole = all.clone();
        let rig = Rig1::both(
            move |query, _| {
                let cut = if with_a_record { forged(query) } else { Said::to(query) };
                now_with(cut.cut())
            },
            move |query| {
                let said = whole.iter().fold(Said::to(query), |said, address| said.address(address, 60));
                vec![Write::message(&said.bytes())]
            },
        )
        .await;
        let ended = ask_at(rig.address).await;
        assert_eq!((ended.outcome, ended.addresses.len()), (Outcome::Answered, 16));
        assert_eq!((ended.reply.truncated, ended.reply.transport), (true, Some(Carrier::Tcp)));
        assert!(!ended.addresses.contains(&FORGED.parse().unwrap()));
    }
}

#[tokio::test]
async fn b01_c_a_cut_reply_and_no_tcp_has_its_word() {
    let ended = udp(|query| now_with(reply(query).cut())).await;
    assert_eq!((ended.outcome, ended.addresses), (Outcome::TruncatedTcpFailed, vec![]));
    assert_eq!((ended.reply.truncated, ended.reply.transport), (true, Some(Carrier::Udp)));
    let closes = Rig1::both(|query, _| now_with(reply(query).cut()), |_| vec![Write::Close]).await;
    assert_eq!(ask_at(closes.address).await.outcome, Outcome::TruncatedTcpFailed);
}

#[tokio::test]
async fn b01_d_a_cut_reply_and_a_silent_tcp_has_its_word() {
    let rig = Rig1::both(|query, _| now_with(Said::to(query).cut()), |_| vec![Write::Hold]).await;
    let ended = ask_at(rig.address).await;
    assert_eq!((ended.outcome, ended.reply.truncated), (Outcome::TruncatedTcpTimeout, true));
}

#[tokio::test]
async fn b03_a_padded_datagram_is_an_answer() {
    let ended = udp(|query| vec![Datagram::now([reply(query).bytes(), vec![0; 40]].concat())]).await;
    ended.answered(&[TRUE]);
    assert_eq!((ended.reply.trailing, ended.odd.len()), (40, 0));
}

#[tokio::test]
async fn b04_an_unreadable_reply_has_its_word_its_size_and_its_time() {
    let scripts: [Makes<Vec<u8>>; 3] = [
        |query| [&query[..2], &[0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]].concat(),
        |query| query[..5].to_vec(),
        |query| {
            let mut bytes = reply(query).bytes();
            let end = bytes.len() - 5;
            bytes[end] = 200;
            bytes
        },
    ];
    for script in scripts {
        let ended = udp(move |query| vec![Datagram::after_ms(20, script(query))]).await;
        assert_eq!(ended.outcome, Outcome::Malformed);
        assert!(ended.reply.size >= 5 && ended.reply.first_bytes.len() >= 5, "{:?}", ended.reply);
        assert_eq!(ended.reply.transport, Some(Carrier::Udp));
        let decided = ended.decided.unwrap();
        assert!(decided >= Duration::from_millis(20) && decided < LIMIT / 2, "the reply's time, not the deadline's");
    }
}

#[tokio::test]
async fn b04_an_unreadable_reply_before_the_true_one_does_not_decide() {
    let ended =
        udp(|query| vec![Datagram::now(query[..8].to_vec()), Datagram::after_ms(50, reply(query).bytes())]).await;
    ended.answered(&[TRUE]);
    assert_eq!((ended.kinds(), ended.reply.first_bytes), (vec![OddKind::Malformed], vec![]));
}

#[tokio::test]
async fn b07_a_a_success_without_its_question_loses_to_the_true_reply() {
    let ended = udp(|query| {
        vec![Datagram::now(forged(query).without_question().bytes()), Datagram::after_ms(20, reply(query).bytes())]
    })
    .await;
    ended.answered(&[TRUE]);
    assert_eq!(ended.kinds(), [OddKind::WithoutQuestion]);
    assert_eq!(ended.odd[0].addresses, [FORGED.parse::<IpAddr>().unwrap()]);
}

#[tokio::test]
async fn b07_b_a_refusal_without_its_question_is_a_refusal() {
    let ended = udp(|query| now_with(Said::to(query).rcode(5).without_question())).await;
    assert_eq!((ended.outcome, ended.odd.len()), (Outcome::Refused, 0));
}

#[tokio::test]
async fn b07_c_a_reply_for_another_name_is_ignored_and_noted() {
    let ended = udp(|query| {
        vec![
            Datagram::now(forged(query).question_name("example.org").bytes()),
            Datagram::now(forged(query).other_id().bytes()),
            Datagram::after_ms(20, reply(query).bytes()),
        ]
    })
    .await;
    ended.answered(&[TRUE]);
    assert_eq!(ended.kinds(), [OddKind::OtherQuestion, OddKind::OtherId]);
}

#[tokio::test]
async fn b07_d_another_letter_case_is_the_same_name() {
    let ended = udp(|query| now_with(reply(query).upper_case())).await;
    ended.answered(&[TRUE]);
    assert_eq!(ended.odd, []);
}

#[tokio::test]
async fn b07_e_a_right_reply_from_another_port_is_ignored_and_noted() {
    let ended = udp(|query| {
        vec![Datagram::now(forged(query).bytes()).elsewhere(), Datagram::after_ms(20, reply(query).bytes())]
    })
    .await;
    ended.answered(&[TRUE]);
    assert_eq!(ended.kinds(), [OddKind::FromElsewhere]);
    let alone = udp(|query| vec![Datagram::now(reply(query).bytes()).elsewhere()]).await;
    assert_eq!((alone.outcome, alone.kinds()[0]), (Outcome::DnsSilent, OddKind::FromElsewhere));
}

#[tokio::test]
async fn a_second_answer_after_the_first_is_noted_with_its_time_and_addresses() {
    let ended = udp(|query| {
        vec![
            Datagram::now(forged(query).bytes()),
            Datagram::after_ms(60, reply(query).bytes()),
            Datagram::after_ms(90, forged(query).bytes()),
            Datagram::after_ms(120, Said::to(query).rcode(3).bytes()),
            Datagram::after_ms(150, vec![1, 2, 3]),
        ]
    })
    .await;
    // Whoever is first decides: there is no telling which of them is true. That there are two is the finding.
    ended.answered(&[FORGED]);
    assert_eq!(ended.kinds(), [OddKind::Different, OddKind::Repeated, OddKind::Different, OddKind::Malformed]);
    assert_eq!(ended.odd[0].addresses, [TRUE.parse::<IpAddr>().unwrap()]);
    assert!(ended.odd[0].after >= Duration::from_millis(60));
}

#[tokio::test]
async fn of_many_odd_datagrams_four_are_kept_and_another_answer_always() {
    let ended = udp(|query| {
        let mut script = vec![Datagram::now(forged(query).other_id().bytes()); 6];
        script.push(Datagram::now(forged(query).bytes()));
        script.push(Datagram::after_ms(50, reply(query).bytes()));
        script
    })
    .await;
    ended.answered(&[FORGED]);
    let other = OddKind::OtherId;
    assert_eq!(ended.kinds(), [other, other, other, OddKind::Different]);
}

#[tokio::test]
async fn b08_a_format_error_is_answered_with_a_simpler_question_and_remembered_for_a_while() {
    for bare in [true, false] {
        let rig = Rig1::udp(move |query, _| match (Said::asks_with_edns(query), bare) {
            (true, true) => vec![Datagram::now([&query[..2], &[0x81, 0x81, 0, 1, 0, 0, 0, 0, 0, 0]].concat())],
            (true, false) => now_with(Said::to(query).rcode(1).without_question()),
            (false, _) => now_with(reply(query)),
        })
        .await;
        let servers = Servers::default();
        let first = ask_by(&servers, rig.address, Duration::ZERO, false).await;
        first.answered(&[TRUE]);
        assert!(first.reply.without_edns);
        assert_eq!(rig.queries().len(), 2);
        ask_by(&servers, rig.address, Duration::ZERO, false).await.answered(&[TRUE]);
        assert_eq!(rig.queries().len(), 3, "it is asked without at once");
        assert!(servers.takes_edns(rig.address, now() + WITHOUT_EDNS), "and with it again later");
    }
}

#[tokio::test]
async fn b08_a_server_that_drops_edns_is_asked_without_it() {
    let rig = Rig1::udp(|query, _| if Said::asks_with_edns(query) { vec![] } else { now_with(reply(query)) }).await;
    let servers = Servers::default();
    for queries in [2, 4, 5] {
        let ended = ask_by(&servers, rig.address, Duration::ZERO, false).await;
        ended.answered(&[TRUE]);
        assert!(ended.reply.without_edns);
        assert_eq!(rig.queries().len(), queries, "one lost packet is not enough to switch EDNS off");
    }
}

#[tokio::test]
async fn b08_a_format_error_to_the_simple_question_too_is_the_outcome() {
    let ended = udp(|query| now_with(Said::to(query).rcode(1))).await;
    assert_eq!((ended.outcome, ended.reply.without_edns), (Outcome::Formerr, true));
}

#[tokio::test]
async fn b08_a_format_error_that_comes_late_does_not_end_the_simpler_question() {
    let rig = Rig1::udp(|query, before| match before {
        0 => vec![Datagram::after_ms(1100, Said::to(query).rcode(1).bytes())],
        _ => vec![Datagram::after_ms(300, reply(query).bytes())],
    })
    .await;
    ask_at(rig.address).await.answered(&[TRUE]);
}

#[tokio::test]
async fn a_lost_packet_is_sent_again_within_the_deadline() {
    let rig = Rig1::udp(|query, before| if before == 0 { vec![] } else { now_with(reply(query)) }).await;
    ask_at(rig.address).await.answered(&[TRUE]);
    assert_eq!(rig.queries().len(), 2);
}

#[tokio::test]
async fn b38_a_small_answer_where_a_large_one_was_lost_is_said_so() {
    let rig = Rig1::both(
        |query, _| if Said::asks_with_edns(query) { vec![] } else { now_with(Said::to(query).cut()) },
        |query| vec![Write::message(&reply(query).bytes())],
    )
    .await;
    let servers = Servers::default();
    for _ in 0..2 {
        let ended = ask_by(&servers, rig.address, HOLD, false).await;
        ended.answered(&[TRUE]);
        assert!(ended.remark.contains("EDNS 1232") && ended.reply.truncated, "{}", ended.remark);
    }
    assert!(servers.takes_edns(rig.address, now()), "that is no fault of EDNS");
}

#[tokio::test]
async fn every_word_of_a_reply_comes_from_a_socket() {
    let scripts: [(Outcome, Makes<Said>); 10] = [
        (Outcome::Answered, reply),
        (Outcome::Empty, Said::to),
        (Outcome::DanglingCname, |query| Said::to(query).alias("example.com", "b.example")),
        (Outcome::CnameLoop, |query| Said::to(query).alias("example.com", "example.com")),
        (Outcome::Referral, |query| Said::to(query).flags(0, 0x80).name_server("com", "a.example")),
        (Outcome::Nxdomain, |query| Said::to(query).rcode(3)),
        (Outcome::Servfail, |query| Said::to(query).rcode(2)),
        (Outcome::Refused, |query| Said::to(query).rcode(5)),
        (Outcome::OtherRcode, |query| Said::to(query).rcode(9)),
        (Outcome::OtherRcode, |query| Said::to(query).rcode(4)),
    ];
    for (outcome, script) in scripts {
        let ended = udp(move |query| now_with(script(query))).await;
        assert_eq!(ended.outcome, outcome);
    }
}

#[tokio::test]
async fn b19_a_message_over_tcp_may_dribble() {
    let rig = Rig1::tcp(|query| {
        let Write::Bytes(bytes) = Write::message(&reply(query).bytes()) else { panic!() };
        let mut writes = Vec::new();
        for piece in [&bytes[..1], &bytes[1..2]].into_iter().chain(bytes[2..].chunks(7)) {
            writes.push(Write::Bytes(piece.to_vec()));
            writes.push(Write::Pause(if piece.len() == 1 { 50 } else { 1 }));
        }
        writes
    })
    .await;
    let ended = ask_tcp(rig.address).await;
    ended.answered(&[TRUE]);
    assert_eq!(ended.reply.transport, Some(Carrier::Tcp));
}

#[tokio::test]
async fn b19_messages_over_tcp_are_told_apart_by_their_id() {
    let rig = Rig1::tcp(|query| {
        let messages = [forged(query).other_id(), reply(query)].map(|said| match Write::message(&said.bytes()) {
            Write::Bytes(bytes) => bytes,
            Write::Pause(_) | Write::Hold | Write::Close | Write::Reset => panic!(),
        });
        vec![Write::Bytes(messages.concat())]
    })
    .await;
    let ended = ask_tcp(rig.address).await;
    ended.answered(&[TRUE]);
    assert_eq!(ended.kinds(), [OddKind::OtherId]);
}

#[tokio::test]
async fn b19_a_broken_stream_has_its_word() {
    let scripts: [(Outcome, Makes<Vec<Write>>); 6] = [
        (Outcome::DnsClosed, |query| {
            let body = [reply(query).bytes(), vec![0; 60]].concat();
            vec![Write::Bytes([&[0, 200], &body[..60]].concat()), Write::Close]
        }),
        (Outcome::Malformed, |_| vec![Write::Bytes(vec![0, 0]), Write::Hold]),
        (Outcome::Malformed, |query| vec![Write::message(&query[..9]), Write::Hold]),
        (Outcome::DnsClosed, |_| vec![Write::Close]),
        (Outcome::DnsClosed, |_| vec![Write::Reset]),
        (Outcome::Malformed, |query| vec![Write::message(&reply(query).other_id().bytes()); 40]),
    ];
    for (outcome, script) in scripts {
        let rig = Rig1::tcp(script).await;
        assert_eq!(ask_tcp(rig.address).await.outcome, outcome);
    }
}

#[tokio::test]
async fn b19_a_trickle_ends_at_the_deadline() {
    let rig = Rig1::tcp(|_| {
        let mut writes = vec![Write::Bytes(vec![0xff, 0xff])];
        for _ in 0..1000 {
            writes.extend([Write::Bytes(vec![0; 7]), Write::Pause(5)]);
        }
        writes
    })
    .await;
    assert_eq!(ask_tcp(rig.address).await.outcome, Outcome::DnsSilent);
}

#[tokio::test]
async fn a_format_error_over_tcp_is_answered_with_a_simpler_question() {
    let rig = Rig1::tcp(|query| {
        let said = if Said::asks_with_edns(query) { Said::to(query).rcode(1) } else { reply(query) };
        vec![Write::message(&said.bytes())]
    })
    .await;
    let ended = ask_tcp(rig.address).await;
    ended.answered(&[TRUE]);
    assert!(ended.reply.without_edns);
}

#[tokio::test]
async fn a_long_promise_takes_no_room_before_its_bytes_come() {
    let (mut ours, mut theirs) = tokio::io::duplex(1024);
    theirs.write_all(&[0xff, 0xff, 1, 2, 3]).await.unwrap();
    let mut trace = Trace::default();
    let question = question();
    let asking = framed(&mut ours, Carrier::Tls, true, &question, &mut trace);
    assert!(size_of_val(&asking) < 2048, "{} bytes wait", size_of_val(&asking));
    theirs.shutdown().await.unwrap();
    assert_eq!(asking.await, Err(Outcome::DnsClosed));
}

#[tokio::test]
async fn a_question_that_waits_costs_little() {
    let dialer = Dialer::direct();
    let servers = Servers::default();
    let server = "127.0.0.1:9".parse().unwrap();
    let plain = Plain { dialer: &dialer, servers: &servers, server, choice: Choice::Assigned, hold: HOLD };
    let (question, mut trace) = (question(), Trace::default());
    let asking = plain.ask(&question, LIMIT, &mut trace);
    assert!(size_of_val(&asking) < 4096, "{} bytes", size_of_val(&asking));
}

#[tokio::test]
async fn b37_refused_silent_and_closed_ports_are_told_apart() {
    assert_eq!(udp(|query| now_with(Said::to(query).rcode(5))).await.outcome, Outcome::Refused);
    assert_eq!(udp(|_| vec![]).await.outcome, Outcome::DnsSilent);
    assert_eq!(ask_at(refused_port()).await.outcome, Outcome::ConnectionRefused);
    assert_eq!(ask_tcp(refused_port()).await.outcome, Outcome::ConnectionRefused);
}

#[tokio::test]
async fn b37_what_routers_say_and_what_this_machine_lacks_are_told_apart() {
    if !inside(module_path!(), "b37_what_routers_say_and_what_this_machine_lacks_are_told_apart") {
        return;
    }
    sh("for a in 8.8.8.8 9.9.9.1 9.9.9.2 9.9.9.3 9.9.9.4 9.9.9.5; do ip addr add $a/32 dev lo; done
        ip addr add 2606:4700::53/128 dev lo nodad
        ip route add prohibit 9.9.9.8/32; ip route add unreachable 9.9.9.9/32; ip route add blackhole 9.9.9.10/32
        nft 'table inet probe { chain i { type filter hook input priority 0;
            meta l4proto { icmp, ipv6-icmp } accept;
            ip daddr 9.9.9.1 reject with icmp type host-unreachable;
            ip daddr 9.9.9.2 reject with icmp type net-unreachable;
            ip daddr 9.9.9.3 reject with icmp type admin-prohibited;
            ip daddr 9.9.9.4 reject with icmp type port-unreachable;
            ip daddr 9.9.9.5 drop;
            ip6 daddr 2606:4700::53 reject with icmpv6 type admin-prohibited; }; }'");
    for (server, outcome) in [
        ("9.9.9.1", Outcome::HostUnreachable),
        ("9.9.9.2", Outcome::NetUnreachable),
        ("9.9.9.3", Outcome::AdminProhibited),
        ("2606:4700::53", Outcome::AdminProhibited),
        ("9.9.9.4", Outcome::ConnectionRefused),
        ("9.9.9.5", Outcome::DnsSilent),
        ("9.9.9.7", Outcome::NoRoute),
        ("9.9.9.8", Outcome::NoRoute),
        ("9.9.9.9", Outcome::NoRoute),
        ("9.9.9.10", Outcome::NoRoute),
        ("2001:4860::53", Outcome::FamilyUnavailable),
    ] {
        let server = SocketAddr::new(server.parse().unwrap(), 53);
        let ended = ask_at(server).await;
        assert_eq!((ended.outcome, ended.odd.len()), (outcome, 0), "{server} over UDP");
        // Over TCP silence has the word of its own stage.
        let over_tcp = if outcome == Outcome::DnsSilent { Outcome::Silent } else { outcome };
        assert_eq!(ask_tcp(server).await.outcome, over_tcp, "{server} over TCP");
    }
}

#[tokio::test]
async fn an_icmp_error_for_the_second_question_ends_the_wait() {
    if !inside(module_path!(), "an_icmp_error_for_the_second_question_ends_the_wait") {
        return;
    }
    sh("ip addr add 9.9.9.1/32 dev lo");
    let socket = tokio::net::UdpSocket::bind("9.9.9.1:53").await.unwrap();
    // From the second question on the host prohibits.
    let rig = Rig1::on(socket, |_, _| {
        sh("nft 'table inet probe { chain i { type filter hook input priority 0;
                udp dport 53 reject with icmp type admin-prohibited; }; }'");
        vec![]
    });
    assert_eq!(ask_at(rig.address).await.outcome, Outcome::AdminProhibited);
}
