//! wtransport: a client, and a server of the echo.
//!
//! Its codes of streams are those of HTTP/3, which the conversion below turns into the
//! application's (draft-ietf-webtrans-http3 §4.4), written independently of Clearway's. It closes
//! sessions by closing the connection, with the application's code.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use wtransport::error::{ConnectionError, StreamReadError};
use wtransport::tls::Certificate;
use wtransport::{
    ClientConfig, Connection, Endpoint, Identity, RecvStream, SendStream, ServerConfig, VarInt,
};

use crate::session::{Closed, Read, Session};

const FIRST_CODE: u64 = 0x52e4_a40f_a8db;

fn code_on_the_wire(code: u32) -> Result<VarInt> {
    let code = u64::from(code);
    Ok(VarInt::try_from_u64(FIRST_CODE + code + code / 0x1e)?)
}

fn code_of_application(code: VarInt) -> Result<u32> {
    let shifted = code.into_inner().checked_sub(FIRST_CODE);
    let shifted = shifted.context("a code outside of the range of applications")?;
    Ok(u32::try_from(shifted - shifted / 0x1f)?)
}

/// A session, and the endpoint that carries it.
pub(crate) struct WtransportSession {
    connection: Connection,
    endpoint: Endpoint<wtransport::endpoint::endpoint_side::Client>,
}

pub(crate) async fn open(url: &str, cert: &Path) -> Result<WtransportSession> {
    let certificate = Certificate::load_pemfile(cert).await?;
    let config = ClientConfig::builder()
        .with_bind_address("127.0.0.1:0".parse()?)
        .with_server_certificate_hashes([certificate.hash()])
        .build();
    let endpoint = Endpoint::client(config)?;
    let connection = endpoint.connect(url).await?;
    Ok(WtransportSession {
        connection,
        endpoint,
    })
}

async fn read(recv: &mut RecvStream) -> Result<Read> {
    let (mut data, mut buffer) = (Vec::new(), vec![0; 65_536]);
    loop {
        match recv.read(&mut buffer).await {
            Ok(Some(len)) => data.extend_from_slice(&buffer[..len]),
            Ok(None) => return Ok(Read::Whole(data)),
            Err(StreamReadError::Reset(code)) => {
                return Ok(Read::Reset(code_of_application(code)?));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

impl Session for WtransportSession {
    type Send = SendStream;
    type Recv = RecvStream;

    async fn open_bi(&self) -> Result<(SendStream, RecvStream)> {
        Ok(self.connection.open_bi().await?.await?)
    }

    async fn accept_bi(&self) -> Result<(SendStream, RecvStream)> {
        Ok(self.connection.accept_bi().await?)
    }

    async fn open_uni(&self) -> Result<SendStream> {
        Ok(self.connection.open_uni().await?.await?)
    }

    async fn accept_uni(&self) -> Result<RecvStream> {
        Ok(self.connection.accept_uni().await?)
    }

    async fn write(send: &mut SendStream, data: &[u8]) -> Result<()> {
        Ok(send.write_all(data).await?)
    }

    async fn finish(send: &mut SendStream) -> Result<()> {
        Ok(send.finish().await?)
    }

    fn reset(send: &mut SendStream, code: u32) -> Result<()> {
        Ok(send.reset(code_on_the_wire(code)?)?)
    }

    async fn read(recv: &mut RecvStream) -> Result<Read> {
        read(recv).await
    }

    fn send_datagram(&self, data: &[u8]) -> Result<()> {
        Ok(self.connection.send_datagram(data)?)
    }

    async fn recv_datagram(&self) -> Result<Bytes> {
        Ok(self.connection.receive_datagram().await?.payload())
    }

    async fn closed(&self) -> Result<Closed> {
        match self.connection.closed().await {
            ConnectionError::ApplicationClosed(close) => Ok(Closed {
                code: close.code().into_inner(),
                reason: String::from_utf8_lossy(close.reason()).into_owned(),
            }),
            // It does not tell of a session that was closed, and ends the connection itself.
            ConnectionError::LocallyClosed => bail!("closed, but wtransport does not say how"),
            other => bail!("{other:?}"),
        }
    }

    async fn close(self, code: u32, reason: &str) -> Result<()> {
        self.connection
            .close(VarInt::from_u32(code), reason.as_bytes());
        self.endpoint.wait_idle().await;
        Ok(())
    }
}

/// Serves the echo: as `clearway serve --webtransport` does.
pub(crate) async fn serve(listen: SocketAddr, cert: &Path, key: &Path) -> Result<()> {
    let identity = Identity::load_pemfiles(cert, key).await?;
    let config = ServerConfig::builder()
        .with_bind_address(listen)
        .with_identity(identity)
        .keep_alive_interval(Some(Duration::from_secs(3)))
        .build();
    let server = Endpoint::server(config)?;
    println!("listening on {}", server.local_addr()?);
    loop {
        let incoming = server.accept().await;
        tokio::spawn(async move {
            let served = async {
                let connection = incoming.await?.accept().await?;
                println!("session ended: {}", echo(connection).await);
                Ok::<(), anyhow::Error>(())
            };
            if let Err(error) = served.await {
                eprintln!("{error:#}");
            }
        });
    }
}

/// Returns why the session ended.
async fn echo(connection: Connection) -> ConnectionError {
    loop {
        let ended = tokio::select! {
            stream = connection.accept_bi() => match stream {
                Ok((send, recv)) => {
                    tokio::spawn(log(bidirectional(connection.clone(), send, recv)));
                    continue;
                }
                Err(ended) => ended,
            },
            stream = connection.accept_uni() => match stream {
                Ok(recv) => {
                    let connection = connection.clone();
                    tokio::spawn(log(async move {
                        let send = connection.open_uni().await?.await?;
                        copy(Vec::new(), send, recv).await
                    }));
                    continue;
                }
                Err(ended) => ended,
            },
            datagram = connection.receive_datagram() => match datagram {
                Ok(datagram) => {
                    let _ = connection.send_datagram(datagram.payload());
                    continue;
                }
                Err(ended) => ended,
            },
        };
        return ended;
    }
}

async fn log(work: impl Future<Output = Result<()>>) {
    if let Err(error) = work.await {
        eprintln!("{error:#}");
    }
}

async fn bidirectional(
    connection: Connection,
    mut send: SendStream,
    mut recv: RecvStream,
) -> Result<()> {
    let mut first = vec![0; 65_536];
    let len = match recv.read(&mut first).await {
        Ok(len) => len.unwrap_or(0),
        Err(StreamReadError::Reset(code)) => return Ok(send.reset(code)?),
        Err(error) => return Err(error.into()),
    };
    first.truncate(len);
    let text = String::from_utf8_lossy(&first);
    let words: Vec<&str> = text.splitn(3, ' ').collect();
    match words[..] {
        ["close", code, reason] => {
            connection.close(VarInt::from_u32(code.parse()?), reason.as_bytes());
            Ok(())
        }
        ["reset", code] => Ok(send.reset(code_on_the_wire(code.parse()?)?)?),
        ["open"] => {
            let (send, recv) = connection.open_bi().await?.await?;
            copy(Vec::new(), send, recv).await
        }
        _ => copy(first, send, recv).await,
    }
}

/// Sends what arrives; a reset is passed on.
async fn copy(first: Vec<u8>, mut send: SendStream, mut recv: RecvStream) -> Result<()> {
    send.write_all(&first).await?;
    let mut buffer = vec![0; 65_536];
    loop {
        match recv.read(&mut buffer).await {
            Ok(Some(len)) => send.write_all(&buffer[..len]).await?,
            Ok(None) => return Ok(send.finish().await?),
            Err(StreamReadError::Reset(code)) => return Ok(send.reset(code)?),
            Err(error) => return Err(error.into()),
        }
    }
}
