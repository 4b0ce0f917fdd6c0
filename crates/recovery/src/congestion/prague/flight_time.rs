//! How long Prague's packets count in flight, measured over a round.
//!
//! A window is delivered once in this time, so it is what the window is paced over and what growth
//! is scaled by. The smoothed RTT is less than that in two ways. It is of the newest packet of each ACK, and
//! forgets within eight: where ACKs arrive in the slots of a radio link, it is that of the last packets
//! of a slot, which have waited least. And it lacks the delay of a peer that waits for more packets than
//! the window has. A queue that marks from a millisecond on marks the end of whatever is
//! sent faster than it is delivered.

use core::time::Duration;

use crate::controller::{Ack, SendIndex};
use crate::time::nanos;

/// Sums of the current round and the means of the last one, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FlightTime {
    /// Index after the last packet sent before the round began.
    round_end: SendIndex,
    /// Packets acknowledged in it, and their ages together.
    packets: u64,
    ages: u64,
    /// The same of the newest packet of the ACK of each.
    newest_ages: u64,
    mean_age: u64,
    mean_newest_age: u64,
    /// The smoothed RTT at the last ACK.
    smoothed_rtt: Duration,
}

impl FlightTime {
    /// Handles an ACK. One for packets that the application sent for want of more says nothing: the
    /// last packet of a message waits for the peer's delay.
    pub(super) fn on_ack(&mut self, ack: &Ack<'_>) {
        if ack.rtt_sample.is_some() && ack.window_used_bytes == ack.bytes {
            let newest = ack
                .now
                .as_nanos()
                .saturating_sub(ack.largest_sent_time.as_nanos());
            let sum = |age: u64| age.saturating_mul(ack.packets);
            self.packets = self.packets.saturating_add(ack.packets);
            self.ages = self.ages.saturating_add(sum(nanos(ack.mean_age)));
            self.newest_ages = self.newest_ages.saturating_add(sum(newest));
        }
        if ack.largest_index >= self.round_end {
            self.end_round(ack.next_index);
        }
        self.smoothed_rtt = ack.smoothed_rtt;
    }

    fn end_round(&mut self, next_index: SendIndex) {
        self.round_end = next_index;
        let mean = |sum: u64| sum.checked_div(self.packets);
        if let (Some(age), Some(newest)) = (mean(self.ages), mean(self.newest_ages)) {
            (self.mean_age, self.mean_newest_age) = (age, newest);
        }
        (self.packets, self.ages, self.newest_ages) = (0, 0, 0);
    }

    /// Returns the time; zero before the first ACK. A packet's wait for an ACK that is for later ones, too,
    /// counts for at most a quarter of the round trip: where one ACK is for most of a window, what waits
    /// is what the pacer itself has spread.
    pub(super) fn get(self) -> Duration {
        let round_trip = nanos(self.smoothed_rtt).max(self.mean_newest_age);
        let waiting = self.mean_age.saturating_sub(self.mean_newest_age);
        Duration::from_nanos(round_trip.saturating_add(waiting.min(round_trip / 4)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{acked, at_ms};
    use super::*;

    /// One ACK for `packets` packets up to `largest`: the newest is `newest` milliseconds old, and all are
    /// `mean` milliseconds old on average.
    fn ack(flight: &mut FlightTime, largest: SendIndex, packets: u64, newest: u64, mean: u64) {
        flight.on_ack(&Ack {
            now: at_ms(1_000),
            largest_sent_time: at_ms(1_000 - newest),
            next_index: largest + 1,
            mean_age: Duration::from_millis(mean),
            smoothed_rtt: Duration::from_millis(100),
            ..acked(largest, packets, 0)
        });
    }

    fn ms(flight: FlightTime) -> u128 {
        flight.get().as_millis()
    }

    #[test]
    fn packets_that_wait_for_a_later_one_count_for_longer_than_a_round_trip() {
        for (mean, expected) in [(100, 100), (116, 116), (900, 125)] {
            let mut flight = FlightTime::default();
            ack(&mut flight, 10, 2, 100, mean);
            assert_eq!(ms(flight), expected, "{mean}");
        }
    }

    /// Twenty packets of a round, each with an ACK of its own, all of which arrive in one slot of 40 ms.
    #[test]
    fn acks_in_slots_have_waited_for_half_a_slot_on_average() {
        let mut flight = FlightTime::default();
        let of_round = |flight: &mut FlightTime, round: u64, packets: u64| {
            for packet in 0..packets {
                let age = 140 - 2 * packet;
                flight.on_ack(&Ack {
                    now: at_ms(1_000),
                    largest_sent_time: at_ms(1_000 - age),
                    next_index: 100 * (round + 1),
                    mean_age: Duration::from_millis(age),
                    smoothed_rtt: Duration::from_millis(105),
                    ..acked(100 * round + packet, 1, 0)
                });
            }
        };
        of_round(&mut flight, 1, 20);
        of_round(&mut flight, 2, 1);
        assert_eq!(ms(flight), 121);
    }

    #[test]
    fn what_the_application_limits_and_rounds_without_samples_say_nothing() {
        let mut flight = FlightTime::default();
        ack(&mut flight, 10, 2, 100, 120);
        assert_eq!(ms(flight), 120);
        let late = Ack {
            now: at_ms(1_000),
            largest_sent_time: at_ms(500),
            mean_age: Duration::from_millis(500),
            smoothed_rtt: Duration::from_millis(100),
            ..acked(20, 2, 0)
        };
        flight.on_ack(&Ack {
            window_used_bytes: 0,
            ..late
        });
        assert_eq!(ms(flight), 120);
        flight.on_ack(&Ack {
            rtt_sample: None,
            largest_index: 21,
            ..late
        });
        assert_eq!(ms(flight), 120);
    }
}
