//! A UDP proxy that records what passes, and what the headers of it show.

use std::{
    collections::{BTreeSet, HashMap},
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use clearway_quic::wire::{PartialHeader, Version, header::HeaderKind};

/// Length of the connection IDs that Clearway issues.
const CID_LEN: usize = 8;

/// How long a thread waits for a datagram before it looks whether the capture has ended.
const POLL: Duration = Duration::from_millis(20);

/// Who sent a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sender {
    Client,
    Server,
}

type Datagrams = Arc<Mutex<Vec<(Sender, Vec<u8>)>>>;

/// A proxy before a server.
pub(crate) struct Capture {
    pub(crate) port: u16,
    datagrams: Datagrams,
    ended: Arc<AtomicBool>,
}

impl Capture {
    /// Begins to forward and to record.
    pub(crate) fn before(server: u16) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let port = socket.local_addr().expect("an address").port();
        let (datagrams, ended) = (Datagrams::default(), Arc::new(AtomicBool::new(false)));
        let this = Self {
            port,
            datagrams: datagrams.clone(),
            ended: ended.clone(),
        };
        thread::spawn(move || forward(&socket, server, &datagrams, &ended));
        this
    }

    /// Returns the packets with long headers, in order.
    pub(crate) fn long_headers(&self) -> Vec<(Sender, PartialHeader, Vec<u8>)> {
        let datagrams = self.datagrams.lock().expect("no panic");
        let mut headers = Vec::new();
        for (sender, datagram) in &*datagrams {
            let mut rest = &datagram[..];
            while let Ok(header) = PartialHeader::parse(rest, CID_LEN) {
                if matches!(header.kind, HeaderKind::Short { .. }) {
                    break;
                }
                let (packet, tail) = rest.split_at(header.packet_len);
                headers.push((*sender, header, packet.to_vec()));
                rest = tail;
            }
        }
        headers
    }

    /// Returns the number of connections that the client began: each has a connection ID of its
    /// own.
    pub(crate) fn connections(&self) -> usize {
        let of_client = self.long_headers().into_iter();
        of_client
            .filter(|(sender, ..)| *sender == Sender::Client)
            .map(|(_, header, packet)| header.scid.of(&packet).to_vec())
            .collect::<BTreeSet<_>>()
            .len()
    }

    /// Returns the versions of the long headers that `sender` sent, Version Negotiation aside.
    pub(crate) fn versions(&self, sender: Sender) -> Vec<Version> {
        let all = self.long_headers().into_iter();
        let mut versions: Vec<_> = all
            .filter(|(by, ..)| *by == sender)
            .map(|(_, header, _)| header.version)
            .collect();
        versions.dedup();
        versions
    }

    /// Returns the tokens of Retry packets.
    pub(crate) fn retry_tokens(&self) -> Vec<Vec<u8>> {
        let all = self.long_headers().into_iter();
        all.filter_map(|(_, header, packet)| match header.kind {
            HeaderKind::Retry { token, .. } => Some(token.of(&packet).to_vec()),
            _ => None,
        })
        .collect()
    }

    /// Returns the tokens of the client's Initial packets.
    pub(crate) fn initial_tokens(&self) -> Vec<Vec<u8>> {
        let all = self.long_headers().into_iter();
        all.filter_map(|(sender, header, packet)| match header.kind {
            HeaderKind::Initial { token } if sender == Sender::Client => {
                Some(token.of(&packet).to_vec())
            }
            _ => None,
        })
        .collect()
    }

    /// Returns the bytes of all 0-RTT packets.
    pub(crate) fn early_bytes(&self) -> usize {
        let all = self.long_headers().into_iter();
        all.filter(|(_, header, _)| header.kind == HeaderKind::ZeroRtt)
            .map(|(.., packet)| packet.len())
            .sum()
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

/// Forwards between clients and the server until the capture has ended.
fn forward(socket: &UdpSocket, server: u16, datagrams: &Datagrams, ended: &Arc<AtomicBool>) {
    socket.set_read_timeout(Some(POLL)).expect("a timeout");
    let mut clients: HashMap<SocketAddr, UdpSocket> = HashMap::new();
    let mut buffer = [0; 65_535];
    while !ended.load(Ordering::Relaxed) {
        let Ok((len, client)) = socket.recv_from(&mut buffer) else {
            continue;
        };
        let upstream = clients.entry(client).or_insert_with(|| {
            let upstream = UdpSocket::bind("127.0.0.1:0").expect("a socket");
            upstream.connect(("127.0.0.1", server)).expect("connects");
            let (back, own) = (
                socket.try_clone().expect("a socket"),
                upstream.try_clone().expect("a socket"),
            );
            let (datagrams, ended) = (datagrams.clone(), ended.clone());
            thread::spawn(move || backward(&own, &back, client, &datagrams, &ended));
            upstream
        });
        let datagram = &buffer[..len];
        record(datagrams, Sender::Client, datagram);
        // A full queue or a server that has gone is a loss.
        let _ = upstream.send(datagram);
    }
}

fn backward(
    upstream: &UdpSocket,
    socket: &UdpSocket,
    client: SocketAddr,
    datagrams: &Datagrams,
    ended: &AtomicBool,
) {
    upstream.set_read_timeout(Some(POLL)).expect("a timeout");
    let mut buffer = [0; 65_535];
    while !ended.load(Ordering::Relaxed) {
        if let Ok(len) = upstream.recv(&mut buffer) {
            let datagram = &buffer[..len];
            record(datagrams, Sender::Server, datagram);
            let _ = socket.send_to(datagram, client);
        }
    }
}

fn record(datagrams: &Datagrams, sender: Sender, datagram: &[u8]) {
    let mut datagrams = datagrams.lock().expect("no panic");
    datagrams.push((sender, datagram.to_vec()));
}
