//! The contents of an ACK in the draft's terms (§2.3).

use core::time::Duration;

use crate::controller::Ack;
use crate::time::Instant;

use super::gains::LOSS_THRESHOLD;

/// The rate sample RS, and the values of C that changed with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// When the ACK arrived.
    pub(super) now: Instant,
    /// RS.delivery_rate in bytes per second; 0 = no reliable sample.
    pub(super) delivery_rate: u64,
    /// RS.delivered.
    pub(super) delivered: u64,
    /// RS.prior_delivered.
    pub(super) prior_delivered: u64,
    /// RS.lost.
    pub(super) lost: u64,
    /// RS.tx_in_flight.
    pub(super) tx_in_flight: u64,
    /// RS.is_app_limited.
    pub(super) is_app_limited: bool,
    /// RS.newly_acked.
    pub(super) newly_acked: u64,
    /// RS.rtt.
    pub(super) rtt: Option<Duration>,
    /// C.srtt.
    pub(super) srtt: Duration,
    /// C.delivered.
    pub(super) total_delivered: u64,
    /// C.inflight.
    pub(super) in_flight: u64,
    /// Bytes in flight when the ACK arrived.
    pub(super) in_flight_before: u64,
}

impl Facts {
    /// IsInflightTooHigh() for the newest acknowledged packet (§5.5.10.2).
    pub(super) fn is_inflight_too_high(&self) -> bool {
        self.lost > LOSS_THRESHOLD.of(self.tx_in_flight)
    }

    /// Converts an ACK to the draft's terms.
    pub(super) fn of(ack: &Ack<'_>) -> Self {
        Self {
            now: ack.now,
            delivery_rate: ack.rate.map_or(0, |sample| sample.delivery_rate),
            delivered: ack.delivery.delivered,
            prior_delivered: ack.delivery.prior,
            lost: ack.delivery.lost,
            tx_in_flight: ack.delivery.tx_in_flight,
            is_app_limited: ack.delivery.app_limited,
            newly_acked: ack.bytes,
            rtt: ack.rtt_sample,
            srtt: ack.smoothed_rtt,
            total_delivered: ack.delivery.total,
            in_flight: ack.in_flight_after,
            in_flight_before: ack.in_flight_before,
        }
    }
}
