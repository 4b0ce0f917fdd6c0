//! Uploads that announce a large body and send it byte by byte.

use std::io;

use clearway_quic::connection::Config;
use clearway_quic::stream::StreamId;

use super::sockets::{Sockets, Traffic};
use super::swarm::Swarm;
use super::{Attacker, Context, http3};

const CONNECTIONS: usize = 16;

/// Announced size of an upload, bytes.
const LENGTH: u64 = 1 << 20;

/// Uploads of a connection that send a byte in one turn.
const AT_ONCE: usize = 10;

/// Begins as many PUTs as allowed and sends their bodies byte by byte.
pub(crate) struct Uploads {
    swarm: Swarm<Dribbled>,
    begun: u64,
    bytes: u64,
}

/// The uploads of one connection.
#[derive(Default)]
struct Dribbled {
    streams: Vec<StreamId>,
    next: usize,
}

impl Uploads {
    pub(crate) fn new(context: &Context) -> io::Result<Self> {
        let sockets = Sockets::bind(context.number, 0, CONNECTIONS)?;
        Ok(Self {
            swarm: Swarm::new(context.server, sockets, Config::default())?,
            begun: 0,
            bytes: 0,
        })
    }
}

impl Attacker for Uploads {
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
            let path = format!("/hostile/{}", self.begun);
            if let Some(id) = member.request(&http3::put(&path, LENGTH), false) {
                member.state.streams.push(id);
                self.begun += 1;
            }
            for _ in 0..AT_ONCE {
                let state = &mut member.state;
                state.next = (state.next + 1) % state.streams.len().max(1);
                let Some(&id) = state.streams.get(state.next) else {
                    break;
                };
                if member.connection.write(id, b"x").is_ok() {
                    self.bytes += 1;
                } else {
                    // The server has stopped it.
                    let _ = member.connection.reset(id, http3::REQUEST_CANCELLED);
                    member.state.streams.swap_remove(member.state.next);
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
            "{} PUTs begun, {} bytes of bodies; {}",
            self.begun,
            self.bytes,
            self.swarm.closures()
        )
    }
}
