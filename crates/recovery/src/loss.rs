//! When an unacknowledged packet is lost (RFC 9002 §6.1).
//!
//! The thresholds belong to a path and adapt: a packet that was declared lost
//! and then acknowledged proves reordering, and how much. A larger packet
//! threshold costs little, because the time threshold still stands behind it.

use core::time::Duration;

use crate::outcome::LossCause;
use crate::rtt::{GRANULARITY, Rtt};
use crate::time::Instant;

/// Largest packet threshold that reordering can drive to.
const MAX_PACKETS: u64 = 256;

/// Largest time threshold, in eighths of an RTT: twice the RTT, as RFC 8985
/// §6.2 bounds its reordering window by one RTT.
const MAX_EIGHTHS: u32 = 16;

/// Loss events without a spurious loss after which the thresholds step back
/// (RFC 8985 §6.2: 16 recoveries).
const PERSIST: u32 = 16;

/// A path's loss thresholds.
#[derive(Clone, Debug)]
pub(crate) struct Thresholds {
    initial_packets: u64,
    initial_eighths: u32,
    packets: u64,
    eighths: u32,
    /// Loss events since the last spurious loss.
    quiet: u32,
}

/// What is to be done with a packet sent before an acknowledged one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Lost(LossCause),
    /// Lost at this instant, unless acknowledged before.
    Wait(Instant),
}

impl Thresholds {
    pub(crate) fn new(packets: u64, eighths: u32) -> Self {
        Self {
            initial_packets: packets,
            initial_eighths: eighths,
            packets,
            eighths,
            quiet: 0,
        }
    }

    /// kPacketThreshold.
    pub(crate) const fn packets(&self) -> u64 {
        self.packets
    }

    /// kTimeThreshold, in eighths of an RTT.
    pub(crate) const fn eighths(&self) -> u32 {
        self.eighths
    }

    /// How long after sending a packet is lost once a later one is acknowledged
    /// (RFC 9002 §6.1.2).
    pub(crate) fn delay(&self, rtt: &Rtt) -> Duration {
        (rtt.conservative().saturating_mul(self.eighths) / 8).max(GRANULARITY)
    }

    /// A packet proved spuriously lost when one sent `extent` packets after it
    /// had already been acknowledged.
    pub(crate) fn on_spurious(&mut self, extent: u64) {
        self.quiet = 0;
        let wanted = extent.saturating_add(1).min(MAX_PACKETS);
        self.packets = self.packets.max(wanted);
    }

    /// An ACK brought packets that were later than the time threshold allows:
    /// one step per ACK, as an ACK is about a round's evidence.
    pub(crate) fn on_late(&mut self) {
        self.eighths = (self.eighths + 1).min(MAX_EIGHTHS.max(self.initial_eighths));
    }

    /// A new loss event began.
    pub(crate) fn on_loss_event(&mut self) {
        self.quiet += 1;
        if self.quiet >= PERSIST {
            self.quiet = 0;
            self.packets -= (self.packets - self.initial_packets).div_ceil(2);
            self.eighths = (self.eighths - 1).max(self.initial_eighths);
        }
    }
}

/// Judges a packet: `bound` is the largest number the packet threshold gives up
/// and `delay` the time threshold.
pub(crate) fn judge(
    number: u64,
    sent: Instant,
    bound: Option<u64>,
    delay: Duration,
    now: Instant,
) -> Verdict {
    if bound.is_some_and(|bound| number <= bound) {
        return Verdict::Lost(LossCause::PacketThreshold);
    }
    let deadline = sent + delay;
    if deadline <= now {
        Verdict::Lost(LossCause::TimeThreshold)
    } else {
        Verdict::Wait(deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn rtt(sample: Duration) -> Rtt {
        let mut rtt = Rtt::new(MS * 333);
        rtt.sample(sample, Duration::ZERO, Instant::ZERO);
        rtt
    }

    #[test]
    fn time_threshold_is_nine_eighths_of_the_larger_rtt() {
        let thresholds = Thresholds::new(3, 9);
        let mut path = rtt(MS * 80);
        assert_eq!(thresholds.delay(&path), MS * 90);
        path.sample(MS * 160, Duration::ZERO, Instant::ZERO);
        assert_eq!(thresholds.delay(&path), MS * 180, "latest above smoothed");
        path.sample(MS * 80, Duration::ZERO, Instant::ZERO);
        assert!(thresholds.delay(&path) > MS * 90, "smoothed above latest");
    }

    #[test]
    fn time_threshold_is_at_least_the_granularity() {
        let thresholds = Thresholds::new(3, 9);
        assert_eq!(thresholds.delay(&rtt(MS / 20)), GRANULARITY);
    }

    #[test]
    fn packet_is_lost_exactly_at_the_time_threshold() {
        let sent = Instant::from_nanos(1000);
        let at = |now| judge(7, sent, Some(6), MS, Instant::from_nanos(now));
        assert_eq!(at(1_000_999), Verdict::Wait(Instant::from_nanos(1_001_000)));
        assert_eq!(at(1_001_000), Verdict::Lost(LossCause::TimeThreshold));
        assert_eq!(
            judge(6, sent, Some(6), MS, sent),
            Verdict::Lost(LossCause::PacketThreshold)
        );
    }

    #[test]
    fn packet_threshold_grows_to_the_observed_reordering_up_to_the_maximum() {
        let mut thresholds = Thresholds::new(3, 9);
        thresholds.on_spurious(12);
        assert_eq!(thresholds.packets(), 13);
        thresholds.on_spurious(5);
        assert_eq!(thresholds.packets(), 13);
        thresholds.on_spurious(1 << 40);
        assert_eq!(thresholds.packets(), MAX_PACKETS);
    }

    #[test]
    fn time_threshold_grows_to_two_rtts_at_most() {
        let mut thresholds = Thresholds::new(3, 9);
        for _ in 0..100 {
            thresholds.on_late();
        }
        assert_eq!(thresholds.eighths(), 16);
    }

    #[test]
    fn thresholds_step_back_after_reordering_ends() {
        let mut thresholds = Thresholds::new(3, 9);
        thresholds.on_spurious(99);
        thresholds.on_late();
        for _ in 0..PERSIST - 1 {
            thresholds.on_loss_event();
        }
        assert_eq!((thresholds.packets(), thresholds.eighths()), (100, 10));
        thresholds.on_loss_event();
        assert_eq!((thresholds.packets(), thresholds.eighths()), (51, 9));
        for _ in 0..PERSIST * 10 {
            thresholds.on_loss_event();
        }
        assert_eq!((thresholds.packets(), thresholds.eighths()), (3, 9));
    }

    #[test]
    fn new_reordering_keeps_the_thresholds() {
        let mut thresholds = Thresholds::new(3, 9);
        for _ in 0..100 {
            thresholds.on_spurious(9);
            for _ in 0..PERSIST - 1 {
                thresholds.on_loss_event();
            }
        }
        assert_eq!(thresholds.packets(), 10);
    }
}
