//! New clients whose first datagram waits for a turn with room for a handshake.
//!
//! A handshake costs more than anything else that an unknown client can cause, and floods of
//! them come from fewer addresses than the clients that they would displace. So clients from
//! sources with few recent handshakes go first, except now and then, and those of
//! [offenders](super::offenders) last.
//!
//! A flood from ever new sources fills the queue. Were it served in order, everybody would wait for as
//! long as all of it takes, to be served after having sent again. So of a long queue the newest client is
//! served first and the oldest is dropped: each either begins soon, or may at its next attempt.
//!
//! A client waits once, with all that it sends meanwhile. If its datagrams waited on their own, one of
//! them could begin its connection a second time, long after that has ended.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use clearway_quic::Instant;
use clearway_quic::cid::ConnectionId;
use clearway_quic::connection::RecvMeta;
use clearway_quic::endpoint::Source;
use clearway_quic::wire::header::route;
use foldhash::fast::FixedState;

use super::offenders::Offenders;
use super::recent_handshakes::RecentHandshakes;
use super::strays::QueuedDatagram;

/// Most clients of a class that wait, and of offenders.
const CAPACITY: usize = 128;

/// Clients of a class from which on its queue is long. They take some 50 ms, after which no client has
/// sent again.
const LONG: usize = 64;

/// Most datagrams of a client that wait: a ClientHello with post-quantum keys takes two, and the
/// client may send it twice.
const DATAGRAMS_PER_CLIENT: usize = 4;

/// How many handshakes a source may have begun recently to be in each class of priority, the
/// highest class first.
const CLASSES: [u16; 4] = [0, 3, 15, u16::MAX];

/// Of so many clients that begin, one is of the lowest priority: clients of a company share an address,
/// and would wait for as long as a flood from others lasts.
const LAST_FIRST: u8 = 8;

/// Recent handshakes after which further connections from the same source are not served before those
/// of others: more than a browser begins, or a house behind one address.
const MANY: u16 = 16;

/// What tells a client's datagrams from those of others before it has a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ClientKey {
    remote: SocketAddr,
    /// The Destination Connection ID of its Initial packets.
    dcid: ConnectionId,
}

/// A client that waits, with the attempt that its first datagram made.
#[derive(Debug)]
pub(super) struct PendingClient<A> {
    pub(super) attempt: A,
    /// All that it has sent, in the order of arrival.
    pub(super) datagrams: Vec<QueuedDatagram>,
}

/// The clients that wait, by the number of recent handshakes from their source.
#[derive(Debug)]
pub(super) struct PendingClients<A> {
    /// Each of them. Its key is in one of the queues.
    clients: HashMap<ClientKey, PendingClient<A>, FixedState>,
    classes: [VecDeque<ClientKey>; CLASSES.len()],
    /// Those of offenders, which wait for all others and until the pause is over.
    of_offenders: VecDeque<ClientKey>,
    recent: RecentHandshakes,
    pub(super) offenders: Offenders,
    /// Clients that may begin before one of the lowest priority does.
    until_last: u8,
}

impl<A> PendingClients<A> {
    /// Creates an empty queue. With a `secret` hash, attackers cannot choose what shares the places
    /// of others in its tables.
    pub(super) fn new(secret: u64) -> Self {
        Self {
            clients: HashMap::with_hasher(FixedState::with_seed(secret)),
            classes: Default::default(),
            of_offenders: VecDeque::new(),
            recent: RecentHandshakes::new(secret),
            offenders: Offenders::default(),
            until_last: LAST_FIRST - 1,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.clients.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// Whether clients wait that are not of offenders.
    pub(super) fn has_ordinary(&self) -> bool {
        !self.classes.iter().all(VecDeque::is_empty)
    }

    /// Returns when the next client may begin, if all that wait are of offenders and have to wait.
    pub(super) fn resume_at(&self, now: Instant) -> Option<Instant> {
        if self.has_ordinary() {
            return None;
        }
        self.offenders.pause(now)
    }

    /// Whether a client has to wait because its source is an offender.
    pub(super) fn must_wait(&mut self, now: Instant, source: Option<Source>) -> bool {
        self.offenders.pause(now).is_some()
            && source.is_some_and(|source| self.offenders.contains(now, source))
    }

    /// Keeps a datagram if it is of a client that waits: whoever sends it knows the connection ID that the client
    /// has chosen. Returns whether it is.
    pub(super) fn keep(&mut self, from: RecvMeta, datagram: &[u8]) -> bool {
        if self.clients.is_empty() {
            return false;
        }
        let remote = from.remote;
        let Some(dcid) = initial_dcid(datagram) else {
            return false;
        };
        let Some(client) = self.clients.get_mut(&ClientKey { remote, dcid }) else {
            return false;
        };
        if client.datagrams.len() < DATAGRAMS_PER_CLIENT {
            client.datagrams.push(QueuedDatagram {
                from,
                datagram: datagram.to_vec(),
            });
        }
        true
    }

    /// Adds a client of `source` with its first datagram, in which an Initial packet for `dcid` makes this attempt to
    /// connect. One without a source is trusted and goes first. Returns the client of its class that had waited
    /// longest, if it was dropped for this one.
    pub(super) fn push(
        &mut self,
        now: Instant,
        source: Option<Source>,
        dcid: ConnectionId,
        attempt: A,
        datagram: QueuedDatagram,
    ) -> Option<PendingClient<A>> {
        let remote = datagram.from.remote;
        let client = ClientKey { remote, dcid };
        let class = self.class(now, source);
        let class = self.classes.get_mut(class);
        let queue = class.unwrap_or(&mut self.of_offenders);
        let dropped = if queue.len() < CAPACITY {
            None
        } else {
            queue.pop_front()
        };
        queue.push_back(client);
        let datagrams = vec![datagram];
        self.clients
            .insert(client, PendingClient { attempt, datagrams });
        dropped.and_then(|oldest| self.clients.remove(&oldest))
    }

    /// Returns the class of clients from a source, which is beyond all others for an offender.
    fn class(&mut self, now: Instant, source: Option<Source>) -> usize {
        let Some(source) = source else { return 0 };
        if self.offenders.contains(now, source) {
            return CLASSES.len();
        }
        let begun = self.recent.get(now, source);
        CLASSES.iter().position(|most| begun <= *most).unwrap_or(0)
    }

    /// Removes the client of the highest priority that may begin, or now and then of the lowest.
    pub(super) fn pop(&mut self, now: Instant) -> Option<PendingClient<A>> {
        let client = if self.has_ordinary() {
            self.pop_ordinary()
        } else if self.offenders.pause(now).is_none() {
            self.of_offenders.pop_front()
        } else {
            None
        };
        self.clients.remove(&client?)
    }

    /// Removes the next client of the highest priority: its source has begun no handshake recently.
    pub(super) fn pop_quiet(&mut self) -> Option<PendingClient<A>> {
        let client = self.classes.first_mut().and_then(next)?;
        self.clients.remove(&client)
    }

    /// Removes the next client that is not of an offender from its queue.
    fn pop_ordinary(&mut self) -> Option<ClientKey> {
        let mut first_first = self.classes.iter_mut();
        match self.until_last.checked_sub(1) {
            Some(left) => {
                self.until_last = left;
                first_first.find_map(next)
            }
            None => {
                self.until_last = LAST_FIRST - 1;
                first_first.rev().find_map(next)
            }
        }
    }

    /// Counts a handshake begun by a client from this source. Returns whether there were
    /// [`MANY`] before.
    pub(super) fn record_handshake(&mut self, now: Instant, source: Source) -> bool {
        let before = self.recent.get(now, source);
        self.recent.add(now, source);
        before >= MANY
    }
}

/// Returns the Destination Connection ID of a datagram that begins with a long header.
fn initial_dcid(datagram: &[u8]) -> Option<ConnectionId> {
    let route = route(datagram, 0)?;
    route.version?;
    ConnectionId::new(route.dcid)
}

/// Removes the next client of a class: the newest of a long queue.
fn next(class: &mut VecDeque<ClientKey>) -> Option<ClientKey> {
    match class.len() {
        ..=LONG => class.pop_front(),
        _ => class.pop_back(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use clearway_quic::ack::ReceivedEcn;

    const NOW: Instant = Instant::from_nanos(5_000_000_000);

    /// Enough sources for a queue that is full, and ten more.
    const ALL: u16 = CAPACITY as u16 + 10;

    fn source(n: u16) -> Source {
        let [a, b] = n.to_be_bytes();
        Source::of(std::net::Ipv4Addr::new(10, 0, a, b).into())
    }

    /// The beginning of an Initial packet of client `n`.
    fn datagram(n: u16) -> QueuedDatagram {
        let [high, low] = n.to_be_bytes();
        QueuedDatagram {
            from: RecvMeta {
                remote: ([10, 0, 0, 1], 1).into(),
                local_ip: None,
                ecn: ReceivedEcn::NotEct,
            },
            datagram: vec![0xc0, 0, 0, 0, 1, 2, high, low],
        }
    }

    impl PendingClient<()> {
        fn number(&self) -> u16 {
            let datagram = &self.datagrams[0].datagram;
            u16::from_be_bytes([datagram[6], datagram[7]])
        }
    }

    impl PendingClients<()> {
        /// Adds client `n` of a source. Returns the number of the one that was dropped.
        fn add(&mut self, source: Option<Source>, n: u16) -> Option<u16> {
            let dcid = ConnectionId::new(&n.to_be_bytes()).unwrap();
            let dropped = self.push(NOW, source, dcid, (), datagram(n));
            dropped.map(|client| client.number())
        }

        /// Removes the next client. Returns its number.
        fn next(&mut self, now: Instant) -> Option<u16> {
            let client = self.pop(now)?;
            assert_eq!(client.datagrams.len(), 1);
            Some(client.number())
        }

        fn rest(&mut self) -> Vec<u16> {
            std::iter::from_fn(|| self.next(NOW)).collect()
        }

        fn record_many(&mut self, source: Source) {
            for _ in 0..100 {
                self.record_handshake(NOW, source);
            }
        }
    }

    #[test]
    fn clients_from_sources_with_few_recent_handshakes_go_first() {
        let mut pending_clients = PendingClients::<()>::new(7);
        pending_clients.record_many(source(1));
        pending_clients.record_handshake(NOW, source(2));
        for from in [1, 2, 3] {
            pending_clients.add(Some(source(from)), from);
        }
        // A trusted client has no source.
        pending_clients.add(None, 4);
        assert_eq!(pending_clients.rest(), [3, 4, 2, 1]);
        assert!(pending_clients.is_empty());
    }

    #[test]
    fn client_of_a_quiet_source_is_one_that_has_begun_none_recently() {
        let mut pending_clients = PendingClients::<()>::new(7);
        pending_clients.record_handshake(NOW, source(1));
        for (from, n) in [(1, 1), (2, 2), (1, 3)] {
            pending_clients.add(Some(source(from)), n);
        }
        let quiet = pending_clients.pop_quiet().unwrap();
        assert_eq!(quiet.number(), 2);
        assert!(pending_clients.pop_quiet().is_none());
        assert_eq!(pending_clients.rest(), [1, 3]);
    }

    #[test]
    fn clients_of_offenders_wait_for_all_others_and_for_the_end_of_their_pause() {
        let mut pending_clients = PendingClients::<()>::new(7);
        let time = Duration::from_millis(1);
        let end = {
            let offenders = &mut pending_clients.offenders;
            (0..8).for_each(|_| offenders.record(NOW, source(1), time));
            offenders.on_transfer_of_others(NOW);
            offenders.pause(NOW).unwrap()
        };
        assert!(pending_clients.must_wait(NOW, Some(source(1))));
        assert!(!pending_clients.must_wait(NOW, Some(source(2))));
        assert!(!pending_clients.must_wait(NOW, None));
        assert!(!pending_clients.must_wait(end, Some(source(1))));

        pending_clients.record_many(source(3));
        for from in [1, 2, 3] {
            pending_clients.add(Some(source(from)), from);
        }
        assert!(pending_clients.has_ordinary());
        assert_eq!(pending_clients.resume_at(NOW), None);
        assert_eq!(pending_clients.rest(), [2, 3]);
        assert_eq!(pending_clients.resume_at(NOW), Some(end));
        assert!(!pending_clients.is_empty() && !pending_clients.has_ordinary());
        assert_eq!(pending_clients.resume_at(end), None);
        assert_eq!(pending_clients.next(end), Some(1));
        assert!(pending_clients.is_empty());
    }

    #[test]
    fn client_waits_once_with_all_that_it_sends_meanwhile() {
        let mut pending_clients = PendingClients::<()>::new(7);
        let keep = |pending_clients: &mut PendingClients<()>, n| {
            let QueuedDatagram { from, datagram } = datagram(n);
            pending_clients.keep(from, &datagram)
        };
        assert!(!keep(&mut pending_clients, 1), "nobody waits");
        pending_clients.add(None, 1);
        pending_clients.add(None, 2);
        assert!(!keep(&mut pending_clients, 3), "another client");
        for _ in 0..DATAGRAMS_PER_CLIENT {
            assert!(keep(&mut pending_clients, 1));
        }
        let first = pending_clients.pop(NOW).unwrap();
        assert_eq!(first.datagrams.len(), DATAGRAMS_PER_CLIENT);
        let of_first = |one: &QueuedDatagram| one.datagram == datagram(1).datagram;
        assert!(first.datagrams.iter().all(of_first));
        assert_eq!(pending_clients.rest(), [2]);
    }

    #[test]
    fn datagram_from_another_address_or_with_a_short_header_is_of_no_client_that_waits() {
        let mut pending_clients = PendingClients::<()>::new(7);
        pending_clients.add(None, 1);
        let QueuedDatagram { mut from, datagram } = datagram(1);
        assert!(!pending_clients.keep(from, &datagram[..7]));
        let mut short = datagram.clone();
        short[0] = 0x40;
        assert!(!pending_clients.keep(from, &short));
        from.remote.set_port(2);
        assert!(!pending_clients.keep(from, &datagram));
    }

    #[test]
    fn source_of_sixteen_recent_handshakes_has_many() {
        let mut pending_clients = PendingClients::<()>::new(7);
        for before in 0..40 {
            let many = pending_clients.record_handshake(NOW, source(1));
            assert_eq!(many, before >= 16, "{before}");
        }
        assert!(!pending_clients.record_handshake(NOW, source(2)));
    }

    #[test]
    fn full_class_drops_the_client_that_has_waited_longest() {
        let mut pending_clients = PendingClients::<()>::new(7);
        pending_clients.record_many(source(1));
        for n in 0..ALL {
            let dropped = pending_clients.add(Some(source(1)), n);
            assert_eq!(dropped, n.checked_sub(CAPACITY as u16));
        }
        // Other classes have room.
        assert_eq!(pending_clients.add(Some(source(2)), ALL), None);
        assert_eq!(pending_clients.next(NOW), Some(ALL));
        let mut rest = pending_clients.rest();
        rest.sort_unstable();
        assert!(rest.into_iter().eq(10..ALL));
    }

    #[test]
    fn client_of_the_lowest_priority_begins_however_many_others_wait() {
        let mut pending_clients = PendingClients::<()>::new(7);
        pending_clients.record_many(source(1));
        pending_clients.add(Some(source(1)), ALL);
        let mut begun = 0;
        while pending_clients.next(NOW) != Some(ALL) {
            begun += 1;
            pending_clients.add(None, begun);
            pending_clients.add(None, ALL + begun);
            assert!(begun < u16::from(LAST_FIRST));
        }
    }

    #[test]
    fn long_queue_serves_the_newest_first_and_a_short_one_the_oldest() {
        let mut pending_clients = PendingClients::<()>::new(7);
        for n in 0..ALL {
            // Each has a source of its own, which has begun nothing.
            pending_clients.add(Some(source(n)), n);
        }
        let short = 10 + LONG as u16;
        let expected = (short..ALL).rev().chain(10..short);
        assert!(pending_clients.rest().into_iter().eq(expected));
    }
}
