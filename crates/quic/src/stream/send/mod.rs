//! The sending half of a stream (RFC 9000 §3.1).

use core::num::NonZeroU64;

use bytes::Bytes;

use super::ranges::Span;
use super::schedule::Priority;
use super::send_buffer::SendBuffer;
use super::sending::HalfAccounts;
use super::state::{SendState, SendTransition};

/// Why a write was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The send buffer is full; a [`Writable`](super::StreamEvent::Writable) event follows.
    #[error("the send buffer is full")]
    Blocked,
    /// The peer stopped the stream with this application error code.
    #[error("the peer stopped the stream with code {0}")]
    Stopped(u64),
    /// There is no such stream, it was reset, or it was delivered completely.
    #[error("unknown stream, or sending has already ended")]
    Unknown,
    /// The stream was finished.
    #[error("the stream is already finished")]
    Finished,
}

/// Bytes that every stream may buffer, whatever the others use. It may also buffer as much beyond
/// the peer's credit, so that data can be sent as soon as new credit arrives.
pub(super) const MIN_STREAM_BUFFER: u64 = 16 << 10;

/// How much may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WriteBudget {
    /// Free bytes of the budget that all streams share.
    pub(super) room: u64,
    /// Free bytes of the limit on all buffered data.
    pub(super) left: u64,
    /// Bytes that every stream may buffer, whatever the others use, within `left`.
    pub(super) private: u64,
    /// A quarter of the shared budget. Writers are woken when this much is free.
    pub(super) quarter: u64,
}

impl WriteBudget {
    /// Returns whether enough is free to wake writers.
    pub(super) fn is_roomy(&self) -> bool {
        self.room >= self.quarter.max(1)
    }
}

/// The state of a stream in the schedules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ScheduleState {
    /// Can send without connection credit: a retransmission or the end alone.
    pub(super) free: bool,
    /// Can send new data, given connection credit.
    pub(super) paid: bool,
    /// Has data that waits for stream credit.
    pub(super) stalled: bool,
}

/// How much of the data written on a stream was sent and acknowledged. All values are offsets in
/// bytes: `acked` ≤ `sent` ≤ `written`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendProgress {
    /// Bytes acknowledged, including those after lost data.
    pub acked: u64,
    /// Bytes sent at least once.
    pub sent: u64,
    /// Bytes written.
    pub written: u64,
    /// The peer's limit (RFC 9000 §4.1): beyond it nothing is sent.
    pub limit: u64,
}

impl SendProgress {
    /// Returns whether data waits for the peer to raise the stream's limit.
    #[must_use]
    pub const fn is_stalled(&self) -> bool {
        self.sent < self.written && self.sent >= self.limit
    }
}

/// The sending half.
#[derive(Debug)]
pub(super) struct SendHalf {
    state: SendState,
    pub(super) buffer: SendBuffer,
    pub(super) priority: Priority,
    /// The peer's limit on offsets.
    max_data: u64,
    /// The limit in the last STREAM_DATA_BLOCKED.
    pub(super) blocked_at: Option<u64>,
    /// The code of the reset, if `state` says that there was one.
    reset: u64,
    /// Offset up to which data is delivered although the stream was reset.
    reliable: u64,
    /// Whether RESET_STREAM_AT is acknowledged.
    reset_acked: bool,
    /// Whether the peer stopped it, with the code of the reset.
    stopped: bool,
    /// Whether the last write returned `Blocked`.
    pub(super) wants_write: bool,
    /// Its position in the connection's queue of writers.
    pub(super) ticket: Option<NonZeroU64>,
    /// Its state in the schedules.
    pub(super) schedule_state: ScheduleState,
    /// What the connection's accounts contain of it.
    pub(super) accounts: HalfAccounts,
}

impl SendHalf {
    pub(super) fn new(max_data: u64) -> Self {
        Self {
            state: SendState::Ready,
            buffer: SendBuffer::new(),
            priority: Priority::default(),
            max_data,
            blocked_at: None,
            reset: 0,
            reliable: 0,
            reset_acked: false,
            stopped: false,
            wants_write: false,
            ticket: None,
            schedule_state: ScheduleState::default(),
            accounts: HalfAccounts::default(),
        }
    }

    /// Resets the half for another stream and keeps its allocations.
    pub(super) fn reuse(&mut self, max_data: u64) {
        let buffer = core::mem::replace(&mut self.buffer, SendBuffer::new());
        *self = Self {
            buffer,
            ..Self::new(max_data)
        };
    }

    /// Frees the buffers of a finished half, except what [`reuse`](Self::reuse) needs.
    pub(super) fn clear(&mut self) {
        self.buffer.clear();
    }

    pub(super) const fn state(&self) -> SendState {
        self.state
    }

    pub(super) const fn max_data(&self) -> u64 {
        self.max_data
    }

    pub(super) const fn reset_code(&self) -> Option<u64> {
        match self.state {
            SendState::ResetSent | SendState::ResetAcked => Some(self.reset),
            SendState::Ready | SendState::Sending | SendState::DataSent | SendState::DataAcked => {
                None
            }
        }
    }

    /// Raises the peer's limit. Returns false if it is not higher than before.
    pub(super) fn raise_max_data(&mut self, limit: u64) -> bool {
        let news = limit > self.max_data;
        self.max_data = self.max_data.max(limit);
        news
    }

    pub(super) fn progress(&self) -> SendProgress {
        SendProgress {
            acked: self.buffer.base().saturating_add(self.buffer.acked_ahead()),
            sent: self.buffer.sent(),
            written: self.buffer.end(),
            limit: self.max_data,
        }
    }

    /// Returns the number of bytes held until acknowledged.
    #[inline]
    pub(super) fn held(&self) -> u64 {
        self.buffer.end().saturating_sub(self.buffer.base())
    }

    /// Returns the number of bytes acknowledged, or discarded by a reset.
    pub(super) fn delivered(&self) -> u64 {
        let base = self.buffer.base();
        base.saturating_add(self.buffer.acked_ahead())
    }

    /// Returns the number of bytes held that count against the connection's budget: those that the
    /// peer allows to send.
    /// The rest, at most [`MIN_STREAM_BUFFER`], does not, so that streams whose peer reads
    /// slowly can't take the buffers of the others.
    ///
    /// Data acknowledged after a loss does not count either, otherwise the writer would pause each
    /// time that a retransmission is lost too. But at least half counts, so that a peer which
    /// acknowledges all but one byte cannot make us hold more than twice the budget.
    #[inline]
    pub(super) fn charge(&self) -> u64 {
        let held = self
            .buffer
            .end()
            .min(self.max_data)
            .saturating_sub(self.buffer.base());
        held.saturating_sub(self.buffer.acked_ahead()).max(held / 2)
    }

    /// Returns the number of unsent bytes within stream credit.
    #[inline]
    pub(super) fn ready(&self) -> u64 {
        if !self.has_data() {
            return 0;
        }
        let paid = self.buffer.end().min(self.max_data);
        paid.saturating_sub(self.buffer.sent())
    }

    /// Returns the number of bytes that may be written now.
    pub(super) fn writable_bytes(&self, shared: &WriteBudget) -> u64 {
        let credit = self.max_data.saturating_sub(self.buffer.end());
        let beyond = self.buffer.end().saturating_sub(self.max_data);
        let private = shared.private.saturating_sub(self.held());
        let room = if credit <= shared.room {
            credit.saturating_add(MIN_STREAM_BUFFER.saturating_sub(beyond))
        } else {
            shared.room
        };
        room.max(private).min(shared.left)
    }

    /// Returns whether to wake a blocked writer.
    pub(super) fn is_worth_writing(&self, shared: &WriteBudget) -> bool {
        if shared.is_roomy() {
            self.writable_bytes(shared) >= (MIN_STREAM_BUFFER / 2).min(shared.quarter).max(1)
        } else {
            self.held() <= shared.private / 2 && shared.left >= shared.private / 2
        }
    }

    /// Checks that the application may write.
    pub(super) fn check_writable(&self) -> Result<(), WriteError> {
        if self.stopped {
            return Err(WriteError::Stopped(self.reset));
        }
        match self.state {
            SendState::Ready | SendState::Sending | SendState::DataSent => {
                if self.buffer.is_finished() {
                    Err(WriteError::Finished)
                } else {
                    Ok(())
                }
            }
            SendState::DataAcked => Err(WriteError::Finished),
            SendState::ResetSent | SendState::ResetAcked => Err(WriteError::Unknown),
        }
    }

    pub(super) fn write(&mut self, data: &[u8]) {
        self.buffer.write(data);
    }

    pub(super) fn write_chunk(&mut self, chunk: Bytes) {
        self.buffer.write_chunk(chunk);
    }

    /// Resets the stream. Returns false if it was already finished.
    pub(super) fn reset(&mut self, code: u64) -> bool {
        if !self.is_active() {
            return false;
        }
        self.step(SendTransition::Reset);
        self.reset = code;
        self.wants_write = false;
        self.buffer.discard();
        true
    }

    /// Resets the stream, but still delivers what was written before `reliable`
    /// (draft-ietf-quic-reliable-stream-reset §5). Returns false if it was already finished.
    pub(super) fn reset_at(&mut self, code: u64, reliable: u64) -> bool {
        let reliable = reliable.min(self.buffer.end());
        let is_acked = reliable <= self.buffer.base();
        if !self.is_active() {
            return false;
        }
        self.step(SendTransition::Reset);
        self.reset = code;
        self.wants_write = false;
        if is_acked {
            self.buffer.discard();
        } else {
            self.buffer.truncate(reliable);
        }
        // Told even if all of it was acknowledged: the peer's application may not have read it, and
        // a plain reset would discard it.
        self.reliable = reliable;
        true
    }

    /// Returns the offset before which data is delivered although the stream was reset.
    pub(super) const fn reliable_size(&self) -> u64 {
        self.reliable
    }

    /// Returns whether the frame that resets the stream can be sent: its final size has to cover
    /// what is still delivered, for which there has to be credit.
    pub(super) fn may_send_reset(&self) -> bool {
        self.is_resetting() && self.buffer.sent() >= self.reliable
    }

    /// Returns whether the frame that resets the stream has to be sent again after a loss.
    pub(super) const fn wants_reset(&self) -> bool {
        matches!(self.state, SendState::ResetSent) && !self.reset_acked
    }

    /// Returns whether data is still delivered although the stream was reset.
    #[inline]
    fn is_delivering_after_reset(&self) -> bool {
        self.state == SendState::ResetSent && self.buffer.base() < self.reliable
    }

    /// Handles a STOP_SENDING frame (RFC 9000 §3.5): resets the stream with the peer's code. Returns
    /// false if it was already finished.
    pub(super) fn on_stop(&mut self, code: u64) -> bool {
        let active = self.reset(code);
        if active {
            self.stopped = true;
        }
        active
    }

    /// Returns whether data or the FIN is still to be delivered or written.
    #[inline]
    pub(super) fn is_active(&self) -> bool {
        match self.state {
            SendState::Ready | SendState::Sending | SendState::DataSent => true,
            SendState::DataAcked | SendState::ResetSent | SendState::ResetAcked => false,
        }
    }

    /// Returns whether there may be data to send.
    #[inline]
    fn has_data(&self) -> bool {
        self.is_active() || self.is_delivering_after_reset()
    }

    /// Returns whether the half was finished or reset, and the peer has not acknowledged all of it.
    pub(super) fn is_ending(&self) -> bool {
        match self.state {
            SendState::Ready | SendState::Sending | SendState::DataSent => {
                self.buffer.is_finished()
            }
            SendState::ResetSent => true,
            SendState::DataAcked | SendState::ResetAcked => false,
        }
    }

    /// Returns whether RESET_STREAM is still to be acknowledged.
    pub(super) fn is_resetting(&self) -> bool {
        self.state == SendState::ResetSent
    }

    /// Returns the new data that stream credit allows.
    #[inline]
    pub(super) fn next_paid(&self) -> Span {
        let sent = self.buffer.sent();
        Span::new(sent, self.buffer.end().min(self.max_data).max(sent))
    }

    /// Records that a frame is sent, and returns whether it carries the FIN.
    pub(super) fn on_sent(&mut self, offset: u64, len: u64) -> bool {
        let fin = self.buffer.on_sent(offset, len);
        if self.is_resetting() {
            return false;
        }
        self.step(if fin {
            SendTransition::Fin
        } else {
            SendTransition::Data
        });
        fin
    }

    /// Returns whether this completed the stream.
    pub(super) fn on_acked(&mut self, offset: u64, len: u64, fin: bool) -> bool {
        if !self.is_active() {
            if self.is_delivering_after_reset() {
                self.buffer.on_acked(offset, len, false);
                self.finish_reset();
            }
            return false;
        }
        self.buffer.on_acked(offset, len, fin);
        let complete = self.buffer.is_all_acked();
        if complete {
            self.step(SendTransition::DataAcked);
        }
        complete
    }

    /// Called when RESET_STREAM is acknowledged.
    pub(super) fn on_reset_acked(&mut self) {
        self.reset_acked |= self.is_resetting();
        self.finish_reset();
    }

    /// Ends the stream once its reset and everything before the reliable offset is acknowledged.
    fn finish_reset(&mut self) {
        if self.is_resetting() && self.reset_acked && !self.is_delivering_after_reset() {
            self.step(SendTransition::ResetAcked);
            self.buffer.discard();
        }
    }

    /// Called when the server rejects 0-RTT: resets what was sent and the credit.
    pub(super) fn on_rejected(&mut self) {
        if self.state.is_terminal() {
            return;
        }
        self.step(SendTransition::Rejected);
        if self.state == SendState::ResetSent {
            // The final size of what was never sent is zero.
            self.buffer = SendBuffer::new();
            self.reliable = 0;
            self.reset_acked = false;
        }
        self.buffer.unsend();
        self.max_data = 0;
        self.blocked_at = None;
    }

    /// Returns the final size for RESET_STREAM (RFC 9000 §19.4).
    pub(super) fn final_size(&self) -> u64 {
        self.buffer.sent()
    }

    /// Returns the state that the stream should have in the schedules.
    #[inline]
    pub(super) fn wanted_schedule(&self) -> ScheduleState {
        if !self.has_data() {
            return ScheduleState::default();
        }
        let unsent = self.buffer.end() > self.buffer.sent();
        let credit = self.max_data > self.buffer.sent();
        ScheduleState {
            free: self.buffer.next_free().is_some(),
            paid: unsent && credit,
            stalled: unsent && !credit,
        }
    }

    fn step(&mut self, step: SendTransition) {
        let next = self.state.after(step);
        debug_assert!(next.is_ok(), "{:?} in {:?}", step, self.state);
        self.state = next.unwrap_or(self.state);
    }
}

#[cfg(test)]
mod tests;
