//! quinn, or noq, as a client.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use contract::runner::{Environment, Target, any_address};
use quinn::{ClientConfig, ConnectError, Connecting, Connection, Endpoint};
use rustls::{
    client::{ClientSessionMemoryCache, ClientSessionStore},
    pki_types::ServerName,
};
use tokio::task::JoinSet;

use super::{tls, transport};

/// How often, and how many times, to look for a session ticket.
const TICKET_PAUSE: Duration = Duration::from_millis(10);
const TICKET_LOOKS: u32 = 500;

/// How long the handshake may take to be confirmed, which a key update needs.
const CONFIRMATION: Duration = Duration::from_millis(100);

/// A client of one server.
pub(crate) struct Client {
    endpoint: Endpoint,
    config: ClientConfig,
    server: SocketAddr,
    name: String,
    tickets: Arc<ClientSessionMemoryCache>,
}

impl Client {
    /// Binds a socket and resolves the server's name, which all targets share.
    pub(crate) async fn new(environment: &Environment, targets: &[Target]) -> Result<Self> {
        let first = targets.first().context("nothing to download")?;
        let server = first.resolve().await?;
        let (tls, tickets) = tls::client(environment)?;
        let mut config = ClientConfig::new(Arc::new(tls));
        config.transport_config(transport(&environment.test_case)?);
        Ok(Self {
            endpoint: Endpoint::client(any_address(server))?,
            config,
            server,
            name: first.host.clone(),
            tickets,
        })
    }

    /// Begins a connection.
    pub(crate) fn connect(&self) -> Result<Connecting, ConnectError> {
        self.endpoint
            .connect_with(self.config.clone(), self.server, &self.name)
    }

    /// Closes all connections, and waits until that has been sent.
    pub(crate) async fn close(self) {
        self.endpoint.close(0_u8.into(), b"");
        self.endpoint.wait_idle().await;
    }

    async fn wait_for_ticket(&self) -> Result<()> {
        let name = ServerName::try_from(self.name.clone())?;
        for _ in 0..TICKET_LOOKS {
            if let Some(ticket) = self.tickets.take_tls13_ticket(&name) {
                self.tickets.insert_tls13_ticket(name, ticket);
                return Ok(());
            }
            tokio::time::sleep(TICKET_PAUSE).await;
        }
        bail!("the server sent no session ticket");
    }
}

/// Downloads everything over HTTP/0.9.
pub(crate) async fn run(environment: &Environment) -> Result<()> {
    let mut targets = environment.targets()?;
    let client = Client::new(environment, &targets).await?;
    match environment.test_case.as_str() {
        "multiconnect" | "handshakeloss" | "handshakecorruption" => {
            for target in targets {
                let connection = client.connect()?.await?;
                download(&connection, vec![target]).await?;
                connection.close(0_u8.into(), b"");
            }
        }
        test @ ("resumption" | "zerortt") => {
            let others = targets.split_off(1);
            let connection = client.connect()?.await?;
            download(&connection, targets).await?;
            client.wait_for_ticket().await?;
            connection.close(0_u8.into(), b"");
            if test == "resumption" {
                download(&client.connect()?.await?, others).await?;
            } else {
                let Ok((connection, accepted)) = client.connect()?.into_0rtt() else {
                    bail!("the ticket does not allow 0-RTT");
                };
                download(&connection, others).await?;
                ensure!(accepted.await, "the server rejected 0-RTT");
            }
        }
        test => {
            let connection = client.connect()?.await?;
            if test == "keyupdate" {
                let updated = connection.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(CONFIRMATION).await;
                    updated.force_key_update();
                });
            }
            download(&connection, targets).await?;
        }
    }
    client.close().await;
    Ok(())
}

/// Downloads everything at once over HTTP/0.9.
async fn download(connection: &Connection, targets: Vec<Target>) -> Result<()> {
    let mut downloads = JoinSet::new();
    for target in targets {
        let connection = connection.clone();
        downloads.spawn(async move {
            let (mut send, mut receive) = connection.open_bi().await?;
            let request = format!("GET {}\r\n", target.path);
            send.write_all(request.as_bytes()).await?;
            send.finish()?;
            target.store(&receive.read_to_end(usize::MAX).await?)
        });
    }
    while let Some(done) = downloads.join_next().await {
        done??;
    }
    Ok(())
}
