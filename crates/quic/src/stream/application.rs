//! The calls of the application.

use bytes::Bytes;

use super::halves::Stream;
use super::recv::RecvHalf;
use super::{Directionality, Priority, ReadError, SendProgress, StreamId, Streams, WriteError};
use crate::count::Count;
use crate::wire::cursor::VARINT_MAX;

impl Streams {
    /// Opens a stream. Returns `None` at the peer's limit; then
    /// [`StreamsAvailable`](super::StreamEvent::StreamsAvailable) follows.
    pub fn open(&mut self, dir: Directionality) -> Option<StreamId> {
        let known = self.limits_known();
        let local = &mut self.local[dir];
        let Some(index) = local.open() else {
            if known {
                local.note_blocked();
            }
            return None;
        };
        let id = StreamId::new(self.role, dir, index);
        self.insert(id);
        Some(id)
    }

    /// Returns how many more streams the peer's limit allows now.
    #[must_use]
    pub fn openable(&self, dir: Directionality) -> u64 {
        let local = &self.local[dir];
        local.limit.saturating_sub(local.opened)
    }

    /// Returns the next stream that the peer has opened, in the order of IDs.
    pub fn accept(&mut self, dir: Directionality) -> Option<StreamId> {
        let remote = &mut self.remote[dir];
        if remote.accepted == remote.opened {
            return None;
        }
        let index = remote.accepted;
        remote.accepted.count_one();
        Some(StreamId::new(self.role.peer(), dir, index))
    }

    /// Returns how many streams that the peer opened wait for [`accept`](Self::accept).
    #[must_use]
    pub fn acceptable(&self, dir: Directionality) -> u64 {
        let remote = &self.remote[dir];
        remote.opened.saturating_sub(remote.accepted)
    }

    /// Copies the front of `data` into the send buffer and returns the number of bytes, at least
    /// one unless `data` is empty.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn write(&mut self, id: StreamId, data: &[u8]) -> Result<usize, WriteError> {
        let len = self.admit_write(id, data.len())?;
        let taken = data.get(..len).unwrap_or(data);
        self.with_send(id, |half| half.write(taken));
        self.after_write(id, len);
        Ok(len)
    }

    /// Like [`Self::write`], but takes the bytes off the front of `chunk` and keeps
    /// them without a copy (unless they are few).
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn write_chunk(&mut self, id: StreamId, chunk: &mut Bytes) -> Result<usize, WriteError> {
        let len = self.admit_write(id, chunk.len())?;
        let taken = chunk.split_to(len);
        self.with_send(id, |half| half.write_chunk(taken));
        self.after_write(id, len);
        Ok(len)
    }

    /// Returns how much of the data written on a stream was sent and acknowledged; `None` if there
    /// is no such stream, or it was reset.
    #[must_use]
    pub fn send_progress(&self, id: StreamId) -> Option<SendProgress> {
        let half = self.streams.get(&id).and_then(Stream::send)?;
        half.is_active().then(|| half.progress())
    }

    /// Returns the number of bytes of stream data sent so far, each counted once: what the peer's limits
    /// together have let out.
    #[must_use]
    pub fn bytes_sent(&self) -> u64 {
        self.sending.used()
    }

    /// Returns the number of bytes that the application has read, plus those sent and no longer
    /// buffered. Buffered bytes that were never sent count as sent.
    pub(crate) fn bytes_moved(&self) -> u64 {
        let delivered = self.sending.used().saturating_sub(self.sending.held());
        self.receive.consumed().saturating_add(delivered)
    }

    /// Ends the stream after what was written.
    ///
    /// # Errors
    /// See [`WriteError`]; never `Blocked`.
    pub fn finish(&mut self, id: StreamId) -> Result<(), WriteError> {
        self.with_send(id, |half| {
            half.check_writable()?;
            half.buffer.finish();
            Ok(())
        })
        .unwrap_or(Err(WriteError::Unknown))
    }

    /// Resets the sending half with an application error code. A code above 2^62 - 1 has no
    /// encoding and is sent as 2^62 - 1. Has no effect if everything was delivered or the stream
    /// was already reset.
    ///
    /// # Errors
    /// [`WriteError::Unknown`] if there is no such stream, or it is finished.
    pub fn reset(&mut self, id: StreamId, code: u64) -> Result<(), WriteError> {
        let reset = self.with_send(id, |half| half.reset(code.min(VARINT_MAX)));
        if reset.ok_or(WriteError::Unknown)? {
            self.after_reset(id);
        }
        Ok(())
    }

    /// Resets the sending half as [`reset`](Self::reset), but still delivers what was written before
    /// the offset `reliable_size` (draft-ietf-quic-reliable-stream-reset §5). Peers that do not
    /// support it get a plain reset.
    ///
    /// # Errors
    /// [`WriteError::Unknown`] if there is no such stream, or it is finished.
    pub fn reset_at(
        &mut self,
        id: StreamId,
        code: u64,
        reliable_size: u64,
    ) -> Result<(), WriteError> {
        let reliable_size = if self.reliable_resets {
            reliable_size
        } else {
            0
        };
        let code = code.min(VARINT_MAX);
        let reset = self.with_send(id, |half| half.reset_at(code, reliable_size));
        if reset.ok_or(WriteError::Unknown)? {
            self.after_reset(id);
        }
        Ok(())
    }

    /// Stops reading, and asks the peer to stop sending with an application error code (at most
    /// 2^62 - 1, as in [`reset`](Self::reset)). Has no effect if the stream was already stopped.
    ///
    /// # Errors
    /// [`ReadError::Unknown`] if there is no such stream, or it is finished.
    pub fn stop(&mut self, id: StreamId, code: u64) -> Result<(), ReadError> {
        let code = code.min(VARINT_MAX);
        let stopped = self.with_recv(id, |half| (half.stop(code), half.wants_stop()));
        let (discarded, ask) = stopped.ok_or(ReadError::Unknown)?;
        if let Some(bytes) = discarded {
            self.consume(bytes);
            if let Some(groups) = &mut self.groups {
                groups.on_received(id, 0, bytes);
            }
            self.mark(id, |control| control.stop = ask);
            self.prune(id);
        }
        Ok(())
    }

    /// Sets the priority of a stream. Unknown streams are ignored.
    pub fn set_priority(&mut self, id: StreamId, priority: Priority) {
        let half = self.streams.get_mut(&id).and_then(Stream::send_mut);
        if let Some(half) = half {
            self.sending.set_priority(id, half, priority);
        }
    }

    /// Copies received bytes into `out` and returns how many. Returns `None` at the end of the
    /// stream, which is unknown from then on.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read(&mut self, id: StreamId, out: &mut [u8]) -> Result<Option<usize>, ReadError> {
        let result = self.with_recv(id, |half| half.read(out));
        let result = result.unwrap_or(Err(ReadError::Unknown));
        self.after_read(id, result.as_ref().ok().copied().flatten().unwrap_or(0));
        result
    }

    /// Returns up to `max` received bytes without a copy, or `None` at the end of the stream, which
    /// is unknown from then on.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read_chunk(&mut self, id: StreamId, max: usize) -> Result<Option<Bytes>, ReadError> {
        let result = self.with_recv(id, |half| half.read_chunk(max));
        let result = result.unwrap_or(Err(ReadError::Unknown));
        let len = result
            .as_ref()
            .ok()
            .and_then(Option::as_ref)
            .map_or(0, Bytes::len);
        self.after_read(id, len);
        result
    }

    /// Returns up to `max` received bytes without a copy, and whether the stream ends with them;
    /// it is unknown from then on. There are none if only the end was left.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read_chunk_with_end(
        &mut self,
        id: StreamId,
        max: usize,
    ) -> Result<(Bytes, bool), ReadError> {
        let read = self.with_recv(id, |half| {
            let Some(chunk) = half.read_chunk(max)? else {
                return Ok((Bytes::new(), true));
            };
            Ok((chunk, half.take_end()))
        });
        let read = read.unwrap_or(Err(ReadError::Unknown));
        self.after_read(id, read.as_ref().map_or(0, |(chunk, _)| chunk.len()));
        read
    }

    /// Returns whether there is data to read, without reading it. `false` means that the stream
    /// has ended.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn peek(&mut self, id: StreamId) -> Result<bool, ReadError> {
        let half = self.streams.get_mut(&id).and_then(Stream::recv_mut);
        let peeked = half.ok_or(ReadError::Unknown)?.peek();
        // Only reporting a reset changes more than the flag that a reader waits.
        if let Err(ReadError::Reset(_)) = peeked {
            self.with_recv(id, |_| ());
            self.prune(id);
        }
        peeked
    }

    /// Returns how many of `len` bytes may be written now.
    fn admit_write(&mut self, id: StreamId, len: usize) -> Result<usize, WriteError> {
        let half = self.streams.get_mut(&id).and_then(Stream::send_mut);
        let half = half.ok_or(WriteError::Unknown)?;
        half.check_writable()?;
        let credit = self.groups.as_ref().map_or(u64::MAX, |it| it.writable(id));
        if let Some(groups) = &mut self.groups
            && credit == 0
            && len > 0
        {
            groups.wait(id);
            return Err(WriteError::Blocked);
        }
        let allowed = half
            .writable_bytes(&self.sending.write_budget())
            .min(credit);
        if allowed == 0 && len > 0 {
            self.sending.wait(id, half);
            return Err(WriteError::Blocked);
        }
        Ok(usize::try_from(allowed).unwrap_or(usize::MAX).min(len))
    }

    /// Updates the account of the stream's group.
    fn after_write(&mut self, id: StreamId, len: usize) {
        if let Some(groups) = &mut self.groups {
            groups.on_written(id, len as u64);
        }
    }

    /// Updates credit and events after the application has read `len` bytes or the end.
    fn after_read(&mut self, id: StreamId, len: usize) {
        self.consume(len as u64);
        if let Some(groups) = &mut self.groups {
            groups.on_received(id, 0, len as u64);
        }
        self.release_if_spare(id);
        let over = self.streams.get(&id).and_then(Stream::recv);
        if over.is_some_and(|half: &RecvHalf| half.state().is_terminal()) {
            self.prune(id);
        }
    }

    /// Schedules RESET_STREAM after a sending half was reset, and removes its waiting writer.
    pub(super) fn after_reset(&mut self, id: StreamId) {
        let half = self.streams.get_mut(&id).and_then(Stream::send_mut);
        let mut ready = false;
        if let Some(half) = half {
            self.sending.unqueue_writer(half);
            ready = half.may_send_reset();
        }
        self.mark(id, |control| control.reset = ready);
        self.after_group_reset(id);
        self.wake_writers();
    }
}
