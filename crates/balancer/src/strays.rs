//! Datagrams that arrive at another shard than the one that has their client's port.
//!
//! In transparent mode a backend's reply arrives at a socket with the client's port number. So that it
//! arrives where its flow is, one shard has each port: all flows of clients with that port number, and
//! the only socket with it. The kernel steers what clients send by the same rule
//! ([`clearway_udp::steering::steer_by_port`]), but that is a hint: it does not see ports behind IPv6
//! extension headers, and may not permit steering at all. What arrives at another shard is handed
//! over to the one that has the port.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use clearway_udp::Meta;
use clearway_udp::steering::shard_of_port;
use rustix::event::{EventfdFlags, eventfd};

/// Most messages that wait for one shard: 16 MiB, if each is as long as a message can be.
const MOST: usize = 256;

/// A message that was handed over: a datagram, or a train of them.
#[derive(Debug)]
pub(crate) struct Stray {
    pub(crate) meta: Meta,
    pub(crate) payload: Box<[u8]>,
}

/// The way to one shard.
#[derive(Clone, Debug)]
struct Way {
    to: SyncSender<Stray>,
    ready: Arc<OwnedFd>,
}

/// One shard's part in handing over: what arrives for it, and the ways to the others.
#[derive(Debug)]
pub(crate) struct Strays {
    own: usize,
    /// By the number of the shard.
    ways: Vec<Way>,
    arriving: Receiver<Stray>,
    ready: Arc<OwnedFd>,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandOver {
    /// This shard has the client's port.
    Own,
    /// Another shard counts and forwards it.
    Done,
    /// The other shard has as many waiting as it may.
    Full,
}

impl Strays {
    /// Connects `shards` shards with each other.
    ///
    /// # Errors
    /// If there is no descriptor left.
    pub(crate) fn connect(shards: usize) -> io::Result<Vec<Self>> {
        let mut ways = Vec::with_capacity(shards);
        let mut ends = Vec::with_capacity(shards);
        for _ in 0..shards {
            let ready = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
            let (to, arriving) = sync_channel(MOST);
            let way = Way {
                to,
                ready: ready.clone(),
            };
            ways.push(way);
            ends.push((arriving, ready));
        }
        let ends = ends.into_iter().enumerate();
        let strays = ends.map(|(own, (arriving, ready))| Self {
            own,
            ways: ways.clone(),
            arriving,
            ready,
        });
        Ok(strays.collect())
    }

    /// Becomes readable when messages are waiting.
    pub(crate) fn ready(&self) -> &OwnedFd {
        &self.ready
    }

    /// Hands a message to the shard that has its client's port, if that is another one.
    pub(crate) fn hand_over(&self, meta: &Meta, payload: &[u8]) -> HandOver {
        let owner = shard_of_port(meta.remote.port(), self.ways.len());
        let Some(way) = self.ways.get(owner).filter(|_| owner != self.own) else {
            return HandOver::Own;
        };
        let stray = Stray {
            meta: *meta,
            payload: payload.into(),
        };
        if way.to.try_send(stray).is_err() {
            return HandOver::Full;
        }
        // It fails if the counter is at its maximum, and then it is readable anyway.
        let _ = rustix::io::write(&*way.ready, &1_u64.to_ne_bytes());
        HandOver::Done
    }

    /// Removes and returns what is waiting for this shard.
    pub(crate) fn take(&self) -> Vec<Stray> {
        let mut count = [0; 8];
        // Before the messages are read, so that none stays unnoticed. It may have been read already.
        let _ = rustix::io::read(&*self.ready, &mut count);
        self.arriving.try_iter().take(MOST).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(port: u16) -> Meta {
        Meta::new(([192, 0, 2, 1], port).into())
    }

    fn port_of(shard: usize) -> u16 {
        (1..).find(|&port| shard_of_port(port, 3) == shard).unwrap()
    }

    #[test]
    fn messages_reach_the_shard_that_has_their_port() {
        let shards = Strays::connect(3).unwrap();
        for (at, shard) in shards.iter().enumerate() {
            for to in 0..3 {
                let expected = if to == at {
                    HandOver::Own
                } else {
                    HandOver::Done
                };
                let payload = [at as u8, to as u8];
                assert_eq!(shard.hand_over(&from(port_of(to)), &payload), expected);
            }
        }
        for (to, shard) in shards.iter().enumerate() {
            let mut taken = shard.take().into_iter();
            for at in (0..3).filter(|&at| at != to) {
                let stray = taken.next().unwrap();
                assert_eq!(*stray.payload, [at as u8, to as u8]);
                assert_eq!(stray.meta.remote.port(), port_of(to));
            }
            assert!(taken.next().is_none() && shard.take().is_empty());
        }
    }

    #[test]
    fn full_queue_takes_nothing_until_it_was_emptied() {
        let shards = Strays::connect(3).unwrap();
        let meta = from(port_of(2));
        for _ in 0..MOST {
            assert_eq!(shards[0].hand_over(&meta, b""), HandOver::Done);
        }
        assert_eq!(shards[1].hand_over(&meta, b""), HandOver::Full);
        assert_eq!(shards[2].take().len(), MOST);
        assert_eq!(shards[1].hand_over(&meta, b""), HandOver::Done);
        assert_eq!(shards[2].take().len(), 1);
    }
}
