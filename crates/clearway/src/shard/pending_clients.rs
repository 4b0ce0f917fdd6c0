//! New clients whose first datagram waits for a turn with room for a handshake.
//!
//! A handshake costs more than anything else that an unknown client can cause, and floods of
//! them come from fewer addresses than the clients that they would displace. So clients from
//! sources with few recent handshakes go first, and those of [offenders](super::offenders) last.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::time::Duration;

use clearway_quic::Instant;
use clearway_quic::endpoint::Source;
use foldhash::fast::FixedState;

use super::offenders::Offenders;
use super::strays::QueuedDatagram;

/// Most clients that wait.
const CAPACITY: usize = 512;

/// How many handshakes a source may have begun recently to be in each class of priority, the
/// highest class first.
const CLASSES: [u8; 4] = [0, 3, 15, u8::MAX];

/// Recent handshakes after which further connections from the same source are not served before those
/// of others: more than a browser begins, or a house behind one address.
const MANY: u8 = 16;

/// The interval at which counts of handshakes are halved.
const HALF_LIFE: Duration = Duration::from_secs(1);

/// Counters in each row of a [`RecentHandshakes`].
const COLUMNS: usize = 1 << 10;

/// The clients that wait, by the number of recent handshakes from their source.
#[derive(Debug)]
pub(super) struct PendingClients {
    classes: [VecDeque<QueuedDatagram>; CLASSES.len()],
    /// Those of offenders, which wait for all others and until the pause is over.
    of_offenders: VecDeque<QueuedDatagram>,
    recent: RecentHandshakes,
    pub(super) offenders: Offenders,
}

impl PendingClients {
    /// Creates an empty queue. With a `secret` hash, attackers cannot choose addresses that
    /// share the counters of other sources.
    pub(super) fn new(secret: u64) -> Self {
        Self {
            classes: Default::default(),
            of_offenders: VecDeque::new(),
            recent: RecentHandshakes::new(secret),
            offenders: Offenders::default(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queues().all(VecDeque::is_empty)
    }

    /// Whether clients wait that are not of offenders.
    pub(super) fn has_ordinary(&self) -> bool {
        !self.classes.iter().all(VecDeque::is_empty)
    }

    fn len(&self) -> usize {
        self.queues().map(VecDeque::len).sum()
    }

    fn queues(&self) -> impl Iterator<Item = &VecDeque<QueuedDatagram>> {
        self.classes.iter().chain([&self.of_offenders])
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

    /// Adds a client from `source`; one without a source is trusted and goes first. Returns
    /// whether there was room, if necessary by dropping a client of lower priority.
    pub(super) fn push(
        &mut self,
        now: Instant,
        source: Option<Source>,
        stray: QueuedDatagram,
    ) -> bool {
        let begun = source.map_or(0, |source| self.recent.get(now, source));
        let class = if source.is_some_and(|source| self.offenders.contains(now, source)) {
            CLASSES.len()
        } else {
            CLASSES.iter().position(|most| begun <= *most).unwrap_or(0)
        };
        let mut fits = true;
        if self.len() >= CAPACITY {
            let later = self.classes.iter_mut().skip(class.saturating_add(1));
            let mut last_first = later.rev();
            fits = class < CLASSES.len() && self.of_offenders.pop_back().is_some()
                || last_first.any(|later| later.pop_back().is_some());
        }
        if fits {
            let queue = self.classes.get_mut(class);
            queue.unwrap_or(&mut self.of_offenders).push_back(stray);
        }
        fits
    }

    /// Removes the client of the highest priority that may begin.
    pub(super) fn pop(&mut self, now: Instant) -> Option<QueuedDatagram> {
        let ordinary = self.classes.iter_mut().find_map(VecDeque::pop_front);
        ordinary.or_else(|| match self.offenders.pause(now) {
            None => self.of_offenders.pop_front(),
            Some(_) => None,
        })
    }

    /// Counts a handshake begun by a client from this source. Returns whether there were
    /// [`MANY`] before.
    pub(super) fn record_handshake(&mut self, now: Instant, source: Source) -> bool {
        let before = self.recent.get(now, source);
        self.recent.add(now, source);
        before >= MANY
    }
}

/// Recent handshakes by source: a count-min sketch, whose size is fixed and whose counts are
/// never too low. Halved every [`HALF_LIFE`].
#[derive(Debug)]
struct RecentHandshakes {
    rows: [Box<[u8]>; 2],
    hashers: [FixedState; 2],
    halve_at: Instant,
}

impl RecentHandshakes {
    fn new(secret: u64) -> Self {
        let row = || vec![0; COLUMNS].into_boxed_slice();
        Self {
            rows: [row(), row()],
            hashers: [secret, !secret].map(FixedState::with_seed),
            halve_at: Instant::ZERO,
        }
    }

    /// Returns the counters of a source.
    fn counters(&mut self, source: Source) -> impl Iterator<Item = &mut u8> {
        let rows = self.rows.iter_mut().zip(&self.hashers);
        rows.filter_map(move |(row, hasher)| {
            // The cast may drop high bits, which the remainder does not need.
            let column = hasher.hash_one(source) as usize % COLUMNS;
            row.get_mut(column)
        })
    }

    fn get(&mut self, now: Instant, source: Source) -> u8 {
        self.forget(now);
        self.counters(source).map(|count| *count).min().unwrap_or(0)
    }

    fn add(&mut self, now: Instant, source: Source) {
        self.forget(now);
        for count in self.counters(source) {
            *count = count.saturating_add(1);
        }
    }

    fn forget(&mut self, now: Instant) {
        if now >= self.halve_at {
            self.halve_at = now + HALF_LIFE;
            for count in self.rows.iter_mut().flat_map(|row| row.iter_mut()) {
                *count /= 2;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_quic::ack::ReceivedEcn;
    use clearway_quic::connection::RecvMeta;

    fn source(n: u16) -> Source {
        let [a, b] = n.to_be_bytes();
        Source::of(std::net::Ipv4Addr::new(10, 0, a, b).into())
    }

    fn hello(n: u16) -> QueuedDatagram {
        QueuedDatagram {
            from: RecvMeta {
                remote: ([10, 0, 0, 1], 1).into(),
                local_ip: None,
                ecn: ReceivedEcn::NotEct,
            },
            datagram: n.to_be_bytes().to_vec(),
        }
    }

    fn number(stray: &QueuedDatagram) -> u16 {
        u16::from_be_bytes([stray.datagram[0], stray.datagram[1]])
    }

    const NOW: Instant = Instant::from_nanos(5_000_000_000);

    #[test]
    fn clients_from_sources_with_few_recent_handshakes_go_first() {
        let mut pending_clients = PendingClients::new(7);
        for _ in 0..100 {
            pending_clients.record_handshake(NOW, source(1));
        }
        pending_clients.record_handshake(NOW, source(2));
        for from in [1, 2, 3] {
            assert!(pending_clients.push(NOW, Some(source(from)), hello(from)));
        }
        // A trusted client has no source.
        assert!(pending_clients.push(NOW, None, hello(4)));
        let order: Vec<u16> = std::iter::from_fn(|| pending_clients.pop(NOW))
            .map(|one| number(&one))
            .collect();
        assert_eq!(order, [3, 4, 2, 1]);
        assert!(pending_clients.is_empty());
    }

    #[test]
    fn clients_of_offenders_wait_for_all_others_and_for_the_end_of_their_pause() {
        let mut pending_clients = PendingClients::new(7);
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

        for _ in 0..100 {
            pending_clients.record_handshake(NOW, source(3));
        }
        for from in [1, 2, 3] {
            assert!(pending_clients.push(NOW, Some(source(from)), hello(from)));
        }
        assert!(pending_clients.has_ordinary());
        assert_eq!(pending_clients.resume_at(NOW), None);
        let mut pop = |now| pending_clients.pop(now).map(|one| number(&one));
        assert_eq!([pop(NOW), pop(NOW), pop(NOW)], [Some(2), Some(3), None]);
        assert_eq!(pending_clients.resume_at(NOW), Some(end));
        assert!(!pending_clients.is_empty() && !pending_clients.has_ordinary());
        assert_eq!(pending_clients.resume_at(end), None);
        assert_eq!(pending_clients.pop(end).map(|one| number(&one)), Some(1));
        assert!(pending_clients.is_empty());
    }

    #[test]
    fn source_of_sixteen_recent_handshakes_has_many() {
        let mut pending_clients = PendingClients::new(7);
        for before in 0..40 {
            let many = pending_clients.record_handshake(NOW, source(1));
            assert_eq!(many, before >= 16, "{before}");
        }
        assert!(!pending_clients.record_handshake(NOW, source(2)));
        // Halved six times.
        let later = NOW + HALF_LIFE * 6;
        for _ in 0..6 {
            pending_clients.record_handshake(later, source(3));
        }
        assert!(pending_clients.record_handshake(NOW + HALF_LIFE, source(1)));
    }

    #[test]
    fn full_queue_drops_the_client_of_lowest_priority() {
        let mut pending_clients = PendingClients::new(7);
        for _ in 0..100 {
            pending_clients.record_handshake(NOW, source(1));
        }
        for _ in 0..CAPACITY {
            assert!(pending_clients.push(NOW, Some(source(1)), hello(1)));
        }
        assert!(!pending_clients.push(NOW, Some(source(1)), hello(1)));
        assert!(pending_clients.push(NOW, Some(source(2)), hello(2)));
        assert_eq!(pending_clients.len(), CAPACITY);
        assert_eq!(pending_clients.pop(NOW).map(|one| number(&one)), Some(2));
    }

    #[test]
    fn handshake_counts_decay_to_zero() {
        let mut pending_clients = PendingClients::new(7);
        for _ in 0..200 {
            pending_clients.record_handshake(NOW, source(1));
        }
        assert!(pending_clients.recent.get(NOW, source(1)) >= 200);
        let mut now = NOW;
        for _ in 0..8 {
            now += HALF_LIFE;
            pending_clients.recent.get(now, source(1));
        }
        assert_eq!(pending_clients.recent.get(now, source(1)), 0);
    }

    #[test]
    fn sketch_rarely_confuses_new_sources_with_250_flooding_ones() {
        let mut pending_clients = PendingClients::new(7);
        for from in 0..250 {
            pending_clients.record_handshake(NOW, source(from));
        }
        let mistaken =
            (1_000..3_000).filter(|from| pending_clients.recent.get(NOW, source(*from)) > 0);
        assert!(mistaken.count() < 200);
    }
}
