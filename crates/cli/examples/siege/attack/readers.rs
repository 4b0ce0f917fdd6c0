//! Readers that ask for much and take little: each answer that waits holds a file,
//! a buffer, a task.

use std::io;
use std::time::Duration;

use clearway_quic::connection::Config;
use clearway_quic::stream::StreamId;

use super::sockets::{Sockets, Traffic};
use super::swarm::Swarm;
use super::{Attacker, Field, http3};

/// Between two PINGs of a connection that waits.
const PING_EVERY: Duration = Duration::from_secs(5);

/// Credit that a dribbling reader gives a stream at a time, bytes.
const DRIBBLE: usize = 4;

/// Asks for as much as it may on each connection, reads nothing, and stays.
pub(crate) struct SlowReaders {
    swarm: Swarm<()>,
    connections: usize,
    request: Vec<u8>,
    requests: u64,
}

impl SlowReaders {
    /// `connections` of them ask for what is at `path`.
    pub(crate) fn new(field: &Field, connections: usize, path: &str) -> io::Result<Self> {
        let mut config = Config::default();
        config.streams.connection_window = 0;
        config.streams.stream_window = 0;
        let sockets = Sockets::bind(field.number, 0, connections)?;
        let mut swarm = Swarm::new(field.server, sockets, config)?;
        swarm.reads = false;
        Ok(Self {
            swarm,
            connections,
            request: http3::get(path),
            requests: 0,
        })
    }
}

impl Attacker for SlowReaders {
    fn turn(&mut self, packets: u64) {
        self.swarm.keep(self.connections);
        self.swarm.step();
        for _ in 0..packets.min(self.swarm.established() as u64) {
            let Some(handle) = self.swarm.next_ready() else {
                break;
            };
            if let Some(member) = self.swarm.get(handle)
                && member.request(&self.request, true).is_some()
            {
                self.requests += 1;
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
            "{} GETs, not a byte read; {}",
            self.requests,
            self.swarm.fate()
        )
    }
}

/// Takes a few bytes of each answer at a time.
pub(crate) struct DribblingReaders {
    swarm: Swarm<Dribbling>,
    request: Vec<u8>,
    read: u64,
}

/// The streams of one connection.
#[derive(Default)]
struct Dribbling {
    streams: Vec<StreamId>,
    next: usize,
}

/// Connections of dribbling readers.
const DRIBBLERS: usize = 20;

/// Streams of each that get credit in one turn.
const AT_ONCE: usize = 8;

impl DribblingReaders {
    pub(crate) fn new(field: &Field, path: &str) -> io::Result<Self> {
        let mut config = Config::default();
        // What is read is granted again, so that windows stay as small as this.
        config.streams.connection_window = 2048;
        config.streams.stream_window = 2 * DRIBBLE as u64;
        config.streams.receive_budget = 2048;
        let sockets = Sockets::bind(field.number, 0, DRIBBLERS)?;
        let mut swarm = Swarm::new(field.server, sockets, config)?;
        swarm.reads = false;
        Ok(Self {
            swarm,
            request: http3::get(path),
            read: 0,
        })
    }
}

impl Attacker for DribblingReaders {
    fn turn(&mut self, packets: u64) {
        self.swarm.keep(DRIBBLERS);
        self.swarm.step();
        for _ in 0..packets {
            let Some(handle) = self.swarm.next_ready() else {
                return;
            };
            let Some(member) = self.swarm.get(handle) else {
                return;
            };
            if let Some(id) = member.request(&self.request, true) {
                member.state.streams.push(id);
            } else {
                for _ in 0..AT_ONCE {
                    let state = &mut member.state;
                    state.next = (state.next + 1) % state.streams.len().max(1);
                    let Some(&id) = state.streams.get(state.next) else {
                        break;
                    };
                    match member.connection.read(id, &mut [0; DRIBBLE]) {
                        Ok(Some(length)) => self.read += length as u64,
                        Ok(None) => {
                            member.state.streams.swap_remove(member.state.next);
                        }
                        // Nothing has come, or the server has given it up.
                        Err(clearway_quic::stream::ReadError::Blocked) => {}
                        Err(_) => {
                            member.state.streams.swap_remove(member.state.next);
                        }
                    }
                }
            }
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
            "{} bytes read, {DRIBBLE} at a time; {}",
            self.read,
            self.swarm.fate()
        )
    }
}
