//! A controller that is told single events.

use super::super::Bbr;
use super::super::facts::Facts;
use super::super::phase::Phase;
use super::sim::{MDS, MS};
use crate::controller::{Ack, Congestion, CongestionCause, Controller, LostPacket, Sent};
use crate::rate::{Delivery, RateSample};
use crate::time::Instant;

/// A controller and the state of the path that tests report to it.
pub(super) struct Driver {
    pub(super) bbr: Bbr,
    pub(super) now: Instant,
    pub(super) delivered: u64,
    pub(super) next_index: u64,
}

impl Driver {
    pub(super) fn new() -> Self {
        let mut driver = Self {
            bbr: Bbr::new(MDS, 1),
            now: Instant::from_nanos(1 << 40),
            delivered: 0,
            next_index: 0,
        };
        driver.sent(0);
        driver
    }

    /// Returns a flow in CRUISE, at 1 MB/s and 100 ms: a BDP of 100,000 bytes.
    pub(super) fn cruising() -> Self {
        let mut driver = Self::new();
        driver.ack(1_000_000, 2 * MDS, 100_000);
        driver.bbr.full_pipe.reached = true;
        driver.ack(1_000_000, 200_000, 100_000);
        driver.bbr.start_probe_bw_down(driver.now);
        driver.bbr.start_probe_bw_cruise();
        driver.ack(1_000_000, 200_000, 100_000);
        assert_eq!(driver.bbr.phase, Phase::Cruise);
        driver
    }

    /// Returns a flow in UP whose probe is being acknowledged, with a bound of 200,000
    /// bytes.
    pub(super) fn probing() -> Self {
        let mut driver = Self::cruising();
        driver.bbr.start_probe_bw_refill();
        driver.bbr.phase = Phase::Up;
        driver.bbr.probe.is_sample = true;
        driver.bbr.inflight_longterm = 200_000;
        driver
    }

    pub(super) fn sent(&mut self, in_flight_before: u64) {
        self.bbr.on_sent(&Sent {
            now: self.now,
            bytes: MDS,
            index: self.next_index,
            in_flight_before,
            app_limited: false,
        });
        self.next_index += 1;
    }

    /// Acknowledges `acked` bytes a round later, at a rate.
    pub(super) fn ack(&mut self, rate: u64, acked: u64, in_flight: u64) {
        self.now += 100 * MS;
        self.ack_at(rate, acked, in_flight, false);
    }

    pub(super) fn ack_at(&mut self, rate: u64, acked: u64, in_flight: u64, app_limited: bool) {
        self.ack_of(self.delivered, rate, acked, in_flight, app_limited);
    }

    /// Acknowledges a packet that was sent when `prior` bytes had been delivered.
    pub(super) fn ack_of(
        &mut self,
        prior: u64,
        rate: u64,
        acked: u64,
        in_flight: u64,
        app_limited: bool,
    ) {
        self.delivered += acked;
        let delivery = Delivery {
            total: self.delivered,
            prior,
            delivered: acked,
            lost: 0,
            tx_in_flight: in_flight,
            app_limited,
        };
        let sample = RateSample {
            delivery_rate: rate,
            delivered: acked,
            interval: 100 * MS,
            ..RateSample::default()
        };
        self.bbr.on_ack(&Ack {
            now: self.now,
            bytes: acked,
            packets: acked / MDS,
            largest_index: self.next_index,
            largest_sent_time: self.now,
            next_index: self.next_index + 100,
            in_flight_before: in_flight + acked,
            in_flight_after: in_flight,
            lost_bytes: 0,
            window_used_bytes: acked,
            mean_age: 100 * MS,
            rtt_sample: Some(100 * MS),
            smoothed_rtt: 100 * MS,
            min_rtt: 100 * MS,
            rate: (rate > 0).then_some(&sample),
            delivery,
        });
        self.next_index += 100;
    }

    pub(super) fn lost_packet(&self, tx_in_flight: u64, lost_since_sent: u64) -> LostPacket {
        LostPacket {
            now: self.now,
            index: self.next_index,
            bytes: MDS,
            event: self.next_index + 100,
            tx_in_flight,
            lost_since_sent,
            delivered: self.delivered,
            app_limited: false,
        }
    }

    pub(super) fn congestion(&self, cause: CongestionCause) -> Congestion {
        Congestion {
            now: self.now,
            cause,
            largest_index: self.next_index,
            next_index: self.next_index + 100,
            lost_bytes: MDS,
            packets: 1,
            lost_ranges: 1,
            in_flight_before: 100_000,
            in_flight_after: 98_800,
            acked_bytes: 0,
            persistent: false,
            largest_tx_in_flight: 100_000,
        }
    }

    /// Reports one loss, far below the threshold.
    pub(super) fn lose(&mut self) {
        self.bbr.on_lost(&self.lost_packet(1_000_000, MDS));
        self.bbr
            .on_congestion(&self.congestion(CongestionCause::Loss));
    }
}

/// Returns an ACK of 100 datagrams, the newest of which was sent with `tx_in_flight`.
pub(super) fn facts(driver: &Driver, tx_in_flight: u64, lost: u64) -> Facts {
    Facts {
        now: driver.now,
        delivery_rate: 1_000_000,
        delivered: 100 * MDS,
        prior_delivered: 0,
        lost,
        tx_in_flight,
        is_app_limited: false,
        newly_acked: 100 * MDS,
        rtt: None,
        srtt: 100 * MS,
        total_delivered: driver.delivered,
        in_flight: tx_in_flight,
        in_flight_before: tx_in_flight,
    }
}
