//! Handshakes that are begun and never finished, each refreshed now and then.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use clearway_quic::Role;
use clearway_quic::cid::ConnectionId;

use super::initial::{self, connection_ids, initial, read_retry};
use super::sockets::{Sockets, Traffic};
use super::wire::put_crypto;
use super::{Attacker, Field};

/// Handshakes that one attacker wants to hold.
const HANDSHAKES: usize = 10_000;

/// Source addresses they come from.
const SOURCES: usize = 64;

/// Between two packets of a handshake that is held.
const REFRESH: Duration = Duration::from_secs(4);

/// How long an answer may take before a handshake counts as lost.
const PATIENCE: Duration = Duration::from_millis(500);

/// Before a handshake that was refused is begun anew.
const PAUSE: Duration = Duration::from_secs(1);

/// Handshakes that are looked at in one turn.
const LOOK: usize = 512;

/// PING.
const PING: [u8; 1] = [0x01];

/// What the Initials carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// PING and nothing else: no handshake at all.
    Pings,
    /// A ClientHello that says how long it is, and comes byte by byte.
    PartialHello,
}

/// Where a handshake stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// To be begun.
    New,
    /// An Initial went out; no answer yet.
    Asked,
    /// The first byte of a ClientHello went out, for a Retry to answer.
    AskedForRetry,
    /// The server has acknowledged an Initial: it holds the handshake.
    Held,
    /// It holds it still, unless the last refresh is not acknowledged soon.
    Refreshed,
}

/// One handshake.
struct Slot {
    stage: Stage,
    dcid: ConnectionId,
    token: Vec<u8>,
    number: u32,
    /// When something is to be done about it.
    due: Instant,
}

/// Holds handshakes open.
pub(crate) struct HandshakeHolders {
    server: std::net::SocketAddr,
    sockets: Sockets,
    content: Content,
    slots: Vec<Slot>,
    by_scid: HashMap<[u8; initial::CID], usize>,
    next: usize,
    /// Makes connection IDs that were not used before.
    ids: u64,
    held: usize,
    refusals: u64,
    retries: u64,
}

impl HandshakeHolders {
    pub(crate) fn new(field: &Field, content: Content) -> io::Result<Self> {
        let ids = field.unique;
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
            server: field.server,
            sockets: Sockets::bind(field.number, 0, SOURCES)?,
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

    /// What the `number`th Initial of a handshake carries.
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
        let holds = |stage| matches!(stage, Stage::Held | Stage::Refreshed);
        let slot = &mut self.slots[index];
        self.held += usize::from(holds(stage));
        self.held -= usize::from(holds(slot.stage));
        slot.stage = stage;
        slot.due = due;
    }

    /// Does what is due about a handshake: whether a packet went out.
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
                // Perhaps only a ClientHello is answered, with a Retry.
                self.begin(index);
                let mut frames = Vec::new();
                put_crypto(&mut frames, 0, &hello_byte(0));
                self.send(index, &frames);
                self.set(index, Stage::AskedForRetry, now + PATIENCE);
            }
            Stage::Held => {
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

    /// An answer of the server's to one of the handshakes.
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
            Some(0x02 | 0x03) => self.set(index, Stage::Held, now + REFRESH),
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

/// The connection ID by which the server addresses a handshake.
fn scid(index: usize) -> [u8; initial::CID] {
    (index as u64).to_be_bytes()
}

/// A byte of a ClientHello of 60,000 bytes: type, length, and then nothing that
/// would be looked at before the end.
fn hello_byte(at: u32) -> [u8; 1] {
    let head = [1, 0, 0xea, 0x60, 3, 3];
    [head.get(at as usize).copied().unwrap_or(0)]
}
