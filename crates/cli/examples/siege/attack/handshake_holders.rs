//! Handshakes that are begun, refreshed and never finished.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use clearway_quic::Role;
use clearway_quic::cid::ConnectionId;

use super::initial::{self, connection_ids, initial, read_retry};
use super::sockets::{Sockets, Traffic};
use super::wire::put_crypto;
use super::{Attacker, Context};

/// Handshakes to keep open.
const HANDSHAKES: usize = 10_000;

/// Number of source addresses.
const SOURCES: usize = 64;

/// Interval between two packets of an open handshake.
const REFRESH: Duration = Duration::from_secs(4);

/// Time without an answer after which a handshake counts as lost.
const PATIENCE: Duration = Duration::from_millis(500);

/// Pause before a refused handshake is begun again.
const PAUSE: Duration = Duration::from_secs(1);

/// Handshakes checked in one turn.
const LOOK: usize = 512;

/// PING.
const PING: [u8; 1] = [0x01];

/// The content of the Initials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// PING frames only.
    Pings,
    /// PING frames and a ClientHello byte by byte.
    PartialHello,
}

/// The state of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Not begun.
    New,
    /// An Initial was sent and not answered yet.
    Asked,
    /// The first byte of a ClientHello was sent, to provoke a Retry.
    AskedForRetry,
    /// The server acknowledged an Initial: it keeps the handshake.
    Waiting,
    /// Kept so far; the last refresh is not acknowledged yet.
    Refreshed,
}

/// A handshake.
struct Slot {
    stage: Stage,
    dcid: ConnectionId,
    token: Vec<u8>,
    number: u32,
    /// When to act next.
    due: Instant,
}

/// Keeps handshakes open.
pub(crate) struct HandshakeHolders {
    server: std::net::SocketAddr,
    sockets: Sockets,
    content: Content,
    slots: Vec<Slot>,
    by_scid: HashMap<[u8; initial::CID], usize>,
    next: usize,
    /// The last connection ID used.
    ids: u64,
    held: usize,
    refusals: u64,
    retries: u64,
}

impl HandshakeHolders {
    pub(crate) fn new(context: &Context, content: Content) -> io::Result<Self> {
        let ids = context.unique;
        let now = Instant::now();
        let slots = (0..HANDSHAKES)
            .map(|_| Slot {
                stage: Stage::New,
                dcid: ConnectionId::EMPTY,
                token: Vec::new(),
                number: 0,
                due: now,
            })
            .collect();
        Ok(Self {
            server: context.server,
            sockets: Sockets::bind(context.number, 0, SOURCES)?,
            content,
            slots,
            by_scid: (0..HANDSHAKES).map(|n| (scid(n), n)).collect(),
            next: 0,
            ids,
            held: 0,
            refusals: 0,
            retries: 0,
        })
    }

    /// Sends the next Initial of a handshake.
    fn send(&mut self, index: usize, frames: &[u8]) {
        let slot = &mut self.slots[index];
        let packet = initial(&slot.dcid, &scid(index), &slot.token, slot.number, frames);
        slot.number += 1;
        self.sockets.send(index % SOURCES, self.server, &packet);
    }

    /// The frames of a handshake's `number`th Initial.
    fn frames(&self, number: u32) -> Vec<u8> {
        match self.content {
            Content::Pings => PING.to_vec(),
            Content::PartialHello => {
                let mut frames = PING.to_vec();
                put_crypto(&mut frames, number.into(), &hello_byte(number));
                frames
            }
        }
    }

    fn set(&mut self, index: usize, stage: Stage, due: Instant) {
        let holds = |stage| matches!(stage, Stage::Waiting | Stage::Refreshed);
        let slot = &mut self.slots[index];
        self.held += usize::from(holds(stage));
        self.held -= usize::from(holds(slot.stage));
        slot.stage = stage;
        slot.due = due;
    }

    /// Acts if that is due; returns whether a packet was sent.
    fn advance(&mut self, index: usize, now: Instant) -> bool {
        if self.slots[index].due > now {
            return false;
        }
        match self.slots[index].stage {
            Stage::New | Stage::AskedForRetry | Stage::Refreshed => {
                self.begin(index);
                let frames = self.frames(0);
                self.send(index, &frames);
                self.set(index, Stage::Asked, now + PATIENCE);
            }
            Stage::Asked => {
                // The server may answer only a ClientHello, with a Retry.
                self.begin(index);
                let mut frames = Vec::new();
                put_crypto(&mut frames, 0, &hello_byte(0));
                self.send(index, &frames);
                self.set(index, Stage::AskedForRetry, now + PATIENCE);
            }
            Stage::Waiting => {
                let frames = self.frames(self.slots[index].number);
                self.send(index, &frames);
                self.set(index, Stage::Refreshed, now + PATIENCE);
            }
        }
        true
    }

    fn begin(&mut self, index: usize) {
        self.ids += 1;
        let slot = &mut self.slots[index];
        slot.dcid = ConnectionId::new(&self.ids.to_be_bytes()).unwrap_or(ConnectionId::EMPTY);
        slot.token.clear();
        slot.number = 0;
    }

    /// Processes an answer of the server to a handshake.
    fn hear(&mut self, index: usize, datagram: &[u8], now: Instant) {
        if let Some((dcid, token)) = read_retry(datagram) {
            if matches!(self.slots[index].stage, Stage::Asked | Stage::AskedForRetry) {
                self.retries += 1;
                let slot = &mut self.slots[index];
                (slot.dcid, slot.token) = (dcid, token);
                let frames = self.frames(0);
                self.send(index, &frames);
                self.set(index, Stage::Asked, now + PATIENCE);
            }
            return;
        }
        let opened = initial::open(&self.slots[index].dcid, Role::Client, datagram);
        match opened.as_deref().and_then(<[u8]>::first) {
            // ACK.
            Some(0x02 | 0x03) => self.set(index, Stage::Waiting, now + REFRESH),
            Some(_) => {
                self.refusals += 1;
                self.set(index, Stage::New, now + PAUSE);
            }
            None => {}
        }
    }
}

impl Attacker for HandshakeHolders {
    fn turn(&mut self, packets: u64) {
        let now = Instant::now();
        let mut heard = Vec::new();
        self.sockets.receive(|_, _, datagram| {
            let scid = connection_ids(datagram).and_then(|(dcid, _)| (*dcid).try_into().ok());
            heard.extend(scid.map(|scid: [u8; initial::CID]| (scid, datagram.to_vec())));
        });
        for (scid, datagram) in heard {
            if let Some(&index) = self.by_scid.get(&scid) {
                self.hear(index, &datagram, now);
            }
        }
        let mut left = packets;
        for _ in 0..LOOK {
            if left == 0 {
                return;
            }
            let index = self.next;
            self.next = (index + 1) % HANDSHAKES;
            left -= u64::from(self.advance(index, now));
        }
    }

    fn traffic(&self) -> Traffic {
        self.sockets.traffic
    }

    fn held(&self) -> usize {
        self.held
    }

    fn note(&self) -> String {
        format!(
            "{} Retries followed, {} refusals",
            self.retries, self.refusals
        )
    }
}

/// The Source Connection ID of a handshake.
fn scid(index: usize) -> [u8; initial::CID] {
    (index as u64).to_be_bytes()
}

/// A byte of a ClientHello of 60,000 bytes: type, length, version, then zeros.
fn hello_byte(at: u32) -> [u8; 1] {
    let head = [1, 0, 0xea, 0x60, 3, 3];
    [head.get(at as usize).copied().unwrap_or(0)]
}
