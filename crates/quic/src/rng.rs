//! Random numbers from a seed that the caller provides: an endpoint seeds from the
//! operating system, a simulation from its scenario. Nothing here asks for entropy.

use core::fmt;

use rand_chacha::ChaCha12Rng;
use rand_core::{RngCore, SeedableRng};

/// A generator of unpredictable bytes from a 256-bit seed (ChaCha, 12 rounds).
///
/// Not `Clone`, because two copies would produce the same connection IDs.
///
/// Stores the seed and the position in the stream instead of a `ChaCha12Rng`, which buffers
/// four blocks (320 bytes for every connection, idle or not). A connection draws few
/// numbers, and creating a generator for each takes some hundred nanoseconds.
pub struct Rng {
    seed: [u8; 32],
    /// Number of 32-bit words drawn.
    drawn: u64,
    /// Random bits drawn in advance for `coin`, and how many are left; each packet takes
    /// one.
    coins: u64,
    unthrown: u8,
}

impl Rng {
    /// Creates a generator whose output is determined by `seed`.
    #[must_use]
    pub fn from_seed(seed: [u8; 32]) -> Self {
        Self {
            seed,
            drawn: 0,
            coins: 0,
            unthrown: 0,
        }
    }

    fn draw<T>(&mut self, words: usize, draw: impl FnOnce(&mut ChaCha12Rng) -> T) -> T {
        let mut stream = ChaCha12Rng::from_seed(self.seed);
        stream.set_word_pos(u128::from(self.drawn));
        self.drawn = self.drawn.saturating_add(words as u64);
        draw(&mut stream)
    }

    /// Returns 64 random bits.
    pub fn u64(&mut self) -> u64 {
        self.draw(2, ChaCha12Rng::next_u64)
    }

    /// Returns a random bit, cheaply enough for every packet.
    #[inline]
    pub(crate) fn coin(&mut self) -> bool {
        self.unthrown = match self.unthrown.checked_sub(1) {
            Some(left) => left,
            None => {
                self.coins = self.u64();
                63
            }
        };
        let coin = self.coins & 1 == 1;
        self.coins >>= 1;
        coin
    }

    /// Fills `bytes` with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.draw(bytes.len().div_ceil(4), |stream| stream.fill_bytes(bytes));
    }

    /// Returns an array of random bytes.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.fill(&mut bytes);
        bytes
    }

    /// Returns a uniformly distributed number in `0..n`; 0 if `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        // The high half of a 128-bit product scales 64 bits down to n. The
        // first 2^64 mod n values of the low half would give some results one
        // extra chance, so they are drawn again.
        let surplus = n.wrapping_neg().checked_rem(n).unwrap_or(0);
        loop {
            let product = u128::from(self.u64()).saturating_mul(u128::from(n));
            if product as u64 >= surplus {
                return (product >> 64) as u64;
            }
        }
    }

    /// Derives an independent generator, whose output neither reveals this one's nor can be
    /// predicted from it without the seed. The label separates children that two ends with
    /// one seed create in the same order for different purposes; two children with the same
    /// label differ as well.
    #[must_use]
    pub fn child(&mut self, label: &str) -> Self {
        let mut seed: [u8; 32] = self.array();
        // Labels are short: each byte changes a different position, and the length
        // distinguishes a label from its prefix.
        seed[31] ^= label.len() as u8;
        for piece in label.as_bytes().chunks(seed.len()) {
            for (place, byte) in seed.iter_mut().zip(piece) {
                *place = place.wrapping_mul(0x95).wrapping_add(*byte);
            }
        }
        let mut derived = ChaCha12Rng::from_seed(seed);
        derived.set_stream(1);
        let mut child = [0; 32];
        derived.fill_bytes(&mut child);
        Self::from_seed(child)
    }
}

impl RngCore for Rng {
    fn next_u32(&mut self) -> u32 {
        self.draw(1, ChaCha12Rng::next_u32)
    }

    fn next_u64(&mut self) -> u64 {
        self.u64()
    }

    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        self.fill(bytes);
    }
}

impl fmt::Debug for Rng {
    /// The state predicts every later connection ID and is never printed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rng(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_gives_the_same_stream() {
        let mut a = Rng::from_seed([7; 32]);
        let mut b = Rng::from_seed([7; 32]);
        let mut c = Rng::from_seed([8; 32]);
        let first: [u8; 64] = a.array();
        assert_eq!(first, b.array::<64>());
        assert_ne!(first, c.array::<64>());
        assert_ne!(first, a.array::<64>());
    }

    #[test]
    fn draws_follow_the_chacha_stream_without_overlap() {
        let mut rng = Rng::from_seed([7; 32]);
        let mut stream = ChaCha12Rng::from_seed([7; 32]);
        for len in 0..300 {
            let mut expected = vec![0; len];
            stream.fill_bytes(&mut expected);
            let mut bytes = vec![0; len];
            rng.fill(&mut bytes);
            assert_eq!(bytes, expected);
            assert_eq!(rng.u64(), stream.next_u64());
            assert_eq!(rng.next_u32(), stream.next_u32());
        }
    }

    #[test]
    fn below_is_uniform_and_below_its_bound() {
        let mut rng = Rng::from_seed([1; 32]);
        let mut seen = [0_u32; 7];
        for _ in 0..7_000 {
            seen[rng.below(7) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| (850..1_150).contains(&n)), "{seen:?}");
        assert_eq!(rng.below(1), 0);
        assert_eq!(rng.below(0), 0);
        assert!((0..100).all(|_| rng.below((1 << 63) + 1) <= 1 << 63));
    }

    #[test]
    fn coin_is_fair() {
        let mut rng = Rng::from_seed([5; 32]);
        let heads = (0..10_000).filter(|_| rng.coin()).count();
        assert!((4_800..5_200).contains(&heads), "{heads}");
    }

    #[test]
    fn children_differ_by_label_and_by_order() {
        let child = |label: &str, skip: usize| {
            let mut parent = Rng::from_seed([3; 32]);
            for _ in 0..skip {
                let _ = parent.child("skipped");
            }
            parent.child(label).u64()
        };
        assert_eq!(child("cid", 0), child("cid", 0));
        assert_ne!(child("cid", 0), child("path", 0));
        assert_ne!(child("dic", 0), child("cid", 0));
        assert_ne!(child("cid", 0), child("cid", 1));
        assert_ne!(child("cid", 0), Rng::from_seed([3; 32]).u64());
    }

    #[test]
    fn debug_output_does_not_reveal_the_seed() {
        assert_eq!(format!("{:?}", Rng::from_seed([0x41; 32])), "Rng(..)");
    }
}
