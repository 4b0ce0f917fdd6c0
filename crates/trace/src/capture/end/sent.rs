//! The packets that an end sent, and what became of them.

use std::collections::BTreeMap;

use super::rtt::Rtt;
use crate::event::{BySpace, Frame, Packet, PacketType, Space};

/// Reordering threshold in packets (RFC 9002 §6.1.1).
const REORDERING: u64 = 3;
/// Maximum number of packets in flight that are remembered in a space.
const MAX_PACKETS: usize = 1 << 17;
/// A probe before the first RTT sample: less than any probe timeout without one in use.
const FIRST_TIMEOUT: u64 = 90_000_000;
/// A timer may expire a little before the estimate that is made here, in tenths.
const EARLY: u64 = 9;

/// The delay of ACKs that a peer may use where it announces no other one (RFC 9000 §18.2).
const MAX_ACK_DELAY: u64 = 25_000_000;

/// A packet in flight.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    time: u64,
    size: u64,
    kind: PacketType,
    ack_eliciting: bool,
}

/// The packets of one space.
#[derive(Debug, Default)]
struct SpacePackets {
    in_flight: BTreeMap<u64, InFlight>,
    largest_acked: Option<u64>,
    discarded: bool,
}

/// The packets that an end sent.
#[derive(Debug, Default)]
pub(super) struct SentPackets {
    spaces: BySpace<SpacePackets>,
    bytes: u64,
    packets: u64,
    /// When the last ack-eliciting packet was sent, or one was acknowledged.
    active: u64,
    /// Losses are known, and need not be derived.
    records_losses: bool,
}

/// What an ACK frame acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Acked {
    pub(super) packets: u64,
    /// When the largest one was sent, if it gives an RTT sample (RFC 9002 §5.1).
    pub(super) sample: Option<u64>,
}

impl SentPackets {
    /// Creates an account without packets. `records_losses` says whether losses are reported by
    /// [`Self::lose`].
    pub(super) fn new(records_losses: bool) -> Self {
        Self {
            records_losses,
            ..Self::default()
        }
    }

    /// Bytes in flight.
    pub(super) const fn in_flight(&self) -> u64 {
        self.bytes
    }

    /// Packets in flight.
    pub(super) const fn packets_in_flight(&self) -> u64 {
        self.packets
    }

    pub(super) fn on_sent(&mut self, now: u64, packet: &Packet) {
        let (Some(space), Some(number)) = (packet.kind.space(), packet.number) else {
            return;
        };
        if packet.counts_in_flight() != Some(true) {
            return;
        }
        let sent = InFlight {
            time: now,
            size: packet.size.unwrap_or(0),
            kind: packet.kind,
            ack_eliciting: packet.ack_eliciting() == Some(true),
        };
        if sent.ack_eliciting {
            self.active = now;
        }
        let in_flight = &mut self.spaces.get_mut(space).in_flight;
        let mut gone = in_flight.insert(number, sent);
        if in_flight.len() > MAX_PACKETS {
            gone = in_flight.pop_first().map(|(_, oldest)| oldest);
        }
        self.add(&sent);
        if let Some(gone) = gone {
            self.subtract(&gone);
        }
    }

    fn add(&mut self, sent: &InFlight) {
        self.bytes = self.bytes.saturating_add(sent.size);
        self.packets = self.packets.saturating_add(1);
    }

    fn subtract(&mut self, gone: &InFlight) {
        self.bytes = self.bytes.saturating_sub(gone.size);
        self.packets = self.packets.saturating_sub(1);
    }

    /// Processes an ACK frame.
    pub(super) fn on_ack(&mut self, space: Space, frame: &Frame) -> Acked {
        let Frame::Ack { ranges, .. } = frame else {
            return Acked::default();
        };
        let this = self.spaces.get_mut(space);
        let mut gone = Vec::new();
        for &(from, to) in ranges {
            if from > to {
                continue;
            }
            let numbers: Vec<u64> = this.in_flight.range(from..=to).map(|(at, _)| *at).collect();
            for number in numbers {
                gone.extend(this.in_flight.remove(&number).map(|sent| (number, sent)));
            }
        }
        let largest = ranges.iter().map(|(_, to)| *to).max();
        this.largest_acked = this.largest_acked.max(largest);
        let eliciting = gone.iter().any(|(_, sent)| sent.ack_eliciting);
        let sample = gone
            .iter()
            .find(|(number, _)| Some(*number) == largest && eliciting)
            .map(|(_, sent)| sent.time);
        for (_, sent) in &gone {
            self.subtract(sent);
        }
        Acked {
            packets: gone.len() as u64,
            sample,
        }
    }

    /// Takes the packets that an ACK shows as lost, by number or by time (RFC 9002 §6.1).
    pub(super) fn lost_behind(&mut self, space: Space, now: u64, rtt: &Rtt) -> Vec<u64> {
        let this = self.spaces.get_mut(space);
        let Some(largest) = this.largest_acked else {
            return Vec::new();
        };
        self.active = now;
        if self.records_losses {
            return Vec::new();
        }
        let delay = rtt.loss_delay().unwrap_or(u64::MAX);
        let behind = this.in_flight.range(..largest);
        let lost = behind.filter(|(number, sent)| {
            number.saturating_add(REORDERING) <= largest || sent.time.saturating_add(delay) <= now
        });
        let lost: Vec<u64> = lost.map(|(number, _)| *number).collect();
        self.remove(space, &lost);
        lost
    }

    /// Takes the packets that the time threshold shows as lost without a further ACK.
    pub(super) fn lost_by_time(&mut self, now: u64, rtt: &Rtt) -> Vec<(PacketType, u64)> {
        let Some(delay) = rtt.loss_delay().filter(|_| !self.records_losses) else {
            return Vec::new();
        };
        let mut all = Vec::new();
        for space in [Space::Initial, Space::Handshake, Space::Data] {
            let this = self.spaces.get(space);
            let Some(largest) = this.largest_acked else {
                continue;
            };
            let behind = this.in_flight.range(..largest);
            // They were sent in the order of their numbers.
            let lost = behind.take_while(|(_, sent)| sent.time.saturating_add(delay) < now);
            let lost: Vec<(u64, PacketType)> =
                lost.map(|(number, sent)| (*number, sent.kind)).collect();
            let numbers: Vec<u64> = lost.iter().map(|(number, _)| *number).collect();
            self.remove(space, &numbers);
            all.extend(lost.into_iter().map(|(number, kind)| (kind, number)));
        }
        all
    }

    /// Takes a packet that is known to be lost; returns its type if it was in flight.
    pub(super) fn lose(&mut self, number: u64) -> Option<PacketType> {
        let spaces = [Space::Data, Space::Handshake, Space::Initial];
        let find = |space: &Space| self.spaces.get(*space).in_flight.contains_key(&number);
        let space = spaces.into_iter().find(find)?;
        let kind = self.spaces.get(space).in_flight.get(&number)?.kind;
        self.remove(space, &[number]);
        Some(kind)
    }

    fn remove(&mut self, space: Space, numbers: &[u64]) {
        for number in numbers {
            if let Some(gone) = self.spaces.get_mut(space).in_flight.remove(number) {
                self.subtract(&gone);
            }
        }
    }

    /// Forgets a space; returns whether it was in use.
    pub(super) fn discard(&mut self, space: Space) -> bool {
        let this = self.spaces.get_mut(space);
        if core::mem::replace(&mut this.discarded, true) {
            return false;
        }
        let gone: Vec<InFlight> = core::mem::take(&mut this.in_flight).into_values().collect();
        for sent in &gone {
            self.subtract(sent);
        }
        true
    }

    /// Whether this packet, about to be sent, shows that a probe timeout expired: something is in
    /// flight, nothing was acknowledged for that long, and it `repeats` data or only asks for an ACK.
    /// A `full` packet of new data shows it, too (RFC 9002 §6.2.4), once the timeout has certainly
    /// expired: data was waiting, and nothing answers what is in flight.
    pub(super) fn is_probe(
        &self,
        now: u64,
        packet: &Packet,
        rtt: &Rtt,
        (repeats, full): (bool, bool),
    ) -> bool {
        if packet.ack_eliciting() != Some(true) || self.packets == 0 {
            return false;
        }
        let timeout = rtt.probe_timeout().unwrap_or(FIRST_TIMEOUT);
        let least = if repeats || packet.frames().contains(&Frame::Ping) {
            timeout.saturating_mul(EARLY) / 10
        } else if full {
            timeout.saturating_add(MAX_ACK_DELAY)
        } else {
            return false;
        };
        now.saturating_sub(self.active) >= least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn packet(number: u64, frame: Frame) -> Packet {
        let mut packet = Packet::new(PacketType::OneRtt, number, 1_200);
        packet.frames = Some(vec![frame]);
        packet
    }

    /// A path of 40 ms, whose timeout is 120 ms at first, and an end with a packet in flight since
    /// 1,000 ms.
    fn waiting() -> (SentPackets, Rtt) {
        let mut rtt = Rtt::default();
        rtt.on_sample(40 * MS, 0);
        let mut sent = SentPackets::new(false);
        sent.on_sent(1_000 * MS, &packet(0, Frame::Ping));
        (sent, rtt)
    }

    #[test]
    fn packet_sent_while_nothing_is_acknowledged_is_a_probe_after_the_timeout() {
        let (sent, rtt) = waiting();
        let ping = packet(1, Frame::Ping);
        let data = packet(1, Frame::HandshakeDone);
        // What is sent, whether it repeats data, whether it is full, and from when on it is a probe.
        let cases = [
            (&ping, (false, false), Some(108)),
            (&data, (true, false), Some(108)),
            (&data, (true, true), Some(108)),
            (&data, (false, true), Some(145)),
            (&data, (false, false), None),
        ];
        for (packet, facts, expected) in cases {
            let is_probe = |after: &u64| sent.is_probe((1_000 + after) * MS, packet, &rtt, facts);
            assert_eq!((0..1_000).find(is_probe), expected, "{facts:?}");
        }
    }

    #[test]
    fn nothing_is_a_probe_while_nothing_is_in_flight() {
        let (_, rtt) = waiting();
        let sent = SentPackets::new(false);
        let data = packet(1, Frame::HandshakeDone);
        assert!(!sent.is_probe(9_000 * MS, &data, &rtt, (true, true)));
    }
}
