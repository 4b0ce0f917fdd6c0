//! The handle of a connection.

mod notifiers;
mod on_lost;
mod shared;
mod state;
mod terminated;
pub(crate) mod wakeups;

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use clearway_quic::Role;
use clearway_quic::connection::{ConnectionError, PathStats, Stats, UpdateKeysError};
use clearway_quic::event::Observer;
use clearway_quic::stream::Directionality;
use clearway_quic::wire::Version;
use rustls::pki_types::CertificateDer;

pub(crate) use self::on_lost::OnLost;
#[cfg(not(feature = "testing"))]
pub(crate) use self::shared::Stage;
#[cfg(feature = "testing")]
pub use self::shared::Stage;
pub(crate) use self::shared::{ConnectionRef, ConnectionShared};
use self::state::Accepted;
pub(crate) use self::state::{Activity, EventSlice, SendEnd, SendSlot, State};
use self::wakeups::available;
pub(crate) use self::wakeups::{Signal, Wakeups};
use crate::error::SendDatagramError;
use crate::http::turns::Turns;
use crate::slice::requeue;
use crate::stream::{RecvStream, SendStream};

/// The bit of a connection's number above which restarts of its shard are counted; below are
/// the connections of one run.
const RESTARTS_AT: u32 = 48;

/// A QUIC connection. Clones are handles of the same connection.
///
/// When the last handle is dropped, streams included, the connection is closed with code 0
/// as soon as the peer has acknowledged all streams that were finished.
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

    /// Returns the runtime of the shard that owns the connection.
    pub(crate) fn shard_runtime(&self) -> Option<&tokio::runtime::Handle> {
        self.shared.link.runtime()
    }

    /// The turns of HTTP handlers on that runtime.
    pub(crate) fn shard_turns(&self) -> &Arc<Turns> {
        &self.shared.link.turns
    }

    /// Whether a new HTTP request may be sent on the connection.
    pub(crate) fn takes_requests(&self) -> bool {
        self.shared.read(State::takes_requests, |_| false)
    }

    /// Whether an HTTP request may be sent on the connection as early data.
    pub(crate) fn takes_early_requests(&self) -> bool {
        self.shared.read(State::takes_early_requests, |_| false)
    }

    /// Opens a bidirectional stream, waiting while the peer's limit is reached. The peer
    /// does not know of the stream before data is written to it.
    ///
    /// # Errors
    /// The reason why the connection ended.
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
    /// The reason why the connection ended.
    pub async fn open_uni(&self) -> Result<SendStream, ConnectionError> {
        let id = self.open(Directionality::Unidirectional).await?;
        Ok(SendStream::new(self.shared.clone(), id))
    }

    /// Accepts the next bidirectional stream that the peer opens.
    ///
    /// # Errors
    /// The reason why the connection ended.
    pub async fn accept_bi(&self) -> Result<(SendStream, RecvStream), ConnectionError> {
        let id = self.accept(Directionality::Bidirectional).await?;
        Ok((
            SendStream::new(self.shared.clone(), id),
            RecvStream::new(self.shared.clone(), id),
        ))
    }

    /// Accepts the next unidirectional stream that the peer opens.
    ///
    /// # Errors
    /// The reason why the connection ended.
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
            // A STREAMS_BLOCKED frame may have to be sent.
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
        loop {
            let busy = self.shared.link.busy.get();
            let attempt = |state: &mut State| match state.accept(directionality, busy) {
                Accepted::None => state.error.as_deref().cloned().map(Err),
                accepted => Some(Ok(accepted)),
            };
            match self.shared.wait_for(signal, attempt).await? {
                Accepted::Stream(id) => return Ok(id),
                Accepted::Later | Accepted::None => requeue().await,
            }
        }
    }

    /// Sends an unreliable datagram (RFC 9221).
    ///
    /// # Errors
    /// See [`SendDatagramError`]. While the queue is full,
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
    /// See [`SendDatagramError`], except `Full`.
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

    /// Receives the next datagram.
    ///
    /// # Errors
    /// The reason why the connection ended.
    pub async fn read_datagram(&self) -> Result<Bytes, ConnectionError> {
        let attempt = |state: &mut State| match state.quic.recv_datagram() {
            Some(data) => Some(Ok(data)),
            None => state.error.as_deref().cloned().map(Err),
        };
        self.shared.wait_for(Signal::Datagram, attempt).await
    }

    /// Returns the size of the largest datagram that could be sent now, in bytes; `None` if
    /// the peer accepts no datagrams.
    #[must_use]
    pub fn max_datagram_size(&self) -> Option<usize> {
        self.shared
            .read(|state| state.quic.max_datagram_size(), |_| None)
    }

    /// Closes the connection now with an application error `code` and `reason` for the peer.
    /// Data that was not delivered is lost: [`SendStream::finished`] waits for delivery.
    pub fn close(&self, code: u64, reason: impl AsRef<[u8]>) {
        let now = self.shared.now();
        let mut wakeups = Wakeups::default();
        self.shared.call(|state| {
            state.quic.close(now, code, reason.as_ref());
            let all = &mut EventSlice::unlimited();
            state.dispatch(&self.shared.link, now, &mut wakeups, all);
        });
        self.shared.wake(&mut wakeups);
        self.shared.mark_dirty();
    }

    /// Waits until the connection has ended, and returns the reason.
    pub async fn closed(&self) -> ConnectionError {
        let attempt = |state: &mut State| state.error.as_deref().cloned();
        self.shared.wait_for(Signal::Closed, attempt).await
    }

    /// Returns the reason why the connection ended, if it has.
    #[must_use]
    pub fn close_reason(&self) -> Option<ConnectionError> {
        self.shared.read(
            |state| state.error.as_deref().cloned(),
            |terminated| Some(terminated.error.clone()),
        )
    }

    /// Waits until the handshake is complete. Connections returned by
    /// [`connect`](crate::Endpoint::connect) and [`accept`](crate::Endpoint::accept) have
    /// completed it, except those with 0-RTT.
    ///
    /// # Errors
    /// The reason why the connection ended.
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

    /// Whether the server accepted the client's 0-RTT data; `None` until that is known, if
    /// there was none, and on a server that rejected it.
    #[must_use]
    pub fn zero_rtt_accepted(&self) -> Option<bool> {
        self.shared.read(
            |state| state.quic.zero_rtt_accepted(),
            |terminated| terminated.zero_rtt_accepted,
        )
    }

    /// Whether the client had to validate its address with a Retry packet.
    #[must_use]
    pub fn retried(&self) -> bool {
        self.shared.read(
            |state| state.quic.retried(),
            |terminated| terminated.retried,
        )
    }

    /// Returns the QUIC version of the connection. It is final once the handshake is complete.
    #[must_use]
    pub fn version(&self) -> Version {
        self.shared.read(
            |state| state.quic.version(),
            |terminated| terminated.version,
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

    /// Returns whether this is the client or the server.
    #[must_use]
    pub fn role(&self) -> Role {
        self.shared
            .read(|state| state.quic.role(), |terminated| terminated.role)
    }

    /// Returns the peer's current address, which changes when the peer migrates.
    #[must_use]
    pub fn remote_address(&self) -> SocketAddr {
        self.shared.read(
            |state| state.quic.remote_address(),
            |terminated| terminated.remote,
        )
    }

    /// Returns the application protocol that was negotiated (ALPN), if any.
    #[must_use]
    pub fn alpn(&self) -> Option<Vec<u8>> {
        self.shared.read(
            |state| state.quic.alpn().map(<[u8]>::to_vec),
            |terminated| terminated.alpn.clone(),
        )
    }

    /// Returns the name that the client asked for (SNI), on a server.
    #[must_use]
    pub fn server_name(&self) -> Option<String> {
        self.shared.read(
            |state| state.quic.server_name().map(str::to_owned),
            |terminated| terminated.server_name.clone(),
        )
    }

    /// Returns the peer's certificate chain, its own certificate first.
    #[must_use]
    pub fn peer_certificates(&self) -> Option<Vec<CertificateDer<'static>>> {
        self.shared.read(
            |state| state.quic.peer_certificates().map(<[_]>::to_vec),
            |terminated| terminated.certificates.clone(),
        )
    }

    /// Returns the connection's current statistics.
    #[must_use]
    pub fn stats(&self) -> Stats {
        // The clock is read under the lock, so that it is not later than the next event.
        self.shared.read(
            |state| state.quic.stats(self.shared.now()),
            |terminated| terminated.stats.clone(),
        )
    }

    /// Returns the current statistics of every path, including the active one. Empty once the
    /// connection has ended.
    #[must_use]
    pub fn path_stats(&self) -> Vec<PathStats> {
        self.shared.read(
            |state| state.quic.path_stats(self.shared.now()).collect(),
            |_| Vec::new(),
        )
    }

    /// Sends a PING frame: its acknowledgement shows that the peer is reachable.
    pub fn ping(&self) {
        self.shared.call(|state| state.quic.ping());
        self.shared.mark_dirty();
    }

    /// Initiates a key update (RFC 9001 §6.1).
    ///
    /// # Errors
    /// [`UpdateKeysError`] before the handshake is confirmed, and before the previous update
    /// is acknowledged.
    pub fn update_keys(&self) -> Result<(), UpdateKeysError> {
        let update = |state: &mut State| {
            state.quic.update_keys(self.shared.now())?;
            state.quic.ping();
            Ok(())
        };
        // A connection that has ended needs no new key; `closed` returns the reason.
        self.shared
            .with_state(Stage::Call, update)
            .unwrap_or(Ok(()))?;
        self.shared.mark_dirty();
        Ok(())
    }

    /// Retires the connection IDs in use and issues new ones.
    pub fn rotate_connection_ids(&self) {
        self.shared.call(|state| state.quic.rotate_connection_ids());
        self.shared.mark_dirty();
    }

    /// Installs an observer that is called on the event loop with every event from now on.
    /// One from [`EndpointBuilder::observe`](crate::EndpointBuilder::observe) sees
    /// connections from their beginning.
    pub fn set_observer(&self, observer: Box<dyn Observer>) {
        self.shared.call(|state| state.quic.set_observer(observer));
    }

    /// Returns a number that is unique among the connections of the endpoint's shard.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.shared.handle.0 | self.shared.link.restarts() << RESTARTS_AT
    }

    /// Makes the connection panic when it next reaches `stage`.
    #[cfg(feature = "testing")]
    pub fn inject(&self, stage: Stage) {
        self.shared.call(|state| state.fault = Some(stage));
        self.shared.mark_dirty();
    }
}
