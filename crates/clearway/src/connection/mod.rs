//! The handle of a connection.

mod bells;
mod shared;

use std::net::SocketAddr;

use bytes::Bytes;
use clearway_quic::Role;
use clearway_quic::connection::{ConnectionError, Stats, UpdateKeysError};
use clearway_quic::event::Observer;
use clearway_quic::stream::Directionality;
use rustls::pki_types::CertificateDer;

use self::shared::available;
pub(crate) use self::shared::{Counted, SendEnd, SendSlot, Shared, Signal, State, Wakes};
use crate::error::SendDatagramError;
use crate::stream::{RecvStream, SendStream};

/// A QUIC connection. Clones are handles to the same one; when the last handle
/// (streams count) is gone, the connection is closed with code 0 as soon as the
/// peer has everything that was finished.
#[derive(Clone, Debug)]
pub struct Connection {
    shared: Counted,
}

impl Connection {
    pub(crate) fn new(shared: Counted) -> Self {
        Self { shared }
    }

    pub(crate) fn counted(&self) -> &Counted {
        &self.shared
    }

    /// The runtime of the shard that owns the connection.
    pub(crate) fn shard_runtime(&self) -> Option<&tokio::runtime::Handle> {
        self.shared.link.runtime()
    }

    /// Whether an HTTP request may be begun on it.
    pub(crate) fn takes_requests(&self) -> bool {
        self.shared.lock().takes_requests()
    }

    /// Whether an HTTP request may be sent on it as early data.
    pub(crate) fn takes_early_requests(&self) -> bool {
        self.shared.lock().takes_early_requests()
    }

    /// Opens a bidirectional stream, waiting while the peer's limit is reached.
    /// The peer learns of it with the first bytes.
    ///
    /// # Errors
    /// Why the connection ended.
    pub async fn open_bi(&self) -> Result<(SendStream, RecvStream), ConnectionError> {
        let id = self.open(Directionality::Bidirectional).await?;
        Ok((
            SendStream::new(self.shared.clone(), id),
            RecvStream::new(self.shared.clone(), id),
        ))
    }

    /// Opens a unidirectional stream, waiting while the peer's limit is reached.
    ///
    /// # Errors
    /// Why the connection ended.
    pub async fn open_uni(&self) -> Result<SendStream, ConnectionError> {
        let id = self.open(Directionality::Unidirectional).await?;
        Ok(SendStream::new(self.shared.clone(), id))
    }

    /// The next bidirectional stream that the peer opens.
    ///
    /// # Errors
    /// Why the connection ended.
    pub async fn accept_bi(&self) -> Result<(SendStream, RecvStream), ConnectionError> {
        let id = self.accept(Directionality::Bidirectional).await?;
        Ok((
            SendStream::new(self.shared.clone(), id),
            RecvStream::new(self.shared.clone(), id),
        ))
    }

    /// The next unidirectional stream that the peer opens.
    ///
    /// # Errors
    /// Why the connection ended.
    pub async fn accept_uni(&self) -> Result<RecvStream, ConnectionError> {
        let id = self.accept(Directionality::Unidirectional).await?;
        Ok(RecvStream::new(self.shared.clone(), id))
    }

    async fn open(
        &self,
        directionality: Directionality,
    ) -> Result<clearway_quic::stream::StreamId, ConnectionError> {
        let signal = available(directionality);
        let attempt = |state: &mut State| {
            if let Some(error) = state.error.as_deref() {
                return Some(Err(error.clone()));
            }
            if let Some((id, next)) = state.open(directionality) {
                self.shared.pass_on(signal, next);
                return Some(Ok(id));
            }
            // The peer may be told that we wait (STREAMS_BLOCKED).
            if state.quic.is_transmit_due() {
                self.shared.mark_dirty();
            }
            None
        };
        self.shared.wait_for(signal, attempt).await
    }

    async fn accept(
        &self,
        directionality: Directionality,
    ) -> Result<clearway_quic::stream::StreamId, ConnectionError> {
        let signal = match directionality {
            Directionality::Bidirectional => Signal::OpenedBi,
            Directionality::Unidirectional => Signal::OpenedUni,
        };
        let attempt = |state: &mut State| match state.quic.accept(directionality) {
            Some(id) => {
                if directionality == Directionality::Bidirectional {
                    state.sends.insert(id, SendSlot::default());
                }
                Some(Ok(id))
            }
            None => state.error.as_deref().cloned().map(Err),
        };
        self.shared.wait_for(signal, attempt).await
    }

    /// Sends an unreliable datagram (RFC 9221).
    ///
    /// # Errors
    /// See [`SendDatagramError`]; when `Full`,
    /// [`send_datagram_wait`](Self::send_datagram_wait) waits instead.
    pub fn send_datagram(&self, data: Bytes) -> Result<(), SendDatagramError> {
        let mut state = self.shared.lock();
        if let Some(error) = state.error.as_deref() {
            return Err(error.clone().into());
        }
        state.quic.send_datagram(data)?;
        self.shared.release(state);
        Ok(())
    }

    /// Sends an unreliable datagram, waiting while the queue is full.
    ///
    /// # Errors
    /// See [`SendDatagramError`]; never `Full`.
    pub async fn send_datagram_wait(&self, data: Bytes) -> Result<(), SendDatagramError> {
        let attempt = |state: &mut State| {
            if let Some(error) = state.error.as_deref() {
                return Some(Err(SendDatagramError::from(error.clone())));
            }
            // A copy of `Bytes` is a reference.
            match state.quic.send_datagram(data.clone()) {
                Err(clearway_quic::datagram::SendDatagramError::Full) => None,
                result => Some(result.map_err(SendDatagramError::from)),
            }
        };
        self.shared.wait_for(Signal::DatagramRoom, attempt).await?;
        self.shared.release(self.shared.lock());
        Ok(())
    }

    /// The next datagram received.
    ///
    /// # Errors
    /// Why the connection ended.
    pub async fn read_datagram(&self) -> Result<Bytes, ConnectionError> {
        let attempt = |state: &mut State| match state.quic.recv_datagram() {
            Some(data) => Some(Ok(data)),
            None => state.error.as_deref().cloned().map(Err),
        };
        self.shared.wait_for(Signal::Datagram, attempt).await
    }

    /// Largest datagram that could be sent now, in bytes; `None` if the peer
    /// accepts none.
    #[must_use]
    pub fn max_datagram_size(&self) -> Option<usize> {
        self.shared.lock().quic.max_datagram_size()
    }

    /// Closes the connection now, telling the peer `code` and `reason`. What
    /// was not delivered is lost: [`SendStream::finished`] waits for delivery.
    pub fn close(&self, code: u64, reason: impl AsRef<[u8]>) {
        let now = self.shared.now();
        let mut wakes = Wakes::default();
        let mut state = self.shared.lock();
        state.quic.close(now, code, reason.as_ref());
        state.dispatch(now, &mut wakes);
        drop(state);
        wakes.fire(&self.shared);
        self.shared.mark_dirty();
    }

    /// Waits until the connection has ended, and says why.
    pub async fn closed(&self) -> ConnectionError {
        let attempt = |state: &mut State| state.error.as_deref().cloned();
        self.shared.wait_for(Signal::Closed, attempt).await
    }

    /// Why the connection ended, if it has.
    #[must_use]
    pub fn close_reason(&self) -> Option<ConnectionError> {
        self.shared.lock().error.as_deref().cloned()
    }

    /// Waits until the handshake is complete. Connections come out of
    /// [`connect`](crate::Endpoint::connect) and
    /// [`accept`](crate::Endpoint::accept) that way, except with 0-RTT.
    ///
    /// # Errors
    /// Why the connection ended.
    pub async fn handshaken(&self) -> Result<(), ConnectionError> {
        let attempt = |state: &mut State| match state.error.as_deref() {
            Some(error) => Some(Err(error.clone())),
            None => state.connected.then_some(Ok(())),
        };
        self.shared.wait_for(Signal::Connected, attempt).await
    }

    /// Whether 0-RTT data may be written before the handshake.
    pub(crate) fn has_zero_rtt(&self) -> bool {
        self.shared.lock().quic.has_zero_rtt()
    }

    /// Whether the server took the client's 0-RTT data; `None` until it is known
    /// or if there was none. A server that refused it knows of none.
    #[must_use]
    pub fn zero_rtt_accepted(&self) -> Option<bool> {
        self.shared.lock().quic.zero_rtt_accepted()
    }

    /// Whether the client had to prove its address by a Retry.
    #[must_use]
    pub fn retried(&self) -> bool {
        self.shared.lock().quic.retried()
    }

    /// Whether the handshake resumed an earlier session.
    #[must_use]
    pub fn resumed(&self) -> bool {
        self.shared.lock().quic.resumed()
    }

    /// Which end this is.
    #[must_use]
    pub fn role(&self) -> Role {
        self.shared.lock().quic.role()
    }

    /// The peer's address now; it changes when the peer migrates.
    #[must_use]
    pub fn remote_address(&self) -> SocketAddr {
        self.shared.lock().quic.remote_address()
    }

    /// The application protocol both ends agreed on.
    #[must_use]
    pub fn alpn(&self) -> Option<Vec<u8>> {
        self.shared.lock().quic.alpn().map(<[u8]>::to_vec)
    }

    /// The name the client asked for (server).
    #[must_use]
    pub fn server_name(&self) -> Option<String> {
        self.shared.lock().quic.server_name().map(str::to_owned)
    }

    /// The certificates the peer showed, its own first.
    #[must_use]
    pub fn peer_certificates(&self) -> Option<Vec<CertificateDer<'static>>> {
        let state = self.shared.lock();
        state.quic.peer_certificates().map(<[_]>::to_vec)
    }

    /// The connection's figures now.
    #[must_use]
    pub fn stats(&self) -> Stats {
        // Read under the lock: no later than the next event that counts time.
        let state = self.shared.lock();
        state.quic.stats(self.shared.now())
    }

    /// Sends a PING, whose acknowledgement shows that the peer is there.
    pub fn ping(&self) {
        self.shared.lock().quic.ping();
        self.shared.mark_dirty();
    }

    /// Begins a new key phase (RFC 9001 §6.1).
    ///
    /// # Errors
    /// Before the handshake is confirmed, and before the last update is
    /// acknowledged.
    pub fn update_keys(&self) -> Result<(), UpdateKeysError> {
        let mut state = self.shared.lock();
        state.quic.update_keys(self.shared.now())?;
        state.quic.ping();
        drop(state);
        self.shared.mark_dirty();
        Ok(())
    }

    /// Retires the connection IDs in use and issues others.
    pub fn rotate_connection_ids(&self) {
        self.shared.lock().quic.rotate_connection_ids();
        self.shared.mark_dirty();
    }

    /// Installs a trace sink, called on the event loop with every event from
    /// now on. [`EndpointBuilder::observe`](crate::EndpointBuilder::observe)
    /// sees connections from their beginning.
    pub fn set_observer(&self, observer: Box<dyn Observer>) {
        self.shared.lock().quic.set_observer(observer);
    }

    /// A number that no other connection of the endpoint's shard has.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.shared.handle.0
    }
}
