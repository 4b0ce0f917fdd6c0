//! Clients whose first datagram waits for a turn with room for a handshake.
//!
//! A handshake costs more than anything else a stranger can ask for, and floods of them
//! come from fewer addresses than the clients they crowd out. So whoever comes from where
//! few have come lately goes first.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::time::Duration;

use clearway_quic::Instant;
use clearway_quic::endpoint::Source;
use foldhash::fast::FixedState;

use super::strays::Stray;

/// Most datagrams that wait.
const ROOM: usize = 512;

/// Handshakes that each source may have begun lately to be in this class or one before it.
const CLASSES: [u8; 4] = [0, 3, 15, u8::MAX];

/// Time in which a handshake is half forgotten.
const HALF_LIFE: Duration = Duration::from_secs(1);

/// Counters in each row of a [`Tally`].
const COLUMNS: usize = 1 << 10;

/// The clients that wait, by how many have begun where they come from.
#[derive(Debug)]
pub(super) struct Newcomers {
    classes: [VecDeque<Stray>; CLASSES.len()],
    lately: Tally,
}

impl Newcomers {
    /// `secret` keeps strangers from choosing addresses that are counted as another's.
    pub(super) fn new(secret: u64) -> Self {
        Self {
            classes: Default::default(),
            lately: Tally::new(secret),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.classes.iter().all(VecDeque::is_empty)
    }

    fn len(&self) -> usize {
        self.classes.iter().map(VecDeque::len).sum()
    }

    /// A client of `source` waits; `None`: it is trusted and goes first. Whether there was
    /// room, for it or by sending away another who has less claim to it.
    pub(super) fn push(&mut self, now: Instant, source: Option<Source>, stray: Stray) -> bool {
        let begun = source.map_or(0, |source| self.lately.of(now, source));
        let class = CLASSES.iter().position(|most| begun <= *most).unwrap_or(0);
        let mut fits = true;
        if self.len() >= ROOM {
            let mut later = self.classes.iter_mut().skip(class.saturating_add(1)).rev();
            fits = later.any(|later| later.pop_back().is_some());
        }
        if fits && let Some(class) = self.classes.get_mut(class) {
            class.push_back(stray);
        }
        fits
    }

    /// The one that goes first.
    pub(super) fn pop(&mut self) -> Option<Stray> {
        self.classes.iter_mut().find_map(VecDeque::pop_front)
    }

    /// A client of this source has begun a handshake.
    pub(super) fn has_begun(&mut self, now: Instant, source: Source) {
        self.lately.add(now, source);
    }
}

/// Handshakes begun lately, by source: a count-min sketch, so that its size is fixed and
/// counts are never too low. Halved every [`HALF_LIFE`].
#[derive(Debug)]
struct Tally {
    rows: [Box<[u8]>; 2],
    hashers: [FixedState; 2],
    halve_at: Instant,
}

impl Tally {
    fn new(secret: u64) -> Self {
        let row = || vec![0; COLUMNS].into_boxed_slice();
        Self {
            rows: [row(), row()],
            hashers: [secret, !secret].map(FixedState::with_seed),
            halve_at: Instant::ZERO,
        }
    }

    /// The counters of a source.
    fn counters(&mut self, source: Source) -> impl Iterator<Item = &mut u8> {
        let rows = self.rows.iter_mut().zip(&self.hashers);
        rows.filter_map(move |(row, hasher)| {
            // There are fewer columns than a `usize` can count.
            let column = hasher.hash_one(source) as usize % COLUMNS;
            row.get_mut(column)
        })
    }

    fn of(&mut self, now: Instant, source: Source) -> u8 {
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

    fn hello(n: u16) -> Stray {
        Stray {
            from: RecvMeta {
                remote: ([10, 0, 0, 1], 1).into(),
                local_ip: None,
                ecn: ReceivedEcn::NotEct,
            },
            datagram: n.to_be_bytes().to_vec(),
        }
    }

    fn number(stray: &Stray) -> u16 {
        u16::from_be_bytes([stray.datagram[0], stray.datagram[1]])
    }

    const NOW: Instant = Instant::from_nanos(5_000_000_000);

    #[test]
    fn clients_from_where_few_have_come_go_first() {
        let mut newcomers = Newcomers::new(7);
        for _ in 0..100 {
            newcomers.has_begun(NOW, source(1));
        }
        newcomers.has_begun(NOW, source(2));
        for from in [1, 2, 3] {
            assert!(newcomers.push(NOW, Some(source(from)), hello(from)));
        }
        // On nobody's account.
        assert!(newcomers.push(NOW, None, hello(4)));
        let order: Vec<u16> = std::iter::from_fn(|| newcomers.pop())
            .map(|one| number(&one))
            .collect();
        assert_eq!(order, [3, 4, 2, 1]);
        assert!(newcomers.is_empty());
    }

    #[test]
    fn full_room_is_given_to_whoever_has_the_better_claim() {
        let mut newcomers = Newcomers::new(7);
        for _ in 0..100 {
            newcomers.has_begun(NOW, source(1));
        }
        for _ in 0..ROOM {
            assert!(newcomers.push(NOW, Some(source(1)), hello(1)));
        }
        assert!(!newcomers.push(NOW, Some(source(1)), hello(1)));
        assert!(newcomers.push(NOW, Some(source(2)), hello(2)));
        assert_eq!(newcomers.len(), ROOM);
        assert_eq!(newcomers.pop().map(|one| number(&one)), Some(2));
    }

    #[test]
    fn what_was_begun_is_forgotten_in_time() {
        let mut newcomers = Newcomers::new(7);
        for _ in 0..200 {
            newcomers.has_begun(NOW, source(1));
        }
        assert!(newcomers.lately.of(NOW, source(1)) >= 200);
        let mut now = NOW;
        for _ in 0..8 {
            now += HALF_LIFE;
            newcomers.lately.of(now, source(1));
        }
        assert_eq!(newcomers.lately.of(now, source(1)), 0);
    }

    #[test]
    fn strangers_seldom_share_all_counters_with_a_flood_of_250_addresses() {
        let mut newcomers = Newcomers::new(7);
        for from in 0..250 {
            newcomers.has_begun(NOW, source(from));
        }
        let mistaken = (1_000..3_000).filter(|from| newcomers.lately.of(NOW, source(*from)) > 0);
        assert!(mistaken.count() < 200);
    }
}
