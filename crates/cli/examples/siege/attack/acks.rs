//! Acknowledgements that lie, repeat, or cost more to read than to write
//! (RFC 9000 §21.4).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use clearway_quic::Instant;
use clearway_quic::connection::Config;
use clearway_quic::event::{Observer, TraceEvent};
use clearway_quic::wire::PacketKind;
use clearway_quic::wire::frame::kind;

use super::sockets::{Sockets, Traffic};
use super::swarm::Swarm;
use super::wire::put_varint;
use super::{Attacker, Field, http3};

const CONNECTIONS: usize = 9;

/// Ranges of an ACK that has as many as it can.
const RANGES: u64 = 500;

/// How far ahead of what has arrived an optimistic receiver acknowledges.
const AHEAD: u64 = 20;

/// Downloads, and acknowledges otherwise than honest receivers do.
pub(crate) struct Acks {
    swarm: Swarm<Download>,
    request: Vec<u8>,
    acks: u64,
}

/// How one connection's download stands.
#[derive(Default)]
struct Download {
    asked: bool,
    /// The largest packet number that has arrived.
    largest: Arc<AtomicU64>,
}

/// Notes the largest number.
#[derive(Debug)]
struct Largest(Arc<AtomicU64>);

impl Observer for Largest {
    fn on_event(&mut self, _: Instant, event: &TraceEvent<'_>) {
        if let TraceEvent::PacketReceived {
            kind: PacketKind::OneRtt,
            number,
            ..
        } = *event
        {
            self.0.fetch_max(number, Relaxed);
        }
    }
}

impl Acks {
    pub(crate) fn new(field: &Field, path: &str) -> io::Result<Self> {
        let mut config = Config::default();
        // The server is never held back by credit.
        config.streams.connection_window = 1 << 40;
        config.streams.stream_window = 1 << 40;
        let sockets = Sockets::bind(field.number, 0, CONNECTIONS)?;
        Ok(Self {
            swarm: Swarm::new(field.server, sockets, config)?,
            request: http3::get(path),
            acks: 0,
        })
    }
}

impl Attacker for Acks {
    fn turn(&mut self, packets: u64) {
        self.swarm.keep(CONNECTIONS);
        self.swarm.step();
        for _ in 0..packets {
            let Some(handle) = self.swarm.next_ready() else {
                return;
            };
            let Some(member) = self.swarm.get(handle) else {
                return;
            };
            if !std::mem::replace(&mut member.state.asked, true) {
                let largest = Largest(member.state.largest.clone());
                member.connection.set_observer(Box::new(largest));
                while member.request(&self.request, true).is_some() {}
                self.swarm.speak(handle);
                // From here on nothing honest is said.
                if let Some(member) = self.swarm.get(handle) {
                    member.mute = true;
                }
                continue;
            }
            let largest = member.state.largest.load(Relaxed);
            if largest == 0 {
                continue;
            }
            self.acks += 1;
            let payload = match handle.0 % 3 {
                // Every second packet, so that the others are lost.
                0 => gaps(largest),
                // What has not come yet.
                1 => all(largest + AHEAD),
                // The same again and again.
                _ => all(largest),
            };
            self.swarm.forge(handle, &payload);
        }
    }

    fn traffic(&self) -> Traffic {
        self.swarm.traffic()
    }

    fn held(&self) -> usize {
        self.swarm.established()
    }

    fn note(&self) -> String {
        format!("{} ACKs; {}", self.acks, self.swarm.fate())
    }
}

/// An ACK of the packets up to `largest`.
fn all(largest: u64) -> Vec<u8> {
    let reach = largest.min(1000);
    ack(largest, reach, 0)
}

/// An ACK of every second packet up to `largest`.
fn gaps(largest: u64) -> Vec<u8> {
    let ranges = RANGES.min(largest / 2);
    ack(largest, 0, ranges)
}

/// An ACK whose first range has `first` packets below the largest, followed by
/// `ranges` of one packet each, with one left out before each (RFC 9000 §19.3).
fn ack(largest: u64, first: u64, ranges: u64) -> Vec<u8> {
    let mut out = Vec::new();
    for value in [kind::ACK, largest, 0, ranges, first] {
        put_varint(&mut out, value);
    }
    for _ in 0..ranges {
        // A gap of one packet, a range of one packet.
        put_varint(&mut out, 0);
        put_varint(&mut out, 0);
    }
    out
}
