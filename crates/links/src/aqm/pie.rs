//! Proportional integral controller, enhanced (PIE, RFC 8033).

use core::time::Duration;

use super::chance::{Chance, signed_difference, step};
use super::ticker::Ticker;
use crate::ledger::{Carried, Depth, Ledger};
use crate::queue::Fifo;
use crate::time::nanos;
use crate::{Dice, DropCause, Time};

/// What PIE is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PieConfig {
    /// The wait to steer towards (`QDELAY_REF`, RFC 8033 §4.2).
    pub target: Duration,
    /// How often the drop probability is computed (`T_UPDATE`).
    pub update: Duration,
    /// For how long a burst into an idle link passes untouched (`MAX_BURST`,
    /// RFC 8033 §4.4).
    pub burst: Duration,
    /// Mark ECN-capable packets instead of dropping them while the
    /// probability is at most a tenth (RFC 8033 §5.1).
    pub ecn: bool,
}

impl Default for PieConfig {
    /// 15 ms, 15 ms and 150 ms (RFC 8033 §4), with ECN.
    fn default() -> Self {
        Self {
            target: Duration::from_millis(15),
            update: Duration::from_millis(15),
            burst: Duration::from_millis(150),
            ecn: true,
        }
    }
}

/// Below two packets of this many bytes nothing is dropped (`MEAN_PKTSIZE`).
const MEAN_PACKET: u64 = 1024;

/// A wait of so long raises the probability by a fiftieth each time, as Linux
/// does, so that a flood is met at once.
const LONG_WAIT: Duration = Duration::from_millis(250);

/// The update, in nanoseconds, for which the gains were found (RFC 8033 §4.2).
const REFERENCE_UPDATE: i128 = 15_000_000;

/// Longer updates steer no harder.
const LONGEST_UPDATE: Duration = Duration::from_secs(100);

/// (below this many parts per million, adjustments are divided by that):
/// small probabilities move in small steps (RFC 8033 §4.2).
const TUNING: [(u64, i128); 6] = [
    (1, 2048),
    (10, 512),
    (100, 128),
    (1_000, 32),
    (10_000, 8),
    (100_000, 2),
];

/// PIE's queue.
#[derive(Clone, Debug)]
pub(crate) struct Pie {
    config: PieConfig,
    fifo: Fifo,
    ticker: Ticker,
    dice: Dice,
    drop: Chance,
    /// The wait at the last update.
    wait: Duration,
    /// What is left of the burst that passes untouched.
    burst: Duration,
    /// Probability added up since the last drop, in millionths: no drop before
    /// .85, and certainly one at 8.5 (RFC 8033 §5.4).
    accumulated: u64,
}

impl Pie {
    pub(crate) fn new(config: PieConfig, dice: Dice) -> Self {
        Self {
            fifo: Fifo::default(),
            ticker: Ticker::new(config.update),
            dice,
            drop: Chance::ZERO,
            wait: Duration::ZERO,
            burst: config.burst,
            accumulated: 0,
            config,
        }
    }

    /// Takes a packet in; false if it was dropped.
    pub(crate) fn push(&mut self, now: Time, mut carried: Carried, ledger: &mut Ledger) -> bool {
        self.update_until(now);
        if self.signals() {
            let gentle = self.drop <= Chance::ratio(1, 10);
            if !(self.config.ecn && gentle && ledger.mark(now, &mut carried)) {
                ledger.dropped(now, &carried, DropCause::Aqm);
                return false;
            }
        }
        let size = carried.size;
        ledger.queued(now, &carried, self.fifo.depth().plus(Depth::one(size)));
        self.fifo.push(carried);
        true
    }

    pub(crate) fn pop(&mut self, now: Time) -> Option<Carried> {
        self.update_until(now);
        self.fifo.pop()
    }

    pub(crate) fn depth(&self) -> Depth {
        self.fifo.depth()
    }

    /// Does the arriving packet have to tell its sender (`drop_early`,
    /// RFC 8033 §4.1 and §5.4)?
    fn signals(&mut self) -> bool {
        let calm = self.wait < self.config.target / 2 && self.drop < Chance::ratio(1, 5);
        let short = self.fifo.depth().bytes <= 2 * MEAN_PACKET;
        if !self.burst.is_zero() || calm || short {
            return false;
        }
        if self.drop == Chance::ZERO {
            self.accumulated = 0;
        }
        self.accumulated += self.drop.per_million();
        let signal = match self.accumulated {
            0..850_000 => false,
            850_000..8_500_000 => self.drop.happens(&mut self.dice),
            8_500_000.. => true,
        };
        if signal {
            self.accumulated = 0;
        }
        signal
    }

    fn update_until(&mut self, now: Time) {
        while let Some(at) = self.ticker.due(now) {
            self.update(self.fifo.head_wait(at));
        }
    }

    /// Steers the probability (RFC 8033 §4.2, §4.4 and §5.5): an eighth per
    /// second of error, and 1¼ per second of change.
    fn update(&mut self, wait: Duration) {
        let error = signed_difference(wait, self.config.target);
        let trend = signed_difference(wait, self.wait);
        // The gain for the error was found for updates each 15 ms, and goes
        // with their length.
        let length = i128::from(nanos(self.config.update.min(LONGEST_UPDATE)));
        let error = error * length / REFERENCE_UPDATE;
        let mut change = step(error + 10 * trend, 8 * 1_000_000_000);
        let tuning = TUNING
            .iter()
            .find(|&&(below, _)| self.drop < Chance::ratio(below, 1_000_000));
        change /= tuning.map_or(1, |&(_, divisor)| divisor);
        let most = step(2, 100);
        if self.drop >= Chance::ratio(1, 10) {
            change = change.min(most);
        }
        if wait > LONG_WAIT {
            change += most;
        }
        self.drop = self.drop.nudged(change);
        if wait.is_zero() && self.wait.is_zero() {
            self.drop = self.drop.decayed(64);
        }
        let half = self.config.target / 2;
        self.burst = if self.drop == Chance::ZERO && wait < half && self.wait < half {
            self.config.burst
        } else {
            self.burst.saturating_sub(self.config.update)
        };
        self.wait = wait;
    }
}
