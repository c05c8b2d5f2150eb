//! The exchange over a stream: messages with a two-byte length before each (RFC 1035, 4.2.2).

use parallax_decide::observation::{Outcome, Stage};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::clock::{now, since};
use crate::entropy::message_id;
use crate::measured::{Carrier, OddKind, OddReply};
use crate::probe::ask::Trace;
use crate::probe::message::{Question, Reply, Unfit};
use crate::probe::trouble::trouble;

/// Messages that are read before the one that answers; a server that sends more does not answer us.
const MESSAGES_MAX: usize = 16;

/// Asks over a stream that is open. Messages with another id are stepped over: answers may come in
/// any order. A server that does not take EDNS is asked once more without, on the same stream.
///
/// # Errors
/// How the exchange failed.
pub async fn framed<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    carrier: Carrier,
    edns: bool,
    question: &Question,
    trace: &mut Trace,
) -> Result<Reply, Outcome> {
    let begun = now();
    let mut with_edns = edns;
    let mut id = send(stream, question, with_edns).await?;
    for _ in 0..MESSAGES_MAX {
        let bytes = receive(stream).await?;
        let read = question.read(id, &bytes);
        match &read {
            Err(Unfit::OtherId) => {
                let addresses = question.glimpse(&bytes);
                trace.odd(OddReply { kind: OddKind::OtherId, after: since(begun), addresses });
                continue;
            }
            Ok(reply) if reply.format_error && with_edns => {
                with_edns = false;
                if let Ok(again) = send(stream, question, with_edns).await {
                    id = again;
                    continue;
                }
            }
            Ok(_) | Err(Unfit::OtherQuestion | Unfit::WithoutQuestion | Unfit::Malformed) => {}
        }
        trace.stages.dns = since(begun);
        trace.reply.without_edns = !with_edns;
        return trace.settle(carrier, &bytes, read);
    }
    Err(Outcome::Malformed)
}

/// Sends the question; the id that the reply must have.
async fn send<S: AsyncWrite + Unpin>(stream: &mut S, question: &Question, edns: bool) -> Result<u16, Outcome> {
    let named = |error: std::io::Error| trouble(&error).at(Stage::Dns);
    let id = message_id().map_err(|_| Outcome::OwnTrouble)?;
    let message = question.message(id, edns).ok_or(Outcome::OwnTrouble)?;
    let length = u16::try_from(message.len()).map_err(|_| Outcome::OwnTrouble)?;
    // One write: some servers take the length alone as a whole message.
    let framed = [length.to_be_bytes().as_slice(), &message].concat();
    stream.write_all(&framed).await.map_err(named)?;
    stream.flush().await.map_err(named)?;
    Ok(id)
}

/// Reads one message. Room for it grows with the bytes that come, not with what the length promises.
async fn receive<S: AsyncRead + Unpin>(stream: &mut S) -> Result<Vec<u8>, Outcome> {
    let named = |error: std::io::Error| trouble(&error).at(Stage::Dns);
    let length = stream.read_u16().await.map_err(named)?;
    let mut bytes = Vec::new();
    stream.take(u64::from(length)).read_to_end(&mut bytes).await.map_err(named)?;
    if bytes.len() < usize::from(length) { Err(Outcome::DnsClosed) } else { Ok(bytes) }
}
