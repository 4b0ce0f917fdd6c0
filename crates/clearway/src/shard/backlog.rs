//! Datagrams that wait for the turn of their connection.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;

use clearway_quic::connection::RecvMeta;
use clearway_quic::endpoint::ConnectionHandle;
use rustc_hash::FxHashMap;

use super::strays::Stray;

/// Most bytes that wait for one connection, those of the bookkeeping included: a window of
/// 1 MiB, so that an upload among other traffic loses nothing.
const MOST_OF_ONE: usize = 1 << 20;

/// Most bytes that wait for all of them: what a socket's receive buffer would hold. Once
/// so much waits, nobody has more than an equal part of it.
const MOST_OF_ALL: usize = 8 << 20;

/// What waits for the connections of a shard whose turn has yet to come.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    queues: FxHashMap<ConnectionHandle, Queue>,
    bytes: usize,
}

/// What waits for one connection, in order of arrival.
#[derive(Debug, Default)]
pub(super) struct Queue {
    datagrams: VecDeque<Stray>,
    bytes: usize,
}

impl Backlog {
    /// Adds a datagram; whether there was room.
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
        let fits = all <= MOST_OF_ALL || own <= MOST_OF_ALL.checked_div(queues).unwrap_or(0);
        if own > MOST_OF_ONE || !fits {
            return false;
        }
        queue.bytes = own;
        self.bytes = all;
        queue.datagrams.push_back(Stray {
            from,
            datagram: datagram.to_vec(),
        });
        true
    }

    /// Whether anything waits for the connection.
    pub(super) fn has(&self, handle: ConnectionHandle) -> bool {
        self.queues.contains_key(&handle)
    }

    /// Whether nothing waits for anybody.
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Takes out what waits for the connection.
    pub(super) fn take(&mut self, handle: ConnectionHandle) -> Option<Queue> {
        if self.queues.is_empty() {
            return None;
        }
        let queue = self.queues.remove(&handle)?;
        self.bytes = self.bytes.saturating_sub(queue.bytes);
        Some(queue)
    }

    /// Puts back what is left of it, ahead of nothing: nothing has arrived meanwhile.
    pub(super) fn put_back(&mut self, handle: ConnectionHandle, queue: Queue) {
        if queue.datagrams.is_empty() {
            return;
        }
        if let Entry::Vacant(place) = self.queues.entry(handle) {
            self.bytes = self.bytes.saturating_add(queue.bytes);
            place.insert(queue);
        }
    }

    /// Bytes that wait.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Queue {
    /// The datagram that arrived first.
    pub(super) fn pop(&mut self) -> Option<Stray> {
        let first = self.datagrams.pop_front()?;
        self.bytes = self.bytes.saturating_sub(cost(&first.datagram));
        Some(first)
    }
}

/// Bytes that a datagram takes while it waits.
fn cost(datagram: &[u8]) -> usize {
    datagram.len().saturating_add(size_of::<Stray>())
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
    fn what_waits_comes_out_in_order_and_is_counted() {
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
    fn one_connection_has_a_bound_of_its_own() {
        let mut backlog = Backlog::default();
        let most = MOST_OF_ONE / cost(&[0; 1_200]);
        assert_eq!(fill(&mut backlog, 1), most);
        assert_eq!(fill(&mut backlog, 2), most);
    }

    #[test]
    fn late_comer_gets_its_part_of_a_full_backlog() {
        let mut backlog = Backlog::default();
        for handle in 0..8 {
            fill(&mut backlog, handle);
        }
        let late = fill(&mut backlog, 100) * cost(&[0; 1_200]);
        assert!(late > MOST_OF_ALL / 11, "{late} bytes");
        assert!(backlog.bytes() <= 2 * MOST_OF_ALL);
    }
}
