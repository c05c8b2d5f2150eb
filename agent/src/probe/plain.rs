//! Plain DNS: UDP, then TCP when the reply is truncated; and the framing of DNS over a stream.

use std::net::SocketAddr;
use std::time::Duration;

use parallax_decide::observation::{Family, Outcome, Stage};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::UdpSocket;
use tokio::time::sleep_until;

use super::ask::Trace;
use super::message::{Question, Reply, Unfit};
use super::trouble::{Trouble, trouble};
use crate::clock::{now, since};
use crate::dial::Dialer;
use crate::entropy::message_id;

/// Room for one datagram, in bytes. We offer 1232; a server that sends more than this on UDP
/// against our word sends a malformed reply.
const DATAGRAM_BYTES_MAX: usize = 4096;

/// Whose choice the server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// A resolver of the assignment.
    Assigned,
    /// The owner's own.
    Own,
}

/// Asks a server over UDP, and over TCP when it says that its reply was cut. `limit` is when the
/// caller will give up: at half of it the question goes out once more without EDNS, which serves
/// against a lost packet as well as against a server that drops what it does not know.
///
/// # Errors
/// How the stage in `trace` failed.
pub async fn ask(
    dialer: &Dialer,
    server: SocketAddr,
    choice: Choice,
    question: &Question,
    limit: Duration,
    trace: &mut Trace,
) -> Result<Reply, Outcome> {
    trace.enter(Stage::Dns, server.ip());
    let socket = match choice {
        Choice::Assigned => dialer.udp(server),
        Choice::Own => dialer.udp_own(server),
    }
    .map_err(|error| {
        let trouble = trouble(&error);
        // No route for the whole family is the vantage's trouble and accuses no resolver.
        let local = matches!(trouble, Trouble::NetUnreachable | Trouble::HostUnreachable);
        let own = local && !dialer.family_available(Family::of(server.ip()));
        if own { Outcome::FamilyUnavailable } else { trouble.at(Stage::Dns) }
    })?;
    let reply = datagrams(&socket, question, limit).await?;
    if !reply.truncated {
        return Ok(reply);
    }
    ask_stream(dialer, server, choice, question, trace).await
}

/// Asks a server over TCP alone.
///
/// # Errors
/// How the stage in `trace` failed.
pub async fn ask_stream(
    dialer: &Dialer,
    server: SocketAddr,
    choice: Choice,
    question: &Question,
    trace: &mut Trace,
) -> Result<Reply, Outcome> {
    trace.enter(Stage::Tcp, server.ip());
    let start = now();
    let mut stream = match choice {
        Choice::Assigned => dialer.tcp(server).await,
        Choice::Own => dialer.tcp_own(server).await,
    }
    .map_err(|error| trouble(&error).at(Stage::Tcp))?;
    trace.stages.tcp = since(start);
    trace.enter(Stage::Dns, server.ip());
    framed(&mut stream, question).await
}

/// The exchange over UDP. Replies with another id or question are ignored; so are those from
/// another address, by the kernel, since the socket is connected.
async fn datagrams(socket: &UdpSocket, question: &Question, limit: Duration) -> Result<Reply, Outcome> {
    let again_at = now() + limit / 2;
    let mut ids = vec![send(socket, question, true).await?];
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        let received = tokio::select! {
            received = socket.recv(&mut buffer) => received,
            () = sleep_until(again_at), if ids.len() == 1 => {
                ids.push(send(socket, question, false).await?);
                continue;
            }
        };
        let bytes = received.map(|length| buffer.get(..length).unwrap_or_default());
        let bytes = bytes.map_err(|error| trouble(&error).at(Stage::Dns))?;
        let mut verdict = Err(Unfit::NotOurs);
        let mut to_edns = true;
        for (position, id) in ids.iter().enumerate() {
            verdict = question.read(*id, bytes);
            to_edns = position == 0;
            if verdict != Err(Unfit::NotOurs) {
                break;
            }
        }
        match verdict {
            Ok(reply) if reply.format_error && to_edns => {
                // When the simpler question is out already, its answer is what counts.
                if ids.len() == 1 {
                    ids.push(send(socket, question, false).await?);
                }
            }
            Ok(reply) => return Ok(reply),
            Err(Unfit::Malformed) => return Err(Outcome::Malformed),
            Err(Unfit::NotOurs) => {
                tracing::debug!(name = %question.name, bytes = bytes.len(), "a datagram that is no reply to our question");
            }
        }
    }
}

/// Sends the question once; the id that the reply must have.
async fn send(socket: &UdpSocket, question: &Question, edns: bool) -> Result<u16, Outcome> {
    let id = message_id().map_err(|_| Outcome::OwnTrouble)?;
    let bytes = question.message(id, edns).ok_or(Outcome::OwnTrouble)?;
    socket.send(&bytes).await.map_err(|error| trouble(&error).at(Stage::Dns))?;
    Ok(id)
}

/// The exchange over a stream: messages with a two-byte length before each (RFC 1035, 4.2.2).
/// Messages with another id are skipped.
///
/// # Errors
/// How the exchange failed.
pub async fn framed<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, question: &Question) -> Result<Reply, Outcome> {
    let named = |error: std::io::Error| trouble(&error).at(Stage::Dns);
    let id = message_id().map_err(|_| Outcome::OwnTrouble)?;
    let message = question.message(id, true).ok_or(Outcome::OwnTrouble)?;
    let length = u16::try_from(message.len()).map_err(|_| Outcome::OwnTrouble)?;
    // One write: some servers take the length alone as a whole message.
    let framed = [length.to_be_bytes().as_slice(), &message].concat();
    stream.write_all(&framed).await.map_err(named)?;
    stream.flush().await.map_err(named)?;
    loop {
        let length = stream.read_u16().await.map_err(named)?;
        let mut bytes = vec![0; usize::from(length)];
        stream.read_exact(&mut bytes).await.map_err(named)?;
        match question.read(id, &bytes) {
            Ok(reply) => return Ok(reply),
            Err(Unfit::NotOurs) if !bytes.is_empty() => {}
            Err(Unfit::NotOurs | Unfit::Malformed) => return Err(Outcome::Malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::probe::testing::{answer, refused_port};

    const LIMIT: Duration = Duration::from_secs(2);

    fn question() -> Question {
        Question { name: "example.com".parse().unwrap(), family: Family::V4 }
    }

    async fn ask_at(server: SocketAddr) -> Result<Reply, Outcome> {
        let mut trace = Trace::default();
        ask(&Dialer::direct(), server, Choice::Assigned, &question(), LIMIT, &mut trace).await
    }

    async fn server() -> (UdpSocket, SocketAddr) {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        (socket, address)
    }

    #[tokio::test]
    async fn replies_of_others_are_ignored_until_ours_comes() {
        let (socket, address) = server().await;
        tokio::spawn(async move {
            let mut buffer = [0; 512];
            let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
            let query = &buffer[..length];
            let good = answer(query, "8.6.112.0");
            let mut wrong_id = answer(query, "9.9.9.9");
            wrong_id[0] ^= 0xff;
            let stranger = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            stranger.send_to(&answer(query, "9.9.9.8"), from).await.unwrap();
            socket.send_to(&wrong_id, from).await.unwrap();
            socket.send_to(query, from).await.unwrap();
            socket.send_to(&good, from).await.unwrap();
        });
        let reply = ask_at(address).await.unwrap();
        assert_eq!(reply.addresses, ["8.6.112.0".parse::<IpAddr>().unwrap()]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_drops_edns_is_asked_without_it() {
        let (socket, address) = server().await;
        tokio::spawn(async move {
            let mut buffer = [0; 512];
            let (with_edns, _) = socket.recv_from(&mut buffer).await.unwrap();
            let (without, from) = socket.recv_from(&mut buffer).await.unwrap();
            assert!(without < with_edns);
            socket.send_to(&answer(&buffer[..without], "8.6.112.0"), from).await.unwrap();
        });
        assert_eq!(ask_at(address).await.unwrap().outcome, Outcome::Answered);
    }

    #[tokio::test]
    async fn a_format_error_is_answered_with_a_simpler_question() {
        let (socket, address) = server().await;
        tokio::spawn(async move {
            let mut buffer = [0; 512];
            let (_, from) = socket.recv_from(&mut buffer).await.unwrap();
            let bare = [buffer[0], buffer[1], 0x80, 1, 0, 0, 0, 0, 0, 0, 0, 0];
            socket.send_to(&bare, from).await.unwrap();
            let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
            socket.send_to(&answer(&buffer[..length], "8.6.112.0"), from).await.unwrap();
        });
        assert_eq!(ask_at(address).await.unwrap().outcome, Outcome::Answered);
    }

    #[tokio::test(start_paused = true)]
    async fn a_format_error_that_comes_late_does_not_end_the_simpler_question() {
        let (socket, address) = server().await;
        tokio::spawn(async move {
            let mut buffer = [0; 512];
            let (_, from) = socket.recv_from(&mut buffer).await.unwrap();
            let bare = [buffer[0], buffer[1], 0x80, 1, 0, 0, 0, 0, 0, 0, 0, 0];
            let (length, _) = socket.recv_from(&mut buffer).await.unwrap();
            socket.send_to(&bare, from).await.unwrap();
            socket.send_to(&answer(&buffer[..length], "8.6.112.0"), from).await.unwrap();
        });
        assert_eq!(ask_at(address).await.unwrap().outcome, Outcome::Answered);
    }

    #[tokio::test]
    async fn a_cut_reply_is_asked_again_over_tcp_which_may_dribble() {
        // The same port on both protocols may be taken by somebody else on one of them.
        let (socket, address, listener) = loop {
            let (socket, address) = server().await;
            if let Ok(listener) = tokio::net::TcpListener::bind(address).await {
                break (socket, address, listener);
            }
        };
        tokio::spawn(async move {
            let mut buffer = [0; 512];
            let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
            let mut cut = answer(&buffer[..length], "9.9.9.9");
            cut[2] |= 2;
            socket.send_to(&cut, from).await.unwrap();
            let (mut stream, _) = listener.accept().await.unwrap();
            let length = usize::from(stream.read_u16().await.unwrap());
            stream.read_exact(&mut buffer[..length]).await.unwrap();
            let reply = answer(&buffer[..length], "8.6.112.0");
            let mut other = reply.clone();
            other[0] ^= 0xff;
            for message in [other, reply] {
                let length = u16::try_from(message.len()).unwrap();
                for piece in [length.to_be_bytes().as_slice(), &message].concat().chunks(7) {
                    stream.write_all(piece).await.unwrap();
                    stream.flush().await.unwrap();
                    tokio::task::yield_now().await;
                }
            }
        });
        let reply = ask_at(address).await.unwrap();
        assert_eq!(reply.addresses, ["8.6.112.0".parse::<IpAddr>().unwrap()]);
    }

    #[tokio::test]
    async fn a_stream_closed_early_or_with_nothing_in_it_has_its_word() {
        for (bytes, outcome) in [
            (vec![0, 200, 1, 2, 3], Outcome::DnsClosed),
            (vec![0, 0], Outcome::Malformed),
            (vec![], Outcome::DnsClosed),
        ] {
            let (mut ours, mut theirs) = tokio::io::duplex(1024);
            theirs.write_all(&bytes).await.unwrap();
            theirs.shutdown().await.unwrap();
            assert_eq!(framed(&mut ours, &question()).await, Err(outcome), "{bytes:?}");
        }
    }

    #[tokio::test]
    async fn a_closed_port_is_refused() {
        assert_eq!(ask_at(refused_port()).await, Err(Outcome::ConnectionRefused));
    }
}
