//! Classic congestion control, as NewReno, CUBIC and Prague share it: slow start, recovery,
//! undo and the limits of growth (RFC 9002 §7).

mod resume;
#[cfg(feature = "specimens")]
pub(super) mod specimens;
mod undo;
mod validation;

use crate::controller::{
    Ack, AcksNeeded, Congestion, CongestionCause, Controller, Metrics, SavedPath, SendIndex, Sent,
    Spurious, State,
};
use crate::limit::Limit;
use crate::time::Instant;

use super::flight::LargestFlight;
use super::prr::{Delivery, Prr};
use super::resume::Resume;
use super::slow_start::{SlowStartDecision, SlowStartExit};
use super::window_adjustment::{Growth, WindowAdjustment};
use super::{SlowStart, initial_window, min_window};
use undo::{Undo, UndoLog};
use validation::Validation;

/// A controller whose window grows by a [`WindowAdjustment`] and is reduced once per
/// congestion event.
#[derive(Clone, Debug)]
pub(super) struct Classic<A: WindowAdjustment> {
    adjustment: A,
    mds: u64,
    window: u64,
    /// `None` until the first slow start ended.
    ssthresh: Option<u64>,
    /// What ends the first slow start, besides congestion.
    exit: SlowStartExit,
    /// Slow start has ended, and the window is being lowered to ssthresh.
    draining: bool,
    /// Set while in recovery.
    recovery: Option<Prr>,
    /// Losses and marks of packets before it belong to an event for which the window was
    /// already reduced.
    boundary: SendIndex,
    /// Packets before it belong to persistent congestion that has already collapsed the
    /// window.
    collapsed_before: SendIndex,
    largest_flight: LargestFlight,
    undo: UndoLog<A::Saved>,
    validation: Validation,
    resume: Resume,
    /// Window, pacer or host is what holds the flow back.
    is_window_limited: bool,
    /// No feedback yet: the window is the initial one.
    untouched: bool,
    metrics: Metrics,
}

impl<A: WindowAdjustment> Classic<A> {
    /// Creates the controller of a new path.
    pub(super) fn new(adjustment: A, slow_start: SlowStart, mds: u64) -> Self {
        let window = initial_window(mds);
        Self {
            adjustment,
            mds,
            window,
            ssthresh: None,
            exit: SlowStartExit::new(slow_start),
            draining: false,
            recovery: None,
            boundary: 0,
            collapsed_before: 0,
            largest_flight: LargestFlight::new(window),
            undo: UndoLog::new(),
            validation: Validation::default(),
            resume: Resume::default(),
            is_window_limited: false,
            untouched: true,
            metrics: Metrics::default(),
        }
    }

    /// Returns how the window is adjusted.
    pub(super) const fn adjustment(&self) -> &A {
        &self.adjustment
    }

    /// As `adjustment`, to tell it what the ACK does not.
    pub(super) fn adjustment_mut(&mut self) -> &mut A {
        &mut self.adjustment
    }

    /// Returns the boundary: for losses of packets before it the window was already
    /// reduced.
    pub(super) fn boundary(&self) -> SendIndex {
        self.boundary
    }

    /// Confirms a congestion event, so that it cannot be undone.
    pub(super) fn confirm(&mut self) {
        self.undo.clear();
    }

    /// Reduces the window at once because of marks, and ends slow start. There is no
    /// recovery, because nothing was lost.
    pub(super) fn reduce_to(&mut self, window: u64) {
        self.confirm();
        self.untouched = false;
        self.resume.abandon();
        self.recovery = None;
        self.draining = false;
        self.window = window.max(self.min_window());
        self.ssthresh = Some(self.window);
        self.largest_flight.reset();
        self.metrics.congestion_events += 1;
    }

    /// Returns the window to which the last event reduces, even while PRR is still on the
    /// way to it, or that at which slow start ended, even while the queue is drained.
    pub(super) fn settled_window(&self) -> u64 {
        let on_the_way = self.recovery.is_some() || self.draining;
        self.ssthresh.filter(|_| on_the_way).unwrap_or(self.window)
    }

    fn in_slow_start(&self) -> bool {
        self.ssthresh.is_none_or(|ssthresh| self.window < ssthresh)
    }

    /// Responds to a new event: ssthresh is reduced, and PRR leads the window to it.
    fn reduce(&mut self, event: &Congestion) {
        let window = self.settled_window();
        // Marks cannot turn out to be spurious, so nothing is kept for them.
        match event.cause {
            CongestionCause::Loss => self.undo.push(Undo {
                event: event.next_index,
                window,
                ssthresh: self.ssthresh,
                boundary: self.boundary,
                largest_flight: self.largest_flight,
                adjustment: self.adjustment.save(),
            }),
            CongestionCause::EcnCe => self.undo.clear(),
        }
        // Slow start overshoots by far, so marks there count like losses (RFC 8511 §4.1).
        let signal = if self.in_slow_start() {
            CongestionCause::Loss
        } else {
            event.cause
        };
        let reduced = self.adjustment.reduce(window, self.mds, signal);
        self.ssthresh = Some(reduced.max(self.min_window()));
        self.draining = false;
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

    /// Responds to persistent congestion (RFC 9002 §7.6): back to slow start at the
    /// minimum.
    fn collapse(&mut self, event: &Congestion) {
        if event.largest_index >= self.boundary {
            self.reduce(event);
        } else {
            // There were two responses to one event, so neither can be undone alone.
            self.undo.clear();
        }
        self.adjustment.on_persistent_congestion();
        self.recovery = None;
        self.draining = false;
        self.window = self.min_window();
        self.largest_flight.reset();
        self.boundary = event.next_index;
        self.collapsed_before = event.next_index;
        self.metrics.persistent_events += 1;
    }

    /// Handles more losses or marks of an event for which the window was already reduced.
    fn continue_event(&mut self, event: &Congestion) {
        match event.cause {
            CongestionCause::EcnCe => self.undo.clear(),
            CongestionCause::Loss => {
                // Packets that the timer declares lost leave the flight without a delivery.
                // They must not make room for a burst (RFC 9937 §6).
                if self.recovery.is_some() && event.acked_bytes == 0 {
                    let window = self.window.saturating_sub(event.lost_bytes);
                    self.window = window.max(self.min_window());
                }
            }
        }
    }

    /// Handles an ACK in recovery.
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

    /// Leaves recovery: a packet sent after entry was acknowledged.
    fn leave_recovery(&mut self, now: Instant) {
        if let Some(prr) = self.recovery {
            self.validate_window(prr.delivered());
        }
        self.window = self.settled_window();
        self.recovery = None;
        self.adjustment.start_avoidance(self.window, self.mds, now);
    }

    /// Undoes the newest reduction: everything is as before it.
    fn undo_newest(&mut self, undo: &Undo<A::Saved>, now: Instant) {
        if self.settled_window() >= undo.window {
            return;
        }
        self.window = undo.window.max(self.min_window());
        self.ssthresh = undo.ssthresh;
        self.recovery = None;
        self.draining = false;
        // A loss before the undone boundary is now a new event.
        self.boundary = undo.boundary;
        self.largest_flight.restore(undo.largest_flight);
        self.adjustment.restore(undo.adjustment);
        if !self.in_slow_start() {
            self.adjustment.start_avoidance(self.window, self.mds, now);
        }
        self.metrics.spurious_events += 1;
    }

    /// Raises the window to which the last event reduces, because that event is judged anew.
    fn rise_to(&mut self, window: u64, now: Instant) {
        self.ssthresh = Some(window);
        if self.recovery.is_none() {
            self.window = window;
            self.adjustment.start_avoidance(window, self.mds, now);
        }
    }

    fn slow_start(&mut self, ack: &Ack<'_>) {
        let divisor = match self.decide_on_slow_start(ack) {
            SlowStartDecision::Grow { divisor } => divisor,
            SlowStartDecision::Leave => {
                self.ssthresh = Some(self.window);
                self.adjustment
                    .start_avoidance(self.window, self.mds, ack.now);
                return;
            }
            SlowStartDecision::Drain { target } => {
                let target = target.max(initial_window(self.mds)).min(self.window);
                self.ssthresh = Some(target);
                self.draining = true;
                self.drain(ack);
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

    /// Asks what watches the first slow start, in that one only (RFC 9406 §4.3).
    fn decide_on_slow_start(&mut self, ack: &Ack<'_>) -> SlowStartDecision {
        match self.ssthresh {
            None => self.exit.on_ack(ack),
            Some(_) => SlowStartDecision::Grow { divisor: 1 },
        }
    }

    /// Lowers the window to ssthresh after slow start: one byte may leave for two that arrive,
    /// so that the queue goes without a pause.
    fn drain(&mut self, ack: &Ack<'_>) {
        let target = self.settled_window();
        self.window = self.window.saturating_sub(ack.bytes / 2).max(target);
        if self.window == target || ack.in_flight_after <= target {
            self.draining = false;
            self.window = target;
            self.adjustment.start_avoidance(target, self.mds, ack.now);
        }
    }

    fn avoid(&mut self, ack: &Ack<'_>) {
        // Bytes sent while the window was not in use grow neither W_est nor the window.
        if ack.window_used_bytes == 0 {
            return;
        }
        self.window = self.adjustment.grow(&Growth {
            now: ack.now,
            window: self.window,
            acked: ack.window_used_bytes,
            largest_flight: self.largest_flight.bytes(),
            min_rtt: ack.min_rtt,
            mds: self.mds,
        });
    }
}

impl<A: WindowAdjustment> Controller for Classic<A> {
    fn on_sent(&mut self, sent: &Sent) {
        let in_flight = sent.in_flight_before.saturating_add(sent.bytes);
        self.largest_flight.on_sent(in_flight);
        self.resume_on_sent(sent, in_flight);
        self.exit.on_sent(sent.bytes);
        if let Some(prr) = &mut self.recovery {
            prr.on_sent(sent.bytes);
        }
    }

    fn on_ack(&mut self, ack: &Ack<'_>) {
        self.untouched = false;
        self.validation.on_ack(ack, self.recovery.is_none());
        self.exit.on_acked(ack.bytes);
        if !self.resume_on_ack(ack) {
            return;
        }
        if self.recovery.is_none() {
            if self.draining {
                self.drain(ack);
            } else if self.in_slow_start() {
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
            self.resume.abandon();
            self.collapse(event);
            return;
        }
        if !self.resume_on_congestion(event) {
            return;
        }
        if event.largest_index >= self.boundary {
            self.reduce(event);
        } else {
            self.continue_event(event);
        }
    }

    fn on_spurious(&mut self, event: &Spurious) {
        let floor = self.min_window();
        let settled = self.settled_window();
        let Some(undo) = self.undo.take(event.event) else {
            return;
        };
        if !self.undo.has_after(undo.event) {
            self.undo_newest(&undo, event.now);
            return;
        }
        // The later reductions stand, but each is repeated from the window that it would have
        // found without the undone one.
        self.adjustment.restore(undo.adjustment);
        let (mut window, mut ssthresh, mut boundary) = (undo.window, undo.ssthresh, undo.boundary);
        for each in self.undo.after(undo.event) {
            each.window = each.window.max(window);
            each.ssthresh = ssthresh;
            each.boundary = boundary;
            each.largest_flight.restore(undo.largest_flight);
            each.adjustment = self.adjustment.save();
            let reduced = self
                .adjustment
                .reduce(each.window, self.mds, CongestionCause::Loss);
            window = reduced.max(floor);
            ssthresh = Some(window);
            boundary = each.event;
        }
        self.rise_to(window.max(settled), event.now);
        self.metrics.spurious_events += 1;
    }

    fn on_limit(&mut self, limit: Limit, now: Instant) {
        self.is_window_limited = limit.uses_window();
        self.adjustment.on_limit(limit, now);
        self.validation.on_limit(limit, now);
    }

    /// The curve needs no change, because its clock was stopped. But the flight that PRR
    /// was limiting is gone, so the window opens to ssthresh; the pacer prevents a burst
    /// (RFC 9002 §7.8). Recovery itself still ends by an ACK.
    fn restart_from_idle(&mut self, _now: Instant) {
        self.window = self.settled_window();
        self.draining = false;
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

    fn resume(&mut self, saved: &SavedPath) {
        if self.untouched {
            self.resume = Resume::new(*saved);
        }
    }

    fn duplicate(&self) -> Option<Box<dyn Controller>> {
        Some(Box::new(self.continued()))
    }

    fn window(&self) -> u64 {
        self.window
    }

    fn min_window(&self) -> u64 {
        min_window(self.mds)
    }

    fn pacing_rate(&self) -> Option<u64> {
        self.resume.rate()
    }

    fn acks_needed(&self) -> AcksNeeded {
        match self.state() {
            State::SlowStart | State::ConservativeSlowStart => AcksNeeded::SMOOTH,
            _ => AcksNeeded::STEADY,
        }
    }

    fn state(&self) -> State {
        if self.recovery.is_some() || self.resume.is_retreating() {
            return State::Recovery;
        }
        let conservative = self.exit.is_conservative();
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
        show("resume_phase", self.resume.number());
        self.adjustment.internals(now, show);
    }

    fn name(&self) -> &'static str {
        A::NAME
    }
}

#[cfg(test)]
mod tests;
