//! A place on the path between clients that behave well and the server: their
//! datagrams pass, and others are slipped in.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use clearway_quic::cid::ConnectionId;
use clearway_quic::crypto::retry::retry_tag;

use super::initial::{connection_ids, is_initial};
use super::sockets::{self, Traffic};
use super::wire::put_varint;
use super::{Attacker, Field};

/// Clients that are remembered; an older one has gone.
const CLIENTS: usize = 64;

/// Datagrams carried in one direction in a turn.
const BATCH: usize = 256;

/// Between two spoofed copies: the server asks the false address, waits for an
/// answer and comes back in that time.
const COPY_EVERY: Duration = Duration::from_millis(400);

/// Addresses that copies come from.
const ELSEWHERE: usize = 4;

/// Sizes of the tokens in forged Retry packets: also more than a packet has room
/// for, up to what a datagram of 64 KiB holds.
const TOKENS: [usize; 12] = [
    1, 16, 300, 1_000, 1_100, 1_150, 1_170, 1_200, 1_350, 4_000, 16_000, 60_000,
];

/// What is done to those who pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meddling {
    /// A copy of a genuine packet arrives from another address, and first.
    Copies,
    /// Each Initial of a client is answered by forged Retry packets, before the
    /// server's answer.
    Retry,
    /// The same with Version Negotiation.
    Negotiation,
}

/// A client and the socket towards the server that stands for it.
struct Client {
    address: SocketAddr,
    back: UdpSocket,
}

/// The relay.
pub(crate) struct Relay {
    meddling: Meddling,
    front: UdpSocket,
    server: SocketAddr,
    number: u8,
    clients: VecDeque<Client>,
    /// Where copies come from, in turns.
    elsewhere: Vec<UdpSocket>,
    copied: Instant,
    forged: u64,
    carried: u64,
    next: usize,
    traffic: Traffic,
    buffer: Vec<u8>,
}

impl Relay {
    pub(crate) fn new(field: &mut Field, meddling: Meddling) -> io::Result<Self> {
        let front = field.front.take();
        let front = front.ok_or_else(|| io::Error::other("the relay was given no socket"))?;
        Ok(Self {
            meddling,
            front,
            server: field.server,
            number: field.number,
            clients: VecDeque::new(),
            elsewhere: (1..=ELSEWHERE)
                .map(|n| sockets::bind(sockets::source(field.number, n)))
                .collect::<io::Result<_>>()?,
            copied: Instant::now(),
            forged: 0,
            carried: 0,
            next: 0,
            traffic: Traffic::default(),
            buffer: vec![0; 1 << 16],
        })
    }

    /// Carries what clients send.
    fn up(&mut self) -> io::Result<()> {
        for _ in 0..BATCH {
            let Ok((length, from)) = self.front.recv_from(&mut self.buffer) else {
                break;
            };
            let datagram = self.buffer[..length].to_vec();
            let index = self.client(from)?;
            self.meddle(from, &datagram);
            let back = &self.clients[index].back;
            if back.send_to(&datagram, self.server).is_ok() {
                self.carried += 1;
            }
        }
        Ok(())
    }

    /// Carries what the server sends.
    fn down(&mut self) {
        for client in &self.clients {
            for _ in 0..BATCH {
                let Ok((length, _)) = client.back.recv_from(&mut self.buffer) else {
                    break;
                };
                let datagram = &self.buffer[..length];
                if self.front.send_to(datagram, client.address).is_ok() {
                    self.carried += 1;
                }
            }
        }
    }

    /// Which client sends from this address.
    fn client(&mut self, address: SocketAddr) -> io::Result<usize> {
        let known = self
            .clients
            .iter()
            .position(|client| client.address == address);
        if let Some(index) = known {
            return Ok(index);
        }
        if self.clients.len() == CLIENTS {
            self.clients.pop_front();
        }
        let back = sockets::bind(sockets::source(self.number, 0))?;
        self.clients.push_back(Client { address, back });
        Ok(self.clients.len() - 1)
    }

    fn meddle(&mut self, client: SocketAddr, datagram: &[u8]) {
        match self.meddling {
            Meddling::Copies => {
                if self.copied.elapsed() >= COPY_EVERY && !is_initial(datagram) {
                    self.copied = Instant::now();
                    let from = &self.elsewhere[self.forged as usize % ELSEWHERE];
                    if from.send_to(datagram, self.server).is_ok() {
                        self.forged += 1;
                        self.traffic.add(datagram.len());
                    }
                }
            }
            Meddling::Retry | Meddling::Negotiation => {
                if is_initial(datagram)
                    && let Some((dcid, scid)) = connection_ids(datagram)
                {
                    let forgery = self.forge(&dcid, &scid);
                    if self.front.send_to(&forgery, client).is_ok() {
                        self.forged += 1;
                        self.traffic.add(forgery.len());
                    }
                }
            }
        }
    }

    fn forge(&mut self, dcid: &ConnectionId, scid: &ConnectionId) -> Vec<u8> {
        let n = self.next;
        self.next += 1;
        if self.meddling == Meddling::Retry {
            retry(dcid, scid, TOKENS[n % TOKENS.len()])
        } else {
            negotiation(dcid, scid, n)
        }
    }
}

impl Attacker for Relay {
    fn turn(&mut self, _: u64) {
        // What cannot be carried is lost, as on any path.
        let _ = self.up();
        self.down();
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn note(&self) -> String {
        format!("{} forged among {} carried", self.forged, self.carried)
    }
}

/// A Retry with a genuine tag, whose key everybody knows (RFC 9001 §5.8).
fn retry(dcid: &ConnectionId, scid: &ConnectionId, token: usize) -> Vec<u8> {
    let mut packet = long_header(0xf0, 1, scid, &[7; 8]);
    packet.resize(packet.len() + token, b't');
    let tag = retry_tag(dcid, &packet);
    packet.extend_from_slice(&tag);
    packet
}

/// Version Negotiation: one version, several, hundreds, and one that the client
/// asked for, which makes it void (RFC 9000 §6.2).
fn negotiation(dcid: &ConnectionId, scid: &ConnectionId, n: usize) -> Vec<u8> {
    let mut packet = long_header(0x80, 0, scid, dcid);
    let reserved = [0x0a, 0x0a, 0x0a, 0x0a];
    let version_2 = [0x6b, 0x33, 0x43, 0xcf];
    match n % 4 {
        0 => packet.extend_from_slice(&reserved),
        1 => packet.extend([reserved, version_2].concat()),
        2 => packet.extend(reserved.repeat(350)),
        _ => packet.extend([reserved, [0, 0, 0, 1]].concat()),
    }
    packet
}

fn long_header(first: u8, version: u32, dcid: &[u8], scid: &[u8]) -> Vec<u8> {
    let mut packet = vec![first];
    packet.extend_from_slice(&version.to_be_bytes());
    for cid in [dcid, scid] {
        put_varint(&mut packet, cid.len() as u64);
        packet.extend_from_slice(cid);
    }
    packet
}
