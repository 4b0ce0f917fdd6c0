//! Prague, the scalable controller of L4S (RFC 9330, RFC 9331,
//! draft-briscoe-iccrg-prague-congestion-control).
//!
//! An L4S queue marks early and often, so the *share* of marked packets shows how much the
//! window is too large. Its average over rounds is α; once per round with marks the window
//! is reduced by α/2. The response to a loss is that of NewReno, and so is everything
//! before the first mark: on a path without L4S the controller behaves as NewReno.
//!
//! Flows that share a shallow queue have RTTs that differ only by the length of their
//! paths: if each added one datagram per own round, a 1 ms flow would take 25 times the
//! share of a 25 ms flow. (In a classic queue, the queueing delay makes RTTs similar.) So a
//! flow with an RTT below a virtual RTT of 25 ms (from the draft) behaves like one of 25
//! ms: it adds (RTT / 25 ms)² datagrams a round, and its rounds of averaging and response
//! last at least 25 ms. Its rate then depends on α only. Above 25 ms nothing is scaled,
//! because that would mean more than a datagram a round. Before the first mark nothing is
//! scaled either, because no shallow queue is shared yet.

use core::time::Duration;

use crate::controller::{
    Ack, Congestion, CongestionCause, Controller, Ect, Metrics, SendIndex, Sent, Spurious, State,
};
use crate::limit::Limit;
use crate::rate::bytes_per_second;
use crate::time::{Instant, nanos};

use super::SlowStart;
use super::carry::Carry;
use super::classic::Classic;
use super::window_adjustment::{Growth, WindowAdjustment, after_loss};

/// The RTT that flows with a shorter one are treated as having (from the draft).
const VIRTUAL_RTT: Duration = Duration::from_millis(25);

/// α = 1, in fixed point.
const ONE: u64 = 1 << 24;

/// Gain of α's moving average: 2⁻⁴ (RFC 8257 §3.3).
const GAIN_SHIFT: u32 = 4;

/// A controller that reduces its window by the share of marked packets.
#[derive(Clone, Debug)]
pub(super) struct Prague {
    classic: Classic<Additive>,
    mds: u64,
    alpha: Alpha,
    /// The round of the last response: no further response to marks within it.
    response: Round,
    /// Bytes of marked packets that have not been subtracted from growth yet.
    marked_bytes: u64,
    smoothed_rtt: Option<Duration>,
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
        }
    }

    fn on_ack(&mut self, ack: &Ack<'_>) {
        if self.round.is_over(ack.largest_index, ack.now) {
            if self.seen {
                self.average();
            }
            self.round = Round::begin(ack.next_index, ack.now);
            (self.acked, self.marked) = (0, 0);
        }
        self.acked = self.acked.saturating_add(ack.packets);
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
            classic: Classic::new(Additive::default(), slow_start, mds),
            mds,
            alpha: Alpha::new(),
            response: Round::default(),
            marked_bytes: 0,
            smoothed_rtt: None,
        }
    }

    fn on_marks(&mut self, event: &Congestion) {
        self.alpha.on_marks(event.packets);
        self.classic.adjustment_mut().shared = true;
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
        self.classic.adjustment_mut().window_before_marks = Some(before);
    }

    /// Responds to a loss. If it falls in the round of a response to marks, the two
    /// together reduce the window by β, not by more (from the draft).
    fn on_loss(&mut self, event: &Congestion) {
        if event.largest_index >= self.response.end {
            self.classic.adjustment_mut().window_before_marks = None;
        }
        self.classic.on_congestion(event);
    }
}

impl Controller for Prague {
    fn on_sent(&mut self, sent: &Sent) {
        self.classic.on_sent(sent);
    }

    fn on_ack(&mut self, ack: &Ack<'_>) {
        self.alpha.on_ack(ack);
        self.smoothed_rtt = Some(ack.smoothed_rtt);
        // Marked bytes do not grow the window (from the draft). The marks of an ACK are
        // reported after it, so they are subtracted from the next one.
        let taken = self.marked_bytes.min(ack.window_used_bytes);
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

    fn duplicate(&self) -> Option<Box<dyn Controller>> {
        Some(Box::new(self.clone()))
    }

    fn window(&self) -> u64 {
        self.classic.window()
    }

    fn min_window(&self) -> u64 {
        self.classic.min_window()
    }

    /// The window over the RTT, once there are marks. The pacer alone would send a quarter
    /// faster, which fills a queue that marks from 1 ms on before the window does. An
    /// eighth faster still did so where a datagram takes a millisecond: over 10 Mbit/s and
    /// 40 ms it used 86 % of the link, this rate 93 %.
    fn pacing_rate(&self) -> Option<u64> {
        let rtt = self.smoothed_rtt.filter(|_| self.alpha.seen)?;
        Some(bytes_per_second(self.window(), rtt))
    }

    /// Bursts of 250 µs (from the draft): a single burst of 1 ms fills a queue to the point
    /// at which it marks. Measured over 50 Mbit/s and 30 ms with marks from 1 ms on: 41
    /// Mbit/s with trains of 1 ms, 47 Mbit/s with these.
    fn trains_per_second(&self) -> u64 {
        4_000
    }

    /// True once there are marks: before, the queue is a classic one.
    fn needs_ack_per_packet(&self) -> bool {
        self.alpha.seen
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
        }
    }

    fn name(&self) -> &'static str {
        self.classic.name()
    }
}

/// Additive increase, and the response to loss.
#[derive(Clone, Debug, Default)]
pub(super) struct Additive {
    carry: Carry,
    /// Whether marks were seen: a shallow queue is shared, so growth is scaled.
    shared: bool,
    /// The window before the last response to marks, for a loss in the same round.
    window_before_marks: Option<u64>,
}

/// (RTT / 25 ms)² as a fraction, 1 from 25 ms on; microseconds squared.
fn scale(smoothed_rtt: Duration) -> (u128, u128) {
    let virtual_us = nanos(VIRTUAL_RTT) / 1_000;
    let us = (nanos(smoothed_rtt) / 1_000).clamp(1, virtual_us);
    (
        u128::from(us) * u128::from(us),
        u128::from(virtual_us) * u128::from(virtual_us),
    )
}

impl WindowAdjustment for Additive {
    type Saved = Carry;

    const NAME: &'static str = "prague";

    /// As NewReno after a loss, from the window before a response to marks in the same round.
    /// Marks do not come here: the response to them follows α.
    fn reduce(&mut self, window: u64, _signal: CongestionCause) -> u64 {
        self.carry = Carry::default();
        let from = self.window_before_marks.take().unwrap_or(window);
        after_loss(from.max(window)).min(window)
    }

    fn on_persistent_congestion(&mut self) {
        self.carry = Carry::default();
        self.window_before_marks = None;
    }

    fn start_avoidance(&mut self, _window: u64, _mds: u64, _now: Instant) {}

    fn grow(&mut self, growth: &Growth) -> u64 {
        let (numerator, denominator) = if self.shared {
            scale(growth.smoothed_rtt)
        } else {
            (1, 1)
        };
        let earned = u128::from(growth.mds)
            .saturating_mul(growth.acked.into())
            .saturating_mul(numerator);
        let per = u128::from(growth.window).saturating_mul(denominator);
        let earned = self.carry.add(earned, per);
        growth.additive(earned)
    }

    fn on_limit(&mut self, _limit: Limit, _now: Instant) {}

    fn save(&self) -> Carry {
        self.carry
    }

    fn restore(&mut self, saved: Carry) {
        self.carry = saved;
    }
}

#[cfg(test)]
mod tests;
