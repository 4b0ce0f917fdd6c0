//! Hostile acknowledgements: optimistic, repeated, or expensive to process
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
use super::{Attacker, Context, http3};

const CONNECTIONS: usize = 9;

/// Most ranges in an ACK frame.
const RANGES: u64 = 500;

/// Packets that an optimistic receiver acknowledges before they arrive.
const AHEAD: u64 = 20;

/// Downloads that acknowledge dishonestly.
pub(crate) struct Acks {
    swarm: Swarm<Download>,
    request: Vec<u8>,
    acks: u64,
}

/// The state of a connection's download.
#[derive(Default)]
struct Download {
    asked: bool,
    /// Largest packet number received.
    largest: Arc<AtomicU64>,
}

/// Observes the largest packet number received.
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
    pub(crate) fn new(context: &Context, path: &str) -> io::Result<Self> {
        let mut config = Config::default();
        // Flow control never limits the server.
        config.streams.connection_window = 1 << 40;
        config.streams.stream_window = 1 << 40;
        let sockets = Sockets::bind(context.number, 0, CONNECTIONS)?;
        Ok(Self {
            swarm: Swarm::new(context.server, sockets, config)?,
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
                // From here on only forged ACKs are sent.
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
                // Every second packet, so that the others count as lost.
                0 => gaps(largest),
                // Packets that have not arrived.
                1 => all(largest + AHEAD),
                // The same packets again and again.
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
        format!("{} ACKs; {}", self.acks, self.swarm.closures())
    }
}

/// An ACK frame for all packets up to `largest`.
fn all(largest: u64) -> Vec<u8> {
    let reach = largest.min(1000);
    ack(largest, reach, 0)
}

/// An ACK frame for every second packet up to `largest`.
fn gaps(largest: u64) -> Vec<u8> {
    let ranges = RANGES.min(largest / 2);
    ack(largest, 0, ranges)
}

/// An ACK frame with `first` packets below the largest in its first range, and `ranges`
/// ranges of one packet, each after a gap of one packet (RFC 9000 §19.3).
fn ack(largest: u64, first: u64, ranges: u64) -> Vec<u8> {
    let mut out = Vec::new();
    for value in [kind::ACK, largest, 0, ranges, first] {
        put_varint(&mut out, value);
    }
    for _ in 0..ranges {
        // The gap and the range, each one less than its number of packets.
        put_varint(&mut out, 0);
        put_varint(&mut out, 0);
    }
    out
}
