//! Watching a link: every packet, at every point, with its fate.

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
    /// All of them, in the order in which a packet meets them.
    pub const ALL: [Self; 7] = [
        Self::Policed,
        Self::QueueFull,
        Self::Aqm,
        Self::Blackholed,
        Self::Listed,
        Self::Lost,
        Self::Thinned,
    ];

    /// A few words for people.
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

/// What a tap saw happen to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// It was offered to the link: what a capture at the sender's end shows.
    Offered,
    /// It entered the queue, which now holds so much, itself included.
    Queued {
        /// Packets in the queue.
        packets: usize,
        /// Bytes in the queue, with headers.
        bytes: u64,
    },
    /// The queue marked it congestion-experienced; the packet shows the mark.
    Marked,
    /// It left the queue and goes on the wire.
    Departed {
        /// How long it waited.
        sojourn: Duration,
        /// Packets left behind.
        packets: usize,
        /// Bytes left behind, with headers.
        bytes: u64,
    },
    /// It will never arrive.
    Dropped(DropCause),
    /// It arrived: what a capture at the receiver's end shows.
    Delivered {
        /// A byte of it was changed on the way.
        corrupted: bool,
        /// It is the second copy.
        duplicate: bool,
    },
}

/// One thing that happened to one packet.
#[derive(Clone, Copy, Debug)]
pub struct Sighting<'a> {
    /// When, in the link's own time: punctual even if the caller is late.
    pub at: Time,
    /// The packet's place among those offered to the link, from 0.
    pub index: u64,
    /// Its size on the wire in bytes, with headers.
    pub wire_bytes: u32,
    /// The packet as it is at this point.
    pub packet: &'a Packet,
    /// What happened.
    pub sight: Sight,
}

/// Sees what happens on one direction of a link.
///
/// A link works out the past when it is asked: sightings of the queue come in
/// order of time, and so do those of the receiver's end, but between the two
/// the order of calls is not the order of [`Sighting::at`]. A tap changes
/// nothing about what the link does.
pub trait Tap: Send {
    /// Called once for each thing that happens.
    fn see(&mut self, sighting: &Sighting<'_>);
}

impl<F: FnMut(&Sighting<'_>) + Send> Tap for F {
    fn see(&mut self, sighting: &Sighting<'_>) {
        self(sighting);
    }
}

/// Where a tap may be plugged in. Copies of a link start without one.
#[derive(Default)]
pub(crate) struct Socket(pub(crate) Option<Box<dyn Tap>>);

impl Clone for Socket {
    fn clone(&self) -> Self {
        Self(None)
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "tapped" } else { "plain" })
    }
}
