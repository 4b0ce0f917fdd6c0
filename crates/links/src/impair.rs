//! What happens to packets at the receiver's end of a link.

use core::fmt;
use core::num::NonZeroU32;
use core::str::FromStr;
use core::time::Duration;

use crate::schedule::write_list;
use crate::spec::SpecError;
use crate::{Dice, LinkConfig, Packet, Probability};

/// Loss in bursts after Gilbert and Elliott: a good state without loss and a
/// bad one that loses everything. Written `1%:16.7%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gilbert {
    /// From good to bad, before each packet.
    pub to_bad: Probability,
    /// From bad to good, before each packet.
    pub to_good: Probability,
}

impl FromStr for Gilbert {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (to_bad, to_good) = text.split_once(':').ok_or_else(|| {
            SpecError::new(
                "Gilbert-Elliott loss",
                text,
                "it has no colon",
                "the chances good-to-bad and bad-to-good such as 1%:16.7%",
            )
        })?;
        Ok(Self {
            to_bad: to_bad.parse()?,
            to_good: to_good.parse()?,
        })
    }
}

impl fmt::Display for Gilbert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.to_bad, self.to_good)
    }
}

/// Packets to drop by their number, counted from 1 in the order in which they
/// were offered to the link. Written `2-7,9`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DropList(Vec<(u64, u64)>);

impl DropList {
    /// Names the packets `first..=last` too.
    #[must_use]
    pub fn and(mut self, first: u64, last: u64) -> Self {
        self.0.push((first, last));
        self
    }

    /// Is packet `number` named?
    #[must_use]
    pub fn names(&self, number: u64) -> bool {
        self.0
            .iter()
            .any(|&(first, last)| (first..=last).contains(&number))
    }
}

impl FromStr for DropList {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let error = |problem: &str| {
            SpecError::new(
                "drop list",
                text,
                problem,
                "packet numbers from 1 and ranges of them such as 2-7,9",
            )
        };
        let number = |text: &str| match text.trim().parse::<u64>() {
            Ok(0) => Err(error("packets are counted from 1")),
            Ok(number) => Ok(number),
            Err(_) => Err(error("a part of it is not a number")),
        };
        text.split(',').try_fold(Self::default(), |list, part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if last < first {
                return Err(error("a range ends before it starts"));
            }
            Ok(list.and(first, last))
        })
    }
}

impl fmt::Display for DropList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_list(f, &self.0, |f, &(first, last)| {
            if first == last {
                write!(f, "{first}")
            } else {
                write!(f, "{first}-{last}")
            }
        })
    }
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Blackholed,
    Listed,
    Lost,
    Arrives { corrupted: bool, duplicated: bool },
}

/// The receiver's end of a link.
#[derive(Clone, Debug)]
pub(crate) struct Impairments {
    loss: Dice,
    gilbert: Dice,
    corrupt: Dice,
    duplicate: Dice,
    lost_in_a_row: u32,
    in_bad_state: bool,
}

impl Impairments {
    pub(crate) fn new(mut dice: impl FnMut() -> Dice) -> Self {
        Self {
            loss: dice(),
            gilbert: dice(),
            corrupt: dice(),
            duplicate: dice(),
            lost_in_a_row: 0,
            in_bad_state: false,
        }
    }

    /// Decides about the packet that arrives at `elapsed` on the link's clock
    /// and was the `number`-th to be sent; corrupts it in place.
    pub(crate) fn meet(
        &mut self,
        config: &LinkConfig,
        elapsed: Option<Duration>,
        number: u64,
        packet: &mut Packet,
    ) -> Fate {
        if config.blackhole.contain(elapsed) {
            return Fate::Blackholed;
        }
        if config.drop.names(number) {
            return Fate::Listed;
        }
        if self.loses(config, elapsed) {
            return Fate::Lost;
        }
        Fate::Arrives {
            corrupted: self.corrupt.happens(config.corrupt) && self.flip(packet),
            duplicated: self.duplicate.happens(config.duplicate),
        }
    }

    fn loses(&mut self, config: &LinkConfig, elapsed: Option<Duration>) -> bool {
        let lost = self.loss.happens(config.loss.at(elapsed));
        let in_burst = config.gilbert.is_some_and(|gilbert| {
            let leave = if self.in_bad_state {
                gilbert.to_good
            } else {
                gilbert.to_bad
            };
            self.in_bad_state ^= self.gilbert.happens(leave);
            self.in_bad_state
        });
        let allowed = config
            .burst
            .is_none_or(|burst: NonZeroU32| self.lost_in_a_row < burst.get());
        let lost = (lost || in_burst) && allowed;
        self.lost_in_a_row = if lost { self.lost_in_a_row + 1 } else { 0 };
        lost
    }

    /// Changes one byte; false if there is none.
    fn flip(&mut self, packet: &mut Packet) -> bool {
        let at = self.corrupt.below(packet.data.len() as u64) as usize;
        let by = 1 + self.corrupt.below(255) as u8;
        match packet.data.get_mut(at) {
            None => false,
            Some(byte) => {
                *byte ^= by;
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_round_trip() {
        for text in ["2-7,9", "1"] {
            assert_eq!(text.parse::<DropList>().unwrap().to_string(), text);
        }
        assert_eq!(
            "1%:16.7%".parse::<Gilbert>().unwrap().to_string(),
            "1%:16.7%"
        );
        let problem = |text: &str| text.parse::<DropList>().unwrap_err().problem;
        assert_eq!(problem("0"), "packets are counted from 1");
        assert_eq!(problem("7-2"), "a range ends before it starts");
        assert_eq!(problem("x"), "a part of it is not a number");
        assert!("5%".parse::<Gilbert>().is_err());
    }

    fn fates(config: &str, count: u64) -> Vec<Fate> {
        let config: LinkConfig = config.parse().unwrap();
        let mut stream = 0;
        let mut impairments = Impairments::new(|| {
            stream += 1;
            Dice::new(7, stream)
        });
        let here = ([127, 0, 0, 1], 1).into();
        (1..=count)
            .map(|number| {
                let elapsed = Some(Duration::from_secs(number));
                let mut packet = Packet::new(here, here, vec![0; 10]);
                let fate = impairments.meet(&config, elapsed, number, &mut packet);
                let changed = packet.data.iter().filter(|&&byte| byte != 0).count();
                let corrupted = matches!(
                    fate,
                    Fate::Arrives {
                        corrupted: true,
                        ..
                    }
                );
                assert_eq!(changed, usize::from(corrupted));
                fate
            })
            .collect()
    }

    fn longest_run(fates: &[Fate], of: Fate) -> usize {
        fates
            .split(|&fate| fate != of)
            .map(<[Fate]>::len)
            .max()
            .unwrap_or(0)
    }

    #[test]
    fn bursts_are_limited() {
        let free = fates("loss=50%", 10_000);
        assert!(longest_run(&free, Fate::Lost) > 3);
        let limited = fates("loss=50% burst=3", 10_000);
        assert_eq!(longest_run(&limited, Fate::Lost), 3);
        let all = fates("loss=100% burst=3", 8);
        assert_eq!(all.iter().filter(|&&fate| fate == Fate::Lost).count(), 6);
    }

    #[test]
    fn gilbert_loses_in_bursts_of_the_stated_length() {
        let fates = fates("gilbert=1%:16.7%", 200_000);
        let lost = fates.iter().filter(|&&fate| fate == Fate::Lost).count();
        let bursts = fates
            .split(|&fate| fate != Fate::Lost)
            .filter(|run| !run.is_empty())
            .count();
        // Stationary loss p/(p+q) = 5.65 %, mean burst 1/q = 5.99.
        assert!((10_000..12_600).contains(&lost), "{lost}");
        assert!(
            (540..660).contains(&(lost * 100 / bursts)),
            "{lost}/{bursts}"
        );
    }

    #[test]
    fn windows_and_lists_name_their_packets() {
        let fates = fates("drop=2-3 blackhole=5s-7s", 8);
        let quiet = Fate::Arrives {
            corrupted: false,
            duplicated: false,
        };
        assert_eq!(
            fates,
            [
                quiet,
                Fate::Listed,
                Fate::Listed,
                quiet,
                Fate::Blackholed,
                Fate::Blackholed,
                quiet,
                quiet
            ]
        );
    }

    #[test]
    fn corruption_changes_one_byte() {
        let all = fates("corrupt=100%", 100);
        assert!(all.iter().all(|fate| matches!(
            fate,
            Fate::Arrives {
                corrupted: true,
                ..
            }
        )));
    }
}
