//! Endpoints: binding, connecting, accepting, closing.

mod budget;
mod builder;
mod connecting;
mod eyeballs;
mod house;
mod qlog;
mod shards;

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};

use clearway_quic::connection::{ConnectOptions, EndpointEvent};
use clearway_quic::crypto::ServerName;
use clearway_udp::Socket;

pub(crate) use self::budget::{Budget, Share};
pub use self::budget::{MemoryAccount, MemoryCharge};
pub use self::builder::EndpointBuilder;
#[cfg(test)]
pub(crate) use self::builder::shard_parts;
pub use self::connecting::{Connecting, ZeroRttAccepted};
pub(crate) use self::eyeballs::Race;
pub(crate) use self::house::{Doorkeeper, House};
use self::shards::ShardFactory;
pub use crate::shard::ShardCounters as Counters;

use crate::application::Application;
use crate::config::{ClientConfig, ServerConfig};
use crate::connection::{Connection, Counted, Shared};
use crate::error::{BuildError, ConnectError, EndpointError};
use crate::http::Memory;
use crate::panic::catch;
use crate::shard::Link;

/// One UDP address from which connections are opened, or where they are
/// accepted, or both. Clones are handles to the same one; connections live on
/// without it.
#[derive(Clone, Debug)]
pub struct Endpoint {
    inner: Arc<Inner>,
}

struct Inner {
    house: Arc<House>,
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

    /// An endpoint that opens connections, on the caller's tokio runtime.
    ///
    /// # Errors
    /// If the address is taken or there is no runtime.
    pub fn client(address: SocketAddr, config: ClientConfig) -> Result<Self, BuildError> {
        EndpointBuilder::bind(address).client(config).build()
    }

    /// An endpoint that accepts connections, on a thread of its own.
    ///
    /// # Errors
    /// If the address is taken, or the certificate does not fit its key.
    pub fn server(address: SocketAddr, config: ServerConfig) -> Result<Self, BuildError> {
        EndpointBuilder::bind(address).server(config).build()
    }

    /// More to choose: shards, threads, socket options, both roles at once.
    pub fn builder(address: SocketAddr) -> EndpointBuilder {
        EndpointBuilder::bind(address)
    }

    /// Begins a connection to a server. `server_name` is what its certificate
    /// has to be for: a DNS name or an IP address.
    pub fn connect(&self, remote: SocketAddr, server_name: &str) -> Connecting {
        Connecting::new(match &self.inner.client {
            Some(config) => self.begin(config, remote, server_name),
            None => Err(ConnectError::NoClientConfig),
        })
    }

    /// Like [`connect`](Self::connect), with other settings than the endpoint's.
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
        let memory = Memory::new(config.sessions.clone(), server_name.clone());
        let connect = ConnectOptions {
            remote,
            local_ip: None,
            server_name,
            crypto,
            sessions: Some(config.sessions.clone()),
        };
        let house = &self.inner.house;
        let link = self.shard_for_client()?;
        let now = link.clock.now();
        let (handle, mut quic) = link
            .endpoint()
            .connect_with(now, connect, config.transport_config())
            .map_err(ConnectError::Tls)?;
        let shared = catch(|| {
            house.observe(&mut quic);
            let http = house.http(&quic, handle, now, Some(memory));
            Shared::new(quic, handle, link.clone(), http)
        });
        let shared = shared.map_err(|panic| {
            link.count_panic();
            link.endpoint().on_event(handle, EndpointEvent::Drained);
            ConnectError::Connection(panic.as_connection_error("as it began"))
        })?;
        let connection = Connection::new(Counted::new(shared.clone()));
        house.population.add();
        if link.push_begun(shared) {
            Ok(connection)
        } else {
            house.population.remove();
            let failure = link.failure().map(ConnectError::Endpoint);
            Err(failure.unwrap_or(ConnectError::EndpointClosed))
        }
    }

    /// Connections of a client are few or short: the least busy shard is as good as
    /// any, and the first is at hand.
    fn shard_for_client(&self) -> Result<Arc<Link>, ConnectError> {
        let links = self.inner.house.links();
        let alive = links.iter().find(|link| link.failure().is_none());
        match alive.or(links.first()) {
            Some(link) => link.failure().map_or(Ok(link.clone()), |e| Err(e.into())),
            None => Err(ConnectError::EndpointClosed),
        }
    }

    /// The next client's connection, its handshake complete (or with 0-RTT data
    /// at hand, if accepting that is configured); `None` after
    /// [`close`](Self::close) or [`stop_accepting`](Self::stop_accepting).
    ///
    /// # Errors
    /// Why a shard ended, if one has: its clients are not served any more. Shards
    /// that are left go on, and connections that they accept are held until
    /// [`restart_failed_shards`](Self::restart_failed_shards), after which this may
    /// be called again.
    pub async fn accept(&self) -> Result<Option<Connection>, EndpointError> {
        self.inner.house.accepts.next().await
    }

    /// Serves `application` until the endpoint is closed, each client in a task
    /// of its own on the caller's runtime.
    ///
    /// # Errors
    /// As [`accept`](Self::accept). Tasks of clients go on.
    pub async fn serve(&self, application: impl Application) -> Result<(), EndpointError> {
        let application = Arc::new(application);
        while let Some(connection) = self.accept().await? {
            let application = application.clone();
            tokio::spawn(async move { application.on_connection(connection).await });
        }
        Ok(())
    }

    /// Why a shard has ended, if one has and was not restarted.
    #[must_use]
    pub fn failure(&self) -> Option<EndpointError> {
        let links = self.inner.house.links();
        links.iter().find_map(|link| link.failure())
    }

    /// Starts each shard anew whose event loop has [failed](Self::failure), at the
    /// same address, and answers how many those were: 0 if none has failed or the
    /// endpoint was closed. After that [`accept`](Self::accept), [`serve`](Self::serve)
    /// and [`connect`](Self::connect) work again.
    ///
    /// Connections of a shard that fails have ended with it, and their handles say
    /// why; a server that has configured a [secret](ServerConfig::secret), or whose
    /// endpoint is the same, answers their peers with stateless resets. Other shards
    /// and their connections notice nothing: a socket that failed is replaced by one
    /// that takes its place in the kernel's steering, and if it were not so, shards
    /// pass each other what is not theirs. [Counters](Self::counters) of a shard
    /// begin anew with it.
    ///
    /// Nothing restarts shards by itself, because only the application knows how
    /// often that is to be tried and who has to hear of it:
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
    /// The system's, if no socket can be bound to the address or no thread be
    /// started; `NotConnected` if the endpoint runs on its caller's tokio runtime and
    /// this is called outside of one; `Unsupported` if it was the socket that failed,
    /// and the [application's own](EndpointBuilder::on_datagram_socket). It may be
    /// called again.
    pub fn restart_failed_shards(&self) -> io::Result<usize> {
        self.inner.factory.restart_failed(self.local_addr())
    }

    /// Makes something go wrong in a shard's next turn; does nothing if there is no
    /// such shard.
    #[cfg(feature = "testing")]
    pub fn inject(&self, shard: usize, fault: crate::Fault) {
        if let Some(link) = self.inner.house.shard(shard) {
            link.inject(fault);
        }
    }

    /// How it connects.
    pub(crate) fn client_config(&self) -> Option<&ClientConfig> {
        self.inner.client.as_ref()
    }

    /// The address the socket is bound to.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        *self
            .inner
            .local
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves to another socket, say on another network: connections opened here
    /// migrate to it (RFC 9000 §9). What is on its way to the old socket is lost
    /// and repaired.
    ///
    /// # Errors
    /// If the socket is of no use, or there are several shards.
    pub fn rebind(&self, socket: UdpSocket) -> io::Result<()> {
        let [link] = &self.inner.house.links()[..] else {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "an endpoint of several shards stays where it is",
            ));
        };
        socket.set_nonblocking(true)?;
        let local = socket.local_addr()?;
        let socket = Socket::from_std(socket, &self.inner.factory.options)?;
        link.rebind(Arc::new(socket));
        *self
            .inner
            .local
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = local;
        Ok(())
    }

    /// Accepts no more connections; those there are go on.
    pub fn stop_accepting(&self) {
        self.inner.house.accepts.close();
    }

    /// Closes all connections with `code` and `reason` and accepts no more.
    /// [`wait_idle`](Self::wait_idle) waits until the peers have been told.
    pub fn close(&self, code: u64, reason: impl AsRef<[u8]>) {
        self.inner.house.set_closed();
        for link in self.inner.house.links() {
            link.close(code, reason.as_ref());
        }
        self.inner.house.accepts.close();
    }

    /// Waits until there is no connection any more: each has said goodbye, and
    /// what its peer sent before it heard has died out (three PTOs, RFC 9000
    /// §10.2).
    pub async fn wait_idle(&self) {
        self.inner.house.population.extinct().await;
    }

    /// Connections now, ending ones included.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        self.inner.house.population.count()
    }

    /// Bytes of memory that connections take now, as counted against the
    /// [budget](ServerConfig::memory_budget); 0 on an endpoint without server settings,
    /// which has none.
    #[must_use]
    pub fn memory_used(&self) -> usize {
        self.inner.house.budget.used()
    }

    /// Returns the endpoint's memory budget, to count what the application holds for
    /// clients against it.
    #[must_use]
    pub fn memory_account(&self) -> MemoryAccount {
        MemoryAccount::new(&self.inner.house.budget)
    }

    /// Counts of each shard.
    #[must_use]
    pub fn counters(&self) -> Vec<Counters> {
        let links = self.inner.house.links();
        links.iter().map(|link| link.counters()).collect()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.house.accepts.close();
        for link in self.house.links() {
            link.abandon();
        }
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint")
            .field("shards", &self.house.shards())
            .field("connections", &self.house.population.count())
            .finish_non_exhaustive()
    }
}
