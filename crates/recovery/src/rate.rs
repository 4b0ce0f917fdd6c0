//! Delivery-rate estimation (draft-ietf-ccwg-bbr §4.1).

use core::time::Duration;

/// One delivery-rate sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateSample {
    /// Bytes per second over the sample's interval.
    pub delivery_rate: u64,
    /// Bytes delivered over the interval.
    pub delivered: u64,
    /// Bytes lost over the interval.
    pub lost: u64,
    /// Total delivered on the path when the sample's packet left.
    pub prior_delivered: u64,
    /// Bytes in flight just after the sample's packet left.
    pub tx_in_flight: u64,
    /// max(send interval, ack interval).
    pub interval: Duration,
    /// The sample's packet left while the application was the limit.
    pub app_limited: bool,
    /// Bytes newly acknowledged by the ACK that made this sample.
    pub newly_acked: u64,
}
