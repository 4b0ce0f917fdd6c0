//! Idle periods through the whole of loss recovery: gate, pacer, limits, use of the window,
//! controller.

use core::time::Duration;

use super::harness::{BYTES, PATH, SIZE};
use crate::congestion::{Algorithm, SlowStart, build_with};
use crate::limit::Limit;
use crate::outcome::Outcome;
use crate::time::Instant;
use crate::{Config, Gate, PtoContext, Recovery, SentInfo, Space};

const RTT: Duration = Duration::from_millis(100);

/// A bulk sender over a path of 100 ms whose receiver acknowledges every second
/// packet, and whose application pauses once.
struct Sender {
    recovery: Recovery<()>,
    out: Outcome<()>,
    now: Instant,
    /// First packets of pairs on their way, and when their ACK arrives.
    acks: std::collections::VecDeque<(u64, Instant)>,
    /// The window after each ACK.
    windows: Vec<u64>,
}

impl Sender {
    fn new() -> Self {
        let mut recovery = Recovery::new(Config::default(), Instant::ZERO);
        let controller = build_with(Algorithm::Cubic, SlowStart::HyStart, BYTES);
        recovery.add_path(PATH, controller, BYTES, Instant::ZERO);
        recovery.discard_space(Space::Initial, Instant::ZERO);
        recovery.discard_space(Space::Handshake, Instant::ZERO);
        let context = PtoContext {
            handshake_confirmed: true,
            has_handshake_keys: true,
            peer_completed_address_validation: true,
            amplification_blocked: false,
        };
        recovery.set_handshake_state(context, Instant::ZERO);
        Self {
            recovery,
            out: Outcome::new(),
            now: Instant::ZERO,
            acks: std::collections::VecDeque::new(),
            windows: Vec::new(),
        }
    }

    fn send(&mut self) -> u64 {
        let number = self.recovery.next_number(Space::Data);
        let info = SentInfo {
            space: Space::Data,
            path: PATH,
            number,
            now: self.now,
            size: SIZE,
            ack_eliciting: true,
            in_flight: true,
            mtu_probe: false,
            ect: false,
        };
        self.recovery.on_sent(info, ());
        number
    }

    /// Sends pairs while the gate is open. Returns when the pacer opens it again.
    fn fill(&mut self) -> Option<Instant> {
        loop {
            match self.recovery.gate(PATH, self.now) {
                Gate::Open { bytes } if bytes >= 2 * BYTES => {
                    for _ in 0..bytes / (2 * BYTES) {
                        let first = self.send();
                        self.send();
                        self.acks.push_back((first, self.now + RTT));
                    }
                }
                // One packet would be a pair of its own later.
                Gate::Open { .. } | Gate::Congestion => {
                    self.recovery.set_limit(PATH, Limit::Congestion, self.now);
                    return None;
                }
                Gate::Pacing { until } => {
                    self.recovery.set_limit(PATH, Limit::Pacing, self.now);
                    return Some(until);
                }
            }
        }
    }

    fn take_ack(&mut self) {
        let Some((first, at)) = self.acks.pop_front() else {
            return;
        };
        self.now = at;
        self.out.clear();
        let range = core::iter::once(first..=first + 1);
        self.recovery
            .on_ack(Space::Data, range, Duration::ZERO, at, &mut self.out)
            .unwrap();
        self.recovery.check_invariants();
        self.windows
            .push(self.recovery.path(PATH).unwrap().window());
    }

    /// Runs until `acks` ACKs have arrived; if `drain`, until everything in flight is
    /// acknowledged.
    fn run(&mut self, acks: usize, drain: bool) {
        while self.windows.len() < acks {
            let pacing = self.fill();
            let ack = self.acks.front().map(|&(_, at)| at);
            match pacing {
                Some(until) if ack.is_none_or(|at| until < at) => self.now = until,
                _ => self.take_ack(),
            }
        }
        while drain && !self.acks.is_empty() {
            self.recovery.set_limit(PATH, Limit::Application, self.now);
            self.take_ack();
        }
    }

    /// One congestion event in avoidance: the packet before a pair is missing.
    fn lose_one(&mut self) {
        self.send();
        let lost = |sender: &Self| sender.recovery.path(PATH).unwrap().lost();
        while lost(self) == 0 {
            self.run(self.windows.len() + 1, false);
        }
    }
}

/// The windows after each ACK, with an application that stops for `idle` once
/// its `after`-th ACK has come.
fn windows(after: usize, idle: Duration) -> Vec<u64> {
    let mut sender = Sender::new();
    sender.run(100, false);
    sender.lose_one();
    let losses = sender.recovery.path(PATH).unwrap().lost();
    assert_eq!(losses, BYTES, "exactly one");
    sender.windows.clear();
    sender.run(after, true);
    sender.now += idle;
    sender.recovery.restart_from_idle(PATH, sender.now);
    sender.run(9_000, false);
    sender.windows
}

/// RFC 9438 §4.2, §5.8: after 0, 4 and 60 s the window at each ACK is what it
/// would have been, a datagram more or less.
#[test]
fn cubic_curve_continues_unchanged_after_idle() {
    for after in [500, 3_000] {
        let steady = windows(after, Duration::ZERO);
        let (first, last) = (steady[after], steady[steady.len() - 1]);
        assert!(last > first + 40 * BYTES, "{first} to {last}: it rises");
        for seconds in [4, 60] {
            let paused = windows(after, Duration::from_secs(seconds));
            for (ack, (with, without)) in paused.iter().zip(&steady).enumerate() {
                let off = with.abs_diff(*without);
                assert!(
                    off <= BYTES,
                    "{seconds} s after {after}: {off} at ACK {ack}"
                );
            }
        }
    }
}

/// The first flight after idling is paced: no more at once than a train and what is earned
/// while the sender is late (RFC 9002 §7.7).
#[test]
fn first_flight_after_idle_is_paced() {
    let mut sender = Sender::new();
    sender.run(2_000, true);
    sender.now += Duration::from_secs(60);
    sender.recovery.restart_from_idle(PATH, sender.now);
    let window = sender.recovery.path(PATH).unwrap().window();
    let rate = sender.recovery.path(PATH).unwrap().pacing_rate();
    sender.fill();
    let burst = sender.recovery.path(PATH).unwrap().in_flight();
    let most = 2 * (rate / 1_000).max(2 * BYTES) + 2 * BYTES;
    assert!(burst <= most, "{burst} of at most {most}");
    assert!(window > 10 * burst, "{window}: it would have been one");
}
