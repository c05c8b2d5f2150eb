//! Who may stay on a connection, and how many of one source: real TLS, the clock is moved.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;

use super::*;
use crate::ingest::accept::{Connection, Strangers, handshake};
use crate::ingest::handshakes::{Arriving, Handshakes};

type Client = tokio_rustls::client::TlsStream<TcpStream>;

/// Both ends of a connection from this address, with or without a certificate.
struct Gate {
    state: tempfile::TempDir,
    listener: TcpListener,
    keeper: Keeper,
}

impl Gate {
    async fn open() -> Self {
        let (state, listener) = (tempfile::tempdir().unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let address = listener.local_addr().unwrap();
        let keeper = Keeper::open(state.path().to_owned(), address, &Identity::default(), clock::wall()).unwrap();
        issue(state.path(), "de-fra", &state.path().join("de-fra"), clock::wall());
        Self { state, listener, keeper }
    }

    async fn pass(&self, certified: bool, strangers: &Strangers) -> (Client, Result<Connection, String>) {
        let folder = self.state.path().join("de-fra");
        let config = client_config(certified.then_some(folder.as_path()), &folder);
        let tcp = TcpStream::connect(self.listener.local_addr().unwrap()).await.unwrap();
        let (accepted, remote): (TcpStream, SocketAddr) = self.listener.accept().await.unwrap();
        let held = self.keeper.held();
        let connector = TlsConnector::from(config);
        let name = ServerName::try_from(SERVER_NAME).unwrap();
        let (client, server) =
            tokio::join!(connector.connect(name, tcp), handshake(&held, accepted, remote, strangers));
        (client.unwrap(), server)
    }
}

#[tokio::test]
async fn a_certificate_alone_keeps_no_connection_open_and_a_stream_does() {
    let (gate, strangers) = (Gate::open().await, Strangers::default());
    let (mut handshakes, mut byte) = (Handshakes::default(), [0; 1]);
    let hour = Duration::from_secs(3600);
    for settles in [false, true] {
        let (mut client, server) = gate.pass(true, &strangers).await;
        let mut server = server.unwrap();
        handshakes.push((), [127, 0, 0, 1].into());
        let arriving = Arriving::new(handshakes.next().await.1);
        Arc::make_mut(&mut server.peer).arriving = Some(arriving.clone());
        let settled = settles.then(|| arriving.clone().settled());
        // A place is given up long before.
        arriving.give_way();
        tokio::time::pause();
        let read = tokio::time::timeout(hour, server.read(&mut byte)).await;
        tokio::time::resume();
        match settles {
            false => assert_eq!(read.unwrap().unwrap_err().kind(), std::io::ErrorKind::TimedOut),
            true => {
                assert!(read.is_err(), "{read:?}");
                client.write_all(b"x").await.unwrap();
                assert_eq!(server.read(&mut byte).await.unwrap(), 1);
                drop(settled);
                tokio::time::pause();
                let read = tokio::time::timeout(hour, server.read(&mut byte)).await;
                tokio::time::resume();
                assert_eq!(read.unwrap().unwrap_err().kind(), std::io::ErrorKind::TimedOut, "its stream has ended");
            }
        }
    }
}

/// The clock is moved in steps, and real time goes by between them for what is on its way.
#[tokio::test]
async fn a_connection_that_is_open_without_a_stream_is_closed() {
    let mut world = world().await;
    let (listener, coordinator) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), world.address);
    world.address = listener.local_addr().unwrap();
    let path = tokio::spawn(async move {
        let (mut agent, _) = listener.accept().await.unwrap();
        let mut coordinator = TcpStream::connect(coordinator).await.unwrap();
        tokio::io::copy_bidirectional(&mut agent, &mut coordinator).await
    });
    let folder = world.identity("de-fra");
    let channel = world.channel(client_config(Some(&folder), &folder)).await.unwrap();
    let (up, messages) = mpsc::channel(64);
    let response = ProbeClient::new(channel.clone()).session(ReceiverStream::new(messages)).await.unwrap();
    let mut agent = Agent { up, down: response.into_inner() };
    agent.hello(1, BOOT).await;
    agent.next().await.unwrap();
    // A blocking task keeps the paused clock from moving by itself.
    let (held, hold) = std::sync::mpsc::channel::<()>();
    let still = tokio::task::spawn_blocking(move || hold.recv());
    tokio::time::pause();
    let ten_seconds = || async {
        tokio::time::advance(Duration::from_secs(10)).await;
        let (_never, real) = std::sync::mpsc::channel::<()>();
        let real = tokio::task::spawn_blocking(move || real.recv_timeout(Duration::from_millis(300)));
        real.await.unwrap().unwrap_err();
    };
    for _ in 0..6 {
        ten_seconds().await;
    }
    assert!(!path.is_finished(), "closed beside a stream that lives");
    drop(agent);
    // An agent may open another stream on it.
    ten_seconds().await;
    assert!(!path.is_finished(), "closed at once");
    for _ in 0..6 {
        ten_seconds().await;
    }
    assert!(path.is_finished(), "it answers pings and has no stream, and stays");
    tokio::time::resume();
    drop(held);
    still.await.unwrap().unwrap_err();
    drop(channel);
}

#[tokio::test]
async fn one_source_has_a_share_of_the_places_for_strangers() {
    let (gate, strangers) = (Gate::open().await, Strangers::default());
    let mut held = Vec::new();
    let refused = loop {
        let (client, server) = gate.pass(false, &strangers).await;
        match server {
            Ok(server) => held.push((client, server)),
            Err(why) => break why,
        }
        assert!(held.len() < 256, "one source has every place");
    };
    assert!(refused.contains("from there"), "{refused}");
    assert_eq!(held.len(), 32);
    // Whoever has a certificate needs no such place; and one that goes makes room.
    assert!(gate.pass(true, &strangers).await.1.is_ok());
    held.pop();
    assert!(gate.pass(false, &strangers).await.1.is_ok());
}

#[tokio::test]
async fn what_is_larger_than_a_record_or_a_buffer_passes_both_ways_also_under_new_keys() {
    let (gate, strangers) = (Gate::open().await, Strangers::default());
    let (client, server) = gate.pass(true, &strangers).await;
    let server = server.unwrap();
    let sent: Vec<u8> = (0..1_000_000_u32).map(|n| n.to_le_bytes()[0] ^ n.to_le_bytes()[1]).collect();
    let (mut from_client, mut to_client) = tokio::io::split(client);
    let (mut from_server, mut to_server) = tokio::io::split(server);
    let echo = async {
        let mut bytes = vec![0; 70_000];
        loop {
            // A reader that takes little at first, and then much.
            let room = if bytes.len().is_multiple_of(2) { 100 } else { bytes.len() };
            match from_server.read(&mut bytes[..room]).await.unwrap() {
                0 => break to_server.shutdown().await.unwrap(),
                count => to_server.write_all(&bytes[..count]).await.unwrap(),
            }
            let length = bytes.len() ^ 1;
            bytes.resize(length, 0);
        }
    };
    let say = async {
        for part in sent.chunks(150_000) {
            to_client.write_all(part).await.unwrap();
            to_client.flush().await.unwrap();
        }
        to_client.shutdown().await.unwrap();
    };
    let mut heard = Vec::new();
    let hear = async { from_client.read_to_end(&mut heard).await.unwrap() };
    tokio::join!(echo, say, hear);
    assert!(heard == sent, "{} bytes of {}", heard.len(), sent.len());

    let (mut client, server) = gate.pass(true, &strangers).await;
    let mut server = server.unwrap();
    let mut word = [0; 3];
    for turn in 0..3 {
        client.get_mut().1.refresh_traffic_keys().unwrap();
        client.write_all(b"new").await.unwrap();
        server.read_exact(&mut word).await.unwrap();
        assert_eq!(&word, b"new", "{turn}");
        server.write_all(b"too").await.unwrap();
        server.flush().await.unwrap();
        client.read_exact(&mut word).await.unwrap();
        assert_eq!(&word, b"too", "{turn}");
    }
}

#[tokio::test]
async fn an_end_that_was_said_is_told_from_one_that_was_not() {
    let (gate, strangers) = (Gate::open().await, Strangers::default());
    let mut byte = [0; 1];
    let (mut client, server) = gate.pass(true, &strangers).await;
    client.shutdown().await.unwrap();
    let mut server = server.unwrap();
    assert_eq!(server.read(&mut byte).await.unwrap(), 0);
    assert_eq!(server.read(&mut byte).await.unwrap(), 0, "and stays so");
    let (client, server) = gate.pass(true, &strangers).await;
    drop(client);
    assert_eq!(server.unwrap().read(&mut byte).await.unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
    // Not what TLS says: refused, and not taken for data.
    let (mut client, server) = gate.pass(true, &strangers).await;
    client.get_mut().0.write_all(b"\x17\x03\x03\x00\x20................................").await.unwrap();
    assert_eq!(server.unwrap().read(&mut byte).await.unwrap_err().kind(), std::io::ErrorKind::InvalidData);
    let told = client.read(&mut byte).await.unwrap_err();
    assert!(told.to_string().contains("BadRecordMac"), "{told}");
}
