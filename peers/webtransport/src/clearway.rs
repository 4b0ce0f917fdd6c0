//! Clearway's client.

use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Result, bail};
use bytes::Bytes;
use clearway::http::Client;
use clearway::http::webtransport::{
    ReadToEndError, RecvStream, SendStream, SessionError, StreamError, WebTransportSession,
};
use clearway::{ClientConfig, Endpoint, QlogDir};

use crate::session::{Closed, Read, Session};

const MAX: usize = 1 << 20;

/// A session, and the client that keeps its connection.
pub(crate) struct ClearwaySession {
    session: WebTransportSession,
    client: Client,
}

/// Opens a session, with a trace of its connection if there is a directory for that.
pub(crate) async fn open(
    url: &str,
    cert: &Path,
    qlog: Option<&QlogDir>,
) -> Result<ClearwaySession> {
    let config = ClientConfig::with_roots(std::fs::read(cert)?)?;
    let mut endpoint = Endpoint::builder((Ipv4Addr::UNSPECIFIED, 0).into());
    if let Some(dir) = qlog {
        endpoint = endpoint.qlog(dir.clone());
    }
    let client = Client::with_endpoint(endpoint, config)?;
    let (session, _) = client
        .webtransport(http::Request::get(url).body(())?)
        .await?;
    Ok(ClearwaySession { session, client })
}

impl Session for ClearwaySession {
    type Send = SendStream;
    type Recv = RecvStream;

    async fn open_bi(&self) -> Result<(SendStream, RecvStream)> {
        Ok(self.session.open_bi().await?)
    }

    async fn accept_bi(&self) -> Result<(SendStream, RecvStream)> {
        Ok(self.session.accept_bi().await?)
    }

    async fn open_uni(&self) -> Result<SendStream> {
        Ok(self.session.open_uni().await?)
    }

    async fn accept_uni(&self) -> Result<RecvStream> {
        Ok(self.session.accept_uni().await?)
    }

    async fn write(send: &mut SendStream, data: &[u8]) -> Result<()> {
        Ok(send.write_all(data).await?)
    }

    async fn finish(send: &mut SendStream) -> Result<()> {
        Ok(send.finish()?)
    }

    fn reset(send: &mut SendStream, code: u32) -> Result<()> {
        send.reset(code);
        Ok(())
    }

    async fn read(recv: &mut RecvStream) -> Result<Read> {
        match recv.read_to_end(MAX).await {
            Ok(data) => Ok(Read::Whole(data)),
            Err(ReadToEndError::Stream(StreamError::Reset(code))) => Ok(Read::Reset(code)),
            Err(error) => Err(error.into()),
        }
    }

    fn send_datagram(&self, data: &[u8]) -> Result<()> {
        Ok(self.session.send_datagram(data)?)
    }

    async fn recv_datagram(&self) -> Result<Bytes> {
        Ok(self.session.recv_datagram().await?)
    }

    async fn closed(&self) -> Result<Closed> {
        match self.session.closed().await {
            SessionError::Closed { code, reason } => Ok(Closed {
                code: code.into(),
                reason,
            }),
            other => bail!("{other:?}"),
        }
    }

    async fn close(self, code: u32, reason: &str) -> Result<()> {
        self.session.close(code, reason);
        // Delivers the session's close first.
        self.client.close().await;
        Ok(())
    }
}
