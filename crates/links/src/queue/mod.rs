//! The queue before the serialiser, with one kind of management at a time.

mod fifo;
mod limit;

pub(crate) use fifo::Fifo;
pub use limit::{MarkAt, QueueLimit};

use crate::aqm::{Aqm, CodelConfig, Control, DualQ, FqCodel, Pie};
use crate::ledger::{Depth, Ledger, QueuedPacket};
use crate::link::Verdict;
use crate::{Dice, DropCause, Time};

/// Packets waiting for the serialiser, and how they are managed.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    kind: Kind,
    aqm: Aqm,
    /// The random generator of the queue's management.
    dice: Dice,
}

#[derive(Clone, Debug)]
enum Kind {
    Tail(Fifo),
    Codel(Fifo, Control, CodelConfig),
    FqCodel(FqCodel),
    Pie(Box<Pie>),
    DualQ(Box<DualQ>),
}

impl Kind {
    fn new(aqm: Aqm, dice: &mut Dice) -> Self {
        match aqm {
            Aqm::None => Self::Tail(Fifo::default()),
            Aqm::Codel(config) => Self::Codel(Fifo::default(), Control::default(), config),
            Aqm::FqCodel(config) => Self::FqCodel(FqCodel::new(config, dice.below(u64::MAX))),
            Aqm::Pie(config) => Self::Pie(Box::new(Pie::new(config, dice.clone()))),
            Aqm::DualQ(config) => Self::DualQ(Box::new(DualQ::new(config))),
        }
    }
}

impl Queue {
    pub(crate) fn new(aqm: Aqm, mut dice: Dice) -> Self {
        Self {
            kind: Kind::new(aqm, &mut dice),
            aqm,
            dice,
        }
    }

    /// Switches the queue to `aqm`. Queued packets stay in their order; the state of the previous
    /// management is lost.
    pub(crate) fn manage(&mut self, now: Time, aqm: Aqm, ledger: &mut Ledger) {
        if aqm == self.aqm {
            return;
        }
        self.aqm = aqm;
        let new = Kind::new(aqm, &mut self.dice);
        let waiting = match core::mem::replace(&mut self.kind, new) {
            Kind::Tail(mut fifo) | Kind::Codel(mut fifo, ..) => drain(|| fifo.pop()),
            Kind::Pie(mut pie) => drain(|| pie.pop(now)),
            Kind::FqCodel(mut flows) => flows.drain(),
            Kind::DualQ(mut lanes) => lanes.drain(),
        };
        for carried in waiting {
            // No limit and, in a queue just made, no reason to drop early.
            let _ = self.push(now, carried, QueueLimit::Unlimited, ledger);
        }
    }

    /// Enqueues a packet, or records why it was dropped.
    pub(crate) fn push(
        &mut self,
        now: Time,
        carried: QueuedPacket,
        limit: QueueLimit,
        ledger: &mut Ledger,
    ) -> Verdict {
        // FQ-CoDel accepts every packet, and drops from the longest queue.
        let admits_all = matches!(self.kind, Kind::FqCodel(_));
        if !admits_all && !self.depth().has_room(limit, carried.size) {
            ledger.dropped(now, &carried, DropCause::QueueFull);
            return Verdict::QueueFull;
        }
        match &mut self.kind {
            Kind::Tail(fifo) | Kind::Codel(fifo, ..) => {
                let depth = fifo.depth().plus(Depth::one(carried.size));
                ledger.queued(now, &carried, depth);
                fifo.push(carried);
            }
            Kind::Pie(pie) => {
                if !pie.push(now, carried, ledger) {
                    return Verdict::DroppedEarly;
                }
            }
            Kind::DualQ(lanes) => lanes.push(now, carried, ledger),
            Kind::FqCodel(flows) => flows.push(now, carried, limit, ledger),
        }
        Verdict::Accepted
    }

    /// Dequeues the next packet at `now`; `None` if all queued packets were dropped.
    pub(crate) fn pop(&mut self, now: Time, ledger: &mut Ledger) -> Option<QueuedPacket> {
        match &mut self.kind {
            Kind::Tail(fifo) => fifo.pop(),
            Kind::Codel(fifo, control, config) => control.dequeue(fifo, *config, now, ledger),
            Kind::FqCodel(flows) => flows.pop(now, ledger),
            Kind::Pie(pie) => pie.pop(now),
            Kind::DualQ(lanes) => lanes.pop(now, ledger),
        }
    }

    pub(crate) fn depth(&self) -> Depth {
        match &self.kind {
            Kind::Tail(fifo) | Kind::Codel(fifo, ..) => fifo.depth(),
            Kind::FqCodel(flows) => flows.depth(),
            Kind::Pie(pie) => pie.depth(),
            Kind::DualQ(lanes) => lanes.depth(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.depth().packets == 0
    }
}

fn drain(next: impl FnMut() -> Option<QueuedPacket>) -> Vec<QueuedPacket> {
    core::iter::from_fn(next).collect()
}
