//! Work that a peer asks for without moving the connection on.
//!
//! A datagram holds hundreds of small frames. Each is legal, and makes us look a stream
//! up, wake a writer, queue an answer or make a connection ID; together they cost us
//! many times what it costs to send them (RFC 9000 §21.9: "implementations SHOULD track
//! cost of processing relative to progress and treat excessive quantities of any
//! non-productive packets as indicative of an attack").
//!
//! So every frame has a [`FrameCost`], and the connection has a budget to pay it from. Time
//! fills the budget, and so does useful work: stream data that arrives or leaves for
//! the first time, and streams that are opened. An honest peer's control frames
//! come with such work. Where the budget is empty, the connection ends.
//!
//! Frames with new data pay nothing and count nothing: what they have achieved is read
//! off the streams only when the budget has run out.

use crate::Instant;
use crate::bucket::Rate;
use crate::error::{Code, TransportError};
use crate::stream::Streams;
use crate::wire::Frame;

/// Bytes of new stream data that pay for one unit. A full packet pays for some twenty
/// units, which is about the work that the packet itself was.
const BYTES_PER_UNIT: u64 = 64;

/// What a stream that is opened counts for, in bytes of stream data: eight units, for
/// its end, reset, stop, credit and blocked frames. How many streams a peer may open
/// follows what the application takes (RFC 9000 §4.6).
const STREAM_WORTH: u64 = 8 * BYTES_PER_UNIT;

/// STREAM frames that repeat at least so many bytes are free: few of them fit into a
/// packet, and a sender that takes a delay for a loss repeats a whole window of them. So
/// are DATAGRAM frames of so many bytes that the application is too slow for.
pub(crate) const LARGE_DATA: usize = 128;

/// Ranges of an ACK frame that are free: about as many as receivers keep whose packets
/// are lost one by one.
const FREE_RANGES: u64 = 64;

/// So many ranges make a unit. Each is two integers and a look at packets of which
/// nothing is known any more.
const RANGES_PER_UNIT: u64 = 8;

/// What a frame costs, in units: one is about the work of looking a stream up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameCost {
    /// It carries data of the application's, or there can't be many of it.
    Free,
    /// Free if it brings something new or is [large](LARGE_DATA), otherwise one unit.
    FreeIfNew,
    /// Free unless it is dropped before the application takes it: then one unit, or
    /// none if it is [large](LARGE_DATA).
    FreeIfDelivered,
    /// The first in a packet is free, since most packets have one; further ones cost
    /// so many units. What acknowledges nothing new costs more if it has more than
    /// [`FREE_RANGES`].
    FirstFree(u32),
    /// Always so many units.
    Units(u32),
}

impl FrameCost {
    /// The price of a frame. Every type has its arm: a new one does not compile until
    /// somebody decides what it costs.
    pub(crate) const fn of(frame: &Frame<'_>) -> Self {
        match frame {
            // A run of PADDING is one frame, and what separates runs is charged.
            Frame::Padding { .. } => Self::Free,
            // Their queue is bounded, and the oldest go first (RFC 9221 §5).
            Frame::Datagram(_) => Self::FreeIfDelivered,
            // Nothing follows it.
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
            // An event for the application, a frame in answer, or a call of TLS.
            Frame::ResetStream { .. } | Frame::StopSending { .. } | Frame::Crypto { .. } => {
                Self::Units(2)
            }
            // An answer in a datagram of its own, or something to keep.
            Frame::PathChallenge(_) | Frame::NewToken(_) | Frame::NewConnectionId { .. } => {
                Self::Units(4)
            }
            // A new connection ID with its token, and two changes of the routes.
            Frame::RetireConnectionId { .. } => Self::Units(8),
        }
    }
}

/// Time is counted in steps of 2^26 ns, about 67 ms: 32 bits of them are nine years.
const TICK_BITS: u32 = 26;

/// What frames without progress may still cost. Every connection has one for as long as
/// it lives, so it is kept small.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkBudget {
    /// Units charged since the connection began.
    charged: u32,
    /// Units that are left.
    left: u32,
    /// When it was last filled, in ticks.
    filled: u32,
    /// The useful work that had been done by then, in units, modulo 2^32.
    paid: u32,
}

impl WorkBudget {
    /// A full one.
    pub(crate) fn new(now: Instant, rate: Rate) -> Self {
        Self {
            charged: 0,
            left: rate.burst,
            filled: ticks(now),
            paid: 0,
        }
    }

    /// Units charged since the connection began, up to 2^32 - 1.
    pub(crate) const fn charged(&self) -> u32 {
        self.charged
    }

    /// Charges `units`; false, and nothing is taken, if so many are not left.
    pub(crate) const fn charge(&mut self, units: u32) -> bool {
        let Some(left) = self.left.checked_sub(units) else {
            return false;
        };
        self.left = left;
        self.charged = self.charged.saturating_add(units);
        true
    }

    /// Adds what time and useful work, `useful` bytes since the connection began, have
    /// earned since the last time, up to [`Rate::burst`].
    pub(crate) fn fill(&mut self, now: Instant, useful: u64, rate: Rate) {
        let (now, paid) = (ticks(now), (useful / BYTES_PER_UNIT) as u32);
        let elapsed = now.saturating_sub(self.filled);
        let by_time = u64::from(elapsed).saturating_mul(rate.per_second.into());
        let by_time = by_time
            .saturating_mul(1 << TICK_BITS)
            .checked_div(1_000_000_000)
            .unwrap_or(0);
        // The sum falls when 0-RTT is refused: what was sent counts no more.
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

/// What has been achieved since the connection began, read only when the budget has
/// run out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UsefulWork<'a> {
    pub(super) streams: &'a Streams,
    pub(super) bytes_received: u64,
}

impl UsefulWork<'_> {
    /// In bytes of stream data.
    fn bytes(&self) -> u64 {
        // A RESET_STREAM may tell of any number of bytes; no more came than came.
        let arrived = self.streams.bytes_announced().min(self.bytes_received);
        let streams = self.streams.opened().saturating_mul(STREAM_WORTH);
        arrived
            .saturating_add(self.streams.bytes_sent())
            .saturating_add(streams)
    }
}

impl WorkBudget {
    /// Takes `units` from the budget, which time at `rate` and `useful` work fill.
    ///
    /// # Errors
    /// PROTOCOL_VIOLATION if it is empty. RFC 9000 §21.9 allows to end the connection
    /// and names no code, and none of §20.1 is about load. INTERNAL_ERROR would send
    /// whoever reads the peer's log to look for a fault of ours.
    pub(super) fn pay(
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
    /// Units charged before anything is known of what the frame brings.
    pub(super) const fn upfront(self, is_first_ack: bool) -> u32 {
        match self {
            Self::Free | Self::FreeIfNew | Self::FreeIfDelivered => 0,
            Self::FirstFree(_) if is_first_ack => 0,
            Self::FirstFree(units) | Self::Units(units) => units,
        }
    }
}

/// Units of a STREAM frame with `len` bytes that brought nothing new: empty, or a
/// repetition.
pub(super) const fn cost_of_repeat(len: usize) -> u32 {
    if len >= LARGE_DATA { 0 } else { 1 }
}

/// Units of an ACK frame of so many ranges that acknowledged nothing new.
pub(super) fn cost_of_ranges(ranges: u64) -> u32 {
    if ranges <= FREE_RANGES {
        return 0;
    }
    u32::try_from(ranges.div_ceil(RANGES_PER_UNIT)).unwrap_or(u32::MAX)
}

#[cfg(test)]
#[path = "work_tests.rs"]
mod tests;
