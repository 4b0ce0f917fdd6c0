//! Clients that send and servers that count.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use clearway_quic::cid::quic_lb::{Config, ServerId};
use clearway_udp::{Options, RecvBatch, Socket, Transmit};

use crate::{PATIENCE, PAUSE, SERVERS, SIZE};

pub(crate) fn encoding() -> Config {
    Config::new(0, 1, 7).unwrap()
}

pub(crate) fn server_id(n: usize) -> ServerId {
    ServerId::new(&[n as u8 % SERVERS]).unwrap()
}

pub(crate) fn bind() -> Socket {
    Socket::bind("127.0.0.1:0".parse().unwrap(), &Options::default()).unwrap()
}

/// A datagram of a connection of a server's.
pub(crate) fn datagram(server: usize, client: usize) -> Vec<u8> {
    let cid = encoding().encode(&server_id(server), &[client as u8; 7], 0);
    let mut datagram = [&[0x40], &cid.unwrap()[..]].concat();
    datagram.resize(SIZE, 0);
    datagram
}

/// Clients of one thread.
pub(crate) struct Generator {
    pub(crate) clients: Vec<Socket>,
    /// The servers whose connection IDs are used.
    pub(crate) servers: Vec<usize>,
    /// The balancers.
    pub(crate) to: Vec<SocketAddr>,
    /// Datagrams of a train.
    pub(crate) train: usize,
    /// Most datagrams on their way.
    pub(crate) window: u64,
    /// How many datagrams have arrived at these servers.
    pub(crate) arrived: Arc<AtomicU64>,
}

impl Generator {
    /// Sends so many datagrams, with bursts on their way. Returns how many it was.
    pub(crate) fn send(&self, datagrams: u64) -> u64 {
        let trains = self.servers.iter().cycle().take(self.clients.len());
        let trains: Vec<Vec<u8>> = trains
            .enumerate()
            .map(|(client, server)| datagram(*server, client).repeat(self.train))
            .collect();
        let (mut sent, mut given_up) = (0, 0);
        while sent < datagrams {
            let to = self.to.iter().cycle();
            for ((client, train), to) in self.clients.iter().zip(&trains).zip(to) {
                let mut transmit = Transmit::new(*to, train);
                transmit.segment_size = Some(SIZE);
                client.send(&mut transmit).unwrap();
                sent += self.train as u64;
                if sent - given_up - self.arrived.load(Relaxed) < self.window {
                    continue;
                }
                // Until few are left, so that all shards have bursts to work on.
                let full = Instant::now();
                while sent - given_up - self.arrived.load(Relaxed) > self.window / 8 {
                    if full.elapsed() > PATIENCE {
                        given_up = sent - self.arrived.load(Relaxed);
                    }
                    std::thread::sleep(PAUSE);
                }
            }
        }
        sent
    }
}

/// Counts what arrives at the servers.
pub(crate) fn count(sinks: &[&Socket], arrived: &AtomicU64, stop: &AtomicBool) {
    let mut batch = RecvBatch::for_socket(sinks[0], 32);
    while !stop.load(Relaxed) {
        let before = arrived.load(Relaxed);
        for sink in sinks {
            if sink.recv(&mut batch).is_ok() {
                let datagrams = batch.messages().map(|(meta, _)| meta.datagrams() as u64);
                arrived.fetch_add(datagrams.sum(), Relaxed);
            }
        }
        if arrived.load(Relaxed) == before {
            std::thread::yield_now();
        }
    }
}
