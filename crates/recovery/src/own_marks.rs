//! Whether a path's queue marks the sender's own trains.
//!
//! A queue that marks before the second datagram of a train has waited for the first marks every
//! train, whatever the window is: the controller goes to its minimum window and stays there.
//! Two things tell such marks from those of congestion. Where the round trip says that the queue
//! was short, it marks early. But the round trip may say nothing: it varies, it has risen since its
//! minimum, or one datagram takes longer than any early queue. Then the window shows it: what is
//! marked although next to nothing was in flight waited for the sender's own train, or for other
//! flows, which a flow that sends its datagrams one by one treats no worse. And so did what waited for less
//! than the flow takes for two datagrams.

use core::time::Duration;

use crate::rtt::Rtt;

/// Queueing delay below which a queue that marks does so early: between the millisecond of an L4S
/// queue (RFC 9332 §4), with a burst, and CoDel's five (RFC 8289 §4.3).
const EARLY_MARK: Duration = Duration::from_millis(3);

/// Datagrams of a train that is no queue. What waits for less than the flow takes to send so many
/// at its window's rate waited for a train of its own: one datagram takes longer on a slow link than
/// any early queue.
const TRAIN: u32 = 2;

/// Minimum windows up to which a window is too small for a queue of its own. Twice, because
/// Prague reduces by the share of marks and stays a little above its minimum, and because a
/// window that is marked in most rounds, not in all, grows by a datagram in the others.
const SMALL_WINDOWS: u64 = 2;

/// What the marks of a path have shown.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OwnMarks {
    /// Whether the last one came from a queue that marks early.
    early: bool,
    /// Whether one came at a small window, or after less than the flow takes for a train. It stays: with
    /// short trains the window grows, and longer ones would bring it back.
    of_small_flow: bool,
}

impl OwnMarks {
    /// Records marks that were reported with the latest round trip, before the window is
    /// reduced for them.
    pub(crate) fn on_marks(&mut self, rtt: &Rtt, window: u64, min_window: u64, mds: u64) {
        let waited = rtt.latest().saturating_sub(rtt.min().unwrap_or_default());
        let datagrams = u32::try_from(window / mds.max(1)).unwrap_or(u32::MAX);
        let train = rtt.smoothed().saturating_mul(TRAIN) / datagrams.max(1);
        self.early = waited < EARLY_MARK;
        self.of_small_flow |= (EARLY_MARK..train).contains(&waited)
            || window <= min_window.saturating_mul(SMALL_WINDOWS);
    }

    /// Returns whether trains have to be short, because the queue marks those of two datagrams.
    pub(crate) const fn shorten_trains(self) -> bool {
        self.early || self.of_small_flow
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Instant;

    const MDS: u64 = 1_200;

    /// Marks at these milliseconds of RTT over a minimum of 40, and at windows of so many
    /// datagrams where the minimum is two.
    fn after(marks: &[(u64, u64)]) -> bool {
        let mut rtt = Rtt::new(Duration::from_millis(333));
        let mut own = OwnMarks::default();
        let sample = |rtt: &mut Rtt, millis| {
            rtt.sample(Duration::from_millis(millis), Duration::ZERO, Instant::ZERO);
        };
        sample(&mut rtt, 40);
        for &(millis, datagrams) in marks {
            sample(&mut rtt, millis);
            own.on_marks(&rtt, datagrams * MDS, 2 * MDS, MDS);
        }
        own.shorten_trains()
    }

    /// At 40 ms and eight datagrams a window, two take 10 ms; at a hundred they take less than a millisecond.
    #[test]
    fn mark_within_two_datagrams_time_shortens_trains_for_good() {
        assert!(after(&[(48, 8), (80, 100)]));
        assert!(!after(&[(55, 8)]));
        assert!(!after(&[(48, 100)]));
        assert!(
            !after(&[(42, 100), (80, 100)]),
            "an early queue, not a slow link"
        );
    }

    #[test]
    fn marks_of_a_long_queue_at_a_large_window_are_of_congestion() {
        assert!(!after(&[]));
        assert!(!after(&[(45, 20)]));
        assert!(!after(&[(42, 20), (45, 20)]), "the last one decides");
    }

    #[test]
    fn marks_at_a_short_queue_shorten_trains() {
        assert!(after(&[(42, 100)]));
        assert!(after(&[(45, 100), (42, 100)]));
    }

    #[test]
    fn mark_at_a_small_window_shortens_trains_whatever_the_round_trip_and_for_good() {
        assert!(after(&[(45, 4)]));
        assert!(after(&[(80, 2), (80, 100)]));
    }
}
