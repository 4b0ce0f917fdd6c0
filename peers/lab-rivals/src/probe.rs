//! What a rival's controller is told, counted on the way.
//!
//! The rivals do not show their bytes in flight, nor persistent congestion.
//! Both let the user bring a controller, so theirs is put in a case that hands
//! every call on unchanged and counts.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Counters of one connection's controller.
#[derive(Debug, Default)]
pub(crate) struct Probe {
    in_flight: AtomicU64,
    persistent: AtomicU64,
    /// Nanoseconds; zero before the first sample.
    min_rtt: AtomicU64,
}

impl Probe {
    pub(crate) fn sent(&self, bytes: u64) {
        self.in_flight.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn acknowledged(&self, in_flight: u64) {
        self.in_flight.store(in_flight, Relaxed);
    }

    pub(crate) fn lost(&self, bytes: u64, persistent: bool) {
        let left = self.in_flight().saturating_sub(bytes);
        self.in_flight.store(left, Relaxed);
        self.persistent.fetch_add(u64::from(persistent), Relaxed);
    }

    pub(crate) fn measured(&self, min_rtt: Duration) {
        let nanos = u64::try_from(min_rtt.as_nanos()).unwrap_or(u64::MAX);
        self.min_rtt.store(nanos, Relaxed);
    }

    /// Bytes sent and neither acknowledged nor lost, as the controller knows.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight.load(Relaxed)
    }

    /// Times the controller was told of persistent congestion.
    pub(crate) fn persistent_events(&self) -> u64 {
        self.persistent.load(Relaxed)
    }

    /// Least RTT of the path, once measured.
    pub(crate) fn min_rtt(&self) -> Option<Duration> {
        let nanos = self.min_rtt.load(Relaxed);
        (nanos > 0).then(|| Duration::from_nanos(nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_is_in_flight_until_it_is_acknowledged_or_lost() {
        let probe = Probe::default();
        probe.sent(3_000);
        probe.lost(1_000, false);
        assert_eq!(probe.in_flight(), 2_000);
        probe.acknowledged(500);
        probe.lost(1_000, true);
        assert_eq!(probe.in_flight(), 0);
        assert_eq!(probe.persistent_events(), 1);
        assert_eq!(probe.min_rtt(), None);
    }
}
