//! Clearway as a client.

use std::{
    convert::Infallible,
    fs,
    future::poll_fn,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::Pin,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    task::{Context as Task, Poll},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use clearway::{
    ClientConfig, ClientSessions, Connection, Endpoint, ServerId, ServerName, http as http3,
};
use clearway_quic::crypto::{Algorithms, ClientCrypto, Roots};
use contract::{
    Ask, Session, Stack, Start, Unsupported,
    answer::Answer,
    options::{Get, Tuning},
    pattern::{self, pattern},
    report::Facts,
};
use http_body::{Body, Frame};
use tokio::time::{sleep, timeout};

/// How long a server may take to send a ticket.
const TICKET_PATIENCE: Duration = Duration::from_secs(2);

/// Time between two attempts at a key update.
const KEY_UPDATE_PAUSE: Duration = Duration::from_millis(5);

/// H3_NO_ERROR (RFC 9114 §8.1).
const NO_ERROR: u64 = 0x100;

/// H3_REQUEST_CANCELLED, for a client that found something wrong.
const FAILED: u64 = 0x10c;

/// A client of one server.
pub(crate) struct Client {
    options: Get,
    config: ClientConfig,
    sessions: Arc<ClientSessions>,
    endpoint: Endpoint,
    /// The clients of HTTP/3. One keeps one connection to a server at a time; many at once need a
    /// client each, all of them on one socket.
    clients: Mutex<Vec<http3::Client>>,
    any: SocketAddr,
}

impl Client {
    /// A client without a connection: the one there is, if connections follow one another.
    fn http(&self) -> Result<http3::Client> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let one_by_one = !self.options.has_many_connections()
            && !self.options.handshakes
            && self.options.idle.is_none();
        if one_by_one && let Some(client) = clients.first() {
            return Ok(client.clone());
        }
        let client = match clients.first() {
            Some(client) => client.with_own_connections(),
            None => http3::Client::bind(self.any, self.config.clone())?,
        };
        clients.push(client.clone());
        Ok(client)
    }
}

impl Stack for Client {
    const PEER: &'static str = "clearway";
    type Session = Visit;

    fn new(options: &Get) -> Result<Self> {
        untuned(options.tuning)?;
        let any = match options.server.ip() {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let any = SocketAddr::new(any, 0);
        let roots =
            fs::read(&options.ca).with_context(|| format!("reading {}", options.ca.display()))?;
        let sessions = Arc::new(ClientSessions::default());
        let mut crypto = ClientCrypto::new(Roots::from_pem(&roots)?);
        if options.tuning.x25519 {
            crypto = crypto.algorithms(Algorithms::default().x25519_only());
        }
        let config = ClientConfig::with_crypto(crypto).sessions(Arc::clone(&sessions));
        Ok(Self {
            endpoint: Endpoint::client(any, config.clone().alpn([pattern::ALPN]))?,
            options: options.clone(),
            config,
            sessions,
            clients: Mutex::default(),
            any,
        })
    }

    async fn connect(&self, start: Start) -> Result<Visit> {
        if !self.options.remembers() {
            self.sessions.clear();
        }
        if self.options.raw {
            let Get {
                server,
                server_name,
                ..
            } = &self.options;
            let connecting = self.endpoint.connect(*server, server_name);
            let (connection, early) = match (start, connecting) {
                (Start::Complete, connecting) => (connecting.await?, None),
                (Start::Early, connecting) => match connecting.into_zero_rtt() {
                    Ok((connection, _)) => (connection, Some(true)),
                    Err(connecting) => (connecting.await?, Some(false)),
                },
            };
            return Ok(Visit::Raw(connection, early));
        }
        let client = self.http()?;
        // The port is the origin's, so that the address is all there is to find out.
        let Get {
            server,
            server_name,
            ..
        } = &self.options;
        client.resolve(server_name, server.port(), [*server]);
        let visit = Http {
            client,
            origin: format!("https://{server_name}:{}", server.port()).into(),
            connection: Arc::default(),
            start,
        };
        if self.options.handshakes
            || self.options.idle.is_some()
            || self.options.has_many_connections()
        {
            // A client connects when it is first asked for something.
            visit.get(&format!("{}/0", visit.origin)).await?;
        }
        Ok(Visit::Http(visit))
    }

    async fn ticket(&self) -> Result<()> {
        let Get {
            server,
            server_name,
            raw,
            ..
        } = &self.options;
        let server = ServerId {
            name: ServerName::try_from(server_name.clone())?,
            port: server.port(),
        };
        let known = poll_fn(|cx| {
            self.sessions.poll_stored(&server, cx, |known| {
                known.tickets > 0 && (*raw || known.application.is_some())
            })
        });
        // A server that sends none is judged by the connection that follows.
        let _ = timeout(TICKET_PATIENCE, known).await;
        Ok(())
    }

    async fn quiet(&self) {
        let clients = self.clients.lock();
        let clients = std::mem::take(&mut *clients.unwrap_or_else(PoisonError::into_inner));
        for client in clients {
            client.endpoint().wait_idle().await;
        }
        self.endpoint.wait_idle().await;
    }
}

/// Refuses tuning: the library finds windows and buffers by itself.
pub(crate) fn untuned(tuning: Tuning) -> Result<()> {
    match tuning {
        Tuning {
            window: None,
            socket_buffer: None,
            x25519: _,
        } => Ok(()),
        Tuning { .. } => Err(Unsupported("windows and buffers by hand").into()),
    }
}

/// One connection.
#[derive(Clone)]
pub(crate) enum Visit {
    /// Of clearway-raw; whether early data could be sent, if that was wanted.
    Raw(Connection, Option<bool>),
    /// Of HTTP/3.
    Http(Http),
}

/// One connection of HTTP/3, which the client makes when it is asked for something.
#[derive(Clone)]
pub(crate) struct Http {
    client: http3::Client,
    origin: Arc<str>,
    connection: Arc<OnceLock<Connection>>,
    /// Whether requests may be early data.
    start: Start,
}

impl Visit {
    fn connection(&self) -> Option<&Connection> {
        match self {
            Self::Raw(connection, _) => Some(connection),
            Self::Http(http) => http.connection.get(),
        }
    }
}

impl Session for Visit {
    async fn exchange(&self, ask: Ask, answer: &mut Answer) -> Result<()> {
        match self {
            Self::Raw(connection, _) => raw(connection, ask, answer).await,
            Self::Http(http) => http.exchange(ask, answer).await,
        }
    }

    async fn update_keys(&self) -> Result<()> {
        let connection = self.connection().context("no connection yet")?;
        loop {
            match connection.update_keys() {
                Ok(()) => return Ok(()),
                // Not confirmed yet, or too soon after the last one: both pass.
                Err(_) => sleep(KEY_UPDATE_PAUSE).await,
            }
            if let Some(cause) = connection.close_reason() {
                return Err(cause).context("updating keys");
            }
        }
    }

    async fn facts(&self) -> Facts {
        let Some(connection) = self.connection() else {
            return Facts::default();
        };
        let early = match self {
            Self::Raw(_, early) => *early,
            Self::Http(http) => (http.start == Start::Early).then_some(true),
        };
        Facts {
            resumed: Some(connection.resumed()),
            zero_rtt_accepted: early
                .map(|offered| offered && connection.zero_rtt_accepted() == Some(true)),
            retried: Some(connection.retried()),
            key_updates: Some(connection.stats().counters.key_updates),
        }
    }

    fn close(&self, well: bool) {
        if let Some(connection) = self.connection() {
            connection.close(if well { NO_ERROR } else { FAILED }, b"");
        }
    }
}

async fn raw(connection: &Connection, ask: Ask, answer: &mut Answer) -> Result<()> {
    let (mut send, mut receive) = connection.open_bi().await?;
    send.write_all(&ask.wanted.to_be_bytes()).await?;
    let mut offset = 0;
    while offset < ask.upload {
        let piece = pattern(offset, ask.upload - offset);
        offset += piece.len() as u64;
        send.write_chunk(piece).await?;
    }
    send.finish()?;
    while let Some(chunk) = receive.read_chunk(usize::MAX).await? {
        answer.take(&chunk)?;
    }
    Ok(())
}

impl Http {
    async fn get(&self, url: &str) -> Result<http::Response<http3::Incoming>> {
        let mut request = http::Request::get(url).body(Upload::none())?;
        if self.start == Start::Complete {
            request.extensions_mut().insert(http3::EarlyData::Avoid);
        }
        let response = self.client.request(request).await?;
        self.learn(&response);
        Ok(response)
    }

    fn learn(&self, response: &http::Response<http3::Incoming>) {
        if let Some(connection) = response.extensions().get::<Connection>() {
            self.connection.get_or_init(|| connection.clone());
        }
    }

    async fn exchange(&self, ask: Ask, answer: &mut Answer) -> Result<()> {
        let url = format!("{}{}", self.origin, ask.path());
        let mut response = if ask.upload > 0 {
            let request = http::Request::post(url).body(Upload::new(ask.upload))?;
            let response = self.client.request(request).await?;
            self.learn(&response);
            response
        } else {
            self.get(&url).await?
        };
        answer.status(response.status().as_u16())?;
        let length = response.headers().get(http::header::CONTENT_LENGTH);
        if let Some(length) = length {
            ensure!(
                length.as_bytes() == ask.wanted.to_string().as_bytes(),
                "content-length is {length:?}"
            );
        }
        while let Some(chunk) = response.body_mut().chunk().await? {
            answer.take(&chunk)?;
        }
        let trailers = response.body().trailers();
        if let Some(sum) = trailers.and_then(|trailers| trailers.get("x-sum")) {
            answer.trailer(sum.as_bytes())?;
        }
        Ok(())
    }
}

/// An upload of the pattern, and its sum as the trailer `x-sum`.
struct Upload {
    offset: u64,
    length: u64,
    ended: bool,
}

impl Upload {
    fn new(length: u64) -> Self {
        Self {
            offset: 0,
            length,
            ended: false,
        }
    }

    /// Neither body nor trailer.
    fn none() -> Self {
        Self {
            ended: true,
            ..Self::new(0)
        }
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Task<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.offset < self.length {
            let piece = pattern(self.offset, self.length - self.offset);
            self.offset += piece.len() as u64;
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        if self.ended {
            return Poll::Ready(None);
        }
        self.ended = true;
        let mut trailers = http::HeaderMap::new();
        trailers.insert("x-sum", pattern::sum(self.length).into());
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}
