//! quinn as a server.

use std::sync::Arc;

use anyhow::{Context, Result};
use bytes::{Buf, Bytes};
use contract::{
    H3,
    options::Serve,
    pattern::{self, HEADER, pattern},
    report::{Closed, announce},
};
use h3::{quic::BidiStream, server::RequestStream};
use peer_quinn::{
    tls,
    transport::Transport,
    witness::{Witness, Witnessed},
};
use quinn::{Connection, Incoming, RecvStream, SendStream, ServerConfig, VarInt, crypto};

/// Application error code of a raw request shorter than its header.
const MALFORMED: VarInt = VarInt::from_u32(1);

/// Serves until killed.
pub(crate) async fn run(options: Serve) -> Result<()> {
    pattern::prepare();
    let alpn = if options.raw { pattern::ALPN } else { H3 };
    let tls = tls::server(alpn, &options.cert, &options.key, options.zero_rtt)?;
    let tls: Arc<dyn crypto::ServerConfig> = Arc::new(tls);
    let mut config = ServerConfig::with_crypto(Arc::clone(&tls));
    let transport = Transport::new(options.tuning.window, options.tuning.socket_buffer);
    config.transport_config(transport.config());
    let endpoint = transport.endpoint(options.listen, Some(config.clone()))?;
    announce(endpoint.local_addr()?)?;
    while let Some(incoming) = endpoint.accept().await {
        if options.retry && !incoming.remote_address_validated() {
            if let Err(error) = incoming.retry() {
                eprintln!("peer-h3-quinn: {error}");
            }
            continue;
        }
        let mut config = config.clone();
        let witness = Arc::new(Witness::default());
        // A server that need not report is measured as quinn is.
        if options.json {
            config.crypto = Arc::new(Witnessed::new(Arc::clone(&tls), Arc::clone(&witness)));
        }
        let options = options.clone();
        tokio::spawn(async move { visit(incoming, config, &witness, &options).await });
    }
    Ok(())
}

/// One client, from its first packet to the report.
async fn visit(incoming: Incoming, config: ServerConfig, witness: &Witness, options: &Serve) {
    // Of validated clients, those with a Retry token may not be sent another one.
    let retried = !incoming.may_retry();
    let cause = match accept(incoming, config, options.zero_rtt).await {
        Ok(connection) => {
            let served = match options.raw {
                true => raw(&connection).await,
                false => http(&connection).await,
            };
            let closed = connection.closed().await;
            served.map_or_else(|error| format!("{error:#}"), |()| closed.to_string())
        }
        Err(error) => error.to_string(),
    };
    if options.json {
        Closed {
            retried: Some(retried),
            zero_rtt_accepted: Some(witness.early_keys()),
            key_updates: Some(witness.key_updates()),
            peer_key_updates: Some(witness.peer_key_updates()),
            cause,
            ..Closed::new("quinn")
        }
        .print();
    }
}

/// The connection: once its handshake is done, or at once if early data is to be answered.
async fn accept(
    incoming: Incoming,
    config: ServerConfig,
    early: bool,
) -> Result<Connection, quinn::ConnectionError> {
    let connecting = incoming.accept_with(Arc::new(config))?;
    if !early {
        return connecting.await;
    }
    match connecting.into_0rtt() {
        Ok((connection, _)) => Ok(connection),
        Err(connecting) => connecting.await,
    }
}

async fn raw(connection: &Connection) -> Result<()> {
    // The connection's end is told by its cause.
    while let Ok((send, receive)) = connection.accept_bi().await {
        tokio::spawn(async move { answer_raw(send, receive).await });
    }
    Ok(())
}

/// One raw request, read to its FIN, then answered.
async fn answer_raw(mut send: SendStream, mut receive: RecvStream) -> Result<()> {
    let mut header = [0; HEADER];
    if receive.read_exact(&mut header).await.is_err() {
        send.reset(MALFORMED)?;
        return Ok(());
    }
    while receive.read_chunk(usize::MAX, false).await?.is_some() {}
    let wanted = u64::from_be_bytes(header);
    let mut offset = 0;
    while offset < wanted {
        let piece = pattern(offset, wanted - offset);
        offset += piece.len() as u64;
        send.write_chunk(piece).await?;
    }
    send.finish()?;
    Ok(())
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
