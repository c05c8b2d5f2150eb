//! Questions of any type to the resolver under test, with signatures and without its own validation.

use std::net::SocketAddr;
use std::time::Duration;

use domain::base::iana::Rtype;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

use super::name::Canonical;
use super::records::Records;
use crate::assignment::{Resolver, Transport};
use crate::entropy::message_id;
use crate::probe::Limits;
use crate::probe::ask::{Trace, allowance};
use crate::probe::channel::Channel;
use crate::probe::message::UDP_PAYLOAD;
use crate::probe::plain::Choice;
use crate::site::Site;

/// Most questions of one validation: a chain from the root has two for each zone.
const QUESTIONS_MAX: usize = 24;

/// How long one datagram is waited for before it is sent again, and how often it is sent.
const DATAGRAM_WAIT: Duration = Duration::from_millis(800);
const DATAGRAMS: usize = 3;

/// Messages that are read from a stream before the one that answers.
const MESSAGES_MAX: usize = 16;

/// Room for one datagram, in bytes.
const DATAGRAM_BYTES: usize = 4096;

/// The way to a resolver.
pub(super) struct Fetch<'a> {
    site: &'a Site,
    way: Way<'a>,
    left: usize,
}

enum Way<'a> {
    Plain(SocketAddr, Choice),
    Channel(Box<Channel>, &'a Resolver, SocketAddr),
}

/// Nothing usable came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unfetched;

impl<'a> Fetch<'a> {
    /// To the server that gave the answer; `None`: it cannot be asked such questions.
    pub(super) async fn open(
        site: &'a Site,
        limits: &Limits,
        resolver: &'a Resolver,
        server: std::net::IpAddr,
    ) -> Option<Self> {
        let way = match &resolver.transport {
            Transport::Live => {
                let server = site.live.servers().into_iter().find(|one| one.ip() == server)?;
                Way::Plain(server, Choice::Own)
            }
            Transport::Plain { server } => Way::Plain(*server, Choice::Assigned),
            Transport::Tcp { .. } | Transport::Dot { .. } | Transport::Doh(_) => {
                let mut trace = Trace::default();
                let channel = Box::pin(Channel::open(site, limits, resolver, &mut trace)).await.ok()?;
                Way::Channel(Box::new(channel), resolver, SocketAddr::new(trace.address, 0))
            }
        };
        Some(Self { site, way, left: QUESTIONS_MAX })
    }

    /// Asks one question.
    pub(super) async fn get(&mut self, name: &Canonical, rtype: Rtype) -> Result<Records, Unfetched> {
        self.left = self.left.checked_sub(1).ok_or(Unfetched)?;
        let site = self.site;
        let bytes = match &mut self.way {
            Way::Plain(server, choice) => {
                allowance(site, server.ip()).map_err(|_| Unfetched)?;
                plain(site, *server, *choice, name, rtype).await?
            }
            Way::Channel(channel, resolver, server) => {
                allowance(site, server.ip()).map_err(|_| Unfetched)?;
                match channel.as_mut() {
                    Channel::Tcp(stream) => stream_exchange(stream, name, rtype).await?,
                    Channel::Tls(stream) => stream_exchange(stream, name, rtype).await?,
                    Channel::Http(http) => match &resolver.transport {
                        Transport::Doh(endpoint) => {
                            let question = question(0, name, rtype);
                            let answer = http.exchange_message(endpoint, question).await.map_err(|_| Unfetched)?;
                            fits(&answer, 0, name, rtype).then(|| answer.to_vec()).ok_or(Unfetched)?
                        }
                        Transport::Live | Transport::Plain { .. } | Transport::Tcp { .. } | Transport::Dot { .. } => {
                            return Err(Unfetched);
                        }
                    },
                    Channel::Datagrams(_) => return Err(Unfetched),
                }
            }
        };
        Records::read(&bytes).ok_or(Unfetched)
    }
}

/// A recursive question with EDNS, DO and CD: signatures are wanted, the resolver's own judgement is not.
fn question(id: u16, name: &Canonical, rtype: Rtype) -> Vec<u8> {
    let mut message = id.to_be_bytes().to_vec();
    message.extend([0x01, 0x10, 0, 1, 0, 0, 0, 0, 0, 1]);
    message.extend(name.wire());
    message.extend(rtype.to_int().to_be_bytes());
    message.extend([0, 1]);
    // OPT: the root, its type, the size we take, no extension of the code, version 0, DO.
    message.extend([0, 0, 41]);
    message.extend(UDP_PAYLOAD.to_be_bytes());
    message.extend([0, 0, 0x80, 0, 0, 0]);
    message
}

/// Whether a message is a reply to the question.
fn fits(bytes: &[u8], id: u16, name: &Canonical, rtype: Rtype) -> bool {
    let asked = question(id, name, rtype);
    // Its question stands after the header in both, in whatever case.
    let end = 12 + name.wire().len() + 4;
    let same = |from: usize, to: usize| match (bytes.get(from..to), asked.get(from..to)) {
        (Some(one), Some(other)) => one.eq_ignore_ascii_case(other),
        (None, _) | (_, None) => false,
    };
    let is_reply = bytes.get(2).is_some_and(|flags| flags & 0x80 != 0);
    bytes.get(..2) == Some(&id.to_be_bytes()) && is_reply && same(4, 6) && same(12, end)
}

async fn plain(
    site: &Site,
    server: SocketAddr,
    choice: Choice,
    name: &Canonical,
    rtype: Rtype,
) -> Result<Vec<u8>, Unfetched> {
    let sent = match choice {
        Choice::Assigned => site.dialer.datagrams(server),
        Choice::Own => site.dialer.datagrams_own(server),
    };
    let (socket, to) = sent.map_err(|_| Unfetched)?;
    let id = message_id().map_err(|_| Unfetched)?;
    let mut buffer = vec![0; DATAGRAM_BYTES];
    for _ in 0..DATAGRAMS {
        socket.send_to(&question(id, name, rtype), to).await.map_err(|_| Unfetched)?;
        let answer = async {
            loop {
                let Ok((length, from)) = socket.recv_from(&mut buffer).await else { return None };
                let ours = (from.ip(), from.port()) == (to.ip(), to.port())
                    && buffer.get(..length).is_some_and(|bytes| fits(bytes, id, name, rtype));
                if ours {
                    return Some(length);
                }
            }
        };
        match timeout(DATAGRAM_WAIT, answer).await {
            Ok(Some(length)) => {
                buffer.truncate(length);
                if buffer.get(2).is_some_and(|flags| flags & 0x02 == 0) {
                    return Ok(buffer);
                }
                let stream = match choice {
                    Choice::Assigned => site.dialer.tcp(server).await,
                    Choice::Own => site.dialer.tcp_own(server).await,
                };
                return stream_exchange(&mut stream.map_err(|_| Unfetched)?, name, rtype).await;
            }
            Ok(None) => return Err(Unfetched),
            Err(_) => {}
        }
    }
    Err(Unfetched)
}

async fn stream_exchange<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    name: &Canonical,
    rtype: Rtype,
) -> Result<Vec<u8>, Unfetched> {
    let id = message_id().map_err(|_| Unfetched)?;
    let message = question(id, name, rtype);
    let length = u16::try_from(message.len()).map_err(|_| Unfetched)?;
    let framed = [length.to_be_bytes().as_slice(), &message].concat();
    stream.write_all(&framed).await.map_err(|_| Unfetched)?;
    stream.flush().await.map_err(|_| Unfetched)?;
    for _ in 0..MESSAGES_MAX {
        let length = stream.read_u16().await.map_err(|_| Unfetched)?;
        let mut bytes = Vec::new();
        stream.take(u64::from(length)).read_to_end(&mut bytes).await.map_err(|_| Unfetched)?;
        if bytes.len() < usize::from(length) {
            return Err(Unfetched);
        }
        if fits(&bytes, id, name, rtype) {
            return Ok(bytes);
        }
    }
    Err(Unfetched)
}
