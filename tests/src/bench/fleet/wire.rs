//! One stream of one simulated agent: TCP from a chosen address, mutual TLS, HTTP/2, gRPC frames. Thin, because the fleet
//! shares its processors with what is measured.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use parallax_proto::v1;
use prost::Message;
use prost::bytes::{Buf, BufMut, Bytes, BytesMut};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::TcpSocket;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

/// The name in the coordinator's certificate.
const COORDINATOR_NAME: &str = "parallax-coordinator";

/// The one method.
const METHOD: &str = "http://parallax-coordinator/parallax.probe.v1.Probe/Session";

/// Bytes before a message: not compressed, and its length (gRPC over HTTP/2).
const PREFIX_BYTES: usize = 5;

/// An open stream.
pub struct Stream {
    up: SendStream<Bytes>,
    down: RecvStream,
    buffer: BytesMut,
    // HTTP/2 ends the connection when the last handle to it is gone.
    _requests: SendRequest<Bytes>,
    connection: JoinHandle<()>,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Stream {
    /// Connects, opens the stream and says hello.
    ///
    /// # Errors
    /// It is not taken; the message carries the gRPC status where there is one.
    pub async fn open(
        source: IpAddr,
        coordinator: SocketAddr,
        tls: &Arc<ClientConfig>,
        hello: v1::Hello,
    ) -> Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::new(source, 0))?;
        let tcp = socket.connect(coordinator).await.context("TCP")?;
        tcp.set_nodelay(true)?;
        let name = ServerName::try_from(COORDINATOR_NAME)?;
        let tls = TlsConnector::from(Arc::clone(tls)).connect(name, tcp).await.context("TLS")?;
        let (requests, connection) = h2::client::handshake(tls).await.context("HTTP/2")?;
        let connection = tokio::spawn(async move {
            let _ = connection.await;
        });
        let mut requests = requests.ready().await?;
        let request = http::Request::post(METHOD)
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .context("the request")?;
        let (response, mut up) = requests.send_request(request, false)?;
        send(&mut up, v1::agent_message::Message::Hello(hello))?;
        let response = response.await?;
        if let Some(status) = response.headers().get("grpc-status") {
            bail!("refused with gRPC status {status:?}");
        }
        Ok(Self { up, down: response.into_body(), buffer: BytesMut::new(), _requests: requests, connection })
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The stream has ended.
    pub fn send(&mut self, message: v1::agent_message::Message) -> Result<()> {
        send(&mut self.up, message)
    }

    /// The next message; none when the coordinator ended the stream.
    ///
    /// # Errors
    /// The stream broke.
    pub async fn next(&mut self) -> Result<Option<v1::coordinator_message::Message>> {
        loop {
            if let Some(message) = self.decode()? {
                return Ok(Some(message));
            }
            let Some(data) = self.down.data().await else { return Ok(None) };
            let data = data?;
            self.down.flow_control().release_capacity(data.len())?;
            self.buffer.put(data);
        }
    }

    fn decode(&mut self) -> Result<Option<v1::coordinator_message::Message>> {
        let Some(mut prefix) = self.buffer.get(..PREFIX_BYTES) else { return Ok(None) };
        prefix.advance(1);
        let length = usize::try_from(prefix.get_u32())?;
        if self.buffer.len() < PREFIX_BYTES + length {
            return Ok(None);
        }
        self.buffer.advance(PREFIX_BYTES);
        let message = v1::CoordinatorMessage::decode(self.buffer.split_to(length))?;
        if self.buffer.is_empty() {
            // Most of the time there is nothing to keep room for.
            self.buffer = BytesMut::new();
        }
        Ok(message.message)
    }
}

fn send(up: &mut SendStream<Bytes>, message: v1::agent_message::Message) -> Result<()> {
    let message = v1::AgentMessage { message: Some(message) };
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(PREFIX_BYTES + length);
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(length)?);
    message.encode(&mut bytes)?;
    up.send_data(bytes.freeze(), false)?;
    Ok(())
}
