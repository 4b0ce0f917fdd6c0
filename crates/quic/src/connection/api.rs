//! What the application calls and hears.

use bytes::Bytes;
use std::net::{IpAddr, SocketAddr};

use clearway_recovery::limit::Limit;

use super::migration::MigrateError;
use super::state::{ConnectionError, HandshakeState, LifecycleState};
use super::{Connection, Event, UpdateKeysError};
use crate::datagram::SendDatagramError;
use crate::stream::{Directionality, Priority, ReadError, SendProgress, StreamId, WriteError};
use crate::wire::TransportParameters;
use crate::{Instant, Role};

impl Connection {
    /// The next event, until there is none.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.reports
            .events
            .pop_front()
            .or_else(|| self.frames.streams.poll_event().map(Event::Stream))
    }

    /// Whether TLS is still running.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.lifecycle.handshake == HandshakeState::Running
    }

    /// Whether both ends know that the handshake is complete.
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        self.lifecycle.handshake == HandshakeState::Confirmed
    }

    /// Why the connection ended, if it has.
    #[must_use]
    pub fn error(&self) -> Option<&ConnectionError> {
        self.lifecycle.error.as_deref()
    }

    /// Whether the endpoint may forget the connection.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        matches!(self.lifecycle.state, LifecycleState::Drained)
    }

    /// The peer's address on the active path.
    #[must_use]
    pub fn remote_address(&self) -> SocketAddr {
        self.network.paths.active().remote
    }

    /// The application protocol both ends agreed on.
    #[must_use]
    pub fn alpn(&self) -> Option<&[u8]> {
        self.tls.summary.alpn.as_deref()
    }

    /// The name the client asked for.
    #[must_use]
    pub fn server_name(&self) -> Option<&str> {
        self.tls.summary.server_name.as_deref()
    }

    /// The peer's certificates, its own first, DER.
    #[must_use]
    pub fn peer_certificates(&self) -> Option<&[rustls::pki_types::CertificateDer<'static>]> {
        Some(&self.tls.summary.peer_certificates[..]).filter(|chain| !chain.is_empty())
    }

    /// The peer's transport parameters, once they have arrived; read anew from
    /// their encoding by each call.
    #[must_use]
    pub fn peer_transport_parameters(&self) -> Option<TransportParameters> {
        self.tls.peer_parameters(self.role)
    }

    /// Whether TLS resumed an earlier session; false until it is known.
    #[must_use]
    pub fn resumed(&self) -> bool {
        self.tls.summary.resumed
    }

    /// Whether 0-RTT data may be written (client), before the handshake.
    #[must_use]
    pub fn has_zero_rtt(&self) -> bool {
        self.keys.zero_rtt.is_some()
    }

    /// Whether a client's 0-RTT packet has been read before the handshake is
    /// complete (server).
    #[must_use]
    pub fn has_readable_zero_rtt(&self) -> bool {
        self.role == Role::Server
            && self.lifecycle.handshake == HandshakeState::Running
            && self.keys.zero_rtt.is_some()
    }

    /// Whether the server took the client's 0-RTT data; `None` until it is known
    /// or if there was none. A server that refused it knows of none.
    #[must_use]
    pub fn zero_rtt_accepted(&self) -> Option<bool> {
        self.tls.zero_rtt_accepted
    }

    /// Whether the client had to prove its address by a Retry (RFC 9000 §8.1.2).
    #[must_use]
    pub fn retried(&self) -> bool {
        self.tls.retried()
    }

    /// When stream data or a DATAGRAM last arrived for the first time, or was
    /// acknowledged for the first time; before that, when the handshake was complete,
    /// and before that, when the connection began. A packet that moves none of it,
    /// such as a PING, an ACK of one or a repetition, does not count.
    #[must_use]
    pub fn last_activity(&self) -> Instant {
        self.last_activity
    }

    /// How many streams of this kind could be opened now: so many of those that
    /// wait for one need waking on `StreamEvent::StreamsAvailable`, not all.
    #[must_use]
    pub fn openable(&self, directionality: Directionality) -> u64 {
        self.frames.streams.openable(directionality)
    }

    /// Streams of either end that are not over. O(1).
    #[must_use]
    pub fn open_streams(&self) -> usize {
        self.frames.streams.counts().open
    }

    /// Opens a stream; `None` while the peer's limit is reached (then
    /// `StreamEvent::StreamsAvailable` follows).
    pub fn open(&mut self, directionality: Directionality) -> Option<StreamId> {
        self.frames.streams.open(directionality)
    }

    /// The next stream the peer opened.
    pub fn accept(&mut self, directionality: Directionality) -> Option<StreamId> {
        self.frames.streams.accept(directionality)
    }

    /// Takes as much of `data` as the buffer allows; answers how much.
    ///
    /// # Errors
    /// See [`WriteError`]; `Blocked` is followed by `StreamEvent::Writable`.
    pub fn write(&mut self, id: StreamId, data: &[u8]) -> Result<usize, WriteError> {
        self.frames.streams.write(id, data)
    }

    /// Like [`write`](Self::write) without a copy; advances `data`.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn write_chunk(&mut self, id: StreamId, data: &mut Bytes) -> Result<usize, WriteError> {
        self.frames.streams.write_chunk(id, data)
    }

    /// How far what was written on a stream has come; `None` once there is no such
    /// stream, or it was reset.
    #[must_use]
    pub fn send_progress(&self, id: StreamId) -> Option<SendProgress> {
        self.frames.streams.send_progress(id)
    }

    /// Bytes of stream data sent so far, each counted once.
    #[must_use]
    pub fn stream_bytes_sent(&self) -> u64 {
        self.frames.streams.bytes_sent()
    }

    /// Bytes of stream data that reached their reader so far, either way: those that the
    /// application has read, and those sent that nothing is waited for any more.
    #[must_use]
    pub fn stream_bytes_moved(&self) -> u64 {
        self.frames.streams.bytes_moved()
    }

    /// Ends the stream after what has been written.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn finish(&mut self, id: StreamId) -> Result<(), WriteError> {
        self.frames.streams.finish(id)
    }

    /// Abandons sending (RESET_STREAM); a code over 2^62 - 1, which has no encoding,
    /// counts as that.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn reset(&mut self, id: StreamId, code: u64) -> Result<(), WriteError> {
        self.frames.streams.reset(id, code)
    }

    /// Abandons receiving (STOP_SENDING); the code as in [`reset`](Self::reset).
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn stop(&mut self, id: StreamId, code: u64) -> Result<(), ReadError> {
        self.frames.streams.stop(id, code)
    }

    /// Reads into `buffer`; `None` = the stream has ended.
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

    /// Reads at most `max` bytes without a copy; `None` = the stream has ended.
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

    /// Whether a stream has data to read, without reading it; `false` = the stream has
    /// ended. After `Blocked` a [`Readable`](crate::stream::StreamEvent::Readable)
    /// follows, as after a read.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn peek(&mut self, id: StreamId) -> Result<bool, ReadError> {
        self.frames.streams.peek(id)
    }

    /// Changes how a stream is scheduled against others; nothing happens if it
    /// has ended.
    pub fn set_priority(&mut self, id: StreamId, priority: Priority) {
        self.frames.streams.set_priority(id, priority);
    }

    /// Queues a DATAGRAM frame (RFC 9221).
    ///
    /// # Errors
    /// If the peer takes none, it is too large, or the queue is full.
    pub fn send_datagram(&mut self, data: Bytes) -> Result<(), SendDatagramError> {
        let room = self.network.datagram_room(&self.frames);
        self.frames.datagrams_out.send(data, room)
    }

    /// The next DATAGRAM received.
    pub fn recv_datagram(&mut self) -> Option<Bytes> {
        self.frames.datagrams_in.recv()
    }

    /// Largest DATAGRAM that fits a packet of the active path now; `None` if
    /// the peer takes none.
    #[must_use]
    pub fn max_datagram_size(&self) -> Option<usize> {
        let room = self.network.datagram_room(&self.frames);
        self.frames.datagrams_out.max_size(room)
    }

    /// True once after a [`send_datagram`](Self::send_datagram) that was refused
    /// for a full queue could be tried again.
    pub fn take_datagram_writable(&mut self) -> bool {
        self.frames.datagrams_out.take_writable()
    }

    /// Whether what the application just did calls for a `transmit`: false
    /// while window, pacer, address validation or the host hold everything
    /// back, since the datagram or the timer that ends that is followed by one
    /// anyway.
    #[must_use]
    pub fn is_transmit_due(&self) -> bool {
        match self.network.limit() {
            Limit::Amplification | Limit::Congestion | Limit::Pacing | Limit::Scheduling => false,
            Limit::Handshake
            | Limit::ConnectionFlowControl
            | Limit::StreamFlowControl
            | Limit::StreamLimit
            | Limit::Application => self.frames.has_pending_data(),
        }
    }

    /// Sends a PING, whose acknowledgement shows that the peer is there.
    pub fn ping(&mut self) {
        self.frames.ping();
    }

    /// Begins a new key phase (RFC 9001 §6.1).
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

    /// Moves the client to another local address at once, for a host whose old
    /// address is gone or going: takes a fresh connection ID, sends from there
    /// from now on, and validates the path meanwhile (RFC 9000 §9.2). If nothing
    /// answers, the connection returns to the last path that worked. See
    /// [`probe`](Self::probe) for when the old path still works.
    ///
    /// # Errors
    /// See [`MigrateError`]; the connection goes on as before.
    pub fn migrate(&mut self, now: Instant, local_ip: Option<IpAddr>) -> Result<(), MigrateError> {
        self.begin_trace(now);
        let (network, mut cx, outcome) = self.network_parts(now);
        network.migrate(&mut cx, outcome, local_ip)
    }

    /// Validates the path from another local address, and moves the client there
    /// once the server has answered (RFC 9000 §9.1). Until then data goes where
    /// it went; if nothing answers, that is all that happens. A later call, and
    /// the move to a preferred address, replace the one before.
    ///
    /// # Errors
    /// See [`MigrateError`]; the connection goes on as before.
    pub fn probe(&mut self, now: Instant, local_ip: IpAddr) -> Result<(), MigrateError> {
        self.begin_trace(now);
        let (network, mut cx, outcome) = self.network_parts(now);
        network.probe(&mut cx, outcome, local_ip)
    }

    /// A datagram of `size` bytes was refused by the host as too large.
    pub fn on_datagram_too_large(&mut self, now: Instant, size: usize) {
        self.begin_trace(now);
        let reports = &mut self.reports;
        self.network.on_datagram_too_large(now, size, reports);
    }

    /// Retires the connection IDs in use and issues others.
    pub fn rotate_connection_ids(&mut self) {
        self.frames.local_cids.rotate();
        self.issue_cids();
    }
}
