//! Clients whose source address flaps, as behind a broken NAT.

use std::io;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use clearway_quic::connection::Config;

use super::sockets::{self, Sockets, Traffic};
use super::swarm::Swarm;
use super::{Attacker, Context};

const CONNECTIONS: usize = 30;

/// Number of other source addresses; what the server sends there is not read.
const ELSEWHERE: usize = 2;

/// Interval at which a slow connection moves: path validation fails now and then in
/// between.
const SLOW: Duration = Duration::from_millis(50);

/// PING, a non-probing frame: the server follows a packet with it (RFC 9000 §9.1).
const PING: [u8; 1] = [0x01];

/// Sends genuine packets from alternating source addresses.
pub(crate) struct Flap {
    swarm: Swarm<Flapping>,
    elsewhere: Vec<UdpSocket>,
    moves: u64,
}

/// The current address of a connection.
struct Flapping {
    at: usize,
    moved: Instant,
}

impl Default for Flapping {
    fn default() -> Self {
        Self {
            at: 0,
            moved: Instant::now(),
        }
    }
}

impl Flap {
    pub(crate) fn new(context: &Context) -> io::Result<Self> {
        let sockets = Sockets::bind(context.number, 0, CONNECTIONS)?;
        let elsewhere = (0..ELSEWHERE)
            .map(|n| sockets::bind(sockets::source(context.number, CONNECTIONS + n)))
            .collect::<io::Result<_>>()?;
        Ok(Self {
            swarm: Swarm::new(context.server, sockets, Config::default())?,
            elsewhere,
            moves: 0,
        })
    }
}

impl Attacker for Flap {
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
            // A third each: A, B, A, B slowly; A, B, A, B fast; A, B, C slowly.
            let (places, pause) = match handle.0 % 3 {
                0 => (2, SLOW),
                1 => (2, Duration::from_millis(1)),
                _ => (3, SLOW),
            };
            let state = &mut member.state;
            if state.moved.elapsed() < pause {
                continue;
            }
            state.moved = Instant::now();
            state.at = (state.at + 1) % places;
            let at = state.at;
            let Some(packet) = self.swarm.sealed(handle, &PING) else {
                continue;
            };
            self.moves += 1;
            match at.checked_sub(1) {
                None => self.swarm.send_own(handle, &packet),
                Some(n) => self.swarm.send_from(&self.elsewhere[n], &packet),
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
        format!("{} moves; {}", self.moves, self.swarm.closures())
    }
}
