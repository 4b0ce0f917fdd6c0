//! One packet number space.

use crate::raw::assembler::Assembler;
use crate::wire::put_varint;

/// Most ranges in an ACK frame, and most that are remembered.
const MAX_RANGES: usize = 32;

/// A packet number space.
#[derive(Debug, Default)]
pub(super) struct Space {
    pub(super) next_number: u64,
    pub(super) largest_received: Option<u64>,
    /// Received packet numbers, largest first.
    received: Vec<(u64, u64)>,
    pub(super) ack_due: bool,
    pub(super) crypto_sent: u64,
    pub(super) crypto_received: Assembler,
}

impl Space {
    /// Records a packet number. Returns whether it is new.
    pub(super) fn on_received(&mut self, number: u64) -> bool {
        if self
            .received
            .iter()
            .any(|(low, high)| (*low..=*high).contains(&number))
        {
            return false;
        }
        self.largest_received = self.largest_received.max(Some(number));
        self.received.push((number, number));
        self.received.sort_unstable_by(|a, b| b.cmp(a));
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (low, high) in self.received.drain(..) {
            match merged.last_mut() {
                Some(last) if high + 1 == last.0 => last.0 = low,
                Some(_) | None => merged.push((low, high)),
            }
        }
        merged.truncate(MAX_RANGES);
        self.received = merged;
        true
    }

    /// Returns an ACK frame of what was received, if anything was.
    pub(super) fn ack_frame(&self) -> Option<Vec<u8>> {
        let mut ranges = self.received.iter();
        let (low, high) = ranges.next()?;
        let mut out = Vec::new();
        put_varint(&mut out, 0x02);
        put_varint(&mut out, *high);
        put_varint(&mut out, 0);
        put_varint(&mut out, ranges.len() as u64);
        put_varint(&mut out, high - low);
        let mut smallest = *low;
        for (low, high) in ranges {
            put_varint(&mut out, smallest - high - 2);
            put_varint(&mut out, high - low);
            smallest = *low;
        }
        Some(out)
    }
}
