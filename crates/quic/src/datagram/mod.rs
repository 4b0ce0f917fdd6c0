//! DATAGRAM frames: unreliable messages of the application (RFC 9221).

use core::fmt;
use std::collections::VecDeque;

use bytes::Bytes;

use crate::count::Count;
use crate::error::{Code, TransportError};
use crate::memory;
use crate::wire::cursor::varint_len;

/// Bytes of a frame before its data when the Length field is omitted.
const TYPE_LEN: usize = 1;

/// The limits of a queue, which is full when either is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueLimits {
    /// Most bytes of data, frame headers not counted.
    pub bytes: usize,
    /// Most messages, so that empty messages are bounded too.
    pub count: usize,
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self {
            bytes: 1 << 20,
            count: 1024,
        }
    }
}

/// The reason why a message was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendDatagramError {
    /// The peer does not accept DATAGRAM frames.
    Unsupported,
    /// The message does not fit into a packet on this path, or exceeds the peer's limit.
    TooLarge {
        /// Size in bytes of the largest message that can be sent now.
        max: usize,
    },
    /// The queue is full. Try again when it is writable.
    Full,
}

impl fmt::Display for SendDatagramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported => f.write_str("the peer does not accept DATAGRAM frames"),
            Self::TooLarge { max } => {
                write!(
                    f,
                    "datagram too large: at most {max} bytes fit into a packet now"
                )
            }
            Self::Full => f.write_str("the queue of outgoing datagrams is full"),
        }
    }
}

impl std::error::Error for SendDatagramError {}

/// A bounded queue of messages.
#[derive(Debug)]
struct Queue {
    messages: VecDeque<Bytes>,
    bytes: usize,
    limits: QueueLimits,
}

impl Queue {
    fn new(limits: QueueLimits) -> Self {
        Self {
            messages: VecDeque::new(),
            bytes: 0,
            limits,
        }
    }

    fn has_room(&self, len: usize) -> bool {
        self.messages.len() < self.limits.count
            && self.bytes.saturating_add(len) <= self.limits.bytes
    }

    fn push(&mut self, message: Bytes) {
        self.bytes = self.bytes.saturating_add(message.len());
        self.messages.push_back(message);
    }

    fn release_memory(&mut self) {
        self.messages.shrink_to_fit();
    }

    /// Returns the bytes of the messages and of the queue itself.
    fn memory(&self) -> usize {
        self.bytes.saturating_add(memory::vec_deque(&self.messages))
    }

    fn pop(&mut self) -> Option<Bytes> {
        let message = self.messages.pop_front()?;
        self.bytes = self.bytes.saturating_sub(message.len());
        Some(message)
    }

    /// Drops the oldest messages until there is room for `len` bytes. Counts those dropped,
    /// and among them those shorter than `small` bytes.
    fn make_room(&mut self, len: usize, small: usize) -> DroppedMessages {
        let mut dropped = DroppedMessages::default();
        while !self.has_room(len)
            && let Some(message) = self.pop()
        {
            dropped.all.count_one();
            let is_small = u32::from(message.len() < small);
            dropped.small = dropped.small.saturating_add(is_small);
        }
        dropped
    }
}

/// Counts of messages dropped to make room for others.
#[derive(Clone, Copy, Debug, Default)]
struct DroppedMessages {
    all: u64,
    small: u32,
}

/// A message for the packet being written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutgoingDatagram {
    /// The message.
    pub data: Bytes,
    /// Whether the frame has a Length field (type 0x31). Without it (0x30), the message
    /// extends to the end of the packet and must be the last frame.
    pub explicit_length: bool,
}

/// The queue of messages to send.
#[derive(Debug)]
pub(crate) struct DatagramSender {
    queue: Queue,
    /// The peer's max_datagram_frame_size; 0 = not supported.
    peer_limit: u64,
    dropped: u64,
    refused: bool,
    writable: bool,
}

impl DatagramSender {
    /// Creates an empty queue for a peer that accepts no DATAGRAM frames yet.
    #[must_use]
    pub(crate) fn new(limits: QueueLimits) -> Self {
        Self {
            queue: Queue::new(limits),
            peer_limit: 0,
            dropped: 0,
            refused: false,
            writable: false,
        }
    }

    /// Sets the peer's max_datagram_frame_size, 0 if the parameter is absent. For 0-RTT,
    /// this is the remembered value (RFC 9221 §3).
    pub(crate) fn set_peer_limit(&mut self, max_datagram_frame_size: u64) {
        self.peer_limit = max_datagram_frame_size;
    }

    /// Returns the size of the largest message that a packet with `room` bytes for frames
    /// can carry; `None` if the peer does not accept DATAGRAM frames.
    #[must_use]
    pub(crate) fn max_size(&self, room: usize) -> Option<usize> {
        let limit = usize::try_from(self.peer_limit).unwrap_or(usize::MAX);
        room.min(limit).checked_sub(TYPE_LEN).filter(|_| limit > 0)
    }

    /// Queues a message. `room` is the number of bytes for frames in a full packet on the
    /// active path.
    ///
    /// # Errors
    /// See [`SendDatagramError`]. After `Full`, [`DatagramSender::take_writable`] says when
    /// to try again.
    pub(crate) fn send(&mut self, data: Bytes, room: usize) -> Result<(), SendDatagramError> {
        let max = self.max_size(room).ok_or(SendDatagramError::Unsupported)?;
        let max = max.min(self.queue.limits.bytes);
        if data.len() > max {
            return Err(SendDatagramError::TooLarge { max });
        }
        if !self.queue.has_room(data.len()) {
            self.refused = true;
            return Err(SendDatagramError::Full);
        }
        self.queue.push(data);
        Ok(())
    }

    /// Takes the next message if it fits into `room`, the bytes left of a packet that had
    /// `full_room`. A message that no longer fits into any packet, because the path's MTU
    /// shrank, is dropped and counted, so that it does not block the queue.
    pub(crate) fn pop(&mut self, room: usize, full_room: usize) -> Option<OutgoingDatagram> {
        let max = self.max_size(full_room).unwrap_or(0);
        while self.queue.messages.front().is_some_and(|m| m.len() > max) {
            self.take_front();
            self.dropped.count_one();
        }
        let len = self.queue.messages.front()?.len();
        let without_length = len.saturating_add(TYPE_LEN);
        if without_length > room {
            return None;
        }
        let with_length = without_length.saturating_add(varint_len(len as u64));
        let explicit_length = with_length <= room && with_length as u64 <= self.peer_limit;
        self.take_front().map(|data| OutgoingDatagram {
            data,
            explicit_length,
        })
    }

    /// Returns whether no message is queued.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.messages.is_empty()
    }

    /// Frees memory that is kept for reuse.
    pub(crate) fn release_memory(&mut self) {
        self.queue.release_memory();
    }

    /// Returns the bytes of the queued messages and of the queue.
    #[must_use]
    pub(crate) fn memory(&self) -> usize {
        self.queue.memory()
    }

    /// Discards queued messages and accepts no more.
    pub(crate) fn abandon(&mut self) {
        *self = Self {
            dropped: self.dropped,
            ..Self::new(self.queue.limits)
        };
    }

    /// Returns true once after there is room again for a rejected caller.
    pub(crate) fn take_writable(&mut self) -> bool {
        core::mem::take(&mut self.writable)
    }

    /// Returns the number of messages dropped because they were too large for a path whose
    /// MTU shrank.
    #[must_use]
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    fn take_front(&mut self) -> Option<Bytes> {
        let data = self.queue.pop()?;
        self.writable |= core::mem::take(&mut self.refused);
        Some(data)
    }
}

/// The queue of received messages that the application has not read.
///
/// Messages are accounted by their length; the caller copies a message that would otherwise
/// keep a much larger receive buffer alive.
#[derive(Debug)]
pub(crate) struct DatagramReceiver {
    queue: Queue,
    /// Our max_datagram_frame_size; 0 = not supported.
    limit: u64,
    dropped: u64,
    readable: bool,
}

impl DatagramReceiver {
    /// Creates an empty queue. `max_datagram_frame_size` is the value that we announced.
    #[must_use]
    pub(crate) fn new(limits: QueueLimits, max_datagram_frame_size: u64) -> Self {
        Self {
            queue: Queue::new(limits),
            limit: max_datagram_frame_size,
            dropped: 0,
            readable: false,
        }
    }

    /// Handles a DATAGRAM frame of `frame_len` bytes, including type and length. If the
    /// queue is full, the oldest messages are dropped, as RFC 9221 §5.3 allows. Returns how
    /// many messages shorter than `small` bytes were dropped.
    ///
    /// # Errors
    /// PROTOCOL_VIOLATION if the frame exceeds our max_datagram_frame_size (RFC 9221 §3).
    pub(crate) fn on_frame(
        &mut self,
        data: Bytes,
        frame_len: usize,
        small: usize,
    ) -> Result<u32, TransportError> {
        if frame_len as u64 > self.limit {
            let reason = if self.limit == 0 {
                "DATAGRAM frame without our max_datagram_frame_size"
            } else {
                "DATAGRAM frame larger than our max_datagram_frame_size"
            };
            return Err(TransportError::new(Code::PROTOCOL_VIOLATION, reason));
        }
        if data.len() > self.queue.limits.bytes || self.queue.limits.count == 0 {
            self.dropped.count_one();
            return Ok(u32::from(data.len() < small));
        }
        self.readable |= self.queue.messages.is_empty();
        let dropped = self.queue.make_room(data.len(), small);
        self.dropped.count(dropped.all);
        self.queue.push(data);
        Ok(dropped.small)
    }

    /// Frees memory that is kept for reuse.
    pub(crate) fn release_memory(&mut self) {
        self.queue.release_memory();
    }

    /// Returns the bytes of the queued messages and of the queue.
    #[must_use]
    pub(crate) fn memory(&self) -> usize {
        self.queue.memory()
    }

    /// Discards queued messages.
    pub(crate) fn abandon(&mut self) {
        *self = Self {
            dropped: self.dropped,
            ..Self::new(self.queue.limits, self.limit)
        };
    }

    /// Takes the oldest message.
    pub(crate) fn recv(&mut self) -> Option<Bytes> {
        self.queue.pop()
    }

    /// Returns true once after the queue stopped being empty.
    pub(crate) fn take_readable(&mut self) -> bool {
        core::mem::take(&mut self.readable)
    }

    /// Returns the number of messages dropped because the application did not read them in
    /// time.
    #[must_use]
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests;
