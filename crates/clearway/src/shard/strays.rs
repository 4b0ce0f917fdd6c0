//! Datagrams that reached the wrong shard, on their way to the right one.
//!
//! The kernel sees only the first segment of a train and steers by a hint, so
//! some datagrams end up with a shard that does not own them. They are rare;
//! each is copied once.

use std::collections::VecDeque;

use clearway_quic::connection::RecvMeta;

/// Most strays that wait for a shard; a datagram beyond is dropped and counted.
const CAPACITY: usize = 1024;

/// A datagram and where it came from.
#[derive(Debug)]
pub(super) struct Stray {
    pub(super) from: RecvMeta,
    pub(super) datagram: Vec<u8>,
}

/// The strays that wait for one shard.
#[derive(Debug, Default)]
pub(super) struct Strays {
    waiting: VecDeque<Stray>,
}

impl Strays {
    /// Whether there was room.
    pub(super) fn push(&mut self, from: RecvMeta, datagram: &[u8]) -> bool {
        let room = self.waiting.len() < CAPACITY;
        if room {
            self.waiting.push_back(Stray {
                from,
                datagram: datagram.to_vec(),
            });
        }
        room
    }

    pub(super) fn pop(&mut self) -> Option<Stray> {
        self.waiting.pop_front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Exchanges what waits for an empty queue's memory.
    pub(super) fn swap(&mut self, other: &mut Self) {
        std::mem::swap(&mut self.waiting, &mut other.waiting);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_quic::ack::ReceivedEcn;

    #[test]
    fn the_queue_is_bounded_and_in_order() {
        let from = RecvMeta {
            remote: ([127, 0, 0, 1], 1).into(),
            local_ip: None,
            ecn: ReceivedEcn::NotEct,
        };
        let mut strays = Strays::default();
        for n in 0..CAPACITY {
            assert!(strays.push(from, &n.to_be_bytes()));
        }
        assert!(!strays.push(from, b"one too many"));
        let mut taken = Strays::default();
        taken.swap(&mut strays);
        assert!(strays.is_empty());
        for n in 0..CAPACITY {
            assert_eq!(taken.pop().unwrap().datagram, n.to_be_bytes());
        }
        assert!(taken.pop().is_none());
    }
}
