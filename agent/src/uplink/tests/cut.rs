//! A hop on the way that speaks HTTP/2 itself: it can fall silent, drop what it likes, and end
//! streams, each at the boundary of a frame (RFC 9113, 4.1).

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream};
use tokio::sync::{mpsc, watch};

/// What the hop does to the connections it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// Nothing: everything passes.
    Pass,
    /// Not a byte passes any more, and nothing is closed.
    Freeze,
    /// Pings and settings pass, what streams carry does not.
    PingsOnly,
    /// The stream is reset (RST_STREAM).
    Reset,
    /// The connection is wound up (GOAWAY with an error), not closed.
    GoAway,
}

/// Frame types.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const GOAWAY: u8 = 7;

/// Length of the client's preface (RFC 9113, 3.4).
const PREFACE: usize = 24;

/// The server's end of a connection that passes through a hop.
pub(super) fn through(outer: impl AsyncRead + AsyncWrite + Send + 'static, cut: watch::Receiver<Cut>) -> DuplexStream {
    let (inner, ours) = tokio::io::duplex(256 << 10);
    let (from_agent, to_agent) = tokio::io::split(outer);
    let (from_server, to_server) = tokio::io::split(ours);
    tokio::spawn(pass(from_agent, to_server, cut.clone(), PREFACE));
    tokio::spawn(pass(from_server, to_agent, cut, 0));
    inner
}

async fn pass(
    mut from: impl AsyncRead + Unpin + Send + 'static,
    mut to: impl AsyncWrite + Unpin,
    mut cut: watch::Receiver<Cut>,
    preface: usize,
) -> io::Result<()> {
    let towards_agent = preface == 0;
    let mut head = vec![0; preface];
    from.read_exact(&mut head).await?;
    to.write_all(&head).await?;
    let (send, mut frames) = mpsc::channel(16);
    tokio::spawn(async move {
        while let Ok(frame) = read_frame(&mut from).await {
            if send.send(frame).await.is_err() {
                return;
            }
        }
    });
    loop {
        let now = *cut.borrow_and_update();
        match now {
            Cut::Pass | Cut::PingsOnly => {}
            Cut::Freeze => std::future::pending().await,
            // RST_STREAM of stream 1 with code CANCEL.
            Cut::Reset if towards_agent => to.write_all(&[0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 8]).await?,
            // Last stream 0, code ENHANCE_YOUR_CALM.
            Cut::GoAway if towards_agent => {
                to.write_all(&[0, 0, 8, GOAWAY, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11]).await?;
            }
            Cut::Reset | Cut::GoAway => {}
        }
        if matches!(now, Cut::Reset | Cut::GoAway) {
            // From here on the hop takes what comes and does nothing with it.
            while frames.recv().await.is_some() {}
            std::future::pending::<()>().await;
        }
        tokio::select! {
            frame = frames.recv() => match frame {
                None => return to.shutdown().await,
                Some(frame) if now == Cut::PingsOnly && matches!(frame[3], DATA | HEADERS) => {}
                Some(frame) => to.write_all(&frame).await?,
            },
            changed = cut.changed() => if changed.is_err() { std::future::pending::<()>().await },
        }
    }
}

async fn read_frame(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; 9];
    from.read_exact(&mut frame).await?;
    let length = usize::from(frame[0]) << 16 | usize::from(frame[1]) << 8 | usize::from(frame[2]);
    frame.resize(9 + length, 0);
    from.read_exact(&mut frame[9..]).await?;
    Ok(frame)
}
