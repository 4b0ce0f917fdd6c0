//! Proportional integral controller, enhanced (PIE, RFC 8033).

use core::time::Duration;

use super::chance::{FineProbability, signed_difference, step};
use super::ticker::Ticker;
use crate::ledger::{Depth, Ledger, QueuedPacket};
use crate::queue::Fifo;
use crate::time::nanos;
use crate::{Dice, DropCause, Time};

/// Configuration of PIE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PieConfig {
    /// The target queueing delay (`QDELAY_REF`, RFC 8033 §4.2).
    pub target: Duration,
    /// How often the drop probability is computed (`T_UPDATE`).
    pub update: Duration,
    /// How long a burst into an idle link passes without drops (`MAX_BURST`, RFC 8033 §4.4).
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

/// A queueing delay of this long raises the probability by a fiftieth at each update, as Linux
/// does, so that a flood is answered at once.
const LONG_WAIT: Duration = Duration::from_millis(250);

/// The update, in nanoseconds, for which the gains were found (RFC 8033 §4.2).
const REFERENCE_UPDATE: i128 = 15_000_000;

/// Updates longer than this have no stronger effect.
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
    drop: FineProbability,
    /// The queueing delay at the last update.
    wait: Duration,
    /// What remains of the burst allowance.
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
            drop: FineProbability::ZERO,
            wait: Duration::ZERO,
            burst: config.burst,
            accumulated: 0,
            config,
        }
    }

    /// Enqueues a packet; false if it was dropped.
    pub(crate) fn push(
        &mut self,
        now: Time,
        mut carried: QueuedPacket,
        ledger: &mut Ledger,
    ) -> bool {
        self.update_until(now);
        if self.signals() {
            let gentle = self.drop <= FineProbability::ratio(1, 10);
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

    pub(crate) fn pop(&mut self, now: Time) -> Option<QueuedPacket> {
        self.update_until(now);
        self.fifo.pop()
    }

    pub(crate) fn depth(&self) -> Depth {
        self.fifo.depth()
    }

    /// Whether the arriving packet is dropped or marked early (`drop_early`, RFC 8033 §4.1 and
    /// §5.4).
    fn signals(&mut self) -> bool {
        let calm = self.wait < self.config.target / 2 && self.drop < FineProbability::ratio(1, 5);
        let short = self.fifo.depth().bytes <= 2 * MEAN_PACKET;
        if !self.burst.is_zero() || calm || short {
            return false;
        }
        if self.drop == FineProbability::ZERO {
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

    /// Updates the probability (RFC 8033 §4.2, §4.4 and §5.5): an eighth per second of error, and
    /// 1¼ per second of change.
    fn update(&mut self, wait: Duration) {
        let error = signed_difference(wait, self.config.target);
        let trend = signed_difference(wait, self.wait);
        // The gain for the error is defined for updates every 15 ms, and scales with their
        // interval.
        let length = i128::from(nanos(self.config.update.min(LONGEST_UPDATE)));
        let error = error * length / REFERENCE_UPDATE;
        let mut change = step(error + 10 * trend, 8 * 1_000_000_000);
        let tuning = TUNING
            .iter()
            .find(|&&(below, _)| self.drop < FineProbability::ratio(below, 1_000_000));
        change /= tuning.map_or(1, |&(_, divisor)| divisor);
        let most = step(2, 100);
        if self.drop >= FineProbability::ratio(1, 10) {
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
        self.burst = if self.drop == FineProbability::ZERO && wait < half && self.wait < half {
            self.config.burst
        } else {
            self.burst.saturating_sub(self.config.update)
        };
        self.wait = wait;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pie(drop: FineProbability, wait: Duration) -> Pie {
        let mut pie = Pie::new(PieConfig::default(), Dice::new(1, 1));
        pie.drop = drop;
        pie.wait = wait;
        pie
    }

    /// The probability after an update, in millionths.
    fn after(before: u64, old: u64, new: u64) -> u64 {
        let mut pie = pie(
            FineProbability::ratio(before, 1_000_000),
            Duration::from_millis(old),
        );
        pie.update(Duration::from_millis(new));
        pie.drop.per_million()
    }

    /// RFC 8033 §4.2: 0.125 (wait − 15 ms) + 1.25 (wait − last wait) seconds,
    /// divided according to the probability so far.
    #[test]
    fn drop_probability_follows_error_and_trend() {
        // 0.125 × 0.065 + 1.25 × 0.04 = 0.058125, of which a half.
        assert_eq!(after(50_000, 40, 80), 50_000 + 29_062);
        // 0.125 × 0.025 = 0.003125, all of it from a tenth on.
        assert_eq!(after(200_000, 40, 40), 203_125);
        // An eighth, a thirty-second, a 128th of it.
        assert_eq!(after(5_000, 40, 40), 5_391);
        assert_eq!(after(500, 40, 40), 598);
        assert_eq!(after(50, 40, 40), 74);
        // Below the target it falls, and not below zero.
        assert_eq!(after(200_000, 10, 5), 200_000 - 7_500);
        assert_eq!(after(10, 15, 0), 0);
    }

    #[test]
    fn large_steps_are_capped_and_long_delays_raise_the_probability() {
        // RFC 8033 §5.5: 0.25625 would be too much at once.
        assert_eq!(after(200_000, 20, 220), 220_000);
        assert_eq!(after(200_000, 300, 300), 200_000 + 20_000 + 20_000);
    }

    #[test]
    fn empty_queue_decays_the_probability() {
        // 0.2 − 0.125 × 0.015, less a 64th of that.
        assert_eq!(after(200_000, 0, 0), 195_029);
    }

    #[test]
    fn burst_allowance_expires_and_is_restored() {
        let mut pie = pie(FineProbability::ratio(1, 5), Duration::from_millis(20));
        for _ in 0..9 {
            pie.update(Duration::from_millis(20));
            assert!(!pie.burst.is_zero());
        }
        pie.update(Duration::from_millis(20));
        assert!(pie.burst.is_zero());
        pie.drop = FineProbability::ZERO;
        pie.update(Duration::from_millis(5));
        assert!(pie.burst.is_zero(), "the last wait was long");
        pie.update(Duration::from_millis(5));
        assert_eq!(pie.burst, Duration::from_millis(150));
    }

    /// RFC 8033 §5.4: evenly spaced, within .85 and 8.5 of the mean.
    #[test]
    fn drops_are_evenly_spaced() {
        let mut pie = pie(FineProbability::ratio(1, 20), Duration::from_millis(20));
        pie.burst = Duration::ZERO;
        let here = ([127, 0, 0, 1], 1).into();
        for index in 0..4 {
            pie.fifo.push(QueuedPacket {
                packet: crate::Packet::new(here, here, vec![0; 1000]),
                index,
                size: 1028,
                since: Time::ZERO,
            });
        }
        let signals: Vec<_> = (0..200_000).filter(|_| pie.signals()).collect();
        let gaps = signals.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(gaps.clone().all(|gap| (17..=171).contains(&gap)));
        // 16 that never drop, and then one in twenty.
        let mean = gaps.sum::<i32>() / (signals.len() as i32 - 1);
        assert!((34..=38).contains(&mean), "{mean}");
    }
}
