//! Entries into recovery without a loss, idle adjustments while data waits, and the events around
//! them.

use std::collections::VecDeque;

use clearway_recovery::limit::LimitGroup;

use super::moment::{Happening, Moment};
use crate::event::{Event, EventData, Frame, Metrics, Packet, Space};

/// Maximum number of events kept of one flip.
const MAX_EVENTS: usize = 24;
/// Events before a flip that are kept with it.
const BEFORE: usize = 6;
/// Flips of which the events are kept: the first ones, and the last ones.
const KEPT: usize = 32;
/// Maximum number of flips whose times are kept.
const MAX_FLIPS: usize = 1 << 16;

/// Fields of controllers that say where recovery begins and when growth began.
const INTERNALS: [&str; 3] = ["epoch_shift", "recovery_start", "boundary"];

/// The error of a millisecond clock: smaller adjustments do not count.
const SLACK: u64 = 1_000_000;

/// What repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlipKind {
    /// Recovery is entered without a loss.
    Recovery,
    /// The controller moves its growth curve as if the connection had been idle.
    Adjustment,
}

/// One entry into recovery without a loss, or one adjustment, until the next.
#[derive(Clone, Debug)]
pub(super) struct Flip {
    pub(super) kind: FlipKind,
    pub(super) begin: u64,
    pub(super) end: u64,
    /// Whether nothing was in flight at some time of it although the application had data.
    pub(super) emptied: bool,
    events: Vec<(u64, Happening)>,
}

impl Flip {
    pub(super) fn moments(&self) -> Vec<Moment> {
        let moment = |(time, what): &(u64, Happening)| Moment {
            time: *time,
            text: what.to_string(),
        };
        self.events.iter().map(moment).collect()
    }
}

/// Records flips.
#[derive(Clone, Debug, Default)]
pub(super) struct Flips {
    recovering: bool,
    /// A loss or a CE mark that explains the next entry.
    explained: bool,
    current: Option<Flip>,
    first: Vec<Flip>,
    last: VecDeque<Flip>,
    times: Vec<u64>,
    adjustments: Vec<u64>,
    recent: VecDeque<(u64, Happening)>,
    window: Option<u64>,
    internals: [Option<u64>; 3],
    /// CE marks reported so far.
    marks: u64,
    /// Whether the application or flow control is the limit, and whether it was since the last
    /// metrics.
    quiet: bool,
    was_quiet: bool,
    last_ack: u64,
    last_metrics: u64,
}

impl Flips {
    /// The times of entry; those of adjustments if there are no entries.
    pub(super) fn times(&self) -> &[u64] {
        if self.times.is_empty() {
            &self.adjustments
        } else {
            &self.times
        }
    }

    /// The number of adjustments between two times.
    pub(super) fn adjustments_within(&self, t0: u64, t1: u64) -> usize {
        let before = |time: u64| self.adjustments.partition_point(|at| *at < time);
        before(t1.saturating_add(1)).saturating_sub(before(t0))
    }

    /// A flip between two times; rather one that shows why.
    pub(super) fn within(&self, t0: u64, t1: u64) -> Option<&Flip> {
        let all = || {
            let kept = self.first.iter().chain(&self.last);
            kept.filter(|flip| flip.begin >= t0 && flip.end <= t1)
        };
        all()
            .find(|flip| flip.kind == FlipKind::Recovery && flip.emptied)
            .or_else(|| all().find(|flip| flip.kind == FlipKind::Recovery))
            .or_else(|| all().next())
    }

    pub(super) fn on_event(&mut self, event: &Event) {
        match &event.data {
            EventData::CongestionStateUpdated { new, trigger, .. } => {
                self.on_state(event.time, new, trigger.as_ref());
            }
            EventData::PacketSent(packet) => self.on_sent(event.time, packet),
            EventData::PacketReceived(packet) => self.on_received(event.time, packet),
            EventData::PacketLost {
                mtu_probe: false, ..
            }
            | EventData::TupleAssigned { .. } => {
                self.explained = true;
                self.current = None;
            }
            EventData::RecoveryMetricsUpdated(metrics) => self.on_metrics(event.time, metrics),
            EventData::DataBlockedUpdated { reason } => {
                self.quiet = reason.is_some_and(|limit| match limit.group() {
                    LimitGroup::Application | LimitGroup::FlowControl => true,
                    LimitGroup::Handshake | LimitGroup::Network | LimitGroup::Host => false,
                });
                self.was_quiet |= self.quiet;
                self.push(event.time, Happening::Limit(*reason));
            }
            _ => {}
        }
    }

    fn push(&mut self, time: u64, what: Happening) {
        if let Some(flip) = &mut self.current
            && flip.events.len() < MAX_EVENTS
        {
            flip.events.push((time, what.clone()));
        }
        if self.recent.len() == BEFORE {
            self.recent.pop_front();
        }
        self.recent.push_back((time, what));
    }

    fn on_state(
        &mut self,
        time: u64,
        new: &crate::event::Name,
        trigger: Option<&crate::event::Name>,
    ) {
        let recovering = new.contains("recovery");
        let enters = recovering && !self.recovering;
        self.recovering = recovering;
        if !enters {
            self.push(time, state(new, trigger));
            return;
        }
        self.end_current(time);
        if core::mem::take(&mut self.explained) {
            self.push(time, state(new, trigger));
            return;
        }
        if self.times.len() < MAX_FLIPS {
            self.times.push(time);
        }
        self.begin(FlipKind::Recovery, time);
        self.push(time, state(new, trigger));
    }

    fn begin(&mut self, kind: FlipKind, time: u64) {
        self.current = Some(Flip {
            kind,
            begin: time,
            end: time,
            emptied: false,
            events: self.recent.iter().cloned().collect(),
        });
    }

    fn end_current(&mut self, time: u64) {
        if let Some(mut flip) = self.current.take() {
            flip.end = time;
            self.keep(flip);
        }
    }

    fn keep(&mut self, flip: Flip) {
        if self.first.len() < KEPT {
            self.first.push(flip);
            return;
        }
        if self.last.len() == KEPT {
            self.last.pop_front();
        }
        self.last.push_back(flip);
    }

    fn on_sent(&mut self, time: u64, packet: &Packet) {
        let (Some(number), Some(Space::Data)) = (packet.number, packet.kind.space()) else {
            return;
        };
        if packet.ack_eliciting() == Some(false) {
            return;
        }
        let bytes = packet.size.unwrap_or(0);
        let extend = |last: Option<&mut (u64, Happening)>| match last {
            Some((at, Happening::Sent { to, bytes: sum, .. }))
                if *at == time && to.saturating_add(1) == number =>
            {
                *to = number;
                *sum = sum.saturating_add(bytes);
                true
            }
            Some(_) | None => false,
        };
        let known = extend(self.recent.back_mut());
        if let Some(flip) = &mut self.current {
            extend(flip.events.last_mut());
        }
        if !known {
            let (from, to) = (number, number);
            self.push(time, Happening::Sent { from, to, bytes });
        }
    }

    fn on_received(&mut self, time: u64, packet: &Packet) {
        if packet.kind.space() != Some(Space::Data) {
            return;
        }
        for frame in packet.frames() {
            let Frame::Ack { ranges, ecn, .. } = frame else {
                continue;
            };
            if let Some([_, _, marks]) = ecn {
                let before = core::mem::replace(&mut self.marks, *marks);
                self.explained |= *marks > before;
            }
            if let Some(largest) = ranges.iter().map(|(_, to)| *to).max() {
                self.last_ack = time;
                self.push(time, Happening::Acked { largest });
            }
        }
    }

    fn on_metrics(&mut self, time: u64, metrics: &Metrics) {
        let told = core::mem::replace(&mut self.last_metrics, time);
        let quiet = core::mem::replace(&mut self.was_quiet, self.quiet);
        let idle = time.saturating_sub(self.last_ack.max(told));
        if let Some(new) = metrics
            .congestion_window
            .filter(|new| Some(*new) != self.window)
        {
            let old = self.window.replace(new);
            self.push(time, Happening::Window { old, new });
        }
        if metrics.bytes_in_flight == Some(0) {
            if let Some(flip) = &mut self.current {
                flip.emptied |= !self.quiet;
            }
            if self.recent.back().map(|(_, what)| what) != Some(&Happening::FlightEmpty) {
                self.push(time, Happening::FlightEmpty);
            }
        }
        for (name, known) in INTERNALS.into_iter().zip(0_usize..) {
            let Some(place) = self.internals.get_mut(known) else {
                continue;
            };
            let Some(new) = metrics.extra(name) else {
                continue;
            };
            let old = place.replace(new).unwrap_or(new);
            if old == new {
                continue;
            }
            let moved = new.saturating_sub(old);
            if known == 0 && !quiet && moved > idle.saturating_add(SLACK) {
                self.adjusted(time);
            }
            let name = crate::event::Name::Borrowed(name);
            self.push(time, Happening::Internal { name, old, new });
        }
    }
}

impl Flips {
    /// The curve was moved although the application had data all the time.
    fn adjusted(&mut self, time: u64) {
        if self.adjustments.len() < MAX_FLIPS {
            self.adjustments.push(time);
        }
        let recovery = |flip: &Flip| flip.kind == FlipKind::Recovery;
        if self.current.as_ref().is_some_and(recovery) {
            return;
        }
        self.end_current(time);
        self.begin(FlipKind::Adjustment, time);
    }
}

fn state(new: &crate::event::Name, trigger: Option<&crate::event::Name>) -> Happening {
    Happening::State {
        new: new.clone(),
        trigger: trigger.cloned(),
    }
}
