//! Metrics of recovery and the congestion controller.

use clearway_recovery::controller::WindowPolicy;

use super::Name;

/// `recovery_metrics_updated`. Sizes are bytes, times nanoseconds; rates are bits per second, as in
/// qlog. `None` means not part of this event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Minimum RTT.
    pub min_rtt: Option<u64>,
    /// Smoothed RTT.
    pub smoothed_rtt: Option<u64>,
    /// Latest RTT.
    pub latest_rtt: Option<u64>,
    /// Variation of the RTT.
    pub rtt_variance: Option<u64>,
    /// Number of consecutive probe timeouts.
    pub pto_count: Option<u64>,
    /// Congestion window.
    pub congestion_window: Option<u64>,
    /// Bytes in flight.
    pub bytes_in_flight: Option<u64>,
    /// Slow start threshold.
    pub ssthresh: Option<u64>,
    /// Packets in flight.
    pub packets_in_flight: Option<u64>,
    /// Pacing rate.
    pub pacing_rate: Option<u64>,
    /// An extension: the latest delivery-rate sample.
    pub delivery_rate: Option<u64>,
    /// An extension: whether that sample was limited by the application.
    pub app_limited: Option<bool>,
    /// An extension: bytes delivered so far.
    pub delivered: Option<u64>,
    /// An extension: bytes declared lost so far.
    pub lost: Option<u64>,
    /// An extension: reductions of the window so far.
    pub congestion_events: Option<u64>,
    /// An extension: of those, undone.
    pub spurious_events: Option<u64>,
    /// An extension: collapses by persistent congestion so far.
    pub persistent_events: Option<u64>,
    /// Further fields by name: sizes in bytes, rates in bytes per second, times
    /// in nanoseconds, gains in thousandths (the table in the crate's
    /// documentation says which detectors know them).
    pub extra: Vec<(Name, u64)>,
}

impl Metrics {
    /// A further field by its name.
    #[must_use]
    pub fn extra(&self, name: &str) -> Option<u64> {
        let found = self.extra.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| *value)
    }
}

/// `recovery_parameters_set`. Sizes are bytes, times nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryParameters {
    /// An extension: the controller's name.
    pub controller: Option<Name>,
    /// An extension: how the controller decides on its window.
    pub window_policy: Option<WindowPolicy>,
    /// Reordering threshold in packets.
    pub reordering_threshold: Option<u64>,
    /// Reordering threshold in thousandths of an RTT.
    pub time_threshold: Option<u64>,
    /// RTT assumed before the first sample.
    pub initial_rtt: Option<u64>,
    /// Maximum datagram size.
    pub max_datagram_size: Option<u64>,
    /// Initial window.
    pub initial_congestion_window: Option<u64>,
    /// Minimum window.
    pub minimum_congestion_window: Option<u64>,
    /// Number of PTOs that losses have to span for persistent congestion.
    pub persistent_congestion_threshold: Option<u64>,
}
