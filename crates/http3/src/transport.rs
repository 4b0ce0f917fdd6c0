//! What HTTP/3 asks of a transport. [`clearway_quic::connection::Connection`] is
//! the one; a stand-in serves fuzzers.

use bytes::Bytes;
use clearway_quic::Instant;
use clearway_quic::connection::Connection;
use clearway_quic::datagram::SendDatagramError;
use clearway_quic::stream::{
    Directionality, Priority, ReadError, SendProgress, StreamId, WriteError,
};

/// Streams and datagrams. The meaning of each method is that of the method of
/// [`Connection`] with the same name.
pub trait Transport {
    /// Opens a stream, unless the peer's limit is reached.
    fn open(&mut self, directionality: Directionality) -> Option<StreamId>;
    /// The next stream the peer opened.
    fn accept(&mut self, directionality: Directionality) -> Option<StreamId>;
    /// Buffers a copy of the front of `data`.
    ///
    /// # Errors
    /// See [`WriteError`].
    fn write(&mut self, id: StreamId, data: &[u8]) -> Result<usize, WriteError>;
    /// Like `write` without a copy; advances `data`.
    ///
    /// # Errors
    /// See [`WriteError`].
    fn write_chunk(&mut self, id: StreamId, data: &mut Bytes) -> Result<usize, WriteError>;
    /// Ends the stream.
    ///
    /// # Errors
    /// See [`WriteError`].
    fn finish(&mut self, id: StreamId) -> Result<(), WriteError>;
    /// Abandons sending.
    ///
    /// # Errors
    /// See [`WriteError`].
    fn reset(&mut self, id: StreamId, code: u64) -> Result<(), WriteError>;
    /// Abandons receiving.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn stop(&mut self, id: StreamId, code: u64) -> Result<(), ReadError>;
    /// Hands out at most `max` bytes; `None` = the stream has ended.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn read_chunk(&mut self, id: StreamId, max: usize) -> Result<Option<Bytes>, ReadError>;
    /// Whether there is data to read; `false` = the stream has ended.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn peek(&mut self, id: StreamId) -> Result<bool, ReadError>;
    /// How far what was written on a stream has come.
    fn send_progress(&self, id: StreamId) -> Option<SendProgress>;
    /// Bytes of stream data sent so far, each counted once.
    fn stream_bytes_sent(&self) -> u64;
    /// Changes how a stream is scheduled.
    fn set_priority(&mut self, id: StreamId, priority: Priority);
    /// Queues a DATAGRAM frame.
    ///
    /// # Errors
    /// See [`SendDatagramError`].
    fn send_datagram(&mut self, data: Bytes) -> Result<(), SendDatagramError>;
    /// The next DATAGRAM received.
    fn recv_datagram(&mut self) -> Option<Bytes>;
    /// Largest DATAGRAM that can be sent now.
    fn max_datagram_size(&self) -> Option<usize>;
    /// Whether the server took our 0-RTT data, once known.
    fn zero_rtt_accepted(&self) -> Option<bool>;
    /// Closes the connection with an application error code.
    fn close(&mut self, now: Instant, code: u64, reason: &[u8]);
}

impl Transport for Connection {
    fn open(&mut self, directionality: Directionality) -> Option<StreamId> {
        Self::open(self, directionality)
    }

    fn accept(&mut self, directionality: Directionality) -> Option<StreamId> {
        Self::accept(self, directionality)
    }

    fn write(&mut self, id: StreamId, data: &[u8]) -> Result<usize, WriteError> {
        Self::write(self, id, data)
    }

    fn write_chunk(&mut self, id: StreamId, data: &mut Bytes) -> Result<usize, WriteError> {
        Self::write_chunk(self, id, data)
    }

    fn finish(&mut self, id: StreamId) -> Result<(), WriteError> {
        Self::finish(self, id)
    }

    fn reset(&mut self, id: StreamId, code: u64) -> Result<(), WriteError> {
        Self::reset(self, id, code)
    }

    fn stop(&mut self, id: StreamId, code: u64) -> Result<(), ReadError> {
        Self::stop(self, id, code)
    }

    fn read_chunk(&mut self, id: StreamId, max: usize) -> Result<Option<Bytes>, ReadError> {
        Self::read_chunk(self, id, max)
    }

    fn peek(&mut self, id: StreamId) -> Result<bool, ReadError> {
        Self::peek(self, id)
    }

    fn send_progress(&self, id: StreamId) -> Option<SendProgress> {
        Self::send_progress(self, id)
    }

    fn stream_bytes_sent(&self) -> u64 {
        Self::stream_bytes_sent(self)
    }

    fn set_priority(&mut self, id: StreamId, priority: Priority) {
        Self::set_priority(self, id, priority);
    }

    fn send_datagram(&mut self, data: Bytes) -> Result<(), SendDatagramError> {
        Self::send_datagram(self, data)
    }

    fn recv_datagram(&mut self) -> Option<Bytes> {
        Self::recv_datagram(self)
    }

    fn max_datagram_size(&self) -> Option<usize> {
        Self::max_datagram_size(self)
    }

    fn zero_rtt_accepted(&self) -> Option<bool> {
        Self::zero_rtt_accepted(self)
    }

    fn close(&mut self, now: Instant, code: u64, reason: &[u8]) {
        Self::close(self, now, code, reason);
    }
}
