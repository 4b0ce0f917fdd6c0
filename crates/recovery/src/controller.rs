//! The interface of congestion controllers: what they are told, and what they return.
//!
//! A controller is told facts and does not guess: it reads no clock, does not
//! infer from bytes in flight that the connection was idle, and keeps no timestamp
//! as a recovery boundary. The boundary is a [`SendIndex`].

use core::fmt::Debug;
use core::time::Duration;

use crate::limit::Limit;
use crate::rate::{Delivery, RateSample};
use crate::time::Instant;

/// Position of a packet in a path's send order, over all packet number spaces.
///
/// A packet number would not do: three spaces share one controller, and packets
/// of the old path must not touch the new one (RFC 9000 §9.4).
pub type SendIndex = u64;

/// A packet that counts in flight was sent.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// When it was sent.
    pub now: Instant,
    /// Its size in bytes, as counted in flight (UDP payload).
    pub bytes: u64,
    /// Its position in the path's send order.
    pub index: SendIndex,
    /// Bytes in flight before it.
    pub in_flight_before: u64,
    /// Whether its delivery-rate sample is marked application-limited (draft-ietf-ccwg-bbr
    /// §4.1.1.4).
    pub app_limited: bool,
}

/// One ACK frame newly acknowledged packets of this path.
#[derive(Clone, Copy, Debug)]
pub struct Ack<'a> {
    /// When the ACK arrived.
    pub now: Instant,
    /// Bytes in flight that it newly acknowledged.
    pub bytes: u64,
    /// Packets in flight that it newly acknowledged.
    pub packets: u64,
    /// The newest newly acknowledged packet.
    pub largest_index: SendIndex,
    /// When that packet was sent.
    pub largest_sent_time: Instant,
    /// The index the next packet sent on this path will get: a packet-timed
    /// round started now ends when an index ≥ this is acknowledged.
    pub next_index: SendIndex,
    /// Bytes in flight before this ACK (and before the losses it proves).
    pub in_flight_before: u64,
    /// Bytes in flight after this ACK and the losses it proves.
    pub in_flight_after: u64,
    /// Bytes declared lost by this ACK (already reported by `on_congestion`).
    pub lost_bytes: u64,
    /// Acknowledged bytes of packets that were sent while the window, the pacer or the host
    /// was the limit. Only these justify growth (RFC 9438 §5.8, RFC 9002 §7.8).
    pub window_used_bytes: u64,
    /// How long ago the newly acknowledged packets were sent, on average: longer than the RTT sample,
    /// which is of the newest one, where this ACK is for several or the peer delayed it.
    pub mean_age: Duration,
    /// Latest RTT sample, if this ACK gave one.
    pub rtt_sample: Option<Duration>,
    /// Smoothed RTT.
    pub smoothed_rtt: Duration,
    /// Minimum RTT of the path.
    pub min_rtt: Duration,
    /// Delivery-rate sample, if one was valid.
    pub rate: Option<&'a RateSample>,
    /// Bytes delivered and lost since the newest newly acknowledged packet was sent. Known
    /// even if no rate sample was valid.
    pub delivery: Delivery,
}

/// One packet in flight was declared lost. Reported before the [`Congestion`] it is
/// part of, in the order of the packet numbers.
#[derive(Clone, Copy, Debug)]
pub struct LostPacket {
    /// When it was detected.
    pub now: Instant,
    /// Its position in the path's send order.
    pub index: SendIndex,
    /// Its size in bytes, as counted in flight.
    pub bytes: u64,
    /// The congestion event it is part of, by its boundary: what
    /// [`Spurious::event`] names if the event proves to be spurious.
    pub event: SendIndex,
    /// Bytes in flight just after it was sent.
    pub tx_in_flight: u64,
    /// Bytes declared lost on the path since it was sent, including itself.
    pub lost_since_sent: u64,
    /// Bytes delivered on the path so far, including those of the same ACK.
    pub delivered: u64,
    /// Whether it was sent while the application was the limit.
    pub app_limited: bool,
}

/// What caused a congestion event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CongestionCause {
    /// Packets declared lost.
    Loss,
    /// ECN-CE marks reported.
    EcnCe,
}

/// Packets were lost or marked; reported once per ACK frame or loss timer.
#[derive(Clone, Copy, Debug)]
pub struct Congestion {
    /// When it was detected.
    pub now: Instant,
    /// Loss or mark.
    pub cause: CongestionCause,
    /// The newest lost packet; for ECN the newest packet newly acknowledged.
    pub largest_index: SendIndex,
    /// The index the next packet sent on this path will get. A new congestion
    /// event begins only if `largest_index` ≥ the boundary set at the last one.
    pub next_index: SendIndex,
    /// Bytes lost (0 for ECN).
    pub lost_bytes: u64,
    /// Packets lost; for ECN the exact increase of the CE counter.
    pub packets: u64,
    /// Discontiguous ranges among the lost packets.
    pub lost_ranges: u64,
    /// Bytes in flight before the losses were removed.
    pub in_flight_before: u64,
    /// Bytes in flight after.
    pub in_flight_after: u64,
    /// Bytes newly acknowledged by the same ACK.
    pub acked_bytes: u64,
    /// Whether the losses establish persistent congestion (RFC 9002 §7.6).
    pub persistent: bool,
    /// Bytes in flight just after the newest lost packet was sent; for ECN, after the
    /// newest packet newly acknowledged.
    pub largest_tx_in_flight: u64,
}

/// Every packet declared lost in a congestion event has since been acknowledged.
#[derive(Clone, Copy, Debug)]
pub struct Spurious {
    /// When the last proof arrived.
    pub now: Instant,
    /// The boundary (`Congestion::next_index`) of the event that is undone.
    pub event: SendIndex,
}

/// What an earlier connection measured of a path (RFC 9959 §3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SavedPath {
    /// Bytes that it carried in a round trip without a queue (saved_cwnd).
    pub capacity: u64,
    /// Its smallest round trip (saved_rtt).
    pub rtt: Duration,
}

/// The state of a controller, as in qlog's `congestion_state_updated`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Exponential growth.
    SlowStart,
    /// HyStart++ conservative slow start (RFC 9406).
    ConservativeSlowStart,
    /// Linear or cubic growth.
    CongestionAvoidance,
    /// Between a congestion event and the first ACK sent after it.
    Recovery,
    /// BBR: doubling the rate until the pipe is full.
    Startup,
    /// BBR: draining the queue that Startup built.
    Drain,
    /// BBR: sending slower than the network delivers.
    ProbeBwDown,
    /// BBR: sending as fast as the network delivers.
    ProbeBwCruise,
    /// BBR: filling the pipe for a round before a probe.
    ProbeBwRefill,
    /// BBR: sending faster than the network is known to deliver.
    ProbeBwUp,
    /// BBR: keeping little in flight, to measure the round trip without a queue.
    ProbeRtt,
}

impl State {
    /// All states.
    pub const ALL: [Self; 11] = [
        Self::SlowStart,
        Self::ConservativeSlowStart,
        Self::CongestionAvoidance,
        Self::Recovery,
        Self::Startup,
        Self::Drain,
        Self::ProbeBwDown,
        Self::ProbeBwCruise,
        Self::ProbeBwRefill,
        Self::ProbeBwUp,
        Self::ProbeRtt,
    ];

    /// Returns its name in qlog and other machine-readable output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SlowStart => "slow_start",
            Self::ConservativeSlowStart => "conservative_slow_start",
            Self::CongestionAvoidance => "congestion_avoidance",
            Self::Recovery => "recovery",
            Self::Startup => "startup",
            Self::Drain => "drain",
            Self::ProbeBwDown => "probe_bw_down",
            Self::ProbeBwCruise => "probe_bw_cruise",
            Self::ProbeBwRefill => "probe_bw_refill",
            Self::ProbeBwUp => "probe_bw_up",
            Self::ProbeRtt => "probe_rtt",
        }
    }
}

/// How a controller decides on its window. Observers judge a controller by it, not by its
/// name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WindowPolicy {
    /// The window grows while it is used and comes down on congestion (RFC 9002
    /// §7): NewReno, CUBIC, Prague.
    #[default]
    Reactive,
    /// The window follows a model of the path, which the controller probes by itself: BBR.
    /// A full window that does not grow is not a fault.
    Model,
    /// The window never moves.
    Constant,
}

impl WindowPolicy {
    /// All policies.
    pub const ALL: [Self; 3] = [Self::Reactive, Self::Model, Self::Constant];

    /// Returns its name in traces.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reactive => "reactive",
            Self::Model => "model",
            Self::Constant => "constant",
        }
    }

    /// Returns the policy of this [`name`](Self::name).
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }
}

/// A controller's model of the path. Rates are in bytes per second, volumes in bytes;
/// `None` means no bound, or not known yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Model {
    /// Largest delivery rate of the last two probing cycles.
    pub max_bw: u64,
    /// The bandwidth that the controller uses: `max_bw` within its bounds.
    pub bw: u64,
    /// Upper bound of the bandwidth by recent congestion.
    pub bw_shortterm: Option<u64>,
    /// Smallest round trip of the last ten seconds.
    pub min_rtt: Option<Duration>,
    /// Upper bound of the bytes in flight, as found by probes.
    pub inflight_longterm: Option<u64>,
    /// Upper bound of the bytes in flight by recent congestion.
    pub inflight_shortterm: Option<u64>,
    /// Bytes that ACKs deliver at once beyond the expected.
    pub extra_acked: u64,
    /// Largest burst in bytes.
    pub send_quantum: u64,
    /// Packet-timed round trips so far.
    pub round_count: u64,
}

/// The ECN codepoint that a path's packets carry (RFC 3168, RFC 9331).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ect {
    /// ECT(0): the controller responds to a mark as to a loss.
    #[default]
    Ect0,
    /// ECT(1): the controller responds to the share of marked packets, so a queue may mark
    /// early and often (RFC 9331 §4.1).
    Ect1,
}

/// How often a controller needs the peer to acknowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcksNeeded {
    /// Every packet. An ACK of two packets allows two to be sent at once, and a queue that
    /// marks early marks such pairs.
    EveryPacket,
    /// For every fourth packet, within these limits.
    PerWindow {
        /// As many ACKs for each window, where the path has no queue; never fewer than
        /// [`LEAST_PER_WINDOW`](Self::LEAST_PER_WINDOW).
        least: u64,
        /// No more for each window than this.
        most: u64,
    },
}

impl AcksNeeded {
    /// What growth and rate samples need at least.
    pub const LEAST_PER_WINDOW: u64 = 4;
    /// Enough for a window that grows with each ACK to grow smoothly.
    pub const SMOOTH: Self = Self::PerWindow {
        least: 32,
        most: 32,
    };
    /// Enough for a window that grows by a datagram in a round trip.
    pub const STEADY: Self = Self::PerWindow { least: 8, most: 32 };
}

impl Default for AcksNeeded {
    fn default() -> Self {
        Self::SMOOTH
    }
}

/// The figures of a controller for traces and statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Slow start threshold in bytes; `None` = not yet set.
    pub ssthresh: Option<u64>,
    /// Congestion events so far.
    pub congestion_events: u64,
    /// Congestion events undone as spurious.
    pub spurious_events: u64,
    /// Times persistent congestion collapsed the window.
    pub persistent_events: u64,
    /// The model of the path, of controllers that have one.
    pub model: Option<Model>,
}

/// A congestion controller. It is told what happens on a path, and returns a window and a
/// pacing rate.
///
/// All sizes are bytes, all rates bytes per second, all arithmetic integer.
pub trait Controller: Send + Debug {
    /// Called when a packet that counts in flight was sent.
    fn on_sent(&mut self, sent: &Sent);
    /// Called when an ACK frame newly acknowledged packets; after `on_congestion` if
    /// the same frame proved losses.
    fn on_ack(&mut self, ack: &Ack<'_>);
    /// Called for each packet that is declared lost. `on_congestion` follows for all of
    /// them.
    fn on_lost(&mut self, lost: &LostPacket) {
        let _ = lost;
    }
    /// Called when packets were declared lost or marked.
    fn on_congestion(&mut self, event: &Congestion);
    /// Called when a congestion event proved spurious (RFC 9438 §4.9.2).
    fn on_spurious(&mut self, event: &Spurious);
    /// Called when the reason for not sending changed at `now`. The table in
    /// [`limit`](crate::limit) says in which state CUBIC's clock runs.
    fn on_limit(&mut self, limit: Limit, now: Instant);
    /// Called when the connection sends again after everything had been acknowledged
    /// and nothing waited to be sent. The connection reports it; it is never inferred.
    fn restart_from_idle(&mut self, now: Instant);
    /// Called when the path's maximum datagram size changed.
    fn on_mds(&mut self, mds: u64);
    /// Called when `bytes` leave the flight without being acknowledged or lost (a
    /// discarded packet number space, RFC 9002 §6.2.2).
    fn on_discarded(&mut self, bytes: u64) {
        let _ = bytes;
    }

    /// Called before anything is sent on the path, if an earlier connection measured it. A
    /// controller may use it with the care of RFC 9959. Does nothing by default.
    fn resume(&mut self, saved: &SavedPath) {
        let _ = saved;
    }

    /// Returns a copy for a path that continues this one: the peer's port changed, and
    /// nothing else (RFC 9000 §9.4). Send indexes go on from the same number, with nothing in
    /// flight. `None`, the default, begins the new path with a new controller.
    fn duplicate(&self) -> Option<Box<dyn Controller>> {
        None
    }

    /// Returns whether the controller itself holds the flow back, so that rate samples
    /// of what is now in flight are marked application-limited (BBR's ProbeRTT).
    fn marks_app_limited(&self) -> bool {
        false
    }
    /// Returns the congestion window in bytes.
    fn window(&self) -> u64;
    /// Returns the smallest window in bytes that [`window`](Self::window) ever
    /// returns.
    fn min_window(&self) -> u64;
    /// Returns the pacing rate in bytes per second. `None`, or 0, lets the pacer derive
    /// it from window and smoothed RTT (RFC 9002 §7.7).
    fn pacing_rate(&self) -> Option<u64>;
    /// Returns into how many bursts a second the pacing rate is divided: 1,000 of 1 ms
    /// each by default. More for a controller whose queue is so short that bursts of
    /// 1 ms fill it.
    fn trains_per_second(&self) -> u64 {
        1_000
    }

    /// Returns how often the peer should acknowledge now, where it can be asked
    /// (draft-ietf-quic-ack-frequency).
    fn acks_needed(&self) -> AcksNeeded {
        AcksNeeded::default()
    }
    /// Returns the ECN codepoint of packets where ECN is in use. Constant over a
    /// controller's life. [`Ect::Ect1`] is only for controllers that respond to the share
    /// of marked packets (RFC 9331 §4.1).
    fn ecn(&self) -> Ect {
        Ect::Ect0
    }
    /// Returns how it decides on its window, which detectors judge it by. Constant over a
    /// controller's life.
    fn window_policy(&self) -> WindowPolicy {
        WindowPolicy::Reactive
    }
    /// Returns the current state.
    fn state(&self) -> State;
    /// Returns figures for traces and statistics.
    fn metrics(&self) -> Metrics;
    /// Shows further figures to traces and detectors: calls `show` with a name and a
    /// value for each of them at `now`. Called only while a trace is recorded. Sizes
    /// are in bytes, rates in bytes per second, times in nanoseconds, gains in
    /// thousandths. Names that detectors know:
    /// `boundary` (a send index: the recovery boundary), `next_index`,
    /// `recovery_start` (a time, where a controller keeps one), `epoch_shift`
    /// (time by which the growth curve was moved so far), `w_max`, `k`,
    /// `cwnd_prior`, `max_bw`, `bw_shortterm`, `inflight_longterm`,
    /// `inflight_shortterm`, `round_count`, `probe_wait`, `min_rtt` (the
    /// controller's own). Besides, Prague shows `alpha`, the share of marks, in
    /// thousandths, `resume_phase` is 0 unless a saved path is resumed (RFC 9959: 1 reconnaissance, 2
    /// unvalidated, 3 validating, 4 safe retreat), and `classic_queue` is 1 while it takes the queue that marks for a classic one.
    fn internals(&self, now: Instant, show: &mut dyn FnMut(&'static str, u64)) {
        let _ = (now, show);
    }
    /// Returns its name, as `--controller` takes it and traces show it.
    fn name(&self) -> &'static str;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `CongestionAvoidance` as `congestion_avoidance`.
    fn snake_case(name: &str) -> String {
        let mut out = String::new();
        for letter in name.chars() {
            if letter.is_ascii_uppercase() && !out.is_empty() {
                out.push('_');
            }
            out.push(letter.to_ascii_lowercase());
        }
        out
    }

    #[test]
    fn state_names_are_the_variants_in_snake_case() {
        for state in State::ALL {
            assert_eq!(state.name(), snake_case(&format!("{state:?}")));
        }
    }

    #[test]
    fn window_policies_are_found_by_name() {
        for policy in WindowPolicy::ALL {
            assert_eq!(WindowPolicy::from_name(policy.name()), Some(policy));
        }
        assert_eq!(WindowPolicy::from_name("bbr"), None);
    }
}
