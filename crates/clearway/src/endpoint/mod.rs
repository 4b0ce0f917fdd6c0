//! Endpoints: binding, connecting, accepting, closing.

pub(crate) mod budget;
mod builder;
mod connecting;
mod happy_eyeballs;
mod qlog;
mod shards;
mod shared;

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};

use clearway_quic::connection::{ConnectOptions, EndpointEvent};
use clearway_quic::crypto::{ServerId, ServerName};
use clearway_udp::Socket;

pub(crate) use self::budget::{BufferLimit, MemoryBudget, Shortage};
pub use self::budget::{MemoryAccount, MemoryCharge};
pub use self::builder::EndpointBuilder;
#[cfg(test)]
pub(crate) use self::builder::shard_parts;
pub use self::connecting::{Connecting, ZeroRttAccepted};
pub(crate) use self::happy_eyeballs::Race;
use self::shards::ShardFactory;
pub(crate) use self::shared::{AdmitCallback, EndpointShared};
pub use crate::shard::ShardCounters as Counters;

use crate::application::Application;
use crate::config::{ClientConfig, ServerConfig};
use crate::connection::{Connection, ConnectionRef, ConnectionShared};
use crate::error::{BuildError, ConnectError, EndpointError};
use crate::http::RememberedSettings;
use crate::panic::catch;
use crate::shard::{CloseAll, CloseWhen, ShardLink};

/// A local UDP address that opens connections, accepts them, or both. Clones are handles of
/// the same endpoint. Connections go on after the last handle is dropped.
#[derive(Clone, Debug)]
pub struct Endpoint {
    inner: Arc<Inner>,
}

struct Inner {
    endpoint_shared: Arc<EndpointShared>,
    client: Option<ClientConfig>,
    local: Mutex<SocketAddr>,
    factory: ShardFactory,
}

impl Endpoint {
    fn new(inner: Inner) -> Self {
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Creates an endpoint that opens connections, on the caller's tokio runtime.
    ///
    /// # Errors
    /// If the address is in use, or there is no tokio runtime.
    pub fn client(address: SocketAddr, config: ClientConfig) -> Result<Self, BuildError> {
        EndpointBuilder::bind(address).client(config).build()
    }

    /// Creates an endpoint that accepts connections, on a thread of its own.
    ///
    /// # Errors
    /// If the address is in use, or the certificate does not match its key.
    pub fn server(address: SocketAddr, config: ServerConfig) -> Result<Self, BuildError> {
        EndpointBuilder::bind(address).server(config).build()
    }

    /// Returns a builder with more options: shards, threads, socket options, both roles at
    /// once.
    pub fn builder(address: SocketAddr) -> EndpointBuilder {
        EndpointBuilder::bind(address)
    }

    /// Begins a connection to a server. Its certificate has to be valid for `server_name`,
    /// a DNS name or an IP address.
    pub fn connect(&self, remote: SocketAddr, server_name: &str) -> Connecting {
        Connecting::new(match &self.inner.client {
            Some(config) => self.begin(config, remote, server_name),
            None => Err(ConnectError::NoClientConfig),
        })
    }

    /// Begins a connection as [`connect`](Self::connect) does, with another configuration
    /// than the endpoint's.
    pub fn connect_with(
        &self,
        config: &ClientConfig,
        remote: SocketAddr,
        server_name: &str,
    ) -> Connecting {
        Connecting::new(self.begin(config, remote, server_name))
    }

    fn begin(
        &self,
        config: &ClientConfig,
        remote: SocketAddr,
        name: &str,
    ) -> Result<Connection, ConnectError> {
        if remote.port() == 0 || self.local_addr().is_ipv4() && remote.is_ipv6() {
            return Err(ConnectError::Unreachable(remote));
        }
        let server_name = ServerName::try_from(name.to_owned())
            .map_err(|_| ConnectError::ServerName(name.to_owned()))?;
        let crypto = config
            .tls()
            .map_err(|error| ConnectError::Config(error.to_string()))?;
        let server = ServerId {
            name: server_name.clone(),
            port: remote.port(),
        };
        let remembered = RememberedSettings::new(config.sessions.clone(), server);
        let connect = ConnectOptions {
            remote,
            local_ip: None,
            server_name,
            crypto,
            sessions: Some(config.sessions.clone()),
        };
        let endpoint_shared = &self.inner.endpoint_shared;
        let link = self.shard_for_client()?;
        let now = link.clock.now();
        let (handle, mut quic) = link
            .endpoint()
            .connect_with(now, connect, config.transport_config())
            .map_err(ConnectError::Tls)?;
        let shared = catch(|| {
            endpoint_shared.observe(&mut quic);
            let http = endpoint_shared.http(&quic, handle, now, Some(remembered));
            ConnectionShared::new(quic, handle, link.clone(), http)
        });
        let shared = shared.map_err(|panic| {
            link.count_panic();
            link.endpoint().on_event(handle, EndpointEvent::Drained);
            ConnectError::Connection(panic.as_connection_error("as it began"))
        })?;
        let connection = Connection::new(ConnectionRef::new(shared.clone()));
        endpoint_shared.connection_count.add();
        if link.push_begun(shared) {
            Ok(connection)
        } else {
            endpoint_shared.connection_count.remove();
            let failure = link.failure().map(ConnectError::Endpoint);
            Err(failure.unwrap_or(ConnectError::EndpointClosed))
        }
    }

    /// Returns the shard for a client's connection: the first that has not failed. Clients
    /// have few or short connections, so that spreading them is not worth a search.
    fn shard_for_client(&self) -> Result<Arc<ShardLink>, ConnectError> {
        let links = self.inner.endpoint_shared.links();
        let alive = links.iter().find(|link| link.failure().is_none());
        match alive.or(links.first()) {
            Some(link) => link.failure().map_or(Ok(link.clone()), |e| Err(e.into())),
            None => Err(ConnectError::EndpointClosed),
        }
    }

    /// Accepts the next client's connection: when its handshake is complete, or has 0-RTT
    /// data to be read if [`early_data`](ServerConfig::early_data) is enabled. Returns `None`
    /// after [`close`](Self::close) or [`stop_accepting`](Self::stop_accepting).
    ///
    /// # Errors
    /// The reason why a shard failed: its clients are not served any more. Other shards go
    /// on, and connections that they accept are queued until
    /// [`restart_failed_shards`](Self::restart_failed_shards) was called; after that this may
    /// be called again.
    pub async fn accept(&self) -> Result<Option<Connection>, EndpointError> {
        self.inner.endpoint_shared.accept_queue.next().await
    }

    /// Accepts connections until the endpoint is closed, and serves each with `application` in
    /// a new task on the caller's runtime.
    ///
    /// # Errors
    /// As [`accept`](Self::accept). Tasks that were spawned go on.
    pub async fn serve(&self, application: impl Application) -> Result<(), EndpointError> {
        let application = Arc::new(application);
        while let Some(connection) = self.accept().await? {
            let application = application.clone();
            tokio::spawn(async move { application.on_connection(connection).await });
        }
        Ok(())
    }

    /// Returns the reason why a shard failed, if one has failed and was not restarted.
    #[must_use]
    pub fn failure(&self) -> Option<EndpointError> {
        let links = self.inner.endpoint_shared.links();
        links.iter().find_map(|link| link.failure())
    }

    /// Restarts each shard whose event loop has [failed](Self::failure), at the same address.
    /// Returns how many were restarted: 0 if none has failed or the endpoint was closed.
    /// After that [`accept`](Self::accept), [`serve`](Self::serve) and
    /// [`connect`](Self::connect) work again.
    ///
    /// The connections of a failed shard ended with it, and their handles return the reason.
    /// Their peers are answered with stateless resets, because the endpoint's
    /// [secret](ServerConfig::secret) is the same. Other shards and their connections are not
    /// affected: a failed socket is replaced by one that takes its place in the kernel's
    /// steering, and shards forward datagrams that reach the wrong one. The
    /// [counters](Self::counters) of a restarted shard begin at 0.
    ///
    /// Shards are not restarted automatically, because only the application knows how often
    /// to try and whom to notify:
    ///
    /// ```
    /// # async fn example(server: clearway::Endpoint) -> std::io::Result<()> {
    /// while let Err(error) = server.serve(async |_| {}).await {
    ///     eprintln!("restarting: {error}");
    ///     tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    ///     server.restart_failed_shards()?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The operating system's error if no socket can be bound to the address or no thread
    /// started; `NotConnected` if the endpoint runs on the caller's tokio runtime and this is
    /// called outside of one; `Unsupported` if the socket failed and was
    /// [passed by the application](EndpointBuilder::on_datagram_socket). After an error it
    /// may be called again.
    pub fn restart_failed_shards(&self) -> io::Result<usize> {
        self.inner.factory.restart_failed(self.local_addr())
    }

    /// Injects a fault into the next turn of a shard; does nothing if there is no such shard.
    #[cfg(feature = "testing")]
    pub fn inject(&self, shard: usize, fault: crate::Fault) {
        if let Some(link) = self.inner.endpoint_shared.shard(shard) {
            link.inject(fault);
        }
    }

    /// Returns the configuration with which it connects.
    pub(crate) fn client_config(&self) -> Option<&ClientConfig> {
        self.inner.client.as_ref()
    }

    /// Returns the address that the socket is bound to.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        *self
            .inner
            .local
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves the endpoint to another socket, for example on another network. Connections
    /// opened by this endpoint migrate to it (RFC 9000 §9). Datagrams on their way to the
    /// old socket are lost and retransmitted.
    ///
    /// # Errors
    /// `Unsupported` if there are several shards; otherwise the operating system's error
    /// about the socket.
    pub fn rebind(&self, socket: UdpSocket) -> io::Result<()> {
        let [link] = &self.inner.endpoint_shared.links()[..] else {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "an endpoint with several shards cannot be rebound",
            ));
        };
        socket.set_nonblocking(true)?;
        let local = socket.local_addr()?;
        let socket = Socket::from_std(socket, &self.inner.factory.options)?;
        link.rebind((self.inner.factory.wrap)(socket));
        *self
            .inner
            .local
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = local;
        Ok(())
    }

    /// Stops accepting connections. Open connections go on.
    pub fn stop_accepting(&self) {
        self.inner.endpoint_shared.accept_queue.close();
    }

    /// Closes all connections with an application error `code` and `reason`, and accepts no
    /// more. [`wait_idle`](Self::wait_idle) waits until the peers have been told.
    /// Data that was not delivered is lost, as with
    /// [`Connection::close`](crate::Connection::close).
    pub fn close(&self, code: u64, reason: impl AsRef<[u8]>) {
        self.close_when(CloseWhen::Now, code, reason.as_ref());
    }

    /// Does the same once what the application has ended is delivered, which takes a bounded time:
    /// streams that it finished or reset, and DATAGRAMs. Does not wait for the peers' data.
    pub(crate) fn close_when_delivered(&self, code: u64, reason: &[u8]) {
        self.close_when(CloseWhen::Delivered, code, reason);
    }

    fn close_when(&self, when: CloseWhen, code: u64, reason: &[u8]) {
        self.inner.endpoint_shared.set_closed();
        let close = CloseAll {
            code,
            reason: reason.to_vec(),
            when,
        };
        for link in self.inner.endpoint_shared.links() {
            link.close(close.clone());
        }
        self.inner.endpoint_shared.accept_queue.close();
    }

    /// Returns whether the endpoint was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.inner.endpoint_shared.is_closed()
    }

    /// Waits until no connection is left: each has sent its close, and waited for late packets
    /// of its peer (three PTOs, RFC 9000 §10.2).
    pub async fn wait_idle(&self) {
        self.inner
            .endpoint_shared
            .connection_count
            .wait_for_zero()
            .await;
    }

    /// Returns the number of connections now, those that are closing included.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        self.inner.endpoint_shared.connection_count.get()
    }

    /// Returns the memory that is charged to the [budget](ServerConfig::memory_budget) now, in
    /// bytes; 0 on an endpoint without a server configuration, which has no budget.
    #[must_use]
    pub fn memory_used(&self) -> usize {
        self.inner.endpoint_shared.budget.used()
    }

    /// Returns the endpoint's memory budget, so that the application can charge what it holds
    /// for clients.
    #[must_use]
    pub fn memory_account(&self) -> MemoryAccount {
        MemoryAccount::new(&self.inner.endpoint_shared.budget)
    }

    /// Returns the counters of each shard.
    #[must_use]
    pub fn counters(&self) -> Vec<Counters> {
        let links = self.inner.endpoint_shared.links();
        links.iter().map(|link| link.counters()).collect()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.endpoint_shared.accept_queue.close();
        for link in self.endpoint_shared.links() {
            link.abandon();
        }
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint")
            .field("shards", &self.endpoint_shared.shards())
            .field("connections", &self.endpoint_shared.connection_count.get())
            .finish_non_exhaustive()
    }
}
