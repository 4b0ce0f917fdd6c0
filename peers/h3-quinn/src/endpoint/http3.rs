//! HTTP/3 on quinn, by the h3 crate.

use std::future::poll_fn;

use anyhow::{Result, ensure};
use bytes::{Buf, Bytes};
use contract::runner::{Environment, Role, Target, page};
use h3::server::RequestStream;
use quinn::Connection;
use tokio::task::JoinSet;

use crate::shared::{client::Client, server};

/// Does what the runner asks for over HTTP/3.
pub(crate) async fn run(environment: Environment) -> Result<()> {
    match environment.role {
        Role::Client => {
            let targets = environment.targets()?;
            let client = Client::new(&environment, &targets).await?;
            download(client.connect()?.await?, targets).await?;
            client.close().await;
        }
        Role::Server => {
            let endpoint = server::listen(&environment)?;
            while let Some(incoming) = endpoint.accept().await {
                let environment = environment.clone();
                tokio::spawn(async move {
                    // h3 opens streams at once, and if the ClientHello is not complete by then,
                    // opening waits for a limit that quinn has, but does not tell of.
                    serve(environment, incoming.accept()?.await?).await
                });
            }
        }
    }
    Ok(())
}

/// Downloads everything at once.
async fn download(connection: Connection, targets: Vec<Target>) -> Result<()> {
    let transport = h3_quinn::Connection::new(connection);
    let (mut driver, requests) = h3::client::new(transport).await?;
    tokio::spawn(async move { poll_fn(|cx| driver.poll_close(cx)).await });
    let mut downloads = JoinSet::new();
    for target in targets {
        let mut requests = requests.clone();
        downloads.spawn(async move {
            let request = http::Request::get(&target.url).body(())?;
            let mut stream = requests.send_request(request).await?;
            stream.finish().await?;
            let response = stream.recv_response().await?;
            ensure!(response.status().is_success(), "{}", response.status());
            let mut content = Vec::new();
            while let Some(mut data) = stream.recv_data().await? {
                content.extend_from_slice(&data.copy_to_bytes(data.remaining()));
            }
            target.store(&content)
        });
    }
    while let Some(done) = downloads.join_next().await {
        done??;
    }
    Ok(())
}

/// Serves the requests of a connection until it ends.
async fn serve(environment: Environment, connection: Connection) -> Result<()> {
    let transport = h3_quinn::Connection::new(connection);
    let mut http = h3::server::builder().build::<_, Bytes>(transport).await?;
    while let Some(resolver) = http.accept().await? {
        let www = environment.www.clone();
        tokio::spawn(async move {
            let (request, mut stream): (_, RequestStream<_, Bytes>) =
                resolver.resolve_request().await?;
            let content = page(&www, request.uri().path());
            let status = if content.is_some() { 200 } else { 404 };
            let response = http::Response::builder().status(status).body(())?;
            stream.send_response(response).await?;
            if let Some(content) = content {
                stream.send_data(content.into()).await?;
            }
            stream.finish().await?;
            anyhow::Ok(())
        });
    }
    Ok(())
}
