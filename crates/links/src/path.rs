//! A path of two links, one in each direction.

use crate::{Clock, Link, LinkConfig, Packet, Time, Verdict};

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

impl Direction {
    /// Both directions.
    pub const ALL: [Self; 2] = [Self::Up, Self::Down];

    /// The seed of this direction's link when the path has `seed`. The same seed for both would
    /// lose the same packets in both directions. All code that builds a path from two links uses
    /// this, so that equal seeds mean equal decisions everywhere.
    #[must_use]
    pub const fn seed(self, seed: u64) -> u64 {
        match self {
            Self::Up => mix(seed, 1),
            Self::Down => mix(seed, 2),
        }
    }
}

/// Derives seed number `stream` from `seed`.
#[must_use]
pub const fn mix(seed: u64, stream: u64) -> u64 {
    let mut z = seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A path between a client and a server: a link up and a link down.
///
/// Links whose clock is [`Clock::FirstPacket`] both start at the path's first
/// packet, whichever way it goes.
#[derive(Clone, Debug)]
pub struct Path {
    up: Link,
    down: Link,
    started: bool,
}

impl Path {
    /// A path whose two links draw different decisions from one seed.
    #[must_use]
    pub fn new(up: LinkConfig, down: LinkConfig, seed: u64) -> Self {
        Self {
            up: Link::new(up, Direction::Up.seed(seed)),
            down: Link::new(down, Direction::Down.seed(seed)),
            started: false,
        }
    }

    /// A path that is the same both ways.
    #[must_use]
    pub fn symmetric(config: &LinkConfig, seed: u64) -> Self {
        Self::new(config.clone(), config.clone(), seed)
    }

    /// Offers a packet to the link of that direction at `now`.
    pub fn send(&mut self, now: Time, direction: Direction, packet: Packet) -> Verdict {
        if !self.started {
            self.started = true;
            for direction in Direction::ALL {
                let link = self.link_mut(direction);
                if link.config().clock == Clock::FirstPacket && link.windows_started().is_none() {
                    link.start_windows_at(now);
                }
            }
        }
        self.link_mut(direction).send(now, packet)
    }

    /// The next packet that has arrived by `now`, and which way it went.
    pub fn poll(&mut self, now: Time) -> Option<(Direction, Packet)> {
        self.poll_timed(now)
            .map(|(_, direction, packet)| (direction, packet))
    }

    /// As [`Path::poll`], with the time of arrival.
    pub fn poll_timed(&mut self, now: Time) -> Option<(Time, Direction, Packet)> {
        Direction::ALL.into_iter().find_map(|direction| {
            let (at, packet) = self.link_mut(direction).poll_timed(now)?;
            Some((at, direction, packet))
        })
    }

    /// When to call [`Path::poll`] next.
    #[must_use]
    pub fn next_event(&self) -> Option<Time> {
        match (self.up.next_event(), self.down.next_event()) {
            (Some(up), Some(down)) => Some(up.min(down)),
            (up, down) => up.or(down),
        }
    }

    /// Starts the clocks of both links at `at`.
    pub fn start_windows_at(&mut self, at: Time) {
        self.up.start_windows_at(at);
        self.down.start_windows_at(at);
    }

    /// The link of that direction.
    #[must_use]
    pub const fn link(&self, direction: Direction) -> &Link {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }

    /// The link of that direction, to change it.
    pub const fn link_mut(&mut self, direction: Direction) -> &mut Link {
        match direction {
            Direction::Up => &mut self.up,
            Direction::Down => &mut self.down,
        }
    }

    /// UDP payload in transit both ways, in bytes.
    #[must_use]
    pub const fn in_transit_bytes(&self) -> u64 {
        self.up.in_transit_bytes() + self.down.in_transit_bytes()
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    fn packet() -> Packet {
        let here = ([127, 0, 0, 1], 1).into();
        Packet::new(here, here, vec![0; 1200])
    }

    #[test]
    fn first_packet_starts_both_clocks() {
        let config: LinkConfig = "clock=first-packet loss=100%@0s-2s".parse().unwrap();
        let mut path = Path::symmetric(&config, 1);
        let start = Time::from_secs(10);
        assert_eq!(path.send(start, Direction::Up, packet()), Verdict::Accepted);
        assert_eq!(path.poll(start), None);
        let after = start + Duration::from_secs(2);
        assert_eq!(
            path.send(after, Direction::Down, packet()),
            Verdict::Accepted
        );
        assert_eq!(path.poll(after), Some((Direction::Down, packet())));
    }

    #[test]
    fn directions_lose_different_packets() {
        let config: LinkConfig = "loss=50%".parse().unwrap();
        let mut path = Path::symmetric(&config, 1);
        let mut pattern = |direction| {
            (0..64)
                .map(|_| {
                    let _ = path.send(Time::ZERO, direction, packet());
                    path.poll(Time::ZERO).is_some()
                })
                .collect::<Vec<_>>()
        };
        assert_ne!(pattern(Direction::Up), pattern(Direction::Down));
    }
}
