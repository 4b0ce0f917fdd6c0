//! The largest flight since the last reduction, which bounds growth.

/// maxFS of draft-ietf-ccwg-ratelimited-increase: how much the sender has
/// really had in flight since its window last came down, in bytes.
///
/// A window may grow only to what an ACKed window of this size would have
/// yielded. The bound stops growth; it takes no window away that is already
/// there (after an undo, or for a sender that was quiet since the reduction).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LargestFlight(u64);

impl LargestFlight {
    /// At the start it is the initial window.
    pub(super) fn new(initial_window: u64) -> Self {
        Self(initial_window)
    }

    /// A packet made the flight this large.
    pub(super) fn on_sent(&mut self, in_flight: u64) {
        self.0 = self.0.max(in_flight);
    }

    /// The window was reduced, for whatever reason.
    pub(super) fn reset(&mut self) {
        self.0 = 0;
    }

    /// A reduction was undone: what had been in flight before it counts again.
    pub(super) fn restore(&mut self, before: Self) {
        self.0 = self.0.max(before.0);
    }

    /// Its size.
    pub(super) fn bytes(self) -> u64 {
        self.0
    }

    /// limit(maxFS) in slow start that adds one byte per `divisor` acknowledged.
    pub(super) fn slow_start_limit(self, divisor: u64) -> u64 {
        self.0.saturating_add(self.0 / divisor.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// draft-ietf-ccwg-ratelimited-increase: as far as the largest flight, all
    /// acknowledged, would have grown the window.
    #[test]
    fn slow_start_limit_is_largest_flight_plus_its_share() {
        let mut flight = LargestFlight::new(1_000);
        flight.on_sent(20_000);
        flight.on_sent(12_000);
        assert_eq!(flight.slow_start_limit(1), 40_000);
        assert_eq!(flight.slow_start_limit(4), 25_000);
    }
}
