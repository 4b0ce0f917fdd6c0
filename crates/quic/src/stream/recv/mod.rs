//! The receiving half of a stream (RFC 9000 §3.2, §4.1, §4.5).

use bytes::Bytes;

use super::assembler::Assembler;
use super::state::{RecvState, RecvTransition};
use super::window::Window;
use crate::error::{Code, TransportError};
use crate::wire::cursor::VARINT_MAX;

/// Why a read returned no data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// No data is available; a [`Readable`](super::StreamEvent::Readable) event follows.
    #[error("no data available yet")]
    Blocked,
    /// The peer reset the stream with this application error code.
    #[error("the peer reset the stream with code {0}")]
    Reset(u64),
    /// There is no such stream, its end was read, or it was stopped.
    #[error("unknown stream, or already read to its end")]
    Unknown,
}

/// The changes by a frame, for the accounts of the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Received {
    /// Bytes by which the highest offset rose.
    pub(super) raised: u64,
    /// Bytes that had not arrived before.
    pub(super) fresh: u64,
    /// Bytes that will not be read and count as consumed.
    pub(super) discarded: u64,
    /// Whether to report the stream as readable.
    pub(super) readable: bool,
}

/// The content of one receive buffer, or the sum over all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BufferUsage {
    /// Bytes allocated.
    pub(super) memory: usize,
    /// Bytes buffered for the application.
    pub(super) stored: usize,
    /// Number of pieces behind gaps.
    pub(super) pieces: usize,
}

impl BufferUsage {
    /// Returns the same after a half that held `before` has come to hold `after`.
    #[must_use]
    pub(super) fn changed(self, before: Self, after: Self) -> Self {
        let step = |all: usize, before: usize, after| {
            debug_assert!(all >= before, "{all} in all, {before} of one");
            all.saturating_sub(before).saturating_add(after)
        };
        Self {
            memory: step(self.memory, before.memory, after.memory),
            stored: step(self.stored, before.stored, after.stored),
            pieces: step(self.pieces, before.pieces, after.pieces),
        }
    }
}

/// The receiving half.
#[derive(Debug)]
pub(super) struct RecvHalf {
    state: RecvState,
    assembler: Assembler,
    pub(super) window: Window,
    /// Highest offset received.
    highest: u64,
    final_size: Option<u64>,
    /// The peer's error code, if it has reset the stream.
    reset: Option<u64>,
    /// Offset from which on nothing is delivered, because of a reset.
    reliable: u64,
    /// Our error code, if the application has stopped the stream.
    stopped: Option<u64>,
    /// Whether the last read returned `Blocked`, or there was none.
    wants_read: bool,
    /// Whether the next packet should carry the current limit.
    pub(super) urgent_credit: bool,
}

impl RecvHalf {
    /// Frees unused memory.
    pub(super) fn release_memory(&mut self) {
        self.assembler.release_memory();
    }

    pub(super) fn new(window: Window) -> Self {
        Self {
            state: RecvState::Recv,
            assembler: Assembler::default(),
            window,
            highest: 0,
            final_size: None,
            reset: None,
            reliable: u64::MAX,
            stopped: None,
            wants_read: true,
            urgent_credit: false,
        }
    }

    /// Resets the half for another stream and keeps its allocations.
    pub(super) fn reuse(&mut self, window: Window) {
        let assembler = core::mem::take(&mut self.assembler);
        *self = Self {
            assembler,
            ..Self::new(window)
        };
    }

    /// Frees the buffers of a finished half, except what [`reuse`](Self::reuse) needs.
    pub(super) fn clear(&mut self) {
        self.assembler.clear();
    }

    pub(super) const fn state(&self) -> RecvState {
        self.state
    }

    /// Returns what its buffer holds.
    pub(super) fn usage(&self) -> BufferUsage {
        BufferUsage {
            memory: self.assembler.memory(),
            stored: self.assembler.stored(),
            pieces: self.assembler.pieces(),
        }
    }

    /// Returns the highest offset received, or the final size.
    pub(super) const fn highest(&self) -> u64 {
        self.highest
    }

    pub(super) const fn stop_code(&self) -> Option<u64> {
        self.stopped
    }

    /// Handles a STREAM frame. `credit` is the remaining credit of the connection, `spare` the memory
    /// that may be used for larger blocks, in bytes.
    pub(super) fn on_data(
        &mut self,
        offset: u64,
        fin: bool,
        data: &[u8],
        credit: u64,
        spare: usize,
    ) -> Result<Received, TransportError> {
        let end = offset
            .checked_add(data.len() as u64)
            .filter(|&end| end <= VARINT_MAX)
            .ok_or_else(|| flow_control("stream data beyond offset 2^62 - 1"))?;
        self.check_final_size(end, fin)?;
        let raised = self.check_credit(end, credit)?;
        if !self.state.is_receiving() {
            return Ok(Received::default());
        }
        self.highest = self.highest.max(end);
        if fin {
            self.final_size = Some(end);
            self.step(RecvTransition::Fin);
        }
        if self.stopped.is_some() {
            return Ok(self.drop_data(raised));
        }
        let data = self.reliable_part(offset, data);
        let before = self.assembler.contiguous();
        // Unused room only helps later data.
        let spare = if fin { 0 } else { spare };
        let held = self.assembler.stored();
        let fresh = self.assembler.insert(offset, data, spare);
        debug_assert_eq!(
            self.assembler.stored().wrapping_sub(held),
            fresh,
            "bytes kept, bytes said to be new"
        );
        let arrived = self.assembler.contiguous();
        let complete = self.final_size == Some(arrived) && self.reset.is_none();
        if complete {
            self.step(RecvTransition::Complete);
        }
        let reset = self.finish_reset();
        Ok(Received {
            raised,
            fresh: fresh as u64,
            discarded: 0,
            readable: self.wake(arrived > before || complete) || reset,
        })
    }

    /// Handles a RESET_STREAM frame. `credit` as in [`Self::on_data`].
    pub(super) fn on_reset(
        &mut self,
        code: u64,
        final_size: u64,
        credit: u64,
    ) -> Result<Received, TransportError> {
        self.on_reset_at(code, final_size, 0, credit)
    }

    /// Handles a RESET_STREAM_AT frame: what lies before `reliable` is still delivered. Of several
    /// such frames the smallest offset counts.
    pub(super) fn on_reset_at(
        &mut self,
        code: u64,
        final_size: u64,
        reliable: u64,
        credit: u64,
    ) -> Result<Received, TransportError> {
        self.check_final_size(final_size, true)?;
        let raised = self.check_credit(final_size, credit)?;
        if !self.state.is_receiving() {
            return Ok(Received::default());
        }
        if self.reset.is_some_and(|before| before != code) {
            let reason = "the error code of a reset changed";
            return Err(TransportError::new(Code::STREAM_STATE_ERROR, reason));
        }
        self.highest = self.highest.max(final_size);
        self.final_size = Some(final_size);
        self.reset = Some(code);
        self.reliable = match self.stopped {
            Some(_) => 0,
            None => self.reliable.min(reliable),
        };
        self.step(RecvTransition::Fin);
        let discarded = self.consume_unreliable();
        let ended = self.finish_reset();
        if ended && self.stopped.is_some() {
            self.step(RecvTransition::Told);
        }
        Ok(Received {
            raised,
            fresh: 0,
            discarded,
            readable: ended && self.stopped.is_none(),
        })
    }

    /// Ends the receiving of a stream that was reset, once everything before the reliable offset
    /// has arrived. Returns whether it did.
    fn finish_reset(&mut self) -> bool {
        let arrived = self.assembler.contiguous() >= self.reliable;
        if self.reset.is_none() || !arrived || !self.state.is_receiving() {
            return false;
        }
        self.step(RecvTransition::Reset);
        self.drop_unreliable();
        // Also reported if data before it is unread: the application can stop its work for a peer
        // that has given up.
        self.wants_read = false;
        true
    }

    /// Drops what lies behind the reliable offset, once everything before it was read.
    fn drop_unreliable(&mut self) {
        if self.state == RecvState::ResetRecvd && self.assembler.offset() >= self.reliable {
            self.assembler.discard();
        }
    }

    /// Returns the part of data that is delivered although the stream was reset.
    fn reliable_part<'a>(&self, offset: u64, data: &'a [u8]) -> &'a [u8] {
        let len = usize::try_from(self.reliable.saturating_sub(offset)).unwrap_or(usize::MAX);
        data.get(..len).unwrap_or(data)
    }

    /// Returns how many of `max` bytes may be read before the reliable offset.
    fn readable_part(&self, max: usize) -> usize {
        let left = self.reliable.saturating_sub(self.assembler.offset());
        max.min(usize::try_from(left).unwrap_or(usize::MAX))
    }

    /// Counts what will not be read because of a reset as consumed, and returns how much that adds.
    fn consume_unreliable(&mut self) -> u64 {
        let unread = self.reliable.saturating_sub(self.assembler.offset());
        let counted = self.window.consumed().saturating_add(unread);
        let rest = self.highest.saturating_sub(counted);
        self.window.consume(rest);
        rest
    }

    /// Stops reading. Returns the number of bytes that count as consumed by this, or `None` if the
    /// stream was already stopped.
    pub(super) fn stop(&mut self, code: u64) -> Option<u64> {
        if self.stopped.is_some() || self.state.is_terminal() {
            return None;
        }
        self.stopped = Some(code);
        self.assembler.discard();
        match self.state {
            // Nobody reads what is still missing before the reliable offset.
            RecvState::SizeKnown if self.reset.is_some() => {
                self.step(RecvTransition::Reset);
                self.step(RecvTransition::Told);
            }
            RecvState::Recv | RecvState::SizeKnown => {}
            RecvState::DataRecvd | RecvState::ResetRecvd => self.step(RecvTransition::Told),
            RecvState::DataRead | RecvState::ResetRead => {}
        }
        Some(self.consume_rest())
    }

    /// Returns whether to send STOP_SENDING: only while the peer may still send (RFC 9000 §3.5).
    pub(super) fn wants_stop(&self) -> bool {
        self.stopped.is_some() && self.state.is_receiving()
    }

    /// Returns whether the peer can use new credit (RFC 9000 §3.2).
    pub(super) fn wants_credit(&self) -> bool {
        self.state == RecvState::Recv && self.stopped.is_none()
    }

    /// Marks the half, so that the next packet carries its limit, if the peer may soon be out of
    /// credit. Returns whether it was not marked before.
    pub(super) fn mark_urgent_credit(&mut self) -> bool {
        let news = !self.urgent_credit && self.wants_credit() && self.window.is_short(self.highest);
        self.urgent_credit |= news;
        news
    }

    pub(super) fn read(&mut self, out: &mut [u8]) -> Result<Option<usize>, ReadError> {
        self.check_readable()?;
        let room = self.readable_part(out.len());
        let len = self.assembler.read(out.get_mut(..room).unwrap_or_default());
        if len == 0 && !out.is_empty() {
            return self.read_nothing().map(|()| None);
        }
        self.window.consume(len as u64);
        self.drop_unreliable();
        Ok(Some(len))
    }

    pub(super) fn read_chunk(&mut self, max: usize) -> Result<Option<Bytes>, ReadError> {
        self.check_readable()?;
        if max == 0 {
            return Ok(Some(Bytes::new()));
        }
        let Some(chunk) = self.assembler.read_chunk(self.readable_part(max)) else {
            return self.read_nothing().map(|()| None);
        };
        self.window.consume(chunk.len() as u64);
        self.drop_unreliable();
        Ok(Some(chunk))
    }

    /// Tells the end if all data was read, and returns whether it did.
    pub(super) fn take_end(&mut self) -> bool {
        let is_over = self.state == RecvState::DataRecvd && !self.assembler.is_readable();
        if is_over {
            self.step(RecvTransition::Told);
        }
        is_over
    }

    /// Returns whether there is data to read; false at the end.
    pub(super) fn peek(&mut self) -> Result<bool, ReadError> {
        self.check_readable()?;
        let data = self.assembler.is_readable();
        if data || self.state == RecvState::DataRecvd {
            return Ok(data);
        }
        self.wants_read = true;
        Err(ReadError::Blocked)
    }

    fn check_readable(&mut self) -> Result<(), ReadError> {
        if self.stopped.is_some() {
            return Err(ReadError::Unknown);
        }
        match self.state {
            RecvState::Recv | RecvState::SizeKnown | RecvState::DataRecvd => Ok(()),
            RecvState::DataRead => Err(ReadError::Unknown),
            RecvState::ResetRecvd if self.assembler.offset() < self.reliable => Ok(()),
            RecvState::ResetRecvd => {
                self.step(RecvTransition::Told);
                Err(ReadError::Reset(self.reset.unwrap_or(0)))
            }
            RecvState::ResetRead => Err(ReadError::Reset(self.reset.unwrap_or(0))),
        }
    }

    /// Handles a read without data: the end if everything was read, otherwise `Blocked`.
    fn read_nothing(&mut self) -> Result<(), ReadError> {
        if self.state == RecvState::DataRecvd {
            self.step(RecvTransition::Told);
            return Ok(());
        }
        self.wants_read = true;
        Err(ReadError::Blocked)
    }

    /// Checks that a known final size neither changes nor is exceeded (RFC 9000 §4.5).
    fn check_final_size(&self, end: u64, is_final: bool) -> Result<(), TransportError> {
        let wrong = |reason| Err(TransportError::new(Code::FINAL_SIZE_ERROR, reason));
        match self.final_size {
            Some(size) if end > size => wrong("stream data past the final size"),
            Some(size) if is_final && end != size => wrong("the final size changed"),
            None if is_final && end < self.highest => wrong("final size below data received"),
            Some(_) | None => Ok(()),
        }
    }

    /// Checks flow control (RFC 9000 §4.1). Returns by how much `end` raises the highest offset.
    fn check_credit(&self, end: u64, credit: u64) -> Result<u64, TransportError> {
        let raised = end.saturating_sub(self.highest);
        if end > self.window.granted() {
            return Err(flow_control("more stream data than MAX_STREAM_DATA allows"));
        }
        if raised > credit {
            return Err(flow_control("more data than MAX_DATA allows"));
        }
        Ok(raised)
    }

    /// Discards data of a stopped stream, which counts for flow control only.
    fn drop_data(&mut self, raised: u64) -> Received {
        if self.final_size.is_some() {
            self.step(RecvTransition::Complete);
            self.step(RecvTransition::Told);
        }
        Received {
            raised,
            fresh: 0,
            discarded: self.consume_rest(),
            readable: false,
        }
    }

    /// Counts all that was received as consumed and returns how much that adds.
    fn consume_rest(&mut self) -> u64 {
        let rest = self.highest.saturating_sub(self.window.consumed());
        self.window.consume(rest);
        rest
    }

    fn wake(&mut self, news: bool) -> bool {
        news && core::mem::take(&mut self.wants_read)
    }

    fn step(&mut self, step: RecvTransition) {
        let next = self.state.after(step);
        debug_assert!(next.is_ok(), "{:?} in {:?}", step, self.state);
        self.state = next.unwrap_or(self.state);
    }
}

fn flow_control(reason: &'static str) -> TransportError {
    TransportError::new(Code::FLOW_CONTROL_ERROR, reason)
}

#[cfg(test)]
mod tests;
