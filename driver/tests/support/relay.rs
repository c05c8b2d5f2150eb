//! A relay in front of a DNS server that misbehaves as a script says.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use domain::base::Message;
use domain::base::iana::Opcode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What to do with one message.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// Let it through.
    Pass,
    /// Let it through and lose the reply.
    PassThenCut,
    /// Close at once.
    Cut,
    /// Say nothing, keep the connection.
    Silent,
    /// Answer with these bytes, and their length in front, whatever they are.
    Bytes(Vec<u8>),
    /// Answer with the question's header turned into an unsigned reply with this code.
    Unsigned(u8),
}

/// Starts a relay to `server`. The script sees whether a message is an update. It runs until the test's
/// runtime ends.
pub(crate) async fn relay<F>(server: SocketAddr, script: impl Fn(bool) -> F + Send + Sync + 'static) -> SocketAddr
where
    F: Future<Output = Act> + Send,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let script = Arc::new(script);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let script = Arc::clone(&script);
            tokio::spawn(async move {
                let Some(message) = framed(&mut client).await else { return };
                let update = Message::from_slice(&message).unwrap().header().opcode() == Opcode::UPDATE;
                act(script(update).await, server, &mut client, &message).await;
            });
        }
    });
    address
}

async fn act(act: Act, server: SocketAddr, client: &mut TcpStream, message: &[u8]) {
    match act {
        Act::Pass => {
            let reply = ask(server, message).await;
            send(client, &reply).await;
        }
        Act::PassThenCut => drop(ask(server, message).await),
        Act::Cut => {}
        Act::Silent => {
            // Until the client gives up.
            let _closed = client.read_u8().await;
        }
        Act::Bytes(bytes) => send(client, &bytes).await,
        Act::Unsigned(rcode) => {
            let mut reply = message.get(..12).unwrap().to_vec();
            reply[2] |= 0x80;
            reply[3] = rcode;
            reply[4..12].fill(0);
            send(client, &reply).await;
        }
    }
}

async fn ask(server: SocketAddr, message: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(server).await.unwrap();
    send(&mut stream, message).await;
    framed(&mut stream).await.unwrap()
}

async fn send(stream: &mut TcpStream, message: &[u8]) {
    let mut bytes = u16::try_from(message.len()).unwrap().to_be_bytes().to_vec();
    bytes.extend_from_slice(message);
    // The other side may have gone away, which some stories want.
    let _sent = stream.write_all(&bytes).await;
}

async fn framed(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let length = stream.read_u16().await.ok()?;
    let mut message = vec![0; usize::from(length)];
    stream.read_exact(&mut message).await.ok()?;
    Some(message)
}
