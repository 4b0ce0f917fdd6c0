//! HTTP datagrams that arrived before their request (RFC 9297 §2.1).

use std::collections::VecDeque;

use bytes::Bytes;
use clearway_quic::stream::StreamId;

use crate::limits::Limits;

/// Datagrams of requests that have not arrived, or not long ago. Packets are reordered and lost, so
/// a datagram that the client sent right behind its request may be there first.
#[derive(Debug, Default)]
pub(crate) struct EarlyDatagrams {
    /// In the order in which they arrived.
    waiting: VecDeque<(StreamId, Bytes)>,
    /// Those whose request has arrived; the application takes them next.
    ready: VecDeque<(StreamId, Bytes)>,
    /// The bytes of both.
    bytes: usize,
}

impl EarlyDatagrams {
    /// Keeps a datagram. Drops the oldest beyond the limits, and returns how many those were.
    pub(crate) fn push(&mut self, id: StreamId, payload: Bytes, limits: &Limits) -> u64 {
        self.bytes = self.bytes.saturating_add(payload.len());
        self.waiting.push_back((id, payload));
        let mut dropped = 0_u64;
        while self.len() > limits.max_early_datagrams
            || self.bytes > limits.max_early_datagram_bytes
        {
            let Some((_, payload)) = self.waiting.pop_front() else {
                break;
            };
            self.bytes = self.bytes.saturating_sub(payload.len());
            dropped = dropped.saturating_add(1);
        }
        dropped
    }

    /// The request `id` has arrived. Returns whether there are datagrams for it.
    pub(crate) fn mark_ready(&mut self, id: StreamId) -> bool {
        if self.waiting.is_empty() {
            return false;
        }
        let before = self.ready.len();
        for (other, payload) in core::mem::take(&mut self.waiting) {
            let queue = if other == id {
                &mut self.ready
            } else {
                &mut self.waiting
            };
            queue.push_back((other, payload));
        }
        self.ready.len() > before
    }

    /// Returns the next datagram of a request that has arrived.
    pub(crate) fn next_ready(&mut self) -> Option<(StreamId, Bytes)> {
        let next = self.ready.pop_front()?;
        self.bytes = self.bytes.saturating_sub(next.1.len());
        Some(next)
    }

    /// Returns the number of datagrams.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len().saturating_add(self.ready.len())
    }

    /// Returns the memory in use beside its own size, in bytes.
    pub(crate) fn memory(&self) -> usize {
        let slots = (self.waiting.capacity()).saturating_add(self.ready.capacity());
        (self.bytes).saturating_add(slots.saturating_mul(size_of::<(StreamId, Bytes)>()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(index: u64) -> StreamId {
        StreamId::from_wire(index << 2)
    }

    #[test]
    fn datagrams_become_ready_in_order_with_their_request() {
        let (mut early, limits) = (EarlyDatagrams::default(), Limits::default());
        for (index, payload) in [(1, "a"), (2, "b"), (1, "c")] {
            assert_eq!(early.push(id(index), Bytes::from(payload), &limits), 0);
        }
        assert!(early.next_ready().is_none());
        assert!(!early.mark_ready(id(3)));
        assert!(early.mark_ready(id(1)));
        assert_eq!(early.next_ready().unwrap().1, "a");
        assert_eq!(early.next_ready().unwrap().1, "c");
        assert!(early.next_ready().is_none());
        assert_eq!((early.len(), early.bytes), (1, 1));
    }

    #[test]
    fn oldest_datagrams_beyond_either_limit_are_dropped() {
        let limits = Limits {
            max_early_datagrams: 3,
            max_early_datagram_bytes: 100,
            ..Limits::default()
        };
        let mut early = EarlyDatagrams::default();
        let dropped: u64 = (0..10)
            .map(|n| early.push(id(n), Bytes::from_static(b"x"), &limits))
            .sum();
        assert_eq!((dropped, early.len()), (7, 3));
        assert!(!early.mark_ready(id(6)) && early.mark_ready(id(7)));
        let large = Bytes::from(vec![0; 99]);
        assert_eq!(early.push(id(11), large, &limits), 2);
        let huge = Bytes::from(vec![0; 101]);
        assert_eq!(early.push(id(12), huge, &limits), 2);
        assert_eq!(early.next_ready().unwrap().0, id(7));
        assert_eq!((early.len(), early.bytes), (0, 0));
    }
}
