//! The client.

use std::{
    net::{SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use clearway::{
    ClientConfig, ClientCrypto, ClientSessions, Connection, Endpoint, ServerId, ServerName,
    TransportConfig, Version, VersionPreference, http as http3,
};
use clearway_quic::crypto::{Algorithms, Suite};
use contract::runner::{Environment, Target, any_address};
use http_body::Body as _;
use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    server::HANDSHAKE_TIMEOUT,
    test_case::{Connections, TestCase},
};

/// The application protocol of HTTP/0.9 over QUIC.
pub(crate) const HQ: &str = "hq-interop";

/// How long a ticket may take to arrive after the first download.
const TICKET_TIMEOUT: Duration = Duration::from_secs(5);

/// How long to wait while the last connection closes. The closing period is three PTO (RFC 9000 §10.2),
/// which is more than a minute after a round trip of seven seconds. An endpoint that closes its socket
/// may end it earlier.
const CLOSING_TIMEOUT: Duration = Duration::from_secs(1);

/// Time between two attempts at a key update.
const KEY_UPDATE_PAUSE: Duration = Duration::from_millis(5);

/// Attempts at a key update: it is possible once the handshake is confirmed.
const KEY_UPDATE_ATTEMPTS: u32 = 400;

/// Bytes of a download after which the client moves to another port.
const MOVE_AFTER: usize = 100_000;

/// Returns the algorithms that are enabled in a test case.
pub(crate) fn algorithms(test: TestCase) -> Algorithms {
    if test.chacha20 {
        Algorithms::default().with_suites(&[Suite::ChaCha20Poly1305])
    } else {
        Algorithms::default()
    }
}

/// Downloads everything, unless SIGTERM ends it before. The qlog files are complete then, too.
pub(crate) async fn run(environment: &Environment, test: TestCase) -> Result<()> {
    let mut terminated = signal(SignalKind::terminate()).context("handling SIGTERM")?;
    tokio::select! {
        done = download_all(environment, test) => done,
        _ = terminated.recv() => bail!("ended by SIGTERM before everything had arrived"),
    }
}

async fn download_all(environment: &Environment, test: TestCase) -> Result<()> {
    let targets = environment.targets()?;
    let first = targets.first().context("nothing to download")?;
    let server = first.resolve().await?;
    let sessions = Arc::new(ClientSessions::default());
    // The runner makes certificates for each run, for names of its own.
    let crypto = ClientCrypto::dangerous_accept_any_certificate()
        .algorithms(algorithms(test))
        .key_log_from_env();
    let mut transport = TransportConfig::default();
    transport.handshake_timeout = HANDSHAKE_TIMEOUT;
    // The idle timeout would end a handshake first.
    transport.idle_timeout = HANDSHAKE_TIMEOUT;
    // The runner counts what is sent in 1-RTT packets: probes of the path's MTU would look like
    // requests that were not sent as early data.
    transport.mtu_discovery = test.connections != Connections::EarlyData;
    if let Some(congestion) = &environment.congestion {
        transport.controller = congestion.parse().context("CONGESTION")?;
    }
    let mut config = ClientConfig::with_crypto(crypto)
        .sessions(sessions.clone())
        .transport(transport);
    if test.version_2 {
        // Some servers follow the client's order. The first flight has version 1 all the same.
        config = config.versions(VersionPreference::new(&[Version::V2, Version::V1])?);
    }
    if test.http3 {
        return http3_downloads(config, server, targets).await;
    }
    let endpoint = Endpoint::builder(any_address(server))
        .client(config.alpn([HQ]))
        .on_caller_runtime()
        .qlog_from_env()
        .context("QLOGDIR")?
        .build()?;
    let client = Client {
        endpoint,
        server,
        name: first.host.clone(),
        sessions,
        test,
    };
    client.download_all(targets).await?;
    // CONNECTION_CLOSE is sent at once; what comes later would only repeat it.
    let _ = timeout(CLOSING_TIMEOUT, client.endpoint.wait_idle()).await;
    Ok(())
}

/// A client of HTTP/0.9.
struct Client {
    endpoint: Endpoint,
    server: SocketAddr,
    name: String,
    sessions: Arc<ClientSessions>,
    test: TestCase,
}

impl Client {
    async fn download_all(&self, targets: Vec<Target>) -> Result<()> {
        match self.test.connections {
            Connections::One => {
                let connection = self.connect().await?;
                self.download(&connection, targets).await
            }
            Connections::Resumed | Connections::EarlyData => {
                let mut targets = targets.into_iter();
                let connection = self.connect().await?;
                self.download(&connection, targets.next().into_iter().collect())
                    .await?;
                self.wait_for_ticket().await?;
                connection.close(0, b"");
                self.second_connection(targets.collect()).await
            }
            Connections::Each => {
                for target in targets {
                    let connection = self.connect().await?;
                    self.download(&connection, vec![target]).await?;
                    connection.close(0, b"");
                }
                Ok(())
            }
        }
    }

    async fn connect(&self) -> Result<Connection> {
        let connecting = self.endpoint.connect(self.server, &self.name);
        connecting.await.context("connecting")
    }

    async fn wait_for_ticket(&self) -> Result<()> {
        let server = ServerId {
            name: ServerName::try_from(self.name.clone())?,
            port: self.server.port(),
        };
        let stored = std::future::poll_fn(|cx| {
            self.sessions
                .poll_stored(&server, cx, |stored| stored.tickets > 0)
        });
        let waited = timeout(TICKET_TIMEOUT, stored).await;
        waited.context("the server sent no session ticket")?;
        Ok(())
    }

    async fn second_connection(&self, targets: Vec<Target>) -> Result<()> {
        if self.test.connections == Connections::Resumed {
            let connection = self.connect().await?;
            self.download(&connection, targets).await?;
            ensure!(connection.resumed(), "the session was not resumed");
            return Ok(());
        }
        let connecting = self.endpoint.connect(self.server, &self.name);
        let Ok((connection, _)) = connecting.into_zero_rtt() else {
            bail!("the ticket does not allow 0-RTT");
        };
        self.download(&connection, targets).await?;
        ensure!(
            connection.zero_rtt_accepted() == Some(true),
            "the server rejected 0-RTT"
        );
        Ok(())
    }

    /// Downloads everything at once on one connection.
    async fn download(&self, connection: &Connection, targets: Vec<Target>) -> Result<()> {
        let mut downloads = JoinSet::new();
        for target in targets {
            let connection = connection.clone();
            let moving = self.test.migration.then(|| self.endpoint.clone());
            downloads.spawn(async move { hq_download(&connection, &target, moving).await });
        }
        if self.test.key_update {
            update_keys(connection).await?;
        }
        while let Some(done) = downloads.join_next().await {
            done??;
        }
        Ok(())
    }
}

/// Updates the keys as soon as that is permitted.
async fn update_keys(connection: &Connection) -> Result<()> {
    for _ in 0..KEY_UPDATE_ATTEMPTS {
        if connection.update_keys().is_ok() {
            return Ok(());
        }
        sleep(KEY_UPDATE_PAUSE).await;
    }
    bail!("the keys could not be updated");
}

/// Downloads one file. With `moving`, its socket is replaced on the way.
async fn hq_download(
    connection: &Connection,
    target: &Target,
    mut moving: Option<Endpoint>,
) -> Result<()> {
    let (mut send, mut receive) = connection.open_bi().await?;
    let request = format!("GET {}\r\n", target.path);
    send.write_all(request.as_bytes()).await?;
    send.finish()?;
    let mut content = Vec::new();
    while let Some(chunk) = receive.read_chunk(usize::MAX).await? {
        content.extend_from_slice(&chunk);
        if content.len() >= MOVE_AFTER
            && let Some(endpoint) = moving.take()
        {
            let mut address = endpoint.local_addr();
            address.set_port(0);
            endpoint.rebind(UdpSocket::bind(address)?)?;
        }
    }
    target.store(&content)
}

/// Downloads everything at once over HTTP/3.
async fn http3_downloads(
    config: ClientConfig,
    server: SocketAddr,
    targets: Vec<Target>,
) -> Result<()> {
    let endpoint = Endpoint::builder(any_address(server))
        .on_caller_runtime()
        .qlog_from_env()
        .context("QLOGDIR")?;
    let client = http3::Client::with_endpoint(endpoint, config)?;
    let mut downloads = JoinSet::new();
    for target in targets {
        client.resolve(&target.host, target.port, [server]);
        let client = client.clone();
        downloads.spawn(async move {
            let response = client.get(&target.url).await?;
            ensure!(response.status().is_success(), "{}", response.status());
            let mut body = std::pin::pin!(response.into_body());
            let mut content = Vec::new();
            while let Some(frame) = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
                if let Ok(data) = frame?.into_data() {
                    content.extend_from_slice(&data);
                }
            }
            target.store(&content)
        });
    }
    while let Some(done) = downloads.join_next().await {
        done??;
    }
    client.close().await;
    Ok(())
}
