//! A connection for tests, which sends and acknowledges packets at given times.

use core::ops::RangeInclusive;
use core::time::Duration;
use std::sync::{Arc, Mutex};

use crate::controller::{
    Ack, Congestion, CongestionCause, Controller, Metrics, SendIndex, Sent, Spurious, State,
};
use crate::limit::Limit;
use crate::outcome::{AckError, Outcome};
use crate::time::Instant;
use crate::{Config, PathId, PtoContext, Recovery, SentInfo, Space};

pub(super) const MS: Duration = Duration::from_millis(1);
pub(super) const SIZE: u16 = 1200;
pub(super) const BYTES: u64 = SIZE as u64;
pub(super) const PATH: PathId = PathId(0);

/// `millis` after the start.
pub(super) fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

/// A call of a controller's method, with the arguments that tests check.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Call {
    Sent {
        index: SendIndex,
        before: u64,
    },
    Acked {
        bytes: u64,
        packets: u64,
        largest: SendIndex,
        before: u64,
        after: u64,
        lost: u64,
        used: u64,
        sampled: bool,
    },
    Congested {
        cause: CongestionCause,
        largest: SendIndex,
        next: SendIndex,
        bytes: u64,
        packets: u64,
        ranges: u64,
        before: u64,
        after: u64,
        acked: u64,
        persistent: bool,
    },
    Spurious(SendIndex),
    Limit(Limit),
    Restart,
    Mds(u64),
    Discarded(u64),
}

/// A controller with a constant window, which records the calls of its methods.
#[derive(Clone, Debug)]
pub(super) struct Fixed {
    pub(super) window: u64,
    pub(super) rate: Option<u64>,
    pub(super) state: State,
    pub(super) told: Arc<Mutex<Vec<Call>>>,
}

impl Fixed {
    pub(super) fn new(window: u64) -> Self {
        Self {
            window,
            rate: None,
            state: State::CongestionAvoidance,
            told: Arc::default(),
        }
    }

    fn tell(&self, told: Call) {
        self.told.lock().unwrap().push(told);
    }

    /// Returns the calls since the last one of this method.
    pub(super) fn take(&self) -> Vec<Call> {
        core::mem::take(&mut self.told.lock().unwrap())
    }

    /// Returns the calls for losses and marks since the last one of this method.
    pub(super) fn congestion(&self) -> Vec<Call> {
        let mut told = self.take();
        told.retain(|told| matches!(told, Call::Congested { .. }));
        told
    }
}

impl Controller for Fixed {
    fn on_sent(&mut self, sent: &Sent) {
        self.tell(Call::Sent {
            index: sent.index,
            before: sent.in_flight_before,
        });
    }
    fn on_ack(&mut self, ack: &Ack<'_>) {
        self.tell(Call::Acked {
            bytes: ack.bytes,
            packets: ack.packets,
            largest: ack.largest_index,
            before: ack.in_flight_before,
            after: ack.in_flight_after,
            lost: ack.lost_bytes,
            used: ack.window_used_bytes,
            sampled: ack.rtt_sample.is_some(),
        });
    }
    fn on_congestion(&mut self, event: &Congestion) {
        self.tell(Call::Congested {
            cause: event.cause,
            largest: event.largest_index,
            next: event.next_index,
            bytes: event.lost_bytes,
            packets: event.packets,
            ranges: event.lost_ranges,
            before: event.in_flight_before,
            after: event.in_flight_after,
            acked: event.acked_bytes,
            persistent: event.persistent,
        });
    }
    fn on_spurious(&mut self, event: &Spurious) {
        self.tell(Call::Spurious(event.event));
    }
    fn on_limit(&mut self, limit: Limit, _now: Instant) {
        self.tell(Call::Limit(limit));
    }
    fn restart_from_idle(&mut self, _now: Instant) {
        self.tell(Call::Restart);
    }
    fn on_mds(&mut self, mds: u64) {
        self.tell(Call::Mds(mds));
    }
    fn on_discarded(&mut self, bytes: u64) {
        self.tell(Call::Discarded(bytes));
    }
    fn window(&self) -> u64 {
        self.window
    }
    fn min_window(&self) -> u64 {
        2 * BYTES
    }
    fn pacing_rate(&self) -> Option<u64> {
        self.rate
    }
    fn state(&self) -> State {
        self.state
    }
    fn metrics(&self) -> Metrics {
        Metrics::default()
    }
    fn name(&self) -> &'static str {
        "fixed"
    }
}

/// A recovery under test. A packet's content is its space and number.
pub(super) struct Bench {
    pub(super) recovery: Recovery<(Space, u64)>,
    pub(super) controller: Fixed,
    pub(super) out: Outcome<(Space, u64)>,
}

impl Bench {
    /// A confirmed connection with a large window and no RTT sample.
    pub(super) fn new() -> Self {
        let mut bench = Self::handshaking(PtoContext {
            handshake_confirmed: true,
            has_handshake_keys: true,
            peer_completed_address_validation: true,
            amplification_blocked: false,
        });
        bench.recovery.discard_space(Space::Initial, at(0));
        bench.recovery.discard_space(Space::Handshake, at(0));
        bench
    }

    /// A confirmed connection whose RTT was sampled once: packet 0, sent at 0,
    /// was acknowledged at `rtt`.
    pub(super) fn sampled(rtt: u64) -> Self {
        let mut bench = Self::new();
        bench.send(0);
        bench.ack(0..=0, rtt);
        bench.controller.take();
        bench
    }

    /// A connection in its handshake.
    pub(super) fn handshaking(context: PtoContext) -> Self {
        let controller = Fixed::new(1 << 30);
        let mut recovery = Recovery::new(Config::default(), at(0));
        recovery.add_path(PATH, Box::new(controller.clone()), BYTES, at(0));
        recovery.set_handshake_state(context, at(0));
        Self {
            recovery,
            controller,
            out: Outcome::new(),
        }
    }

    pub(super) fn info(&self, space: Space, millis: u64) -> SentInfo {
        SentInfo {
            space,
            path: PATH,
            number: self.recovery.next_number(space),
            now: at(millis),
            size: SIZE,
            ack_eliciting: true,
            in_flight: true,
            mtu_probe: false,
            ect: false,
        }
    }

    pub(super) fn send_info(&mut self, info: SentInfo) -> u64 {
        self.recovery.on_sent(info, (info.space, info.number));
        self.recovery.check_invariants();
        info.number
    }

    /// An ordinary 1-RTT packet.
    pub(super) fn send(&mut self, millis: u64) -> u64 {
        self.send_info(self.info(Space::Data, millis))
    }

    pub(super) fn send_many(&mut self, count: u64, millis: u64) {
        for _ in 0..count {
            self.send(millis);
        }
    }

    /// An ordinary packet of another space.
    pub(super) fn send_in(&mut self, space: Space, millis: u64) -> u64 {
        self.send_info(self.info(space, millis))
    }

    /// A packet with only an ACK in it.
    pub(super) fn send_ack_only(&mut self, millis: u64) -> u64 {
        let mut info = self.info(Space::Data, millis);
        info.ack_eliciting = false;
        info.in_flight = false;
        self.send_info(info)
    }

    /// An ACK of several ranges, given descending, with a delay.
    pub(super) fn ack_frame(
        &mut self,
        space: Space,
        ranges: &[RangeInclusive<u64>],
        delay: Duration,
        millis: u64,
    ) -> Result<(), AckError> {
        self.out.clear();
        let ranges = ranges.iter().cloned();
        self.recovery
            .on_ack(space, ranges, delay, at(millis), &mut self.out)?;
        self.recovery.check_invariants();
        Ok(())
    }

    pub(super) fn ack_in(&mut self, space: Space, range: RangeInclusive<u64>, millis: u64) {
        self.ack_frame(space, &[range], Duration::ZERO, millis)
            .unwrap();
    }

    pub(super) fn ack(&mut self, range: RangeInclusive<u64>, millis: u64) {
        self.ack_in(Space::Data, range, millis);
    }

    pub(super) fn ack_ranges(&mut self, ranges: &[RangeInclusive<u64>], millis: u64) {
        self.ack_frame(Space::Data, ranges, Duration::ZERO, millis)
            .unwrap();
    }

    pub(super) fn timeout(&mut self, now: Instant) {
        self.out.clear();
        self.recovery.on_timeout(now, &mut self.out);
        self.recovery.check_invariants();
    }

    /// Lets the timer fire when it is due. Returns the instant.
    pub(super) fn fire(&mut self) -> Instant {
        let due = self.recovery.next_timeout().expect("a timer is armed");
        self.timeout(due);
        due
    }

    /// Numbers declared lost by the last call.
    pub(super) fn lost(&self) -> Vec<u64> {
        self.out.lost.iter().map(|packet| packet.number).collect()
    }

    /// Numbers newly acknowledged by the last call.
    pub(super) fn acked(&self) -> Vec<u64> {
        self.out.acked.iter().map(|packet| packet.number).collect()
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.recovery.path(PATH).unwrap().in_flight()
    }
}
