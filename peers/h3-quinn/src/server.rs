//! quinn as a server.

use std::sync::Arc;

use anyhow::{Context, Result};
use bytes::{Buf, Bytes};
use contract::{
    H3,
    options::Serve,
    pattern::{self, pattern},
    report::{Closed, announce},
};
use h3::{quic::BidiStream, server::RequestStream};
use peer_quinn::{
    host::{Guest, Host, Terms},
    raw::{Tally, answer_all},
    transport::Transport,
};
use quinn::Connection;

use crate::quic_lb::Balanced;

/// Serves until killed.
pub(crate) async fn run(options: Serve, balanced: Balanced) -> Result<()> {
    pattern::prepare();
    let terms = Terms {
        alpn: if options.raw { pattern::ALPN } else { H3 },
        cert: &options.cert,
        key: &options.key,
        retry: options.retry,
        early: options.zero_rtt,
        witnessed: options.json,
    };
    let transport = Transport::new(options.tuning.window, options.tuning.socket_buffer);
    let host = Host::with(terms, &transport, options.listen, balanced.start()?)?;
    announce(host.local_addr()?)?;
    host.serve(|guest| visit(guest, options.raw, options.json))
        .await;
    Ok(())
}

/// One client, from its first packet to the report.
async fn visit(guest: Guest, raw: bool, json: bool) {
    let (retried, witness) = (guest.retried(), guest.witness());
    let mut remote = guest.remote_address();
    let cause = match guest.accept().await {
        Ok(connection) if raw => answer_all(&connection, &Arc::new(Tally::default()))
            .await
            .to_string(),
        Ok(connection) => {
            let served = http(&connection).await;
            let closed = connection.closed().await;
            remote = connection.remote_address();
            served.map_or_else(|error| format!("{error:#}"), |()| closed.to_string())
        }
        Err(error) => error.to_string(),
    };
    if json {
        Closed {
            retried: Some(retried),
            zero_rtt_accepted: Some(witness.early_keys()),
            key_updates: Some(witness.key_updates()),
            peer_key_updates: Some(witness.peer_key_updates()),
            remote: Some(remote),
            cause,
            ..Closed::new("quinn")
        }
        .print();
    }
}

async fn http(connection: &Connection) -> Result<()> {
    let transport = h3_quinn::Connection::new(connection.clone());
    let mut http = h3::server::builder().build::<_, Bytes>(transport).await?;
    // The connection's end is told by its cause.
    while let Ok(Some(resolver)) = http.accept().await {
        tokio::spawn(async move {
            let (request, stream) = resolver.resolve_request().await?;
            answer_http(&request, stream).await
        });
    }
    Ok(())
}

/// One HTTP request.
async fn answer_http<S>(
    request: &http::Request<()>,
    mut stream: RequestStream<S, Bytes>,
) -> Result<()>
where
    S: BidiStream<Bytes>,
{
    if request.method() == http::Method::POST {
        return echo(stream).await;
    }
    let wanted = request.uri().path().trim_start_matches('/');
    let Ok(wanted) = wanted.parse::<u64>() else {
        let response = http::Response::builder().status(404).body(())?;
        stream.send_response(response).await?;
        return Ok(stream.finish().await?);
    };
    let response = http::Response::builder().header("content-length", wanted);
    stream.send_response(response.body(())?).await?;
    let mut offset = 0;
    while offset < wanted {
        let piece = pattern(offset, wanted - offset);
        offset += piece.len() as u64;
        stream.send_data(piece).await?;
    }
    Ok(stream.finish().await?)
}

/// Sends a body back as it arrives, then its sum.
async fn echo<S: BidiStream<Bytes>>(mut stream: RequestStream<S, Bytes>) -> Result<()> {
    stream.send_response(http::Response::new(())).await?;
    let mut sum = 0_u64;
    while let Some(mut data) = stream.recv_data().await? {
        let data = data.copy_to_bytes(data.remaining());
        sum += data.iter().copied().map(u64::from).sum::<u64>();
        stream.send_data(data).await?;
    }
    let told = stream.recv_trailers().await?;
    let told = told.as_ref().and_then(|trailers| trailers.get("x-sum"));
    if told.is_some_and(|told| told.as_bytes() != sum.to_string().as_bytes()) {
        stream.stop_stream(h3::error::Code::H3_MESSAGE_ERROR);
        return Ok(());
    }
    let mut trailers = http::HeaderMap::new();
    trailers.insert("x-sum", sum.into());
    stream.send_trailers(trailers).await?;
    stream.finish().await.context("ending an echo")
}
