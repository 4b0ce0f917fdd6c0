//! What the kernel charges a socket for a datagram.

use serde::Serialize;

use crate::sample::Recording;
use crate::track::Track;

/// What is charged for one datagram (or buffer), and how that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Truesize {
    /// Bytes.
    pub bytes: u64,
    /// How it is known.
    pub origin: Origin,
}

/// How a size is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Every length of the queue was a multiple of it.
    Measured,
    /// From the average size of the IP packets that arrived.
    Estimated,
}

/// Sizes of the kernel's buffers, with what it adds for itself: measured on Linux 6 for payloads up
/// to about 100 bytes, 600, 1,600 (so also 1,200 to 1,472), 3,600, and 64 KiB trains.
const CLASSES: [(u64, u64); 6] = [
    (150, 832),
    (640, 1_280),
    (1_664, 2_304),
    (3_712, 4_352),
    (7_800, 8_448),
    (65_536, 69_120),
];
/// A common divisor is believed within this factor of what the average size suggests.
const PLAUSIBLE: u64 = 2;
/// How many of the largest common divisor may be one datagram each.
const MOST_IN_DIVISOR: u64 = 8;

impl Truesize {
    /// Finds out from a socket's queue, or from the sizes of packets.
    #[must_use]
    pub fn new(recording: &Recording, track: &Track) -> Self {
        let expected = expected(mean_packet(recording));
        let values = track.moments.iter().chain(&track.looks).flat_map(|moment| {
            let unreleased = moment.unreleased().unwrap_or(0);
            [moment.queue, unreleased]
        });
        let mut distinct: Vec<u64> = values.filter(|&value| value > 0).collect();
        distinct.sort_unstable();
        distinct.dedup();
        let divisor = distinct.iter().copied().fold(0, gcd);
        if distinct.len() >= 3
            && let Some(bytes) = part_of(divisor, expected)
        {
            return Self {
                bytes,
                origin: Origin::Measured,
            };
        }
        Self {
            bytes: expected,
            origin: Origin::Estimated,
        }
    }
}

/// Returns the divisor, or an equal part of it, if that is about what is expected.
fn part_of(divisor: u64, expected: u64) -> Option<u64> {
    if divisor == 0 || divisor * PLAUSIBLE < expected {
        return None;
    }
    if divisor <= expected * PLAUSIBLE {
        return Some(divisor);
    }
    let parts = 2..=MOST_IN_DIVISOR;
    let whole = parts.filter(|parts| divisor.is_multiple_of(*parts));
    whole
        .map(|parts| divisor / parts)
        .find(|&part| part.abs_diff(expected) <= expected / 8)
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The mean size of an IP packet that arrived, in bytes.
fn mean_packet(recording: &Recording) -> u64 {
    let Some((first, last)) = recording.ends() else {
        return 0;
    };
    let grown = last.counters.since(&first.counters);
    let sum = |names: [&str; 2]| names.iter().map(|name| grown.get(name)).sum::<u64>();
    let bytes = sum(["IpExt.InOctets", "Ip6.InOctets"]);
    bytes / sum(["Ip.InReceives", "Ip6.InReceives"]).max(1)
}

fn expected(packet: u64) -> u64 {
    let class = CLASSES.iter().find(|(largest, _)| packet <= *largest);
    class.map_or(packet, |(_, truesize)| *truesize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divisor_is_believed_only_near_the_expected_size() {
        assert_eq!(part_of(832, 832), Some(832));
        assert_eq!(part_of(1_280, 832), Some(1_280));
        assert_eq!(part_of(2_496, 832), Some(832));
        assert_eq!(part_of(64, 832), None);
        assert_eq!(part_of(0, 832), None);
        assert_eq!(part_of(212_160, 832), None);
    }
}
