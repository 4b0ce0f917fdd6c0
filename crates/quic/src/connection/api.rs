//! What the application calls and hears.

use bytes::Bytes;
use core::fmt;
use std::net::SocketAddr;

use clearway_recovery::Space;
use clearway_recovery::limit::Limit;

use super::Connection;
use super::life::{ConnectionError, Handshake};
use crate::datagram::SendDatagramError;
use crate::stream::{
    Directionality, Priority, ReadError, SendProgress, StreamEvent, StreamId, WriteError,
};
use crate::wire::TransportParameters;
use crate::{Instant, Role};

/// What happened that the application may want to know. Edge-triggered: an
/// event is not repeated until something new happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The handshake is complete: keys, ALPN and certificates are known.
    Connected,
    /// Both ends know that it is (RFC 9001 §4.1.2).
    Confirmed,
    /// Something of a stream.
    Stream(StreamEvent),
    /// `recv_datagram` has something.
    DatagramReceived,
    /// Packets go to another address now.
    PathChanged {
        /// The peer's address.
        remote: SocketAddr,
    },
    /// The server refused 0-RTT: what was written is sent again in 1-RTT.
    ZeroRttRejected,
    /// The connection has ended; said once.
    Closed(ConnectionError),
}

/// A key update that can't begin now (RFC 9001 §6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UpdateKeysError {
    /// The handshake is not confirmed.
    HandshakeNotConfirmed,
    /// The last update is not acknowledged yet.
    TooSoon,
}

impl fmt::Display for UpdateKeysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HandshakeNotConfirmed => "the handshake is not confirmed yet",
            Self::TooSoon => "the last key update is not acknowledged yet",
        })
    }
}

impl std::error::Error for UpdateKeysError {}

impl Connection {
    /// The next event, until there is none.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events
            .pop_front()
            .or_else(|| self.streams.poll_event().map(Event::Stream))
    }

    /// Whether TLS is still running.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.handshake == Handshake::Running
    }

    /// Whether both ends know that the handshake is complete.
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        self.handshake == Handshake::Confirmed
    }

    /// Why the connection ended, if it has.
    #[must_use]
    pub fn error(&self) -> Option<&ConnectionError> {
        self.error.as_deref()
    }

    /// Whether the endpoint may forget the connection.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        matches!(self.life, super::life::Life::Drained)
    }

    /// The peer's address on the active path.
    #[must_use]
    pub fn remote_address(&self) -> SocketAddr {
        self.paths.active().remote
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
        self.tls.peer.as_ref()?.parameters(self.role.peer())
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
            && self.handshake == Handshake::Running
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

    /// How many streams of this kind could be opened now: so many of those that
    /// wait for one need waking on `StreamEvent::StreamsAvailable`, not all.
    #[must_use]
    pub fn openable(&self, directionality: Directionality) -> u64 {
        self.streams.openable(directionality)
    }

    /// Streams of either end that are not over. O(1).
    #[must_use]
    pub fn open_streams(&self) -> usize {
        self.streams.counts().open
    }

    /// Opens a stream; `None` while the peer's limit is reached (then
    /// `StreamEvent::StreamsAvailable` follows).
    pub fn open(&mut self, directionality: Directionality) -> Option<StreamId> {
        self.streams.open(directionality)
    }

    /// The next stream the peer opened.
    pub fn accept(&mut self, directionality: Directionality) -> Option<StreamId> {
        self.streams.accept(directionality)
    }

    /// Takes as much of `data` as the buffer allows; answers how much.
    ///
    /// # Errors
    /// See [`WriteError`]; `Blocked` is followed by `StreamEvent::Writable`.
    pub fn write(&mut self, id: StreamId, data: &[u8]) -> Result<usize, WriteError> {
        self.streams.write(id, data)
    }

    /// Like [`write`](Self::write) without a copy; advances `data`.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn write_chunk(&mut self, id: StreamId, data: &mut Bytes) -> Result<usize, WriteError> {
        self.streams.write_chunk(id, data)
    }

    /// How far what was written on a stream has come; `None` once there is no such
    /// stream, or it was reset.
    #[must_use]
    pub fn send_progress(&self, id: StreamId) -> Option<SendProgress> {
        self.streams.send_progress(id)
    }

    /// Bytes of stream data sent so far, each counted once.
    #[must_use]
    pub fn stream_bytes_sent(&self) -> u64 {
        self.streams.bytes_sent()
    }

    /// Bytes of stream data that reached their reader so far, either way: those that the
    /// application has read, and those sent that nothing is waited for any more.
    #[must_use]
    pub fn stream_bytes_moved(&self) -> u64 {
        self.streams.bytes_moved()
    }

    /// Ends the stream after what has been written.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn finish(&mut self, id: StreamId) -> Result<(), WriteError> {
        self.streams.finish(id)
    }

    /// Abandons sending (RESET_STREAM); a code over 2^62 - 1, which has no encoding,
    /// counts as that.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn reset(&mut self, id: StreamId, code: u64) -> Result<(), WriteError> {
        self.streams.reset(id, code)
    }

    /// Abandons receiving (STOP_SENDING); the code as in [`reset`](Self::reset).
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn stop(&mut self, id: StreamId, code: u64) -> Result<(), ReadError> {
        self.streams.stop(id, code)
    }

    /// Reads into `buffer`; `None` = the stream has ended.
    ///
    /// # Errors
    /// See [`ReadError`]; `Blocked` is followed by `StreamEvent::Readable`.
    pub fn read(&mut self, id: StreamId, buffer: &mut [u8]) -> Result<Option<usize>, ReadError> {
        let read = self.streams.read(id, buffer);
        if let Ok(Some(len)) = read {
            self.trace_read(id, len);
        }
        read
    }

    /// Reads at most `max` bytes without a copy; `None` = the stream has ended.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read_chunk(&mut self, id: StreamId, max: usize) -> Result<Option<Bytes>, ReadError> {
        let chunk = self.streams.read_chunk(id, max);
        if let Ok(Some(bytes)) = &chunk {
            self.trace_read(id, bytes.len());
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
        self.streams.peek(id)
    }

    /// Changes how a stream is scheduled against others; nothing happens if it
    /// has ended.
    pub fn set_priority(&mut self, id: StreamId, priority: Priority) {
        self.streams.set_priority(id, priority);
    }

    /// Queues a DATAGRAM frame (RFC 9221).
    ///
    /// # Errors
    /// If the peer takes none, it is too large, or the queue is full.
    pub fn send_datagram(&mut self, data: Bytes) -> Result<(), SendDatagramError> {
        let room = self.datagram_room();
        self.datagrams_out.send(data, room)
    }

    /// The next DATAGRAM received.
    pub fn recv_datagram(&mut self) -> Option<Bytes> {
        self.datagrams_in.recv()
    }

    /// Largest DATAGRAM that fits a packet of the active path now; `None` if
    /// the peer takes none.
    #[must_use]
    pub fn max_datagram_size(&self) -> Option<usize> {
        self.datagrams_out.max_size(self.datagram_room())
    }

    /// Room for frames in a full packet of the active path.
    pub(crate) fn datagram_room(&self) -> usize {
        /// First byte, packet number, tag.
        const OVERHEAD: usize = 1 + 4 + 16;
        let path = self.paths.active();
        let cid = self.remote_cids.cid(path.id).map_or(0, |cid| cid.len());
        usize::from(path.mtu.current()).saturating_sub(cid.saturating_add(OVERHEAD))
    }

    /// True once after a [`send_datagram`](Self::send_datagram) that was refused
    /// for a full queue could be tried again.
    pub fn take_datagram_writable(&mut self) -> bool {
        self.datagrams_out.take_writable()
    }

    /// Whether what the application just did calls for a `transmit`: false
    /// while window, pacer, address validation or the host hold everything
    /// back, since the datagram or the timer that ends that is followed by one
    /// anyway.
    #[must_use]
    pub fn is_transmit_due(&self) -> bool {
        match self.limit {
            Limit::Amplification | Limit::Congestion | Limit::Pacing | Limit::Scheduling => false,
            Limit::Handshake
            | Limit::ConnectionFlowControl
            | Limit::StreamFlowControl
            | Limit::StreamLimit
            | Limit::Application => self.wants_data(),
        }
    }

    /// Sends a PING, whose acknowledgement shows that the peer is there.
    pub fn ping(&mut self) {
        self.space(Space::Data).ping = true;
    }

    /// Begins a new key phase (RFC 9001 §6.1).
    ///
    /// # Errors
    /// See [`UpdateKeysError`].
    pub fn update_keys(&mut self, now: Instant) -> Result<(), UpdateKeysError> {
        if self.handshake != Handshake::Confirmed {
            return Err(UpdateKeysError::HandshakeNotConfirmed);
        }
        let Some(keys) = &mut self.keys.one_rtt else {
            return Err(UpdateKeysError::HandshakeNotConfirmed);
        };
        keys.initiate_update(now)
            .map_err(|_| UpdateKeysError::TooSoon)?;
        self.on_key_phase(now, false);
        Ok(())
    }

    /// Retires the connection IDs in use and issues others.
    pub fn rotate_connection_ids(&mut self) {
        self.local_cids.rotate();
        self.issue_cids();
    }
}
