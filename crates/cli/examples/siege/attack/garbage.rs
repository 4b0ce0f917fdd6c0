//! Datagrams that belong to nobody.

use std::io;
use std::net::SocketAddr;

use clearway_links::Dice;

use super::sockets::{Sockets, Traffic};
use super::{Attacker, Field};

/// Source addresses.
const SOURCES: usize = 50;

/// What the datagrams are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Garbage {
    /// Random bytes of every size.
    Random,
    /// Short headers with unknown connection IDs: each asks for a stateless reset.
    Strays,
    /// Long headers of versions that nobody speaks: each asks for Version
    /// Negotiation.
    Versions,
}

/// Sends datagrams that no connection is for.
pub(crate) struct GarbageFlood {
    server: SocketAddr,
    sockets: Sockets,
    dice: Dice,
    garbage: Garbage,
    /// Random bytes to cut datagrams from.
    noise: Vec<u8>,
}

/// The largest UDP payload of IPv4.
const LARGEST: u64 = 65_507;

impl GarbageFlood {
    pub(crate) fn new(field: &Field, garbage: Garbage) -> io::Result<Self> {
        let mut dice = Dice::new(field.unique, 0);
        let noise = (0..2 * LARGEST).map(|_| dice.below(256) as u8).collect();
        Ok(Self {
            server: field.server,
            sockets: Sockets::bind(field.number, 0, SOURCES)?,
            dice,
            garbage,
            noise,
        })
    }

    fn noise(&mut self, length: u64) -> Vec<u8> {
        let start = self.dice.below(self.noise.len() as u64 - length) as usize;
        self.noise[start..start + length as usize].to_vec()
    }

    fn datagram(&mut self) -> Vec<u8> {
        match self.garbage {
            Garbage::Random => {
                // Mostly as large as packets are, some as large as they can be.
                let length = match self.dice.below(100) {
                    0 => self.dice.below(LARGEST + 1),
                    _ => self.dice.below(1500),
                };
                let mut datagram = self.noise(length);
                // Half of them look like an Initial of version 1.
                if let Some(head) = datagram.first_chunk_mut::<5>()
                    && self.dice.below(2) == 0
                {
                    *head = [0xc0 | head[0], 0, 0, 0, 1];
                }
                datagram
            }
            Garbage::Strays => {
                let length = 21 + self.dice.below(1180);
                let mut datagram = self.noise(length);
                datagram[0] = datagram[0] & 0x3f | 0x40;
                datagram
            }
            Garbage::Versions => {
                let mut datagram = self.noise(1200);
                // A version without meaning (RFC 9000 §15), connection IDs of 8.
                datagram[0] |= 0xc0;
                datagram[1..6].copy_from_slice(&[0x1a, 0x2a, 0x3a, 0x4a, 8]);
                datagram[14] = 8;
                datagram
            }
        }
    }
}

impl Attacker for GarbageFlood {
    fn turn(&mut self, packets: u64) {
        for _ in 0..packets {
            let datagram = self.datagram();
            let socket = self.dice.below(SOURCES as u64) as usize;
            self.sockets.send(socket, self.server, &datagram);
        }
    }

    fn traffic(&self) -> Traffic {
        self.sockets.traffic
    }
}
