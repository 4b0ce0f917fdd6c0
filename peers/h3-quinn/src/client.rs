//! quinn as a client.

use std::{
    future::poll_fn,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use bytes::{Buf, Bytes};
use contract::{
    Ask, H3, Session, Stack, Start,
    answer::Answer,
    options::Get,
    pattern::{self, pattern},
    report::Facts,
};
use h3::client::SendRequest;
use h3_quinn::OpenStreams;
use peer_quinn::{
    tls,
    transport::Transport,
    witness::{Witness, Witnessed},
};
use quinn::{ClientConfig, Connection, Endpoint, TransportConfig, VarInt};
use tokio::sync::oneshot;

/// How long to wait for a session ticket.
const TICKET_PATIENCE: Duration = Duration::from_secs(5);

/// H3_NO_ERROR (RFC 9114 §8.1).
const NO_ERROR: VarInt = VarInt::from_u32(0x100);

/// H3_REQUEST_CANCELLED, for a client that found something wrong.
const FAILED: VarInt = VarInt::from_u32(0x10c);

/// A client of one server.
pub(crate) struct Client {
    options: Get,
    endpoint: Endpoint,
    transport: Arc<TransportConfig>,
    tls: tls::Client,
}

impl Client {
    fn tls(options: &Get) -> Result<tls::Client> {
        let alpn = if options.raw { pattern::ALPN } else { H3 };
        tls::Client::new(alpn, &options.ca, options.remembers())
    }
}

impl Stack for Client {
    const PEER: &'static str = "quinn";
    type Session = Visit;

    fn new(options: &Get) -> Result<Self> {
        let any = match options.server.ip() {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let transport = Transport::new(options.tuning.window, options.tuning.socket_buffer);
        Ok(Self {
            endpoint: transport.endpoint(SocketAddr::new(any, 0), None)?,
            transport: transport.config(),
            tls: Self::tls(options)?,
            options: options.clone(),
        })
    }

    async fn connect(&self, start: Start) -> Result<Visit> {
        let witness = Arc::new(Witness::default());
        let certificates = self.tls.verifier.count();
        let tls: Arc<dyn quinn::crypto::ClientConfig> = Arc::clone(&self.tls.config) as _;
        let mut config = ClientConfig::new(Arc::new(Witnessed::new(tls, Arc::clone(&witness))));
        config.transport_config(Arc::clone(&self.transport));
        let connecting =
            self.endpoint
                .connect_with(config, self.options.server, &self.options.server_name)?;
        let early = Arc::new(AtomicU8::new(UNKNOWN));
        let connection = match (start, connecting) {
            (Start::Complete, connecting) => connecting.await?,
            (Start::Early, connecting) => match connecting.into_0rtt() {
                Ok((connection, accepted)) => {
                    let early = Arc::clone(&early);
                    tokio::spawn(async move {
                        early.store(if accepted.await { ACCEPTED } else { REFUSED }, Relaxed);
                    });
                    connection
                }
                Err(connecting) => {
                    early.store(REFUSED, Relaxed);
                    connecting.await?
                }
            },
        };
        let http = match self.options.raw {
            true => None,
            false => Some(begin(&connection).await?),
        };
        Ok(Visit {
            connection,
            http,
            witness,
            early: (start == Start::Early).then_some(early),
            verifier: Arc::clone(&self.tls.verifier),
            certificates,
            authority: format!(
                "{}:{}",
                self.options.server_name,
                self.options.server.port()
            )
            .into(),
        })
    }

    async fn ticket(&self) -> Result<()> {
        let arrived = self.tls.tickets.arrival(TICKET_PATIENCE).await;
        ensure!(arrived, "no session ticket arrived");
        Ok(())
    }

    async fn quiet(&self) {
        self.endpoint.wait_idle().await;
    }
}

/// Begins HTTP/3 on a connection; its control streams are a task's to read.
async fn begin(connection: &Connection) -> Result<SendRequest<OpenStreams, Bytes>> {
    let transport = h3_quinn::Connection::new(connection.clone());
    let (mut driver, http) = h3::client::builder()
        .build::<_, _, Bytes>(transport)
        .await?;
    tokio::spawn(async move { poll_fn(|cx| driver.poll_close(cx)).await });
    Ok(http)
}

/// Of early data: nothing is known yet.
const UNKNOWN: u8 = 0;
/// Of early data: the server took it.
const ACCEPTED: u8 = 1;
/// Of early data: the server did not take it, or there was no ticket for it.
const REFUSED: u8 = 2;

/// One connection.
#[derive(Clone)]
pub(crate) struct Visit {
    connection: Connection,
    http: Option<SendRequest<OpenStreams, Bytes>>,
    witness: Arc<Witness>,
    early: Option<Arc<AtomicU8>>,
    verifier: Arc<tls::CountingVerifier>,
    certificates: u64,
    authority: Arc<str>,
}

impl Session for Visit {
    async fn exchange(&self, ask: Ask, answer: &mut Answer) -> Result<()> {
        match &self.http {
            None => self.raw(ask, answer).await,
            Some(http) => self.http(http.clone(), ask, answer).await,
        }
    }

    async fn update_keys(&self) -> Result<()> {
        let updated = self.witness.update_keys(&self.connection).await;
        updated.context("updating keys")
    }

    async fn facts(&self) -> Facts {
        let early = self.early.as_ref().map(|early| early.load(Relaxed));
        Facts {
            resumed: Some(self.verifier.count() == self.certificates),
            zero_rtt_accepted: early
                .filter(|known| *known != UNKNOWN)
                .map(|e| e == ACCEPTED),
            retried: Some(self.witness.retried()),
            key_updates: Some(self.witness.key_updates()),
        }
    }

    fn close(&self, well: bool) {
        self.connection
            .close(if well { NO_ERROR } else { FAILED }, b"");
    }
}

impl Visit {
    async fn raw(&self, ask: Ask, answer: &mut Answer) -> Result<()> {
        let (mut send, mut receive) = self.connection.open_bi().await?;
        send.write_all(&ask.wanted.to_be_bytes()).await?;
        let mut offset = 0;
        while offset < ask.upload {
            let piece = pattern(offset, ask.upload - offset);
            offset += piece.len() as u64;
            send.write_chunk(piece).await?;
        }
        send.finish()?;
        let mut batch = [const { Bytes::new() }; 32];
        while let Some(count) = receive.read_chunks(&mut batch).await? {
            for chunk in &mut batch[..count] {
                answer.take(&std::mem::take(chunk))?;
            }
        }
        Ok(())
    }

    async fn http(
        &self,
        mut http: SendRequest<OpenStreams, Bytes>,
        ask: Ask,
        answer: &mut Answer,
    ) -> Result<()> {
        let uri = format!("https://{}{}", self.authority, ask.path());
        let method = if ask.upload > 0 { "POST" } else { "GET" };
        let request = http::Request::builder().method(method).uri(uri).body(())?;
        let stream = http.send_request(request).await?;
        let (mut send, mut receive) = stream.split();
        // An echo answers while the upload goes on: both at once, or both windows fill up.
        let (failed, failure) = oneshot::channel();
        if ask.upload > 0 {
            tokio::spawn(async move {
                let sent = async {
                    let mut offset = 0;
                    while offset < ask.upload {
                        let piece = pattern(offset, ask.upload - offset);
                        offset += piece.len() as u64;
                        send.send_data(piece).await?;
                    }
                    let mut trailers = http::HeaderMap::new();
                    trailers.insert("x-sum", pattern::sum(ask.upload).into());
                    send.send_trailers(trailers).await?;
                    send.finish().await?;
                    Ok::<_, h3::error::StreamError>(())
                };
                if let Err(error) = sent.await {
                    let _ = failed.send(error);
                }
            });
        } else {
            send.finish().await?;
            drop(failed);
        }
        answer.status(receive.recv_response().await?.status().as_u16())?;
        while let Some(mut data) = receive.recv_data().await? {
            while data.has_remaining() {
                let length = data.chunk().len();
                answer.take(data.chunk())?;
                data.advance(length);
            }
        }
        let trailers = receive.recv_trailers().await?;
        if let Some(sum) = trailers.as_ref().and_then(|trailers| trailers.get("x-sum")) {
            answer.trailer(sum.as_bytes())?;
        }
        match failure.await {
            Ok(error) => Err(error).context("uploading"),
            Err(_) => Ok(()),
        }
    }
}
