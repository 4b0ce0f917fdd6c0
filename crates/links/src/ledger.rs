//! The counters of a link, and its tap: every packet's fate is recorded here.

use core::time::Duration;

use crate::tap::TapSlot;
use crate::{DropCause, Ecn, LinkStats, Packet, PacketEvent, Tap, TapRecord, Time};

/// A packet in the link, with what the link knows about it.
#[derive(Clone, Debug)]
pub(crate) struct QueuedPacket {
    pub(crate) packet: Packet,
    /// Its index among the packets offered to the link, from 0.
    pub(crate) index: u64,
    /// Bytes on the wire, headers included.
    pub(crate) size: u32,
    /// When it was offered to the link.
    pub(crate) since: Time,
}

/// The length of the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Depth {
    pub(crate) packets: usize,
    pub(crate) bytes: u64,
}

/// Counters, the bytes in transit, and the tap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) stats: LinkStats,
    pub(crate) in_transit_bytes: u64,
    tap: TapSlot,
}

impl Ledger {
    /// Attaches a tap or, with `None`, detaches it; returns the previous one.
    pub(crate) fn set_tap(&mut self, tap: Option<Box<dyn Tap>>) -> Option<Box<dyn Tap>> {
        core::mem::replace(&mut self.tap.0, tap)
    }

    fn show(&mut self, at: Time, carried: &QueuedPacket, sight: PacketEvent) {
        if let Some(tap) = &mut self.tap.0 {
            tap.see(&TapRecord {
                at,
                index: carried.index,
                wire_bytes: carried.size,
                packet: &carried.packet,
                sight,
            });
        }
    }

    pub(crate) fn offered(&mut self, at: Time, carried: &QueuedPacket) {
        let bytes = carried.packet.data.len() as u64;
        self.stats.sent += 1;
        self.stats.sent_bytes += bytes;
        self.in_transit_bytes += bytes;
        self.show(at, carried, PacketEvent::Offered);
    }

    pub(crate) fn queued(&mut self, at: Time, carried: &QueuedPacket, depth: Depth) {
        let Depth { packets, bytes } = depth;
        self.show(at, carried, PacketEvent::Queued { packets, bytes });
    }

    /// The maximum queue length counts only packets that had to wait.
    pub(crate) fn waits(&mut self, depth: Depth) {
        let stats = &mut self.stats;
        stats.max_queue_packets = stats.max_queue_packets.max(depth.packets as u64);
        stats.max_queue_bytes = stats.max_queue_bytes.max(depth.bytes);
    }

    pub(crate) fn departed(&mut self, at: Time, carried: &QueuedPacket, depth: Depth) {
        let sojourn = at - carried.since;
        let stats = &mut self.stats;
        stats.queueing_total = stats.queueing_total.saturating_add(sojourn);
        stats.queueing_max = stats.queueing_max.max(sojourn);
        stats.sojourn.record(sojourn);
        let Depth { packets, bytes } = depth;
        let sight = PacketEvent::Departed {
            sojourn,
            packets,
            bytes,
        };
        self.show(at, carried, sight);
    }

    pub(crate) fn dropped(&mut self, at: Time, carried: &QueuedPacket, cause: DropCause) {
        *self.stats.dropped_by_mut(cause) += 1;
        self.in_transit_bytes -= carried.packet.data.len() as u64;
        self.show(at, carried, PacketEvent::Dropped(cause));
    }

    /// Sets congestion-experienced (RFC 3168 §5); false if the packet is not
    /// ECN-capable, so that only a drop could tell its sender.
    pub(crate) fn mark(&mut self, at: Time, carried: &mut QueuedPacket) -> bool {
        match carried.packet.ecn {
            Ecn::NotEct => false,
            Ecn::Ce => true,
            Ecn::Ect0 | Ecn::Ect1 => {
                carried.packet.ecn = Ecn::Ce;
                self.stats.ce_marked += 1;
                self.show(at, carried, PacketEvent::Marked);
                true
            }
        }
    }

    pub(crate) fn duplicated(&mut self, carried: &QueuedPacket) {
        self.stats.duplicated += 1;
        self.in_transit_bytes += carried.packet.data.len() as u64;
    }

    pub(crate) fn delivered(
        &mut self,
        at: Time,
        carried: &QueuedPacket,
        corrupted: bool,
        duplicate: bool,
    ) {
        let bytes = carried.packet.data.len() as u64;
        self.in_transit_bytes -= bytes;
        self.stats.delivered += 1;
        self.stats.delivered_bytes += bytes;
        let sight = PacketEvent::Delivered {
            corrupted,
            duplicate,
        };
        self.show(at, carried, sight);
    }
}

impl Depth {
    /// A packet of this many bytes.
    pub(crate) fn one(size: u32) -> Self {
        Self {
            packets: 1,
            bytes: u64::from(size),
        }
    }
}

impl QueuedPacket {
    /// How long it has waited at `now`.
    pub(crate) fn waited(&self, now: Time) -> Duration {
        now - self.since
    }
}
