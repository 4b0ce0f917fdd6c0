//! Thinning of acknowledgements.

use core::fmt;
use core::net::SocketAddr;
use core::num::NonZeroU32;
use core::str::FromStr;
use core::time::Duration;
use std::collections::VecDeque;

use crate::Time;
use crate::ledger::QueuedPacket;
use crate::spec::{ByteSize, SpecError};

/// How long a packet can wait for one that replaces it: a modem's turn to send.
const TURN: Duration = Duration::from_millis(10);

/// Keeps one in n small packets, as modems do with acknowledgements.
///
/// Encrypted acknowledgements can only be told by their size. Packets with more UDP payload than
/// `below` pass and are not counted; of the others the first passes, and then every `keep`-th.
/// A packet that no other small one of its flow follows on the link within 10 ms passes, too, and
/// counts as the one that is kept: what thins acknowledgements drops those that wait in its queue
/// while a newer one arrives (ACK filtering, RFC 3449). Written `10` or `10:200B`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Thin {
    /// One in this many small packets is kept.
    pub keep: NonZeroU32,
    /// The largest UDP payload of a small packet, in bytes.
    pub below: u64,
}

/// More than an acknowledgement with many ranges, less than data in flight.
const DEFAULT_BELOW: u64 = 150;

const EXPECTED: &str = "of how many small packets one is kept, such as 10, and optionally the largest \
                     payload of a small one, such as 10:150B";

impl FromStr for Thin {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let error = |problem: String| SpecError::new("thinning", text, problem, EXPECTED);
        let (keep, below) = match text.split_once(':') {
            None => (text, DEFAULT_BELOW),
            Some((keep, below)) => (keep, ByteSize::parse_with_unit(below).map_err(error)?.0),
        };
        let keep = keep
            .trim()
            .parse()
            .map_err(|_| error("must be a number greater than zero".to_owned()))?;
        Ok(Self { keep, below })
    }
}

impl fmt::Display for Thin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.keep)?;
        if self.below == DEFAULT_BELOW {
            return Ok(());
        }
        f.write_str(":")?;
        ByteSize(self.below).fmt(f)
    }
}

/// A small packet on the link.
#[derive(Clone, Copy, Debug)]
struct Follower {
    index: u64,
    flow: (SocketAddr, SocketAddr),
    departed: Time,
}

/// Counts small packets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Thinner {
    /// How many to drop before the next one is kept.
    to_drop: u32,
    /// Those on the link, in order of departure.
    followers: VecDeque<Follower>,
}

impl Thinner {
    /// Records a packet whose last bit leaves for the receiver at `departed`.
    pub(crate) fn on_departure(&mut self, thin: Thin, carried: &QueuedPacket, departed: Time) {
        if is_small(thin, carried) {
            self.followers.push_back(Follower {
                index: carried.index,
                flow: flow(carried),
                departed,
            });
        }
    }

    /// Returns whether this packet, which arrives at `at`, is dropped.
    pub(crate) fn drops(&mut self, thin: Thin, carried: &QueuedPacket, at: Time) -> bool {
        if !is_small(thin, carried) {
            return false;
        }
        // What was sent before it can follow nothing that is yet to arrive in order.
        let mut departed = None;
        while let Some(first) = self.followers.front()
            && first.index <= carried.index
        {
            departed = Some(first.departed);
            self.followers.pop_front();
        }
        let last = departed.map(|departed| at.min(departed + TURN));
        let followed = self.followers.iter().any(|other| {
            let in_time = last.is_some_and(|last| other.departed <= last);
            other.index > carried.index && other.flow == flow(carried) && in_time
        });
        if let Some(left) = self.to_drop.checked_sub(1)
            && followed
        {
            self.to_drop = left;
            return true;
        }
        self.to_drop = thin.keep.get() - 1;
        false
    }
}

fn is_small(thin: Thin, carried: &QueuedPacket) -> bool {
    carried.packet.data.len() as u64 <= thin.below
}

fn flow(carried: &QueuedPacket) -> (SocketAddr, SocketAddr) {
    (carried.packet.src, carried.packet.dst)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Packet;

    #[test]
    fn spec_round_trips_and_errors_give_the_reason() {
        for text in ["10", "3:1.5KB"] {
            assert_eq!(text.parse::<Thin>().unwrap().to_string(), text);
        }
        let problem = |text: &str| text.parse::<Thin>().unwrap_err().problem;
        assert_eq!(problem("0"), "must be a number greater than zero");
        assert_eq!(problem("10:5"), "missing unit");
    }

    fn carried(index: u64, size: usize, port: u16) -> QueuedPacket {
        let (from, to) = (([127, 0, 0, 1], port).into(), ([127, 0, 0, 1], 443).into());
        QueuedPacket {
            packet: Packet::new(from, to, vec![0; size]),
            index,
            size: size as u32,
            since: Time::ZERO,
        }
    }

    /// Which of these packets, all on the link at once, pass: (size, port of the sender).
    fn kept(keep: &str, packets: &[(usize, u16)]) -> Vec<bool> {
        let thin = keep.parse().unwrap();
        let mut thinner = Thinner::default();
        let packets = (0..).zip(packets);
        let all: Vec<_> = packets
            .map(|(index, &(size, port))| carried(index, size, port))
            .collect();
        for packet in &all {
            thinner.on_departure(thin, packet, Time::ZERO);
        }
        let pass = |packet| !thinner.drops(thin, packet, Time::from_millis(1));
        all.iter().map(pass).collect()
    }

    #[test]
    fn thinning_keeps_one_small_packet_in_three() {
        let sizes = [40, 40, 1200, 40, 150, 151, 40, 40, 40, 40];
        let packets = sizes.map(|size| (size, 1));
        let expected = [
            true, false, true, false, true, true, false, false, true, true,
        ];
        assert_eq!(kept("3", &packets), expected);
    }

    #[test]
    fn last_small_packet_of_each_flow_passes() {
        let packets = [(40, 1), (40, 1), (40, 2), (40, 1), (40, 2)];
        assert_eq!(kept("10", &packets), [true, false, false, true, true]);
    }

    /// Whether the second of three packets is dropped that leave at these milliseconds, if it
    /// arrives at `at`.
    fn drops_second(departures: [u64; 3], at: u64) -> bool {
        let thin = "10".parse().unwrap();
        let mut thinner = Thinner::default();
        let packets = [0, 1, 2].map(|index| carried(index, 40, 1));
        for (packet, millis) in packets.iter().zip(departures) {
            thinner.on_departure(thin, packet, Time::from_millis(millis));
        }
        let first = Time::from_millis(departures[0] + 1);
        assert!(!thinner.drops(thin, &packets[0], first), "the first passes");
        thinner.drops(thin, &packets[1], Time::from_millis(at))
    }

    #[test]
    fn packet_replaces_only_what_it_follows_within_a_turn_and_on_the_link() {
        assert!(drops_second([0, 1, 9], 20));
        assert!(!drops_second([0, 1, 9], 6), "departs after the arrival");
        assert!(!drops_second([0, 1, 12], 100), "11 ms later");
    }
}
