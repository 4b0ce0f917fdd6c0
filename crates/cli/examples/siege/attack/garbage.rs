//! Datagrams that belong to no connection.

use std::io;
use std::net::SocketAddr;

use clearway_links::Dice;

use super::sockets::{Sockets, Traffic};
use super::{Attacker, Context};

/// Number of source addresses.
const SOURCES: usize = 50;

/// The kind of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Garbage {
    /// Random bytes of every size.
    Random,
    /// Short headers with unknown connection IDs, which provoke stateless resets.
    Strays,
    /// Long headers of unknown versions, which provoke Version Negotiation.
    Versions,
}

/// Floods the server with such datagrams.
pub(crate) struct GarbageFlood {
    server: SocketAddr,
    sockets: Sockets,
    dice: Dice,
    garbage: Garbage,
    /// Random bytes that datagrams are cut from.
    noise: Vec<u8>,
}

/// Largest UDP payload over IPv4, bytes.
const LARGEST: u64 = 65_507;

impl GarbageFlood {
    pub(crate) fn new(context: &Context, garbage: Garbage) -> io::Result<Self> {
        let mut dice = Dice::new(context.unique, 0);
        let noise = (0..2 * LARGEST).map(|_| dice.below(256) as u8).collect();
        Ok(Self {
            server: context.server,
            sockets: Sockets::bind(context.number, 0, SOURCES)?,
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
                // Most have the size of packets, some any size that UDP allows.
                let length = match self.dice.below(100) {
                    0 => self.dice.below(LARGEST + 1),
                    _ => self.dice.below(1500),
                };
                let mut datagram = self.noise(length);
                // Half of them have a long header of version 1.
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
                // A reserved version (RFC 9000 §15) and connection IDs of 8 bytes.
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
