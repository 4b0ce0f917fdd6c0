//! Taps: observers that see every packet of a link at every point.

use core::fmt;
use core::time::Duration;

use crate::{Packet, Time};

/// Why a packet will never arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropCause {
    /// The policer's bucket held too few tokens.
    Policed,
    /// The queue was full.
    QueueFull,
    /// Active queue management dropped it to signal congestion.
    Aqm,
    /// It arrived in a blackhole window.
    Blackholed,
    /// The drop list named it.
    Listed,
    /// Lost at random.
    Lost,
    /// Thinned out from among the small packets.
    Thinned,
}

impl DropCause {
    /// All causes, in the order in which a packet meets them.
    pub const ALL: [Self; 7] = [
        Self::Policed,
        Self::QueueFull,
        Self::Aqm,
        Self::Blackholed,
        Self::Listed,
        Self::Lost,
        Self::Thinned,
    ];

    /// A short description for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Policed => "policed",
            Self::QueueFull => "queue full",
            Self::Aqm => "aqm",
            Self::Blackholed => "blackholed",
            Self::Listed => "dropped by number",
            Self::Lost => "lost",
            Self::Thinned => "thinned",
        }
    }
}

impl fmt::Display for DropCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An event of a packet that a tap sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketEvent {
    /// It was offered to the link: what a capture at the sender's end shows.
    Offered,
    /// It entered the queue, whose length now includes it.
    Queued {
        /// Packets in the queue.
        packets: usize,
        /// Bytes in the queue, with headers.
        bytes: u64,
    },
    /// The queue marked it congestion-experienced; the packet shows the mark.
    Marked,
    /// It left the queue and is being serialised.
    Departed {
        /// How long it waited in the queue.
        sojourn: Duration,
        /// Packets left in the queue.
        packets: usize,
        /// Bytes left in the queue, with headers.
        bytes: u64,
    },
    /// It will never arrive.
    Dropped(DropCause),
    /// It arrived: what a capture at the receiver's end shows.
    Delivered {
        /// A byte of it was changed on the way.
        corrupted: bool,
        /// It is the duplicate.
        duplicate: bool,
    },
}

/// One event of one packet.
#[derive(Clone, Copy, Debug)]
pub struct TapRecord<'a> {
    /// When it happened, in the link's time: exact even if the caller polls late.
    pub at: Time,
    /// The packet's index among those offered to the link, from 0.
    pub index: u64,
    /// Its size on the wire in bytes, with headers.
    pub wire_bytes: u32,
    /// The packet as it is at this point.
    pub packet: &'a Packet,
    /// What happened.
    pub sight: PacketEvent,
}

/// Observes one direction of a link.
///
/// A link computes past events when it is polled: events of the queue come in order of time, and so
/// do those of the receiver's end, but between the two the order of calls is not the order of
/// [`TapRecord::at`]. A tap does not influence the link.
pub trait Tap: Send {
    /// Called once for each event.
    fn see(&mut self, sighting: &TapRecord<'_>);
}

impl<F: FnMut(&TapRecord<'_>) + Send> Tap for F {
    fn see(&mut self, sighting: &TapRecord<'_>) {
        self(sighting);
    }
}

/// Where a tap is attached. Clones of a link start without one.
#[derive(Default)]
pub(crate) struct TapSlot(pub(crate) Option<Box<dyn Tap>>);

impl Clone for TapSlot {
    fn clone(&self) -> Self {
        Self(None)
    }
}

impl fmt::Debug for TapSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "tapped" } else { "plain" })
    }
}
