//! The interface to the QUIC transport. [`clearway_quic::connection::Connection`] implements it;
//! tests and fuzzers use a transport in memory.

use bytes::Bytes;
use clearway_quic::Instant;
use clearway_quic::connection::Connection;
use clearway_quic::datagram::SendDatagramError;
use clearway_quic::stream::{
    Directionality, GroupAccount, GroupMarks, Priority, ReadError, SendProgress, StreamId,
    WriteError,
};

/// The streams and datagrams of a connection. Each method means what the method of [`Connection`]
/// with the same name does.
pub trait Transport {
    /// Opens a stream. Returns `None` while the peer's stream limit is reached.
    fn open(&mut self, directionality: Directionality) -> Option<StreamId>;
    /// Returns the next stream that the peer opened.
    fn accept(&mut self, directionality: Directionality) -> Option<StreamId>;
    /// Returns how many streams of this directionality the peer may open, counted from the first.
    fn peer_stream_limit(&self, directionality: Directionality) -> u64;
    /// Buffers a copy of the front of `data`. Returns how many bytes were accepted.
    ///
    /// # Errors
    /// See [`WriteError`].
    fn write(&mut self, id: StreamId, data: &[u8]) -> Result<usize, WriteError>;
    /// Like `write`, without a copy; advances `data` past what was accepted.
    ///
    /// # Errors
    /// See [`WriteError`].
    fn write_chunk(&mut self, id: StreamId, data: &mut Bytes) -> Result<usize, WriteError>;
    /// Finishes the stream.
    ///
    /// # Errors
    /// See [`WriteError`].
    fn finish(&mut self, id: StreamId) -> Result<(), WriteError>;
    /// Resets the sending side.
    ///
    /// # Errors
    /// See [`WriteError`].
    fn reset(&mut self, id: StreamId, code: u64) -> Result<(), WriteError>;
    /// Asks the peer to stop sending.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn stop(&mut self, id: StreamId, code: u64) -> Result<(), ReadError>;
    /// Returns at most `max` bytes of received data, or `None` at the end of the stream.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn read_chunk(&mut self, id: StreamId, max: usize) -> Result<Option<Bytes>, ReadError>;
    /// Returns whether there is data to read; `false` at the end of the stream.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn peek(&mut self, id: StreamId) -> Result<bool, ReadError>;
    /// Returns how much of the data written on a stream was sent and acknowledged.
    fn send_progress(&self, id: StreamId) -> Option<SendProgress>;
    /// Returns the bytes of stream data sent so far, without retransmissions.
    fn stream_bytes_sent(&self) -> u64;
    /// Begins a group of streams with a limit of its own on what is written.
    fn open_group(&mut self, group: StreamId, limit: u64, marks: GroupMarks);
    /// Adds a stream to a group, without its first `header` bytes.
    fn join_group(&mut self, id: StreamId, group: StreamId, header: u64);
    /// Ends a group.
    fn close_group(&mut self, group: StreamId);
    /// Returns the account of a group.
    fn group_account(&self, group: StreamId) -> Option<GroupAccount>;
    /// Raises the limit on what is written on the streams of a group.
    fn raise_group_limit(&mut self, group: StreamId, limit: u64);
    /// Sets when a group is reported.
    fn set_group_marks(&mut self, group: StreamId, marks: GroupMarks);
    /// Returns a group that has passed its marks, or whose writers wait for its limit.
    fn next_group_news(&mut self) -> Option<StreamId>;
    /// Returns the receive window of the connection, in bytes.
    fn receive_window(&self) -> u64;
    /// Sets the priority of a stream.
    fn set_priority(&mut self, id: StreamId, priority: Priority);
    /// Queues a DATAGRAM frame.
    ///
    /// # Errors
    /// See [`SendDatagramError`].
    fn send_datagram(&mut self, data: Bytes) -> Result<(), SendDatagramError>;
    /// Returns the payload of the next received DATAGRAM frame.
    fn recv_datagram(&mut self) -> Option<Bytes>;
    /// Returns the largest DATAGRAM payload that can be sent now, in bytes.
    fn max_datagram_size(&self) -> Option<usize>;
    /// Returns whether the server accepted 0-RTT data, once that is known.
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

    fn peer_stream_limit(&self, directionality: Directionality) -> u64 {
        Self::peer_stream_limit(self, directionality)
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

    fn open_group(&mut self, group: StreamId, limit: u64, marks: GroupMarks) {
        Self::open_group(self, group, limit, marks);
    }

    fn join_group(&mut self, id: StreamId, group: StreamId, header: u64) {
        Self::join_group(self, id, group, header);
    }

    fn close_group(&mut self, group: StreamId) {
        Self::close_group(self, group);
    }

    fn group_account(&self, group: StreamId) -> Option<GroupAccount> {
        Self::group_account(self, group)
    }

    fn raise_group_limit(&mut self, group: StreamId, limit: u64) {
        Self::raise_group_limit(self, group, limit);
    }

    fn set_group_marks(&mut self, group: StreamId, marks: GroupMarks) {
        Self::set_group_marks(self, group, marks);
    }

    fn next_group_news(&mut self) -> Option<StreamId> {
        Self::next_group_news(self)
    }

    fn receive_window(&self) -> u64 {
        Self::receive_window(self)
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
