//! What Careful Resume does to the window (RFC 9959).

use crate::controller::{Ack, Congestion, Controller as _, Sent};
use crate::time::Instant;

use super::super::initial_window;
#[cfg(test)]
use super::super::resume::Resume;
use super::super::resume::{Step, Window};
use super::super::window_adjustment::WindowAdjustment;
use super::Classic;

impl<A: WindowAdjustment> Classic<A> {
    /// Returns whether packets are in flight that were sent beyond what ACKs justified.
    pub(in super::super) fn is_jumping(&self) -> bool {
        self.resume.is_jumping()
    }

    /// Returns how far the path is in resuming.
    #[cfg(test)]
    pub(in super::super) fn resumed(&self) -> Resume {
        self.resume
    }

    /// Returns a copy for a path that continues this one, on which nothing is in flight. A jump
    /// ends there, because what it sent is never acknowledged: the window is what had arrived.
    pub(in super::super) fn continued(&self) -> Self {
        let mut next = self.clone();
        if let Some(pipe) = next.resume.pipe() {
            next.window = next.window.min(pipe).max(next.min_window());
        }
        next.resume.abandon();
        next
    }

    fn resume_window(&self) -> Window {
        Window {
            bytes: self.window,
            mds: self.mds,
            initial: initial_window(self.mds),
            is_limit: self.is_window_limited,
        }
    }

    /// Handles a packet that was sent.
    pub(super) fn resume_on_sent(&mut self, sent: &Sent, in_flight: u64) {
        if !self.resume.is_jumping() {
            return;
        }
        let window = self.resume_window();
        let step = self
            .resume
            .on_sent(sent.now, sent.index, in_flight, &window);
        self.take_step(step, sent.now);
    }

    /// Handles an ACK. Returns whether congestion control handles it, too.
    #[inline]
    pub(super) fn resume_on_ack(&mut self, ack: &Ack<'_>) -> bool {
        if self.resume.is_over() {
            return true;
        }
        let window = self.resume_window();
        let step = self.resume.on_ack(ack, &window);
        self.take_step(step, ack.now)
    }

    /// Handles losses or marks. Returns whether congestion control handles them, too.
    pub(super) fn resume_on_congestion(&mut self, event: &Congestion) -> bool {
        let step = self.resume.on_congestion(event);
        if matches!(step, Step::Retreat(_)) {
            self.boundary = event.next_index;
        }
        // What was lost or marked after the retreat is answered by itself.
        self.take_step(step, event.now) || matches!(step, Step::Drained { .. })
    }

    /// Takes a step. Returns whether congestion control goes on as if there were none.
    fn take_step(&mut self, step: Step, now: Instant) -> bool {
        match step {
            Step::Ordinary => return true,
            Step::Hold => {}
            Step::Set(window) => self.window = window.max(self.min_window()),
            Step::Retreat(window) => {
                // Nobody knows how much of this was the jump's fault, so nothing is undone.
                self.undo.clear();
                self.recovery = None;
                self.draining = false;
                self.window = window.max(self.min_window()).min(self.window);
                self.ssthresh = Some(self.window);
                self.largest_flight.reset();
                self.metrics.congestion_events += 1;
            }
            Step::Drained { pipe } => {
                let ssthresh = self
                    .adjustment
                    .reduce(pipe, self.mds, super::CongestionCause::Loss);
                let ssthresh = ssthresh.max(self.window);
                self.ssthresh = Some(ssthresh);
                if !self.in_slow_start() {
                    self.adjustment.start_avoidance(self.window, self.mds, now);
                }
            }
        }
        false
    }
}
