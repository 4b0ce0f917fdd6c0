//! quinn, or noq, as a client.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use contract::runner::{Environment, Target, any_address};
use quinn::{ClientConfig, Connection, Endpoint};
use rustls::{
    client::{ClientSessionMemoryCache, ClientSessionStore},
    pki_types::ServerName,
};
use tokio::task::JoinSet;

use crate::{http3, tls, transport};

/// How often, and how many times, to look for a session ticket.
const TICKET_PAUSE: Duration = Duration::from_millis(10);
const TICKET_LOOKS: u32 = 500;

/// How long the handshake may take to be confirmed, which a key update needs.
const CONFIRMATION: Duration = Duration::from_millis(100);

/// Downloads everything.
pub(crate) async fn run(environment: &Environment) -> Result<()> {
    let mut targets = environment.targets()?;
    let first = targets.first().context("nothing to download")?;
    let server = first.resolve().await?;
    let (tls, tickets) = tls::client(environment)?;
    let mut config = ClientConfig::new(Arc::new(tls));
    config.transport_config(transport(&environment.test_case)?);
    let endpoint = Endpoint::client(any_address(server))?;
    let name = first.host.clone();
    let connect = || endpoint.connect_with(config.clone(), server, &name);
    match environment.test_case.as_str() {
        "http3" => http3::download(connect()?.await?, targets).await?,
        "multiconnect" | "handshakeloss" | "handshakecorruption" => {
            for target in targets {
                let connection = connect()?.await?;
                download(&connection, vec![target]).await?;
                connection.close(0_u8.into(), b"");
            }
        }
        test @ ("resumption" | "zerortt") => {
            let others = targets.split_off(1);
            let connection = connect()?.await?;
            download(&connection, targets).await?;
            wait_for_ticket(&tickets, &name).await?;
            connection.close(0_u8.into(), b"");
            if test == "resumption" {
                download(&connect()?.await?, others).await?;
            } else {
                let Ok((connection, accepted)) = connect()?.into_0rtt() else {
                    bail!("the ticket does not allow 0-RTT");
                };
                download(&connection, others).await?;
                ensure!(accepted.await, "the server rejected 0-RTT");
            }
        }
        test => {
            let connection = connect()?.await?;
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
    endpoint.close(0_u8.into(), b"");
    endpoint.wait_idle().await;
    Ok(())
}

async fn wait_for_ticket(tickets: &ClientSessionMemoryCache, name: &str) -> Result<()> {
    let name = ServerName::try_from(name.to_owned())?;
    for _ in 0..TICKET_LOOKS {
        if let Some(ticket) = tickets.take_tls13_ticket(&name) {
            tickets.insert_tls13_ticket(name, ticket);
            return Ok(());
        }
        tokio::time::sleep(TICKET_PAUSE).await;
    }
    bail!("the server sent no session ticket");
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
