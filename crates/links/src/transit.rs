//! Between the last bit sent and the packet's arrival: delay, jitter, slots,
//! reordering, freezes, ticks.

use crate::slots::Gate;
use crate::{Dice, LinkConfig, Time};

/// Computes the arrival times of packets.
#[derive(Clone, Debug)]
pub(crate) struct Transit {
    jitter: Dice,
    reorder: Dice,
    gate: Gate,
    /// The latest arrival so far of a packet that keeps its place.
    latest: Time,
}

impl Transit {
    pub(crate) fn new(jitter: Dice, reorder: Dice, slots: Dice) -> Self {
        Self {
            jitter,
            reorder,
            gate: Gate::new(slots),
            latest: Time::ZERO,
        }
    }

    /// When a packet arrives whose last bit left at `departed`.
    ///
    /// A delay that shrinks does not let packets overtake each other: on a
    /// real path they share the wire. Only jitter without order and reordering
    /// do.
    pub(crate) fn arrival(
        &mut self,
        config: &LinkConfig,
        origin: Option<Time>,
        departed: Time,
    ) -> Time {
        let elapsed = |at: Time| origin.and_then(|origin| at.checked_since(origin));
        let mut arrival = departed + config.delay.at(elapsed(departed)).0;
        if !config.jitter.max.is_zero() {
            arrival += self.jitter.up_to(config.jitter.max);
        }
        if let Some(slots) = config.slot {
            arrival = self.gate.release(slots, arrival);
        }
        if self.reorder.happens(config.reorder.fraction) {
            arrival += config.reorder.extra;
        } else if config.jitter.keeps_order {
            arrival = arrival.max(self.latest);
            self.latest = arrival;
        }
        if let Some(origin) = origin {
            arrival = config.freeze.release(origin, arrival);
        }
        arrival.ceil_to(config.tick.0)
    }
}
