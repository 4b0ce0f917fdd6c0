//! Nonces that never repeat.

use core::sync::atomic::{AtomicU64, Ordering};

use super::cipher::{CidCipher, KEY_LEN, MAX_PLAINTEXT};
use crate::rng::Rng;

/// Makes the nonces of one server and one configuration: a counter, permuted with a key of its
/// own.
///
/// So no nonce repeats before all have been used, and none can be predicted from earlier ones,
/// which both kinds of connection ID need: those with a key must not repeat a nonce, those
/// without must not show which belong together (draft-ietf-quic-load-balancers §9.6). A restarted
/// server has another key, and then nonces repeat as random ones do.
#[derive(Debug)]
pub(super) struct Nonces {
    cipher: CidCipher,
    len: usize,
    next: AtomicU64,
    /// How many there are; `None` = more than are ever used.
    available: Option<u64>,
}

impl Nonces {
    /// Creates nonces of `len` bytes, 4 to 18. `None` if the cryptographic library refuses the
    /// key.
    pub(super) fn new(len: usize, rng: &mut Rng) -> Option<Self> {
        let bits = u32::try_from(len).ok()?.checked_mul(8)?;
        Some(Self {
            cipher: CidCipher::new(&rng.array::<KEY_LEN>())?,
            len,
            next: AtomicU64::new(0),
            available: 1_u64.checked_shl(bits),
        })
    }

    /// Writes a nonce that was not used before to the front of `buffer`, and returns it. `None`
    /// if all have been used.
    pub(super) fn next<'a>(&self, buffer: &'a mut [u8; MAX_PLAINTEXT]) -> Option<&'a [u8]> {
        // Only `available` stops the counter, so that it cannot wrap around to used nonces.
        let count = self
            .next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
                self.available
                    .is_none_or(|available| next < available)
                    .then(|| next.checked_add(1))
                    .flatten()
            })
            .ok()?;
        let nonce = buffer.get_mut(..self.len)?;
        nonce.fill(0);
        for (to, from) in nonce.iter_mut().rev().zip(count.to_le_bytes()) {
            *to = from;
        }
        self.cipher.permute(nonce)?;
        Some(nonce)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn nonces_of_every_length_do_not_repeat() {
        for len in 4..=18 {
            let nonces = Nonces::new(len, &mut Rng::from_seed([1; 32])).unwrap();
            let mut seen = HashSet::new();
            for _ in 0..5_000 {
                let mut buffer = [0; MAX_PLAINTEXT];
                let nonce = nonces.next(&mut buffer).unwrap();
                assert_eq!(nonce.len(), len);
                assert!(seen.insert(nonce.to_vec()), "{len}");
            }
        }
    }

    #[test]
    fn exhausted_nonces_are_not_used_again() {
        let nonces = Nonces::new(4, &mut Rng::from_seed([2; 32])).unwrap();
        nonces.next.store((1 << 32) - 1, Ordering::Relaxed);
        let mut buffer = [0; MAX_PLAINTEXT];
        assert!(nonces.next(&mut buffer).is_some());
        for _ in 0..3 {
            assert!(nonces.next(&mut buffer).is_none());
        }
    }

    #[test]
    fn servers_with_other_seeds_draw_other_nonces() {
        let first = |seed| {
            let nonces = Nonces::new(8, &mut Rng::from_seed([seed; 32])).unwrap();
            let mut buffer = [0; MAX_PLAINTEXT];
            nonces.next(&mut buffer).unwrap().to_vec()
        };
        assert_ne!(first(3), first(4));
    }
}
