//! quiche as a server.

use std::{
    collections::{BTreeMap, HashMap},
    net::{Ipv6Addr, SocketAddr},
    time::Instant,
};

use anyhow::{Context, Result};
use contract::runner::{Environment, page, requested_path};
use tokio_quiche::quiche::{
    self, Config, Connection, ConnectionId, Error, RecvInfo, Type,
    h3::{self, Event, Header, NameValue},
};

use crate::{
    link::{Arrival, Link},
    settings::{ID_LENGTH, config, is_http3, new_id, random, trace},
};

/// Longest request of HTTP/0.9 in bytes.
const MAX_REQUEST: usize = 4096;

/// Length of a Retry's token in bytes.
const TOKEN_LENGTH: usize = 32;

/// Application error code of a request that cannot be answered.
const NOT_FOUND: u64 = 1;

/// Serves until killed.
pub(crate) async fn run(environment: &Environment) -> Result<()> {
    let mut config = config(environment)?;
    let file = |name: &str| {
        let path = environment.certs.join(name);
        path.to_str().map(str::to_owned).context("not UTF-8")
    };
    config.load_cert_chain_from_pem_file(&file("cert.pem")?)?;
    config.load_priv_key_from_pem_file(&file("priv.key")?)?;
    let address = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), environment.port);
    let mut server = Server {
        environment,
        config,
        link: Link::bind(address).await?,
        connections: BTreeMap::new(),
        by_id: HashMap::new(),
        tokens: HashMap::new(),
        next: 0,
    };
    println!("listening on {}", server.link.local);
    loop {
        server.step().await?;
    }
}

/// All connections on a socket.
struct Server<'a> {
    environment: &'a Environment,
    config: Config,
    link: Link,
    connections: BTreeMap<u64, Serving>,
    /// Our connection IDs, and the destination of a client's first packets.
    by_id: HashMap<Vec<u8>, u64>,
    /// Tokens of Retry packets: whom they were sent to, and the destination of the first packet.
    tokens: HashMap<Vec<u8>, (SocketAddr, ConnectionId<'static>)>,
    next: u64,
}

impl Server<'_> {
    /// Processes a datagram or timers, and sends what follows from that.
    async fn step(&mut self) -> Result<()> {
        let quics = self.connections.values().map(|serving| &serving.quic);
        let deadline = quics.filter_map(Connection::timeout_instant).min();
        match self.link.receive(deadline).await? {
            Arrival::Datagram(length, from) => {
                if let Some(key) = self.receive(length, from)? {
                    self.advance(key)?;
                }
            }
            Arrival::Deadline => {
                let now = Instant::now();
                let due = |serving: &Serving| serving.quic.timeout_instant() <= Some(now);
                let keys: Vec<u64> = self
                    .connections
                    .iter()
                    .filter(|it| due(it.1))
                    .map(|it| *it.0)
                    .collect();
                for key in keys {
                    if let Some(serving) = self.connections.get_mut(&key) {
                        serving.quic.on_timeout();
                    }
                    self.advance(key)?;
                }
            }
        }
        Ok(())
    }

    /// Hands a datagram to its connection, and returns that.
    fn receive(&mut self, length: usize, from: SocketAddr) -> Result<Option<u64>> {
        let Ok(header) = quiche::Header::from_slice(&mut self.link.buffer[..length], ID_LENGTH)
        else {
            return Ok(None);
        };
        let key = match self.by_id.get(header.dcid.as_ref()) {
            Some(key) => *key,
            None => match self.accept(&header, length, from)? {
                Some(key) => key,
                None => return Ok(None),
            },
        };
        let to = self.link.local;
        let Some(serving) = self.connections.get_mut(&key) else {
            return Ok(None);
        };
        // What cannot be processed is dropped; if the connection ends, quiche says so to the peer.
        let _ = serving
            .quic
            .recv(&mut self.link.buffer[..length], RecvInfo { from, to });
        Ok(Some(key))
    }

    /// Begins a connection, unless Version Negotiation or Retry is the answer.
    fn accept(
        &mut self,
        header: &quiche::Header<'_>,
        length: usize,
        from: SocketAddr,
    ) -> Result<Option<u64>> {
        let is_long = header.ty != Type::Short && header.ty != Type::VersionNegotiation;
        if is_long && !quiche::version_is_supported(header.version) {
            // RFC 9000 §6.1: only to what could be a client's first datagram.
            if length >= quiche::MIN_CLIENT_INITIAL_LEN {
                let mut answer = vec![0; length];
                let written = quiche::negotiate_version(&header.scid, &header.dcid, &mut answer)?;
                answer.truncate(written);
                self.link.push(answer, from);
            }
            return Ok(None);
        }
        if header.ty != Type::Initial {
            return Ok(None);
        }
        let token = header.token.as_deref().unwrap_or_default();
        let (id, original) = match self.tokens.get(token) {
            Some((address, original)) if *address == from => (header.dcid.clone(), Some(original)),
            _ if self.environment.test_case == "retry" => {
                self.retry(header, from)?;
                return Ok(None);
            }
            _ => (new_id()?, None),
        };
        let config = &mut self.config;
        let mut quic = quiche::accept(&id, original, self.link.local, from, config)?;
        trace(&mut quic, &id, self.environment)?;
        let key = self.next;
        self.next += 1;
        self.by_id.insert(id.to_vec(), key);
        self.by_id.insert(header.dcid.to_vec(), key);
        self.connections.insert(key, Serving::new(quic));
        Ok(Some(key))
    }

    fn retry(&mut self, header: &quiche::Header<'_>, to: SocketAddr) -> Result<()> {
        let token = random::<TOKEN_LENGTH>()?;
        let id = new_id()?;
        let mut answer = vec![0; quiche::MIN_CLIENT_INITIAL_LEN];
        let length = quiche::retry(
            &header.scid,
            &header.dcid,
            &id,
            &token,
            header.version,
            &mut answer,
        )?;
        answer.truncate(length);
        let original = ConnectionId::from_vec(header.dcid.to_vec());
        self.tokens.insert(token.to_vec(), (to, original));
        self.link.push(answer, to);
        Ok(())
    }

    /// Answers requests and sends what a connection has to send.
    fn advance(&mut self, key: u64) -> Result<()> {
        let Some(serving) = self.connections.get_mut(&key) else {
            return Ok(());
        };
        while serving.quic.is_established() && serving.quic.scids_left() > 0 {
            let id = new_id()?;
            let token = u128::from_be_bytes(random()?);
            serving.quic.new_scid(&id, token, false)?;
            self.by_id.insert(id.to_vec(), key);
        }
        if let Err(error) = serving.answer(self.environment) {
            eprintln!("endpoint-quiche: {error:#}");
            // It fails for a connection that is closed already.
            let _ = serving.quic.close(true, NOT_FOUND, b"");
        }
        if let Err(error) = self.link.take_from(&mut serving.quic) {
            eprintln!("endpoint-quiche: sending: {error}");
        }
        while let Some(event) = serving.quic.path_event_next() {
            eprintln!("endpoint-quiche: {event:?}");
        }
        if serving.quic.is_closed() {
            self.connections.remove(&key);
            self.by_id.retain(|_, of| *of != key);
        }
        Ok(())
    }
}

/// A response under way.
struct Response {
    /// Whether HTTP/3's header has been sent.
    begun: bool,
    /// The content, or none if the file does not exist.
    content: Option<Vec<u8>>,
    sent: usize,
}

/// One connection.
struct Serving {
    quic: Connection,
    http3: Option<h3::Connection>,
    /// Requests of HTTP/0.9 that are not complete.
    requests: HashMap<u64, Vec<u8>>,
    responses: BTreeMap<u64, Response>,
}

impl Serving {
    fn new(quic: Connection) -> Self {
        Self {
            quic,
            http3: None,
            requests: HashMap::new(),
            responses: BTreeMap::new(),
        }
    }

    /// Reads requests and sends what is possible of the responses.
    fn answer(&mut self, environment: &Environment) -> Result<()> {
        if !self.quic.is_established() && !self.quic.is_in_early_data() {
            return Ok(());
        }
        if is_http3(environment) {
            let mut http3 = match self.http3.take() {
                Some(http3) => http3,
                None => h3::Connection::with_transport(&mut self.quic, &h3::Config::new()?)?,
            };
            self.read_http3(&mut http3, environment)?;
            self.respond_http3(&mut http3);
            self.http3 = Some(http3);
        } else {
            self.read(environment);
            self.respond();
        }
        Ok(())
    }

    fn insert(&mut self, stream: u64, content: Option<Vec<u8>>) {
        let response = Response {
            begun: false,
            content,
            sent: 0,
        };
        self.responses.insert(stream, response);
    }

    fn read(&mut self, environment: &Environment) {
        let mut chunk = [0; MAX_REQUEST];
        for stream in self.quic.readable() {
            // It fails for a stream that was reset, or has no more for now.
            while let Ok((length, end)) = self.quic.stream_recv(stream, &mut chunk) {
                let request = self.requests.entry(stream).or_default();
                request.extend_from_slice(&chunk[..length]);
                if end || request.len() > MAX_REQUEST {
                    let request = self.requests.remove(&stream).unwrap_or_default();
                    let path = requested_path(&request);
                    let content = path.and_then(|path| environment.page(path));
                    self.insert(stream, content);
                    break;
                }
            }
        }
    }

    fn respond(&mut self) {
        let quic = &mut self.quic;
        self.responses.retain(|stream, response| {
            let Some(content) = &response.content else {
                // It fails for a direction that is over already.
                let _ = quic.stream_shutdown(*stream, quiche::Shutdown::Write, NOT_FOUND);
                return false;
            };
            // More than quiche takes would have it send DATA_BLOCKED.
            let rest = &content[response.sent..];
            let length = match quic.stream_capacity(*stream) {
                Ok(capacity) => rest.len().min(capacity),
                Err(error) => return error == Error::Done,
            };
            match quic.stream_send(*stream, &rest[..length], length == rest.len()) {
                Ok(length) => {
                    response.sent += length;
                    response.sent < content.len()
                }
                Err(error) => error == Error::Done,
            }
        });
    }

    fn read_http3(&mut self, http3: &mut h3::Connection, environment: &Environment) -> Result<()> {
        loop {
            match http3.poll(&mut self.quic) {
                Ok((stream, Event::Headers { list, .. })) => {
                    let path = list.iter().find(|header| header.name() == b":path");
                    let path = path.and_then(|path| std::str::from_utf8(path.value()).ok());
                    let content = path.and_then(|path| page(&environment.www, path));
                    self.insert(stream, content);
                }
                Ok(_) => {}
                Err(h3::Error::Done) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn respond_http3(&mut self, http3: &mut h3::Connection) {
        let quic = &mut self.quic;
        self.responses.retain(|stream, response| {
            let content = response.content.as_deref().unwrap_or_default();
            let blocked = |error| matches!(error, h3::Error::Done | h3::Error::StreamBlocked);
            if !response.begun {
                let status: &[u8] = if response.content.is_some() {
                    b"200"
                } else {
                    b"404"
                };
                let head = [Header::new(b":status", status)];
                if let Err(error) = http3.send_response(quic, *stream, &head, content.is_empty()) {
                    return blocked(error);
                }
                response.begun = true;
            }
            while response.sent < content.len() {
                match http3.send_body(quic, *stream, &content[response.sent..], true) {
                    Ok(length) => response.sent += length,
                    Err(error) => return blocked(error),
                }
            }
            false
        });
    }
}
