//! Dual-queue coupled AQM for L4S: PI² with a ramp or step for scalable
//! senders (RFC 9332, Appendix A).

use core::num::NonZeroU32;
use core::time::Duration;

use super::chance::{FineProbability, Recurrence, signed_difference, step};
use super::ticker::Ticker;
use crate::ledger::{Depth, Ledger, QueuedPacket};
use crate::queue::Fifo;
use crate::time::nanos;
use crate::{DropCause, Ecn, Time};

/// Configuration of the dual queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DualQConfig {
    /// The target delay of the classic queue.
    pub target: Duration,
    /// The longest round trip to be stable for; sets the controller's gains.
    pub max_rtt: Duration,
    /// How often the base probability is computed (`Tupdate`).
    pub update: Duration,
    /// How much more strongly scalable senders are marked than classic ones are signalled (`k`, RFC
    /// 9332 §2.1).
    pub coupling: NonZeroU32,
    /// The delay from which packets of the L4S queue are marked (`minTh`).
    pub threshold: Duration,
    /// The width of the ramp above `threshold` until every packet is marked (`range`); zero makes a
    /// step.
    pub ramp: Duration,
    /// How much longer the classic queue must have waited to be served before the L4S queue
    /// (`tshift`, RFC 9332 Appendix A.1).
    pub shift: Duration,
}

impl Default for DualQConfig {
    /// RFC 9332 Appendix A.1: 15 ms, 100 ms, 16 ms, 2, and a ramp from
    /// 800 µs to 1.2 ms.
    fn default() -> Self {
        Self {
            target: Duration::from_millis(15),
            max_rtt: Duration::from_millis(100),
            update: Duration::from_millis(16),
            coupling: const { NonZeroU32::new(2).expect("not zero") },
            threshold: Duration::from_micros(800),
            ramp: Duration::from_micros(400),
            shift: Duration::from_millis(50),
        }
    }
}

/// One of the two queues, with its marking recurrence.
#[derive(Clone, Debug, Default)]
struct Lane {
    fifo: Fifo,
    signals: Recurrence,
    drops: Recurrence,
}

/// The two queues and the controller that couples them.
#[derive(Clone, Debug)]
pub(crate) struct DualQ {
    config: DualQConfig,
    low: Lane,
    classic: Lane,
    ticker: Ticker,
    /// The base probability, `p'`.
    base: FineProbability,
    /// The queueing delay at the last update.
    wait: Duration,
}

impl DualQ {
    pub(crate) fn new(config: DualQConfig) -> Self {
        Self {
            low: Lane::default(),
            classic: Lane::default(),
            ticker: Ticker::new(config.update),
            base: FineProbability::ZERO,
            wait: Duration::ZERO,
            config,
        }
    }

    pub(crate) fn push(&mut self, now: Time, carried: QueuedPacket, ledger: &mut Ledger) {
        self.update_until(now);
        ledger.queued(now, &carried, self.depth().plus(Depth::one(carried.size)));
        let lane = match carried.packet.ecn {
            Ecn::Ect1 | Ecn::Ce => &mut self.low,
            Ecn::NotEct | Ecn::Ect0 => &mut self.classic,
        };
        lane.fifo.push(carried);
    }

    /// The next packet (`dualpi2_dequeue`).
    pub(crate) fn pop(&mut self, now: Time, ledger: &mut Ledger) -> Option<QueuedPacket> {
        self.update_until(now);
        loop {
            let sent = if self.low_goes_first(now)? {
                self.pop_low(now, ledger)
            } else {
                self.pop_classic(now, ledger)
            };
            if sent.is_some() {
                return sent;
            }
        }
    }

    pub(crate) fn depth(&self) -> Depth {
        self.low.fifo.depth().plus(self.classic.fifo.depth())
    }

    /// Empties the queues without dropping or marking.
    pub(crate) fn drain(&mut self) -> Vec<QueuedPacket> {
        let mut all = Vec::with_capacity(self.depth().packets);
        all.extend(core::iter::from_fn(|| self.low.fifo.pop()));
        all.extend(core::iter::from_fn(|| self.classic.fifo.pop()));
        all.sort_by_key(|carried| carried.index);
        all
    }

    /// Time-shifted first in, first out; `None` if nothing waits.
    fn low_goes_first(&self, now: Time) -> Option<bool> {
        match (self.low.fifo.is_empty(), self.classic.fifo.is_empty()) {
            (true, true) => None,
            (false, true) => Some(true),
            (true, false) => Some(false),
            (false, false) => {
                let low = self.low.fifo.head_wait(now);
                let shifted = low.saturating_add(self.config.shift);
                Some(shifted >= self.classic.fifo.head_wait(now))
            }
        }
    }

    /// One packet of the L4S queue; `None` if it had to be dropped.
    fn pop_low(&mut self, now: Time, ledger: &mut Ledger) -> Option<QueuedPacket> {
        let mut carried = self.low.fifo.pop()?;
        let coupled = self.coupled();
        let overloaded = coupled == FineProbability::ONE;
        if overloaded && self.low.drops.hits(self.base.squared()) {
            ledger.dropped(now, &carried, DropCause::Aqm);
            return None;
        }
        let native = if overloaded {
            FineProbability::ZERO
        } else {
            self.native(carried.waited(now))
        };
        if self.low.signals.hits(native.max(coupled)) {
            ledger.mark(now, &mut carried);
        }
        Some(carried)
    }

    /// One packet of the classic queue; `None` if it had to be dropped.
    fn pop_classic(&mut self, now: Time, ledger: &mut Ledger) -> Option<QueuedPacket> {
        let mut carried = self.classic.fifo.pop()?;
        let chance = self.base.squared();
        if self.classic.signals.hits(chance) {
            let overloaded = chance > self.most_marks();
            if overloaded || !ledger.mark(now, &mut carried) {
                ledger.dropped(now, &carried, DropCause::Aqm);
                return None;
            }
        }
        Some(carried)
    }

    /// `p_CL`: the coupled probability with which scalable senders are marked because of the
    /// classic queue's congestion.
    fn coupled(&self) -> FineProbability {
        self.base.times(self.config.coupling.get())
    }

    /// `p_Cmax`: beyond it classic packets are dropped even if they could be
    /// marked; there the coupled probability reaches one.
    fn most_marks(&self) -> FineProbability {
        let coupling = u64::from(self.config.coupling.get());
        FineProbability::ratio(1, coupling.saturating_mul(coupling))
    }

    /// `laqm`: the L4S queue's own marking. A single packet is not a queue, however slow the link
    /// (`Th_len`).
    fn native(&self, wait: Duration) -> FineProbability {
        if self.low.fifo.is_empty() || wait < self.config.threshold {
            return FineProbability::ZERO;
        }
        let beyond = wait - self.config.threshold;
        if beyond >= self.config.ramp {
            FineProbability::ONE
        } else {
            FineProbability::ratio(nanos(beyond), nanos(self.config.ramp))
        }
    }

    fn update_until(&mut self, now: Time) {
        while let Some(at) = self.ticker.due(now) {
            let low = self.low.fifo.head_wait(at);
            self.update(low.max(self.classic.fifo.head_wait(at)));
        }
    }

    /// The PI controller: `0.1 Tupdate / RTT²` per second of error and
    /// `0.3 / RTT` per second of change (RFC 9332 Appendix A.1).
    fn update(&mut self, wait: Duration) {
        let rtt = i128::from(nanos(self.config.max_rtt));
        let error = signed_difference(wait, self.config.target);
        let trend = signed_difference(wait, self.wait);
        let period = i128::from(nanos(self.config.update));
        let integral = step(error * period / rtt.max(1), 10 * rtt);
        let proportional = step(3 * trend, 10 * rtt);
        self.base = self.base.nudged(integral.saturating_add(proportional));
        self.wait = wait;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With the defaults 0.16 per second of error, and 3 per second of change.
    #[test]
    fn base_probability_follows_error_and_trend() {
        let mut queue = DualQ::new(DualQConfig::default());
        queue.update(Duration::from_millis(35));
        // 0.16 × 0.02 + 3 × 0.035.
        assert_eq!(queue.base.per_million(), 108_200);
        queue.update(Duration::from_millis(35));
        assert_eq!(queue.base.per_million(), 111_400);
        queue.update(Duration::ZERO);
        assert_eq!(queue.base.per_million(), 4_000);
        queue.update(Duration::ZERO);
        queue.update(Duration::ZERO);
        assert_eq!(queue.base, FineProbability::ZERO);
    }

    #[test]
    fn classic_and_l4s_signals_are_coupled() {
        let mut queue = DualQ::new(DualQConfig::default());
        queue.base = FineProbability::ratio(3, 10);
        assert_eq!(queue.coupled().per_million(), 600_000);
        assert_eq!(queue.most_marks(), FineProbability::ratio(1, 4));
        queue.base = FineProbability::ratio(1, 2);
        assert_eq!(queue.coupled(), FineProbability::ONE);
        assert_eq!(queue.base.squared(), queue.most_marks());
    }
}
