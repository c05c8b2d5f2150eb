//! TLS over a connection: its handshake and its records. rustls does all of TLS; here is only where bytes wait. Its own
//! buffers keep 4 KiB for each connection (`READ_SIZE`), also of one that is quiet for weeks. Through its unbuffered
//! interface records are opened where they were read, on the stack, and what is kept is what has not come in full, has not
//! been taken, or has not been sent: nothing, most of the time.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::ServerConfig;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls_pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Read at once, in bytes.
const READ_BYTES: usize = 8 << 10;

/// Plain bytes sealed into one record at most (RFC 8446, 5.1).
const RECORD_BYTES_MAX: usize = 16 << 10;

/// Bytes that did not come in full yet: a handshake's message of up to 64 KiB, which is where rustls stops, or a record.
const UNREAD_BYTES_MAX: usize = 68 << 10;

/// A connection under TLS.
pub(super) struct Records {
    tcp: TcpStream,
    tls: UnbufferedServerConnection,
    /// As they came, and not in full yet.
    unread: Vec<u8>,
    /// Opened and not taken yet.
    opened: Waiting,
    /// Sealed and not sent yet.
    sealed: Waiting,
    /// The other end said that nothing more comes.
    ended: bool,
    /// We did.
    closed: bool,
}

impl std::fmt::Debug for Records {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Records").field("tcp", &self.tcp).finish_non_exhaustive()
    }
}

/// Bytes on their way. Holds no memory while there are none.
#[derive(Debug, Default)]
struct Waiting {
    bytes: Vec<u8>,
    gone: usize,
}

impl Waiting {
    fn rest(&self) -> &[u8] {
        self.bytes.get(self.gone..).unwrap_or_default()
    }

    fn take(&mut self, count: usize) {
        self.gone += count;
        if self.gone >= self.bytes.len() {
            *self = Self::default();
        }
    }

    /// Adds what `write` makes of room for so many bytes; it says how many they are.
    fn add<E>(&mut self, room: usize, write: impl FnOnce(&mut [u8]) -> Result<usize, E>) -> Result<(), E> {
        let before = self.bytes.len();
        self.bytes.resize(before + room, 0);
        let written = write(self.bytes.get_mut(before..).unwrap_or_default());
        self.bytes.truncate(before + written.as_ref().map_or(0, |written| *written));
        written.map(|_| ())
    }
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// What is to be sealed once TLS lets us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seal<'a> {
    Nothing,
    Data(&'a [u8]),
    Close,
}

impl Records {
    /// Shakes hands.
    ///
    /// # Errors
    /// When the connection breaks, or TLS refuses; the other end is then told why.
    pub(super) async fn accept(config: Arc<ServerConfig>, tcp: TcpStream) -> io::Result<Self> {
        let tls = UnbufferedServerConnection::new(config).map_err(io::Error::other)?;
        let (opened, sealed) = (Waiting::default(), Waiting::default());
        let mut records = Self { tcp, tls, unread: Vec::new(), opened, sealed, ended: false, closed: false };
        while records.tls.is_handshaking() {
            if poll_fn(|context| records.poll_open(context, None)).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            poll_fn(|context| records.poll_send(context)).await?;
        }
        Ok(records)
    }

    /// What the other end showed, its own first; none: nothing.
    pub(super) fn peer_certificates(&self) -> Option<&[CertificateDer<'static>]> {
        self.tls.peer_certificates()
    }

    /// Reads once and opens what is complete: as much of it as fits into `into`, the rest to be taken later. Says how many
    /// bytes were read. The other end is told what TLS has against it, if that can still be said.
    fn poll_open(&mut self, context: &mut Context<'_>, into: Option<&mut ReadBuf<'_>>) -> Poll<io::Result<usize>> {
        let read = ready!(self.poll_read_once(context, into));
        if read.is_err() {
            let _ = self.proceed(None, Seal::Nothing);
            let _ = self.poll_send(context);
        }
        Poll::Ready(read)
    }

    fn poll_read_once(&mut self, context: &mut Context<'_>, into: Option<&mut ReadBuf<'_>>) -> Poll<io::Result<usize>> {
        let mut fresh = [0; READ_BYTES];
        let mut fresh = ReadBuf::new(&mut fresh);
        ready!(Pin::new(&mut self.tcp).poll_read(context, &mut fresh))?;
        let fresh = fresh.filled_mut();
        let count = fresh.len();
        if self.unread.is_empty() {
            let used = self.process(fresh, into, Seal::Nothing)?;
            self.unread = fresh.get(used..).unwrap_or_default().to_vec();
        } else {
            self.unread.extend_from_slice(fresh);
            self.proceed(into, Seal::Nothing)?;
        }
        if self.unread.len() > UNREAD_BYTES_MAX {
            return Poll::Ready(Err(invalid("a message of TLS is too long")));
        }
        Poll::Ready(Ok(count))
    }

    /// Goes on with what is unread.
    fn proceed(&mut self, into: Option<&mut ReadBuf<'_>>, seal: Seal<'_>) -> io::Result<()> {
        let mut unread = std::mem::take(&mut self.unread);
        let used = self.process(&mut unread, into, seal)?;
        if used < unread.len() {
            unread.drain(..used);
            self.unread = unread;
        }
        Ok(())
    }

    /// Has TLS go as far as it can with these bytes; says how many of them it is done with.
    fn process(
        &mut self,
        incoming: &mut [u8],
        mut into: Option<&mut ReadBuf<'_>>,
        mut seal: Seal<'_>,
    ) -> io::Result<usize> {
        let mut used = 0;
        loop {
            let UnbufferedStatus { mut discard, state } =
                self.tls.process_tls_records(incoming.get_mut(used..).unwrap_or_default());
            let goes_on = match state.map_err(invalid)? {
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record.map_err(invalid)?;
                        discard += record.discard;
                        let fits = into.as_ref().map_or(0, |into| into.remaining()).min(record.payload.len());
                        // What waits already goes first.
                        let fits = if self.opened.rest().is_empty() { fits } else { 0 };
                        let (now, later) = record.payload.split_at_checked(fits).unwrap_or((&[], record.payload));
                        if let Some(into) = &mut into {
                            into.put_slice(now);
                        }
                        self.opened.bytes.extend_from_slice(later);
                    }
                    true
                }
                ConnectionState::EncodeTlsData(mut data) => {
                    let room = match data.encode(&mut []) {
                        Err(EncodeError::InsufficientSize(more)) => more.required_size,
                        Ok(_) | Err(EncodeError::AlreadyEncoded) => 0,
                    };
                    self.sealed.add(room, |bytes| data.encode(bytes)).map_err(io::Error::other)?;
                    true
                }
                ConnectionState::TransmitTlsData(data) => {
                    // It stands before everything that is sealed later.
                    data.done();
                    true
                }
                ConnectionState::PeerClosed => {
                    self.ended = true;
                    true
                }
                ConnectionState::WriteTraffic(mut traffic) => {
                    let sealed = match std::mem::replace(&mut seal, Seal::Nothing) {
                        Seal::Nothing => Ok(()),
                        Seal::Data(data) => {
                            let room = match traffic.encrypt(data, &mut []) {
                                Err(EncryptError::InsufficientSize(more)) => more.required_size,
                                Ok(_) | Err(EncryptError::EncryptExhausted) => 0,
                            };
                            self.sealed.add(room, |bytes| traffic.encrypt(data, bytes))
                        }
                        Seal::Close => {
                            let room = match traffic.queue_close_notify(&mut []) {
                                Err(EncryptError::InsufficientSize(more)) => more.required_size,
                                Ok(_) | Err(EncryptError::EncryptExhausted) => 0,
                            };
                            self.sealed.add(room, |bytes| traffic.queue_close_notify(bytes))
                        }
                    };
                    sealed.map_err(io::Error::other)?;
                    false
                }
                ConnectionState::BlockedHandshake | ConnectionState::Closed => false,
                // It is not offered.
                ConnectionState::ReadEarlyData(_) => return Err(invalid("early data")),
                // Their enum, not ours: what later versions of rustls may say.
                _ => return Err(invalid("a state of TLS that is not known here")),
            };
            used += discard;
            if !goes_on {
                break;
            }
        }
        match seal {
            Seal::Nothing | Seal::Close => Ok(used),
            // After the end of either side.
            Seal::Data(_) => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Ready when all that is sealed is with the kernel.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.sealed.rest().is_empty() {
            let sent = ready!(Pin::new(&mut self.tcp).poll_write(context, self.sealed.rest()))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sealed.take(sent);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Records {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        loop {
            let rest = self.opened.rest();
            let now = rest.get(..rest.len().min(buffer.remaining())).unwrap_or_default();
            let count = now.len();
            buffer.put_slice(now);
            if count > 0 {
                self.opened.take(count);
            }
            if buffer.filled().len() > before || buffer.remaining() == 0 || self.ended {
                return Poll::Ready(Ok(()));
            }
            if ready!(self.poll_open(context, Some(buffer)))? == 0 {
                // It broke off: without a word of TLS nobody knows whether that was all.
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            // What TLS itself answers; what the socket does not take now goes with the next that is sent.
            if let Poll::Ready(sent) = self.poll_send(context) {
                sent?;
            }
        }
    }
}

impl AsyncWrite for Records {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_send(context))?;
        let part = bytes.get(..bytes.len().min(RECORD_BYTES_MAX)).unwrap_or_default();
        if !part.is_empty() {
            self.proceed(None, Seal::Data(part))?;
        }
        // It is taken; what the socket does not take now goes with the flush.
        if let Poll::Ready(sent) = self.poll_send(context) {
            sent?;
        }
        Poll::Ready(Ok(part.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_send(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.closed {
            self.closed = true;
            self.proceed(None, Seal::Close)?;
        }
        ready!(self.poll_send(context))?;
        Pin::new(&mut self.tcp).poll_shutdown(context)
    }
}
