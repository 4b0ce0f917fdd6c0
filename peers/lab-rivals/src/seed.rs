//! Randomness from a run's seed, as far as the rivals let it in: connection
//! IDs and each endpoint's own generator. Their TLS and some of their
//! controllers draw from the system all the same.

use clearway_lab::stack::{Role, StackSetup};

/// Bytes of a connection ID, as both rivals' own generators make them.
pub(crate) const CID_LEN: usize = 8;

/// A stream of bytes from a seed (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Seeded(u64);

impl Seeded {
    /// The stream that belongs to one stack and one purpose of it.
    pub(crate) fn new(birth: &StackSetup, purpose: u64) -> Self {
        let role = match birth.role {
            Role::Client => 1,
            Role::Server => 2,
        };
        let mut this = Self(birth.seed);
        for word in [birth.index as u64, role, purpose] {
            this.0 = this.next() ^ word;
        }
        this
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next bytes.
    pub(crate) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        for chunk in out.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_be_bytes()[..chunk.len()]);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn birth(seed: u64, index: usize, role: Role) -> StackSetup {
        StackSetup {
            address: ([10, 0, 0, 1], 4433).into(),
            role,
            seed,
            index,
        }
    }

    #[test]
    fn random_numbers_depend_only_on_the_stack() {
        let draw = |birth: &StackSetup, purpose| Seeded::new(birth, purpose).bytes::<32>();
        let first = birth(7, 0, Role::Client);
        assert_eq!(draw(&first, 1), draw(&first, 1));
        let others = [
            draw(&first, 2),
            draw(&birth(8, 0, Role::Client), 1),
            draw(&birth(7, 1, Role::Client), 1),
            draw(&birth(7, 0, Role::Server), 1),
        ];
        for other in others {
            assert_ne!(draw(&first, 1), other);
        }
    }
}
