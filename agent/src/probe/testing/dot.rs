//! RIG2: a DoT server that answers every query with one address, and ends idle connections by a rule.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::doh::Idle;

pub(crate) async fn serve_idle(config: ServerConfig, idle: Idle) -> SocketAddr {
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let socket = socket2::SockRef::from(&stream).try_clone().unwrap();
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let pause = match idle {
                    Idle::Stays | Idle::Goaway(_) => Duration::from_secs(3600),
                    Idle::Fin(pause) | Idle::Reset(pause) | Idle::Drop(pause) => pause,
                };
                while let Ok(Ok(length)) = timeout(pause, stream.read_u16()).await {
                    let mut query = vec![0; usize::from(length)];
                    stream.read_exact(&mut query).await.unwrap();
                    let reply = super::answer(&query, "8.6.112.0");
                    let length = u16::try_from(reply.len()).unwrap().to_be_bytes();
                    stream.write_all(&[&length[..], &reply].concat()).await.unwrap();
                    stream.flush().await.unwrap();
                }
                match idle {
                    Idle::Stays | Idle::Goaway(_) | Idle::Fin(_) => {}
                    Idle::Reset(_) => socket.set_linger(Some(Duration::ZERO)).unwrap(),
                    Idle::Drop(_) => std::future::pending().await,
                }
            });
        }
    });
    address
}
