//! RIG1: a name server that does what a script says, over UDP and over TCP on the same port.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};

/// What it sends over UDP, and when after the query.
#[derive(Debug, Clone)]
pub(crate) struct Datagram {
    after: Duration,
    bytes: Vec<u8>,
    elsewhere: bool,
}

impl Datagram {
    pub(crate) fn now(bytes: Vec<u8>) -> Self {
        Self { after: Duration::ZERO, bytes, elsewhere: false }
    }

    pub(crate) fn after_ms(after: u64, bytes: Vec<u8>) -> Self {
        Self { after: Duration::from_millis(after), bytes, elsewhere: false }
    }

    /// From another source port.
    pub(crate) fn elsewhere(self) -> Self {
        Self { elsewhere: true, ..self }
    }
}

/// What it does on a TCP stream after a query.
#[derive(Debug, Clone)]
pub(crate) enum Write {
    Bytes(Vec<u8>),
    Pause(u64),
    /// Leaves the stream open and says no more.
    Hold,
    Close,
    /// Closes so that the peer sees a reset.
    Reset,
}

impl Write {
    /// A message with its length.
    pub(crate) fn message(message: &[u8]) -> Self {
        Self::Bytes([&u16::try_from(message.len()).unwrap().to_be_bytes()[..], message].concat())
    }
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Rig1 {
    pub(crate) address: SocketAddr,
    queries: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Rig1 {
    /// Answers each UDP query as the script says, which is given the query and how many came before.
    /// Nobody listens on TCP, and nobody else takes that port.
    pub(crate) async fn udp(script: impl Fn(&[u8], usize) -> Vec<Datagram> + Send + 'static) -> Self {
        let (socket, bound) = pair().await;
        std::mem::forget(bound);
        Self::on(socket, script)
    }

    /// As [`Self::udp`], and each query over TCP as `writes` says.
    pub(crate) async fn both(
        script: impl Fn(&[u8], usize) -> Vec<Datagram> + Send + 'static,
        writes: impl Fn(&[u8]) -> Vec<Write> + Send + Sync + 'static,
    ) -> Self {
        let (socket, bound) = pair().await;
        tokio::spawn(streams(bound.listen(16).unwrap(), Arc::new(writes)));
        Self::on(socket, script)
    }

    /// Over TCP alone.
    pub(crate) async fn tcp(writes: impl Fn(&[u8]) -> Vec<Write> + Send + Sync + 'static) -> Self {
        Self::both(|_, _| Vec::new(), writes).await
    }

    /// On a socket that is bound already.
    pub(crate) fn on(socket: UdpSocket, script: impl Fn(&[u8], usize) -> Vec<Datagram> + Send + 'static) -> Self {
        let (address, queries) = (socket.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        tokio::spawn(datagrams(Arc::new(socket), script, Arc::clone(&queries)));
        Self { address, queries }
    }

    /// The queries over UDP so far.
    pub(crate) fn queries(&self) -> Vec<Vec<u8>> {
        self.queries.lock().unwrap().clone()
    }
}

/// The same port on both protocols: it may be taken by somebody else on one of them. The TCP socket
/// is bound and does not listen: every SYN is refused.
async fn pair() -> (UdpSocket, TcpSocket) {
    loop {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let bound = TcpSocket::new_v4().unwrap();
        if bound.bind(socket.local_addr().unwrap()).is_ok() {
            return (socket, bound);
        }
    }
}

async fn datagrams(
    socket: Arc<UdpSocket>,
    script: impl Fn(&[u8], usize) -> Vec<Datagram>,
    queries: Arc<Mutex<Vec<Vec<u8>>>>,
) {
    let mut buffer = [0; 2048];
    while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
        let before = queries.lock().unwrap().len();
        queries.lock().unwrap().push(buffer[..length].to_vec());
        for datagram in script(&buffer[..length], before) {
            let socket = Arc::clone(&socket);
            if datagram.after.is_zero() {
                send(&socket, from, &datagram).await;
            } else {
                tokio::spawn(async move {
                    tokio::time::sleep(datagram.after).await;
                    send(&socket, from, &datagram).await;
                });
            }
        }
    }
}

async fn send(socket: &UdpSocket, to: SocketAddr, datagram: &Datagram) {
    if datagram.elsewhere {
        let other = UdpSocket::bind((socket.local_addr().unwrap().ip(), 0)).await.unwrap();
        other.send_to(&datagram.bytes, to).await.unwrap();
    } else {
        socket.send_to(&datagram.bytes, to).await.unwrap();
    }
}

async fn streams(listener: TcpListener, writes: Arc<impl Fn(&[u8]) -> Vec<Write> + Send + Sync + 'static>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(one_stream(stream, Arc::clone(&writes)));
    }
}

async fn one_stream(mut stream: TcpStream, writes: Arc<impl Fn(&[u8]) -> Vec<Write> + Send + Sync + 'static>) {
    stream.set_nodelay(true).unwrap();
    while let Ok(length) = stream.read_u16().await {
        let mut query = vec![0; usize::from(length)];
        if stream.read_exact(&mut query).await.is_err() {
            return;
        }
        for write in writes(&query) {
            match write {
                Write::Bytes(bytes) => {
                    if stream.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
                Write::Pause(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
                Write::Hold => std::future::pending().await,
                Write::Close => return,
                Write::Reset => {
                    stream.set_zero_linger().unwrap();
                    return;
                }
            }
        }
    }
}

/// A reply, byte by byte, so that it can be as wrong as a test needs it.
#[derive(Debug, Clone)]
pub(crate) struct Said {
    id: [u8; 2],
    flags: u16,
    question: Option<Vec<u8>>,
    sections: [(u16, Vec<u8>); 3],
}

/// The three sections.
#[derive(Debug, Clone, Copy)]
pub(crate) enum In {
    Answer,
    Authority,
    Additional,
}

impl Said {
    /// To this query, with its question, QR, RD and RA.
    pub(crate) fn to(query: &[u8]) -> Self {
        let end = query[12..].iter().position(|byte| *byte == 0).unwrap() + 12 + 5;
        Self {
            id: [query[0], query[1]],
            flags: 0x8180,
            question: Some(query[12..end].to_vec()),
            sections: Default::default(),
        }
    }

    pub(crate) fn asks_with_edns(query: &[u8]) -> bool {
        query[11] == 1
    }

    pub(crate) fn rcode(mut self, rcode: u16) -> Self {
        self.flags = self.flags & !0xf | rcode;
        self
    }

    /// Sets and clears bits of the header's second word.
    pub(crate) fn flags(mut self, set: u16, clear: u16) -> Self {
        self.flags = self.flags & !clear | set;
        self
    }

    pub(crate) fn cut(self) -> Self {
        self.flags(0x0200, 0)
    }

    pub(crate) fn other_id(mut self) -> Self {
        self.id[0] ^= 0xff;
        self
    }

    pub(crate) fn without_question(mut self) -> Self {
        self.question = None;
        self
    }

    /// For another name; the type stays.
    pub(crate) fn question_name(mut self, name: &str) -> Self {
        let question = self.question.take().unwrap();
        let tail = &question[question.len() - 4..];
        self.question = Some([&wire_name(name)[..], tail].concat());
        self
    }

    pub(crate) fn upper_case(mut self) -> Self {
        self.question.as_mut().unwrap().make_ascii_uppercase();
        self
    }

    pub(crate) fn record(mut self, section: In, name: &str, rtype: u16, ttl: u32, data: &[u8]) -> Self {
        let (count, bytes) = &mut self.sections[section as usize];
        *count += 1;
        bytes.extend(wire_name(name));
        bytes.extend(rtype.to_be_bytes());
        bytes.extend(1u16.to_be_bytes());
        bytes.extend(ttl.to_be_bytes());
        bytes.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
        bytes.extend(data);
        self
    }

    /// An A or AAAA record of `example.com`.
    pub(crate) fn address(self, address: &str, ttl: u32) -> Self {
        self.address_of("example.com", address, ttl)
    }

    pub(crate) fn address_of(self, name: &str, address: &str, ttl: u32) -> Self {
        match address.parse::<IpAddr>().unwrap() {
            IpAddr::V4(v4) => self.record(In::Answer, name, 1, ttl, &v4.octets()),
            IpAddr::V6(v6) => self.record(In::Answer, name, 28, ttl, &v6.octets()),
        }
    }

    pub(crate) fn alias(self, name: &str, target: &str) -> Self {
        self.record(In::Answer, name, 5, 60, &wire_name(target))
    }

    pub(crate) fn name_server(self, zone: &str, server: &str) -> Self {
        self.record(In::Authority, zone, 2, 60, &wire_name(server))
    }

    pub(crate) fn soa(self, zone: &str, ttl: u32, minimum: u32) -> Self {
        let numbers = [2026, 3600, 600, 86400, minimum].map(u32::to_be_bytes).concat();
        let data = [wire_name("ns.example.com"), wire_name("hostmaster.example.com"), numbers].concat();
        self.record(In::Authority, zone, 6, ttl, &data)
    }

    /// An OPT record with the upper part of the code and options.
    pub(crate) fn opt(mut self, rcode_high: u8, options: &[(u16, &[u8])]) -> Self {
        let mut data = Vec::new();
        for (code, value) in options {
            data.extend(code.to_be_bytes());
            data.extend(u16::try_from(value.len()).unwrap().to_be_bytes());
            data.extend(*value);
        }
        let (count, bytes) = &mut self.sections[In::Additional as usize];
        *count += 1;
        bytes.extend([0, 0, 41, 4, 208, rcode_high, 0, 0, 0]);
        bytes.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
        bytes.extend(data);
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.id.to_vec();
        bytes.extend(self.flags.to_be_bytes());
        bytes.extend(u16::from(self.question.is_some()).to_be_bytes());
        for (count, _) in &self.sections {
            bytes.extend(count.to_be_bytes());
        }
        bytes.extend(self.question.iter().flatten());
        for (_, records) in &self.sections {
            bytes.extend(records);
        }
        bytes
    }
}

fn wire_name(name: &str) -> Vec<u8> {
    let mut wire = Vec::new();
    for label in name.split('.').filter(|label| !label.is_empty()) {
        wire.push(u8::try_from(label.len()).unwrap());
        wire.extend(label.as_bytes());
    }
    wire.push(0);
    wire
}
