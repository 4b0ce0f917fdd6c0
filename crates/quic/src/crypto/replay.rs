//! Accepts each NEW_TOKEN token only once (RFC 9000 §8.1.4), in bounded memory.

use rustc_hash::FxHashSet;

use super::token::AddressToken;

/// Remembers which tokens have been used.
///
/// Two generations of token ids are kept. When the newer one is full, the older one is dropped,
/// and all tokens issued up to its youngest one are rejected from then on. So no token is ever
/// accepted twice. Under a flood, old unused tokens are rejected as well; their owners are
/// validated by a Retry or by the handshake.
#[derive(Debug)]
pub struct ReplayFilter {
    newer: Generation,
    older: Generation,
    capacity: usize,
    /// Tokens issued up to this time, in Unix seconds, are rejected.
    distrusted_until: Option<u64>,
}

#[derive(Debug, Default)]
struct Generation {
    /// Halves of ids. They are our own random numbers, authenticated, so an unkeyed hash is
    /// safe.
    used: FxHashSet<u64>,
    youngest: u64,
}

impl ReplayFilter {
    /// Creates a filter that remembers between `capacity` and twice as many tokens, at about
    /// 20 bytes each.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            newer: Generation::default(),
            older: Generation::default(),
            capacity: capacity.max(1),
            distrusted_until: None,
        }
    }

    /// Rejects every token issued up to `until`, in Unix seconds. A server that restarts with
    /// the same key has lost its filter; with its start time here, it validates clients anew
    /// instead of accepting a token twice.
    #[must_use]
    pub fn distrusting_until(mut self, until: u64) -> Self {
        self.distrusted_until = Some(until);
        self
    }

    /// Returns whether `token` is accepted, and marks it as used.
    pub fn admit(&mut self, token: &AddressToken) -> bool {
        if self
            .distrusted_until
            .is_some_and(|until| token.issued <= until)
        {
            return false;
        }
        let half = first_half(&token.id);
        if self.older.used.contains(&half) || !self.newer.used.insert(half) {
            return false;
        }
        self.newer.youngest = self.newer.youngest.max(token.issued);
        if self.newer.used.len() >= self.capacity {
            self.rotate();
        }
        true
    }

    fn rotate(&mut self) {
        let full = core::mem::take(&mut self.newer);
        let forgotten = core::mem::replace(&mut self.older, full);
        if !forgotten.used.is_empty() {
            self.distrusted_until = self.distrusted_until.max(Some(forgotten.youngest));
        }
    }
}

/// Half of an id is enough: a token that is wrongly taken for used costs its owner a round trip.
fn first_half(id: &[u8; 16]) -> u64 {
    (u128::from_be_bytes(*id) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Version;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn token(n: u64, issued: u64) -> AddressToken {
        AddressToken {
            version: Version::V1,
            issued,
            ip: [127, 0, 0, 1].into(),
            id: (u128::from(n) << 64).to_be_bytes(),
            path: None,
        }
    }

    #[test]
    fn token_is_accepted_once() {
        let mut filter = ReplayFilter::new(100);
        assert!(filter.admit(&token(1, 10)));
        assert!(!filter.admit(&token(1, 10)));
        assert!(filter.admit(&token(2, 10)));
    }

    #[test]
    fn tokens_issued_before_cutoff_are_rejected() {
        let mut filter = ReplayFilter::new(100).distrusting_until(50);
        assert!(!filter.admit(&token(1, 50)));
        assert!(filter.admit(&token(1, 51)));
    }

    #[test]
    fn recent_tokens_are_accepted_while_old_ones_are_forgotten() {
        let mut filter = ReplayFilter::new(10);
        for n in 0..1000 {
            assert!(filter.admit(&token(n, n)), "token {n}");
        }
        assert!(filter.newer.used.len() + filter.older.used.len() <= 20);
    }

    proptest! {
        #[test]
        fn no_token_is_accepted_twice_even_when_forgotten(uses in prop::collection::vec(0u64..40, 1..400)) {
            let mut filter = ReplayFilter::new(5);
            let mut believed = BTreeSet::new();
            for n in uses {
                // The issue time belongs to the token, so it follows from its number.
                let token = token(n, n / 4 + (n % 3) * 2);
                if filter.admit(&token) {
                    prop_assert!(believed.insert(n), "token {n} accepted twice");
                }
                prop_assert!(filter.newer.used.len() + filter.older.used.len() <= 10);
            }
        }
    }
}
