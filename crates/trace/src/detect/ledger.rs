//! The packets that were sent and what happened to them, from the trace alone.

use std::collections::VecDeque;

use crate::event::{BySpace, Frame, Packet, PacketType, Space};

/// Maximum number of packets per space. A trace with more in flight is not accounted.
const MAX_PACKETS: usize = 1 << 17;

/// Packets remembered after they were acknowledged or lost, for late ACKs.
const MEMORY: usize = 4096;

/// What happened to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Neither acknowledged nor lost yet.
    Outstanding,
    /// Acknowledged.
    Acked,
    /// Declared lost.
    Lost,
    /// Declared lost, then acknowledged.
    Spurious,
    /// Its keys or its path were discarded.
    Forgotten,
    /// Withdrawn without a sign of loss; if it is acknowledged later, that was wrong.
    Withdrawn,
}

/// A packet that was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) number: u64,
    pub(super) time: u64,
    pub(super) size: u64,
    pub(super) ack_eliciting: bool,
    pub(super) in_flight: bool,
    /// Number of paths used before it was sent.
    pub(super) path: u32,
    pub(super) fate: Fate,
    pub(super) mtu_probe: bool,
}

/// The effect of an ACK frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Acked {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    /// Packets that had been declared lost.
    pub(super) spurious: u64,
    /// The largest number newly acknowledged.
    pub(super) largest: Option<u64>,
}

/// The packets of one space.
#[derive(Clone, Debug, Default)]
struct SpaceLedger {
    /// By ascending number.
    packets: VecDeque<Sent>,
    /// Number of lost packets that are no longer remembered: late ACKs for them are not noticed.
    losses_forgotten: u64,
}

/// All packets that were sent.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    spaces: BySpace<SpaceLedger>,
    /// Bytes in flight on the current path.
    in_flight: u64,
    /// Bytes in flight on all paths.
    on_all_paths: u64,
    path: u32,
    /// False once the trace cannot be accounted, because frames or sizes are missing.
    complete: bool,
}

impl Default for Ledger {
    fn default() -> Self {
        Self {
            spaces: Default::default(),
            in_flight: 0,
            on_all_paths: 0,
            path: 0,
            complete: true,
        }
    }
}

impl SpaceLedger {
    fn find(&mut self, number: u64) -> Option<&mut Sent> {
        let at = self.position(number);
        self.packets
            .get_mut(at)
            .filter(|sent| sent.number == number)
    }

    /// The index of `number`, or where it would be inserted.
    fn position(&self, number: u64) -> usize {
        self.packets.partition_point(|sent| sent.number < number)
    }

    fn prune(&mut self) {
        while self.packets.len() > MEMORY
            && self
                .packets
                .front()
                .is_some_and(|sent| sent.fate != Fate::Outstanding)
        {
            let gone = self.packets.pop_front();
            let lost = gone.is_some_and(|sent| sent.fate == Fate::Lost);
            self.losses_forgotten = self.losses_forgotten.saturating_add(lost.into());
        }
    }
}

impl Ledger {
    /// Bytes in flight on the current path; `None` if the trace does not allow accounting.
    pub(super) fn in_flight(&self) -> Option<u64> {
        self.complete.then_some(self.in_flight)
    }

    /// The same for all paths together.
    pub(super) fn on_all_paths(&self) -> Option<u64> {
        self.complete.then_some(self.on_all_paths)
    }

    pub(super) fn on_sent(&mut self, time: u64, packet: &Packet) {
        let (Some(space), Some(number)) = (packet.kind.space(), packet.number) else {
            return;
        };
        let (Some(size), Some(in_flight)) = (packet.size, packet.counts_in_flight()) else {
            self.complete = false;
            return;
        };
        let ledger = self.spaces.get_mut(space);
        if ledger
            .packets
            .back()
            .is_some_and(|last| last.number >= number)
        {
            // Packet numbers only rise: this file has more than one connection.
            self.complete = false;
            return;
        }
        ledger.packets.push_back(Sent {
            number,
            time,
            size,
            ack_eliciting: packet.ack_eliciting().unwrap_or(in_flight),
            in_flight,
            path: self.path,
            fate: if in_flight {
                Fate::Outstanding
            } else {
                Fate::Forgotten
            },
            mtu_probe: packet.mtu_probe,
        });
        if in_flight {
            self.in_flight = self.in_flight.saturating_add(size);
            self.on_all_paths = self.on_all_paths.saturating_add(size);
        }
        ledger.prune();
        if ledger.packets.len() > MAX_PACKETS {
            self.complete = false;
            ledger.packets.clear();
        }
    }

    /// Processes an ACK frame in a packet of this type.
    pub(super) fn on_ack(&mut self, kind: PacketType, frame: &Frame) -> Acked {
        let (Some(space), Frame::Ack { ranges, .. }) = (kind.space(), frame) else {
            return Acked::default();
        };
        let Self {
            spaces,
            in_flight,
            on_all_paths,
            path,
            ..
        } = self;
        let ledger = spaces.get_mut(space);
        let mut acked = Acked::default();
        for &(from, to) in ranges {
            let start = ledger.position(from);
            for sent in ledger.packets.range_mut(start..) {
                if sent.number > to {
                    break;
                }
                match sent.fate {
                    Fate::Outstanding => {
                        sent.fate = Fate::Acked;
                        if sent.in_flight {
                            *on_all_paths = on_all_paths.saturating_sub(sent.size);
                        }
                        if sent.in_flight && sent.path == *path {
                            *in_flight = in_flight.saturating_sub(sent.size);
                        }
                        acked.packets = acked.packets.saturating_add(1);
                        acked.bytes = acked.bytes.saturating_add(sent.size);
                        acked.largest = acked.largest.max(Some(sent.number));
                    }
                    Fate::Lost | Fate::Withdrawn => {
                        sent.fate = Fate::Spurious;
                        acked.spurious = acked.spurious.saturating_add(1);
                        acked.largest = acked.largest.max(Some(sent.number));
                    }
                    Fate::Acked | Fate::Spurious | Fate::Forgotten => {}
                }
            }
        }
        acked
    }

    /// Processes the loss of a packet; `withdrawn` ones are not a sign of congestion.
    pub(super) fn on_lost(
        &mut self,
        kind: PacketType,
        number: u64,
        withdrawn: bool,
    ) -> Option<Sent> {
        let space = kind.space()?;
        let path = self.path;
        let sent = self.spaces.get_mut(space).find(number)?;
        if sent.fate != Fate::Outstanding {
            return None;
        }
        sent.fate = if withdrawn {
            Fate::Withdrawn
        } else {
            Fate::Lost
        };
        let sent = *sent;
        if sent.in_flight {
            self.on_all_paths = self.on_all_paths.saturating_sub(sent.size);
        }
        if sent.in_flight && sent.path == path {
            self.in_flight = self.in_flight.saturating_sub(sent.size);
        }
        Some(sent)
    }

    /// Discards the keys of a space, and with them its packets in flight.
    pub(super) fn on_discarded(&mut self, space: Space) {
        let path = self.path;
        for sent in &mut self.spaces.get_mut(space).packets {
            if sent.fate == Fate::Outstanding {
                sent.fate = Fate::Forgotten;
                if sent.in_flight {
                    self.on_all_paths = self.on_all_paths.saturating_sub(sent.size);
                }
                if sent.in_flight && sent.path == path {
                    self.in_flight = self.in_flight.saturating_sub(sent.size);
                }
            }
        }
    }

    /// Events are missing: what is in flight is not known any longer.
    pub(super) const fn on_missing_events(&mut self) {
        self.complete = false;
    }

    /// Switches to another path, whose bytes in flight are counted separately.
    pub(super) fn on_path(&mut self) {
        self.path = self.path.saturating_add(1);
        self.in_flight = 0;
    }

    /// Number of lost packets whose late ACKs would not be noticed.
    pub(super) fn losses_forgotten(&self) -> u64 {
        let forgotten = self.spaces.each().map(|space| space.losses_forgotten);
        forgotten.into_iter().fold(0, u64::saturating_add)
    }

    /// The largest packet number sent in each space.
    pub(super) fn newest(&self) -> BySpace<Option<u64>> {
        self.spaces.map(|space| {
            let last = space.packets.back();
            last.map(|sent| sent.number)
        })
    }

    /// Packets of the 1-RTT space, oldest first.
    pub(super) fn data(&self) -> impl DoubleEndedIterator<Item = &Sent> {
        self.spaces.get(Space::Data).packets.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(number: u64) -> Packet {
        Packet {
            frames: Some(vec![Frame::Ping]),
            ..Packet::new(PacketType::OneRtt, number, 100)
        }
    }

    #[test]
    fn each_packet_outcome_is_counted_once() {
        let mut ledger = Ledger::default();
        for number in 0..10 {
            ledger.on_sent(number, &packet(number));
        }
        assert_eq!(ledger.in_flight(), Some(1_000));
        let acked = ledger.on_ack(PacketType::OneRtt, &Frame::ack([(5, 6), (0, 1)]));
        assert_eq!((acked.packets, acked.bytes), (4, 400));
        assert_eq!(acked.largest, Some(6));
        assert!(ledger.on_lost(PacketType::OneRtt, 2, false).is_some());
        assert!(ledger.on_lost(PacketType::OneRtt, 2, false).is_none());
        assert_eq!(ledger.in_flight(), Some(500));
        let late = ledger.on_ack(PacketType::OneRtt, &Frame::ack([(0, 6)]));
        assert_eq!((late.packets, late.spurious), (2, 1));
        assert_eq!(ledger.in_flight(), Some(300));
        ledger.on_path();
        assert_eq!(ledger.in_flight(), Some(0));
        ledger.on_ack(PacketType::OneRtt, &Frame::ack([(0, 9)]));
        assert_eq!(ledger.in_flight(), Some(0));
    }

    #[test]
    fn trace_without_frames_is_not_accounted() {
        let mut ledger = Ledger::default();
        ledger.on_sent(0, &Packet::new(PacketType::OneRtt, 0, 100));
        assert_eq!(ledger.in_flight(), None);
    }
}
