//! Delivery in slots, as on a radio link that has to request airtime.

use core::fmt;
use core::num::NonZeroU32;
use core::str::FromStr;
use core::time::Duration;

use crate::spec::{Span, SpecError, positive};
use crate::time::nanos;
use crate::{Dice, Time};

/// Delivers all packets that arrive between two slots together at the next one.
///
/// Written `25ms` for slots of one length, `10ms-25ms` for random ones, and `25ms:64` if a slot
/// delivers at most 64 packets; the others wait for the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slots {
    /// The shortest time from one slot to the next.
    pub min: Duration,
    /// The longest time from one slot to the next.
    pub max: Duration,
    /// Maximum number of packets in a slot.
    pub packets: Option<NonZeroU32>,
}

const EXPECTED: &str = "the time between slots such as 25ms or 10ms-25ms, and optionally the most \
                     packets in one such as 25ms:64";

impl FromStr for Slots {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let error = |problem: &str| SpecError::new("slots", text, problem, EXPECTED);
        let (lengths, packets) = match text.split_once(':') {
            None => (text, None),
            Some((lengths, packets)) => (lengths, Some(packets)),
        };
        let packets = packets
            .map(|packets| packets.trim().parse())
            .transpose()
            .map_err(|_| error("packets per slot must be greater than zero"))?;
        let (min, max) = lengths.split_once('-').unwrap_or((lengths, lengths));
        let length = |text| positive(text, "slots", EXPECTED);
        let (min, max) = (length(min)?, length(max)?);
        if max < min {
            return Err(error("longest slot is shorter than the shortest"));
        }
        Ok(Self { min, max, packets })
    }
}

impl fmt::Display for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Span(self.min))?;
        if self.max != self.min {
            write!(f, "-{}", Span(self.max))?;
        }
        self.packets
            .map_or(Ok(()), |packets| write!(f, ":{packets}"))
    }
}

/// A pause of this many slots is skipped at once instead of drawn slot by slot.
const DRAWN_AT_MOST: u64 = 64;

/// The state of the slots.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    dice: Dice,
    /// The next slot to be filled.
    slot: Time,
    /// Packets in the next slot so far.
    packets: u32,
}

impl Gate {
    pub(crate) fn new(dice: Dice) -> Self {
        Self {
            dice,
            slot: Time::ZERO,
            packets: 0,
        }
    }

    /// When a packet is delivered whose nominal arrival is `arrival`.
    pub(crate) fn release(&mut self, slots: Slots, arrival: Time) -> Time {
        let longest = nanos(slots.max).max(1);
        let missed = arrival.0.saturating_sub(self.slot.0) / longest;
        if missed > DRAWN_AT_MOST {
            // Whole slots of the longest kind: a regular grid stays regular.
            self.slot = Time(self.slot.0 + missed * longest);
            self.packets = 0;
        }
        while self.slot < arrival {
            self.advance(slots);
        }
        if slots.packets.is_some_and(|most| self.packets >= most.get()) {
            self.advance(slots);
        }
        self.packets += 1;
        self.slot
    }

    fn advance(&mut self, slots: Slots) {
        let random = self.dice.up_to(slots.max.saturating_sub(slots.min));
        let length = (slots.min + random).max(Duration::from_nanos(1));
        self.slot += length;
        self.packets = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn releases(slots: &str, arrivals: &[u64]) -> Vec<u64> {
        let slots = slots.parse().unwrap();
        let mut gate = Gate::new(Dice::new(1, 1));
        arrivals
            .iter()
            .map(|&millis| gate.release(slots, Time::from_millis(millis)).0 / 1_000_000)
            .collect()
    }

    #[test]
    fn spec_round_trips_and_errors_give_the_reason() {
        for text in ["25ms", "10ms-25ms", "25ms:64", "10ms-25ms:1"] {
            assert_eq!(text.parse::<Slots>().unwrap().to_string(), text);
        }
        let problem = |text: &str| text.parse::<Slots>().unwrap_err().problem;
        assert_eq!(problem("0ms"), "must be greater than zero");
        assert_eq!(
            problem("25ms-10ms"),
            "longest slot is shorter than the shortest"
        );
        assert_eq!(
            problem("25ms:0"),
            "packets per slot must be greater than zero"
        );
        assert_eq!(problem("25"), "missing unit");
    }

    #[test]
    fn slots_stay_on_the_grid_after_a_pause() {
        assert_eq!(
            releases("25ms", &[1, 24, 25, 26, 99]),
            [25, 25, 25, 50, 100]
        );
        assert_eq!(releases("25ms", &[1, 999_999]), [25, 1_000_000]);
    }

    #[test]
    fn full_slot_defers_the_rest_to_the_next() {
        assert_eq!(releases("25ms:2", &[1, 1, 1, 1, 1]), [25, 25, 50, 50, 75]);
    }

    #[test]
    fn random_slots_stay_within_their_lengths() {
        let slots = "10ms-25ms".parse().unwrap();
        let mut gate = Gate::new(Dice::new(1, 1));
        let mut times: Vec<_> = (1..10_000)
            .map(|millis| gate.release(slots, Time::from_millis(millis)))
            .collect();
        times.dedup();
        let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.iter().all(|gap| (slots.min..=slots.max).contains(gap)));
        assert!(gaps.iter().any(|gap| *gap < Duration::from_millis(12)));
        assert!(gaps.iter().any(|gap| *gap > Duration::from_millis(23)));
    }
}
