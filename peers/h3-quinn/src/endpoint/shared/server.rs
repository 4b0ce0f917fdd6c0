//! quinn, or noq, as a server.

use std::{
    net::{Ipv6Addr, SocketAddr},
    sync::Arc,
};

use anyhow::Result;
use contract::runner::{Environment, requested_path};
use quinn::{Connection, Endpoint, RecvStream, SendStream, ServerConfig};

use super::{tls, transport};

/// Longest request of HTTP/0.9 in bytes.
const MAX_REQUEST: usize = 4096;

/// Listens on the port that the runner wants.
pub(crate) fn listen(environment: &Environment) -> Result<Endpoint> {
    let mut config = ServerConfig::with_crypto(Arc::new(tls::server(environment)?));
    config.transport_config(transport(&environment.test_case)?);
    let address = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), environment.port);
    let endpoint = Endpoint::server(config, address)?;
    println!("listening on {}", endpoint.local_addr()?);
    Ok(endpoint)
}

/// Serves HTTP/0.9 until killed.
pub(crate) async fn run(environment: &Environment) -> Result<()> {
    let endpoint = listen(environment)?;
    while let Some(incoming) = endpoint.accept().await {
        if environment.test_case == "retry" && !incoming.remote_address_validated() {
            // It fails for validated addresses only.
            let _ = incoming.retry();
            continue;
        }
        let environment = environment.clone();
        tokio::spawn(async move {
            let connection = match incoming.accept()?.into_0rtt() {
                Ok((connection, _)) => connection,
                Err(connecting) => connecting.await?,
            };
            serve(environment, connection).await
        });
    }
    Ok(())
}

async fn serve(environment: Environment, connection: Connection) -> Result<()> {
    loop {
        let (send, receive) = connection.accept_bi().await?;
        let environment = environment.clone();
        tokio::spawn(async move { answer(&environment, send, receive).await });
    }
}

async fn answer(
    environment: &Environment,
    mut send: SendStream,
    mut receive: RecvStream,
) -> Result<()> {
    let request = receive.read_to_end(MAX_REQUEST).await?;
    match requested_path(&request).and_then(|path| environment.page(path)) {
        Some(content) => {
            send.write_all(&content).await?;
            send.finish()?;
        }
        None => send.reset(1_u8.into())?,
    }
    // The stream is dropped only when all of it has arrived.
    let _ = send.stopped().await;
    Ok(())
}
