//! When an unacknowledged packet is lost (RFC 9002 §6.1).
//!
//! Each path has its own thresholds, which adapt: a packet that was declared lost and is
//! then acknowledged shows how much packets were reordered. A larger packet threshold costs
//! little, because the time threshold still applies.

use core::time::Duration;

use crate::outcome::LossCause;
use crate::rtt::{GRANULARITY, Rtt};
use crate::time::Instant;

/// kPacketThreshold, the smallest packet threshold (RFC 9002 §6.1.1).
pub(crate) const PACKET_THRESHOLD: u64 = 3;

/// kTimeThreshold, the smallest time threshold, in eighths of an RTT (RFC 9002 §6.1.2).
pub(crate) const TIME_THRESHOLD_EIGHTHS: u32 = 9;

/// Largest packet threshold that reordering can lead to: more packets than any path has in
/// flight. RFC 8985 §6.2 stops counting packets once reordering is seen, because their number
/// depends on the rate: 20 ms late at 1 Gbit/s is 1,700 packets late.
const MAX_PACKETS: u64 = 1 << 20;

/// Largest time threshold, in eighths of an RTT, where that is more than a probe timeout: four
/// RTTs. RFC 8985 §6.2 bounds its reordering window by one RTT. But it is widened without proof, by
/// the number of recoveries, and here only by packets that came later than it allowed.
const MAX_EIGHTHS: u32 = 32;

/// Number of loss events without a spurious loss after which the thresholds step back (RFC
/// 8985 §6.2: 16 recoveries).
const STEP_BACK_EVENTS: u32 = 16;

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

/// Whether a packet sent before an acknowledged one is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LossDecision {
    Lost(LossCause),
    /// Not yet: it will be lost at this instant unless it is acknowledged before.
    NotYet(Instant),
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

    /// Returns kPacketThreshold.
    pub(crate) const fn packets(&self) -> u64 {
        self.packets
    }

    /// Returns kTimeThreshold in eighths of an RTT.
    pub(crate) const fn eighths(&self) -> u32 {
        self.eighths
    }

    /// Returns the age at which a packet is lost once a later one is acknowledged (RFC 9002
    /// §6.1.2).
    ///
    /// The limit is applied here, because what a short path has proved is too much once a queue has
    /// made its RTT long.
    pub(crate) fn delay(&self, rtt: &Rtt, max_ack_delay: Duration) -> Duration {
        let proved = rtt.conservative().saturating_mul(self.eighths) / 8;
        // For each packet that an ACK leaves unacknowledged, so the limit is not computed in vain.
        let limited = match self.eighths <= MAX_EIGHTHS {
            true => proved,
            false => proved.min(self.limit(rtt, max_ack_delay)),
        };
        limited.max(GRANULARITY)
    }

    /// Returns the time threshold that proof may lead to: four RTTs, or the probe timeout, at which
    /// a loss would be found in any case. Over a few milliseconds four RTTs are less than the jitter
    /// of a radio link.
    fn limit(&self, rtt: &Rtt, max_ack_delay: Duration) -> Duration {
        let eighths = MAX_EIGHTHS.max(self.initial_eighths);
        let rtts = rtt.conservative().saturating_mul(eighths) / 8;
        rtts.max(rtt.pto().saturating_add(max_ack_delay))
    }

    /// Raises the packet threshold after a spurious loss: a packet sent `extent` packets
    /// later was acknowledged earlier.
    pub(crate) fn on_spurious(&mut self, extent: u64) {
        self.quiet = 0;
        let wanted = extent.saturating_add(1).min(MAX_PACKETS);
        self.packets = self.packets.max(wanted);
    }

    /// Raises the time threshold by one step because an ACK acknowledged packets later than
    /// it allows. One step per ACK, because an ACK is about one round's evidence.
    pub(crate) fn on_late(&mut self, rtt: &Rtt, max_ack_delay: Duration) {
        if self.delay(rtt, max_ack_delay) < self.limit(rtt, max_ack_delay) {
            self.eighths = self.eighths.saturating_add(1);
        }
    }

    /// Counts a new loss event, and lets the thresholds step back if it is time.
    pub(crate) fn on_loss_event(&mut self) {
        self.quiet += 1;
        if self.quiet >= STEP_BACK_EVENTS {
            self.quiet = 0;
            self.packets -= (self.packets - self.initial_packets).div_ceil(2);
            let excess = self.eighths - self.initial_eighths;
            self.eighths -= (excess / 16).max(1).min(excess);
        }
    }
}

/// Decides whether a packet is lost. `bound` is the largest number that the packet
/// threshold declares lost, `delay` the time threshold.
pub(crate) fn decide(
    number: u64,
    sent: Instant,
    bound: Option<u64>,
    delay: Duration,
    now: Instant,
) -> LossDecision {
    if bound.is_some_and(|bound| number <= bound) {
        return LossDecision::Lost(LossCause::PacketThreshold);
    }
    let deadline = sent + delay;
    if deadline <= now {
        LossDecision::Lost(LossCause::TimeThreshold)
    } else {
        LossDecision::NotYet(deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const ACK_DELAY: Duration = Duration::from_millis(25);

    fn rtt(sample: Duration) -> Rtt {
        let mut rtt = Rtt::new(MS * 333);
        rtt.sample(sample, Duration::ZERO, Instant::ZERO);
        rtt
    }

    #[test]
    fn time_threshold_is_nine_eighths_of_the_larger_rtt() {
        let thresholds = Thresholds::new(3, 9);
        let mut path = rtt(MS * 80);
        assert_eq!(thresholds.delay(&path, ACK_DELAY), MS * 90);
        path.sample(MS * 160, Duration::ZERO, Instant::ZERO);
        assert_eq!(
            thresholds.delay(&path, ACK_DELAY),
            MS * 180,
            "latest above smoothed"
        );
        path.sample(MS * 80, Duration::ZERO, Instant::ZERO);
        assert!(
            thresholds.delay(&path, ACK_DELAY) > MS * 90,
            "smoothed above latest"
        );
    }

    #[test]
    fn time_threshold_is_at_least_the_granularity() {
        let thresholds = Thresholds::new(3, 9);
        assert_eq!(thresholds.delay(&rtt(MS / 20), ACK_DELAY), GRANULARITY);
    }

    #[test]
    fn packet_is_lost_exactly_at_the_time_threshold() {
        let sent = Instant::from_nanos(1000);
        let at = |now| decide(7, sent, Some(6), MS, Instant::from_nanos(now));
        assert_eq!(
            at(1_000_999),
            LossDecision::NotYet(Instant::from_nanos(1_001_000))
        );
        assert_eq!(at(1_001_000), LossDecision::Lost(LossCause::TimeThreshold));
        assert_eq!(
            decide(6, sent, Some(6), MS, sent),
            LossDecision::Lost(LossCause::PacketThreshold)
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
    fn time_threshold_grows_to_four_rtts_or_a_probe_timeout_at_most() {
        // After one sample the probe timeout is three RTTs and 25 ms.
        for (sample, most) in [(100, 400), (26, 104), (24, 97), (2, 31)] {
            let mut thresholds = Thresholds::new(3, 9);
            let path = rtt(MS * sample);
            for _ in 0..300 {
                thresholds.on_late(&path, ACK_DELAY);
            }
            let delay = thresholds.delay(&path, ACK_DELAY);
            assert!(
                delay >= MS * most && delay < MS * (most + 1),
                "{sample}: {delay:?}"
            );
        }
    }

    #[test]
    fn thresholds_step_back_after_reordering_ends() {
        let mut thresholds = Thresholds::new(3, 9);
        thresholds.on_spurious(99);
        thresholds.on_late(&rtt(MS * 100), ACK_DELAY);
        for _ in 0..STEP_BACK_EVENTS - 1 {
            thresholds.on_loss_event();
        }
        assert_eq!((thresholds.packets(), thresholds.eighths()), (100, 10));
        thresholds.on_loss_event();
        assert_eq!((thresholds.packets(), thresholds.eighths()), (51, 9));
        for _ in 0..STEP_BACK_EVENTS * 10 {
            thresholds.on_loss_event();
        }
        assert_eq!((thresholds.packets(), thresholds.eighths()), (3, 9));
    }

    #[test]
    fn what_a_short_path_proved_is_no_more_than_four_rtts_of_a_long_one() {
        let mut thresholds = Thresholds::new(3, 9);
        for _ in 0..300 {
            thresholds.on_late(&rtt(MS * 2), ACK_DELAY);
        }
        assert_eq!(thresholds.delay(&rtt(MS * 100), ACK_DELAY), MS * 400);
    }

    /// 25 ms are 2,000 eighths of 100 µs.
    #[test]
    fn long_time_threshold_steps_back_in_proportion() {
        let mut thresholds = Thresholds::new(3, 9);
        let path = rtt(MS / 10);
        for _ in 0..5_000 {
            thresholds.on_late(&path, ACK_DELAY);
        }
        assert!(thresholds.eighths() > 200);
        for _ in 0..STEP_BACK_EVENTS * 120 {
            thresholds.on_loss_event();
        }
        assert_eq!(thresholds.eighths(), 9);
    }

    /// 20 ms at 1 Gbit/s are 1,700 packets.
    #[test]
    fn packet_threshold_follows_reordering_of_thousands_of_packets() {
        let mut thresholds = Thresholds::new(3, 9);
        thresholds.on_spurious(1_700);
        assert_eq!(thresholds.packets(), 1_701);
    }

    #[test]
    fn new_reordering_keeps_the_thresholds() {
        let mut thresholds = Thresholds::new(3, 9);
        for _ in 0..100 {
            thresholds.on_spurious(9);
            for _ in 0..STEP_BACK_EVENTS - 1 {
                thresholds.on_loss_event();
            }
        }
        assert_eq!(thresholds.packets(), 10);
    }
}
