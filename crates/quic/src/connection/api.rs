//! The calls of the application: streams, DATAGRAM frames, migration, and what the
//! handshake agreed on.

use bytes::Bytes;
use std::net::{IpAddr, SocketAddr};

use clearway_recovery::Space;
use clearway_recovery::limit::Limit;

use super::migration::MigrateError;
use super::state::{HandshakeState, LifecycleState};
use super::{Connection, Event, UpdateKeysError};
use crate::datagram::SendDatagramError;
use crate::error::ConnectionError;
use crate::stream::{
    Directionality, GroupAccount, GroupMarks, Priority, ReadError, SendProgress, StreamId,
    WriteError,
};
use crate::wire::{TransportParameters, Version};
use crate::{Instant, Role};

impl Connection {
    /// Returns the next event, or `None` when there is none left.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.reports
            .events
            .pop_front()
            .or_else(|| self.frames.streams.poll_event().map(Event::Stream))
    }

    /// Returns whether the TLS handshake is still running.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.lifecycle.handshake == HandshakeState::Running
    }

    /// Returns whether the handshake is confirmed (RFC 9001 §4.1.2): both ends know that it
    /// is complete.
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        self.lifecycle.handshake == HandshakeState::Confirmed
    }

    /// Returns why the connection ended, or `None` while it has not.
    #[must_use]
    pub fn error(&self) -> Option<&ConnectionError> {
        self.lifecycle.error.as_deref()
    }

    /// Returns whether the connection is over, so that the endpoint may forget it.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        matches!(self.lifecycle.state, LifecycleState::Drained)
    }

    /// Returns the QUIC version of the connection. A server may change it until it has answered the
    /// client's first flight, so it is final once the handshake is complete.
    #[must_use]
    pub fn version(&self) -> Version {
        self.tls.versions.current()
    }

    /// Returns the peer's address on the active path.
    #[must_use]
    pub fn remote_address(&self) -> SocketAddr {
        self.network.paths.active().remote
    }

    /// Returns the application protocol (ALPN) that both ends agreed on.
    #[must_use]
    pub fn alpn(&self) -> Option<&[u8]> {
        self.tls.summary.alpn.as_deref()
    }

    /// Returns the server name that the client asked for (SNI).
    #[must_use]
    pub fn server_name(&self) -> Option<&str> {
        self.tls.summary.server_name.as_deref()
    }

    /// Returns the peer's certificate chain in DER, the end entity's certificate first.
    #[must_use]
    pub fn peer_certificates(&self) -> Option<&[rustls::pki_types::CertificateDer<'static>]> {
        Some(&self.tls.summary.peer_certificates[..]).filter(|chain| !chain.is_empty())
    }

    /// Returns the peer's transport parameters once they have arrived, without the
    /// `version_information`, which is checked when it arrives. Each call decodes them again.
    #[must_use]
    pub fn peer_transport_parameters(&self) -> Option<TransportParameters> {
        self.tls.peer_parameters(self.role)
    }

    /// Returns whether TLS resumed an earlier session; false until that is known.
    #[must_use]
    pub fn resumed(&self) -> bool {
        self.tls.summary.resumed
    }

    /// Returns whether a client may write 0-RTT data, before the handshake is complete.
    #[must_use]
    pub fn has_zero_rtt(&self) -> bool {
        self.keys.zero_rtt.is_some()
    }

    /// Returns whether a server has keys for the client's 0-RTT packets and the handshake
    /// is not complete yet.
    #[must_use]
    pub fn has_readable_zero_rtt(&self) -> bool {
        self.role == Role::Server
            && self.lifecycle.handshake == HandshakeState::Running
            && self.keys.zero_rtt.is_some()
    }

    /// Returns whether the server accepted the client's 0-RTT data; `None` until that is
    /// known, if there was none, and on a server that rejected it.
    #[must_use]
    pub fn zero_rtt_accepted(&self) -> Option<bool> {
        self.tls.zero_rtt_accepted
    }

    /// Returns whether the client had to validate its address by a Retry (RFC 9000 §8.1.2).
    #[must_use]
    pub fn retried(&self) -> bool {
        self.tls.retried()
    }

    /// Returns whether the peer has acknowledged a 0-RTT or 1-RTT packet. A client that completes its
    /// handshake and is not heard of again has not.
    #[must_use]
    pub fn has_been_acknowledged(&self) -> bool {
        self.network.recovery.largest_acked(Space::Data).is_some()
    }

    /// Returns when stream data or a DATAGRAM last arrived or was acknowledged for the
    /// first time. Before that, it is when the handshake was complete, or when the
    /// connection began. Packets that transfer no new data, such as a PING, its ACK or a
    /// retransmission, do not count.
    #[must_use]
    pub fn last_activity(&self) -> Instant {
        self.last_activity
    }

    /// Returns how many streams of this kind could be opened now. On
    /// `StreamEvent::StreamsAvailable`, no more tasks than that need to be woken.
    #[must_use]
    pub fn openable(&self, directionality: Directionality) -> u64 {
        self.frames.streams.openable(directionality)
    }

    /// Returns the number of open streams, those of either end. O(1).
    #[must_use]
    pub fn open_streams(&self) -> usize {
        self.frames.streams.counts().open
    }

    /// Opens a stream. Returns `None` while the peer's limit is reached;
    /// `StreamEvent::StreamsAvailable` follows.
    pub fn open(&mut self, directionality: Directionality) -> Option<StreamId> {
        self.frames.streams.open(directionality)
    }

    /// Returns the next stream that the peer opened.
    pub fn accept(&mut self, directionality: Directionality) -> Option<StreamId> {
        self.frames.streams.accept(directionality)
    }

    /// Returns how many streams that the peer opened wait for [`accept`](Self::accept).
    #[must_use]
    pub fn acceptable(&self, directionality: Directionality) -> u64 {
        self.frames.streams.acceptable(directionality)
    }

    /// Writes as much of `data` as the send buffer has room for. Returns the number of
    /// bytes written.
    ///
    /// # Errors
    /// See [`WriteError`]; `Blocked` is followed by `StreamEvent::Writable`.
    pub fn write(&mut self, id: StreamId, data: &[u8]) -> Result<usize, WriteError> {
        self.frames.streams.write(id, data)
    }

    /// Like [`write`](Self::write), but without a copy. Removes what was written from the
    /// front of `data`.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn write_chunk(&mut self, id: StreamId, data: &mut Bytes) -> Result<usize, WriteError> {
        self.frames.streams.write_chunk(id, data)
    }

    /// Returns how much of what was written on a stream was sent and acknowledged; `None`
    /// if the stream is over or was reset.
    #[must_use]
    pub fn send_progress(&self, id: StreamId) -> Option<SendProgress> {
        self.frames.streams.send_progress(id)
    }

    /// Returns how many streams of this directionality the peer may open, counted from the first
    /// (RFC 9000 §4.6).
    #[must_use]
    pub fn peer_stream_limit(&self, directionality: Directionality) -> u64 {
        self.frames.streams.peer_limit(directionality)
    }

    /// Returns the bytes of stream data sent so far, retransmissions not counted.
    #[must_use]
    pub fn stream_bytes_sent(&self) -> u64 {
        self.frames.streams.bytes_sent()
    }

    /// Returns the bytes of stream data delivered so far in both directions: those that the
    /// application has read, and those sent that were acknowledged or are no longer needed.
    #[must_use]
    pub fn stream_bytes_moved(&self) -> u64 {
        self.frames.streams.bytes_moved()
    }

    /// Ends the stream after the data written so far (FIN).
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn finish(&mut self, id: StreamId) -> Result<(), WriteError> {
        self.frames.streams.finish(id)
    }

    /// Abandons sending (RESET_STREAM). A code above 2^62 - 1 cannot be encoded and is
    /// replaced by 2^62 - 1.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn reset(&mut self, id: StreamId, code: u64) -> Result<(), WriteError> {
        self.frames.streams.reset(id, code)
    }

    /// Does the same, but still delivers the first `reliable_size` bytes of what was written
    /// (RESET_STREAM_AT, draft-ietf-quic-reliable-stream-reset §5). A peer without the extension
    /// is sent RESET_STREAM.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn reset_at(
        &mut self,
        id: StreamId,
        code: u64,
        reliable_size: u64,
    ) -> Result<(), WriteError> {
        self.frames.streams.reset_at(id, code, reliable_size)
    }

    /// Abandons receiving (STOP_SENDING). Codes are limited as in [`reset`](Self::reset).
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn stop(&mut self, id: StreamId, code: u64) -> Result<(), ReadError> {
        self.frames.streams.stop(id, code)
    }

    /// Reads into `buffer`. Returns the number of bytes read, or `None` at the end of the
    /// stream.
    ///
    /// # Errors
    /// See [`ReadError`]; `Blocked` is followed by `StreamEvent::Readable`.
    pub fn read(&mut self, id: StreamId, buffer: &mut [u8]) -> Result<Option<usize>, ReadError> {
        let read = self.frames.streams.read(id, buffer);
        if let Ok(Some(len)) = read {
            self.reports.trace.stream_read(id, len);
        }
        read
    }

    /// Reads at most `max` bytes without a copy. Returns `None` at the end of the stream.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read_chunk(&mut self, id: StreamId, max: usize) -> Result<Option<Bytes>, ReadError> {
        let chunk = self.frames.streams.read_chunk(id, max);
        if let Ok(Some(bytes)) = &chunk {
            self.reports.trace.stream_read(id, bytes.len());
        }
        chunk
    }

    /// Reads at most `max` bytes without a copy, and returns whether the stream ends with them: it
    /// is unknown from then on. There are no bytes if only the end was left.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read_chunk_with_end(
        &mut self,
        id: StreamId,
        max: usize,
    ) -> Result<(Bytes, bool), ReadError> {
        let read = self.frames.streams.read_chunk_with_end(id, max);
        if let Ok((bytes, _)) = &read
            && !bytes.is_empty()
        {
            self.reports.trace.stream_read(id, bytes.len());
        }
        read
    }

    /// Returns whether a stream has data to read, without reading it; `false` at the end of
    /// the stream. After `Blocked`, a [`Readable`](crate::stream::StreamEvent::Readable)
    /// event follows, as after a read.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn peek(&mut self, id: StreamId) -> Result<bool, ReadError> {
        self.frames.streams.peek(id)
    }

    /// Begins a group of streams with a limit of its own on what is written, in bytes. `marks` say
    /// when [`next_group_news`](Self::next_group_news) returns it.
    pub fn open_group(&mut self, group: StreamId, limit: u64, marks: GroupMarks) {
        self.frames.streams.open_group(group, limit, marks);
    }

    /// Adds a stream to a group. Its first `header` bytes, written by who opened it, do not count.
    pub fn join_group(&mut self, id: StreamId, group: StreamId, header: u64) {
        self.frames.streams.join_group(id, group, header);
    }

    /// Ends a group: its streams are limited no more.
    pub fn close_group(&mut self, group: StreamId) {
        self.frames.streams.close_group(group);
    }

    /// Returns the account of a group.
    #[must_use]
    pub fn group_account(&self, group: StreamId) -> Option<GroupAccount> {
        self.frames.streams.group_account(group)
    }

    /// Raises the limit on what is written on the streams of a group, in bytes.
    pub fn raise_group_limit(&mut self, group: StreamId, limit: u64) {
        self.frames.streams.raise_group_limit(group, limit);
    }

    /// Sets when a group is reported.
    pub fn set_group_marks(&mut self, group: StreamId, marks: GroupMarks) {
        self.frames.streams.set_group_marks(group, marks);
    }

    /// Returns a group that has passed its marks, or whose writers wait for its limit.
    pub fn next_group_news(&mut self) -> Option<StreamId> {
        self.frames.streams.next_group_news()
    }

    /// Returns the receive window of the connection, in bytes, which grows with the reader's rate.
    #[must_use]
    pub fn receive_window(&self) -> u64 {
        self.frames.streams.receive_window()
    }

    /// Sets the priority of a stream among the streams to send. Does nothing if the stream
    /// is over.
    pub fn set_priority(&mut self, id: StreamId, priority: Priority) {
        self.frames.streams.set_priority(id, priority);
    }

    /// Queues a message to be sent in a DATAGRAM frame (RFC 9221).
    ///
    /// # Errors
    /// See [`SendDatagramError`].
    pub fn send_datagram(&mut self, data: Bytes) -> Result<(), SendDatagramError> {
        let room = self.network.datagram_room(&self.frames);
        self.frames.datagrams_out.send(data, room)
    }

    /// Returns the next message received in a DATAGRAM frame.
    pub fn recv_datagram(&mut self) -> Option<Bytes> {
        self.frames.datagrams_in.recv()
    }

    /// Returns the size in bytes of the largest message that a packet of the active path
    /// can carry now; `None` if the peer does not accept DATAGRAM frames.
    #[must_use]
    pub fn max_datagram_size(&self) -> Option<usize> {
        let room = self.network.datagram_room(&self.frames);
        self.frames.datagrams_out.max_size(room)
    }

    /// Returns true once after a [`send_datagram`](Self::send_datagram) that failed with a
    /// full queue could be tried again.
    pub fn take_datagram_writable(&mut self) -> bool {
        self.frames.datagrams_out.take_writable()
    }

    /// Returns whether something the application just did makes a `transmit` worthwhile.
    /// False while congestion window, pacer, anti-amplification limit or host hold
    /// everything back: the datagram or timer that ends this is followed by a `transmit`
    /// anyway.
    #[must_use]
    pub fn is_transmit_due(&self) -> bool {
        if self.frames.streams.has_group_news() {
            return true;
        }
        match self.network.limit() {
            Limit::Amplification | Limit::Congestion | Limit::Pacing | Limit::Scheduling => false,
            Limit::Handshake
            | Limit::ConnectionFlowControl
            | Limit::StreamFlowControl
            | Limit::StreamLimit
            | Limit::Application => self.frames.has_pending_data(),
        }
    }

    /// Queues a PING, whose acknowledgement shows that the peer is reachable.
    pub fn ping(&mut self) {
        self.frames.ping();
    }

    /// Initiates a key update (RFC 9001 §6.1).
    ///
    /// # Errors
    /// See [`UpdateKeysError`].
    pub fn update_keys(&mut self, now: Instant) -> Result<(), UpdateKeysError> {
        self.begin_trace(now);
        if self.lifecycle.handshake != HandshakeState::Confirmed {
            return Err(UpdateKeysError::HandshakeNotConfirmed);
        }
        let Some(keys) = &mut self.keys.one_rtt else {
            return Err(UpdateKeysError::HandshakeNotConfirmed);
        };
        keys.initiate_update(now)
            .map_err(|_| UpdateKeysError::TooSoon)?;
        self.reports.key_updated(now, false);
        Ok(())
    }

    /// Moves the client to another local address at once, for a host whose old address is
    /// gone or about to go. From now on, packets are sent from there, with a fresh
    /// connection ID, while the path is validated (RFC 9000 §9.2). If validation fails, the
    /// connection returns to the last path that worked. Use [`probe`](Self::probe) while
    /// the old path still works.
    ///
    /// # Errors
    /// See [`MigrateError`]. The connection is unchanged then.
    pub fn migrate(&mut self, now: Instant, local_ip: Option<IpAddr>) -> Result<(), MigrateError> {
        self.begin_trace(now);
        let (network, mut cx, outcome) = self.network_parts(now);
        network.migrate(&mut cx, outcome, local_ip)
    }

    /// Validates the path from another local address, and moves the client there once the
    /// server has answered (RFC 9000 §9.1). Until then data stays on the current path, and
    /// if validation fails nothing else changes. A later call, or a move to the server's
    /// preferred address, replaces an earlier one.
    ///
    /// # Errors
    /// See [`MigrateError`]. The connection is unchanged then.
    pub fn probe(&mut self, now: Instant, local_ip: IpAddr) -> Result<(), MigrateError> {
        self.begin_trace(now);
        let (network, mut cx, outcome) = self.network_parts(now);
        network.probe(&mut cx, outcome, local_ip)
    }

    /// Reports that the host rejected a datagram of `size` bytes as too large (EMSGSIZE).
    pub fn on_datagram_too_large(&mut self, now: Instant, size: usize) {
        self.begin_trace(now);
        let reports = &mut self.reports;
        self.network.on_datagram_too_large(now, size, reports);
    }

    /// Asks the peer to retire the connection IDs it uses, and issues new ones (RFC 9000
    /// §5.1.2).
    pub fn rotate_connection_ids(&mut self) {
        self.frames.local_cids.rotate();
        self.issue_cids();
    }
}
