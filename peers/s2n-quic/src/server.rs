//! s2n-quic as a server.

use anyhow::{Error, Result};
use bytes::{Buf, BytesMut};
use contract::{
    Unsupported,
    options::Serve,
    pattern::{self, HEADER, pattern},
    report::announce,
};
use s2n_quic::{provider::tls::rustls::Server as Tls, stream::BidirectionalStream};

use crate::tuning;

/// Application error code of a request shorter than its header.
const MALFORMED: u8 = 1;

/// Serves until killed.
pub(crate) async fn run(options: Serve) -> Result<()> {
    if !options.raw {
        return Err(Unsupported("HTTP/3").into());
    }
    if options.retry || options.zero_rtt {
        return Err(Unsupported("a server that always sends Retry, and early data").into());
    }
    pattern::prepare();
    let tls = Tls::builder()
        .with_certificate(options.cert.as_path(), options.key.as_path())
        .map_err(Error::from_boxed)?
        .with_application_protocols([pattern::ALPN].into_iter())
        .map_err(Error::from_boxed)?
        .build()
        .map_err(Error::from_boxed)?;
    let mut server = s2n_quic::Server::builder()
        .with_tls(tls)?
        .with_io(tuning::io(options.listen, options.tuning)?)?
        .with_limits(tuning::limits(options.tuning)?)?
        .start()?;
    announce(server.local_addr()?)?;
    while let Some(mut connection) = server.accept().await {
        tokio::spawn(async move {
            // The connection's end ends the loop, whatever its cause.
            while let Ok(Some(stream)) = connection.accept_bidirectional_stream().await {
                tokio::spawn(answer(stream));
            }
        });
    }
    Ok(())
}

/// One request, read to its FIN, then answered.
async fn answer(stream: BidirectionalStream) -> Result<()> {
    let (mut receive, mut send) = stream.split();
    let mut header = BytesMut::new();
    while let Some(chunk) = receive.receive().await? {
        let missing = HEADER.saturating_sub(header.len());
        header.extend_from_slice(&chunk[..chunk.len().min(missing)]);
    }
    if header.len() < HEADER {
        send.reset(MALFORMED.into())?;
        return Ok(());
    }
    let wanted = header.get_u64();
    let mut offset = 0;
    while offset < wanted {
        let piece = pattern(offset, wanted - offset);
        offset += piece.len() as u64;
        send.send(piece).await?;
    }
    send.finish()?;
    Ok(())
}
