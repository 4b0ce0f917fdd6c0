//! The wrong variants of [`Classic`] behind its specimens.

use std::collections::VecDeque;

use crate::controller::{Ack, Congestion, Controller, SendIndex, Sent, Spurious};
use crate::time::{Instant, nanos};

use super::super::carry::scale;
use super::super::law::Law;
use super::super::specimen::Specimen;
use super::Classic;

/// What a wrong variant remembers.
#[derive(Debug, Default)]
pub(super) struct Flaw {
    specimen: Option<Specimen>,
    /// CUBIC's epoch and the recovery boundary in one: a time.
    boundary: Option<Instant>,
    last_sent: Option<Instant>,
    /// When packets left that may yet be lost.
    sent: VecDeque<(SendIndex, Instant)>,
    /// Nanoseconds by which the boundary, and the curve with it, was moved.
    shifted: u64,
    /// Bytes lost in the running event.
    lost: u64,
}

impl Flaw {
    /// The two that take an empty pipe for idleness.
    fn shares_boundary(&self) -> bool {
        matches!(
            self.specimen,
            Some(Specimen::IdleFromLastSend | Specimen::EpochClampedToNow)
        )
    }

    /// The bug: "nothing in flight" is taken for "idle since the last packet".
    fn on_sent(&mut self, sent: &Sent) {
        if sent.in_flight_before == 0
            && let (Some(boundary), Some(last)) = (self.boundary.as_mut(), self.last_sent)
        {
            let before = *boundary;
            *boundary += sent.now - last;
            if self.specimen == Some(Specimen::EpochClampedToNow) {
                *boundary = (*boundary).min(sent.now);
            }
            self.shifted += nanos(*boundary - before);
        }
        self.last_sent = Some(sent.now);
        self.sent.push_back((sent.index, sent.now));
    }

    /// And the other half of it: recovery is what a comparison of times says.
    fn in_recovery(&self, sent: Instant) -> bool {
        self.boundary.is_some_and(|boundary| sent <= boundary)
    }

    fn forget_before(&mut self, index: SendIndex) {
        while self.sent.front().is_some_and(|&(first, _)| first < index) {
            self.sent.pop_front();
        }
    }
}

impl<L: Law> Classic<L> {
    /// With a bug.
    pub(in super::super) fn with_flaw(mut self, specimen: Specimen) -> Self {
        self.flaw.specimen = Some(specimen);
        self
    }

    pub(super) fn flawed_sent(&mut self, sent: &Sent) {
        if self.flaw.shares_boundary() {
            self.flaw.on_sent(sent);
        }
    }

    /// Whether a bug has taken the ACK.
    pub(super) fn flawed_ack(&mut self, ack: &Ack<'_>) -> bool {
        if !self.flaw.shares_boundary() {
            return false;
        }
        self.law
            .dictate(self.flaw.boundary.map(|epoch| nanos(ack.now - epoch)));
        self.flaw.in_recovery(ack.largest_sent_time)
    }

    /// Shows the shared variable where there is one: it takes the place of the
    /// boundary and of the clock's own shift.
    pub(super) fn flawed_internals(&self, show: &mut dyn FnMut(&'static str, u64)) -> bool {
        if !self.flaw.shares_boundary() {
            return false;
        }
        if let Some(boundary) = self.flaw.boundary {
            show("recovery_start", boundary.as_nanos());
        }
        show("epoch_shift", self.flaw.shifted);
        true
    }

    /// The stack that had the bug sent its window at once, and only if both
    /// packets of a burst leave at the same instant does the boundary keep up
    /// with them for ever: a gap brings them apart by itself every round.
    pub(super) fn flawed_pacing_rate(&self) -> Option<u64> {
        self.flaw.shares_boundary().then_some(1 << 40)
    }

    /// Whether a bug has taken the losses.
    pub(super) fn flawed_congestion(&mut self, event: &Congestion) -> bool {
        match self.flaw.specimen {
            Some(Specimen::IdleFromLastSend | Specimen::EpochClampedToNow) => {
                self.flaw.forget_before(event.largest_index);
                let sent = self.flaw.sent.front().map_or(event.now, |&(_, sent)| sent);
                if !self.flaw.in_recovery(sent) {
                    self.reduce(event);
                    self.window = self.settled_window();
                    self.recovery = None;
                    self.flaw.boundary = Some(event.now);
                    self.law.begin(self.window, self.mds, event.now);
                }
                true
            }
            Some(Specimen::MultiCut) => {
                for _ in 0..event.packets {
                    self.reduce(event);
                }
                true
            }
            Some(Specimen::UndoOnLightLoss) => {
                if event.largest_index >= self.boundary {
                    self.flaw.lost = 0;
                }
                self.flaw.lost += event.lost_bytes;
                false
            }
            Some(_) | None => false,
        }
    }

    /// Recovery ends: little was lost, so nothing was, the bug says.
    pub(super) fn flawed_recovery_end(&mut self, now: Instant) {
        if self.flaw.specimen == Some(Specimen::UndoOnLightLoss)
            && let Some(undo) = self.undo
            && self.flaw.lost < undo.window / 5
        {
            self.on_spurious(&Spurious {
                now,
                event: undo.event,
            });
        }
    }

    /// A pause ends: the curve begins as if the window were what a loss left.
    pub(super) fn flawed_restart(&mut self) {
        if self.flaw.specimen == Some(Specimen::EpochResetOnIdle) {
            self.law.begin_as_after_loss(scale(self.window, 10, 7));
        }
    }
}

#[cfg(test)]
mod tests;
