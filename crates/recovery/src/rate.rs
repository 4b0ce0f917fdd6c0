//! Delivery-rate estimation (draft-ietf-ccwg-bbr §4.1).

use core::time::Duration;

use crate::controller::SendIndex;
use crate::fraction::mul_div;
use crate::time::{Instant, nanos};

/// Nanoseconds in a second.
pub(crate) const NANOS: u64 = 1_000_000_000;

/// Returns the rate in bytes per second of a volume moved in a time, saturating. A time of
/// zero counts as a nanosecond.
pub(crate) fn bytes_per_second(bytes: u64, time: Duration) -> u64 {
    mul_div(bytes, NANOS, nanos(time))
}

/// Returns the bytes that a rate (bytes per second) moves in a time, saturating.
pub(crate) fn bytes_in(rate: u64, time: Duration) -> u64 {
    mul_div(rate, nanos(time), NANOS)
}

/// One delivery-rate sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateSample {
    /// Bytes per second over the sample's interval.
    pub delivery_rate: u64,
    /// Bytes delivered over the interval.
    pub delivered: u64,
    /// Bytes lost over the interval.
    pub lost: u64,
    /// Total delivered on the path when the sample's packet was sent.
    pub prior_delivered: u64,
    /// Bytes in flight just after the sample's packet was sent.
    pub tx_in_flight: u64,
    /// The longer one of send interval and ACK interval.
    pub interval: Duration,
    /// Whether the sample's packet was sent while the application was the limit.
    pub app_limited: bool,
    /// Bytes newly acknowledged by the ACK that made this sample.
    pub newly_acked: u64,
}

/// What was delivered and lost on a path since a packet was sent, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    /// Delivered on the path so far (C.delivered).
    pub total: u64,
    /// Delivered on the path when the packet was sent (RS.prior_delivered).
    pub prior: u64,
    /// Delivered since the packet was sent (RS.delivered).
    pub delivered: u64,
    /// Declared lost since the packet was sent (RS.lost).
    pub lost: u64,
    /// In flight just after the packet was sent (RS.tx_in_flight).
    pub tx_in_flight: u64,
    /// Whether the packet was sent while the application was the limit.
    pub app_limited: bool,
}

/// The state of a path's delivery when a packet was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PacketState {
    delivered: u64,
    delivered_time: Instant,
    first_send_time: Instant,
    /// Bytes lost, and not acknowledged late, when it was sent.
    missing: u64,
    /// Bytes in flight just after it was sent.
    pub(crate) tx_in_flight: u64,
    /// Whether it was sent while the application was the limit.
    pub(crate) app_limited: bool,
}

/// The newest packet among those that an ACK acknowledged.
#[derive(Clone, Copy, Debug)]
struct Newest {
    index: SendIndex,
    packet: PacketState,
    send_elapsed: Duration,
}

/// A path's delivery-rate estimator.
#[derive(Clone, Debug, Default)]
pub(crate) struct Estimator {
    /// Bytes delivered so far.
    delivered: u64,
    /// When `delivered` last changed, or when sending began after idling.
    delivered_time: Instant,
    /// When the newest delivered packet was sent, or when sending began after idling.
    first_send_time: Instant,
    /// Bytes declared lost so far.
    lost: u64,
    /// The same without those acknowledged late, which is what samples are computed from. A
    /// packet that was only late is no sign of a full queue, and counted as lost it would end
    /// BBR's probes.
    missing: u64,
    /// Value of `delivered` from which samples are no longer application-limited; 0 if they
    /// are not now.
    app_limited: u64,
    newest: Option<Newest>,
    latest: Option<RateSample>,
}

impl Estimator {
    /// Creates an estimator of a path that has delivered nothing yet.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Returns the bytes delivered so far.
    pub(crate) const fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Returns the bytes declared lost so far.
    pub(crate) const fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns the last valid sample.
    pub(crate) const fn latest(&self) -> Option<&RateSample> {
        self.latest.as_ref()
    }

    /// Returns whether packets sent now are marked application-limited.
    pub(crate) const fn is_app_limited(&self) -> bool {
        self.app_limited != 0
    }

    /// Records a packet that is sent. Returns the state to keep with it.
    pub(crate) fn on_sent(
        &mut self,
        now: Instant,
        bytes: u64,
        in_flight_before: u64,
    ) -> PacketState {
        if in_flight_before == 0 {
            self.first_send_time = now;
            self.delivered_time = now;
        }
        PacketState {
            delivered: self.delivered,
            delivered_time: self.delivered_time,
            first_send_time: self.first_send_time,
            missing: self.missing,
            tx_in_flight: in_flight_before + bytes,
            app_limited: self.is_app_limited(),
        }
    }

    /// Records a newly acknowledged packet.
    pub(crate) fn on_acked(
        &mut self,
        packet: &PacketState,
        bytes: u64,
        index: SendIndex,
        sent: Instant,
        now: Instant,
    ) {
        self.delivered += bytes;
        self.delivered_time = now;
        if self.newest.is_none_or(|newest| index > newest.index) {
            self.newest = Some(Newest {
                index,
                packet: *packet,
                send_elapsed: sent - packet.first_send_time,
            });
            self.first_send_time = sent;
        }
    }

    /// Records the late acknowledgment of a packet that had been declared lost. It counts
    /// as delivered, but its state was dropped, so it gives no sample.
    pub(crate) fn on_late(&mut self, bytes: u64, now: Instant) {
        self.missing = self.missing.saturating_sub(bytes);
        self.delivered += bytes;
        self.delivered_time = now;
    }

    /// Records bytes declared lost.
    pub(crate) fn on_lost(&mut self, bytes: u64) {
        self.lost += bytes;
        self.missing += bytes;
    }

    /// Returns what was delivered and lost since that packet was sent. A late acknowledgment of
    /// a packet that had been declared lost before that counts against the losses since.
    pub(crate) const fn delivery_since(&self, packet: &PacketState) -> Delivery {
        Delivery {
            total: self.delivered,
            prior: packet.delivered,
            delivered: self.delivered - packet.delivered,
            lost: self.missing.saturating_sub(packet.missing),
            tx_in_flight: packet.tx_in_flight,
            app_limited: packet.app_limited,
        }
    }

    /// Returns the same for the newest packet of the current ACK. Call it before
    /// [`Self::sample`].
    pub(crate) fn delivery(&self) -> Delivery {
        self.newest
            .map(|newest| self.delivery_since(&newest.packet))
            .unwrap_or_default()
    }

    /// Marks samples of what is in flight as application-limited: there is nothing to send
    /// although window and pacer allow it.
    pub(crate) fn mark_app_limited(&mut self, in_flight: u64) {
        self.app_limited = (self.delivered + in_flight).max(1);
    }

    /// Returns the sample of an ACK if it is reliable. Call it after [`Self::on_acked`] for
    /// all packets of the ACK.
    pub(crate) fn sample(&mut self, min_rtt: Duration, newly_acked: u64) -> Option<RateSample> {
        if self.app_limited != 0 && self.delivered > self.app_limited {
            self.app_limited = 0;
        }
        let newest = self.newest.take()?;
        let packet = newest.packet;
        let interval = newest
            .send_elapsed
            .max(self.delivered_time - packet.delivered_time);
        if interval < min_rtt || interval.is_zero() {
            return None;
        }
        let delivery = self.delivery_since(&packet);
        let sample = RateSample {
            delivery_rate: bytes_per_second(delivery.delivered, interval),
            delivered: delivery.delivered,
            lost: delivery.lost,
            prior_delivered: delivery.prior,
            tx_in_flight: delivery.tx_in_flight,
            interval,
            app_limited: delivery.app_limited,
            newly_acked,
        };
        self.latest = Some(sample);
        Some(sample)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn steady_flow_is_measured_at_its_rate() {
        // 1,000 bytes each millisecond over an RTT of 10 ms: 1 MB/s.
        let mut rate = Estimator::new();
        let mut packets = Vec::new();
        let mut samples = Vec::new();
        for tick in 0..100_u64 {
            if tick >= 10 {
                let acked = tick - 10;
                let packet = packets[usize::try_from(acked).unwrap()];
                rate.on_acked(&packet, 1000, acked, at(acked), at(tick));
                samples.extend(rate.sample(MS * 10, 1000));
            }
            packets.push(rate.on_sent(at(tick), 1000, tick.min(9) * 1000));
        }
        let last = samples.last().unwrap();
        assert_eq!(last.delivery_rate, 1_000_000);
        assert_eq!(last.delivered, 10_000);
        assert_eq!(last.tx_in_flight, 10_000);
        assert_eq!(last.interval, MS * 10);
        assert!(!last.app_limited);
    }

    #[test]
    fn compressed_acks_do_not_inflate_the_rate() {
        // Ten packets leave over 10 ms; their ACKs arrive in one millisecond.
        let mut rate = Estimator::new();
        let packets: Vec<_> = (0..10)
            .map(|n| rate.on_sent(at(n), 1000, n * 1000))
            .collect();
        let mut last = None;
        for n in 0..10_u64 {
            let now = at(30) + Duration::from_micros(n * 100);
            rate.on_acked(&packets[usize::try_from(n).unwrap()], 1000, n, at(n), now);
            last = rate.sample(MS, 1000).or(last);
        }
        // 10,000 bytes over the time since the flow began, not over 1 ms.
        assert!(last.unwrap().delivery_rate < 400_000, "{last:?}");
    }

    #[test]
    fn interval_shorter_than_min_rtt_gives_no_sample() {
        let mut rate = Estimator::new();
        let packet = rate.on_sent(at(0), 1000, 0);
        rate.on_acked(&packet, 1000, 0, at(0), at(4));
        let delivery = rate.delivery();
        assert_eq!((delivery.total, delivery.delivered), (1000, 1000));
        assert_eq!(rate.sample(MS * 5, 1000), None);
        assert_eq!(rate.delivered(), 1000);
    }

    #[test]
    fn ack_of_several_packets_samples_the_newest() {
        let mut rate = Estimator::new();
        let first = rate.on_sent(at(0), 1000, 0);
        let second = rate.on_sent(at(2), 500, 1000);
        // Newest first, in the order of an ACK frame's ranges.
        rate.on_acked(&second, 500, 1, at(2), at(10));
        rate.on_acked(&first, 1000, 0, at(0), at(10));
        let sample = rate.sample(MS, 1500).unwrap();
        assert_eq!(sample.tx_in_flight, 1500);
        assert_eq!(sample.delivered, 1500);
        assert_eq!(sample.newly_acked, 1500);
        assert_eq!(rate.first_send_time, at(2));
    }

    #[test]
    fn idle_time_is_excluded_from_the_interval() {
        let mut rate = Estimator::new();
        let before = rate.on_sent(at(0), 1000, 0);
        rate.on_acked(&before, 1000, 0, at(0), at(10));
        rate.sample(MS, 1000);
        let after = rate.on_sent(at(5000), 1000, 0);
        rate.on_acked(&after, 1000, 1, at(5000), at(5010));
        assert_eq!(rate.sample(MS, 1000).unwrap().interval, MS * 10);
    }

    #[test]
    fn packets_are_app_limited_until_the_bubble_is_delivered() {
        let mut rate = Estimator::new();
        let first = rate.on_sent(at(0), 1000, 0);
        rate.mark_app_limited(1000);
        let second = rate.on_sent(at(1), 1000, 1000);
        assert!(second.app_limited && !first.app_limited);
        rate.on_acked(&first, 1000, 0, at(0), at(10));
        assert!(!rate.sample(MS, 1000).unwrap().app_limited);
        assert!(rate.is_app_limited(), "delivered has to pass the mark");
        rate.on_acked(&second, 1000, 1, at(1), at(11));
        assert!(rate.sample(MS, 1000).unwrap().app_limited);
        assert!(!rate.is_app_limited());
    }

    #[test]
    fn losses_are_counted_over_the_interval() {
        let mut rate = Estimator::new();
        rate.on_lost(700);
        let packet = rate.on_sent(at(0), 1000, 0);
        rate.on_lost(300);
        rate.on_acked(&packet, 1000, 0, at(0), at(10));
        assert_eq!(rate.sample(MS, 1000).unwrap().lost, 300);
    }

    /// Ten packets late enough to be declared lost, and one that is really lost: of the eleven
    /// one counts.
    #[test]
    fn late_acknowledgment_counts_against_losses_since() {
        let mut rate = Estimator::new();
        rate.on_lost(5000);
        let packet = rate.on_sent(at(0), 1000, 0);
        for _ in 0..11 {
            rate.on_lost(1000);
        }
        for _ in 0..10 {
            rate.on_late(1000, at(9));
        }
        assert_eq!(rate.lost(), 16_000, "all that were declared lost");
        rate.on_acked(&packet, 1000, 0, at(0), at(10));
        assert_eq!(rate.sample(MS, 1000).unwrap().lost, 1000);
    }

    #[test]
    fn late_acknowledgment_of_an_older_loss_leaves_no_negative_count() {
        let mut rate = Estimator::new();
        rate.on_lost(5000);
        let packet = rate.on_sent(at(0), 1000, 0);
        rate.on_late(5000, at(9));
        rate.on_acked(&packet, 1000, 0, at(0), at(10));
        assert_eq!(rate.sample(MS, 1000).unwrap().lost, 0);
    }

    #[test]
    fn late_packet_counts_as_delivered() {
        let mut rate = Estimator::new();
        let packet = rate.on_sent(at(0), 1000, 0);
        rate.on_late(600, at(9));
        rate.on_acked(&packet, 1000, 0, at(0), at(10));
        assert_eq!(rate.sample(MS, 1000).unwrap().delivered, 1600);
    }
}
