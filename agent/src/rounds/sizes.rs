//! What a hung probe holds: the size of what waits, and what the process grows by.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parallax_decide::observation::Family;
use rustls::RootCertStore;
use tokio::net::{TcpListener, UdpSocket};
use tokio::time::sleep;

use super::tests::{World, assignment};
use crate::assignment::{Resolver, Transport};
use crate::probe::doh::Form;
use crate::probe::endpoint::{self, Questions};
use crate::probe::message::Question;
use crate::probe::testing::doh::{HOST, doh, place};
use crate::probe::testing::{Authority, accept};
use crate::probe::tried::Tried;
use crate::probe::{Limits, resolution};
use crate::site::Site;
use crate::tls::{Trust, certificates};

/// A tenth of what a hung probe costs blackbox_exporter is some four kilobytes, the allocator's and the
/// socket's part included.
const HELD_BYTES_MAX: usize = 2560;

/// Resident growth of a question that hangs over UDP; of one in the TLS handshake; of one of many that
/// share a hung HTTP/2 connection; and of a check that has such a connection to itself (docs/bench.md says
/// what of it is the libraries').
const IN_UDP_BYTES_MAX: usize = 4 << 10;
const IN_TLS_BYTES_MAX: usize = 10 << 10;
const IN_HTTP2_BYTES_MAX: usize = 11 << 10;
const IN_HTTP2_ALONE_BYTES_MAX: usize = 40 << 10;

/// So many hang at once.
const HUNG: usize = 200;

/// Connections alone: what a question holds is in boxes of its stages, and measured as growth.
#[tokio::test]
async fn a_hung_probe_holds_low_kilobytes() {
    let world = World::with_answers(&["104.26.4.10"]).await;
    let assignment = assignment(|_| {});
    let (site, limits) = (&world.rounds.site, &assignment.schedule.limits);
    let tried = Tried::node(&assignment.nodes[0]);
    let bytes = size_of_val(&tried.measure(site, limits));
    assert!(bytes <= HELD_BYTES_MAX, "a connection holds {bytes} bytes while it waits; box what it seldom needs");
}

#[tokio::test]
async fn a_hung_question_over_udp_holds_low_kilobytes() {
    let (silent, site) = Silent::start().await;
    let resolver = Resolver { name: "udp".parse().unwrap(), transport: Transport::Plain { server: silent.udp } };
    grows_by(IN_UDP_BYTES_MAX, asking(site, resolver)).await;
}

#[tokio::test]
async fn a_probe_hung_in_the_tls_handshake_holds_low_kilobytes() {
    let (silent, site) = Silent::start().await;
    let transport = Transport::Dot { server: silent.tcp, server_name: HOST.into() };
    let resolver = Resolver { name: "dot".parse().unwrap(), transport };
    grows_by(IN_TLS_BYTES_MAX, asking(site, resolver)).await;
}

#[tokio::test]
async fn questions_hung_in_http2_share_what_it_holds() {
    let (silent, site) = Silent::start().await;
    let resolver = doh(silent.http2, Form::WirePost, None);
    grows_by(IN_HTTP2_BYTES_MAX, asking(site, resolver)).await;
}

#[tokio::test]
async fn an_endpoint_check_hung_in_http2_holds_what_the_libraries_take() {
    let (silent, site) = Silent::start().await;
    let resolver = doh(silent.http2, Form::WirePost, None);
    let questions = Questions { known: question(), freshness_zone: None, missing_zone: None };
    let shared = Arc::new((site, patient(), resolver, questions));
    grows_by(IN_HTTP2_ALONE_BYTES_MAX, || {
        let shared = Arc::clone(&shared);
        async move {
            let (site, limits, resolver, questions) = &*shared;
            endpoint::check(site, limits, resolver, questions).await;
        }
    })
    .await;
}

/// Lets many of these hang; the process may grow by so many bytes for each.
async fn grows_by<F: Future<Output = ()> + Send + 'static>(bytes_max: usize, probe: impl Fn() -> F) {
    // What is made once for all.
    let mut hanging = tokio::task::JoinSet::new();
    hanging.spawn(probe());
    sleep(Duration::from_secs(1)).await;
    hanging.shutdown().await;
    let rest = resident_bytes();
    for _ in 0..HUNG {
        hanging.spawn(probe());
    }
    sleep(Duration::from_secs(3)).await;
    let each = resident_bytes().saturating_sub(rest) / HUNG;
    assert!(hanging.try_join_next().is_none(), "it hangs");
    println!("{each} bytes each");
    assert!(each <= bytes_max, "{each} bytes each, at most {bytes_max} are allowed");
}

/// What asks that resolver a question. What all questions of a round share, these share too.
fn asking(site: Site, resolver: Resolver) -> impl Fn() -> BoxFuture<'static, ()> {
    let shared = Arc::new((site, patient(), resolver, question()));
    move || {
        let shared = Arc::clone(&shared);
        Box::pin(async move {
            let (site, limits, resolver, question) = &*shared;
            resolution::resolve(site, limits, resolver, question).await;
        })
    }
}

fn question() -> Question {
    Question { name: "example.com".parse().unwrap(), family: Family::V4 }
}

/// Limits that let what hangs hang.
fn patient() -> Limits {
    let long = Duration::from_secs(60);
    Limits { connect: long, tls: long, http: long, resolve: 3 * long, ..Limits::by_hand() }
}

/// The process's resident set (proc(5), statm), in bytes.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * usize::try_from(nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).unwrap().unwrap()).unwrap()
}

/// Servers in a process of their own, so that what they hold is not counted: they take connections and
/// then say nothing, one after TCP and one after TLS with HTTP/2.
struct Silent {
    udp: SocketAddr,
    tcp: SocketAddr,
    http2: SocketAddr,
    child: Child,
    _folder: tempfile::TempDir,
}

/// Set for the process of the servers: where it writes its addresses and its authority.
const SILENT: &str = "PARALLAX_TEST_SILENT";

impl Silent {
    async fn start() -> (Self, Site) {
        let folder = tempfile::tempdir().unwrap();
        let told = folder.path().join("told");
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "rounds::sizes::child_takes_connections_and_says_nothing"])
            .env(SILENT, &told)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        while !told.exists() {
            sleep(Duration::from_millis(20)).await;
        }
        let text = std::fs::read_to_string(&told).unwrap();
        let (addresses, pem) = text.split_once('\n').unwrap();
        let mut addresses = addresses.split(' ').map(|address| address.parse().unwrap());
        let mut next = || addresses.next().unwrap();
        let mut roots = RootCertStore::empty();
        for certificate in certificates(pem.as_bytes()).unwrap() {
            roots.add(certificate).unwrap();
        }
        let site = place(Trust::with_roots(roots).unwrap());
        (Self { udp: next(), tcp: next(), http2: next(), child, _folder: folder }, site)
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Not a test: the process that a test starts, and ends.
#[tokio::test]
async fn child_takes_connections_and_says_nothing() {
    let Some(told) = std::env::var_os(SILENT) else { return };
    let authority = Authority::new();
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let udp = socket.local_addr().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tcp = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            held.push(stream);
        }
    });
    let mut config = authority.server(HOST);
    config.alpn_protocols = vec![b"h2".to_vec()];
    let http2 = accept(config, |stream| async move {
        tokio::spawn(async move {
            let _stream = stream;
            std::future::pending::<()>().await;
        });
    })
    .await;
    let (told, whole) = (Path::new(&told), Path::new(&told).with_extension("whole"));
    std::fs::write(&whole, format!("{udp} {tcp} {http2}\n{}", authority.pem())).unwrap();
    std::fs::rename(&whole, told).unwrap();
    std::future::pending::<()>().await;
}
