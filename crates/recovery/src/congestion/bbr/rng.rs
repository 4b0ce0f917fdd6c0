//! Random numbers for the time between probes. The same seed gives the same sequence.

/// SplitMix64 (Steele, Lea and Flood). Probe times should differ between flows, but they
/// are not secret.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rng(u64);

impl Rng {
    /// Creates the generator of the sequence of `seed`.
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Returns a number in `0..bound`, or 0 if `bound` is 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        let product = u128::from(self.next()) * u128::from(bound);
        u64::try_from(product >> 64).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_gives_same_sequence() {
        let draw = |seed| {
            let mut rng = Rng::new(seed);
            (0..20).map(|_| rng.below(1_000_000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn draws_cover_the_range_evenly() {
        let mut rng = Rng::new(1);
        let mut counts = [0_u32; 10];
        for _ in 0..10_000 {
            counts[usize::try_from(rng.below(10)).unwrap()] += 1;
        }
        assert!(
            counts.iter().all(|count| (850..1150).contains(count)),
            "{counts:?}"
        );
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.below(1), 0);
    }
}
