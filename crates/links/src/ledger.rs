//! What a link counts and shows: the one place every packet's fate is booked.

use core::time::Duration;

use crate::tap::Socket;
use crate::{DropCause, Ecn, LinkStats, Packet, Sight, Sighting, Tap, Time};

/// A packet on its way, with what the link knows about it.
#[derive(Clone, Debug)]
pub(crate) struct Carried {
    pub(crate) packet: Packet,
    /// Its place among the packets offered to the link, from 0.
    pub(crate) index: u64,
    /// Bytes on the wire, headers included.
    pub(crate) size: u32,
    /// When it was offered to the link.
    pub(crate) since: Time,
}

/// How much waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Depth {
    pub(crate) packets: usize,
    pub(crate) bytes: u64,
}

/// Counters, bytes whose fate is open, and the tap that watches them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) stats: LinkStats,
    pub(crate) in_transit_bytes: u64,
    tap: Socket,
}

impl Ledger {
    /// Plugs a tap in or, with `None`, pulls it out; returns the one before.
    pub(crate) fn set_tap(&mut self, tap: Option<Box<dyn Tap>>) -> Option<Box<dyn Tap>> {
        core::mem::replace(&mut self.tap.0, tap)
    }

    fn show(&mut self, at: Time, carried: &Carried, sight: Sight) {
        if let Some(tap) = &mut self.tap.0 {
            tap.see(&Sighting {
                at,
                index: carried.index,
                wire_bytes: carried.size,
                packet: &carried.packet,
                sight,
            });
        }
    }

    pub(crate) fn offered(&mut self, at: Time, carried: &Carried) {
        let bytes = carried.packet.data.len() as u64;
        self.stats.sent += 1;
        self.stats.sent_bytes += bytes;
        self.in_transit_bytes += bytes;
        self.show(at, carried, Sight::Offered);
    }

    pub(crate) fn queued(&mut self, at: Time, carried: &Carried, depth: Depth) {
        let Depth { packets, bytes } = depth;
        self.show(at, carried, Sight::Queued { packets, bytes });
    }

    /// The longest queue is the longest that had to wait.
    pub(crate) fn waits(&mut self, depth: Depth) {
        let stats = &mut self.stats;
        stats.max_queue_packets = stats.max_queue_packets.max(depth.packets as u64);
        stats.max_queue_bytes = stats.max_queue_bytes.max(depth.bytes);
    }

    pub(crate) fn departed(&mut self, at: Time, carried: &Carried, depth: Depth) {
        let sojourn = at - carried.since;
        let stats = &mut self.stats;
        stats.queueing_total = stats.queueing_total.saturating_add(sojourn);
        stats.queueing_max = stats.queueing_max.max(sojourn);
        stats.sojourn.record(sojourn);
        let Depth { packets, bytes } = depth;
        let sight = Sight::Departed {
            sojourn,
            packets,
            bytes,
        };
        self.show(at, carried, sight);
    }

    pub(crate) fn dropped(&mut self, at: Time, carried: &Carried, cause: DropCause) {
        *self.stats.dropped_by_mut(cause) += 1;
        self.in_transit_bytes -= carried.packet.data.len() as u64;
        self.show(at, carried, Sight::Dropped(cause));
    }

    /// Sets congestion-experienced (RFC 3168 §5); false if the packet is not
    /// ECN-capable, so that only a drop could tell its sender.
    pub(crate) fn mark(&mut self, at: Time, carried: &mut Carried) -> bool {
        match carried.packet.ecn {
            Ecn::NotEct => false,
            Ecn::Ce => true,
            Ecn::Ect0 | Ecn::Ect1 => {
                carried.packet.ecn = Ecn::Ce;
                self.stats.ce_marked += 1;
                self.show(at, carried, Sight::Marked);
                true
            }
        }
    }

    pub(crate) fn duplicated(&mut self, carried: &Carried) {
        self.stats.duplicated += 1;
        self.in_transit_bytes += carried.packet.data.len() as u64;
    }

    pub(crate) fn delivered(
        &mut self,
        at: Time,
        carried: &Carried,
        corrupted: bool,
        duplicate: bool,
    ) {
        let bytes = carried.packet.data.len() as u64;
        self.in_transit_bytes -= bytes;
        self.stats.delivered += 1;
        self.stats.delivered_bytes += bytes;
        let sight = Sight::Delivered {
            corrupted,
            duplicate,
        };
        self.show(at, carried, sight);
    }
}

impl Depth {
    /// A packet of so many bytes.
    pub(crate) fn one(size: u32) -> Self {
        Self {
            packets: 1,
            bytes: u64::from(size),
        }
    }
}

impl Carried {
    /// How long it has waited at `now`.
    pub(crate) fn waited(&self, now: Time) -> Duration {
        now - self.since
    }
}
