//! Datagrams that wait for the turn of their connection.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;

use clearway_quic::connection::RecvMeta;
use clearway_quic::endpoint::ConnectionHandle;
use rustc_hash::FxHashMap;

use super::strays::QueuedDatagram;

/// Most bytes that wait for one connection, overhead included: 1 MiB is a usual window, so that
/// an upload among other traffic loses nothing.
const MAX_PER_CONNECTION: usize = 1 << 20;

/// Bytes that wait for all connections from which each is limited to an equal part: about
/// what a socket's receive buffer holds.
const MAX_TOTAL: usize = 8 << 20;

/// The datagrams that wait for the turns of their connections.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    queues: FxHashMap<ConnectionHandle, Queue>,
    bytes: usize,
}

/// The datagrams that wait for one connection, in order of arrival.
#[derive(Debug, Default)]
pub(super) struct Queue {
    datagrams: VecDeque<QueuedDatagram>,
    bytes: usize,
}

impl Backlog {
    /// Adds a datagram. Returns whether there was room.
    pub(super) fn push(
        &mut self,
        handle: ConnectionHandle,
        from: RecvMeta,
        datagram: &[u8],
    ) -> bool {
        let cost = cost(datagram);
        let all = self.bytes.saturating_add(cost);
        let queues = self.queues.len().saturating_add(1);
        let queue = self.queues.entry(handle).or_default();
        let own = queue.bytes.saturating_add(cost);
        let fits = all <= MAX_TOTAL || own <= MAX_TOTAL.checked_div(queues).unwrap_or(0);
        if own > MAX_PER_CONNECTION || !fits {
            return false;
        }
        queue.bytes = own;
        self.bytes = all;
        queue.datagrams.push_back(QueuedDatagram {
            from,
            datagram: datagram.to_vec(),
        });
        true
    }

    /// Whether datagrams wait for the connection.
    pub(super) fn has(&self, handle: ConnectionHandle) -> bool {
        self.queues.contains_key(&handle)
    }

    /// Whether no datagrams wait.
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Removes and returns the datagrams that wait for the connection.
    pub(super) fn take(&mut self, handle: ConnectionHandle) -> Option<Queue> {
        if self.queues.is_empty() {
            return None;
        }
        let queue = self.queues.remove(&handle)?;
        self.bytes = self.bytes.saturating_sub(queue.bytes);
        Some(queue)
    }

    /// Puts back the rest of a queue. No datagrams can have been added meanwhile.
    pub(super) fn put_back(&mut self, handle: ConnectionHandle, queue: Queue) {
        if queue.datagrams.is_empty() {
            return;
        }
        if let Entry::Vacant(slot) = self.queues.entry(handle) {
            self.bytes = self.bytes.saturating_add(queue.bytes);
            slot.insert(queue);
        }
    }

    /// Returns the bytes that wait.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Queue {
    /// Returns the datagram that arrived first.
    pub(super) fn pop(&mut self) -> Option<QueuedDatagram> {
        let first = self.datagrams.pop_front()?;
        self.bytes = self.bytes.saturating_sub(cost(&first.datagram));
        Some(first)
    }
}

/// Returns the memory of a waiting datagram, in bytes.
fn cost(datagram: &[u8]) -> usize {
    datagram.len().saturating_add(size_of::<QueuedDatagram>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_quic::ack::ReceivedEcn;

    const FROM: RecvMeta = RecvMeta {
        remote: std::net::SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1),
        local_ip: None,
        ecn: ReceivedEcn::NotEct,
    };

    fn fill(backlog: &mut Backlog, handle: u64) -> usize {
        let datagram = [0; 1_200];
        (0..)
            .take_while(|_| backlog.push(ConnectionHandle(handle), FROM, &datagram))
            .count()
    }

    #[test]
    fn backlog_is_first_in_first_out_and_counts_its_bytes() {
        let mut backlog = Backlog::default();
        for n in 0..3_u8 {
            assert!(backlog.push(ConnectionHandle(1), FROM, &[n]));
        }
        let mut queue = backlog.take(ConnectionHandle(1)).unwrap();
        assert_eq!(
            (backlog.bytes(), backlog.has(ConnectionHandle(1))),
            (0, false)
        );
        assert_eq!(queue.pop().unwrap().datagram, [0]);
        backlog.put_back(ConnectionHandle(1), queue);
        assert_eq!(backlog.bytes(), 2 * cost(&[0]));
        let mut queue = backlog.take(ConnectionHandle(1)).unwrap();
        assert_eq!(queue.pop().unwrap().datagram, [1]);
        assert_eq!(queue.pop().unwrap().datagram, [2]);
        backlog.put_back(ConnectionHandle(1), queue);
        assert_eq!(
            (backlog.bytes(), backlog.has(ConnectionHandle(1))),
            (0, false)
        );
    }

    #[test]
    fn backlog_of_one_connection_is_bounded() {
        let mut backlog = Backlog::default();
        let most = MAX_PER_CONNECTION / cost(&[0; 1_200]);
        assert_eq!(fill(&mut backlog, 1), most);
        assert_eq!(fill(&mut backlog, 2), most);
    }

    #[test]
    fn new_connection_gets_a_fair_part_of_a_full_backlog() {
        let mut backlog = Backlog::default();
        for handle in 0..8 {
            fill(&mut backlog, handle);
        }
        let late = fill(&mut backlog, 100) * cost(&[0; 1_200]);
        assert!(late > MAX_TOTAL / 11, "{late} bytes");
        assert!(backlog.bytes() <= 2 * MAX_TOTAL);
    }
}
