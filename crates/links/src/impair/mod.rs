//! Impairments at the receiver's end of a link.

mod droplist;
mod gilbert;
mod thin;

use core::num::NonZeroU32;
use core::time::Duration;

pub use droplist::DropList;
use gilbert::Chain;
pub use gilbert::{Gilbert, GilbertChange};
pub use thin::Thin;
use thin::Thinner;

use crate::ledger::QueuedPacket;
use crate::{Dice, DropCause, LinkConfig, Packet, Time};

/// What happens to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Dropped(DropCause),
    Arrives { corrupted: bool, duplicated: bool },
}

/// The impairments at the receiver's end of a link.
#[derive(Clone, Debug)]
pub(crate) struct Impairments {
    loss: Dice,
    gilbert: Chain,
    corrupt: Dice,
    duplicate: Dice,
    lost_in_a_row: u32,
    thinner: Thinner,
}

impl Impairments {
    pub(crate) fn new(mut dice: impl FnMut() -> Dice) -> Self {
        Self {
            loss: dice(),
            gilbert: Chain::new(dice()),
            corrupt: dice(),
            duplicate: dice(),
            lost_in_a_row: 0,
            thinner: Thinner::default(),
        }
    }

    /// Records a packet whose last bit leaves for the receiver at `departed`.
    pub(crate) fn on_departure(
        &mut self,
        config: &LinkConfig,
        carried: &QueuedPacket,
        departed: Time,
    ) {
        if let Some(thin) = config.thin {
            self.thinner.on_departure(thin, carried, departed);
        }
    }

    /// Decides about the packet that arrives at `at`, which is `elapsed` on the link's clock;
    /// corrupts it in place.
    pub(crate) fn meet(
        &mut self,
        config: &LinkConfig,
        at: Time,
        elapsed: Option<Duration>,
        carried: &mut QueuedPacket,
    ) -> Fate {
        if config.blackhole.contain(elapsed) {
            return Fate::Dropped(DropCause::Blackholed);
        }
        if config.drop.names(carried.index + 1) {
            return Fate::Dropped(DropCause::Listed);
        }
        if self.loses(config, elapsed) {
            return Fate::Dropped(DropCause::Lost);
        }
        if let Some(thin) = config.thin
            && self.thinner.drops(thin, carried, at)
        {
            return Fate::Dropped(DropCause::Thinned);
        }
        Fate::Arrives {
            corrupted: self.corrupt.happens(config.corrupt) && self.flip(&mut carried.packet),
            duplicated: self.duplicate.happens(config.duplicate),
        }
    }

    fn loses(&mut self, config: &LinkConfig, elapsed: Option<Duration>) -> bool {
        let lost = self.loss.happens(config.loss.at(elapsed));
        let in_burst = config
            .gilbert
            .is_some_and(|gilbert| self.gilbert.loses(gilbert, elapsed));
        let allowed = config
            .burst
            .is_none_or(|burst: NonZeroU32| self.lost_in_a_row < burst.get());
        let lost = (lost || in_burst) && allowed;
        self.lost_in_a_row = if lost { self.lost_in_a_row + 1 } else { 0 };
        lost
    }

    /// Changes one byte; false if the packet is empty.
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

    const LOST: Fate = Fate::Dropped(DropCause::Lost);

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
                let mut carried = QueuedPacket {
                    packet: Packet::new(here, here, vec![0; 10]),
                    index: number - 1,
                    size: 10,
                    since: Time::ZERO,
                };
                let fate = impairments.meet(&config, Time::ZERO, elapsed, &mut carried);
                let data = carried.packet.data.iter();
                let changed = data.filter(|&&byte| byte != 0).count();
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
    fn loss_bursts_are_limited() {
        let free = fates("loss=50%", 10_000);
        assert!(longest_run(&free, LOST) > 3);
        let limited = fates("loss=50% burst=3", 10_000);
        assert_eq!(longest_run(&limited, LOST), 3);
        let all = fates("loss=100% burst=3", 8);
        assert_eq!(all.iter().filter(|&&fate| fate == LOST).count(), 6);
    }

    #[test]
    fn gilbert_loses_in_bursts_of_the_stated_length() {
        let fates = fates("gilbert=1%:16.7%", 200_000);
        let lost = fates.iter().filter(|&&fate| fate == LOST).count();
        let bursts = fates
            .split(|&fate| fate != LOST)
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
    fn blackholes_and_drop_lists_drop_exactly_their_packets() {
        let fates = fates("drop=2-3 blackhole=5s-7s", 8);
        let quiet = Fate::Arrives {
            corrupted: false,
            duplicated: false,
        };
        assert_eq!(
            fates,
            [
                quiet,
                Fate::Dropped(DropCause::Listed),
                Fate::Dropped(DropCause::Listed),
                quiet,
                Fate::Dropped(DropCause::Blackholed),
                Fate::Dropped(DropCause::Blackholed),
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
