//! The 1-RTT keys of one generation (RFC 9001 §6): for sending, for receiving, and the
//! previous ones for receiving.

use super::packet_key::PacketKey;
use crate::time::Instant;

/// The keys for sending.
pub(super) struct SendKeys {
    pub(super) key: PacketKey,
    pub(super) generation: u64,
    pub(super) sealed: u64,
    pub(super) first: Option<u64>,
    pub(super) acknowledged: bool,
}

/// The keys for receiving. All packet numbers of older generations are below `floor`.
pub(super) struct ReceiveKeys {
    pub(super) key: PacketKey,
    pub(super) generation: u64,
    pub(super) floor: u64,
    pub(super) seen: Option<NumberSpan>,
}

/// The lowest and highest packet number received in a generation.
#[derive(Clone, Copy)]
pub(super) struct NumberSpan {
    pub(super) lowest: u64,
    pub(super) highest: u64,
}

/// The keys for receiving late packets of the generation before.
pub(super) struct PreviousKeys {
    pub(super) key: PacketKey,
    pub(super) floor: u64,
    pub(super) discard_at: Option<Instant>,
}

/// The generation that a received packet is opened with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyChoice {
    Previous,
    Current,
    Next,
}

impl SendKeys {
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

impl ReceiveKeys {
    /// Returns the lowest packet number above all those seen in this generation and before.
    pub(super) fn next_floor(&self) -> u64 {
        self.seen.map_or(self.floor, |seen| {
            self.floor.max(seen.highest.saturating_add(1))
        })
    }

    #[inline]
    pub(super) fn record(&mut self, pn: u64) {
        let seen = self.seen.get_or_insert(NumberSpan {
            lowest: pn,
            highest: pn,
        });
        seen.lowest = seen.lowest.min(pn);
        seen.highest = seen.highest.max(pn);
    }
}
