//! Clients that ask for much and read little: each waiting response holds a file, a
//! buffer and a task.

use std::io;
use std::time::Duration;

use clearway_quic::connection::Config;
use clearway_quic::stream::StreamId;

use super::sockets::{Sockets, Traffic};
use super::swarm::Swarm;
use super::{Attacker, Context, http3};

/// Interval between two PINGs of a connection.
const PING_EVERY: Duration = Duration::from_secs(5);

/// Bytes that a dribbling reader reads from a stream at a time.
const DRIBBLE: usize = 4;

/// Sends as many requests as allowed, grants no credit, and keeps the connections open.
pub(crate) struct SlowReaders {
    swarm: Swarm<()>,
    connections: usize,
    request: Vec<u8>,
    requests: u64,
}

impl SlowReaders {
    /// A number of connections that ask for `path`.
    pub(crate) fn new(context: &Context, connections: usize, path: &str) -> io::Result<Self> {
        let mut config = Config::default();
        config.streams.connection_window = 0;
        config.streams.stream_window = 0;
        let sockets = Sockets::bind(context.number, 0, connections)?;
        let mut swarm = Swarm::new(context.server, sockets, config)?;
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
            self.swarm.closures()
        )
    }
}

/// Reads a few bytes of each response at a time.
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

/// Number of connections.
const DRIBBLERS: usize = 20;

/// Streams of a connection that are read in one turn.
const AT_ONCE: usize = 8;

impl DribblingReaders {
    pub(crate) fn new(context: &Context, path: &str) -> io::Result<Self> {
        let mut config = Config::default();
        // Windows stay this small: credit is granted for what was read.
        config.streams.connection_window = 2048;
        config.streams.stream_window = 2 * DRIBBLE as u64;
        config.streams.receive_budget = 2048;
        let sockets = Sockets::bind(context.number, 0, DRIBBLERS)?;
        let mut swarm = Swarm::new(context.server, sockets, config)?;
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
                        // Nothing has arrived.
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
            self.swarm.closures()
        )
    }
}
