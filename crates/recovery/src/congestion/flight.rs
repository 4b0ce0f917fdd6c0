//! The largest flight since the last reduction, which bounds growth.

/// maxFS of draft-ietf-ccwg-ratelimited-increase: the most bytes that were in flight since
/// the window was last reduced.
///
/// A window may grow only to the size that the acknowledgment of a full window of this size
/// would have led to. The bound only stops growth. It does not reduce a window that is
/// already larger (after an undo, or of a sender that sent little since the reduction).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LargestFlight(u64);

impl LargestFlight {
    /// Starts with the initial window.
    pub(super) fn new(initial_window: u64) -> Self {
        Self(initial_window)
    }

    /// Records the bytes in flight after a packet was sent.
    pub(super) fn on_sent(&mut self, in_flight: u64) {
        self.0 = self.0.max(in_flight);
    }

    /// Starts again after a reduction of the window.
    pub(super) fn reset(&mut self) {
        self.0 = 0;
    }

    /// Restores the value from before a reduction that was undone.
    pub(super) fn restore(&mut self, before: Self) {
        self.0 = self.0.max(before.0);
    }

    /// Returns it in bytes.
    pub(super) fn bytes(self) -> u64 {
        self.0
    }

    /// Returns limit(maxFS) of a slow start that adds one byte per `divisor` acknowledged.
    pub(super) fn slow_start_limit(self, divisor: u64) -> u64 {
        self.0.saturating_add(self.0 / divisor.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// draft-ietf-ccwg-ratelimited-increase: up to the window that the acknowledgment of
    /// the whole largest flight would lead to.
    #[test]
    fn slow_start_limit_is_largest_flight_plus_its_share() {
        let mut flight = LargestFlight::new(1_000);
        flight.on_sent(20_000);
        flight.on_sent(12_000);
        assert_eq!(flight.slow_start_limit(1), 40_000);
        assert_eq!(flight.slow_start_limit(4), 25_000);
    }
}
