//! The builder of endpoints.

use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};

use clearway_quic::Role;
use clearway_quic::cid::generator::{
    CidGenerator, DEFAULT_CID_LEN, RandomGenerator, SHARD_PREFIX_LEN, ShardKey,
};
use clearway_quic::cid::id::MAX_CID_LEN;
use clearway_quic::connection::Config;
use clearway_quic::crypto::ResetKey;
use clearway_quic::endpoint::{AdmissionControl, EndpointConfig, GeneratorFactory};
use clearway_quic::event::Observer;
use clearway_quic::rng::Rng;
use clearway_udp::{DatagramSocket, Options, Socket, SteeringKey, bind_shards};

use super::budget::MemoryBudget;
use super::shards::{ShardFactory, WrapSocket};
use super::shared::{EndpointShared, EvictionConfig, ObserverFactory};
use super::{Endpoint, Inner};
use crate::config::{ClientConfig, ServerConfig};
use crate::error::BuildError;
use crate::panic::note_locations;
use crate::runtime::{Runtime, system_seed};
use crate::shard::Clock;

/// A builder of an [`Endpoint`]: its socket, its roles and its threads.
#[must_use]
pub struct EndpointBuilder {
    target: BindTarget,
    server: Option<ServerConfig>,
    client: Option<ClientConfig>,
    shards: usize,
    on_caller_runtime: Option<bool>,
    runtime: Option<Arc<dyn Runtime>>,
    options: Options,
    wrap: WrapSocket,
    pub(super) observers: Option<ObserverFactory>,
    generator: GeneratorFactory,
    http: Option<Arc<clearway_http3::Config>>,
}

enum BindTarget {
    Address(SocketAddr),
    Socket(UdpSocket),
    Custom(Arc<dyn DatagramSocket>),
}

impl EndpointBuilder {
    /// Binds a local address; port 0 takes any free port.
    pub fn bind(address: SocketAddr) -> Self {
        Self::at(BindTarget::Address(address))
    }

    /// Uses a socket that is bound already, for example by systemd. For one shard.
    pub fn on_socket(socket: UdpSocket) -> Self {
        Self::at(BindTarget::Socket(socket))
    }

    /// Uses an implementation of [`DatagramSocket`] by the application, for example one that
    /// counts, injects faults, or is not UDP. For one shard.
    pub fn on_datagram_socket(socket: Arc<dyn DatagramSocket>) -> Self {
        Self::at(BindTarget::Custom(socket))
    }

    /// Uses an implementation of [`DatagramSocket`] in place of the address or socket that this
    /// was created with.
    pub fn datagram_socket(mut self, socket: Arc<dyn DatagramSocket>) -> Self {
        self.target = BindTarget::Custom(socket);
        self
    }

    /// Has `wrap` make what is used in the place of each UDP socket of the endpoint: one for each
    /// shard, and later those that take the place of others. For example one that counts.
    pub fn wrap_sockets(
        mut self,
        wrap: impl Fn(Socket) -> Arc<dyn DatagramSocket> + Send + Sync + 'static,
    ) -> Self {
        self.wrap = Arc::new(wrap);
        self
    }

    fn at(target: BindTarget) -> Self {
        Self {
            target,
            server: None,
            client: None,
            shards: 1,
            on_caller_runtime: None,
            runtime: None,
            options: Options::default(),
            wrap: Arc::new(|socket: Socket| -> Arc<dyn DatagramSocket> { Arc::new(socket) }),
            observers: None,
            generator: Arc::new(|| Box::new(RandomGenerator::new(DEFAULT_CID_LEN))),
            http: None,
        }
    }

    /// Accepts connections with this configuration.
    pub fn server(mut self, config: ServerConfig) -> Self {
        self.server = Some(config);
        self
    }

    /// Opens connections with this configuration.
    pub fn client(mut self, config: ClientConfig) -> Self {
        self.client = Some(config);
        self
    }

    /// Sets the number of shards: sockets on the same address, each with its own thread,
    /// event loop and connections. Datagrams are steered to them by connection ID. The
    /// default is 1; more use more processors.
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = shards;
        self
    }

    /// Runs the shard, which must be the only one, as a task of the caller's tokio runtime.
    /// This is the default for endpoints without a server configuration: a client is seldom
    /// worth a thread.
    pub fn on_caller_runtime(mut self) -> Self {
        self.on_caller_runtime = Some(true);
        self
    }

    /// Runs each shard on a thread of its own. This is the default for endpoints with a server
    /// configuration, whose event loop must not wait for the application's tasks.
    pub fn on_own_threads(mut self) -> Self {
        self.on_caller_runtime = Some(false);
        self
    }

    /// Uses the clock, the timers and the tasks of `runtime`, in place of the system's clock and
    /// timers and of threads: for other runtimes, and for virtual time. Its socket needs a
    /// [readiness](DatagramSocket::readiness) that the runtime can wait for: flags of its own, or
    /// a descriptor on a tokio runtime.
    pub fn runtime(mut self, runtime: Arc<dyn Runtime>) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Sets the socket options, such as buffer sizes.
    pub fn socket_options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Calls `observers` for each new connection, with our role and the peer's address, to
    /// get its observer. Observers are called on the event loop and have to be quick.
    pub fn observe(
        mut self,
        observers: impl Fn(Role, SocketAddr) -> Option<Box<dyn Observer>> + Send + Sync + 'static,
    ) -> Self {
        self.observers = Some(Arc::new(observers));
        self
    }

    /// Generates the connection IDs that peers use towards this endpoint with generators
    /// built by `make`, one for each connection: for example for a load balancer that reads
    /// them (QUIC-LB). By default they are 8 random bytes, which tell an observer nothing.
    ///
    /// All must have the same length, or their first octet has to tell the length
    /// ([`CidGenerator::cid_lengths`]): from 1 to 20 bytes, and at least 8 bytes with several
    /// [`shards`](Self::shards). With several shards the endpoint calls the generator until
    /// a connection ID steers to the right shard, so the first 8 bytes have to vary.
    ///
    /// ```
    /// use clearway::{ClientConfig, DevelopmentIdentity, Endpoint};
    /// use clearway::connection_id::{CidGenerator, ConnectionId, Rng};
    ///
    /// /// A byte that names this server, and 11 random ones.
    /// #[derive(Debug)]
    /// struct Routable {
    ///     server: u8,
    /// }
    ///
    /// impl CidGenerator for Routable {
    ///     fn generate(&mut self, rng: &mut Rng) -> ConnectionId {
    ///         let mut bytes: [u8; 12] = rng.array();
    ///         bytes[0] = self.server;
    ///         ConnectionId::new(&bytes).expect("at most 20 bytes")
    ///     }
    ///
    ///     fn cid_len(&self) -> usize {
    ///         12
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let identity = DevelopmentIdentity::generate(["localhost"])?;
    /// # let config = ClientConfig::with_roots(identity.certificate_pem())?;
    /// let endpoint = Endpoint::builder("127.0.0.1:0".parse()?)
    ///     .client(config)
    ///     .connection_ids(|| Box::new(Routable { server: 7 }))
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connection_ids(
        mut self,
        make: impl Fn() -> Box<dyn CidGenerator> + Send + Sync + 'static,
    ) -> Self {
        self.generator = Arc::new(make);
        self
    }

    /// Makes every connection speak HTTP/3.
    pub(crate) fn http(mut self, config: Arc<clearway_http3::Config>) -> Self {
        self.http = Some(config);
        self
    }

    /// Binds the socket and starts the event loop.
    ///
    /// # Errors
    /// If the address is in use, a certificate does not match its key, connection IDs have an
    /// invalid length, or there is no tokio runtime to run on.
    pub fn build(self) -> Result<Endpoint, BuildError> {
        self.build_steered(|key| key)
    }

    /// Builds the endpoint with the kernel steering by another key than the shards do, which
    /// `steering_key` derives from theirs.
    fn build_steered(
        self,
        steering_key: impl FnOnce(SteeringKey) -> SteeringKey,
    ) -> Result<Endpoint, BuildError> {
        let on_caller = self.on_caller_runtime.unwrap_or(self.server.is_none());
        check_shards(self.shards, on_caller)?;
        if self.runtime.is_none() && on_caller && tokio::runtime::Handle::try_current().is_err() {
            return Err(BuildError::NoRuntime);
        }
        let cid_len = checked_cid_len(&self.generator, self.shards)?;
        note_locations();
        let mut rng = Rng::from_seed(match &self.runtime {
            Some(runtime) => runtime.random_seed()?,
            None => system_seed()?,
        });
        let key = ShardKey::new(&mut rng);
        let (mut endpoint_shared, config) =
            prepare(self.server, self.observers, self.generator, &mut rng)?;
        endpoint_shared.http = self.http;
        endpoint_shared.shards = self.shards;
        let factory = ShardFactory {
            endpoint_shared: Arc::new(endpoint_shared),
            config,
            key,
            clock: self.runtime.map_or_else(Clock::start, Clock::of),
            options: self.options,
            wrap: self.wrap,
            custom_socket: matches!(self.target, BindTarget::Custom(_)),
            on_caller_runtime: on_caller,
            rng: Mutex::new(rng),
            restarting: Mutex::new(()),
        };
        let steering = steering_key(factory.steering());
        let sockets = bind(self.target, self.shards, &factory, steering, cid_len)?;
        let local = match sockets.first() {
            Some(first) => first.local_addr()?,
            None => return Err(no_shards()),
        };
        let links = sockets.iter().enumerate();
        let links: Vec<_> = links
            .map(|(index, socket)| factory.link(index, socket, 0))
            .collect();
        factory.endpoint_shared.set_links(links.clone());
        // From here on, dropping the handle ends the shards.
        let endpoint = Endpoint::new(Inner {
            endpoint_shared: factory.endpoint_shared.clone(),
            client: self.client,
            local: Mutex::new(local),
            factory,
        });
        for (index, (link, socket)) in links.into_iter().zip(sockets).enumerate() {
            endpoint.inner.factory.start(index, link, socket)?;
        }
        Ok(endpoint)
    }
}

impl std::fmt::Debug for EndpointBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EndpointBuilder")
            .field("server", &self.server)
            .field("client", &self.client)
            .field("shards", &self.shards)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// Returns the length of the connection IDs if it is valid for this number of shards.
fn checked_cid_len(generator: &GeneratorFactory, shards: usize) -> Result<usize, BuildError> {
    let generator = generator();
    let len = generator.cid_lengths().shortest().min(generator.cid_len());
    let least = if shards > 1 { SHARD_PREFIX_LEN } else { 1 };
    if (least..=MAX_CID_LEN).contains(&len) {
        Ok(len)
    } else {
        Err(BuildError::ConnectionIdLength { len, least })
    }
}

fn check_shards(shards: usize, on_caller_runtime: bool) -> Result<(), BuildError> {
    match shards {
        0 => Err(no_shards()),
        2.. if on_caller_runtime => Err(BuildError::Shards(format!(
            "{shards} shards cannot run on the caller's runtime: use 1 shard, or on_own_threads"
        ))),
        _ => Ok(()),
    }
}

fn no_shards() -> BuildError {
    BuildError::Shards("the number of shards must be at least 1".to_owned())
}

/// Returns the state that the shards share, and the transport's configuration.
fn prepare(
    server: Option<ServerConfig>,
    observers: Option<ObserverFactory>,
    generator: GeneratorFactory,
    rng: &mut Rng,
) -> Result<(EndpointShared, EndpointConfig), BuildError> {
    let mut endpoint_shared = EndpointShared::default();
    endpoint_shared.observers = observers;
    let mut secret = rng.array();
    let mut transport: Arc<Config> = Arc::default();
    let mut accepting = None;
    if let Some(server) = server {
        endpoint_shared.backlog = server.backlog;
        endpoint_shared.admit.clone_from(&server.admit);
        endpoint_shared.budget = Arc::new(MemoryBudget::new(server.memory_budget));
        let evict_idle_after = server.evict_idle_after;
        let (server, config, chosen) = server.into_transport(secret)?;
        let admission = AdmissionControl::new(server.limits.clone(), rng);
        endpoint_shared.eviction = EvictionConfig {
            admission: Some(Arc::new(admission)),
            evict_idle_after,
            new_client_config: (server.crypto.max_early_data_size == 0).then(|| config.clone()),
        };
        secret = chosen;
        transport = config;
        accepting = Some(server);
    }
    let config = EndpointConfig {
        transport,
        server: accepting,
        reset_key: Arc::new(ResetKey::new(&secret)),
        generator,
    };
    Ok((endpoint_shared, config))
}

/// Returns the parts of a shard on `socket`, for tests that drive it by hand.
#[cfg(test)]
pub(crate) fn shard_parts(
    server: ServerConfig,
    clock: Clock,
    socket: &Arc<dyn DatagramSocket>,
) -> (Arc<EndpointShared>, Arc<crate::shard::ShardLink>) {
    let mut rng = Rng::from_seed([5; 32]);
    let generator: GeneratorFactory = Arc::new(|| Box::new(RandomGenerator::new(DEFAULT_CID_LEN)));
    let prepared = prepare(Some(server), None, generator, &mut rng);
    let (mut endpoint_shared, config) = prepared.expect("server settings");
    endpoint_shared.shards = 1;
    let endpoint = endpoint_shared.routing(config, rng);
    let budget = endpoint_shared.budget.clone();
    let link = crate::shard::ShardLink::new(clock, endpoint, socket, budget, 0);
    let link = Arc::new(link);
    endpoint_shared.set_links(vec![link.clone()]);
    (Arc::new(endpoint_shared), link)
}

fn bind(
    target: BindTarget,
    shards: usize,
    factory: &ShardFactory,
    key: SteeringKey,
    cid_len: usize,
) -> Result<Vec<Arc<dyn DatagramSocket>>, BuildError> {
    let options = &factory.options;
    let sockets = match target {
        BindTarget::Custom(socket) if shards == 1 => return Ok(vec![socket]),
        BindTarget::Address(address) => {
            // One shard receives everything, so nothing reads its connection IDs.
            let steered = cid_len.max(if shards == 1 { SHARD_PREFIX_LEN } else { 0 });
            bind_shards(address, shards, options, key, steered)?
        }
        BindTarget::Socket(socket) if shards == 1 => {
            socket.set_nonblocking(true)?;
            vec![Socket::from_std(socket, options)?]
        }
        BindTarget::Socket(_) | BindTarget::Custom(_) => {
            return Err(BuildError::Shards(format!(
                "{shards} shards cannot share one socket: use 1 shard, or bind an address"
            )));
        }
    };
    Ok(sockets
        .into_iter()
        .map(|socket| (factory.wrap)(socket))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Connection, DevelopmentIdentity};

    async fn echo(connection: Connection) {
        while let Ok((mut send, mut recv)) = connection.accept_bi().await {
            let copied = tokio::io::copy(&mut recv, &mut send).await;
            copied.expect("the client sends");
            send.finish().expect("the client waits");
        }
    }

    /// The kernel and the shards disagree about half of the connection IDs: the shards
    /// forward the datagrams to each other.
    #[tokio::test]
    async fn missteered_datagrams_reach_their_shard() {
        let identity = DevelopmentIdentity::generate(["localhost"]).expect("an identity");
        let config = ServerConfig::with_identity(identity.certificate_pem(), identity.key_pem());
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = EndpointBuilder::bind(address)
            .server(config.expect("server settings"))
            .shards(2)
            .build_steered(|key| SteeringKey {
                k0: !key.k0,
                k1: key.k1.rotate_left(9),
            })
            .expect("a server");
        let serving = server.clone();
        tokio::spawn(async move { serving.serve(echo).await });
        let trust = ClientConfig::with_roots(identity.certificate_pem()).expect("roots");
        for n in 0..16_u8 {
            let client = Endpoint::client(address, trust.clone()).expect("a client");
            let connecting = client.connect(server.local_addr(), "localhost");
            let connection = connecting.await.expect("connects");
            let (mut send, mut recv) = connection.open_bi().await.expect("opens");
            let content = vec![n; 50_000];
            send.write_all(&content).await.expect("writes");
            send.finish().expect("finishes");
            let answer = recv.read_to_end(content.len()).await;
            assert!(answer.expect("reads") == content);
        }
        let counters = server.counters();
        let total = |count: fn(&crate::Counters) -> u64| counters.iter().map(count).sum::<u64>();
        assert!(total(|shard| shard.strays_passed) > 100, "{counters:?}");
        assert_eq!(total(|shard| shard.strays_dropped), 0);
        assert_eq!(total(|shard| shard.endpoint.accepted), 16);
    }
}
