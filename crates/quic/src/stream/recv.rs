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
        let complete = self.final_size == Some(arrived);
        if complete {
            self.step(RecvTransition::Complete);
        }
        Ok(Received {
            raised,
            fresh: fresh as u64,
            discarded: 0,
            readable: self.wake(arrived > before || complete),
        })
    }

    /// Handles a RESET_STREAM frame. `credit` as in [`Self::on_data`].
    pub(super) fn on_reset(
        &mut self,
        code: u64,
        final_size: u64,
        credit: u64,
    ) -> Result<Received, TransportError> {
        self.check_final_size(final_size, true)?;
        let raised = self.check_credit(final_size, credit)?;
        if !self.state.is_receiving() {
            return Ok(Received::default());
        }
        self.highest = self.highest.max(final_size);
        self.final_size = Some(final_size);
        self.reset = Some(code);
        self.step(RecvTransition::Reset);
        self.assembler.discard();
        let discarded = self.consume_rest();
        if self.stopped.is_some() {
            self.step(RecvTransition::Told);
        }
        // Also reported if data before it is unread: the application can stop its work for a peer
        // that has given up.
        self.wants_read = false;
        Ok(Received {
            raised,
            fresh: 0,
            discarded,
            readable: self.stopped.is_none(),
        })
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
        let len = self.assembler.read(out);
        if len == 0 && !out.is_empty() {
            return self.read_nothing().map(|()| None);
        }
        self.window.consume(len as u64);
        Ok(Some(len))
    }

    pub(super) fn read_chunk(&mut self, max: usize) -> Result<Option<Bytes>, ReadError> {
        self.check_readable()?;
        if max == 0 {
            return Ok(Some(Bytes::new()));
        }
        let Some(chunk) = self.assembler.read_chunk(max) else {
            return self.read_nothing().map(|()| None);
        };
        self.window.consume(chunk.len() as u64);
        Ok(Some(chunk))
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
mod tests {
    use super::*;
    use crate::time::Instant;

    fn half() -> RecvHalf {
        RecvHalf::new(Window::new(1_000, 10_000, Instant::ZERO))
    }

    fn code<T>(result: Result<T, TransportError>) -> Option<Code> {
        result.err().map(|e| e.code)
    }

    #[test]
    fn end_of_stream_is_read_once_after_all_data() {
        let mut half = half();
        let news = half.on_data(5, true, b"world", 100, 0).unwrap();
        assert_eq!((news.raised, news.readable), (10, false));
        assert_eq!(half.read_chunk(99), Err(ReadError::Blocked));
        assert!(half.on_data(0, false, b"hello", 90, 0).unwrap().readable);
        assert_eq!(half.state(), RecvState::DataRecvd);
        let mut out = [0; 20];
        assert_eq!(half.read(&mut out), Ok(Some(10)));
        assert_eq!(&out[..10], b"helloworld");
        assert_eq!(half.read(&mut out), Ok(None));
        assert_eq!(half.state(), RecvState::DataRead);
        assert_eq!(half.read(&mut out), Err(ReadError::Unknown));
    }

    #[test]
    fn final_size_violations_are_errors() {
        let wrong = Some(Code::FINAL_SIZE_ERROR);
        let mut known = half();
        known.on_data(0, true, b"abc", 100, 0).unwrap();
        assert_eq!(code(known.on_data(3, false, b"d", 100, 0)), wrong);
        assert_eq!(code(known.on_data(0, true, b"ab", 100, 0)), wrong);
        assert_eq!(code(known.on_reset(0, 4, 100)), wrong);
        assert_eq!(code(known.on_reset(0, 3, 100)), None);
        let mut early = half();
        early.on_data(10, false, b"abc", 100, 0).unwrap();
        assert_eq!(code(early.on_data(0, true, b"abc", 100, 0)), wrong);
        assert_eq!(code(early.on_reset(0, 12, 100)), wrong);
    }

    #[test]
    fn flow_control_violations_are_errors() {
        let over = Some(Code::FLOW_CONTROL_ERROR);
        assert_eq!(code(half().on_data(0, false, &[0; 1_001], 5_000, 0)), over);
        assert_eq!(code(half().on_data(0, false, &[0; 100], 99, 0)), over);
        assert_eq!(code(half().on_data(0, false, &[0; 100], 100, 0)), None);
        assert_eq!(
            code(half().on_data(u64::MAX, false, &[0; 100], 99, 0)),
            over
        );
        assert_eq!(code(half().on_data(VARINT_MAX, false, &[0], 99, 0)), over);
        assert_eq!(code(half().on_reset(0, 1_001, 5_000)), over);
        assert_eq!(code(half().on_reset(0, 900, 899)), over);
    }

    #[test]
    fn unread_data_of_reset_stream_returns_credit() {
        let mut half = half();
        half.on_data(0, false, &[0; 100], 500, 0).unwrap();
        assert_eq!(half.read(&mut [0; 30]), Ok(Some(30)));
        let news = half.on_reset(7, 400, 500).unwrap();
        assert_eq!((news.raised, news.discarded), (300, 370));
        assert_eq!(half.read_chunk(9), Err(ReadError::Reset(7)));
        assert!(half.state().is_terminal());
        assert_eq!(half.usage().memory, 0);
    }

    #[test]
    fn reset_with_unread_data_is_reported() {
        let mut half = half();
        assert!(
            half.on_data(0, false, b"unread", 99, usize::MAX)
                .unwrap()
                .readable
        );
        assert!(half.on_reset(7, 6, 99).unwrap().readable);
        assert!(!half.on_reset(7, 6, 99).unwrap().readable, "told once");
        assert_eq!(half.read_chunk(0), Err(ReadError::Reset(7)));
        let mut stopped = RecvHalf::new(Window::new(1_000, 10_000, Instant::ZERO));
        stopped.stop(3);
        assert!(!stopped.on_reset(7, 0, 99).unwrap().readable);
    }

    #[test]
    fn stopped_stream_discards_data_and_counts_credit() {
        let mut half = half();
        half.on_data(0, false, &[0; 100], 500, 0).unwrap();
        assert_eq!(half.stop(3), Some(100));
        assert_eq!(half.stop(3), None);
        assert!(half.wants_stop());
        let news = half.on_data(100, false, &[0; 50], 400, 0).unwrap();
        assert_eq!((news.raised, news.discarded), (50, 50));
        assert_eq!(half.read_chunk(9), Err(ReadError::Unknown));
        half.on_data(150, true, &[], 400, 0).unwrap();
        assert_eq!(half.state(), RecvState::DataRead);
        assert!(!half.wants_stop());
    }

    #[test]
    fn readable_event_is_sent_once_until_read_blocks() {
        let mut half = half();
        assert!(half.on_data(0, false, b"a", 9, 0).unwrap().readable);
        assert!(!half.on_data(1, false, b"b", 9, 0).unwrap().readable);
        assert_eq!(half.read(&mut [0; 9]), Ok(Some(2)));
        assert!(!half.on_data(2, false, b"c", 9, 0).unwrap().readable);
        assert_eq!(half.read(&mut [0; 9]), Ok(Some(1)));
        assert_eq!(half.read(&mut [0; 9]), Err(ReadError::Blocked));
        assert!(half.on_data(3, true, b"", 9, 0).unwrap().readable);
    }
}
