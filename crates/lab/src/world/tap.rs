//! Watching datagrams go by.

use clearway_links::{Direction, Packet, Time};

/// What happened to a datagram where it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It left its host and entered the shared link.
    Sent,
    /// It left its host and found the queue full.
    QueueFull,
    /// It left its host and was dropped before any queue.
    Dropped,
    /// It arrived at its host.
    Arrived,
}

/// A datagram seen.
#[derive(Clone, Copy, Debug)]
pub struct Sighting<'a> {
    /// When.
    pub at: Time,
    /// Which way it goes.
    pub direction: Direction,
    /// What happened to it.
    pub fate: Fate,
    /// The datagram.
    pub packet: &'a Packet,
}

/// Is shown every datagram, in order of time.
pub trait Tap {
    /// A datagram was seen.
    fn see(&mut self, sighting: &Sighting<'_>);
}
