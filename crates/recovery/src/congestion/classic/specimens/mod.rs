//! Known bugs of CUBIC (feature `specimens`).

use std::collections::VecDeque;

use crate::controller::{Ack, Congestion, CongestionCause, Controller, SendIndex, Sent, Spurious};
use crate::limit::Limit;
use crate::specimens::Specimen;
use crate::time::{Instant, nanos};

use super::super::carry::scale;
use super::super::cubic::{BETA, Cubic};
use super::super::growth_clock::GrowthClock;
use super::super::specimens::Bug;
use super::super::window_adjustment::WindowAdjustment as _;
use super::Classic;

/// Returns the bug of this specimen if it is one of CUBIC.
pub(in super::super) fn bug(specimen: Specimen) -> Option<Box<dyn Bug<Classic<Cubic>>>> {
    match specimen {
        Specimen::IdleFromLastSend => Some(Box::new(SharedBoundary::new(Clamp::Never))),
        Specimen::EpochClampedToNow => Some(Box::new(SharedBoundary::new(Clamp::ToNow))),
        Specimen::EpochNotShifted => Some(Box::new(EpochNotShifted)),
        Specimen::EpochResetOnIdle => Some(Box::new(EpochResetOnIdle)),
        Specimen::UndoOnLightLoss => Some(Box::new(UndoOnLightLoss { lost: 0 })),
        Specimen::MultiCut => Some(Box::new(MultiCut)),
        Specimen::DrainTrap
        | Specimen::DownTrap
        | Specimen::PreAckInflightExit
        | Specimen::MaxFilterSameRound
        | Specimen::BootstrapRttPoison
        | Specimen::WalltimeRate
        | Specimen::ZeroPacingBootstrap
        | Specimen::TokenbucketStartup
        | Specimen::StartupOverrun
        | Specimen::AmnesiaAfterOutage
        | Specimen::LongtermSpiral
        | Specimen::BifDesync
        | Specimen::PtoUnarmed
        | Specimen::PacerSpin
        | Specimen::RetransmitAllOnMigration
        | Specimen::MigrationRttReset => None,
    }
}

/// `epoch-not-shifted`: CUBIC's clock never stops.
#[derive(Debug)]
struct EpochNotShifted;

impl Bug<Classic<Cubic>> for EpochNotShifted {
    fn on_limit(&mut self, inner: &mut Classic<Cubic>, _limit: Limit, now: Instant) {
        inner.on_limit(Limit::Congestion, now);
    }
}

/// `epoch-reset-on-idle`: after a pause the curve begins as if a loss had just reduced the
/// window.
#[derive(Debug)]
struct EpochResetOnIdle;

impl Bug<Classic<Cubic>> for EpochResetOnIdle {
    fn restart_from_idle(&mut self, inner: &mut Classic<Cubic>, now: Instant) {
        inner.restart_from_idle(now);
        inner.adjustment.on_persistent_congestion();
        let window = scale(inner.window, BETA.1, BETA.0);
        inner
            .adjustment
            .reduce(window, inner.mds, CongestionCause::Loss);
    }
}

/// `undo-on-light-loss`: losses of less than a fifth of the window count as spurious.
#[derive(Debug)]
struct UndoOnLightLoss {
    /// Bytes lost in the running event.
    lost: u64,
}

impl Bug<Classic<Cubic>> for UndoOnLightLoss {
    fn on_congestion(&mut self, inner: &mut Classic<Cubic>, event: &Congestion) {
        if event.largest_index >= inner.boundary {
            self.lost = 0;
        }
        self.lost += event.lost_bytes;
        inner.on_congestion(event);
    }

    fn on_ack(&mut self, inner: &mut Classic<Cubic>, ack: &Ack<'_>) {
        let recovering = inner.recovery.is_some();
        inner.on_ack(ack);
        if recovering
            && inner.recovery.is_none()
            && let Some(undo) = inner.undo.newest()
            && self.lost < undo.window / 5
        {
            let (now, event) = (ack.now, undo.event);
            inner.on_spurious(&Spurious { now, event });
        }
    }
}

/// `multi-cut`: each lost packet of an ACK begins recovery again.
#[derive(Debug)]
struct MultiCut;

impl Bug<Classic<Cubic>> for MultiCut {
    fn on_congestion(&mut self, inner: &mut Classic<Cubic>, event: &Congestion) {
        inner.untouched = false;
        for _ in 0..event.packets {
            inner.reduce(event);
        }
    }
}

/// Whether the shared variable may lie in the future.
#[derive(Debug, PartialEq, Eq)]
enum Clamp {
    /// `idle-from-last-send`
    Never,
    /// `epoch-clamped-to-now`
    ToNow,
}

/// `idle-from-last-send` and `epoch-clamped-to-now`: CUBIC's epoch and the
/// recovery boundary are one variable, a time, and "nothing in flight" is taken
/// for "idle since the last packet", which moves it.
///
/// At a window of two packets this never ends: the ACK empties the flight, the next burst is
/// sent, `on_sent` moves the boundary by the round trip that has passed, so the burst counts as
/// sent in recovery, and its ACK is ignored.
#[derive(Debug)]
struct SharedBoundary {
    clamp: Clamp,
    boundary: Option<Instant>,
    last_sent: Option<Instant>,
    /// Send times of packets that may still be lost.
    sent: VecDeque<(SendIndex, Instant)>,
    /// Nanoseconds by which the boundary, and the curve with it, was moved.
    shifted: u64,
}

impl SharedBoundary {
    fn new(clamp: Clamp) -> Self {
        Self {
            clamp,
            boundary: None,
            last_sent: None,
            sent: VecDeque::new(),
            shifted: 0,
        }
    }

    /// Returns whether a packet sent at this time counts as sent in recovery.
    fn in_recovery(&self, sent: Instant) -> bool {
        self.boundary.is_some_and(|boundary| sent <= boundary)
    }

    fn forget_before(&mut self, index: SendIndex) {
        while self.sent.front().is_some_and(|&(first, _)| first < index) {
            self.sent.pop_front();
        }
    }
}

/// Makes the time since `boundary` the elapsed time of the curve: the clock runs
/// from the origin on and is never stopped, so that its readings are times.
fn draw_from(adjustment: &mut Cubic, boundary: Instant) {
    adjustment.clock = GrowthClock::default();
    adjustment.clock.on_limit(Limit::Congestion, Instant::ZERO);
    if let Some(epoch) = &mut adjustment.state.epoch {
        epoch.start = boundary.as_nanos();
    }
}

impl Bug<Classic<Cubic>> for SharedBoundary {
    fn on_sent(&mut self, inner: &mut Classic<Cubic>, sent: &Sent) {
        if sent.in_flight_before == 0
            && let (Some(boundary), Some(last)) = (self.boundary.as_mut(), self.last_sent)
        {
            let before = *boundary;
            *boundary += sent.now - last;
            if self.clamp == Clamp::ToNow {
                *boundary = (*boundary).min(sent.now);
            }
            self.shifted += nanos(*boundary - before);
        }
        self.last_sent = Some(sent.now);
        self.sent.push_back((sent.index, sent.now));
        inner.on_sent(sent);
    }

    fn on_ack(&mut self, inner: &mut Classic<Cubic>, ack: &Ack<'_>) {
        inner.untouched = false;
        if let Some(boundary) = self.boundary {
            draw_from(&mut inner.adjustment, boundary);
        }
        if !self.in_recovery(ack.largest_sent_time) {
            inner.on_ack(ack);
        }
    }

    fn on_congestion(&mut self, inner: &mut Classic<Cubic>, event: &Congestion) {
        inner.untouched = false;
        self.forget_before(event.largest_index);
        let sent = self.sent.front().map_or(event.now, |&(_, sent)| sent);
        if !self.in_recovery(sent) {
            inner.reduce(event);
            inner.window = inner.settled_window();
            inner.recovery = None;
            self.boundary = Some(event.now);
            inner
                .adjustment
                .start_avoidance(inner.window, inner.mds, event.now);
        }
    }

    /// The stack that had the bug sent its window at once. Only if both packets of a burst
    /// are sent at the same instant does the boundary stay ahead of them for ever; any gap
    /// between them lets them pass it.
    fn pacing_rate(&self, _inner: &Classic<Cubic>) -> Option<u64> {
        Some(1 << 40)
    }

    /// Shows the shared variable in the place of the boundary and of the clock's own shift.
    fn internals(
        &self,
        inner: &Classic<Cubic>,
        now: Instant,
        show: &mut dyn FnMut(&'static str, u64),
    ) {
        if let Some(boundary) = self.boundary {
            show("recovery_start", boundary.as_nanos());
        }
        show("epoch_shift", self.shifted);
        inner.internals(now, &mut |name, value| {
            if name != "boundary" && name != "epoch_shift" {
                show(name, value);
            }
        });
    }
}

#[cfg(test)]
mod tests;
