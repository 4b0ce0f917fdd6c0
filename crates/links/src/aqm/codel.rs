//! Controlled delay (CoDel, RFC 8289).

use core::time::Duration;

use crate::ledger::{Ledger, QueuedPacket};
use crate::queue::Fifo;
use crate::time::nanos;
use crate::{DropCause, Time};

/// Configuration of CoDel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CodelConfig {
    /// The queueing delay that is acceptable as a standing delay (RFC 8289 §4.3).
    pub target: Duration,
    /// How long the delay must stay above the target before the first signal; about the longest
    /// round trip (RFC 8289 §4.2).
    pub interval: Duration,
    /// Mark ECN-capable packets instead of dropping them.
    pub ecn: bool,
}

impl Default for CodelConfig {
    /// 5 ms and 100 ms (RFC 8289 §4.4), with ECN.
    fn default() -> Self {
        Self {
            target: Duration::from_millis(5),
            interval: Duration::from_millis(100),
            ecn: true,
        }
    }
}

/// Dropping resumes at its previous rate if it ended less than this many intervals ago (RFC 8289
/// §5.5).
const RECENT_INTERVALS: u32 = 16;

/// CoDel's state for one queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Control {
    /// When the wait will have been above the target for an interval.
    first_above: Option<Time>,
    /// When the next signal is due while dropping.
    drop_next: Time,
    /// Signals since dropping began.
    count: u32,
    /// The value of `count` when dropping last began.
    last_count: u32,
    dropping: bool,
    /// The size of the largest packet so far: a queue of less than one packet is never bad.
    max_packet: u32,
}

/// A dequeued packet, and whether its delay calls for a signal.
struct Dequeued {
    carried: QueuedPacket,
    overdue: bool,
}

impl Control {
    /// The next packet to send at `now` (RFC 8289 §5.5).
    pub(crate) fn dequeue(
        &mut self,
        fifo: &mut Fifo,
        config: CodelConfig,
        now: Time,
        ledger: &mut Ledger,
    ) -> Option<QueuedPacket> {
        let Some(taken) = self.take(fifo, config, now) else {
            self.dropping = false;
            return None;
        };
        if !taken.overdue {
            self.dropping = false;
            return Some(taken.carried);
        }
        if self.dropping {
            self.keep_dropping(taken, fifo, config, now, ledger)
        } else {
            self.begin_dropping(taken.carried, fifo, config, now, ledger)
        }
    }

    /// Signals as often as is due by now.
    fn keep_dropping(
        &mut self,
        mut taken: Dequeued,
        fifo: &mut Fifo,
        config: CodelConfig,
        now: Time,
        ledger: &mut Ledger,
    ) -> Option<QueuedPacket> {
        while self.dropping && now >= self.drop_next {
            self.count = self.count.saturating_add(1);
            if config.ecn && ledger.mark(now, &mut taken.carried) {
                self.drop_next = self.law(config, self.drop_next);
                break;
            }
            ledger.dropped(now, &taken.carried, DropCause::Aqm);
            let Some(next) = self.take(fifo, config, now) else {
                self.dropping = false;
                return None;
            };
            taken = next;
            if taken.overdue {
                self.drop_next = self.law(config, self.drop_next);
            } else {
                self.dropping = false;
            }
        }
        Some(taken.carried)
    }

    /// Signals for the first time, at the frequency that worked last time if
    /// that is not long ago.
    fn begin_dropping(
        &mut self,
        mut carried: QueuedPacket,
        fifo: &mut Fifo,
        config: CodelConfig,
        now: Time,
        ledger: &mut Ledger,
    ) -> Option<QueuedPacket> {
        let next = if config.ecn && ledger.mark(now, &mut carried) {
            Some(carried)
        } else {
            ledger.dropped(now, &carried, DropCause::Aqm);
            self.take(fifo, config, now).map(|taken| taken.carried)
        };
        self.dropping = true;
        let signals = self.count.saturating_sub(self.last_count);
        let recent = now < self.drop_next + config.interval.saturating_mul(RECENT_INTERVALS);
        self.count = if signals > 1 && recent { signals } else { 1 };
        self.last_count = self.count;
        self.drop_next = self.law(config, now);
        next
    }

    /// Dequeues the head and judges its delay.
    fn take(&mut self, fifo: &mut Fifo, config: CodelConfig, now: Time) -> Option<Dequeued> {
        let Some(carried) = fifo.pop() else {
            self.first_above = None;
            return None;
        };
        self.max_packet = self.max_packet.max(carried.size);
        let small = fifo.depth().bytes <= u64::from(self.max_packet);
        let overdue = if carried.waited(now) < config.target || small {
            self.first_above = None;
            false
        } else {
            let due = *self.first_above.get_or_insert(now + config.interval);
            now >= due
        };
        Some(Dequeued { carried, overdue })
    }

    /// The signal after one at `at`: interval / √count later (RFC 8289 §5.3).
    fn law(&self, config: CodelConfig, at: Time) -> Time {
        let interval = u128::from(nanos(config.interval));
        let gap = (interval * interval / u128::from(self.count.max(1))).isqrt();
        // The root of a u64's square is a u64.
        at + Duration::from_nanos(gap as u64)
    }
}
