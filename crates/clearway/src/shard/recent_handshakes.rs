//! How many handshakes clients of each source have begun recently.

use std::hash::BuildHasher;
use std::time::Duration;

use clearway_quic::Instant;
use clearway_quic::endpoint::Source;
use foldhash::fast::FixedState;

/// The interval at which counts of handshakes are halved.
const HALF_LIFE: Duration = Duration::from_secs(1);

/// What a handshake adds to a counter, so that a single one is forgotten after seven seconds. Were it
/// after one, a thousand sources that flood would have a thousand clients a second whose source has begun
/// nothing lately.
const WEIGHT: u16 = 64;

/// Counters in each row, 32 KiB. Beside a thousand sources that flood, one new source in three
/// hundred is taken for one of them, however often it tries again; with 1,024 it would be two in five.
const COLUMNS: usize = 1 << 14;

/// A count-min sketch of recent handshakes by source, whose size is fixed and whose counts are
/// never too low. Halved every [`HALF_LIFE`].
#[derive(Debug)]
pub(super) struct RecentHandshakes {
    rows: [Box<[u16]>; 2],
    hashers: [FixedState; 2],
    halve_at: Instant,
}

impl RecentHandshakes {
    /// Creates an empty sketch. With a `secret` hash, attackers cannot choose addresses that
    /// share the counters of other sources.
    pub(super) fn new(secret: u64) -> Self {
        let row = || vec![0; COLUMNS].into_boxed_slice();
        Self {
            rows: [row(), row()],
            hashers: [secret, !secret].map(FixedState::with_seed),
            halve_at: Instant::ZERO,
        }
    }

    /// Returns the counters of a source.
    fn counters(&mut self, source: Source) -> impl Iterator<Item = &mut u16> {
        let rows = self.rows.iter_mut().zip(&self.hashers);
        rows.filter_map(move |(row, hasher)| {
            // The cast may drop high bits, which the remainder does not need.
            let column = hasher.hash_one(source) as usize % COLUMNS;
            row.get_mut(column)
        })
    }

    /// Returns how many there were, of which older ones count less. At least one as long as any is
    /// remembered.
    pub(super) fn get(&mut self, now: Instant, source: Source) -> u16 {
        self.forget(now);
        let least = self.counters(source).map(|count| *count).min();
        least.unwrap_or(0).div_ceil(WEIGHT)
    }

    pub(super) fn add(&mut self, now: Instant, source: Source) {
        self.forget(now);
        for count in self.counters(source) {
            *count = count.saturating_add(WEIGHT);
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

    const NOW: Instant = Instant::from_nanos(5_000_000_000);

    fn source(n: u16) -> Source {
        let [a, b] = n.to_be_bytes();
        Source::of(std::net::Ipv4Addr::new(10, 0, a, b).into())
    }

    #[test]
    fn counts_decay_to_zero() {
        let mut recent = RecentHandshakes::new(7);
        for _ in 0..8 {
            recent.add(NOW, source(1));
        }
        let mut now = NOW;
        for left in [8, 4, 2, 1, 1, 1, 1, 1, 1, 1, 0] {
            assert_eq!(recent.get(now, source(1)), left);
            now += HALF_LIFE;
        }
    }

    #[test]
    fn counts_do_not_overflow() {
        let mut recent = RecentHandshakes::new(7);
        for _ in 0..u16::MAX / WEIGHT * 2 {
            recent.add(NOW, source(1));
        }
        assert_eq!(recent.get(NOW, source(1)), u16::MAX.div_ceil(WEIGHT));
    }

    #[test]
    fn new_sources_are_rarely_confused_with_a_thousand_flooding_ones() {
        let mut recent = RecentHandshakes::new(7);
        for from in 0..1_000 {
            recent.add(NOW, source(from));
        }
        let mistaken = (1_000..5_000).filter(|from| recent.get(NOW, source(*from)) > 0);
        assert!(mistaken.count() < 40);
    }
}
