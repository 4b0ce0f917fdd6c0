//! The loss detection timer: packets lost by time, or a probe timeout (RFC 9002 §6.2,
//! appendix A.8).
//!
//! Only the beginning of each period is stored. The deadline is computed from what is in
//! flight each time, so that it cannot be forgotten to arm the timer.

use core::time::Duration;

use crate::detection::AckTally;
use crate::outcome::Outcome;
use crate::recovery::Recovery;
use crate::space::Space;
use crate::time::Instant;

/// Longest period after backoff: RFC 6298 §2.5 allows a cap of at least a minute. Without a
/// cap, the end of a long outage would be noticed only hours later. The idle timeout closes
/// a connection that gets nothing back.
const MAX_PTO: Duration = Duration::from_secs(60);

/// The state of the handshake, which only the connection knows and on which the timer
/// depends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PtoContext {
    /// The handshake is confirmed (RFC 9001 §4.1.2): there are probe timeouts for 1-RTT
    /// packets, and the peer's ACK delay is limited to its max_ack_delay.
    pub handshake_confirmed: bool,
    /// There are keys to send Handshake packets.
    pub has_handshake_keys: bool,
    /// The peer has validated our address. True for a server from the start; for a client
    /// once it received an ACK of a Handshake packet or the handshake is confirmed. Until
    /// then a client probes even with nothing in flight, because the server may be unable
    /// to send.
    pub peer_completed_address_validation: bool,
    /// A server at its anti-amplification limit can't probe (§6.2.2.1).
    pub amplification_blocked: bool,
}

/// Returns the period after `count` expiries in a row (RFC 9002 §6.2.1).
pub(crate) fn backed_off(period: Duration, count: u32) -> Duration {
    let doubled = period.saturating_mul(1 << count.min(30));
    doubled.min(MAX_PTO.max(period))
}

/// What the timer is set for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    /// Packets of a space become lost by the time threshold.
    Loss,
    /// A probe in this space is due, for what is in flight on the path at this position.
    Pto { space: Space, path: usize },
}

/// What the timer is armed for, as traces show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerType {
    /// Packets become lost by the time threshold (RFC 9002 §6.1.2).
    Loss,
    /// A probe is due (§6.2).
    Pto,
}

impl<F> Recovery<F> {
    /// Returns when [`Self::on_timeout`] has to be called. The time may be in the past
    /// when the caller woke late.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.timer().map(|(deadline, _)| deadline)
    }

    /// Returns when the timer expires and what it is armed for, for traces.
    #[must_use]
    pub fn armed_timer(&self) -> Option<(Instant, TimerType)> {
        self.timer().map(|(deadline, timer)| match timer {
            Timer::Loss => (deadline, TimerType::Loss),
            Timer::Pto { .. } => (deadline, TimerType::Pto),
        })
    }

    /// Handles what is due at `now`. Calling it early or twice is harmless.
    pub fn on_timeout(&mut self, now: Instant, out: &mut Outcome<F>) {
        self.forget_expired(now);
        let lost = out.lost.len();
        if matches!(self.timer(), Some((deadline, Timer::Loss)) if deadline <= now) {
            self.on_loss_time(now, out);
        }
        // The RTT may have risen since the timer was set, so that nothing is lost yet. A
        // probe that is due then must not wait for another wake-up.
        if out.lost.len() == lost
            && let Some((deadline, Timer::Pto { space, path })) = self.timer()
            && deadline <= now
        {
            self.on_pto(space, path, now, out);
        }
    }

    fn on_loss_time(&mut self, now: Instant, out: &mut Outcome<F>) {
        for space in Space::ALL {
            let due = self.spaces[space.index()].loss_time;
            if due.is_some_and(|due| due <= now) {
                self.reset_loss_tally();
                // Nothing is acknowledged by a timer.
                for path in &mut self.paths {
                    path.ack = AckTally::default();
                }
                self.detect_losses(space, now, out);
                self.finish_losses(now, out);
            }
        }
        self.deadlock_since = Some(now);
    }

    fn on_pto(&mut self, space: Space, path: usize, now: Instant, out: &mut Outcome<F>) {
        if let Some(path) = self.paths.get_mut(path) {
            path.pto_count = path.pto_count.saturating_add(1);
            path.restart_pto(now);
        }
        self.deadlock_since = Some(now);
        out.pto = Some(space);
    }

    /// Returns what the one timer is armed for. A probe is not armed while the timer for
    /// lost packets is.
    fn timer(&self) -> Option<(Instant, Timer)> {
        let loss = self.spaces.iter().filter_map(|space| space.loss_time).min();
        if let Some(deadline) = loss {
            return Some((deadline, Timer::Loss));
        }
        if self.context.amplification_blocked {
            return None;
        }
        self.pto_in_flight().or_else(|| self.pto_against_deadlock())
    }

    /// Returns the earliest probe for what is in flight, over spaces and paths.
    fn pto_in_flight(&self) -> Option<(Instant, Timer)> {
        let mut earliest: Option<(Instant, Timer)> = None;
        for space in Space::ALL {
            if space == Space::Data && !self.context.handshake_confirmed {
                continue;
            }
            for (position, path) in self.paths.iter().enumerate() {
                let part = &path.spaces[space.index()];
                if part.ack_eliciting == 0 {
                    continue;
                }
                let deadline = part.pto_since + path.pto(space, self.config.max_ack_delay);
                if earliest.is_none_or(|(other, _)| deadline < other) {
                    let path = position;
                    earliest = Some((deadline, Timer::Pto { space, path }));
                }
            }
        }
        earliest
    }

    /// Returns a client's probe while the server may be blocked (RFC 9002 §6.2.2.1).
    fn pto_against_deadlock(&self) -> Option<(Instant, Timer)> {
        if self.context.peer_completed_address_validation || self.context.handshake_confirmed {
            return None;
        }
        let space = if self.context.has_handshake_keys {
            Space::Handshake
        } else {
            Space::Initial
        };
        let path = self.position(self.active)?;
        let period = self.paths[path].pto(space, self.config.max_ack_delay);
        Some((self.deadlock_since? + period, Timer::Pto { space, path }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_expiry_doubles_the_period_up_to_a_minute() {
        let period = Duration::from_millis(999);
        let periods: Vec<u128> = (0..8)
            .map(|count| backed_off(period, count).as_millis())
            .collect();
        assert_eq!(
            periods,
            [999, 1998, 3996, 7992, 15_984, 31_968, 60_000, 60_000]
        );
        assert_eq!(backed_off(period, u32::MAX), MAX_PTO);
    }

    #[test]
    fn cap_does_not_shorten_the_first_period() {
        let period = Duration::from_secs(90);
        assert_eq!(backed_off(period, 0), period);
        assert_eq!(backed_off(period, 5), period);
    }
}
