//! Clients whose source address flaps, as behind a broken NAT.

use std::io;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use clearway_quic::connection::Config;

use super::sockets::{self, Sockets, Traffic};
use super::swarm::Swarm;
use super::{Attacker, Field};

const CONNECTIONS: usize = 30;

/// Addresses that packets also come from, and through which nothing returns.
const ELSEWHERE: usize = 2;

/// Between two moves of a connection that moves slowly: an address is given up as
/// unreachable in between, now and then.
const SLOW: Duration = Duration::from_millis(50);

/// PING: it makes a packet that migrates (RFC 9000 §9.1).
const PING: [u8; 1] = [0x01];

/// Sends genuine packets from its own address and from others in turns.
pub(crate) struct Flap {
    swarm: Swarm<Flapping>,
    elsewhere: Vec<UdpSocket>,
    moves: u64,
}

/// Where a connection is.
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
    pub(crate) fn new(field: &Field) -> io::Result<Self> {
        let sockets = Sockets::bind(field.number, 0, CONNECTIONS)?;
        let elsewhere = (0..ELSEWHERE)
            .map(|n| sockets::bind(sockets::source(field.number, CONNECTIONS + n)))
            .collect::<io::Result<_>>()?;
        Ok(Self {
            swarm: Swarm::new(field.server, sockets, Config::default())?,
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
            // A third each: A, B, A, B slowly; the same fast; A, B, C slowly.
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
        format!("{} moves; {}", self.moves, self.swarm.fate())
    }
}
