//! First in, first out.

use core::time::Duration;
use std::collections::VecDeque;

use crate::ledger::{Depth, QueuedPacket};
use crate::{QueueLimit, Time};

/// Packets that wait in line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fifo {
    waiting: VecDeque<QueuedPacket>,
    bytes: u64,
}

impl Fifo {
    pub(crate) fn push(&mut self, carried: QueuedPacket) {
        self.bytes += u64::from(carried.size);
        self.waiting.push_back(carried);
    }

    pub(crate) fn pop(&mut self) -> Option<QueuedPacket> {
        let carried = self.waiting.pop_front()?;
        self.bytes -= u64::from(carried.size);
        Some(carried)
    }

    /// How long the head has waited at `now`; zero if nothing waits.
    pub(crate) fn head_wait(&self, now: Time) -> Duration {
        self.waiting
            .front()
            .map_or(Duration::ZERO, |head| head.waited(now))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn depth(&self) -> Depth {
        Depth {
            packets: self.waiting.len(),
            bytes: self.bytes,
        }
    }
}

impl Depth {
    /// Whether there is room for `size` more bytes.
    pub(crate) fn has_room(self, limit: QueueLimit, size: u32) -> bool {
        match limit {
            QueueLimit::Unlimited => true,
            QueueLimit::Packets(packets) => self.packets < packets as usize,
            QueueLimit::Bytes(bytes) => self.bytes + u64::from(size) <= bytes,
        }
    }

    /// Whether the queue holds more than `limit` allows.
    pub(crate) fn exceeds(self, limit: QueueLimit) -> bool {
        match limit {
            QueueLimit::Unlimited => false,
            QueueLimit::Packets(packets) => self.packets > packets as usize,
            QueueLimit::Bytes(bytes) => self.bytes > bytes,
        }
    }

    pub(crate) const fn plus(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            bytes: self.bytes + other.bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_limit_admits_an_exact_fit() {
        let depth = Depth {
            packets: 1,
            bytes: 100,
        };
        assert!(depth.has_room(QueueLimit::Bytes(200), 100));
        assert!(!depth.has_room(QueueLimit::Bytes(200), 101));
        assert!(depth.exceeds(QueueLimit::Bytes(99)));
        assert!(!depth.exceeds(QueueLimit::Bytes(100)));
    }
}
