//! The anti-amplification limit (RFC 9000 §8.1): until an address is validated, at most
//! three times the bytes received from it are sent to it.

/// Bytes that may be sent for each byte received (RFC 9000 §8).
pub(crate) const AMPLIFICATION_FACTOR: u64 = 3;

/// The anti-amplification limit of a path. Counts bytes of UDP payload, in whole datagrams.
#[derive(Clone, Copy, Debug, Default)]
pub struct Amplification {
    received: u64,
    sent: u64,
    validated: bool,
}

impl Amplification {
    /// Creates the limit for an unvalidated address: nothing may be sent yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a lifted limit, for a client's paths and addresses validated by a token.
    #[must_use]
    pub fn validated() -> Self {
        Self {
            validated: true,
            ..Self::default()
        }
    }

    /// Counts a datagram received from the address.
    pub fn on_received(&mut self, bytes: usize) {
        self.received = self.received.saturating_add(bytes as u64);
    }

    /// Counts a datagram sent to the address.
    pub fn on_sent(&mut self, bytes: usize) {
        self.sent = self.sent.saturating_add(bytes as u64);
    }

    /// Marks the address as validated, which lifts the limit.
    pub fn validate(&mut self) {
        self.validated = true;
    }

    /// Returns whether the address is validated.
    #[must_use]
    pub fn is_validated(&self) -> bool {
        self.validated
    }

    /// Returns the bytes that may be sent now; `u64::MAX` once validated.
    #[must_use]
    pub fn available(&self) -> u64 {
        if self.validated {
            return u64::MAX;
        }
        self.received
            .saturating_mul(AMPLIFICATION_FACTOR)
            .saturating_sub(self.sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn limit_is_three_times_received_bytes_until_validated() {
        let mut budget = Amplification::new();
        assert_eq!(budget.available(), 0);
        budget.on_received(1_200);
        assert_eq!(budget.available(), 3_600);
        budget.on_sent(3_600);
        assert_eq!(budget.available(), 0);
        budget.on_received(0);
        assert_eq!(budget.available(), 0, "an empty datagram buys nothing");
        budget.on_received(50);
        assert_eq!(budget.available(), 150);
        budget.validate();
        assert!(budget.is_validated());
        assert_eq!(budget.available(), u64::MAX);
        assert_eq!(Amplification::validated().available(), u64::MAX);
    }

    proptest! {
        #[test]
        fn sender_within_available_bytes_never_exceeds_the_limit(
            steps in proptest::collection::vec((0..3_000_usize, 0..3_000_u64), 0..100),
        ) {
            let mut budget = Amplification::new();
            let (mut received, mut sent) = (0, 0);
            for (arrived, wish) in steps {
                budget.on_received(arrived);
                received += arrived as u64;
                let size = wish.min(budget.available());
                budget.on_sent(size as usize);
                sent += size;
                prop_assert!(sent <= 3 * received);
                prop_assert_eq!(budget.available(), 3 * received - sent);
            }
        }
    }
}
