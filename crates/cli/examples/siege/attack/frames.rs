//! Floods of transport frames that are each legal (RFC 9000 §19, §21.9).

use std::io;

use clearway_quic::connection::Config;
use clearway_quic::wire::frame::kind;

use super::sockets::{Sockets, Traffic};
use super::swarm::Swarm;
use super::wire::{integers, put_varint};
use super::{Attacker, Context};

const CONNECTIONS: usize = 18;

/// Bytes of frames in a packet.
const PAYLOAD: usize = 1100;

/// Sends packets full of one type of frame; each connection has its own type.
pub(crate) struct ControlFrames {
    swarm: Swarm<u64>,
    frames: u64,
}

impl ControlFrames {
    pub(crate) fn new(context: &Context) -> io::Result<Self> {
        let sockets = Sockets::bind(context.number, 0, CONNECTIONS)?;
        Ok(Self {
            swarm: Swarm::new(context.server, sockets, Config::default())?,
            frames: 0,
        })
    }
}

impl Attacker for ControlFrames {
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
            if member.state == 0 {
                // Opens the stream that some of the frames refer to.
                member.request(&[0x01], false);
                self.swarm.speak(handle);
            }
            let Some(member) = self.swarm.get(handle) else {
                continue;
            };
            let mut payload = Vec::with_capacity(PAYLOAD + 32);
            while payload.len() < PAYLOAD {
                member.state += 1;
                self.frames += 1;
                put_frame(&mut payload, handle.0, member.state);
            }
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
        format!("{} frames; {}", self.frames, self.swarm.closures())
    }
}

/// Appends the `n`th frame of a connection, whose handle chooses the type.
fn put_frame(out: &mut Vec<u8>, connection: u64, n: u64) {
    // The client's first bidirectional stream.
    const STREAM: u64 = 0;
    match connection % 9 {
        0 => {
            put_varint(out, kind::PATH_CHALLENGE);
            out.extend_from_slice(&n.to_be_bytes());
        }
        1 => out.extend(integers(&[kind::MAX_DATA, 1 << 30])),
        2 => out.extend(integers(&[kind::MAX_STREAM_DATA, STREAM, n])),
        3 => out.extend(integers(&[kind::MAX_STREAMS_BIDI, n])),
        4 => out.extend(integers(&[kind::DATA_BLOCKED, n])),
        5 => out.extend(integers(&[kind::STREAM_DATA_BLOCKED, STREAM, n])),
        6 => out.extend(integers(&[kind::STOP_SENDING, STREAM, 0])),
        7 => out.extend(integers(&[kind::RESET_STREAM, STREAM, 0, 1])),
        _ => out.extend(integers(&[kind::PING])),
    }
}

/// Issues and retires connection IDs of both ends as fast as possible.
pub(crate) struct IdChurn {
    swarm: Swarm<u64>,
    retired: u64,
}

impl IdChurn {
    pub(crate) fn new(context: &Context) -> io::Result<Self> {
        let sockets = Sockets::bind(context.number, 0, CONNECTIONS)?;
        Ok(Self {
            swarm: Swarm::new(context.server, sockets, Config::default())?,
            retired: 0,
        })
    }
}

impl Attacker for IdChurn {
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
            if handle.0 % 2 == 0 {
                // The client's: NEW_CONNECTION_ID with Retire Prior To, which the server
                // has to answer with RETIRE_CONNECTION_ID.
                member.connection.rotate_connection_ids();
                self.retired += 1;
                self.swarm.speak(handle);
            } else {
                // The server's, except the first, which is in use.
                member.state += 1;
                self.retired += 1;
                let retire = integers(&[kind::RETIRE_CONNECTION_ID, member.state]);
                self.swarm.forge(handle, &retire);
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
        format!("{} retired; {}", self.retired, self.swarm.closures())
    }
}

/// Updates keys as soon as that is permitted, or sooner.
pub(crate) struct KeyUpdates {
    swarm: Swarm<()>,
    updates: u64,
}

impl KeyUpdates {
    pub(crate) fn new(context: &Context) -> io::Result<Self> {
        let sockets = Sockets::bind(context.number, 0, CONNECTIONS)?;
        Ok(Self {
            swarm: Swarm::new(context.server, sockets, Config::default())?,
            updates: 0,
        })
    }
}

impl Attacker for KeyUpdates {
    fn turn(&mut self, packets: u64) {
        self.swarm.keep(CONNECTIONS);
        self.swarm.step();
        for _ in 0..packets {
            let Some(handle) = self.swarm.next_ready() else {
                return;
            };
            let now = self.swarm.now();
            let Some(member) = self.swarm.get(handle) else {
                return;
            };
            // Every sixth connection does so before it is permitted (RFC 9001 §6.1).
            if handle.0 % 6 == 0 {
                member.connection.force_key_update();
                self.updates += 1;
            } else if member.connection.update_keys(now).is_ok() {
                self.updates += 1;
            }
            member.connection.ping();
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
        format!("{} updates; {}", self.updates, self.swarm.closures())
    }
}
