//! DNS over TLS (RFC 7858).

use std::net::SocketAddr;
use std::sync::Arc;

use parallax_decide::observation::{Outcome, Stage};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Limits;
use super::ask::Trace;
use super::connection::attempts::connect;
use super::message::{Question, Reply};
use super::plain::framed;
use crate::clock::{now, since};
use crate::dial::{Dialer, Segments};
use crate::tls::failure;

/// Asks one question over a cold connection.
///
/// # Errors
/// How the stage in `trace` failed.
pub async fn ask(
    dialer: &Dialer,
    tls: &Arc<ClientConfig>,
    server: SocketAddr,
    server_name: &str,
    question: &Question,
    limits: &Limits,
    trace: &mut Trace,
) -> Result<Reply, Outcome> {
    let mut stream = secured(dialer, tls, server, server_name, limits, trace).await?;
    trace.enter(Stage::Dns, server.ip());
    framed(&mut stream, question).await
}

/// A cold TLS stream to a resolver's endpoint; each stage is noted in `trace`.
///
/// # Errors
/// How the stage in `trace` failed.
pub async fn secured(
    dialer: &Dialer,
    tls: &Arc<ClientConfig>,
    server: SocketAddr,
    server_name: &str,
    limits: &Limits,
    trace: &mut Trace,
) -> Result<TlsStream<TcpStream>, Outcome> {
    trace.enter(Stage::Tcp, server.ip());
    let name = ServerName::try_from(server_name.to_owned()).map_err(|_| Outcome::OwnTrouble)?;
    let start = now();
    let stream = connect(dialer, limits, Segments::Usual, server).await.outcome?;
    trace.stages.tcp = since(start);
    trace.enter(Stage::Tls, server.ip());
    let begun = now();
    let shaken = timeout(limits.tls, TlsConnector::from(Arc::clone(tls)).connect(name, stream)).await;
    trace.stages.tls = since(begun);
    match shaken {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => {
            tracing::debug!(%server, server_name, %error, "TLS with a resolver's endpoint failed");
            Err(failure(&error))
        }
        Err(_) => Err(Outcome::TlsSilent),
    }
}

#[cfg(test)]
mod tests {
    use parallax_decide::observation::Family;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::probe::testing::{Authority, accept, answer, limits, refused_port, silent_port};

    fn question() -> Question {
        Question { name: "example.com".parse().unwrap(), family: Family::V4 }
    }

    async fn ask_at(server: SocketAddr, authority: &Authority) -> (Result<Reply, Outcome>, Trace) {
        let mut trace = Trace::default();
        let tls = authority.trust().dot;
        let reply = ask(&Dialer::direct(), &tls, server, "dot.example", &question(), &limits(), &mut trace).await;
        (reply, trace)
    }

    #[tokio::test]
    async fn a_good_endpoint_answers_and_every_stage_is_timed() {
        let authority = Authority::new();
        let server = accept(authority.server("dot.example"), |mut stream| async move {
            let length = usize::from(stream.read_u16().await.unwrap());
            let mut query = vec![0; length];
            stream.read_exact(&mut query).await.unwrap();
            let reply = answer(&query, "8.6.112.0");
            stream.write_u16(u16::try_from(reply.len()).unwrap()).await.unwrap();
            stream.write_all(&reply).await.unwrap();
        })
        .await;
        let (reply, trace) = ask_at(server, &authority).await;
        assert_eq!(reply.unwrap().outcome, Outcome::Answered);
        assert_eq!(trace.stage, Stage::Dns);
        assert!(!trace.stages.tcp.is_zero() && !trace.stages.tls.is_zero());
    }

    #[tokio::test]
    async fn the_stage_that_failed_is_named() {
        let authority = Authority::new();
        let (refused, trace) = ask_at(refused_port(), &authority).await;
        assert_eq!((refused, trace.stage), (Err(Outcome::ConnectionRefused), Stage::Tcp));

        let other_name = accept(authority.server("other.example"), |_| async {}).await;
        let (failed, trace) = ask_at(other_name, &authority).await;
        assert_eq!((failed, trace.stage), (Err(Outcome::CertificateName), Stage::Tls));

        let closes = accept(authority.server("dot.example"), |mut stream| async move {
            stream.read_u16().await.unwrap();
        })
        .await;
        let (closed, trace) = ask_at(closes, &authority).await;
        assert_eq!((closed, trace.stage), (Err(Outcome::DnsClosed), Stage::Dns));
    }

    #[tokio::test(start_paused = true)]
    async fn no_path_is_told_from_nobody_behind_the_port() {
        let authority = Authority::new();
        let (silent, _held) = silent_port().await;
        let (failed, trace) = ask_at(silent, &authority).await;
        assert_eq!((failed, trace.stage), (Err(Outcome::Silent), Stage::Tcp));

        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (failed, trace) = ask_at(listener.local_addr().unwrap(), &authority).await;
        assert_eq!((failed, trace.stage), (Err(Outcome::TlsSilent), Stage::Tls));
    }
}
