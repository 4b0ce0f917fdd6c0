//! An attacker on the path between clients and the server, who forwards their datagrams
//! and adds others.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use clearway_quic::cid::ConnectionId;
use clearway_quic::testing::retry_tag;

use super::initial::{connection_ids, is_initial};
use super::sockets::{self, Traffic};
use super::wire::put_varint;
use super::{Attacker, Context};

/// Most clients that are remembered.
const CLIENTS: usize = 64;

/// Most datagrams forwarded in one direction in a turn.
const BATCH: usize = 256;

/// Interval between two spoofed copies: long enough for the server to probe the spoofed
/// address and to return.
const COPY_EVERY: Duration = Duration::from_millis(400);

/// Number of spoofed addresses.
const ELSEWHERE: usize = 4;

/// Sizes of the tokens in forged Retry packets, also larger than fits into an Initial.
const TOKENS: [usize; 12] = [
    1, 16, 300, 1_000, 1_100, 1_150, 1_170, 1_200, 1_350, 4_000, 16_000, 60_000,
];

/// What the attacker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meddling {
    /// Sends a copy of a genuine packet from another address, ahead of the packet.
    Copies,
    /// Answers a client's Initials with forged Retry packets, ahead of the server.
    Retry,
    /// Answers a client's Initials with forged Version Negotiation packets.
    Negotiation,
}

/// A client and the socket that represents it towards the server.
struct Client {
    address: SocketAddr,
    back: UdpSocket,
}

/// Forwards datagrams and attacks.
pub(crate) struct Relay {
    meddling: Meddling,
    front: UdpSocket,
    server: SocketAddr,
    number: u8,
    clients: VecDeque<Client>,
    /// Sockets with spoofed addresses.
    elsewhere: Vec<UdpSocket>,
    copied: Instant,
    forged: u64,
    carried: u64,
    next: usize,
    traffic: Traffic,
    buffer: Vec<u8>,
}

impl Relay {
    pub(crate) fn new(context: &mut Context, meddling: Meddling) -> io::Result<Self> {
        let front = context.front.take();
        let front = front.ok_or_else(|| io::Error::other("the relay has no socket for clients"))?;
        Ok(Self {
            meddling,
            front,
            server: context.server,
            number: context.number,
            clients: VecDeque::new(),
            elsewhere: (1..=ELSEWHERE)
                .map(|n| sockets::bind(sockets::source(context.number, n)))
                .collect::<io::Result<_>>()?,
            copied: Instant::now(),
            forged: 0,
            carried: 0,
            next: 0,
            traffic: Traffic::default(),
            buffer: vec![0; 1 << 16],
        })
    }

    /// Forwards what clients send.
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

    /// Forwards what the server sends.
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

    /// The index of the client with this address.
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
        // What cannot be forwarded is lost, as on any path.
        let _ = self.up();
        self.down();
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn note(&self) -> String {
        format!("{} forged packets, {} forwarded", self.forged, self.carried)
    }
}

/// A Retry with a valid integrity tag: its key is public (RFC 9001 §5.8).
fn retry(dcid: &ConnectionId, scid: &ConnectionId, token: usize) -> Vec<u8> {
    let mut packet = long_header(0xf0, 1, scid, &[7; 8]);
    packet.resize(packet.len() + token, b't');
    let tag = retry_tag(dcid, &packet);
    packet.extend_from_slice(&tag);
    packet
}

/// Version Negotiation with one, several or hundreds of versions, or with the client's
/// own version, which must make the client discard it (RFC 9000 §6.2).
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
