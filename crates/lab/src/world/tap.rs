//! Observation of datagrams.

use clearway_links::{Direction, Packet, Time};

/// What happened to a datagram at the point of observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It left its host and entered the shared link.
    Sent,
    /// It left its host and was dropped by the full queue.
    QueueFull,
    /// It left its host and was dropped before any queue.
    Dropped,
    /// It arrived at its host.
    Arrived,
}

/// An observed datagram.
#[derive(Clone, Copy, Debug)]
pub struct TapRecord<'a> {
    /// The time.
    pub at: Time,
    /// Its direction.
    pub direction: Direction,
    /// What happened to it.
    pub fate: Fate,
    /// The datagram.
    pub packet: &'a Packet,
}

/// Receives every datagram, in order of time.
pub trait Tap {
    /// Called for each datagram.
    fn see(&mut self, sighting: &TapRecord<'_>);
}
