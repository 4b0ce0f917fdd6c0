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

/// When the next handshake may begin.
///
/// A handshake cannot be interrupted, and a request takes several turns. If each turn began one, a
/// flood of them would take most of the time from connections whose requests take little. So while
/// connections transfer data, a pause as long as the handshake follows each: floods take at most
/// half of the time. What connections that have transferred nothing yet take between two handshakes
/// is part of what the second one costs: after an abandoned handshake several probes follow. Beside
/// downloads and uploads, which take many turns each, the pause is three times as long. It is kept
/// even if nothing is to be done in it, because the next request is about to arrive.
#[derive(Debug, Default)]
pub(super) struct HandshakePace {
    /// The end of the last handshake.
    ended: Instant,
    /// What the last handshake took, and before it connections that have transferred nothing yet.
    cost: Duration,
    /// What such connections have taken since the last handshake.
    unused: Duration,
    /// When a connection last transferred stream data.
    transferred_at: Option<Instant>,
    /// When one last transferred [`BULK`] bytes in a turn.
    bulk_at: Option<Instant>,
}

/// Bytes of stream data in a turn that show a download or an upload.
const BULK: u64 = 16 << 10;

/// Handshakes begun in each turn while connections transfer data. At some 0.2 ms each, several
/// would delay these in each of the round trips that a download takes to reach its rate.
const ONE_BY_ONE: usize = 1;

/// Handshakes begun in each turn otherwise. The first flights of several leave in one system call,
/// and the socket is looked at once for all of them.
const TOGETHER: usize = 3;

/// How long after its last transfer a connection is expected to go on.
const TRANSFER_WINDOW: Duration = Duration::from_millis(1);

/// The same for downloads and uploads, whose next round trip takes as long as the peer takes to get
/// the processor, and as what waits in the socket before its answer.
const BULK_WINDOW: Duration = Duration::from_millis(8);

/// The pause after a handshake beside downloads and uploads, as a multiple of what it took.
const BULK_PAUSE: u32 = 3;

/// The most that a handshake is taken to have cost, so that one interrupted by other programs does
/// not keep clients waiting.
const MAX_COST: Duration = Duration::from_millis(1);

impl HandshakePace {
    /// Records that a handshake took the time from `began` until `ended`.
    pub(super) fn on_handshake(&mut self, began: Instant, ended: Instant) {
        let unused = std::mem::take(&mut self.unused);
        self.cost = ended
            .saturating_since(began)
            .saturating_add(unused)
            .min(MAX_COST);
        self.ended = ended;
    }

    /// Records that a connection that has transferred nothing yet has taken `time`. It is part of
    /// what handshakes cost: one that is abandoned afterwards is probed several times.
    pub(super) fn on_unused(&mut self, time: Duration) {
        self.unused = self.unused.saturating_add(time).min(MAX_COST);
    }

    /// Records that a handshake begins which is not timed.
    pub(super) fn on_untimed_handshake(&mut self, now: Instant) {
        self.ended = now + self.cost;
    }

    /// Records that a connection has transferred `moved` bytes of stream data in a turn.
    pub(super) fn on_transfer(&mut self, now: Instant, moved: u64) {
        self.transferred_at = Some(now);
        if moved >= BULK {
            self.bulk_at = Some(now);
        }
    }

    /// Returns the end of the pause, if there is one at `now`.
    pub(super) fn pause(&self, now: Instant) -> Option<Instant> {
        let pause = if self.is_beside_bulk(now) {
            self.cost.saturating_mul(BULK_PAUSE)
        } else {
            self.cost
        };
        let resume_at = self.ended + pause;
        (self.is_beside_transfers(now) && now < resume_at).then_some(resume_at)
    }

    /// Returns how many handshakes may begin in one turn.
    pub(super) fn per_turn(&self, now: Instant) -> usize {
        if self.is_beside_transfers(now) {
            ONE_BY_ONE
        } else {
            TOGETHER
        }
    }

    /// Returns whether connections transfer data, which handshakes should not delay.
    pub(super) fn is_beside_transfers(&self, now: Instant) -> bool {
        is_recent(self.transferred_at, now, TRANSFER_WINDOW) || self.is_beside_bulk(now)
    }

    /// Returns whether connections download or upload.
    pub(super) fn is_beside_bulk(&self, now: Instant) -> bool {
        is_recent(self.bulk_at, now, BULK_WINDOW)
    }
}

/// Whether a transfer at that time may go on.
fn is_recent(at: Option<Instant>, now: Instant, window: Duration) -> bool {
    at.is_some_and(|at| now.saturating_since(at) < window)
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
    fn pause_as_long_as_a_handshake_follows_it_while_data_is_transferred() {
        let mut pace = HandshakePace::default();
        let cost = Duration::from_micros(200);
        assert_eq!(pace.pause(NOW), None);
        pace.on_handshake(NOW, NOW + cost);
        // Nobody else is there.
        assert_eq!(pace.pause(NOW + cost), None);
        pace.on_transfer(NOW, 1);
        assert_eq!(pace.pause(NOW + cost), Some(NOW + cost * 2));
        assert_eq!(pace.pause(NOW + cost * 2), None);
        pace.on_untimed_handshake(NOW + cost * 3);
        assert_eq!(pace.pause(NOW + cost * 3), Some(NOW + cost * 5));
        assert_eq!(pace.per_turn(NOW + cost), 1);
        // The transfer was long ago.
        assert!(pace.per_turn(NOW + TRANSFER_WINDOW) > 1);
        pace.on_untimed_handshake(NOW + TRANSFER_WINDOW);
        assert_eq!(pace.pause(NOW + TRANSFER_WINDOW), None);
        // The machine was busy with something else.
        pace.on_handshake(NOW, NOW + Duration::from_secs(1));
        pace.on_transfer(NOW + Duration::from_secs(1), 1);
        let end = NOW + Duration::from_secs(1) + MAX_COST;
        assert_eq!(pace.pause(NOW + Duration::from_secs(1)), Some(end));
    }

    #[test]
    fn pause_is_three_times_as_long_beside_bulk_transfers() {
        let mut pace = HandshakePace::default();
        let cost = Duration::from_micros(200);
        pace.on_handshake(NOW, NOW + cost);
        pace.on_transfer(NOW, BULK);
        assert_eq!(pace.pause(NOW + cost), Some(NOW + cost * 4));
        assert_eq!(pace.pause(NOW + cost * 4), None);
        pace.on_untimed_handshake(NOW + cost * 4);
        assert_eq!(pace.pause(NOW + cost * 4), Some(NOW + cost * 8));
        // Only short requests go on.
        let late = NOW + BULK_WINDOW;
        pace.on_untimed_handshake(late - cost);
        assert!(pace.pause(late - cost).is_some());
        assert_eq!(pace.pause(late), None);
        pace.on_transfer(late, BULK - 1);
        assert_eq!(pace.pause(late), Some(late + cost));
    }

    #[test]
    fn connections_that_have_transferred_nothing_lengthen_the_pause() {
        let mut pace = HandshakePace::default();
        let cost = Duration::from_micros(200);
        pace.on_transfer(NOW, 1);
        pace.on_unused(cost);
        pace.on_unused(cost);
        pace.on_handshake(NOW, NOW + cost);
        assert_eq!(pace.pause(NOW + cost), Some(NOW + cost * 4));
        // They are paid for.
        pace.on_handshake(NOW, NOW + cost);
        assert_eq!(pace.pause(NOW + cost), Some(NOW + cost * 2));
        // However many there are, newcomers get a turn.
        (0..1_000).for_each(|_| pace.on_unused(cost));
        pace.on_handshake(NOW, NOW + cost);
        assert_eq!(pace.pause(NOW + cost), Some(NOW + cost + MAX_COST));
    }

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
