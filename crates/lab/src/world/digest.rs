//! The digest of a run.

use clearway_links::{Direction, Time};

use super::Fate;

/// A running hash of (time, direction, size, decision).
///
/// Ciphertext is left out: key shares and signatures cannot be seeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    fn mix(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(23) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    /// Adds a datagram.
    pub(super) fn add(&mut self, at: Time, direction: Direction, size: usize) {
        let way = match direction {
            Direction::Up => 0,
            Direction::Down => 1,
        };
        self.mix(at.0);
        self.mix((size as u64) << 1 | way);
    }

    /// Adds a decision about it.
    pub(super) fn decide(&mut self, fate: Fate) {
        self.mix(match fate {
            Fate::Sent => 1,
            Fate::QueueFull => 2,
            Fate::Dropped => 3,
            Fate::Arrived => 4,
        });
    }

    /// The digest so far.
    #[must_use]
    pub const fn value(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_depends_on_order_time_size_and_decision() {
        let digest = |items: &[(u64, usize, Fate)]| {
            let mut digest = Digest::default();
            for &(at, size, fate) in items {
                digest.add(Time(at), Direction::Up, size);
                digest.decide(fate);
            }
            digest.value()
        };
        let base = digest(&[(1, 100, Fate::Sent), (2, 200, Fate::Sent)]);
        assert_ne!(base, digest(&[(2, 200, Fate::Sent), (1, 100, Fate::Sent)]));
        assert_ne!(base, digest(&[(1, 100, Fate::Sent), (3, 200, Fate::Sent)]));
        assert_ne!(base, digest(&[(1, 100, Fate::Sent), (2, 201, Fate::Sent)]));
        let dropped = digest(&[(1, 100, Fate::Sent), (2, 200, Fate::QueueFull)]);
        assert_ne!(base, dropped);
    }
}
