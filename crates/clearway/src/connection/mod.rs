//! The handle of a connection.

mod notifiers;
mod on_lost;
mod shared;
mod state;
mod terminated;
mod wakeups;

use std::net::SocketAddr;

use bytes::Bytes;
use clearway_quic::Role;
use clearway_quic::connection::{ConnectionError, Stats, UpdateKeysError};
use clearway_quic::event::Observer;
use clearway_quic::stream::Directionality;
use rustls::pki_types::CertificateDer;

pub(crate) use self::on_lost::OnLost;
#[cfg(not(feature = "testing"))]
pub(crate) use self::shared::Stage;
#[cfg(feature = "testing")]
pub use self::shared::Stage;
pub(crate) use self::shared::{ConnectionRef, ConnectionShared};
pub(crate) use self::state::{SendEnd, SendSlot, State};
use self::wakeups::available;
pub(crate) use self::wakeups::{Signal, Wakeups};
use crate::error::SendDatagramError;
use crate::stream::{RecvStream, SendStream};

/// Bits of a connection's number that count the connections of one run of its shard.
const RESTARTS_AT: u32 = 48;

/// A QUIC connection. Clones are handles to the same one; when the last handle
/// (streams count) is gone, the connection is closed with code 0 as soon as the
/// peer has everything that was finished.
#[derive(Clone, Debug)]
pub struct Connection {
    shared: ConnectionRef,
}

impl Connection {
    pub(crate) fn new(shared: ConnectionRef) -> Self {
        Self { shared }
    }

    pub(crate) fn shared(&self) -> &ConnectionRef {
        &self.shared
    }

    /// The runtime of the shard that owns the connection.
    pub(crate) fn shard_runtime(&self) -> Option<&tokio::runtime::Handle> {
        self.shared.link.runtime()
    }

    /// Whether an HTTP request may be begun on it.
    pub(crate) fn takes_requests(&self) -> bool {
        self.shared.read(State::takes_requests, |_| false)
    }

    /// Whether an HTTP request may be sent on it as early data.
    pub(crate) fn takes_early_requests(&self) -> bool {
        self.shared.read(State::takes_early_requests, |_| false)
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
        self.shared.write_then_send_if(|state| {
            if let Some(error) = state.error.as_deref() {
                return (Err(error.clone().into()), false);
            }
            let sent = state.quic.send_datagram(data);
            (sent.map_err(SendDatagramError::from), true)
        })
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
        self.shared.write_then_send_if(|_| ((), true));
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
        self.shared
            .read(|state| state.quic.max_datagram_size(), |_| None)
    }

    /// Closes the connection now, telling the peer `code` and `reason`. What
    /// was not delivered is lost: [`SendStream::finished`] waits for delivery.
    pub fn close(&self, code: u64, reason: impl AsRef<[u8]>) {
        let now = self.shared.now();
        let mut wakeups = Wakeups::default();
        self.shared.call(|state| {
            state.quic.close(now, code, reason.as_ref());
            state.dispatch(&self.shared.link, now, &mut wakeups);
        });
        wakeups.fire(&self.shared);
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
        self.shared.read(
            |state| state.error.as_deref().cloned(),
            |terminated| Some(terminated.error.clone()),
        )
    }

    /// Waits until the handshake is complete. Connections come out of
    /// [`connect`](crate::Endpoint::connect) and
    /// [`accept`](crate::Endpoint::accept) that way, except with 0-RTT.
    ///
    /// # Errors
    /// Why the connection ended.
    pub async fn handshake_complete(&self) -> Result<(), ConnectionError> {
        let attempt = |state: &mut State| match state.error.as_deref() {
            Some(error) => Some(Err(error.clone())),
            None => state.connected.then_some(Ok(())),
        };
        self.shared.wait_for(Signal::Connected, attempt).await
    }

    /// Whether 0-RTT data may be written before the handshake.
    pub(crate) fn has_zero_rtt(&self) -> bool {
        self.shared
            .read(|state| state.quic.has_zero_rtt(), |_| false)
    }

    /// Whether the server took the client's 0-RTT data; `None` until it is known
    /// or if there was none. A server that refused it knows of none.
    #[must_use]
    pub fn zero_rtt_accepted(&self) -> Option<bool> {
        self.shared.read(
            |state| state.quic.zero_rtt_accepted(),
            |terminated| terminated.zero_rtt_accepted,
        )
    }

    /// Whether the client had to prove its address by a Retry.
    #[must_use]
    pub fn retried(&self) -> bool {
        self.shared.read(
            |state| state.quic.retried(),
            |terminated| terminated.retried,
        )
    }

    /// Whether the handshake resumed an earlier session.
    #[must_use]
    pub fn resumed(&self) -> bool {
        self.shared.read(
            |state| state.quic.resumed(),
            |terminated| terminated.resumed,
        )
    }

    /// Which end this is.
    #[must_use]
    pub fn role(&self) -> Role {
        self.shared
            .read(|state| state.quic.role(), |terminated| terminated.role)
    }

    /// The peer's address now; it changes when the peer migrates.
    #[must_use]
    pub fn remote_address(&self) -> SocketAddr {
        self.shared.read(
            |state| state.quic.remote_address(),
            |terminated| terminated.remote,
        )
    }

    /// The application protocol both ends agreed on.
    #[must_use]
    pub fn alpn(&self) -> Option<Vec<u8>> {
        self.shared.read(
            |state| state.quic.alpn().map(<[u8]>::to_vec),
            |terminated| terminated.alpn.clone(),
        )
    }

    /// The name the client asked for (server).
    #[must_use]
    pub fn server_name(&self) -> Option<String> {
        self.shared.read(
            |state| state.quic.server_name().map(str::to_owned),
            |terminated| terminated.server_name.clone(),
        )
    }

    /// The certificates the peer showed, its own first.
    #[must_use]
    pub fn peer_certificates(&self) -> Option<Vec<CertificateDer<'static>>> {
        self.shared.read(
            |state| state.quic.peer_certificates().map(<[_]>::to_vec),
            |terminated| terminated.certificates.clone(),
        )
    }

    /// The connection's figures now.
    #[must_use]
    pub fn stats(&self) -> Stats {
        // Read under the lock: no later than the next event that counts time.
        self.shared.read(
            |state| state.quic.stats(self.shared.now()),
            |terminated| terminated.stats.clone(),
        )
    }

    /// Sends a PING, whose acknowledgement shows that the peer is there.
    pub fn ping(&self) {
        self.shared.call(|state| state.quic.ping());
        self.shared.mark_dirty();
    }

    /// Begins a new key phase (RFC 9001 §6.1).
    ///
    /// # Errors
    /// Before the handshake is confirmed, and before the last update is
    /// acknowledged.
    pub fn update_keys(&self) -> Result<(), UpdateKeysError> {
        let update = |state: &mut State| {
            state.quic.update_keys(self.shared.now())?;
            state.quic.ping();
            Ok(())
        };
        // A connection that is over has no use for another key, and no error of its
        // own here: `closed` tells.
        self.shared
            .with_state(Stage::Call, update)
            .unwrap_or(Ok(()))?;
        self.shared.mark_dirty();
        Ok(())
    }

    /// Retires the connection IDs in use and issues others.
    pub fn rotate_connection_ids(&self) {
        self.shared.call(|state| state.quic.rotate_connection_ids());
        self.shared.mark_dirty();
    }

    /// Installs a trace sink, called on the event loop with every event from
    /// now on. [`EndpointBuilder::observe`](crate::EndpointBuilder::observe)
    /// sees connections from their beginning.
    pub fn set_observer(&self, observer: Box<dyn Observer>) {
        self.shared.call(|state| state.quic.set_observer(observer));
    }

    /// A number that no other connection of the endpoint's shard has.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.shared.handle.0 | self.shared.link.restarts() << RESTARTS_AT
    }

    /// Has the connection panic when it next comes there.
    #[cfg(feature = "testing")]
    pub fn inject(&self, stage: Stage) {
        self.shared.call(|state| state.fault = Some(stage));
        self.shared.mark_dirty();
    }
}
