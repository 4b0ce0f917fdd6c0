//! Packet numbers that are skipped on purpose (RFC 9000 §21.4).

use crate::rng::Rng;

/// The first packet number that is skipped.
const FIRST_SKIPPED: u64 = 200;

/// Fewest packet numbers between two that are skipped.
const MIN_GAP: u64 = 128;

/// The random part of a gap is below two to the power of this.
const MAX_GAP_BITS: u32 = 20;

/// Chooses the 1-RTT packet numbers to skip: a peer that acknowledges one has acknowledged
/// a packet that it never received. The gaps are random and widen.
#[derive(Debug)]
pub(crate) struct SkippedNumbers {
    next: u64,
    skipped: u32,
}

impl SkippedNumbers {
    pub(crate) fn new() -> Self {
        Self {
            next: FIRST_SKIPPED,
            skipped: 0,
        }
    }

    /// Returns whether to skip `number`. If so, the next one is chosen.
    #[inline]
    pub(crate) fn should_skip(&mut self, number: u64, rng: &mut Rng) -> bool {
        let is_skipped = number == self.next;
        if is_skipped {
            self.choose_next(number, rng);
        }
        is_skipped
    }

    #[cold]
    fn choose_next(&mut self, number: u64, rng: &mut Rng) {
        let widest = 1_u64 << self.skipped.min(MAX_GAP_BITS);
        let gap = rng.below(widest).saturating_add(MIN_GAP);
        self.skipped = self.skipped.saturating_add(1);
        self.next = number.saturating_add(1).saturating_add(gap);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_between_skipped_numbers_are_random_and_widen() {
        let (mut skips, mut rng) = (SkippedNumbers::new(), Rng::from_seed([1; 32]));
        let skipped: Vec<_> = (0..4_000_000)
            .filter(|&number| skips.should_skip(number, &mut rng))
            .collect();
        assert_eq!(skipped[..2], [FIRST_SKIPPED, FIRST_SKIPPED + 1 + MIN_GAP]);
        let gaps: Vec<_> = skipped
            .windows(2)
            .map(|pair| pair[1] - pair[0] - 1)
            .collect();
        for (skipped, gap) in gaps.iter().enumerate() {
            let widest = 1 << skipped.min(MAX_GAP_BITS as usize);
            assert!(
                (MIN_GAP..MIN_GAP + widest).contains(gap),
                "{skipped}: {gap}"
            );
        }
        assert!(gaps.len() < 40, "{} numbers of four million", gaps.len());
    }
}
