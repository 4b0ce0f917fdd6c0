//! Data of a stream that the transport has not accepted yet.
//!
//! A frame header announces the length, so a frame is accepted from the application whole or not at
//! all. What the transport does not accept at once is buffered here. At most one piece of a body is
//! buffered: the next one is refused until that has been written.

use std::collections::VecDeque;

use bytes::Bytes;
use clearway_quic::stream::{StreamId, WriteError};

use crate::transport::Transport;

/// Data that waits to be written, in order.
#[derive(Debug, Default)]
pub(crate) struct SendBuffer {
    pending: VecDeque<Bytes>,
    /// The stream is finished once nothing is pending.
    finish: bool,
    /// The application was refused, and waits for `Writable`.
    refused: bool,
}

impl SendBuffer {
    /// Returns whether nothing is pending, including the end of the stream.
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty() && !self.finish
    }

    /// Returns whether the application may send more. If not, [`Self::take_writable`] returns true
    /// once it may.
    pub(crate) fn can_accept(&mut self) -> bool {
        self.refused |= !self.pending.is_empty();
        self.pending.is_empty()
    }

    /// Returns whether the application was refused and can try again.
    pub(crate) fn take_writable(&mut self) -> bool {
        self.pending.is_empty() && core::mem::take(&mut self.refused)
    }

    /// Writes a copy of `bytes`, or buffers it.
    pub(crate) fn write<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
        mut bytes: &[u8],
    ) -> Result<(), WriteError> {
        while self.pending.is_empty() && !bytes.is_empty() {
            match quic.write(id, bytes) {
                Ok(taken) => bytes = bytes.get(taken..).unwrap_or_default(),
                Err(WriteError::Blocked) => break,
                Err(error) => return Err(error),
            }
        }
        if !bytes.is_empty() {
            self.pending.push_back(Bytes::copy_from_slice(bytes));
        }
        Ok(())
    }

    /// Writes `chunk` without a copy, or buffers it.
    pub(crate) fn write_chunk<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
        chunk: Bytes,
    ) -> Result<(), WriteError> {
        self.pending.push_back(chunk);
        self.flush(quic, id)
    }

    /// Finishes the stream, now or once nothing is pending.
    pub(crate) fn finish<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
    ) -> Result<(), WriteError> {
        self.finish = true;
        self.flush(quic, id)
    }

    /// Writes pending data, as far as the transport accepts it.
    pub(crate) fn flush<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
    ) -> Result<(), WriteError> {
        while let Some(front) = self.pending.front_mut() {
            if !front.is_empty() {
                match quic.write_chunk(id, front) {
                    Ok(_) => {}
                    Err(WriteError::Blocked) => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
            if front.is_empty() {
                self.pending.pop_front();
            }
        }
        if core::mem::take(&mut self.finish) {
            return quic.finish(id);
        }
        Ok(())
    }

    /// Buffers a copy of `bytes` for a stream that has not been opened yet.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.pending.push_back(Bytes::copy_from_slice(bytes));
    }

    /// Takes the pending data.
    pub(crate) fn take_pending(&mut self) -> VecDeque<Bytes> {
        core::mem::take(&mut self.pending)
    }

    /// Drops the pending data.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Releases unused capacity.
    pub(crate) fn release(&mut self) {
        self.pending.shrink_to_fit();
    }

    /// Returns the memory in use, in bytes.
    #[expect(clippy::arithmetic_side_effects, reason = "sums of sizes in memory")]
    pub(crate) fn memory(&self) -> usize {
        self.pending.iter().map(Bytes::len).sum::<usize>()
            + self.pending.capacity() * size_of::<Bytes>()
    }
}
