//! Prague, the scalable controller of L4S (RFC 9330, RFC 9331,
//! draft-briscoe-iccrg-prague-congestion-control).
//!
//! An L4S queue marks early and often, so the *share* of marked packets shows how much the
//! window is too large. Its average over rounds is α; once per round with marks the window
//! is reduced by α/2. The response to a loss is that of CUBIC, and so is everything before
//! the first mark: on a path without L4S the controller behaves as CUBIC. `growth` says how the
//! window grows.
//!
//! `flight_time` measures how long a window takes to be delivered, which it is paced over.
//!
//! A flow with an RTT below a virtual RTT of 25 ms (from the draft) behaves like one of 25
//! ms: its growth is scaled, and its rounds of averaging and response last at least 25 ms.
//!
//! If the queue that marks is a classic one (`queue_kind`), the response to a mark is that of
//! CUBIC (RFC 8511), or the flow would take the share of those beside it.

mod flight_time;
mod growth;
mod queue_kind;

use core::time::Duration;

use crate::controller::{
    Ack, AcksNeeded, Congestion, CongestionCause, Controller, Ect, Metrics, SavedPath, SendIndex,
    Sent, Spurious, State,
};
use crate::limit::Limit;
use crate::rate::bytes_per_second;
use crate::time::Instant;

use super::SlowStart;
use super::classic::Classic;
use growth::PragueGrowth;
use queue_kind::QueueKind;

/// The RTT that flows with a shorter one are treated as having (from the draft).
const VIRTUAL_RTT: Duration = Duration::from_millis(25);

/// α = 1, in fixed point.
const ONE: u64 = 1 << 24;

/// Gain of α's moving average: 2⁻⁴ (RFC 8257 §3.3).
const GAIN_SHIFT: u32 = 4;

/// A controller that reduces its window by the share of marked packets.
#[derive(Clone, Debug)]
pub(super) struct Prague {
    classic: Classic<PragueGrowth>,
    mds: u64,
    alpha: Alpha,
    queue: QueueKind,
    /// The round of the last response: no further response to marks within it.
    response: Round,
    /// Bytes of marked packets that have not been subtracted from growth yet.
    marked_bytes: u64,
}

/// The moving average of the share of marked packets.
#[derive(Clone, Copy, Debug)]
struct Alpha {
    /// In units of 1/`ONE`. It is 1 until measured (RFC 8257 §3.3), so that the first
    /// response is as strong as a classic one.
    value: u64,
    /// The round in which marks are being counted.
    round: Round,
    /// Packets acknowledged in it.
    acked: u64,
    /// Packets of those that were marked.
    marked: u64,
    /// Whether there was ever a mark: the path has a queue that marks.
    seen: bool,
    /// Whether the window was reduced for marks.
    responded: bool,
}

/// A round: at least a round trip by packets and a virtual RTT by time.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// Index after the last packet sent before it began.
    end: SendIndex,
    /// The round does not end before this time.
    until: Instant,
}

impl Round {
    fn begin(next_index: SendIndex, now: Instant) -> Self {
        Self {
            end: next_index,
            until: now + VIRTUAL_RTT,
        }
    }

    fn is_over(self, largest: SendIndex, now: Instant) -> bool {
        largest >= self.end && now >= self.until
    }
}

impl Alpha {
    const fn new() -> Self {
        Self {
            value: ONE,
            round: Round {
                end: 0,
                until: Instant::ZERO,
            },
            acked: 0,
            marked: 0,
            seen: false,
            responded: false,
        }
    }

    /// Handles an ACK. If a round ends, returns whether it had marks.
    fn on_ack(&mut self, ack: &Ack<'_>) -> Option<bool> {
        let mut ended = None;
        if self.round.is_over(ack.largest_index, ack.now) {
            if self.seen {
                self.average();
            }
            ended = Some(self.marked > 0);
            self.round = Round::begin(ack.next_index, ack.now);
            (self.acked, self.marked) = (0, 0);
        }
        self.acked = self.acked.saturating_add(ack.packets);
        ended
    }

    /// α ← α − α/16 + share/16.
    fn average(&mut self) {
        if self.acked == 0 {
            return;
        }
        let marked = u128::from(self.marked.min(self.acked));
        let share = marked * u128::from(ONE >> GAIN_SHIFT) / u128::from(self.acked);
        let share = u64::try_from(share).unwrap_or(ONE >> GAIN_SHIFT);
        self.value = self.value - (self.value >> GAIN_SHIFT) + share;
    }

    fn on_marks(&mut self, packets: u64) {
        self.seen = true;
        self.marked = self.marked.saturating_add(packets);
    }

    /// Records a response. The first one is as strong as a classic one, because α is 1 until
    /// measured. It halves the window of slow start, which takes a round to drain the queue, and
    /// with α near 1 the marks of that round would halve the window again. So the average begins
    /// there as if there had been marks in one round of sixteen.
    fn on_response(&mut self) {
        if !self.responded {
            self.responded = true;
            self.value = ONE >> GAIN_SHIFT;
        }
    }

    /// Returns the window after a response: the window times 1 − α/2.
    fn reduce_to(&self, window: u64) -> u64 {
        let cut = u128::from(window) * u128::from(self.value.min(ONE)) / u128::from(2 * ONE);
        window - u64::try_from(cut).unwrap_or(window)
    }
}

impl Prague {
    /// Creates the controller of a new path.
    pub(super) fn new(slow_start: SlowStart, mds: u64) -> Self {
        Self {
            classic: Classic::new(PragueGrowth::default(), slow_start, mds),
            mds,
            alpha: Alpha::new(),
            queue: QueueKind::default(),
            response: Round::default(),
            marked_bytes: 0,
        }
    }

    /// Whether marks are those of an L4S queue, which answers to α.
    fn is_scalable(&self) -> bool {
        self.alpha.seen && !self.queue.is_classic()
    }

    /// Ends a round: judges the queue that marks.
    fn end_round(&mut self, marked: bool, ack: &Ack<'_>) {
        let (window, mds) = (self.classic.window(), self.mds.max(1));
        self.queue.end_round(marked, ack.min_rtt, || {
            let datagrams = u32::try_from(window / mds).unwrap_or(u32::MAX).max(1);
            ack.smoothed_rtt / datagrams
        });
        let scalable = self.is_scalable();
        if marked || !scalable {
            self.classic.adjustment_mut().set_shared(scalable);
        }
    }

    fn on_marks(&mut self, event: &Congestion) {
        self.alpha.on_marks(event.packets);
        // A jump that met marks went too far, whatever their share (RFC 9959 §3.3).
        if self.classic.is_jumping() {
            self.classic.on_congestion(event);
            return;
        }
        if self.queue.is_classic() {
            // Unless the response of before covers it: one for each flight.
            if event.largest_index < self.response.end {
                self.classic.confirm();
            } else {
                self.classic.on_congestion(event);
            }
            return;
        }
        self.classic.adjustment_mut().set_shared(true);
        let marked = event.packets.saturating_mul(self.mds);
        self.marked_bytes = self.marked_bytes.saturating_add(marked);
        // The window was already reduced, and by more, for a loss of the same flight.
        if event.largest_index < self.classic.boundary() {
            self.classic.confirm();
            return;
        }
        if !self.response.is_over(event.largest_index, event.now) {
            return;
        }
        self.response = Round::begin(event.next_index, event.now);
        let before = self.classic.settled_window();
        self.classic.reduce_to(self.alpha.reduce_to(before));
        self.classic.adjustment_mut().on_marks(before);
        self.alpha.on_response();
    }

    /// Responds to a loss. If it falls in the round of a response to marks, the two
    /// together reduce the window by β, not by more (from the draft).
    fn on_loss(&mut self, event: &Congestion) {
        if event.largest_index >= self.response.end {
            self.classic.adjustment_mut().end_response();
        }
        self.classic.on_congestion(event);
    }
}

impl Controller for Prague {
    fn on_sent(&mut self, sent: &Sent) {
        self.classic.on_sent(sent);
    }

    fn on_ack(&mut self, ack: &Ack<'_>) {
        if let Some(marked) = self.alpha.on_ack(ack) {
            self.end_round(marked, ack);
        }
        if let Some(rtt) = ack.rtt_sample {
            self.queue.sample(rtt);
        }
        self.classic.adjustment_mut().on_ack(ack);
        // Marked bytes do not grow the window (from the draft). The marks of an ACK are
        // reported after it, so they are subtracted from the next one.
        let taken = self.marked_bytes.min(ack.window_used_bytes);
        if taken == 0 {
            // As for most ACKs: nothing to copy.
            self.classic.on_ack(ack);
            return;
        }
        self.marked_bytes -= taken;
        self.classic.on_ack(&Ack {
            window_used_bytes: ack.window_used_bytes - taken,
            ..*ack
        });
    }

    fn on_congestion(&mut self, event: &Congestion) {
        match event.cause {
            CongestionCause::Loss => self.on_loss(event),
            CongestionCause::EcnCe => self.on_marks(event),
        }
    }

    fn on_spurious(&mut self, event: &Spurious) {
        self.classic.on_spurious(event);
    }

    fn on_limit(&mut self, limit: Limit, now: Instant) {
        self.classic.on_limit(limit, now);
    }

    fn restart_from_idle(&mut self, now: Instant) {
        self.classic.restart_from_idle(now);
    }

    fn on_mds(&mut self, mds: u64) {
        self.mds = mds;
        self.classic.on_mds(mds);
    }

    fn resume(&mut self, saved: &SavedPath) {
        self.classic.resume(saved);
    }

    fn duplicate(&self) -> Option<Box<dyn Controller>> {
        Some(Box::new(Self {
            classic: self.classic.continued(),
            ..self.clone()
        }))
    }

    fn window(&self) -> u64 {
        self.classic.window()
    }

    fn min_window(&self) -> u64 {
        self.classic.min_window()
    }

    /// The window over the time that packets count in flight, once there are marks of an L4S queue. The
    /// pacer alone would send a quarter faster, which fills a queue that marks from 1 ms on before the window does. An
    /// eighth faster still did so where a datagram takes a millisecond: over 10 Mbit/s and
    /// 40 ms it used 86 % of the link, this rate 93 %.
    fn pacing_rate(&self) -> Option<u64> {
        if let Some(rate) = self.classic.pacing_rate() {
            return Some(rate);
        }
        if !self.is_scalable() {
            return None;
        }
        let time = self.classic.adjustment().flight_time();
        (time > Duration::ZERO).then(|| bytes_per_second(self.window(), time))
    }

    /// Bursts of 250 µs (from the draft): a single burst of 1 ms fills a queue to the point
    /// at which it marks. Measured over 50 Mbit/s and 30 ms with marks from 1 ms on: 41
    /// Mbit/s with trains of 1 ms, 47 Mbit/s with these.
    fn trains_per_second(&self) -> u64 {
        4_000
    }

    /// Every packet once there are marks of an L4S queue.
    fn acks_needed(&self) -> AcksNeeded {
        match self.is_scalable() {
            true => AcksNeeded::EveryPacket,
            false => AcksNeeded::SMOOTH,
        }
    }

    /// ECT(1), which makes a queue treat the flow as L4S (RFC 9331 §4.1).
    fn ecn(&self) -> Ect {
        Ect::Ect1
    }

    fn state(&self) -> State {
        self.classic.state()
    }

    fn metrics(&self) -> Metrics {
        self.classic.metrics()
    }

    fn internals(&self, now: Instant, show: &mut dyn FnMut(&'static str, u64)) {
        self.classic.internals(now, show);
        if self.alpha.seen {
            show("alpha", self.alpha.value.saturating_mul(1_000) / ONE);
            show("classic_queue", self.queue.is_classic().into());
        }
    }

    fn name(&self) -> &'static str {
        self.classic.name()
    }
}

#[cfg(test)]
mod tests;
