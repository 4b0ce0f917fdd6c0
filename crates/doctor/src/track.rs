//! A socket over the samples of a recording.

use core::time::Duration;
use std::collections::BTreeMap;

use crate::sample::Recording;
use crate::socket::UdpSocket;

/// What a socket is recognised by.
type Key = (u64, core::net::SocketAddr);

/// A socket and its past.
#[derive(Clone, Debug, PartialEq)]
pub struct Track {
    /// The socket, as it was last.
    pub socket: UdpSocket,
    /// The socket at each sample in which it is.
    pub moments: Vec<Moment>,
    /// The same in closer looks, at more exact times.
    pub looks: Vec<Moment>,
}

/// A socket at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Since recording began.
    pub at: Duration,
    /// Bytes in the queue.
    pub queue: u64,
    /// Bytes charged, if known.
    pub charged: Option<u64>,
    /// Datagrams lost so far.
    pub drops: u64,
}

impl Moment {
    fn new(at: Duration, socket: &UdpSocket) -> Self {
        Self {
            at,
            queue: socket.queue,
            charged: socket.memory.map(|memory| memory.charged),
            drops: socket.drops,
        }
    }

    /// Returns the bytes that were read but not given back yet, if known.
    #[must_use]
    pub fn unreleased(&self) -> Option<u64> {
        self.charged?.checked_sub(self.queue)
    }
}

impl Track {
    /// Returns the sockets of a recording, also those that went away.
    #[must_use]
    pub fn all(recording: &Recording) -> Vec<Self> {
        let mut tracks: BTreeMap<Key, Self> = BTreeMap::new();
        for sample in &recording.samples {
            for socket in &sample.sockets {
                let track = tracks
                    .entry((socket.inode, socket.local))
                    .or_insert_with(|| Self {
                        socket: socket.clone(),
                        moments: Vec::new(),
                        looks: Vec::new(),
                    });
                track.socket.clone_from(socket);
                track.moments.push(Moment::new(sample.at, socket));
            }
            for look in &sample.looks {
                for socket in &look.sockets {
                    if let Some(track) = tracks.get_mut(&(socket.inode, socket.local)) {
                        track.looks.push(Moment::new(look.at, socket));
                    }
                }
            }
        }
        tracks.into_values().collect()
    }

    /// Returns how many datagrams it lost during the recording. All that it ever lost, if it is new.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let first = self.moments.first().map_or(0, |moment| moment.drops);
        self.socket.drops.saturating_sub(first)
    }

    /// Returns by how many bytes its queue grew; negative if it shrank.
    #[must_use]
    pub fn queue_growth(&self) -> i64 {
        let first = self.moments.first().map_or(0, |moment| moment.queue);
        let clamp = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        clamp(self.socket.queue).saturating_sub(clamp(first))
    }

    /// Returns the limit of its buffer in bytes, if known.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        let limit = self.socket.memory?.limit;
        (limit > 0).then_some(limit)
    }

    /// Returns how full its buffer was at most, from 0 to 1, if known.
    #[must_use]
    pub fn fullest(&self) -> Option<f64> {
        let limit = self.limit()? as f64;
        let charged = self.moments.iter().filter_map(|moment| moment.charged);
        charged.max().map(|charged| charged as f64 / limit)
    }
}
