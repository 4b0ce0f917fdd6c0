//! Bytes of a stream of ours that the transport has not taken yet.
//!
//! A frame is promised with its length, so it is taken from the application whole or
//! not at all; what the transport does not take at once waits here. There is never
//! more than one piece of a body waiting: the next is refused until it is gone.

use std::collections::VecDeque;

use bytes::Bytes;
use clearway_quic::stream::{StreamId, WriteError};

use crate::transport::Transport;

/// What waits to be written, in order.
#[derive(Debug, Default)]
pub(crate) struct Outlet {
    waiting: VecDeque<Bytes>,
    /// The stream ends after what waits.
    finish: bool,
    /// The application was refused and wants to hear.
    refused: bool,
}

impl Outlet {
    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && !self.finish
    }

    /// Whether something can be taken; if not, [`Self::take_writable`] will answer
    /// true once it can.
    pub(crate) fn admit(&mut self) -> bool {
        self.refused |= !self.waiting.is_empty();
        self.waiting.is_empty()
    }

    /// Whether someone who was refused can try again.
    pub(crate) fn take_writable(&mut self) -> bool {
        self.waiting.is_empty() && core::mem::take(&mut self.refused)
    }

    /// Writes a copy of `bytes`, now or later.
    pub(crate) fn write<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
        mut bytes: &[u8],
    ) -> Result<(), WriteError> {
        while self.waiting.is_empty() && !bytes.is_empty() {
            match quic.write(id, bytes) {
                Ok(taken) => bytes = bytes.get(taken..).unwrap_or_default(),
                Err(WriteError::Blocked) => break,
                Err(error) => return Err(error),
            }
        }
        if !bytes.is_empty() {
            self.waiting.push_back(Bytes::copy_from_slice(bytes));
        }
        Ok(())
    }

    /// Writes `chunk` without a copy, now or later.
    pub(crate) fn write_chunk<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
        chunk: Bytes,
    ) -> Result<(), WriteError> {
        self.waiting.push_back(chunk);
        self.flush(quic, id)
    }

    /// Ends the stream, now or later.
    pub(crate) fn finish<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
    ) -> Result<(), WriteError> {
        self.finish = true;
        self.flush(quic, id)
    }

    /// Writes what waits, as far as the transport takes it.
    pub(crate) fn flush<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
    ) -> Result<(), WriteError> {
        while let Some(front) = self.waiting.front_mut() {
            if !front.is_empty() {
                match quic.write_chunk(id, front) {
                    Ok(_) => {}
                    Err(WriteError::Blocked) => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
            if front.is_empty() {
                self.waiting.pop_front();
            }
        }
        if core::mem::take(&mut self.finish) {
            return quic.finish(id);
        }
        Ok(())
    }

    /// Keeps a copy of `bytes` for a stream that is still to be opened.
    pub(crate) fn hold(&mut self, bytes: &[u8]) {
        self.waiting.push_back(Bytes::copy_from_slice(bytes));
    }

    /// What waits, taken out.
    pub(crate) fn take_waiting(&mut self) -> VecDeque<Bytes> {
        core::mem::take(&mut self.waiting)
    }

    /// Forgets what waits.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Gives back the room in which nothing waits.
    pub(crate) fn release(&mut self) {
        self.waiting.shrink_to_fit();
    }

    /// Bytes that wait, and the room for more.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "sizes of what is in memory together"
    )]
    pub(crate) fn memory(&self) -> usize {
        self.waiting.iter().map(Bytes::len).sum::<usize>()
            + self.waiting.capacity() * size_of::<Bytes>()
    }
}
