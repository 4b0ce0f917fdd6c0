//! One generation of 1-RTT keys (RFC 9001 §6): those we seal with, those we open
//! with, the ones before and the ones to come.

use super::packet_key::PacketKey;
use crate::time::Instant;

/// What we seal with.
pub(super) struct Local {
    pub(super) key: PacketKey,
    pub(super) generation: u64,
    pub(super) sealed: u64,
    pub(super) first: Option<u64>,
    pub(super) acknowledged: bool,
}

/// What we open with. All packet numbers of older generations are below
/// `floor`.
pub(super) struct Remote {
    pub(super) key: PacketKey,
    pub(super) generation: u64,
    pub(super) floor: u64,
    pub(super) seen: Option<Seen>,
}

/// Packet numbers opened in a generation.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    pub(super) lowest: u64,
    pub(super) highest: u64,
}

pub(super) struct Previous {
    pub(super) key: PacketKey,
    pub(super) floor: u64,
    pub(super) discard_at: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    Previous,
    Current,
    Next,
}

impl Local {
    pub(super) fn new(key: PacketKey, generation: u64) -> Self {
        Self {
            key,
            generation,
            sealed: 0,
            first: None,
            acknowledged: false,
        }
    }
}

impl Remote {
    /// Above every packet number seen in this generation and those before.
    pub(super) fn above(&self) -> u64 {
        self.seen.map_or(self.floor, |seen| {
            self.floor.max(seen.highest.saturating_add(1))
        })
    }

    #[inline]
    pub(super) fn note(&mut self, pn: u64) {
        let seen = self.seen.get_or_insert(Seen {
            lowest: pn,
            highest: pn,
        });
        seen.lowest = seen.lowest.min(pn);
        seen.highest = seen.highest.max(pn);
    }
}
