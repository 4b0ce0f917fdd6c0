//! ACK frames (RFC 9000 §19.3).

use std::ops::RangeInclusive;

use super::kind;
use crate::error::{Code, TransportError};
use crate::wire::cursor::{TWO_BYTE_VARINT_MAX, VARINT_MAX, two_byte_varint, varint_len};
use crate::wire::{Reader, Writer};

/// How many packets arrived with each ECN codepoint (RFC 9000 §19.3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EcnCounts {
    /// ECN-capable transport, codepoint 0.
    pub ect0: u64,
    /// ECN-capable transport, codepoint 1.
    pub ect1: u64,
    /// Congestion experienced.
    pub ce: u64,
}

impl EcnCounts {
    #[expect(clippy::arithmetic_side_effects, reason = "24 at most")]
    fn size(&self) -> usize {
        varint_len(self.ect0) + varint_len(self.ect1) + varint_len(self.ce)
    }
}

/// A received ACK frame, checked: its ranges are complete and above zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack<'a> {
    /// The highest number acknowledged.
    pub largest: u64,
    /// How long the peer delayed the acknowledgment, in units of 2^`ack_delay_exponent` µs.
    pub delay: u64,
    /// ECN counts, if the peer reports them.
    pub ecn: Option<EcnCounts>,
    /// The lowest number of the range that `largest` ends.
    first_start: u64,
    /// Ranges after the first.
    more: u64,
    /// Gap and length of each of them.
    encoded: &'a [u8],
}

impl<'a> Ack<'a> {
    /// Returns the ranges acknowledged, highest first.
    #[must_use]
    pub fn ranges(&self) -> Ranges<'a> {
        Ranges {
            next: Some(self.first_start..=self.largest),
            more: self.more,
            encoded: Reader::new(self.encoded),
        }
    }

    /// Returns how many ranges there are, at least one.
    #[must_use]
    pub(crate) fn range_count(&self) -> u64 {
        self.more.saturating_add(1)
    }

    /// Returns the delay in microseconds, given the peer's `ack_delay_exponent`. Saturates, because a
    /// peer may send any value.
    #[must_use]
    pub fn delay_micros(&self, exponent: u8) -> u64 {
        1_u64
            .checked_shl(u32::from(exponent))
            .map_or(u64::MAX, |unit| self.delay.saturating_mul(unit))
    }

    /// Reads the fields after the frame type.
    pub(super) fn decode(reader: &mut Reader<'a>, with_ecn: bool) -> Result<Self, TransportError> {
        let truncated = || TransportError::new(Code::FRAME_ENCODING_ERROR, "ACK frame truncated");
        let negative = || {
            TransportError::new(
                Code::FRAME_ENCODING_ERROR,
                "ACK range below packet number zero",
            )
        };
        let largest = reader.varint().ok_or_else(truncated)?;
        let delay = reader.varint().ok_or_else(truncated)?;
        let more = reader.varint().ok_or_else(truncated)?;
        let first_len = reader.varint().ok_or_else(truncated)?;
        let first_start = largest.checked_sub(first_len).ok_or_else(negative)?;
        // Each range takes two bytes at least.
        if more > reader.remaining() as u64 / 2 {
            return Err(truncated());
        }
        let ranges = reader.rest();
        let mut start = first_start;
        for _ in 0..more {
            start = next_range(reader, start)
                .ok_or_else(truncated)?
                .ok_or_else(negative)?
                .0;
        }
        let encoded = before(ranges, reader);
        let ecn = if with_ecn {
            Some(ecn_counts(reader).ok_or_else(truncated)?)
        } else {
            None
        };
        Ok(Self {
            largest,
            delay,
            ecn,
            first_start,
            more,
            encoded,
        })
    }

    /// Packets that the first range acknowledges below `largest`.
    fn first_len(&self) -> u64 {
        self.largest.saturating_sub(self.first_start)
    }

    #[expect(
        clippy::arithmetic_side_effects,
        reason = "five integers and a part of a packet"
    )]
    pub(super) fn size(&self) -> usize {
        1 + varint_len(self.largest)
            + varint_len(self.delay)
            + varint_len(self.more)
            + varint_len(self.first_len())
            + self.encoded.len()
            + self.ecn.as_ref().map_or(0, EcnCounts::size)
    }

    pub(super) fn encode(&self, w: &mut Writer<'_>) {
        write_start(w, self.largest, self.delay, self.ecn.is_some());
        w.varint(self.more);
        w.varint(self.first_len());
        w.bytes(self.encoded);
        write_ecn(w, self.ecn);
    }
}

/// Returns what `reader` has read of `bytes`, at whose front it was.
fn before<'a>(bytes: &'a [u8], reader: &Reader<'_>) -> &'a [u8] {
    let read = bytes.len().saturating_sub(reader.remaining());
    bytes.get(..read).unwrap_or_default()
}

fn ecn_counts(reader: &mut Reader<'_>) -> Option<EcnCounts> {
    Some(EcnCounts {
        ect0: reader.varint()?,
        ect1: reader.varint()?,
        ce: reader.varint()?,
    })
}

/// Reads the range below one that starts at `above`, as (start, end): `None` if
/// the bytes end, `Some(None)` if it would go below zero.
fn next_range(reader: &mut Reader<'_>, above: u64) -> Option<Option<(u64, u64)>> {
    let gap = reader.varint()?;
    let len = reader.varint()?;
    // A gap of zero is one missing packet, a length of zero one packet.
    let end = above.checked_sub(gap).and_then(|end| end.checked_sub(2));
    Some(end.and_then(|end| Some((end.checked_sub(len)?, end))))
}

/// The ranges of an ACK frame in descending order.
#[derive(Clone, Debug)]
pub struct Ranges<'a> {
    next: Option<RangeInclusive<u64>>,
    more: u64,
    encoded: Reader<'a>,
}

impl Iterator for Ranges<'_> {
    type Item = RangeInclusive<u64>;

    fn next(&mut self) -> Option<RangeInclusive<u64>> {
        let range = self.next.take()?;
        if let Some(more) = self.more.checked_sub(1) {
            self.more = more;
            self.next = next_range(&mut self.encoded, *range.start())
                .flatten()
                .map(|(start, end)| start..=end);
        }
        Some(range)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let more = usize::try_from(self.more).unwrap_or(usize::MAX);
        let left = self.next.as_ref().map_or(0, |_| more.saturating_add(1));
        (left, Some(left))
    }
}

/// Largest ACK frame of one range: type, largest, delay, count and length, and
/// three ECN counts.
#[cfg(test)]
pub(crate) const MAX_SIZE_OF_ONE_RANGE: usize = 1 + 8 + 8 + COUNT_SIZE + 8 + 3 * 8;

/// Bytes of the Range Count field as [`encode`] writes it.
const COUNT_SIZE: usize = 2;

/// Most ranges that [`encode`] puts in a frame.
const MAX_RANGES: u16 = TWO_BYTE_VARINT_MAX;

/// Writes an ACK frame with as many of `ranges` as fit into `w`, and returns how many it contains.
/// The ranges must be descending and neither adjacent nor overlapping; even if they are not, no other
/// number is acknowledged. `delay` is in units of our `ack_delay_exponent`. Nothing is written if
/// there is no range, or no room for the first one.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "sizes of a few integers, and a count up to 2^14"
)]
pub(crate) fn encode(
    w: &mut Writer<'_>,
    mut ranges: impl Iterator<Item = RangeInclusive<u64>>,
    delay: u64,
    ecn: Option<EcnCounts>,
) -> usize {
    let Some(first) = ranges.next() else { return 0 };
    let (mut start, largest) = first.into_inner();
    let ecn_size = ecn.as_ref().map_or(0, EcnCounts::size);
    let delay = delay.min(VARINT_MAX);
    let Some(first_len) = largest.checked_sub(start).filter(|_| largest <= VARINT_MAX) else {
        debug_assert!(false, "an impossible first range");
        return 0;
    };
    if start_size(largest, delay, first_len) + ecn_size > w.remaining() {
        return 0;
    }
    write_start(w, largest, delay, ecn.is_some());
    let count_at = w.written();
    w.two_byte_varint(0);
    w.varint(first_len);
    let mut more = 0;
    for range in ranges {
        let Some((gap, len)) = below(start, &range) else {
            debug_assert!(false, "ranges descend with gaps");
            break;
        };
        let fits = varint_len(gap) + varint_len(len) + ecn_size <= w.remaining();
        if !fits || more == MAX_RANGES {
            break;
        }
        w.varint(gap);
        w.varint(len);
        start = *range.start();
        more += 1;
    }
    let count = w.filled_mut().get_mut(count_at..);
    if let (Some(count), Some(more)) = (
        count.and_then(<[u8]>::first_chunk_mut),
        two_byte_varint(more),
    ) {
        *count = more;
    }
    write_ecn(w, ecn);
    usize::from(more) + 1
}

/// Returns the number of bytes of a frame of one range, ECN counts aside.
#[expect(clippy::arithmetic_side_effects, reason = "27 at most")]
fn start_size(largest: u64, delay: u64, first_len: u64) -> usize {
    1 + varint_len(largest) + varint_len(delay) + COUNT_SIZE + varint_len(first_len)
}

/// Returns the Gap and the length of `range` below a range that starts at `above`
/// (RFC 9000 §19.3.1).
#[inline]
fn below(above: u64, range: &RangeInclusive<u64>) -> Option<(u64, u64)> {
    let gap = above.checked_sub(*range.end())?.checked_sub(2)?;
    Some((gap, range.end().checked_sub(*range.start())?))
}

fn write_start(w: &mut Writer<'_>, largest: u64, delay: u64, with_ecn: bool) {
    w.varint(if with_ecn { kind::ACK_ECN } else { kind::ACK });
    w.varint(largest);
    w.varint(delay);
}

fn write_ecn(w: &mut Writer<'_>, ecn: Option<EcnCounts>) {
    if let Some(ecn) = ecn {
        w.varint(ecn.ect0);
        w.varint(ecn.ect1);
        w.varint(ecn.ce);
    }
}
