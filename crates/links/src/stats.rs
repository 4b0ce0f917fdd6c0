//! The counters of a link.

use core::time::Duration;

use crate::{DropCause, Histogram};

/// Counters of one direction of a link since it was created.
///
/// They always balance: `sent + duplicated = delivered + dropped() + in transit`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Packets offered to the link.
    pub sent: u64,
    /// Their UDP payload, in bytes.
    pub sent_bytes: u64,
    /// Packets handed to the receiver, duplicates included.
    pub delivered: u64,
    /// Their UDP payload, in bytes.
    pub delivered_bytes: u64,
    /// Dropped by a full queue.
    pub dropped_queue: u64,
    /// Dropped by active queue management to signal congestion.
    pub dropped_aqm: u64,
    /// Dropped by the policer.
    pub dropped_policer: u64,
    /// Lost at random (uniform or Gilbert-Elliott).
    pub dropped_loss: u64,
    /// Dropped by the drop list.
    pub dropped_list: u64,
    /// Dropped in a blackhole window.
    pub dropped_blackhole: u64,
    /// Dropped by thinning of small packets.
    pub dropped_thinned: u64,
    /// Duplicates created.
    pub duplicated: u64,
    /// Packets with a byte changed.
    pub corrupted: u64,
    /// Delivered after a packet that was sent later (RFC 4737 §3.3).
    pub reordered: u64,
    /// Marked congestion-experienced by the queue.
    pub ce_marked: u64,
    /// The longest queue, in packets (the one being serialised excluded).
    pub max_queue_packets: u64,
    /// The longest queue, in bytes with headers.
    pub max_queue_bytes: u64,
    /// Sum of the time packets waited in the queue before serialisation.
    pub queueing_total: Duration,
    /// The longest such wait.
    pub queueing_max: Duration,
    /// The distribution of these waits over all packets that left the queue for the wire.
    pub sojourn: Histogram,
}

impl LinkStats {
    /// All packets that will never arrive, whatever the cause.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.dropped_queue
            + self.dropped_aqm
            + self.dropped_policer
            + self.dropped_loss
            + self.dropped_list
            + self.dropped_blackhole
            + self.dropped_thinned
    }

    /// The packets that will never arrive because of `cause`.
    #[must_use]
    pub const fn dropped_by(&self, cause: DropCause) -> u64 {
        match cause {
            DropCause::Policed => self.dropped_policer,
            DropCause::QueueFull => self.dropped_queue,
            DropCause::Aqm => self.dropped_aqm,
            DropCause::Blackholed => self.dropped_blackhole,
            DropCause::Listed => self.dropped_list,
            DropCause::Lost => self.dropped_loss,
            DropCause::Thinned => self.dropped_thinned,
        }
    }

    pub(crate) const fn dropped_by_mut(&mut self, cause: DropCause) -> &mut u64 {
        match cause {
            DropCause::Policed => &mut self.dropped_policer,
            DropCause::QueueFull => &mut self.dropped_queue,
            DropCause::Aqm => &mut self.dropped_aqm,
            DropCause::Blackholed => &mut self.dropped_blackhole,
            DropCause::Listed => &mut self.dropped_list,
            DropCause::Lost => &mut self.dropped_loss,
            DropCause::Thinned => &mut self.dropped_thinned,
        }
    }

    /// Adds the counters of `other`; maxima take the larger.
    pub fn absorb(&mut self, other: &Self) {
        self.sent += other.sent;
        self.sent_bytes += other.sent_bytes;
        self.delivered += other.delivered;
        self.delivered_bytes += other.delivered_bytes;
        for cause in DropCause::ALL {
            *self.dropped_by_mut(cause) += other.dropped_by(cause);
        }
        self.duplicated += other.duplicated;
        self.corrupted += other.corrupted;
        self.reordered += other.reordered;
        self.ce_marked += other.ce_marked;
        self.max_queue_packets = self.max_queue_packets.max(other.max_queue_packets);
        self.max_queue_bytes = self.max_queue_bytes.max(other.max_queue_bytes);
        self.queueing_total = self.queueing_total.saturating_add(other.queueing_total);
        self.queueing_max = self.queueing_max.max(other.queueing_max);
        self.sojourn.absorb(&other.sojourn);
    }
}
