//! The window of loss-based congestion control, as NewReno and CUBIC share it:
//! slow start, recovery, undo and the bounds on growth (RFC 9002 §7).

#[cfg(feature = "specimens")]
pub(super) mod specimens;

use crate::controller::{
    Ack, Congestion, CongestionCause, Controller, Metrics, SendIndex, Sent, Spurious, State,
};
use crate::limit::Limit;
use crate::time::Instant;

use super::flight::LargestFlight;
use super::hystart::{HyStart, Verdict};
use super::prr::{Delivery, Prr};
use super::window_adjustment::{Growth, WindowAdjustment};
use super::{SlowStart, initial_window, min_window};

/// A window that grows by a [`WindowAdjustment`] and comes down once per congestion event.
#[derive(Debug)]
pub(super) struct Classic<A: WindowAdjustment> {
    adjustment: A,
    mds: u64,
    window: u64,
    /// `None` until the first slow start ended.
    ssthresh: Option<u64>,
    /// Until the first slow start ended; `None` = standard slow start.
    hystart: Option<HyStart>,
    /// Set while in recovery.
    recovery: Option<Prr>,
    /// Losses and marks of packets before it belong to an event that the window
    /// has already answered.
    boundary: SendIndex,
    /// Persistent congestion of packets before it has collapsed the window.
    collapsed_before: SendIndex,
    largest_flight: LargestFlight,
    undo: Option<Undo<A::Saved>>,
    /// No feedback yet: the window is the initial one.
    untouched: bool,
    metrics: Metrics,
}

/// The state before a reduction (RFC 9438 §4.9.2).
#[derive(Clone, Copy, Debug)]
struct Undo<M> {
    /// The boundary of the event, its name.
    event: SendIndex,
    /// The window before it: cwnd_prior.
    window: u64,
    ssthresh: Option<u64>,
    boundary: SendIndex,
    largest_flight: LargestFlight,
    adjustment: M,
}

impl<A: WindowAdjustment> Classic<A> {
    /// A controller of a new path.
    pub(super) fn new(adjustment: A, slow_start: SlowStart, mds: u64) -> Self {
        let window = initial_window(mds);
        Self {
            adjustment,
            mds,
            window,
            ssthresh: None,
            hystart: match slow_start {
                SlowStart::HyStart => Some(HyStart::default()),
                SlowStart::Standard => None,
            },
            recovery: None,
            boundary: 0,
            collapsed_before: 0,
            largest_flight: LargestFlight::new(window),
            undo: None,
            untouched: true,
            metrics: Metrics::default(),
        }
    }

    /// Its law.
    pub(super) fn adjustment_mut(&mut self) -> &mut A {
        &mut self.adjustment
    }

    /// Losses of packets before it have been answered.
    pub(super) fn boundary(&self) -> SendIndex {
        self.boundary
    }

    /// A congestion event is real, whatever becomes of its losses.
    pub(super) fn confirm(&mut self) {
        self.undo = None;
    }

    /// Marks ask for this window: it comes down to it at once and slow start
    /// ends, but nothing is missing that recovery would have to wait for.
    pub(super) fn reduce_to(&mut self, window: u64) {
        self.confirm();
        self.untouched = false;
        self.recovery = None;
        self.window = window.max(self.min_window());
        self.ssthresh = Some(self.window);
        self.largest_flight.reset();
        self.metrics.congestion_events += 1;
    }

    /// The window that the last event left, without PRR's way down to it.
    pub(super) fn settled_window(&self) -> u64 {
        match (self.recovery, self.ssthresh) {
            (Some(_), Some(ssthresh)) => ssthresh,
            (Some(_), None) | (None, _) => self.window,
        }
    }

    fn in_slow_start(&self) -> bool {
        self.ssthresh.is_none_or(|ssthresh| self.window < ssthresh)
    }

    /// A new event: ssthresh comes down, and PRR leads the window there.
    fn reduce(&mut self, event: &Congestion) {
        let window = self.settled_window();
        // Marks can't prove spurious, so nothing is kept for them.
        self.undo = match event.cause {
            CongestionCause::Loss => Some(Undo {
                event: event.next_index,
                window,
                ssthresh: self.ssthresh,
                boundary: self.boundary,
                largest_flight: self.largest_flight,
                adjustment: self.adjustment.save(),
            }),
            CongestionCause::EcnCe => None,
        };
        self.ssthresh = Some(self.adjustment.reduce(window).max(self.min_window()));
        self.boundary = event.next_index;
        self.largest_flight.reset();
        self.metrics.congestion_events += 1;

        let found_after = event.lost_bytes.saturating_add(event.acked_bytes);
        let flight = event.in_flight_after.saturating_add(found_after);
        self.recovery = Some(Prr::new(flight.max(event.in_flight_before)));
        // One packet may leave at once (RFC 9002 §7.3.2); if the same ACK
        // delivered something, `on_ack` follows and says more.
        let room = event.in_flight_after.saturating_add(self.mds);
        self.window = room.max(self.min_window());
    }

    /// Persistent congestion (RFC 9002 §7.6): back to slow start at the minimum.
    fn collapse(&mut self, event: &Congestion) {
        if event.largest_index >= self.boundary {
            self.reduce(event);
        } else {
            // Two responses to one event: the proof of one undoes neither.
            self.undo = None;
        }
        self.adjustment.on_persistent_congestion();
        self.recovery = None;
        self.window = self.min_window();
        self.largest_flight.reset();
        self.boundary = event.next_index;
        self.collapsed_before = event.next_index;
        self.metrics.persistent_events += 1;
    }

    /// More losses or marks of the event that the window has answered.
    fn continue_event(&mut self, event: &Congestion) {
        match event.cause {
            CongestionCause::EcnCe => self.undo = None,
            CongestionCause::Loss => {
                // What a timer finds lost leaves the flight without a delivery:
                // that is room for no burst (RFC 9937 §6).
                if self.recovery.is_some() && event.acked_bytes == 0 {
                    let window = self.window.saturating_sub(event.lost_bytes);
                    self.window = window.max(self.min_window());
                }
            }
        }
    }

    /// An ACK between entry and exit of recovery.
    fn recover(&mut self, ack: &Ack<'_>) {
        let ssthresh = self.settled_window();
        let delivery = Delivery {
            acked: ack.bytes,
            in_flight: ack.in_flight_after,
            safe: ack.lost_bytes == 0,
        };
        let allowed = self
            .recovery
            .as_mut()
            .and_then(|prr| prr.on_ack(delivery, ssthresh, self.mds));
        if let Some(allowed) = allowed {
            let window = ack.in_flight_after.saturating_add(allowed);
            self.window = window.max(self.min_window());
        }
    }

    /// A packet sent after entry was acknowledged.
    fn leave_recovery(&mut self, now: Instant) {
        self.window = self.settled_window();
        self.recovery = None;
        self.adjustment.start_avoidance(self.window, self.mds, now);
    }

    fn slow_start(&mut self, ack: &Ack<'_>) {
        let divisor = match self.judge_round(ack) {
            Verdict::Grow { divisor } => divisor,
            Verdict::Leave => {
                self.ssthresh = Some(self.window);
                self.adjustment
                    .start_avoidance(self.window, self.mds, ack.now);
                return;
            }
        };
        let grown = self
            .window
            .saturating_add(ack.window_used_bytes / divisor)
            .min(self.largest_flight.slow_start_limit(divisor))
            .max(self.window);
        self.window = grown.min(self.ssthresh.unwrap_or(u64::MAX));
        if !self.in_slow_start() {
            self.adjustment
                .start_avoidance(self.window, self.mds, ack.now);
        }
    }

    /// `HyStart++` judges the first slow start only (RFC 9406 §4.3).
    fn judge_round(&mut self, ack: &Ack<'_>) -> Verdict {
        match (&mut self.hystart, self.ssthresh) {
            (Some(hystart), None) => {
                hystart.on_ack(ack.largest_index, ack.next_index, ack.rtt_sample)
            }
            (Some(_), Some(_)) | (None, _) => Verdict::Grow { divisor: 1 },
        }
    }

    fn avoid(&mut self, ack: &Ack<'_>) {
        // Neither W_est nor the window grows by what did not use the window.
        if ack.window_used_bytes == 0 {
            return;
        }
        self.window = self.adjustment.grow(&Growth {
            now: ack.now,
            window: self.window,
            acked: ack.window_used_bytes,
            largest_flight: self.largest_flight.bytes(),
            smoothed_rtt: ack.smoothed_rtt,
            mds: self.mds,
        });
    }
}

impl<A: WindowAdjustment> Controller for Classic<A> {
    fn on_sent(&mut self, sent: &Sent) {
        let in_flight = sent.in_flight_before.saturating_add(sent.bytes);
        self.largest_flight.on_sent(in_flight);
        if let Some(prr) = &mut self.recovery {
            prr.on_sent(sent.bytes);
        }
    }

    fn on_ack(&mut self, ack: &Ack<'_>) {
        self.untouched = false;
        if self.recovery.is_none() {
            if self.in_slow_start() {
                self.slow_start(ack);
            } else {
                self.avoid(ack);
            }
        } else if ack.largest_index >= self.boundary {
            self.leave_recovery(ack.now);
        } else {
            self.recover(ack);
        }
    }

    fn on_congestion(&mut self, event: &Congestion) {
        self.untouched = false;
        if event.persistent && event.largest_index >= self.collapsed_before {
            self.collapse(event);
        } else if event.largest_index >= self.boundary {
            self.reduce(event);
        } else {
            self.continue_event(event);
        }
    }

    fn on_spurious(&mut self, event: &Spurious) {
        let Some(undo) = self.undo.take_if(|undo| undo.event == event.event) else {
            return;
        };
        if self.settled_window() >= undo.window {
            return;
        }
        self.window = undo.window.max(self.min_window());
        self.ssthresh = undo.ssthresh;
        self.recovery = None;
        // A loss before the undone boundary is now a new event.
        self.boundary = undo.boundary;
        self.largest_flight.restore(undo.largest_flight);
        self.adjustment.restore(undo.adjustment);
        if !self.in_slow_start() {
            self.adjustment
                .start_avoidance(self.window, self.mds, event.now);
        }
        self.metrics.spurious_events += 1;
    }

    fn on_limit(&mut self, limit: Limit, now: Instant) {
        self.adjustment.on_limit(limit, now);
    }

    /// The curve needs nothing: its clock has stood still. But PRR answers for a
    /// flight that is no more, and the pacer now prevents the burst (RFC 9002
    /// §7.8). Recovery itself still ends by an ACK.
    fn restart_from_idle(&mut self, _now: Instant) {
        self.window = self.settled_window();
    }

    fn on_mds(&mut self, mds: u64) {
        self.mds = mds;
        if self.untouched {
            self.window = initial_window(mds);
            self.largest_flight = LargestFlight::new(self.window);
        }
        let floor = self.min_window();
        self.window = self.window.max(floor);
        self.ssthresh = self.ssthresh.map(|ssthresh| ssthresh.max(floor));
    }

    fn window(&self) -> u64 {
        self.window
    }

    fn min_window(&self) -> u64 {
        min_window(self.mds)
    }

    fn pacing_rate(&self) -> Option<u64> {
        None
    }

    fn state(&self) -> State {
        if self.recovery.is_some() {
            return State::Recovery;
        }
        let conservative = self
            .hystart
            .is_some_and(|hystart| hystart.is_conservative());
        match self.ssthresh {
            None if conservative => State::ConservativeSlowStart,
            None => State::SlowStart,
            Some(ssthresh) if self.window < ssthresh => State::SlowStart,
            Some(_) => State::CongestionAvoidance,
        }
    }

    fn metrics(&self) -> Metrics {
        Metrics {
            ssthresh: self.ssthresh,
            ..self.metrics
        }
    }

    fn internals(&self, now: Instant, show: &mut dyn FnMut(&'static str, u64)) {
        show("boundary", self.boundary);
        show("largest_flight", self.largest_flight.bytes());
        self.adjustment.internals(now, show);
    }

    fn name(&self) -> &'static str {
        A::NAME
    }
}

#[cfg(test)]
mod tests;
