//! Between the last bit sent and the packet's arrival: delay, jitter,
//! reordering, ticks.

use core::time::Duration;

use crate::{Dice, LinkConfig, Time};

/// Computes arrivals.
#[derive(Clone, Debug)]
pub(crate) struct Transit {
    jitter: Dice,
    reorder: Dice,
    /// The latest arrival so far of a packet that keeps its place.
    latest: Time,
}

impl Transit {
    pub(crate) fn new(jitter: Dice, reorder: Dice) -> Self {
        Self {
            jitter,
            reorder,
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
        departed: Time,
        elapsed: Option<Duration>,
    ) -> Time {
        let mut arrival = departed + config.delay.at(elapsed).0;
        if !config.jitter.max.is_zero() {
            arrival += self.jitter.up_to(config.jitter.max);
        }
        if self.reorder.happens(config.reorder.fraction) {
            return (arrival + config.reorder.extra).ceil_to(config.tick.0);
        }
        if config.jitter.keeps_order {
            arrival = arrival.max(self.latest);
            self.latest = arrival;
        }
        arrival.ceil_to(config.tick.0)
    }
}
