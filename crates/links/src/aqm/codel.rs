//! Controlled delay (CoDel, RFC 8289).

use core::time::Duration;

use crate::ledger::{Carried, Ledger};
use crate::queue::Fifo;
use crate::time::nanos;
use crate::{DropCause, Time};

/// What CoDel is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CodelConfig {
    /// The wait that is acceptable for long (RFC 8289 §4.3).
    pub target: Duration,
    /// For how long the wait must stay above the target before the first
    /// signal; about the longest round trip (RFC 8289 §4.2).
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

/// A state this recent, in intervals, is taken up again (RFC 8289 §5.5).
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
    /// Its value when dropping began last.
    last_count: u32,
    dropping: bool,
    /// The largest packet so far: no queue of less is bad.
    max_packet: u32,
}

/// A packet taken out, and whether its wait calls for a signal.
struct Taken {
    carried: Carried,
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
    ) -> Option<Carried> {
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
        mut taken: Taken,
        fifo: &mut Fifo,
        config: CodelConfig,
        now: Time,
        ledger: &mut Ledger,
    ) -> Option<Carried> {
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
        mut carried: Carried,
        fifo: &mut Fifo,
        config: CodelConfig,
        now: Time,
        ledger: &mut Ledger,
    ) -> Option<Carried> {
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

    /// Takes the head out and judges its wait.
    fn take(&mut self, fifo: &mut Fifo, config: CodelConfig, now: Time) -> Option<Taken> {
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
        Some(Taken { carried, overdue })
    }

    /// The signal after one at `at`: interval / √count later (RFC 8289 §5.3).
    fn law(&self, config: CodelConfig, at: Time) -> Time {
        let interval = u128::from(nanos(config.interval));
        let gap = (interval * interval / u128::from(self.count.max(1))).isqrt();
        // The root of a u64's square is a u64.
        at + Duration::from_nanos(gap as u64)
    }
}
