//! How far from the two ends a capture was taken.

use std::collections::HashMap;

use clearway_quic::Role;

use super::connection::ByEnd;
use crate::event::{Frame, Packet, Space};

/// Shorter round trips count as none: an end takes as long to answer.
const NEAR: u64 = 2_000_000;
/// Number of packets after which nothing more is waited for.
const MAX_PACKETS: u32 = 64;
/// Number of acknowledgements of each end that are enough.
const ENOUGH: u32 = 4;

/// Measures the round trips from the place of the capture to both ends: by the handshake, in which
/// the server's first packet answers the client's, and the client's next one answers that; and by
/// acknowledgements, because an end may be busy with the handshake for long. The shortest counts.
#[derive(Debug, Default)]
pub(super) struct DelayEstimator {
    asked: Option<u64>,
    answered: Option<u64>,
    packets: u32,
    /// When packets were seen, by their number and who sent them.
    seen: HashMap<(bool, Space, u64), u64>,
    shortest: ByEnd<Option<u64>>,
    acks: ByEnd<u32>,
}

/// Round trips from the place of the capture, in nanoseconds; zero for an end that is near.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Delays {
    pub(super) client: u64,
    pub(super) server: u64,
}

impl DelayEstimator {
    /// Notes a packet; returns the round trips once they are known.
    pub(super) fn on_packet(&mut self, time: u64, from: Role, packet: &Packet) -> Option<Delays> {
        self.packets = self.packets.saturating_add(1);
        match (from, self.asked, self.answered) {
            (Role::Client, Some(asked), Some(answered)) if self.packets <= MAX_PACKETS => {
                self.sample(Role::Client, time.saturating_sub(answered));
                self.sample(Role::Server, answered.saturating_sub(asked));
            }
            (Role::Client, _, None) => self.asked = Some(time),
            (Role::Server, _, _) => self.answered = self.answered.or(Some(time)),
            (Role::Client, _, Some(_)) => {}
        }
        self.on_numbered(time, from, packet);
        let enough = self.acks.client.min(self.acks.server) >= ENOUGH;
        (enough || self.packets >= MAX_PACKETS).then(|| self.delays())
    }

    /// The round trips as far as they are known.
    pub(super) fn delays(&self) -> Delays {
        Delays {
            client: self.shortest.client.map_or(0, far),
            server: self.shortest.server.map_or(0, far),
        }
    }

    fn on_numbered(&mut self, time: u64, from: Role, packet: &Packet) {
        let (Some(space), Some(number)) = (packet.kind.space(), packet.number) else {
            return;
        };
        let by_client = from == Role::Client;
        for frame in packet.frames() {
            let Frame::Ack { delay, ranges, .. } = frame else {
                continue;
            };
            let largest = ranges.iter().map(|(_, to)| *to).max().unwrap_or(0);
            let Some(sent) = self.seen.get(&(!by_client, space, largest)) else {
                continue;
            };
            let waited = if space == Space::Data { *delay } else { None };
            let round_trip = time.saturating_sub(*sent);
            self.sample(from, round_trip.saturating_sub(waited.unwrap_or(0)));
            let acks = self.acks.get_mut(from);
            *acks = acks.saturating_add(1);
        }
        self.seen.insert((by_client, space, number), time);
    }

    /// The round trip to this end and back.
    fn sample(&mut self, end: Role, round_trip: u64) {
        let shortest = self.shortest.get_mut(end);
        *shortest = Some(shortest.map_or(round_trip, |known| known.min(round_trip)));
    }
}

const fn far(round_trip: u64) -> u64 {
    if round_trip < NEAR { 0 } else { round_trip }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::PacketType;

    const MS: u64 = 1_000_000;

    fn unread() -> Packet {
        Packet {
            number: None,
            ..Packet::new(PacketType::OneRtt, 0, 1_200)
        }
    }

    fn delays(packets: &[(u64, Role)]) -> Delays {
        let mut estimator = DelayEstimator::default();
        for &(ms, from) in packets {
            estimator.on_packet(ms * MS, from, &unread());
        }
        estimator.delays()
    }

    #[test]
    fn end_where_the_capture_was_taken_has_no_delay() {
        let at_client = [
            (0, Role::Client),
            (50, Role::Server),
            (51, Role::Client),
            (90, Role::Server),
        ];
        let expected = Delays {
            client: 0,
            server: 50 * MS,
        };
        assert_eq!(delays(&at_client), expected);
    }

    #[test]
    fn repeated_first_packet_does_not_count_as_delay() {
        let in_the_middle = [
            (0, Role::Client),
            (1000, Role::Client),
            (1020, Role::Server),
            (1021, Role::Server),
            (1060, Role::Client),
        ];
        let expected = Delays {
            client: 40 * MS,
            server: 20 * MS,
        };
        assert_eq!(delays(&in_the_middle), expected);
    }

    #[test]
    fn capture_of_one_direction_is_not_held_back_forever() {
        let mut estimator = DelayEstimator::default();
        let known: Vec<bool> = (0..64)
            .map(|at| {
                estimator
                    .on_packet(at * MS, Role::Server, &unread())
                    .is_some()
            })
            .collect();
        assert_eq!(known.iter().position(|known| *known), Some(63));
        assert_eq!(estimator.delays(), Delays::default());
    }

    /// A client at the place of the capture that takes 12 ms to check a certificate.
    #[test]
    fn end_that_is_slow_in_the_handshake_is_not_far() {
        let mut estimator = DelayEstimator::default();
        let mut see = |ms: u64, from, number, acked: Option<(u64, u64)>| {
            let mut packet = Packet::new(PacketType::OneRtt, number, 100);
            let ack = acked.map(|(number, delay)| {
                let mut ack = Frame::ack([(number, number)]);
                if let Frame::Ack { delay: of_ack, .. } = &mut ack {
                    *of_ack = Some(delay * MS);
                }
                ack
            });
            packet.frames = Some(ack.into_iter().collect());
            estimator.on_packet(ms * MS, from, &packet)
        };
        see(0, Role::Client, 0, None);
        see(40, Role::Server, 0, None);
        see(52, Role::Client, 1, None);
        let mut known = None;
        for at in 1..5 {
            see(at * 100, Role::Server, at, Some((at, 0)));
            known = see(at * 100 + 11, Role::Client, at + 1, Some((at, 10)));
            let answered = see(at * 100 + 51, Role::Server, 100 + at, Some((at + 1, 0)));
            known = known.or(answered);
        }
        let expected = Delays {
            client: 0,
            server: 40 * MS,
        };
        assert_eq!(known, Some(expected));
    }
}
