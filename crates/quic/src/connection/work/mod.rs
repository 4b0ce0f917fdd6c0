//! Limits the work that a peer causes without progress.
//!
//! A datagram can contain hundreds of small frames. Each is legal, and makes the receiver
//! look up a stream, wake a writer, queue an answer or create a connection ID; together
//! they cost many times what it costs to send them (RFC 9000 §21.9: "implementations SHOULD
//! track cost of processing relative to progress and treat excessive quantities of any
//! non-productive packets as indicative of an attack").
//!
//! So every frame has a [`FrameCost`], and the connection has a budget for it. Time refills
//! the budget, and so does useful work: stream data that is received or sent for the first
//! time, and streams that are opened. An honest peer's control frames accompany such work.
//! When the budget is exhausted, the connection is closed.
//!
//! Frames with new data cost nothing and are not counted. What they achieved is read from
//! the streams only when the budget is exhausted.

use crate::Instant;
use crate::bucket::Rate;
use crate::error::{Code, TransportError};
use crate::stream::Streams;
use crate::wire::Frame;

/// Bytes of new stream data that earn one unit. A full packet earns some twenty units,
/// about the work of processing the packet itself.
const BYTES_PER_UNIT: u64 = 64;

/// Bytes of stream data that an opened stream counts as: eight units, for its end, reset,
/// stop, credit and blocked frames. The number of streams that a peer may open follows what
/// the application accepts (RFC 9000 §4.6).
const STREAM_WORTH: u64 = 8 * BYTES_PER_UNIT;

/// STREAM frames that repeat at least this many bytes are free: few of them fit into a
/// packet, and a sender that mistakes a delay for a loss repeats a whole window. So are
/// DATAGRAM frames of this size that the application is too slow to read.
pub(crate) const LARGE_DATA: usize = 128;

/// Ranges of an ACK frame that are free: about as many as receivers keep when packets are
/// lost one by one.
const FREE_RANGES: u64 = 64;

/// Ranges per unit in a frame with more. Each takes decoding two integers and looking up
/// packets that are no longer known.
const RANGES_PER_UNIT: u64 = 8;

/// The cost of a frame in units of about the work of looking up a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameCost {
    /// It costs nothing: it carries the application's data, or there cannot be many.
    Free,
    /// Free if it contains new data or is [large](LARGE_DATA), otherwise one unit.
    FreeIfNew,
    /// Free unless it is dropped before the application reads it: then one unit, or none if
    /// it is [large](LARGE_DATA).
    FreeIfDelivered,
    /// The first in a packet is free, since most packets have one; further ones cost this
    /// many units. One that acknowledges nothing new costs more if it has more than
    /// [`FREE_RANGES`].
    FirstFree(u32),
    /// Always this many units.
    Units(u32),
}

impl FrameCost {
    /// Returns the cost of a frame. The match is exhaustive, so a new frame type does not
    /// compile until its cost is decided.
    pub(crate) const fn of(frame: &Frame<'_>) -> Self {
        match frame {
            // A run of PADDING is one frame, and the frames between runs are charged.
            Frame::Padding { .. } => Self::Free,
            // Their queue is bounded, and the oldest go first (RFC 9221 §5).
            Frame::Datagram(_) => Self::FreeIfDelivered,
            // It is the last frame of the connection.
            Frame::ConnectionClose { .. } | Frame::ApplicationClose { .. } => Self::Free,
            Frame::Stream { .. } => Self::FreeIfNew,
            Frame::Ack(_) => Self::FirstFree(4),
            Frame::Ping
            | Frame::MaxData(_)
            | Frame::MaxStreamData { .. }
            | Frame::MaxStreams { .. }
            | Frame::DataBlocked { .. }
            | Frame::StreamDataBlocked { .. }
            | Frame::StreamsBlocked { .. }
            | Frame::PathResponse(_)
            | Frame::HandshakeDone
            | Frame::AckFrequency { .. }
            | Frame::ImmediateAck => Self::Units(1),
            // It causes an event for the application, a frame in response, or a call of
            // TLS.
            Frame::ResetStream { .. }
            | Frame::ResetStreamAt { .. }
            | Frame::StopSending { .. }
            | Frame::Crypto { .. } => Self::Units(2),
            // It causes a response in a datagram of its own, or something to be stored.
            Frame::PathChallenge(_) | Frame::NewToken(_) | Frame::NewConnectionId { .. } => {
                Self::Units(4)
            }
            // It causes a new connection ID with its token, and two changes of the routes.
            Frame::RetireConnectionId { .. } => Self::Units(8),
        }
    }
}

/// Time is counted in ticks of 2^26 ns, about 67 ms: 32 bits of them are nine years.
const TICK_BITS: u32 = 26;

/// The budget for frames without progress. Every connection has one for its whole life, so
/// it is kept small.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkBudget {
    /// Units charged since the connection began.
    charged: u32,
    /// Units that are left.
    left: u32,
    /// When it was last refilled, in ticks.
    filled: u32,
    /// The useful work done until then, in units, modulo 2^32.
    paid: u32,
}

impl WorkBudget {
    /// Creates a full budget.
    pub(crate) fn new(now: Instant, rate: Rate) -> Self {
        Self {
            charged: 0,
            left: rate.burst,
            filled: ticks(now),
            paid: 0,
        }
    }

    /// Returns the units charged since the connection began, up to 2^32 - 1.
    pub(crate) const fn charged(&self) -> u32 {
        self.charged
    }

    /// Charges `units`. Returns false, and charges nothing, if fewer are left.
    pub(crate) const fn charge(&mut self, units: u32) -> bool {
        let Some(left) = self.left.checked_sub(units) else {
            return false;
        };
        self.left = left;
        self.charged = self.charged.saturating_add(units);
        true
    }

    /// Adds what time and useful work (`useful` bytes since the connection began) have
    /// earned since the last call, up to [`Rate::burst`].
    pub(crate) fn fill(&mut self, now: Instant, useful: u64, rate: Rate) {
        let (now, paid) = (ticks(now), (useful / BYTES_PER_UNIT) as u32);
        let elapsed = now.saturating_sub(self.filled);
        let by_time = u64::from(elapsed).saturating_mul(rate.per_second.into());
        let by_time = by_time
            .saturating_mul(1 << TICK_BITS)
            .checked_div(1_000_000_000)
            .unwrap_or(0);
        // The sum decreases when 0-RTT is rejected, because what was sent no longer counts.
        let by_work = paid.wrapping_sub(self.paid).cast_signed().max(0);
        let by_time = u32::try_from(by_time).unwrap_or(u32::MAX);
        let earned = by_time.saturating_add(by_work.unsigned_abs());
        self.left = self.left.saturating_add(earned).min(rate.burst);
        self.filled = self.filled.max(now);
        self.paid = paid;
    }
}

fn ticks(now: Instant) -> u32 {
    (now.as_nanos() >> TICK_BITS) as u32
}

/// The useful work since the connection began, read only when the budget is exhausted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UsefulWork<'a> {
    pub(super) streams: &'a Streams,
    pub(super) bytes_received: u64,
}

impl UsefulWork<'_> {
    /// Returns the useful work in bytes of stream data.
    fn bytes(&self) -> u64 {
        // RESET_STREAM may announce any number of bytes, so bytes received are the limit.
        let arrived = self.streams.bytes_announced().min(self.bytes_received);
        let streams = self.streams.opened().saturating_mul(STREAM_WORTH);
        arrived
            .saturating_add(self.streams.bytes_sent())
            .saturating_add(streams)
    }
}

impl WorkBudget {
    /// Charges `units` to the budget, after refilling it by time at `rate` and by `useful`
    /// work if necessary.
    ///
    /// # Errors
    /// PROTOCOL_VIOLATION if the budget is exhausted. RFC 9000 §21.9 allows to close the
    /// connection and names no code, and no code of §20.1 is about load. INTERNAL_ERROR
    /// would make readers of the peer's log look for a fault at this end.
    pub(super) fn charge_or_refill(
        &mut self,
        now: Instant,
        units: u32,
        rate: Rate,
        useful: UsefulWork<'_>,
    ) -> Result<(), TransportError> {
        if self.charge(units) {
            return Ok(());
        }
        self.fill(now, useful.bytes(), rate);
        if self.charge(units) {
            return Ok(());
        }
        Err(TransportError::new(
            Code::PROTOCOL_VIOLATION,
            "too many frames that transfer no new data",
        ))
    }
}

impl FrameCost {
    /// Returns the units to charge before the frame is processed.
    pub(super) const fn upfront(self, is_first_ack: bool) -> u32 {
        match self {
            Self::Free | Self::FreeIfNew | Self::FreeIfDelivered => 0,
            Self::FirstFree(_) if is_first_ack => 0,
            Self::FirstFree(units) | Self::Units(units) => units,
        }
    }
}

/// Returns the units of a STREAM frame of `len` bytes without new data: empty, or a
/// retransmission.
pub(super) const fn cost_of_repeat(len: usize) -> u32 {
    if len >= LARGE_DATA { 0 } else { 1 }
}

/// Returns the units of an ACK frame of `ranges` ranges that acknowledged nothing new.
pub(super) fn cost_of_ranges(ranges: u64) -> u32 {
    if ranges <= FREE_RANGES {
        return 0;
    }
    u32::try_from(ranges.div_ceil(RANGES_PER_UNIT)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
